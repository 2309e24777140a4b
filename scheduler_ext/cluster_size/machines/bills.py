"""The four monthly bills: today, only right-sized, only packed, and both. Pure.

- today: every node of the cluster
- right-sizing alone: recommended requests, on those of today's nodes that stay
- packing alone: present requests, on the cheapest mix of allowed machine types
- both: recommended requests, on the cheapest mix

Batch work is billed separately: on capacity that other pods lend, it costs nothing more. On nodes of its own it would
need ordinary CPU and memory: a cluster with only these pods and the DaemonSets of each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.quantity import add
from cotenant.base.progress import Progress
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix, cheapest_mix
from cotenant.scheduler_ext.cluster_size.machines.prototypes import Prototype
from cotenant.scheduler_ext.cluster_size.model import LeavingNode, SizedCluster, SizedPod, StayingNode

if TYPE_CHECKING:
    from cotenant.scheduler_ext.cluster_size.report import SizedLevel

NO_SHAPES: Final = "no list of machine types was given (--shapes)"
TODAY, RIGHT_SIZED, PACKED, BOTH = "today", "right-sizing alone", "packing alone", "both"


@dataclass(frozen=True, slots=True)
class Bill:
    """One of the four monthly bills: the price of all priced nodes, and the number of the other nodes (`unpriced`).

    `nodes` is None if the bill was not computed, and `reason` says why ("" if it was). No mix of the listed machine
    types costs less than `bound_month`.
    """

    name: str
    nodes: int | None = None
    price_month: float | None = None
    unpriced: int = 0
    bound_month: float | None = None
    reason: str = ""


def four_bills(now: SizedLevel, later: SizedLevel) -> tuple[Bill, ...]:
    """Return the bills of today, right-sizing, packing and both; `later` is the level after the recommendations."""
    today = Bill(TODAY, reason=now.reason)
    if now.size is not None:
        today = _bill_of_nodes(TODAY, [*now.size.leaving, *now.size.staying])
    right = Bill(RIGHT_SIZED, reason=later.reason)
    if later.size is not None:
        right = _bill_of_nodes(RIGHT_SIZED, later.size.staying)
    return (today, right, _bill_of_mix(PACKED, now), _bill_of_mix(BOTH, later))


def _bill_of_nodes(name: str, nodes: Sequence[LeavingNode | StayingNode]) -> Bill:
    priced = [node.price_month for node in nodes if node.price_month is not None]
    return Bill(name, len(nodes), sum(priced) if priced else None, len(nodes) - len(priced))


def _bill_of_mix(name: str, level: SizedLevel) -> Bill:
    mix = level.mix
    if mix is None:
        return Bill(name, reason=level.reason or NO_SHAPES)
    if mix.reason:
        return Bill(name, bound_month=mix.bound_month, reason=mix.reason)
    return Bill(name, mix.nodes, mix.price_month, mix.unpriced, mix.bound_month)


LENT: Final[Mapping[str, str]] = {name: resource.value for (_, resource), name in EXTENDED_RESOURCES.items()}
"""Name of each lent resource -> the ordinary resource in its place, in the same unit."""


@dataclass(frozen=True, slots=True)
class BatchAlone:
    """The running batch pods: their number, requests (millicores, bytes), and the mix that would hold them, or None."""

    pods: int = 0
    millicores: int = 0
    memory_bytes: int = 0
    mix: Mix | None = None

    @property
    def price_month(self) -> float | None:
        """Monthly price of nodes for batch work alone; None if unknown."""
        return self.mix.price_month if self.mix else None


def batch_alone(state: SizedCluster, prototypes: Sequence[Prototype], progress: Progress | None = None) -> BatchAlone:
    """Return the batch pods that run on nodes now, and the mix of machines that separate nodes for them would need."""
    pods = tuple(own for pod in state.pods if pod.node and (own := as_own(pod)) is not None)
    if not pods:
        return BatchAlone()
    mix = cheapest_mix(SizedCluster((), pods), prototypes, {}, progress=progress)
    cpu, memory = (add(pod.requests.get(name, 0) for pod in pods) for name in ("cpu", "memory"))
    return BatchAlone(len(pods), cpu, memory, mix)


def as_own(pod: SizedPod) -> SizedPod | None:
    """Return a batch pod without a node, with ordinary CPU and memory for its batch resources; None for other pods."""
    if not pod.batch:
        return None
    requests: dict[str, int] = {}
    for name, amount in pod.requests.items():
        own = LENT.get(name, name)
        requests[own] = add((requests.get(own, 0), amount))
    return replace(pod, requests=requests, node="", stays=None, later={})
