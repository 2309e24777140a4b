"""EDGE: calls that must be over in time, while a runtime holds the whole node's lock and waits for the answer.

A thread of its own does the work; who waits no longer gets nothing, and while a call hangs the next ones get nothing at
once instead of queueing behind it. Python cannot end a thread: a call that hangs for ever costs one thread, once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

ResultT = TypeVar("ResultT")


class Late(TimeoutError):
    """The call was not over in time, or an earlier one still hangs."""


class Bounded:
    """One worker thread and a limit in seconds. Any number of threads may call; they take turns."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._work: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        self._last: Future[object] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a call is not over."""
        return self._last is not None and not self._last.done()

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Begin; Late when the call before this one still hangs."""
        future: Future[ResultT] = Future()
        with self._lock:
            if self.busy:
                raise Late("the decision before this one is not over")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bounded-decision", daemon=True)
                self._thread.start()
            self._last = future  # type: ignore[assignment]
        self._work.put((future, work))  # type: ignore[arg-type]
        return future

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """The result, or the error that it raised, or Late."""
        future = self.submit(work)
        try:
            return future.result(self._seconds)
        except TimeoutError as error:
            raise Late(f"no decision within {self._seconds:g} s") from error

    async def wait(self, work: Callable[[], ResultT]) -> ResultT:
        """`call` for coroutines."""
        future = asyncio.wrap_future(self.submit(work))
        try:
            return await asyncio.wait_for(future, self._seconds)
        except TimeoutError as error:
            raise Late(f"no decision within {self._seconds:g} s") from error

    def _run(self) -> None:
        while True:
            future, work = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue  # who asked has gone before it began
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to who asked
                future.set_exception(error)
