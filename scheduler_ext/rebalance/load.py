"""Data types of a round's inputs: nodes with their load, pods, disruption budgets and forecasts. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.pod import MovablePod
from cotenant.base.kubernetes.observed import outlasts_its_end
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL, workload_by_name
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT, MIRROR_ANNOTATION
from cotenant.base.kubernetes.selector import LabelSelector, Operator
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, Outlook, measured_together
from cotenant.scheduler_ext.extender.pod import NewPod, facts_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.extender.stock_rules import unchecked_constraints
from cotenant.scheduler_ext.volumes.bound_volumes import ClaimedVolumes, affinities_of

EVICTION_COST_ANNOTATION: Final = "scheduling.koordinator.sh/eviction-cost"
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
NEVER: Final = 2**31 - 1  # eviction cost of a pod that must not be evicted
REPLACED_AT_ONCE: Final = frozenset({"DaemonSet", "Job", "ReplicaSet", "ReplicationController"})
"""Kinds that count a pod as gone from its deletion on; others, like StatefulSets, create its successor afterwards."""
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


@dataclass(frozen=True, slots=True)
class RebalancePod:
    """A pod on a node. Times are Unix seconds, None if unknown.

    `ready_seconds` is when the pod became ready; `pending` and `failed` are its phase. A `leaving` pod is being
    deleted, and `gone_by_seconds` is the end of its grace period. `placement` has node selector, affinity, tolerations
    and spread as JSON, b"" without any. `eviction_cost` and `deletion_cost` are from its annotations, 0 without.
    `claims` are names of its volume claims, `volumes` the node affinities of their volumes, None if unknown;
    `on_one_node` means that one of these volumes can be used only on the pod's node.
    """

    facts: NewPod
    priority: int = 0
    kube_qos: str = ""
    created_seconds: float = 0.0
    ready_seconds: float | None = None
    leaving: bool = False
    gone_by_seconds: float | None = None
    finalizers: tuple[str, ...] = ()
    failed: bool = False
    pending: bool = False
    static: bool = False
    local_storage: bool = False
    claims: tuple[str, ...] = ()
    volumes: tuple[bytes, ...] | None = ()
    on_one_node: bool = False
    eviction_cost: int = 0
    deletion_cost: int = 0
    placement: bytes = b""

    @property
    def key(self) -> str:
        """The pod's NAMESPACE/NAME."""
        return self.facts.key

    @property
    def owner(self) -> str:
        """NAMESPACE/KIND/NAME of the controller that would recreate the pod; "" without one."""
        for reference in self.facts.identity.controllers:
            if reference.controlling:
                return f"{self.facts.identity.namespace}/{reference.kind}/{reference.name}"
        return ""

    def is_stuck(self, now_seconds: float) -> bool:
        """Return whether the deleted pod has exceeded its grace period: a finalizer or an unreachable node keeps it."""
        return self.leaving and outlasts_its_end(self.gone_by_seconds, now_seconds)

    @property
    def is_replaced(self) -> bool:
        """True if the pod is being deleted and its controller no longer counts it as a replica."""
        return self.leaving and any(
            o.controlling and o.kind in REPLACED_AT_ONCE for o in self.facts.identity.controllers
        )

    @property
    def is_ready(self) -> bool:
        """True if the pod is ready and not being deleted."""
        return self.ready_seconds is not None and not self.leaving

    @property
    def workload(self) -> WorkloadRef:
        """The workload of the pod, under the name that forecasts of workloads use."""
        identity = self.facts.identity
        by_label = [identity.labels.get(label, "") for label in (TEMPLATE_HASH_LABEL, DEPLOYMENT_CONFIG_LABEL)]
        for owner in identity.controllers:
            if owner.controlling:
                return workload_by_name(WorkloadRef(identity.namespace, owner.kind, owner.name), *by_label)
        return WorkloadRef(identity.namespace, "Pod", identity.name)

    @property
    def is_job(self) -> bool:
        """True if a Job controls the pod, so that a restart loses the work that it has done."""
        return any(owner.controlling and owner.kind == "Job" for owner in self.facts.identity.controllers)

    def constraints(self) -> Mapping[str, Any]:
        """Return the part of the pod's spec that limits on which nodes it may run."""
        spec: Mapping[str, Any] = msgspec.json.decode(self.placement) if self.placement else {}
        return spec

    def unjudged(self) -> str:
        """Return the pod's constraints that only the scheduler checks, as text; "" without any."""
        unchecked = unchecked_constraints(self.constraints()).partition(": ")[2]
        return ", ".join(filter(None, (unchecked, "the limit on a node's volumes" if self.claims else "")))

    def with_volumes(self, claimed: ClaimedVolumes | None, users: Mapping[tuple[str, str], int]) -> RebalancePod:
        """Return the pod with its volumes; `users` counts pods by (namespace, claim), `claimed` is None if unknown.

        A volume that only one node at a time can use binds the pod to its node while another pod there uses it.
        """
        if not self.claims:
            return self
        namespace = self.facts.identity.namespace
        used = [
            (volume, (namespace, claim)) for claim in self.claims if (volume := (claimed or {}).get((namespace, claim)))
        ]
        return replace(
            self,
            volumes=None if claimed is None else affinities_of(self.claims, namespace, claimed),
            on_one_node=any(volume.local or (volume.one_node and users.get(key, 0) > 1) for volume, key in used),
        )


