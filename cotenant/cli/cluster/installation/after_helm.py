"""EDGE: ends what our processes wrote into a cluster, where something else removes the manifests, such as Helm.

Processes first: their rights are gone with the release, so nobody writes again what is taken away here. Then what acts
without them: amounts of nodes, scheduling gates, floors of autoscalers, placeholders, capacity buffers; and the
manager's own Lease and status. It asks for no kind beyond these, so that its account needs few rights. A refusal ends
nothing but its own row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from cotenant.base.errors import ClusterError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Address
from cotenant.base.progress import Progress
from cotenant.cli.cluster.installation import leftovers
from cotenant.cli.cluster.installation.removal import MADE, Fate, Removal, generated_object_removals, unread_removal

NAMESPACE: Final = "cotenant"
LONGEST_END_SECONDS: Final = 90.0
"""A node agent has 60 s to give back what it holds; a pod on a node that is gone never ends."""
_PAUSE_SECONDS: Final = 1.0


def await_ended(client: KubeClient, seconds: float = LONGEST_END_SECONDS) -> list[str]:
    """Wait until no pod of our processes runs; names of those that have not ended in time."""
    end = time.monotonic() + seconds
    while (names := leftovers.running_pod_names(client, NAMESPACE)) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
    return names


def plan_leftover_removals(client: KubeClient, progress: Progress) -> list[Removal]:
    """Return the rows of what would be removed or given back.

    A kind that we may not read becomes a row of its own.
    """
    looks: list[tuple[Address, Callable[[], Iterable[Removal]]]] = [
        *((kind, partial(generated_object_removals, client, (kind,))) for kind in MADE),
        (
            Address("v1", "pods", "placeholders"),
            lambda: _deletions(leftovers.placeholders(client), "holds reserved capacity"),
        ),
        (
            Address("autoscaling.x-k8s.io/v1alpha1", "capacitybuffers", ""),
            lambda: _deletions(leftovers.buffers(client)),
        ),
        *((kind, partial(_given_back, client, kind)) for kind in leftovers.ACTING),
    ]
    progress.stage("looking at the cluster", len(looks))
    removals: list[Removal] = []
    for kind, find_removals in looks:
        try:
            removals += find_removals()
        except ClusterError as error:
            removals.append(unread_removal(client, kind.resource, kind, error))
        progress.advance()
    return removals


def _deletions(items: Iterable[tuple[Address, str]], note: str = "has our label") -> Iterator[Removal]:
    return (Removal(address.resource, address, Fate.DELETE, note, uid) for address, uid in items)


def _given_back(client: KubeClient, kind: Address) -> Iterator[Removal]:
    for address, what in leftovers.written_into(client, kind):
        yield Removal(address.resource, address, Fate.GIVE_BACK, what)
