"""EDGE: simulates lending on the stored history at several risks, in the background, for the dashboard that shows it.

The process runs `cotenant replay-risks` for new results, at most once a day and with low priority. This module starts
it, reads its progress, and ends it if it takes more than an hour or too much of the free memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

import msgspec
import structlog

from cotenant.base import measures
from cotenant.base.commands.call import STORED, CommandCall, command
from cotenant.base.commands.progress import bars
from cotenant.base.commands.results import stored_clusters_of
from cotenant.base.commands.session import CliSession, new_app
from cotenant.base.errors import CotenantError
from cotenant.base.process.memory import free_bytes, resident_bytes
from cotenant.base.progress import ProgressMessage
from cotenant.base.store import Store
from cotenant.base.usage.backtest import FAILED, WHAT_IF, ReplayJob, ReplayProgress, WhatIf
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.commands.dashboard import Replays
from cotenant.experiment.outcome import RISKS_PERCENT
from cotenant.recommender.model.views import Overview

app = new_app()

DAYS: Final = 7
"""Most days that are replayed; all of them come after the 14 days of history that a forecast needs."""
STAGES: Final = 2 + 1 + len(RISKS_PERCENT)
"""Stages of the progress: read the history, forecast it, replay lending by present usage, then replay each risk."""
NICENESS: Final = 10
FIRST_SECONDS: Final = 10.0
"""Wait before the first replay, so that a person who opens the pages at once has the processor."""
CHECK_SECONDS: Final = 60.0
"""Time between two checks for newer results."""
POLL_SECONDS: Final = 0.2
MOST_SECONDS: Final = 3600.0
MOST_MEMORY_SHARE: Final = 0.7
"""Share of the memory free at a replay's start that the replay may use at most."""
STOPPED: Final = "The replay was stopped. The next day's scan starts it again."
TOO_LONG: Final = "The replay was stopped after an hour."
TOO_LARGE: Final = "The replay was stopped because this machine has too little free memory. Run it on another one."
_log = structlog.get_logger(__name__)


class _Line(msgspec.Struct):
    """A JSON line of the command's log; the last error says why the command failed."""

    level: str = ""
    msg: str = ""


