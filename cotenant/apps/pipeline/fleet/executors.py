"""EDGE: executors of shards: processes of this machine, or the workers of a Dask scheduler.

An executor maps a function over tasks and yields each result as it comes, in any order. Tasks are idempotent, so a
worker that dies costs only what it was doing: that is given to another one. Errors of our own (CotenantError) are not
tried again.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from cotenant.core.model.errors import CotenantError, UsageError

TaskT = TypeVar("TaskT")
ATTEMPTS: Final = 3
"""Times that a task may be begun; one that kills its worker each time must not go round for ever."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS"), "1"
)


class Executor(Protocol):
    """Maps a function over tasks."""

    def run(self, work: Callable[[TaskT], str], tasks: Sequence[TaskT]) -> Iterator[str]:
        """Results as they come; the first error ends it."""


class WorkerLost(CotenantError):
    """Workers ended again and again under the same task."""


@dataclass(frozen=True, slots=True)
class Processes:
    """A pool of processes on this machine, each with one thread. With one worker the pool still has its own process."""

    workers: int = 2

    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), _end_with_parent)

    def run(self, work: Callable[[TaskT], str], tasks: Sequence[TaskT]) -> Iterator[str]:
        """Results as they come. When a worker is killed the pool is made anew for what was not finished."""
        remaining = dict(enumerate(tasks))
        attempts = dict.fromkeys(remaining, 0)
        while remaining:
            with _one_thread(), self._pool() as pool:
                try:
                    for number, name in _finished(pool, work, remaining, attempts, self.workers):
                        del remaining[number]
                        yield name
                except BrokenProcessPool:
                    worn = [n for n in remaining if attempts[n] >= ATTEMPTS]
                    if worn:
                        raise WorkerLost(
                            f"a worker ended {ATTEMPTS} times while it computed {remaining[worn[0]]}",
                            fix="Is there memory enough? Use fewer --workers or smaller shards.",
                        ) from None


def _finished(
    pool: ProcessPoolExecutor,
    work: Callable[[Any], str],
    remaining: dict[int, Any],
    attempts: dict[int, int],
    workers: int,
) -> Iterator[tuple[int, str]]:
    """(number, result) of the tasks; no more are handed out than workers are, so that a break is counted right."""
    waiting = iter(list(remaining.items()))
    running: dict[Future[str], int] = {}
    while True:
        while len(running) < workers and (following := next(waiting, None)) is not None:
            number, task = following
            attempts[number] += 1
            running[pool.submit(work, task)] = number
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            number = running.pop(future)
            yield number, future.result()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Children inherit one thread a process: two workers on two cores must not fight."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class Tls:
    """Files (PEM) of mutual TLS with a scheduler."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class Dask:
    """Workers of a Dask scheduler; they must have this cotenant installed and reach the same store."""

    address: str
    tls: Tls = Tls()
    seconds: float = 30.0
    """How long to wait for the scheduler to answer."""

    def run(self, work: Callable[[TaskT], str], tasks: Sequence[TaskT]) -> Iterator[str]:
        """Results as they come. Dask gives a lost worker's tasks to others."""
        try:
            import distributed  # an extra: most installations run on one machine
        except ImportError:
            raise UsageError(
                "--scheduler needs the package distributed", fix="pip install 'cotenant[distributed]'"
            ) from None
        try:
            client = distributed.Client(
                self.address, security=self._security(), timeout=self.seconds, set_as_default=False
            )
        except (OSError, ValueError, TimeoutError, RuntimeError) as error:
            raise CotenantError(
                f"no Dask scheduler answers at {self.address}: {error}",
                fix="Check the address, and --tls-* for tls://.",
            ) from error
        with client:
            futures = [client.submit(work, task, pure=False, retries=0) for task in tasks]
            for future in distributed.as_completed(futures, loop=client.loop):
                try:
                    yield future.result()
                except distributed.KilledWorker as error:
                    raise WorkerLost(f"workers ended again and again: {error}") from error

    def _security(self) -> Any:
        import distributed

        if not self.address.startswith("tls://"):
            return None
        if not (self.tls.ca_file and self.tls.certificate_file and self.tls.key_file):
            raise UsageError(
                f"{self.address} needs a CA, a certificate and a key", fix="Give --tls-ca, --tls-cert and --tls-key."
            )
        return distributed.Security(
            tls_ca_file=self.tls.ca_file,
            tls_client_cert=self.tls.certificate_file,
            tls_client_key=self.tls.key_file,
            require_encryption=True,
        )
