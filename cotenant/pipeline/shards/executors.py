"""EDGE: executors of shards: this process, processes of this machine, or the workers of a Dask scheduler.

An executor maps a function over tasks and yields each result with its task's number as it is ready, in any order. Tasks
are idempotent, so that the task of a worker that dies is given to another one. Errors of our own (CotenantError) are
not retried.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.process
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.logs.telemetry import configure_logging, settings_in_force
from cotenant.base.process.endings import FROM_A_TERMINAL
from cotenant.base.process.in_hand import keep_notes
from cotenant.base.settings.sections import PipelineSettings, TelemetrySettings

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
Numbered = Generator[tuple[int, ResultT], None, None]
"""Results with the numbers of their tasks."""
ATTEMPTS: Final = 3
"""Times that a task may be started, because a task that kills its worker each time must not be retried for ever."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS"), "1"
)


STILL_SECONDS: Final = 60.0
"""A process ends itself after this time without any Python code running; a single computation in C may be long."""


class Executor(Protocol):
    """Maps a function over tasks, possibly in parallel in other processes."""

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        """Yield (number, result) of each task when it is ready; an error, or closing the iterator, ends the run."""

    def close(self) -> None:
        """End the workers that are kept for a next run."""


class WorkerLost(CotenantError):
    """Raised if workers died repeatedly while they computed the same task."""


def choose_executor(settings: PipelineSettings) -> Executor:
    """Return the executor that the settings name; raise UsageError for a tls:// scheduler without its files."""
    if settings.scheduler:
        tls = Tls(settings.ca_file, settings.client_cert_file, settings.client_key_file)
        if settings.scheduler.startswith("tls://") and not all(dataclasses.astuple(tls)):
            fix = "Set pipeline.ca_file, pipeline.client_cert_file and pipeline.client_key_file."
            raise UsageError(f"scheduler {settings.scheduler} needs a CA, a certificate and a key", fix=fix)
        return Dask(settings.scheduler, tls)
    return Processes(settings.workers) if settings.workers > 1 else Here()


@contextmanager
def run_in_order(
    executor: Executor, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]
) -> Iterator[Iterator[ResultT]]:
    """Yield an iterator of results in the order of tasks; leaving it early, by an error or Ctrl-C, ends the workers."""
    with closing(executor.run(work, tasks)) as results:
        yield in_turn(results)


def in_turn(results: Iterable[tuple[int, ResultT]]) -> Iterator[ResultT]:
    """Yield the results in the order of their tasks, each as soon as those before it are ready."""
    waiting: dict[int, ResultT] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


@dataclass(frozen=True, slots=True)
class Here:
    """Computes the tasks in this process, one after another."""

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        """Yield (number, result) of the tasks in their order."""
        for number, task in enumerate(tasks):
            yield number, work(task)

    def close(self) -> None:
        """Do nothing, because there are no workers."""


@dataclass(slots=True)
class Processes:
    """Computes tasks in processes on this machine, each with one thread. If a process is killed, only its task is lost.

    The processes are kept for the next run, because each takes seconds to import what it needs.
    """

    workers: int = 2
    still_seconds: float = STILL_SECONDS
    _begun: list[_Worker] = field(default_factory=list, init=False, repr=False, compare=False)

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        """Yield (number, result) of tasks when ready; each worker is its own pool: if one dies, the others continue."""
        with _one_thread():
            while len(self._begun) < min(self.workers, len(tasks)):
                self._begun.append(_Worker(len(self._begun), self.still_seconds))
            try:
                yield from _run_on_workers(self._begun, work, tasks)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._begun:
            worker.close()
        self._begun.clear()


