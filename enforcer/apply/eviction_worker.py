"""A queue of pods to end and the thread that works on it, so that a slow answer never holds up a tick.

    put(eviction, request) --> the subclass's thread --> answers()

Who ends them differs: the API server (`apply.eviction_requests`) or the runtime (`runtime.container_stopper`).
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from cotenant.enforcer.contract import Evict

RequestT = TypeVar("RequestT")
WAITING: Final = 50
"""Pods that may wait; more are refused at once."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to an eviction: the outcome as a single word, and the reason.

    answered: whether the eviction was decided; False: no answer arrived, or too many waited. retry_after_seconds: how
    long the refusing server wants to be left alone, 0 if not given.
    """

    eviction: Evict
    outcome: str
    message: str = ""
    answered: bool = True
    retry_after_seconds: float = 0.0


class EvictionQueue(ABC, Generic[RequestT]):
    """Works on one pod after the other, from `start` to `stop`."""

    def __init__(self, thread_name: str, refusal: str) -> None:
        """refusal: outcome of what is not done."""
        self._refusal = refusal
        self._queue: queue.Queue[tuple[Evict, RequestT] | None] = queue.Queue(WAITING)
        self._answers: queue.SimpleQueue[EvictionAnswer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Answer each of `_requests`; must not raise: a dead thread would drop evictions silently."""

    def start(self) -> None:
        """Start the thread that evicts."""
        self._thread.start()

    def put(self, eviction: Evict, request: RequestT) -> None:
        """Put a pod into the queue, or refuse it at once when too many wait."""
        try:
            self._queue.put_nowait((eviction, request))
        except queue.Full:
            self._refuse(eviction, f"{WAITING} pods wait already", answered=False)

    def answers(self) -> list[EvictionAnswer]:
        """Return the answers since the last call."""
        answers = []
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Work no more; what waits is dropped."""
        while not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _requests(self) -> Iterator[tuple[Evict, RequestT]]:
        """Yield the queued requests in order, until `stop`."""
        while (item := self._queue.get()) is not None:
            yield item

    def _answer(self, eviction: Evict, outcome: str, message: str = "") -> None:
        self._answers.put(EvictionAnswer(eviction, outcome, message))

    def _refuse(
        self, eviction: Evict, message: str, *, answered: bool = True, retry_after_seconds: float = 0.0
    ) -> None:
        self._answers.put(EvictionAnswer(eviction, self._refusal, message, answered, retry_after_seconds))
