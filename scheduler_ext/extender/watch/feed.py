"""EDGE: receives the watcher's frames in the serving process, makes snapshots of them, and restarts the watcher.

`snapshot` is replaced by reference; each call reads it once. A watcher that dies is restarted with growing pauses,
while the last snapshot ages.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from typing import Final

import msgspec
import structlog

from cotenant.base.kube import KubeClient
from cotenant.base.process.in_hand import STILL_SECONDS
from cotenant.base.settings.sections import TelemetrySettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, Shares, next_snapshot
from cotenant.scheduler_ext.extender.watch.frame import DECODER, ENCODER, Frame
from cotenant.scheduler_ext.extender.watch.watcher import WatcherConfig, watch

LONGEST_PAUSE_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 2 * STILL_SECONDS
"""A watcher without a frame for this long hangs on an object, which the restarted watcher leaves out."""
STARTING_SECONDS: Final = 180.0  # on a busy node an interpreter may take a minute to start
_log = structlog.get_logger(__name__)


class SnapshotFeed:
    """The newest snapshot, and what each pod contributes to its node's numbers there."""

    def __init__(self) -> None:
        """Start without any node; the first frame adds them."""
        self.snapshot = NodeSnapshot()
        self.shares: Shares = {}
        self.frames = 0

    def take(self, frame: Frame) -> None:
        """Apply a frame to the snapshot and to the pods' contributions, by uid; only the feed's thread calls this."""
        if frame.fresh:
            self.shares.clear()
        for uid in frame.gone or ():
            self.shares.pop(uid, None)
        if frame.shares:
            self.shares.update(frame.shares)
        self.snapshot = next_snapshot(self.snapshot, frame)
        self.frames += 1


class Feed:
    """Runs a watcher process and applies its frames, in a thread."""

    def __init__(
        self,
        view: SnapshotFeed,
        client: KubeClient,
        settings: ExtenderSettings,
        telemetry: TelemetrySettings | None = None,
    ) -> None:
        """Create the feed's thread; it is not started yet."""
        self._view, self._client, self._settings = view, client, settings
        self._job = WatcherConfig(client.settings, settings, telemetry or TelemetrySettings())
        self._stopping = threading.Event()
        self._silent_after = math.inf
        self.process: subprocess.Popen[bytes] | None = None
        run = self._keep_process if settings.watcher == "process" else self._watch_here
        self._thread = threading.Thread(target=run, name="feed", daemon=True)

    def start(self) -> None:
        """Start the thread that receives snapshots from the extender's watcher process."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the watcher and wait up to 5 s for the thread; the last snapshot stays readable."""
        self._stopping.set()
        if self.process is not None:
            self.process.kill()
        if self._thread.is_alive():
            self._thread.join(5)

    def _watch_here(self) -> None:
        def take(frame: Frame) -> None:  # encoded and decoded, so that both kinds of watchers use the same path
            self._view.take(DECODER.decode(ENCODER.encode(frame)))

        watch(self._client.sibling(), self._settings, take, self._stopping)

    def _keep_process(self) -> None:
        """Run watcher processes until stopped; the pause between them doubles, and a long run resets it."""
        pause = 0.5
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._follow_process()
            except Exception:  # noqa: BLE001 - without a feed the rules would fall silent for ever
                _log.exception("messages of the process that watches the cluster cannot be read")
            if self._stopping.is_set():
                return
            pause = 0.5 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else min(2 * pause, LONGEST_PAUSE_SECONDS)
            _log.warning("the process that watches the cluster ended and is started again", pause_seconds=pause)
            self._stopping.wait(pause)

    def _follow_process(self) -> None:
        """Apply the frames of one watcher process until it ends."""
        command = [sys.executable, "-m", "cotenant.scheduler_ext.extender.watch.watcher"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(msgspec.json.encode(self._job) + b"\n")
            self.process.stdin.flush()
            self._silent_after = time.monotonic() + STARTING_SECONDS
            threading.Thread(target=self._end_silent, args=(self.process,), name="silence", daemon=True).start()
            while len(head := self.process.stdout.read(4)) == 4:
                body = self.process.stdout.read(int.from_bytes(head, "big"))
                self._view.take(DECODER.decode(body))
                self._silent_after = time.monotonic() + SILENT_SECONDS
        finally:
            self.process.kill()
            self.process.wait()

    def _end_silent(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a watcher that is silent: it should send a frame each second, whatever it waits for."""
        while process.poll() is None and not self._stopping.wait(1.0):
            if time.monotonic() > self._silent_after:
                _log.error("the process that watches the cluster hangs and is stopped")
                process.kill()
                return