class BackgroundReplay:
    """Runs replays (simulations on the history) of one store, one at a time; implements `ReplayJob`. Thread-safe."""

    def __init__(
        self,
        store: Store,
        options: Sequence[str],
        environment: Mapping[str, str],
        turn: threading.Lock,
        first_seconds: float = FIRST_SECONDS,
        niceness: int = NICENESS,
    ) -> None:
        """Start a thread that checks for new results and replays them when they are due.

        `options`: global options of the command; `environment`: variables to add to those of this process; `turn`: a
        lock held during a replay, so that only one store of a dashboard is replayed at a time.
        """
        self._store, self._turn, self._first_seconds, self._niceness = store, turn, first_seconds, niceness
        where = ["--store", store.url, "--cluster", store.cluster]
        run = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
        self._command = [*run, "--log-format", "json", *options, "replay-risks", *where]
        self._environment = {**os.environ, **environment}
        self._begun = 0.0
        self._message: ProgressMessage | None = None
        self._running = False
        self._error = self._reason = ""
        self._tried_seconds: int | None = None
        self._stop, self._idle, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._watch, name="replay", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the running replay; None if none runs."""
        if not self._running:
            return None
        message = self._message or ProgressMessage("", 1, 0, 1)
        share = measures.ratio_of(message.stages_done, STAGES)
        remaining = measures.remaining_seconds(time.monotonic() - self._begun, share)
        return ReplayProgress(message.number - 1, STAGES, remaining)

    @property
    def reason(self) -> str:
        """Why the last replay gave no result; "" if it did not fail."""
        return self._reason

    def stop(self) -> None:
        """End the running replay and wait for its end."""
        self._stop.set()
        self._idle.wait()

    def close(self) -> None:
        """End the running replay and the thread that starts replays."""
        self._closed.set()
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        wait_seconds = self._first_seconds
        while not self._closed.wait(wait_seconds):
            wait_seconds = CHECK_SECONDS
            try:
                # When the results were computed that a replay is due for; None for none.
                overview = self._store.read_document("overview", Overview)
                replay = self._store.read_document(WHAT_IF, WhatIf)
                last = max(
                    (t for t in (self._tried_seconds, replay.computed_seconds if replay else None) if t), default=None
                )
                analysed = due_seconds(overview.computed_seconds if overview else None, last, time.time())
            except CotenantError as error:
                _log.warning("results_unreadable", error=error.message)
                continue
            if analysed is None:
                continue
            while not self._turn.acquire(timeout=POLL_SECONDS):  # replays of other stores come first
                if self._closed.is_set():
                    return
            try:
                self._tried_seconds = analysed
                self._replay()
            finally:
                self._turn.release()

    def _replay(self) -> None:
        free = free_bytes()
        self._begun, self._message, self._error, self._reason = time.monotonic(), None, "", ""
        try:
            child = subprocess.Popen(  # noqa: S603
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            self._reason = f"{FAILED}its process cannot be started: {error.strerror}."
            return
        with suppress(OSError):  # it may have ended
            os.setpriority(os.PRIO_PROCESS, child.pid, self._niceness)
        self._stop.clear()
        self._idle.clear()
        self._running = True
        reader = threading.Thread(target=self._follow, args=(child,), name="replay-progress", daemon=True)
        reader.start()
        # Wait for the end; "" where it ended by itself, else why it was ended.
        most_bytes = None if free is None else free * MOST_MEMORY_SHARE
        ended = ""
        while child.poll() is None:
            if self._closed.is_set() or self._stop.wait(POLL_SECONDS):
                ended = STOPPED
            elif time.monotonic() - self._begun > MOST_SECONDS:
                ended = TOO_LONG
            elif most_bytes is not None and (resident_bytes(child.pid) or 0) > most_bytes:
                ended = TOO_LARGE
            if ended:
                child.terminate()
                child.wait()
        reader.join()
        failed = f"{FAILED}{self._error or f'exit code {child.returncode}'}." if child.returncode else ""
        self._running, self._reason = False, ended or failed
        self._idle.set()

    def _follow(self, child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None, "the child's stderr is a pipe"
        for line in child.stderr:
            if message := ProgressMessage.parse(line):
                self._message = message
                continue
            with suppress(msgspec.MsgspecError):
                log_line = msgspec.json.decode(line, type=_Line)
                if log_line.level == "error":
                    self._error = log_line.msg.removeprefix("error: ")


def due_seconds(analysed_seconds: int | None, last_seconds: int | None, now_seconds: float) -> int | None:
    """Return `analysed_seconds`, the Unix time of the newest results, if a replay of them is due, else None.

    It is due if they are newer than `last_seconds` and that is a day ago, or None. `last_seconds` is the later of two
    Unix times: of the stored replay's end, and of the results whose replay was tried last.
    """
    if analysed_seconds is None or last_seconds is None:
        return analysed_seconds
    now_seconds = max(now_seconds, analysed_seconds)  # a demo's clock may be ahead of this machine's
    return analysed_seconds if analysed_seconds > last_seconds and now_seconds - last_seconds >= DAY_SECONDS else None


@contextmanager
def background_replay(
    store: Store,
    turn: threading.Lock,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    first_seconds: float = FIRST_SECONDS,
    niceness: int = NICENESS,
) -> Iterator[BackgroundReplay]:
    """Replay the store's history in the background until the context ends."""
    job = BackgroundReplay(store, options, environment or {}, turn, first_seconds, niceness)
    try:
        yield job
    finally:
        job.close()


def replays() -> Replays:
    """Return the function that starts the dashboard's background replays with the command's settings file and --set."""
    turn = threading.Lock()

    def begin(session: CliSession, store: Store) -> AbstractContextManager[ReplayJob]:
        config_options = ["--config", str(session.config)] if session.config else []
        options = [*config_options, *(word for pair in session.overrides.items() for word in ("--set", "=".join(pair)))]
        return background_replay(store, turn, options)

    return Replays(begin)


@command(app, STORED, "cotenant replay-risks --store /data/cotenant")
def replay_risks(call: CommandCall) -> None:
    """Replay lending on the stored history at every risk of the dashboard's page Try a risk, and store the result.

    The dashboard runs this in the background for new results. It reads the store and writes one document to it.
    """
    from cotenant.base.usage.backtest import WHAT_IF
    from cotenant.experiment.interference import Interference
    from cotenant.experiment.loop import INSTALLED, run_all_settings
    from cotenant.experiment.nodes_past import stored_world
    from cotenant.experiment.outcome import RISKS_PERCENT, STORED, Sharing, SharingScenario, what_if
    from cotenant.settings import Settings

    (place,) = stored_clusters_of(call.ctx, call.given["store"], call.cluster, False)
    knobs = {Sharing.KOORDINATOR: (INSTALLED[Sharing.KOORDINATOR],), Sharing.COTENANT: RISKS_PERCENT}
    with bars() as progress:
        world = stored_world(place.store, Settings.of(place.settings), SharingScenario(STORED, 1, 1, DAYS, 1), progress)
        outcomes = run_all_settings(world, knobs, Interference(), progress)
    document = what_if(outcomes, place.now_seconds())
    assert document is not None, "the outcomes include those of sharing 'cotenant'"
    place.store.write_document(WHAT_IF, document)