def pod_of(raw: bytes | msgspec.Raw, settings: LoadAwareSettings) -> RebalancePod:
    """Parse a pod from the API's JSON; raise msgspec.ValidationError if it is no pod."""
    more = msgspec.json.decode(raw, type=MovablePod)
    facts = facts_of(more, settings)
    annotations, volumes = facts.identity.annotations, more.spec.volumes or ()
    created, deleted = more.metadata.creation_timestamp, more.metadata.deletion_timestamp
    owners = facts.identity.controllers
    claims = tuple(v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim is not None)
    spec = more.spec
    values = (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
    parts = {name: raw for name, raw in zip(_PLACEMENT, values, strict=True) if bytes(raw)}
    return RebalancePod(
        facts=facts,
        priority=more.spec.priority or 0,
        kube_qos=more.status.qos_class,
        created_seconds=created.timestamp() if created else 0.0,
        ready_seconds=more.status.true_since("Ready"),
        leaving=deleted is not None,
        gone_by_seconds=deleted.timestamp() if deleted else None,
        finalizers=tuple(more.metadata.finalizers or ()),
        failed=more.status.phase == "Failed",
        pending=more.status.phase == "Pending",
        static=MIRROR_ANNOTATION in annotations or any(owner.kind == "Node" for owner in owners),
        local_storage=any(bytes(v.empty_dir) or bytes(v.host_path) for v in volumes),
        claims=claims,
        volumes=None if claims else (),
        eviction_cost=_int32_or_zero(annotations.get(EVICTION_COST_ANNOTATION, "")),
        deletion_cost=_int32_or_zero(annotations.get(DELETION_COST_ANNOTATION, "")),
        placement=msgspec.json.encode(parts) if parts else b"",
    )


def _int32_or_zero(text: str) -> int:
    """Parse a whole number of 32 bits; anything else is 0, as in Koordinator."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if -(2**31) <= number < 2**31 else 0


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget: which pods it selects, and how many of them may be evicted now.

    If `unready_may_leave`, pods that are not ready may be evicted beyond that number (unhealthyPodEvictionPolicy).
    """

    namespace: str
    name: str
    selector: LabelSelector
    allowed: int
    unready_may_leave: bool = False


class BudgetIndex:
    """Finds the budgets that select a pod by its labels, in a namespace of hundreds of both.

    A budget is filed under one label that its pods must have, the one that the fewest budgets name; under none if its
    selector names no value of a label.
    """

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        self._budgets = budgets
        self._filed: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        required = [_named_labels(budget) for budget in budgets]
        use = Counter(label for labels in required for label in chain.from_iterable(labels))
        for number, (budget, labels) in enumerate(zip(budgets, required, strict=True)):
            unnamed = [(budget.namespace, "", "")]
            for label in min(labels, key=lambda values: sum(use[label] for label in values), default=unnamed):
                self._filed[label].append(number)

    def of(self, namespace: str, labels: Mapping[str, str]) -> list[int]:
        """Return the numbers of the budgets that select a pod, ascending."""
        filed = chain([("", "")], labels.items())
        numbers = chain.from_iterable(self._filed.get((namespace, *label), ()) for label in filed)
        return sorted(number for number in numbers if self._budgets[number].selector.matches(labels))


def _named_labels(budget: DisruptionBudget) -> list[list[tuple[str, str, str]]]:
    """Return, for each requirement of a value, the labels that satisfy it, with the budget's namespace."""
    required = [r for r in budget.selector.requirements or () if r.operator is Operator.IN]
    return [[(budget.namespace, r.key, value) for value in r.values] for r in required]


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node with its NodeMetric, its forecast (None without one) and its pods that have not ended."""

    node: ExtenderNode
    metric: LoadMetric | None = None
    outlook: Outlook | None = None
    pods: tuple[RebalancePod, ...] = ()

    @property
    def mark(self) -> str | None:
        """Value of the node's emptying taint; None if it is not tainted."""
        return next((value for key, value, _ in self.node.taints if key == EMPTYING_TAINT), None)


@dataclass(frozen=True, slots=True)
class WorkloadOutlook:
    """Forecast of a workload: median usage of all its pods in each of the 48 half hours from `start_seconds` on.

    `median` is (millicores, bytes), each empty without a forecast. `replicas` are the pods that its autoscaler will run
    in each half hour; empty if it has no autoscaler.
    """

    start_seconds: float
    median: tuple[tuple[float, ...], tuple[float, ...]]
    replicas: tuple[int, ...] = ()

    def covers(self, now_seconds: float) -> bool:
        """Return whether the present time is within the forecast day; otherwise the forecast has no effect."""
        return 0 <= now_seconds - self.start_seconds < DAY_SECONDS


@dataclass(frozen=True, slots=True)
class RebalanceInputs:
    """The inputs of a round: the cluster at one time. `replicas` and `unready` count pods by their owner.

    `waiting` are pods for which the scheduler found no node. `workloads` are forecasts, empty if there are none.
    """

    loads: Sequence[NodeLoad]
    budgets: Sequence[DisruptionBudget] = ()
    now_seconds: float = 0.0
    replicas: Mapping[str, int] = field(default_factory=dict)
    unready: Mapping[str, int] = field(default_factory=dict)
    waiting: Sequence[RebalancePod] = ()
    workloads: Mapping[WorkloadRef, WorkloadOutlook] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        loads: Sequence[NodeLoad],
        budgets: Sequence[DisruptionBudget],
        now_seconds: float,
        waiting: Sequence[RebalancePod] = (),
    ) -> RebalanceInputs:
        """Return the inputs, with replicas counted from the pods on the nodes."""
        replicas, unready = replicas_of(pod for load in loads for pod in load.pods)
        return cls(loads, budgets, now_seconds, replicas, unready, waiting)

    @property
    def foreseen_workloads(self) -> int:
        """The number of workloads that have a forecast of the present time."""
        return sum(workload.covers(self.now_seconds) for workload in self.workloads.values())


