"""EDGE: asks the API server to evict pods, from a thread of its own, so that a slow answer never holds up a tick.

`put` only queues; `answers` gives what came back since. A disruption budget's refusal (429) is an answer and not tried
again here: the strategy learns of it, takes another pod, and asks anew for this one later.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterConflict, ClusterError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Create
from cotenant.base.kubernetes.protocol import NODE_AGENT
from cotenant.enforcer.apply.eviction_worker import EvictionQueue
from cotenant.enforcer.contract import Evict

FIELD_MANAGER: Final = NODE_AGENT
ANSWER_SECONDS: Final = 30.0
"""An API server tries a conflicting eviction, as of a pod of another uid, for ten seconds before it answers."""


class Evictor(EvictionQueue[Create]):
    """Asks the API server: outcome asked, gone (it had left, or was another pod of that name) or refused.

    A conflict over anything but the uid (the server gave up trying) is a refusal: the pod is there.
    """

    def __init__(self, client: KubeClient) -> None:
        """The thread starts with `start`; `client` itself stays the caller's."""
        super().__init__("evictions", "refused")
        patience = max(client.settings.timeout_seconds, ANSWER_SECONDS)
        self._client = client.sibling(msgspec.structs.replace(client.settings, retries=0, timeout_seconds=patience))
        self._writer = Writer(self._client, FIELD_MANAGER)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Ask no more; what waits is dropped."""
        super().stop(timeout_seconds)
        self._client.close()

    def _run(self) -> None:
        for eviction, request in self._requests():
            try:
                self._writer.send(request)
            except ClusterError as error:
                if _is_gone(eviction, error):
                    self._answer(eviction, "gone", error.message)
                else:
                    answered, seconds = error.status is not None, error.retry_after_seconds
                    self._refuse(eviction, error.message, answered=answered, retry_after_seconds=seconds)
            except Exception as error:  # noqa: BLE001 - see EvictionQueue._run
                self._refuse(eviction, f"{type(error).__name__}: {error}", answered=False)
            else:
                self._answer(eviction, "asked")


def _is_gone(eviction: Evict, error: ClusterError) -> bool:
    """Return whether the pod had left, or is a new pod of that name: only then a conflict names the demanded uid."""
    return isinstance(error, ClusterAbsent) or (isinstance(error, ClusterConflict) and eviction.uid in error.answer)
