"""EDGE: the controller of ReservationPlans: reads mirrors and a few objects, and calls `plan_decisions.decide`.

Workloads, quotas and autoscalers are read only for plans that are active or due soon: these are few at a time, and a
watch would keep all objects of the cluster in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.controllers.watched import BATCH_CPU
from cotenant.base.errors import ClusterAbsent, ClusterForbidden, CotenantError, UsageError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.owners import WORKLOAD_API_VERSIONS
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.base.settings.base import SettingSections, digest
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.reservations import plan_decisions
from cotenant.scheduler_ext.reservations.model.plan import PLAN_LABEL, Plan, Proposal, Realisation, key_of
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_decisions import OwnerView, PlanView, needs_workload, owner_key
from cotenant.scheduler_ext.reservations.plans.realise import BUFFER_GROUP
from cotenant.scheduler_ext.reservations.service.plans import quota_left, read_owner
from cotenant.scheduler_ext.reservations.view import PodView

Json = dict[str, Any]

SWEEP_SECONDS: Final = 600.0
"""Time between two checks for autoscalers whose plan is gone."""
STANDBY_SECONDS: Final = 300.0
"""Time between two reads of the workload of a plan that has only standby, whose count alone depends on it."""
NEAR_SECONDS: Final = 3600.0
"""Time before its reservation from which a plan's workload is read, to show guards and lead time."""
ARRIVING_SECONDS: Final = 60.0
"""Time after scheduling in which a Reservation may not name its pod yet: a hand-over takes seconds."""
_SLOWEST_START_SECONDS: Final = 1800.0
"""If a pod became ready later than this after its creation, it was not starting all the time."""


class ProposalResults(Protocol):
    """The results of a pipeline run from which plans are proposed."""

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """Proposals to reserve capacity for the next peaks of workloads."""


