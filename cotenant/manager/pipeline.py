"""EDGE: runs the pipeline periodically in a child process and keeps the last results for the controllers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from cotenant.base import errors
from cotenant.base.controllers.sender import Leadership
from cotenant.base.errors import CotenantError, NoData, SourceError, StoreError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.manager.decisions.results import PipelineFailure, PipelineJob, RunResults
from cotenant.settings import Settings

CHILD: Final = ("-m", "cotenant.manager.pipeline_child")
KILLED: Final = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})
"""Exit codes of a process that the kernel may have killed for its memory."""
OWN_LOG: Final = "The manager's log has the process's last messages; if it has none, something killed the process."
NO_DATA_RETRY_SECONDS: Final = 60.0
LONGEST_RETRY_SECONDS: Final = 600.0
"""Longest pause after a run that failed; the pause is never longer than the interval between runs."""
log = structlog.get_logger(__name__)


class PipelineFailed(CotenantError):
    """Raised if the pipeline's child process ended without results; the manager's log has its last messages."""


class Pipeline:
    """A thread that runs the pipeline in one child process at a time; `results` is thread-safe.

    Results are dropped when another replica becomes leader, because that replica's are based on newer history.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: str,
        leadership: Leadership,
        ran: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        """Create a pipeline that does not run yet; `ran` is called after each run with results."""
        self._run_ended, self._clock = ran, clock or SystemClock()
        self._settings = settings
        self._job = PipelineJob(settings, cluster, settings.manager.write)
        self._leadership = leadership
        self._results: RunResults | None = None
        self._error: CotenantError | None = None
        self._began_seconds: float | None = None
        self._stored_until: float | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        """Start the thread, which runs the pipeline now and at each interval while this replica is the leader."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and end a running child process."""
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def has_results(self) -> bool:
        """True if results of a run are available."""
        return self._results is not None

    def results(self) -> RunResults:
        """Return the last run's results; raise the last error if no run succeeded, NoData before a run has ended."""
        if self._results is not None:
            return self._results
        raise self._error or NoData("the first run of the pipeline has not ended yet")

    def published_until(self) -> float | None:
        """Return the latest possible end (Unix seconds) of the history behind everything that was published.

        That history ends no later than the stored one, and no later than the start of our first run. None before a run
        has failed.
        """
        if self._error is None or self._began_seconds is None:
            return None
        return self._began_seconds if self._stored_until is None else min(self._began_seconds, self._stored_until)

    def accept(self, results: RunResults) -> None:
        """Use the results of a pipeline run that another process made."""
        self._results, self._error = results, None

    def run_once(self) -> None:
        """Run the pipeline once, now."""
        if self._began_seconds is None:
            self._began_seconds = self._clock.now_seconds()
        try:
            self._results, self._error = self._ran(), None
            self._run_ended()
            log.info("pipeline ran", workloads=len(self._results.workloads), nodes=len(self._results.nodes))
        except CotenantError as error:
            self._error = error
            if not self._stopping.is_set():
                log.warning("pipeline gave no results", error=error.message, fix=error.fix)

    def _run(self) -> None:
        interval = self._settings.manager.pipeline_interval_seconds
        while not self._stopping.is_set():
            if not self._leadership.is_leading:
                if self._began_seconds is not None:
                    self._results = self._error = self._began_seconds = self._stored_until = None
                self._stopping.wait(self._settings.manager.retry_seconds)
                continue
            self.run_once()
            # Until the next run: history may come any minute, what failed is tried again in a while.
            if self._error is None:
                pause_seconds = interval
            else:
                pause_seconds = NO_DATA_RETRY_SECONDS if isinstance(self._error, NoData) else LONGEST_RETRY_SECONDS
            self._stopping.wait(min(interval, pause_seconds))

    def _ran(self) -> RunResults:
        """Return the results of a child process; end it if `stop` was called while it started."""
        command = [sys.executable, *CHILD]
        try:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603
                self._child = child
                if self._stopping.is_set():
                    child.terminate()
                answer, _ = child.communicate(msgspec.json.encode(self._job))
        except OSError as error:
            fix = "Check whether the manager's container has enough memory."
            raise PipelineFailed(f"the pipeline's process could not be started: {error.strerror}", fix=fix) from error
        self._child, code = None, child.returncode
        self._stored_until = None
        if code not in (0, 1) or not answer:
            fix = "If memory was short, raise the memory limit of the manager." if code in KILLED else OWN_LOG
            raise PipelineFailed(f"the pipeline's process ended with exit code {code}", fix=fix)
        try:
            if code == 0:
                return msgspec.json.decode(answer, type=RunResults)
            failure = msgspec.json.decode(answer, type=PipelineFailure)
        except UNDECODABLE as error:
            raise PipelineFailed(f"the pipeline's process returned no valid result: {error}", fix=OWN_LOG) from error
        self._stored_until = failure.history_end_seconds
        # The error as the child met it, where source, store or history are what is wrong.
        kind = getattr(errors, failure.kind, None)
        if isinstance(kind, type) and issubclass(kind, NoData | SourceError | StoreError):
            raise kind(failure.message, fix=failure.fix)
        raise PipelineFailed(failure.message, fix=failure.fix)
