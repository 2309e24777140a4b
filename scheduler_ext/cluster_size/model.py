"""The cluster as the question of its size sees it: nodes, pods and the rules by which a scheduler places them. Pure.

Amounts are integers by resource name, cpu in millicores, every other resource in its own unit. Three things that a
scheduler counts and that are no resources stand among them under names of their own, because they are counted alike:
host ports (HOST_PORT + "TCP/80", one on each node) and volumes that a CSI driver attaches (ATTACHED + driver).
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
    """The requests that count."""

    NOW = "now"  # those of the pods
    READY = "after what is ready"  # with the steps of recommendations that the guardrails allow now
    ALL_STEPS = "after all steps"  # with all recommendations as they are

    @property
    def option(self) -> str:
        """The level as options and addresses write it: now, ready, all-steps."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, option: str) -> RequestLevel:
        """The level that an option names; KeyError for another word."""
        return cls[option.upper().replace("-", "_")]


@dataclass(frozen=True, slots=True)
class Stay:
    """Why a pod or a node stays where it is: a code, and the words with the object and its numbers."""

    reason: Reason
    words: str
    pod: str = ""  # the pod that binds, NAMESPACE/NAME; "" where the node itself does


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required term of affinity or anti-affinity between pods; namespaces None: all."""

    selector: LabelSelector
    topology_key: str
    namespaces: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A topology spread constraint that refuses nodes (DoNotSchedule).

    by_affinity, by_taints: whether only the nodes that the pod's node affinity selects, or whose taints it tolerates,
    are domains.
    """

    selector: LabelSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodRules:
    """The demands of a pod on its node beyond amounts. static: JSON of node selector, node affinity and tolerations.

    volumes: JSON of the required node affinity of each of its persistent volumes, sorted.
    """

    static: bytes = b"{}"
    volumes: tuple[bytes, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()


@dataclass(frozen=True, slots=True)
class SizedPod:
    """A pod that has not ended. node: "" while it waits. stays: why it cannot leave its node; None: it can.

    goes_with_node: it is a DaemonSet's or a static pod, which nobody places anew when the node leaves.
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
    """Its requests at the levels that change them."""

    @property
    def address(self) -> str:
        """Return NAMESPACE/NAME of the object."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class SizedNode:
    """A node; allocatable has host ports and attach limits too. stays: why it is no candidate, whatever its pods do."""

    facts: ExtenderNode
    allocatable: Mapping[str, int]
    stays: Stay | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  # those that an autoscaler reads

    @property
    def name(self) -> str:
        """Name of the Node."""
        return self.facts.name

    @property
    def zone(self) -> str:
        """Value of the label topology.kubernetes.io/zone; "" where it is missing."""
        return self.facts.labels.get(ZONE_LABEL, "")


@dataclass(frozen=True, slots=True)
class SizedCluster:
    """The cluster at one moment. gaps: what could not be read, each as a sentence."""

    nodes: tuple[SizedNode, ...]
    pods: tuple[SizedPod, ...]
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeOptions:
    """The reserve that the answer keeps: how many nodes may fail at once, and whether any one zone may."""

    reserve_nodes: int = 0
    reserve_zone: bool = False


@dataclass(frozen=True, slots=True)
class PodOfNode:
    """A pod of a leaving node and the node that takes it, in the first of the trials."""

    pod: str
    owner: str
    node: str
    target: str


@dataclass(frozen=True, slots=True)
class LeavingNode:
    """A node that could leave; turn: its place in the order, from 1."""

    name: str
    zone: str
    turn: int
    allocatable: Mapping[str, int]
    places: tuple[PodOfNode, ...]
    price_month: float | None = None  # money a month; None where its price is not known
    filled: float = 0.0  # share of its CPU or memory, whichever is more, that its pods request


@dataclass(frozen=True, slots=True)
class StayingNode:
    """A node that stays, and what binds it."""

    name: str
    zone: str
    stay: Stay
    allocatable: Mapping[str, int]
    price_month: float | None = None
    filled: float = 0.0  # share of its CPU or memory, whichever is more, that its pods request now
    filled_after: float = 0.0  # the same with the pods of the leaving nodes, in the first of the trials


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The answer. leaving: in their order.

    trials: the orders and score rules under which every pod found a place. waiting: pods without a node that some trial
    finds none for in the whole cluster either. unmodelled: rules that pods have and this answer does not model, with
    the number of pods that count as immovable for it. missing_memory: bytes by which the requests of each pod are below
    its recommendation, of the pods of which they are.
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
        """Allocatable CPU of the nodes that could leave, millicores."""
        return sum(node.allocatable.get("cpu", 0) for node in self.leaving)

    @property
    def price_month(self) -> float | None:
        """Money a month of the nodes that could leave and have a price; None when none has one."""
        known = [node.price_month for node in self.leaving if node.price_month is not None]
        return sum(known) if known else None

    @property
    def unpriced_count(self) -> int:
        """Nodes that could leave and have no price."""
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
        """Allocatable memory of the nodes that could leave, bytes."""
        return sum(node.allocatable.get("memory", 0) for node in self.leaving)


def further_count(now: ClusterSize, later: ClusterSize) -> int:
    """Count the nodes that could leave at a later level beyond those that could now; negative where fewer could."""
    return len(later.leaving) - len(now.leaving)
