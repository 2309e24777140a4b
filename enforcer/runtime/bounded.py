"""EDGE: calls with a time limit, for a runtime that locks the whole node while it waits for the answer.

One thread works on one call after the other. A caller that has waited for the limit gets an error; while a call hangs
beyond its limit, further calls fail at once instead of queueing behind it. Python cannot end a thread: a call that
hangs for ever costs one thread.
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
    """A call was not finished within the time limit, or an earlier call still hangs."""


class Bounded:
    """A worker thread that gives each call a time limit in seconds; any number of threads may call it."""

    def __init__(self, seconds: float) -> None:
        self.seconds: Final = seconds
        self._work: SimpleQueue[tuple[Future[object], Callable[[], object]]] = SimpleQueue()
        self._began: float | None = None
        """When the call that is being worked on began, monotonic; None = there is none."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """True while a call is in progress."""
        return self._began is not None

    def submit(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Queue a call and return its future; raise Late if the call in progress has exceeded its limit."""
        future: Future[ResultT] = Future()
        began = self._began
        if began is not None and time.monotonic() - began >= self.seconds:
            raise Late("an earlier decision is not finished")
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bounded-decision", daemon=True)
                self._thread.start()
        self._work.put((future, work))  # type: ignore[arg-type]
        return future

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run `work` on the worker thread and return its result; raise its error, or Late at the time limit."""
        future = self.submit(work)
        try:
            return future.result(self.seconds)
        except TimeoutError as error:
            future.cancel()  # if its turn has not come, it need not
            raise Late(f"no decision within {self.seconds:g} s") from error

    async def wait(self, work: Callable[[], ResultT], seconds: float | None = None) -> ResultT:
        """Run `work` like `call`, but without blocking the calling coroutine; `seconds` may shorten the time limit."""
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
