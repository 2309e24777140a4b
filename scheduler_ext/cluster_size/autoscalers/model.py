"""The settings of Karpenter and cluster-autoscaler that a plan reads, and obstacles for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

NODEPOOL_LABEL: Final = "karpenter.sh/nodepool"


class NodeAutoscaler(StrEnum):
    """A program that takes nodes away."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"


BOTH: Final = (NodeAutoscaler.KARPENTER, NodeAutoscaler.CLUSTER_AUTOSCALER)


@dataclass(frozen=True, slots=True)
class NodeBudget:
    """A disruption budget of a NodePool. nodes: a number or a percentage; reasons: () for all of Karpenter's.

    schedule: cron in UTC and duration, of when it holds; "" for always.
    """

    nodes: str
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration: str = ""


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool of Karpenter. consolidate_after: unparsed; replicas: of a pool of fixed size, else None."""

    name: str
    policy: str = ""
    consolidate_after: str = ""
    budgets: tuple[NodeBudget, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # those that its nodes get
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim of Karpenter, which represents one node. node: "" before it has one."""

    name: str
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node group of cluster-autoscaler. target: nodes that it asks for; None where nothing says."""

    name: str
    smallest: int
    target: int | None
    source: str  # the object that says so


@dataclass(frozen=True, slots=True)
class NodeAutoscalers:
    """The autoscalers of a cluster. pools: None where Karpenter is not served or could not be read.

    pod: NAMESPACE/NAME of a pod of cluster-autoscaler; flags: its own, None where no pod of it was seen. status:
    whether its status ConfigMap is there. unread: what could not be read, each as a sentence.
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
        """The autoscalers that were seen."""
        seen = (
            (NodeAutoscaler.KARPENTER, bool(self.pools)),
            (NodeAutoscaler.CLUSTER_AUTOSCALER, bool(self.pod) or self.status),
        )
        return tuple(name for name, present in seen if present)

    def flag(self, name: str, default: str) -> str:
        """The value of a flag of cluster-autoscaler, the last one given; its default where it is not given."""
        return (self.flags or {}).get(name, (default,))[-1]

    def taker_of(self, labels: Mapping[str, str]) -> str:
        """The program that would take a node with these labels away; "" where none was seen."""
        pool = labels.get(NODEPOOL_LABEL, "")
        if pool:
            return f"Karpenter, NodePool {pool}"
        return "cluster-autoscaler" if NodeAutoscaler.CLUSTER_AUTOSCALER in self.found else ""


@dataclass(frozen=True, slots=True)
class PodMarks:
    """The facts about a pod that only autoscalers read.

    annotations: those of Karpenter and cluster-autoscaler. kind: of its controller, "" without one. local: names of its
    volumes on the node. budgets: (name, pods that may leave now) of each disruption budget that selects it; None
    where budgets could not be read.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    local: tuple[str, ...] = ()
    budgets: tuple[tuple[str, int], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An object with a setting that keeps an autoscaler from taking nodes away.

    object: KIND NAMESPACE/NAME; namespace: "" for an object of the cluster. nodes: those that it keeps; None where it
    is not known which. even_empty: whether it keeps a node that has no pods to move any more.
    """

    object: str
    setting: str
    obeyed_by: tuple[NodeAutoscaler, ...]
    words: str
    nodes: tuple[str, ...] | None
    even_empty: bool = False
    namespace: str = ""
    pods: int = 0