def replicas_of(pods: Iterable[RebalancePod]) -> tuple[Counter[str], Counter[str]]:
    """Return the number of pods of each owner, and of those that are not ready; pods already replaced do not count."""
    owned = [(pod.owner, pod) for pod in pods if pod.owner and not pod.is_replaced]
    return Counter(owner for owner, _ in owned), Counter(owner for owner, pod in owned if not pod.is_ready)


def usage_of(pod: RebalancePod, metric: LoadMetric | None) -> tuple[float, float] | None:
    """Return the pod's usage in its node's NodeMetric, (millicores, bytes); None if one of them is missing."""
    measured = metric.pods.get(pod.key) if metric else None
    return None if measured is None or not all(math.isfinite(x) for x in measured[0]) else measured[0]


def unmeasured_use(metric: LoadMetric) -> tuple[float, float]:
    """Return the usage in (millicores, bytes) of all pods that the NodeMetric does not measure, together.

    It is the node's usage minus that of the system and of all measured pods; 0 if all pods are measured or the node's
    usage is unknown.
    """
    total = measured_together(metric.pods)

    def rest(axis: int) -> float:
        used = metric.usage[axis] if metric.usage else math.nan
        lacking = any(math.isnan(usage[axis]) for usage, _ in metric.pods.values())
        return max(used - metric.system[axis] - total[axis], 0.0) if lacking and not math.isnan(used) else 0.0

    return rest(0), rest(1)