class PlanController(Feature):
    """The manager's feature `plans`: proposes ReservationPlans and reserves the capacity of approved ones."""

    name = "plans"
    by_server_time = True
    needs: tuple[str, ...] = ("plans", "reservations")
    listed: frozenset[str] = frozenset({"horizontalpodautoscalers", "capacitybuffers"})

    def __init__(
        self,
        client: KubeClient,
        mirrors: Mapping[str, Mirror[Any]],
        results: Callable[[], ProposalResults],
        settings: SettingSections,
    ) -> None:
        """Store the arguments; no request is sent yet. Only this feature's thread uses `client`."""
        self._client, self._mirrors, self._results, self._settings = client, mirrors, results, settings
        self.interval_seconds: float = settings.section(PlanSettings).interval_seconds
        self._digest = digest(settings)
        self._swept = float("-inf")
        self._read_at: dict[str, tuple[float, OwnerView | None]] = {}
        self._quota_left: dict[str, tuple[float, dict[str, int]]] = {}

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - it looks at everything
        """Return what to write for all plans."""
        mirror = self._mirrors["plans"]
        all_plans: tuple[Plan, ...] = tuple(plan for _, plan in sorted(mirror.snapshot().items()))
        nearby = {plan.key for plan in all_plans if needs_workload(plan, now_seconds, NEAR_SECONDS)}
        # workloads are read now and then outside the windows, too, for the standby
        active = [plan for plan in all_plans if plan.key in nearby or (plan.approved and plan.standby > 0)]
        self._forget(active, nearby, now_seconds)
        version, buffers = self._buffers(all_plans)
        owners, unknown = self._owners(active, now_seconds)
        reservations: tuple[Reservation, ...] = tuple(self._mirrors["reservations"].snapshot().values())
        autoscalers = self._autoscalers(all_plans, now_seconds)
        # Pods that no node has place for; None where the feature that watches them (reservations) is off.
        waiting: tuple[PodView, ...] | None = None
        pending = self._mirrors.get("pending-pods")
        if pending is not None and pending.wait_synced(0):
            pods: Iterable[PodView] = pending.snapshot().values()
            waiting = tuple(pod for pod in pods if pod.alive and pod.unschedulable and not pod.is_placeholder)
        for plan in active:
            if plan.namespace not in self._quota_left:
                self._quota_left[plan.namespace] = now_seconds, quota_left(self._client, plan.namespace)
        allocatable: dict[str, int] = {}  # of all nodes; while they are not known no budget is checked
        for watched in self._mirrors["nodes"].snapshot().values():
            for resource, amount in watched.node.allocatable.items():
                allocatable[resource.value] = allocatable.get(resource.value, 0) + amount
        view = PlanView(
            plans=all_plans,
            unreadable=frozenset(key_of(*place) for place in mirror.refusals),
            reservations=reservations,
            owners=owners,
            autoscalers=autoscalers,
            buffers=buffers,
            buffer_version=version,
            allocatable=allocatable,
            batch=self._batch(),
            waiting=waiting,
            quota_left={plan.namespace: self._quota_left[plan.namespace][1] for plan in active},
            price_per_core_hour=self._settings.section(RecommenderSettings).prices.per_core_hour,
            settings_digest=self._digest,
            unmade=self.unmade,
        )
        with suppress(CotenantError):  # no run yet, or a broken one: the features that publish it say what is wrong
            view = replace(view, proposals=self._results().proposals)
        decision = plan_decisions.decide(view, now_seconds, self._settings.section(PlanSettings))
        unread = [
            ObjectNote(f"reservationplans/{ns}/{name}", "Unreadable", why, warning=True)
            for (ns, name), why in mirror.refusals.items()
        ]
        return replace(decision, notes=(*decision.notes, *unknown, *unread))

    def _forget(self, active: Sequence[Plan], nearby: Collection[str], now_seconds: float) -> None:
        """Keep cached reads only of plans that just have standby, for STANDBY_SECONDS: these are many, all day."""
        calm = {plan.key for plan in active if plan.key not in nearby}
        quiet = {plan.namespace for plan in active} - {plan.namespace for plan in active if plan.key in nearby}
        since = now_seconds - STANDBY_SECONDS
        self._read_at = {key: read for key, read in self._read_at.items() if key in calm and read[0] > since}
        self._quota_left = {name: read for name, read in self._quota_left.items() if name in quiet and read[0] > since}

    def _owners(
        self, active: Sequence[Plan], now_seconds: float
    ) -> tuple[dict[tuple[str, str, str], OwnerView], list[ObjectNote]]:  # fmt: skip
        """Return the plans' workloads; a custom kind that cannot be read gets a note and stops no other plan."""
        owners: dict[tuple[str, str, str], OwnerView] = {}
        notes = []
        for plan in active:
            try:
                if plan.key not in self._read_at:
                    self._read_at[plan.key] = now_seconds, self._owner(plan, now_seconds)
                view = self._read_at[plan.key][1]
            except (ClusterForbidden, UsageError) as error:
                if WORKLOAD_API_VERSIONS.get(plan.owner.kind) == plan.owner.api_version:
                    raise
                where = f"reservationplans/{plan.namespace}/{plan.name}"
                notes.append(ObjectNote(where, "OwnerUnreadable", f"{error.message}. {error.fix}", warning=True))
            else:
                owners |= {owner_key(plan): view} if view else {}
        return owners, notes

    def _owner(self, plan: Plan, now_seconds: float) -> OwnerView | None:
        """Return the plan's workload and its pods; None if the workload does not exist."""
        owner_and_pods = read_owner(self._client, plan)
        if owner_and_pods is None:
            return None
        owner, pods = owner_and_pods
        pending = running = 0
        assigned: set[str] = set()
        fresh: set[str] = set()
        starts_seconds = []
        for pod in pods:
            meta, phase = pod["metadata"], str((pod.get("status") or {}).get("phase") or "")
            has_node = bool((pod.get("spec") or {}).get("nodeName"))
            pending += phase == "Pending" and not has_node
            running += phase == "Running"
            if has_node and not meta.get("deletionTimestamp") and phase not in ENDED_PHASES:
                assigned.add(meta["name"])
                if _is_fresh(pod, now_seconds):
                    fresh.add(meta["name"])
            ready = _true_since(pod, "Ready")
            created = moment_of(meta.get("creationTimestamp"), "creationTimestamp")
            if ready is not None and created is not None and 0 <= ready - created <= _SLOWEST_START_SECONDS:
                starts_seconds.append(ready - created)  # of one that became ready once, and not again later
        return OwnerView(owner, pending, running, frozenset(assigned), frozenset(fresh), tuple(starts_seconds))

    def _autoscalers(self, all_plans: Sequence[Plan], now_seconds: float) -> dict[tuple[str, str, str], Json]:
        """Return the autoscalers by (namespace, kind, name) of their target.

        They are read if a plan needs them, and every SWEEP_SECONDS; otherwise the result is empty. ClusterForbidden is
        raised only if a plan needs them.
        """
        required = any(plan.realisation is Realisation.REPLICA_FLOOR for plan in all_plans)
        if not required and now_seconds - self._swept < SWEEP_SECONDS:
            return {}
        self._swept = now_seconds
        try:
            listed = self._client.list("/apis/autoscaling/v2/horizontalpodautoscalers", dict[str, Any])
        except ClusterForbidden:
            if required:
                raise
            return {}
        by_target = {}
        for scaler in listed:
            target = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
            by_target[scaler["metadata"]["namespace"], target.get("kind", ""), target.get("name", "")] = scaler
        return by_target

    def _buffers(self, all_plans: Sequence[Plan]) -> tuple[str, dict[str, Json]]:
        """Return the served version of CapacityBuffer ("" if none) and our buffers by plan; read only if needed."""
        if not any(plan.realisation is Realisation.CAPACITY_BUFFER for plan in all_plans):
            return "", {}
        group = self._client.get(f"/apis/{BUFFER_GROUP}") or {}
        version = (group.get("preferredVersion") or {}).get("version", "")
        if not version:
            return "", {}
        try:
            path = f"/apis/{BUFFER_GROUP}/{version}/capacitybuffers"
            listed = self._client.list(path, dict[str, Any], labelSelector=PLAN_LABEL)
        except ClusterAbsent:
            return "", {}
        return version, {buffer["metadata"]["labels"][PLAN_LABEL]: buffer for buffer in listed}

    def _batch(self) -> dict[str, tuple[float, float]] | None:
        """Return (cores that batch pods request, cores offered to them) of nodes with unused reserved capacity.

        None if pods are not watched, because the feature colocation is off.
        """
        pods = self._mirrors.get("pods")
        if pods is None or not pods.wait_synced(0):
            return None
        reservations = self._mirrors["reservations"].snapshot().values()
        reserved_nodes = (r.status.node for r in reservations if plan_decisions.has_unused_capacity(r))
        millicores_by_node = dict.fromkeys(reserved_nodes, 0)
        if not millicores_by_node:
            return {}
        for pod in pods.snapshot().values():
            if pod.node in millicores_by_node and pod.running:
                millicores_by_node[pod.node] += pod.batch_millicores
        nodes = (watched.node for watched in self._mirrors["nodes"].snapshot().values())
        offered = {n.name: n.extended_allocatable.get(BATCH_CPU, 0) for n in nodes if n.name in millicores_by_node}
        return {node: (batch / 1000, offered.get(node, 0) / 1000) for node, batch in millicores_by_node.items()}


def _true_since(pod: Json, kind: str) -> float | None:
    """Return the Unix time since which a condition of the pod is true; None if it is not true or has no time."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    holding: Json = next((c for c in conditions if c.get("type") == kind and c.get("status") == "True"), {})
    return moment_of(holding.get("lastTransitionTime"), f"condition {kind}")


def _is_fresh(pod: Json, now_seconds: float) -> bool:
    """Return whether the pod was scheduled less than ARRIVING_SECONDS ago."""
    since = _true_since(pod, "PodScheduled")
    return since is not None and now_seconds - since < ARRIVING_SECONDS
