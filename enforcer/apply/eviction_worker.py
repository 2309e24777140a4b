"""EDGE: a queue of pods to evict and the thread that works on it, so that a slow answer never delays a tick.

    put(eviction, request) --> the subclass's thread --> answers()

Either the API server evicts a pod (`Evictor`), or the runtime stops its containers (`runtime.container_stopper`). A
disruption budget's refusal (429) is an answer and is not retried here: the strategy learns of it, chooses another pod,
and requests this eviction again later.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterConflict, ClusterError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Create
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.enforcer.contract import Evict

RequestT = TypeVar("RequestT")
WAITING: Final = 50
"""Most pods that wait in the queue; further ones are refused at once."""
FIELD_MANAGER: Final = NODE_AGENT
ANSWER_SECONDS: Final = 30.0
"""Least timeout of an eviction; if a pod has another uid, an API server tries for ten seconds before it answers."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to an eviction request: `outcome` is a single word, `message` the reason.

    `answered` is False if no answer arrived or the queue was full. `retry_after_seconds`: how long the refusing server
    asks the client to wait before the next request, 0 if it did not say.
    """

    eviction: Evict
    outcome: str
    message: str = ""
    answered: bool = True
    retry_after_seconds: float = 0.0


class EvictionQueue(ABC, Generic[RequestT]):
    """A queue of evictions whose thread handles one pod after the other between `start` and `stop`."""

    def __init__(self, thread_name: str, refusal: str) -> None:
        """Create the queue; `refusal` is the outcome of a request that is dropped."""
        self._refusal = refusal
        self._queue: queue.Queue[tuple[Evict, RequestT] | None] = queue.Queue(WAITING)
        self._answers: queue.SimpleQueue[EvictionAnswer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Answer each request of `_requests`; must not raise, because a dead thread would drop evictions silently."""

    def start(self) -> None:
        """Start the thread that evicts."""
        self._thread.start()

    def put(self, eviction: Evict, request: RequestT) -> None:
        """Put a pod into the queue; if the queue is full, add a refusal to the answers instead."""
        try:
            self._queue.put_nowait((eviction, request))
        except queue.Full:
            self._refuse(eviction, f"the queue is full: {WAITING} evictions wait", answered=False)

    def answers(self) -> list[EvictionAnswer]:
        """Return the answers to eviction requests since the last call."""
        answers = []
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop the thread and drop the requests that still wait."""
        while not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _requests(self) -> Iterator[tuple[Evict, RequestT]]:
        while (item := self._queue.get()) is not None:
            yield item

    def _answer(self, eviction: Evict, outcome: str, message: str = "") -> None:
        self._answers.put(EvictionAnswer(eviction, outcome, message))

    def _refuse(
        self, eviction: Evict, message: str, *, answered: bool = True, retry_after_seconds: float = 0.0
    ) -> None:
        self._answers.put(EvictionAnswer(eviction, self._refusal, message, answered, retry_after_seconds))


class Evictor(EvictionQueue[Create]):
    """The queue that requests evictions from the API server; an outcome is `asked` (accepted), `gone` or `refused`.

    Gone: the pod does not exist any more, or another pod has its name. A conflict (409) over anything but the uid
    counts as a refusal, because the pod still exists.
    """

    def __init__(self, client: KubeClient) -> None:
        """Create the queue; `start` starts its thread, and the caller must close `client`."""
        super().__init__("evictions", "refused")
        patience = max(client.settings.timeout_seconds, ANSWER_SECONDS)
        self._client = client.sibling(msgspec.structs.replace(client.settings, retries=0, timeout_seconds=patience))
        self._writer = Writer(self._client, FIELD_MANAGER)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop requesting evictions and drop the requests that still wait."""
        super().stop(timeout_seconds)
        self._client.close()

    def _run(self) -> None:
        for eviction, request in self._requests():
            try:
                self._writer.send(request)
            except ClusterError as error:
                # A conflict names the demanded uid only where the pod there now is a new one of that name.
                if isinstance(error, ClusterAbsent) or (
                    isinstance(error, ClusterConflict) and eviction.uid in error.answer
                ):
                    self._answer(eviction, "gone", error.message)
                else:
                    answered, seconds = error.status is not None, error.retry_after_seconds
                    self._refuse(eviction, error.message, answered=answered, retry_after_seconds=seconds)
            except Exception as error:  # noqa: BLE001 - see EvictionQueue._run
                self._refuse(eviction, f"{type(error).__name__}: {error}", answered=False)
            else:
                self._answer(eviction, "asked")
