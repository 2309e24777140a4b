"""Selects and orders the pods that may be moved: Koordinator's filters and pod order, and cotenant's pause. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.qos import PriorityClass, QosClass, qos_of
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.arrays import Floats
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.rebalance.arguments import (
    PAUSE_SECONDS,
    SYSTEM_PRIORITIES,
    LowNodeLoadArgs,
    MigrationArgs,
    RoundArgs,
)
from cotenant.scheduler_ext.rebalance.load import NEVER, RebalanceInputs, RebalancePod
from cotenant.scheduler_ext.volumes.bound_volumes import can_use

if TYPE_CHECKING:
    from cotenant.scheduler_ext.rebalance.emptying.arguments import HighNodeLoadArgs

Rule = Callable[[RebalancePod], bool]
SYSTEM_CRITICAL: Final = SYSTEM_PRIORITIES["system-cluster-critical"]  # pods of this priority and above are not moved
_CLASSES: Final = (PriorityClass.FREE, PriorityClass.BATCH, PriorityClass.MID, PriorityClass.PROD, PriorityClass.NONE)
_KUBE_QOS: Final = {PodQos.BEST_EFFORT: 1, PodQos.BURSTABLE: 2, PodQos.GUARANTEED: 3}
_QOS: Final = {QosClass.BE: 1, QosClass.LS: 2, QosClass.LSR: 3, QosClass.LSE: 4, QosClass.SYSTEM: 4, QosClass.NONE: 5}
_QOS_BY_KUBE: Final = {1: QosClass.BE, 2: QosClass.LS, 3: QosClass.LSR}


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The rules that keep a pod from being moved, in the order in which they are checked."""

    rules: tuple[tuple[Reason, Rule], ...]

    @classmethod
    def of(
        cls,
        load: LowNodeLoadArgs | HighNodeLoadArgs,
        migration: MigrationArgs,
        now_seconds: float,
        pause_seconds: float = PAUSE_SECONDS,
        resting: frozenset[str] = frozenset(),
        failed: frozenset[str] = frozenset(),
    ) -> Eligibility:
        """Return the rules that follow at a Unix time from the arguments of a plugin and of the MigrationController.

        No pod scheduled less than `pause_seconds` ago and no pod of the workloads `resting` (NAMESPACE/KIND/NAME) may
        be moved, nor one of `failed`: UIDs of pods, and workloads, whose move failed a short time ago.
        """
        selectors = [LabelSelector.parse(selector.selector, "podSelectors") for selector in load.pod_selectors]
        own = LabelSelector.parse(migration.label_selector, "labelSelector") if migration.label_selector else None

        def is_unselected(pod: RebalancePod) -> bool:
            identity = pod.facts.identity
            both = (load.evictable_namespaces, migration.namespaces)
            admitted = all(namespaces.admit(identity.namespace) for namespaces in both)
            chosen = not selectors or any(selector.matches(identity.labels) for selector in selectors)
            below = pod.priority < migration.priority_threshold.priority
            return not (admitted and chosen and below) or (own is not None and not own.matches(identity.labels))

        rules: list[tuple[Reason, Rule]] = [
            (Reason.POD_STUCK, lambda pod: pod.is_stuck(now_seconds)),
            (Reason.POD_LEAVING, lambda pod: pod.leaving),
            (Reason.STATIC_POD, lambda pod: pod.static),
            (Reason.DAEMON_POD, lambda pod: pod.facts.daemon),
            (Reason.PLACEHOLDER_POD, lambda pod: pod.facts.placeholder_of is not None),
            (Reason.POD_NOT_SELECTED, is_unselected),
            (Reason.NO_CONTROLLER, lambda pod: not (pod.owner or (pod.failed and migration.evict_failed_bare_pods))),
            (Reason.EVICTION_COST, lambda pod: pod.eviction_cost >= NEVER),
        ]
        if not migration.evict_system_critical_pods:
            rules.append((Reason.SYSTEM_CRITICAL, lambda pod: pod.priority >= SYSTEM_CRITICAL))
        if not migration.evict_local_storage_pods:
            rules.append((Reason.LOCAL_STORAGE, lambda pod: pod.local_storage))
        if migration.ignore_pvc_pods:
            rules.append((Reason.VOLUME_CLAIM, lambda pod: bool(pod.claims)))
        rules.append((Reason.STARTED_LATELY, lambda pod: now_seconds - placed_seconds(pod) < pause_seconds))
        rules.append((Reason.WORKLOAD_MOVED_LATELY, lambda pod: pod.owner in resting))
        rules.append((Reason.MOVE_FAILED, lambda pod: pod.facts.identity.uid in failed or pod.owner in failed))
        return cls(tuple(rules))

    @classmethod
    def of_round(
        cls, load: LowNodeLoadArgs | HighNodeLoadArgs, arguments: RoundArgs, inputs: RebalanceInputs
    ) -> Eligibility:
        """Return a round's rules on which pods may be moved: none soon after a move, none that a volume keeps."""
        rests = arguments.pause_seconds, arguments.resting, arguments.failed
        rules = cls.of(load, arguments.migration, inputs.now_seconds, *rests).rules
        elsewhere = _NodesOfVolumes([load.node for load in inputs.loads])
        return cls(
            (
                *rules,
                (Reason.VOLUME_UNKNOWN, lambda pod: pod.volumes is None),
                (Reason.VOLUME_ON_NODE, lambda pod: pod.on_one_node or not elsewhere.has_another(pod)),
            )
        )

    def refusal(self, pod: RebalancePod) -> Reason:
        """Return the reason of the first rule that keeps the pod on its node, or OK."""
        return next((reason for reason, holds in self.rules if holds(pod)), Reason.OK)


