"""The recorder in a process whose clock runs fast, and what it left in the store, for tests of kills and outages.

    with FastRecording(folder, plane, speed=30) as recording:
        first = recording.process()          # imported and waiting
        first.begin()
        recording.wait_slots(2)              # by its clock, five minutes each
        first.kill()

The kubelets run by the same clock, so five minutes take ten seconds at a speed of 30; every container uses half a core.
`python -m tests.support.fast_recorder JOB` is a process; it waits for a line before it asks for the Lease.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import numpy as np

from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.kube import Lease, connect, fresh_identity
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.process.files import locking_process
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.base.store.store import Store
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.recorder.gaps import RecordingGap
from cotenant.profiler.recorder.kubelets import KubeletRules
from cotenant.profiler.recorder.service import LEASE, Recorder
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support.fast_clock import FastClock
from tests.support.kubelets import KubeletServers

START: Final = 1_795_046_400
"""A full hour."""
NODES, PODS = 2, 2
INTERVAL_SECONDS = 60.0
LEASE_SECONDS = 2.0
"""Of the machine's clock, which a Lease goes by."""


@dataclass(frozen=True)
class Job:
    """What a process is told."""

    kubeconfig: str
    store: str
    clock: str
    authority: str
    speed: float


class RecorderProcess:
    """A process that has loaded everything, and records from `begin` on."""

    def __init__(self, job: Job, log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.support.fast_recorder", json.dumps(job.__dict__)]
        # Through a pipe: where files may not grow, a log could not either.
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._in: IO[bytes] = self._popen.stdin
        self._out: IO[bytes] = self._popen.stdout
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._loaded = threading.Event()
        self._thread.start()

    def _copy(self) -> None:
        with self.log.open("ab") as log:
            for line in self._out:
                self._loaded.set()
                log.write(line)
                log.flush()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text() if self.log.exists() else ""

    def begin(self) -> None:
        """Ask for the Lease and record."""
        assert self._loaded.wait(120), "it did not load"
        self._in.write(b"begin\n")
        self._in.flush()

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def stop_between_writes(self, store: Path) -> None:
        """Stop it where it stands, but not where it has a lock of the store.

        A process that is stopped within a write keeps the lock, by right: it would go on with that write. Its successor
        waits then and names it (tests/base/test_lock_holder.py), which is another case.
        """

        def has_stopped() -> bool:
            self.send(signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)
            locks = (locking_process(path) for path in store.rglob(".*"))
            if all(lock is None or lock.pid != self.pid for lock in locks):
                return True
            self.send(signal.SIGCONT)
            return False

        wait_for("a moment without a lock", has_stopped)

    def kill(self) -> None:
        """End it at once, wherever it is."""
        assert self._popen.poll() is None, self.text
        self.close()

    def end(self) -> None:
        """End it in order."""
        assert self._popen.poll() is None, self.text
        self.send(signal.SIGTERM)
        assert self._popen.wait(60) == 0, self.text

    def close(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._thread.join(10)


class FastRecording:
    """Kubelets, their nodes at an API server, an empty store, and processes that record into it."""

    def __init__(self, folder: Path, plane: ControlPlane, speed: float, kubeconfig: Path | None = None) -> None:
        self.folder, self.plane, self.speed = folder, plane, speed
        self._kubeconfig = kubeconfig or account(plane, "cotenant-recorder")
        (token,) = re.findall(r"token: (\S+)", account(plane, "cotenant-recorder").read_text())
        self.clock = FastClock.create(folder / "clock", START, speed)
        """The recorder's."""
        self.node_clock = FastClock.create(folder / "node-clock", START, speed)
        self.kubelets = KubeletServers(folder, NODES, PODS, token, self.node_clock.file)
        self.store = Store((folder / "store").as_uri(), "c")
        self._processes: list[RecorderProcess] = []

    def __enter__(self) -> Self:
        self.kubelets.__enter__()
        with contextlib.closing(self.plane.api()) as api:
            for address in self.kubelets.addresses:
                status = {
                    "addresses": [{"type": "InternalIP", "address": address.host}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port}},
                }
                api.create("/api/v1/nodes", {"metadata": {"name": address.node}, "status": status})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.close()
        self.kubelets.kill()
        with contextlib.closing(self.plane.api()) as api:
            for address in self.kubelets.addresses:
                api.delete(f"/api/v1/nodes/{address.node}")

    def process(self) -> RecorderProcess:
        """One more process, which loads and waits."""
        job = Job(str(self._kubeconfig), self.store.url, str(self.clock.file), str(self.kubelets.authority), self.speed)
        self._processes.append(RecorderProcess(job, self.folder / f"log-{len(self._processes)}"))
        return self._processes[-1]

    # ---- time

    def wait(self, seconds: float) -> None:
        """Wait so long by the nodes' clock."""
        end = self.node_clock.now_seconds() + seconds
        while (remaining := end - self.node_clock.now_seconds()) > 0:
            time.sleep(min(0.2, remaining / self.speed))

    def wait_stored(self, what: str, until_seconds: float) -> None:
        """Wait until a slot is stored that ends then or later."""
        wait_for(what, lambda: (s := self.status) is not None and s.until_seconds >= until_seconds, 120)

    def slot_now(self) -> int:
        """Begin of the present slot."""
        return int(self.node_clock.now_seconds() // FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS

    # ---- what is stored

    @property
    def status(self) -> RecorderStatus | None:
        """What the recorder publishes of itself."""
        return self.store.read_document(STATUS_DOCUMENT, RecorderStatus)

    @property
    def gaps(self) -> list[RecordingGap]:
        """The gaps that it names."""
        return self.status.gaps if self.status else []

    def usage(self, signal: Signal = Signal.CPU_USAGE_MEAN) -> Usage[PodContainerRef] | Usage[NodeRef]:
        """All that is stored of a signal since a day before the start, with the slot or hour that is not over yet."""
        step = signal.spec.step_seconds
        return self.store.read(
            signal, TimeGrid.from_span(START - 86_400, self.slot_now() + FIVE_MINUTES_SECONDS + step, step)
        )

    def measured_slots(self, node: str = "") -> set[int]:
        """Begins of the slots in which any node, or this one, has a mean of CPU."""
        usage = self.usage(Signal.NODE_CPU_USAGE_MEAN)
        names = [str(ref) for ref in usage.refs]
        rows = [i for i, name in enumerate(names) if node in ("", name)]
        finite = np.isfinite(usage.values[rows]).any(axis=0)
        return {usage.grid.start_seconds + int(i) * FIVE_MINUTES_SECONDS for i in np.flatnonzero(finite)}

    def means(self) -> list[float]:
        """All means of CPU of containers and nodes, in millicores."""
        blocks = (self.usage(), self.usage(Signal.NODE_CPU_USAGE_MEAN))
        return [value for usage in blocks for value in usage.values[np.isfinite(usage.values)].tolist()]


def record(job: Job) -> None:
    """Record until told to end."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    clock, manager = FastClock(Path(job.clock)), ManagerSettings(lease_seconds=LEASE_SECONDS)
    settings = Settings(kube=KubeSettings(kubeconfig=job.kubeconfig), manager=manager)
    configure_logging(settings.telemetry)
    client = connect(settings.kube)
    lease = Lease(client, settings.manager.namespace, LEASE, fresh_identity(), settings.manager, clock)
    rules = KubeletRules(INTERVAL_SECONDS, job.authority, round_seconds=INTERVAL_SECONDS / job.speed)
    recorder = Recorder(client, settings, Store(job.store, "c"), lease, clock, rules)
    print("loaded", flush=True)
    sys.stdin.readline()
    lease.start()
    try:
        recorder.run(ended)
    finally:
        lease.stop()


if __name__ == "__main__":
    record(Job(**json.loads(sys.argv[1])))