class _Worker:
    """One process, which is restarted if it was killed, or ended itself because it hung."""

    def __init__(self, number: int, still_seconds: float) -> None:
        self._notes = f"pipeline-worker-{number}", still_seconds
        self._pool = self._begun()

    def _begun(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _begin_worker, (settings_in_force(), *self._notes)
        )

    def submit(self, work: Callable[[TaskT], ResultT], task: TaskT) -> Future[ResultT]:
        """Start a task, in a new process if the idle one was killed."""
        try:
            return self._pool.submit(work, task)
        except BrokenProcessPool:
            self.renew()
            return self._pool.submit(work, task)

    def renew(self) -> None:
        """Start a new process in place of one that has ended."""
        self._pool.shutdown(wait=False)
        self._pool = self._begun()

    def close(self) -> None:
        """End the process without waiting for its task."""
        for process in list((self._pool._processes or {}).values()):
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _run_on_workers(
    workers: Sequence[_Worker], work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]
) -> Iterator[tuple[int, ResultT]]:
    """Yield (number, result) of tasks; a worker has one task at a time, so that its death counts for that task."""
    attempts = [0] * len(tasks)
    waiting = list(range(len(tasks)))[::-1]
    idle = list(workers)
    running: dict[Future[ResultT], tuple[int, _Worker]] = {}
    while waiting or running:
        while idle and waiting:
            number, worker = waiting.pop(), idle.pop()
            attempts[number] += 1
            running[worker.submit(work, tasks[number])] = number, worker
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            number, worker = running.pop(future)
            idle.append(worker)
            try:
                result = future.result()
            except BrokenProcessPool:
                if attempts[number] >= ATTEMPTS:
                    raise WorkerLost(
                        f"a worker ended {ATTEMPTS} times while it computed {tasks[number]}",
                        fix="If memory was short, lower pipeline.workers. If the worker hung, run again.",
                    ) from None
                worker.renew()
                waiting.append(number)
            else:
                yield number, result


def _begin_worker(telemetry: TelemetrySettings | None, program: str, still_seconds: float) -> None:
    """Log as the parent does, end with it, and record what is computed, for the process that follows after a hang."""
    if telemetry is not None:
        configure_logging(telemetry)
    keep_notes(program, still_seconds)
    # Ctrl-C reaches all processes of a terminal, and the parent ends its workers; without it they would wait for
    # ever. A worker that also handled it would print a traceback of its own.
    for number in FROM_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let child processes use one thread each, so that two workers on two cores do not compete."""
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
    """The files (PEM) for mutual TLS with a scheduler."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class Dask:
    """Computes tasks on workers of a Dask scheduler, which need this cotenant version and access to the same store."""

    address: str
    tls: Tls = Tls()
    seconds: float = 30.0
    """How long to wait for the scheduler to answer."""

    def run(self, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]) -> Numbered[ResultT]:
        """Yield (number, result) of the tasks when ready. Dask gives the tasks of a lost worker to others."""
        try:
            import distributed  # an extra: most installations run on one machine
        except ImportError:
            fix = "pip install 'cotenant[distributed]'"
            raise UsageError("pipeline.scheduler needs the package distributed", fix=fix) from None
        try:
            security = None
            if self.address.startswith("tls://"):
                security = distributed.Security(
                    tls_ca_file=self.tls.ca_file,
                    tls_client_cert=self.tls.certificate_file,
                    tls_client_key=self.tls.key_file,
                    require_encryption=True,
                )
            client = distributed.Client(self.address, security=security, timeout=self.seconds, set_as_default=False)
        except (OSError, ValueError, TimeoutError, RuntimeError) as error:
            fix = "Check pipeline.scheduler, and for tls:// its ca_file, client_cert_file and client_key_file."
            raise CotenantError(f"no Dask scheduler answers at {self.address}: {error}", fix=fix) from error
        with client:
            # Raise CotenantError unless the scheduler has a worker: a task that no worker takes would wait for ever.
            try:
                client.wait_for_workers(1, timeout=self.seconds)
            except TimeoutError:
                fix = f"Start a worker: dask worker {self.address}"
                raise CotenantError(f"the Dask scheduler at {self.address} has no worker", fix=fix) from None
            numbers = {client.submit(work, task, pure=False, retries=0): i for i, task in enumerate(tasks)}
            for future in distributed.as_completed(list(numbers), loop=client.loop):
                number = numbers.pop(future)
                try:
                    result = future.result()
                except distributed.KilledWorker as error:
                    raise WorkerLost(
                        f"workers ended repeatedly while they computed {tasks[number]}",
                        fix="If memory was short, give the Dask workers more memory or fewer threads.",
                    ) from error
                except CancelledError as error:
                    raise CotenantError(
                        f"the Dask scheduler at {self.address} was lost before {tasks[number]} was computed",
                        fix="Run the analysis again when the scheduler is back; earlier results are kept.",
                    ) from error
                yield number, result

    def close(self) -> None:
        """Do nothing, because the workers belong to the scheduler."""
