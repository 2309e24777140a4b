"""What batch work would cost on nodes of its own. Pure.

Batch or mid amounts are lent by other pods and cost nothing more. On nodes of its own the same amounts would be
ordinary CPU and memory: that cluster has only these pods and the DaemonSets of each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.quantity import add
from cotenant.base.progress import Progress
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix, cheapest_mix
from cotenant.scheduler_ext.cluster_size.machines.prototypes import Prototype
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizedPod

LENT: Final[Mapping[str, str]] = {name: resource.value for (_, resource), name in EXTENDED_RESOURCES.items()}
"""Name of each lent resource -> the ordinary one that it stands for, in the same unit."""


@dataclass(frozen=True, slots=True)
class BatchAlone:
    """The batch work: pods, what they request (millicores, bytes), and the mix that would hold it.

    mix: None where there is no such work.
    """

    pods: int = 0
    millicores: int = 0
    memory_bytes: int = 0
    mix: Mix | None = None

    @property
    def price_month(self) -> float | None:
        """Money a month of its own nodes; None where it is not known."""
        return self.mix.price_month if self.mix else None


def batch_alone(state: SizedCluster, prototypes: Sequence[Prototype], progress: Progress | None = None) -> BatchAlone:
    """The batch pods that have a node now, and what nodes of their own would cost."""
    pods = tuple(own for pod in state.pods if pod.node and (own := as_own(pod)) is not None)
    if not pods:
        return BatchAlone()
    mix = cheapest_mix(SizedCluster((), pods), prototypes, {}, progress=progress)
    cpu, memory = (add(pod.requests.get(name, 0) for pod in pods) for name in ("cpu", "memory"))
    return BatchAlone(len(pods), cpu, memory, mix)


def as_own(pod: SizedPod) -> SizedPod | None:
    """The pod with ordinary requests for those of lent capacity, without a node; None for one that is no batch work."""
    if not pod.batch:
        return None
    requests: dict[str, int] = {}
    for name, amount in pod.requests.items():
        own = LENT.get(name, name)
        requests[own] = add((requests.get(own, 0), amount))
    return replace(pod, requests=requests, node="", stays=None, later={})
