"""The settings of Karpenter and cluster-autoscaler that a plan reads, and obstacles to removing nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

NODEPOOL_LABEL: Final = "karpenter.sh/nodepool"


class NodeAutoscaler(StrEnum):
    """A program that removes nodes."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"


BOTH: Final = (NodeAutoscaler.KARPENTER, NodeAutoscaler.CLUSTER_AUTOSCALER)


@dataclass(frozen=True, slots=True)
class NodeBudget:
    """A disruption budget of a NodePool: `nodes` (number or percentage) may be removed at a time for `reasons`.

    Empty `reasons` mean any. The budget applies for `duration` from each time of `schedule` (cron, UTC), always if "".
    """

    nodes: str
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration: str = ""


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool of Karpenter; `consolidate_after` is unparsed text, `replicas` the size of a static pool or None."""

    name: str
    policy: str = ""
    consolidate_after: str = ""
    budgets: tuple[NodeBudget, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # those that its nodes get
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim of Karpenter, which stands for one node; `node` is "" before the node exists."""

    name: str
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node group of cluster-autoscaler: its minimum size, and its desired size (`target`), None if unknown."""

    name: str
    smallest: int
    target: int | None
    source: str  # the object that says so


@dataclass(frozen=True, slots=True)
class NodeAutoscalers:
    """The autoscalers of a cluster; `pools` is None if Karpenter is not installed or could not be read.

    `pod` is NAMESPACE/NAME of a pod of cluster-autoscaler, and `flags` are its command-line flags, None without such a
    pod. `status` is true if its status ConfigMap exists. `unread` are sentences about what could not be read.
    """

    pools: tuple[NodePool, ...] | None = None
    claims: tuple[NodeClaim, ...] = ()
    pod: str = ""
    flags: Mapping[str, tuple[str, ...]] | None = None
    groups: tuple[NodeGroup, ...] = ()
    status: bool = False
    unread: tuple[str, ...] = ()

    @property
    def found(self) -> tuple[NodeAutoscaler, ...]:
        """The autoscalers that the cluster has."""
        parts_present = (
            (NodeAutoscaler.KARPENTER, bool(self.pools)),
            (NodeAutoscaler.CLUSTER_AUTOSCALER, bool(self.pod) or self.status),
        )
        return tuple(name for name, present in parts_present if present)

    def flag(self, name: str, default: str) -> str:
        """Return the last value of a command-line flag of cluster-autoscaler, or `default` if it is not set."""
        return (self.flags or {}).get(name, (default,))[-1]

    def taker_of(self, labels: Mapping[str, str]) -> str:
        """Return the name of the autoscaler that would remove a node with these labels; "" if there is none."""
        pool = labels.get(NODEPOOL_LABEL, "")
        if pool:
            return f"Karpenter, NodePool {pool}"
        return "cluster-autoscaler" if NodeAutoscaler.CLUSTER_AUTOSCALER in self.found else ""


@dataclass(frozen=True, slots=True)
class PodMarks:
    """The facts about a pod that only autoscalers use.

    `annotations` are those of Karpenter and cluster-autoscaler; `kind` is that of the pod's controller, "" without one;
    `local` are names of its node-local volumes; `budgets` are (name, evictions allowed now) of each disruption budget
    of the pod, None if unreadable.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    local: tuple[str, ...] = ()
    budgets: tuple[tuple[str, int], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An object with a setting that prevents an autoscaler from removing nodes.

    `object` is KIND NAMESPACE/NAME; `namespace` is "" for a cluster-wide object. `nodes` are those that cannot be
    removed, None if unknown; with `even_empty`, not even once they have no movable pods.
    """

    object: str
    setting: str
    obeyed_by: tuple[NodeAutoscaler, ...]
    words: str
    nodes: tuple[str, ...] | None
    even_empty: bool = False
    namespace: str = ""
    pods: int = 0
