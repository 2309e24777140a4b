"""EDGE: asks the API server to evict pods, from a thread of its own, so that a slow answer never holds up a tick.

`ask` only queues; `answers` gives what came back since. A disruption budget's refusal (429) is an answer and not tried
again here: the strategy that wants the pod gone asks anew while it does.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from cotenant.edges.kube import KubeClient, Writer
from cotenant.model.errors import ClusterAbsent, ClusterConflict, CotenantError
from cotenant.model.intent import Create
from cotenant.model.protocol import NODE_AGENT
from enforcer.contract import Evict

FIELD_MANAGER: Final = NODE_AGENT
WAITING: Final = 50
"""Evictions that may wait; more are refused at once."""
ANSWER_SECONDS: Final = 30.0
"""An API server tries a conflicting eviction, as of a pod of another uid, for ten seconds before it answers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one: asked, gone (it had left, or was another pod of that name), refused."""

    eviction: Evict
    outcome: str
    message: str = ""


class Evictor:
    """A queue and its thread."""

    def __init__(self, client: KubeClient) -> None:
        """The thread starts with `start`; `client` itself stays the caller's."""
        patience = max(client.settings.timeout_seconds, ANSWER_SECONDS)
        self._client = client.sibling(msgspec.structs.replace(client.settings, retries=0, timeout_seconds=patience))
        self._writer = Writer(self._client, FIELD_MANAGER)
        self._queue: queue.Queue[tuple[Evict, Create] | None] = queue.Queue(WAITING)
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="evictions", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def ask(self, eviction: Evict, request: Create) -> None:
        """Put it into the queue."""
        try:
            self._queue.put_nowait((eviction, request))
        except queue.Full:
            self._answers.put(Answer(eviction, "refused", f"{WAITING} evictions wait already"))

    def answers(self) -> list[Answer]:
        """What came back since the last call."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Ask no more; what waits is dropped."""
        while not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        self._client.close()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            eviction, request = item
            try:
                self._writer.send(request)
            except (ClusterAbsent, ClusterConflict) as error:
                self._answers.put(Answer(eviction, "gone", error.message))
            except CotenantError as error:
                self._answers.put(Answer(eviction, "refused", error.message))
            except Exception as error:  # noqa: BLE001 - a thread's death would refuse evictions for ever in silence
                self._answers.put(Answer(eviction, "refused", f"{type(error).__name__}: {error}"))
            else:
                self._answers.put(Answer(eviction, "asked"))
