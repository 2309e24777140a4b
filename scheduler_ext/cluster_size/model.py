"""Nodes, pods and scheduling rules of a cluster, as the computation of its size uses them. Pure.

Amounts are integers by resource name, cpu in millicores, other resources in their own unit. Two limits that are not
resources are counted as if they were, under special names: host ports (HOST_PORT + "TCP/80", one on each node) and
volumes that a CSI driver attaches (ATTACHED + driver).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.cluster_size.autoscalers.model import PodMarks
from cotenant.scheduler_ext.extender.metric import ExtenderNode

PODS: Final = "pods"
HOST_PORT: Final = "host port "
ATTACHED: Final = "volumes of "
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
UNLIMITED: Final = 1 << 40  # capacity of what a node does not limit


class RequestLevel(StrEnum):
    """The pods' requests to compute with: present ones, those after ready recommendations, or those after all steps."""

    NOW = "now"  # those of the pods
    READY = "after the ready steps"  # with the steps of recommendations that the guardrails allow now
    ALL_STEPS = "after all steps"  # with all recommendations as they are

    @property
    def option(self) -> str:
        """The level's name in options and URLs: now, ready or all-steps."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, option: str) -> RequestLevel:
        """Return the level with this option name; raise KeyError for any other text."""
        return cls[option.upper().replace("-", "_")]


@dataclass(frozen=True, slots=True)
class Stay:
    """The reason why a pod or a node cannot leave its place: a code, and a text with the object and its amounts."""

    reason: Reason
    words: str
    pod: str = ""  # the pod that binds, NAMESPACE/NAME; "" where the node itself does


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required term of affinity or anti-affinity between pods; `namespaces` is None for all namespaces."""

    selector: LabelSelector
    topology_key: str
    namespaces: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A topology spread constraint that refuses nodes (DoNotSchedule).

    With `by_affinity`, only nodes that the pod's node affinity selects count; with `by_taints`, only nodes whose taints
    it tolerates.
    """

    selector: LabelSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodRules:
    """A pod's scheduling rules; `static` is JSON of its node selector, node affinity and tolerations.

    `volumes` is JSON of the required node affinity of each of its persistent volumes, sorted.
    """

    static: bytes = b"{}"
    volumes: tuple[bytes, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()


@dataclass(frozen=True, slots=True)
class SizedPod:
    """A pod that has not ended; `node` is "" while it waits, `stays` is why it cannot leave its node, None if it can.

    `goes_with_node` is true for DaemonSet and static pods, which are not placed elsewhere when their node is removed.
    """

    namespace: str
    name: str
    node: str
    requests: Mapping[str, int]
    rules: PodRules = PodRules()
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    priority: int = 0  # a scheduler tries pods of higher priority first
    goes_with_node: bool = False
    stays: Stay | None = None
    ending: bool = False  # whether it is being deleted
    temporary_storage: bool = False  # whether it has an emptyDir, whose content a move loses
    unmodelled: str = ""  # the rule of its own that is not modelled; "" when all are
    batch: bool = False  # whether it is batch work, which runs on what others lend: it binds no node for good
    marks: PodMarks = field(default_factory=PodMarks)  # the facts about it that only autoscalers read
    later: Mapping[RequestLevel, Mapping[str, int]] = field(default_factory=dict)
    """The pod's requests at the levels that change them."""

    @property
    def address(self) -> str:
        """The pod's NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class SizedNode:
    """A node; `allocatable` includes host ports and attach limits, `stays` is why it can never be removed, or None."""

    facts: ExtenderNode
    allocatable: Mapping[str, int]
    stays: Stay | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  # those that an autoscaler reads

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.facts.name

    @property
    def zone(self) -> str:
        """The value of the node's label topology.kubernetes.io/zone; "" if it is missing."""
        return self.facts.labels.get(ZONE_LABEL, "")


@dataclass(frozen=True, slots=True)
class SizedCluster:
    """The nodes and pods of a cluster; `gaps` are sentences about what could not be read."""

    nodes: tuple[SizedNode, ...]
    pods: tuple[SizedPod, ...]
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The requested reserve: how many nodes may fail at once, and whether any one zone may fail."""

    reserve_nodes: int = 0
    reserve_zone: bool = False


@dataclass(frozen=True, slots=True)
class PodOfNode:
    """A pod of a removable node, and the node on which the first placement trial (`ClusterSize.trials`) put it."""

    pod: str
    owner: str
    node: str
    target: str


@dataclass(frozen=True, slots=True)
class LeavingNode:
    """A node that could be removed; `turn` is its place in the order, `filled` the requested share of its capacity."""

    name: str
    zone: str
    turn: int
    allocatable: Mapping[str, int]
    places: tuple[PodOfNode, ...]
    price_month: float | None = None  # money a month; None where its price is not known
    filled: float = 0.0  # share of its CPU or memory, whichever is more, that its pods request


@dataclass(frozen=True, slots=True)
class StayingNode:
    """A node that stays; `filled` is the share of its CPU or memory requested now, `filled_after` after removals."""

    name: str
    zone: str
    stay: Stay
    allocatable: Mapping[str, int]
    price_month: float | None = None
    filled: float = 0.0  # share of its CPU or memory, whichever is more, that its pods request now
    filled_after: float = 0.0  # the same with the pods of the leaving nodes, in the first of the trials


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The result of a search for removable nodes: `leaving` could be removed, in this order, `staying` could not.

    `trials` are orders of pods and score rules with which all pods fit. `waiting` are pods without a node for which
    some trial finds no node in the whole cluster. `unmodelled` has the pods' rules that the search does not know, each
    with the number of pods that it makes immovable. `missing_memory` has, for each pod whose memory request is below
    the recommended one, the difference in bytes. `losing_storage` is the number of moved pods with an emptyDir.
    """

    leaving: tuple[LeavingNode, ...]
    staying: tuple[StayingNode, ...]
    trials: tuple[str, ...]
    options: SizeOptions
    waiting: tuple[str, ...] = ()
    unmodelled: Mapping[str, int] = field(default_factory=dict)
    losing_storage: int = 0
    gaps: tuple[str, ...] = ()
    missing_memory: tuple[int, ...] = ()

    @property
    def nodes_now(self) -> int:
        """Number of nodes of the cluster."""
        return len(self.leaving) + len(self.staying)

    @property
    def freed_millicores(self) -> int:
        """Allocatable CPU of the nodes that could be removed, millicores."""
        return sum(node.allocatable.get("cpu", 0) for node in self.leaving)

    @property
    def price_month(self) -> float | None:
        """Monthly price of the nodes that could be removed and have a price; None if none has one."""
        priced = [node.price_month for node in self.leaving if node.price_month is not None]
        return sum(priced) if priced else None

    @property
    def unpriced_count(self) -> int:
        """Number of nodes that could be removed and have no price."""
        return sum(node.price_month is None for node in self.leaving)

    @property
    def kept_millicores(self) -> int:
        """Allocatable CPU of the nodes that stay, millicores."""
        return sum(node.allocatable.get("cpu", 0) for node in self.staying)

    @property
    def kept_bytes(self) -> int:
        """Allocatable memory of the nodes that stay, bytes."""
        return sum(node.allocatable.get("memory", 0) for node in self.staying)

    @property
    def freed_bytes(self) -> int:
        """Allocatable memory of the nodes that could be removed, bytes."""
        return sum(node.allocatable.get("memory", 0) for node in self.leaving)


def further_count(now: ClusterSize, later: ClusterSize) -> int:
    """Return how many more nodes could be removed at the later level than at the present one; negative if fewer."""
    return len(later.leaving) - len(now.leaving)
