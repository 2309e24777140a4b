"""EDGE: calls that must be over in time, while a runtime holds the whole node's lock and waits for the answer.

A thread of its own does the work, one call after the other; who waits no longer gets nothing, and while a call hangs
beyond its time the next ones get nothing at once instead of queueing behind it. Python cannot end a thread: a call that
hangs for ever costs one thread, once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")


class Late(TimeoutError):
    """The call was not over in time, or an earlier one hangs."""


class Bounded:
    """One worker thread and a limit in seconds. Any number of threads may call; they take turns."""

    def __init__(self, seconds: float) -> None:
        self.seconds: Final = seconds
        self._work: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        self._began: float | None = None
        """When the call that is being worked on began, monotonic; None = there is none."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """True if a call is in progress."""
        return self._began is not None

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Queue it; Late when the call that is being worked on has had its time."""
        future: Future[ResultT] = Future()
        began = self._began
        if began is not None and time.monotonic() - began >= self.seconds:
            raise Late("the decision before this one is not over")
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bounded-decision", daemon=True)
                self._thread.start()
        self._work.put((future, work))  # type: ignore[arg-type]
        return future

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """The result, or the error that it raised, or Late."""
        future = self.submit(work)
        try:
            return future.result(self.seconds)
        except TimeoutError as error:
            future.cancel()  # if its turn has not come, it need not
            raise Late(f"no decision within {self.seconds:g} s") from error

    async def wait(self, work: Callable[[], ResultT], seconds: float | None = None) -> ResultT:
        """`call` for coroutines; seconds: who asks waits no longer than this, None = the limit."""
        limit = self.seconds if seconds is None else min(seconds, self.seconds)
        future = asyncio.wrap_future(self.submit(work))
        try:
            return await asyncio.wait_for(future, limit)
        except TimeoutError as error:
            raise Late(f"no decision within {limit:g} s") from error

    def _run(self) -> None:
        while True:
            future, work = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue  # who asked has gone before it began
            self._began = time.monotonic()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to who asked
                future.set_exception(error)
            finally:
                self._began = None