@dataclass(frozen=True, slots=True)
class _NodesOfVolumes:
    """Nodes that can use a set of volumes; two of them are enough to know whether there is another one."""

    nodes: Sequence[ExtenderNode]
    known: dict[tuple[bytes, ...], frozenset[str]] = field(default_factory=dict)

    def has_another(self, pod: RebalancePod) -> bool:
        """Return whether a node other than the pod's own can use all of its known volumes."""
        if not pod.volumes:
            return True
        if pod.volumes not in self.known:
            usable = (
                node for node in self.nodes if all(can_use(affinity, [node])[0] for affinity in pod.volumes or ())
            )
            self.known[pod.volumes] = frozenset(node.name for node in islice(usable, 2))
        return bool(self.known[pod.volumes] - {pod.facts.node})


def placed_seconds(pod: RebalancePod) -> float:
    """Return the Unix time at which the pod was scheduled, or if unknown that of its creation."""
    return pod.created_seconds if pod.facts.assigned_seconds is None else pod.facts.assigned_seconds


def sort_by_move_order(
    pods: Sequence[tuple[RebalancePod, Floats]], weights: Floats
) -> list[tuple[RebalancePod, Floats]]:
    """Sort pods, given with their usage as shares of the node, (2,), in the order in which they are moved.

    By Koordinator's priority class, spec.priority, Kubernetes' QoS class, Koordinator's QoS class, deletion cost and
    eviction cost (each lowest first), usage weighted by `weights`, (2,) (largest first), and age (youngest first).
    """

    def rank(entry: tuple[RebalancePod, Floats]) -> tuple[float, ...]:
        pod, shares = entry
        kube = _KUBE_QOS.get(PodQos(pod.kube_qos), 2) if pod.kube_qos in set(PodQos) else 2
        qos = qos_of(pod.facts.identity.labels)
        return (
            _CLASSES.index(pod.facts.priority_class),
            pod.priority,
            kube,
            _QOS[_QOS_BY_KUBE[kube] if qos is QosClass.NONE else qos],
            pod.deletion_cost,
            pod.eviction_cost,
            -float(shares @ weights),
            -pod.created_seconds,
        )

    return sorted(pods, key=rank)
