"""Select the candidates of a round from policies, recommendations and live workloads. Pure.

A candidate keeps only the values of a recommendation that the policy allows, reduced to the first step that the
guardrails allow. After an OOM kill first only the memory is raised, and after harmful throttling only the CPU, so that
neither has to wait for a change window; the other values follow with a later change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from cotenant.autopilot.decide.history import Decisions, describe_reversal, gitops_writer
from cotenant.autopilot.decide.policy import NamespacedPolicy, PolicyLimits
from cotenant.autopilot.decide.round_order import QueueCandidate
from cotenant.autopilot.decide.starts import StartAim, highest_starts
from cotenant.autopilot.model import METHODS, RISING_AT_ONCE, AutopilotMode
from cotenant.autopilot.settings import Direction, Untouched, Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.autoscalers import VerticalAutoscalerObject, vertical_writer
from cotenant.base.kubernetes.pod_request import effective_request
from cotenant.base.kubernetes.qos import QosClass, qos_of
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.changes.decide.checks.capacity import RunningRequests
from cotenant.changes.decide.checks.trials import images_of, trials_of, tried_before
from cotenant.changes.decide.field_changes import template_containers
from cotenant.changes.decide.guardrails import blocking, kept_by, leaves_manifests, operator_of
from cotenant.changes.decide.heap_flags import is_set, without_heap
from cotenant.changes.decide.patches import by_workload
from cotenant.changes.decide.readiness import readiness
from cotenant.changes.decide.steps import is_out_of_reach, largest_cut, rebase_on_live
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.settings import ActionSettings, GuardrailSettings
from cotenant.recommender.base import rounded_up
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Trust, Value
from cotenant.recommender.model.savings import request_now, request_then, total_change
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant.annotations import parse
from cotenant.recommender.strategies.cotenant.demand import after_kill

Json = Mapping[str, Any]
OomKills = Mapping[tuple[WorkloadRef, str], float]
"""Unix time of the last OOM kill of a container, by its workload and its name."""
DAY_HOURS: Final = 24.0
DEAD_BAND: Final = "dead-band"
"""The guardrail that checks only the largest of all changes of a workload."""
GIB_A_CORE: Final = 8.0
"""GiB of memory that are worth as much as a core if no prices are set."""


@dataclass(frozen=True, slots=True)
class LiveNamespace:
    """Live objects of one namespace: workloads, autoscalers, VPAs, and each workload's nodes and QoS classes.

    `classes` is read from pods, since a ClusterColocationProfile labels pods at admission and the template lacks the
    label. `kills` are the OOM kills in the status of the pods; `running` are the requests that the pods have now.
    """

    workloads: Mapping[WorkloadRef, Json] = field(default_factory=dict)
    autoscalers: Sequence[Json] = ()
    vpas: Sequence[VerticalAutoscalerObject] = ()
    nodes: Mapping[WorkloadRef, frozenset[str]] = field(default_factory=dict)
    classes: Mapping[WorkloadRef, frozenset[QosClass]] = field(default_factory=dict)
    kills: OomKills = field(default_factory=dict)
    running: Mapping[WorkloadRef, RunningRequests] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy that the autopilot follows: its limits, the mode in effect, and the settings for changes under it."""

    policy: NamespacedPolicy
    limits: PolicyLimits
    mode: AutopilotMode
    settings: ActionSettings


def settings_under(settings: ActionSettings, limits: PolicyLimits) -> ActionSettings:
    """Return `settings` narrowed by a policy: smaller cuts, longer soak time, a cut a day at most, auto-rollback."""
    guardrails = settings.guardrails
    narrower: dict[str, float] = {
        "most_cpu_cut": min(guardrails.most_cpu_cut, limits.largest_cut[Resource.CPU]),
        "most_memory_cut": min(guardrails.most_memory_cut, limits.largest_cut[Resource.MEMORY]),
        "cool_down_hours": max(guardrails.cool_down_hours, DAY_HOURS),
    }
    return msgspec.structs.replace(
        settings,
        soak_minutes=max(settings.soak_minutes, limits.soak_minutes),
        auto_rollback=True,
        guardrails=msgspec.structs.replace(guardrails, **narrower),
    )


def hardly_cut(under: PolicyInForce) -> str:
    """Return a sentence with the resources that are hardly ever cut, because `largestCut` is too small, or ""."""
    guardrails = under.settings.guardrails
    least, resources = guardrails.least_change, under.limits.resources
    small = [r.value for r in Resource if r in resources and largest_cut(r, guardrails) <= least]
    if not small or Direction.DOWN not in under.limits.directions:
        return ""
    return f"{', '.join(small)} is hardly ever cut: largestCut is not above actions.guardrails.least_change ({least:g})"


def apply_policy_limits(
    recommendations: Iterable[Recommendation], limits: PolicyLimits, guardrails: GuardrailSettings
) -> tuple[Recommendation, ...]:
    """Return the recommendations with only the values that the policy allows to change now.

    If values must rise at once (after an OOM kill or throttling), only they are kept. Values that are too uncertain or
    stopped by a guardrail are left out as well, so that they do not block the others, unless no value were left.
    """
    everything = tuple(recommendations)
    for direction, resource in RISING_AT_ONCE.items():
        if direction in limits.directions and resource in limits.resources:
            raised = tuple(_with_values(r, list(_rising_at_once(r, resource, limits))) for r in everything)
            if any(r.values for r in raised):
                return _keep_passing_values(raised, limits, guardrails)
    allowed = tuple(_with_values(r, list(_allowed_values(r, limits, guardrails))) for r in everything)
    return _keep_passing_values(allowed, limits, guardrails)


def candidates_of(
    force: Sequence[PolicyInForce],
    recommendations: Iterable[Recommendation],
    live: LiveNamespace,
    statuses: Mapping[WorkloadRef, Sequence[ChangeStatus]],
    decisions: Decisions,
    own: CotenantSettings,
) -> Iterator[QueueCandidate]:
    """Yield a candidate for each workload of a namespace with a recommendation and a policy of `force` that selects it.

    `own` are the settings of strategy `cotenant`, which say by how much memory rises after an OOM kill.
    """
    for workload, of_workload in by_workload(recommendations).items():
        body = live.workloads.get(workload)
        selecting = [
            effective
            for effective in force
            if body is not None and effective.policy.selector.matches((body.get("metadata") or {}).get("labels") or {})
        ]
        if body is None or not selecting:
            continue
        under = selecting[0]
        changed_seconds = max((s.changed_seconds for s in statuses.get(workload, ())), default=0.0)
        # The recommendations with heaps only where a roll-out may write them and the template has the flag.
        template = template_containers(body, workload.kind)
        may_write = Way.ROLL_OUT in under.limits.ways and not _gitops(workload, body, under)
        over_now = rebase_on_live(
            body,
            live.running.get(workload, {}),
            [
                r
                if r.heap is None or (may_write and is_set(template.get(r.container.container, {}), r.heap))
                else without_heap(r)
                for r in of_workload
            ],
        )
        over_now = raised_after_kills(body, over_now, live.kills, changed_seconds, own)
        allowed = apply_policy_limits(over_now, under.limits, under.settings.guardrails)
        candidate = _candidate(workload, under, body, allowed)
        if len(selecting) > 1:
            names = ", ".join(effective.policy.name for effective in selecting)
            blocked: tuple[Reason, str] | None = (Reason.AUTOPILOT_TWO_POLICIES, f"selected by policies {names}")
        elif str(workload) in decisions.left_alone:
            blocked = None  # the queue says why
        else:
            cleared = decisions.cleared_seconds.get(str(workload), 0.0)
            blocked = _blocking_reason(candidate, under, body, live, statuses.get(workload, ()), cleared)
        is_left = blocked is not None or str(workload) in decisions.left_alone
        starts, start_factor = None, under.limits.start_up_factor
        if not is_left and start_factor > 1 and (highest := highest_starts(of_workload)):
            # CPU is not moved under an autoscaler that follows it.
            conflicts = _autoscaler_conflicts(workload, {Resource.CPU}, live.autoscalers)
            if not (Untouched.AUTOSCALED in under.limits.never_touch and any(conflicts)):
                uid = str((body.get("metadata") or {}).get("uid") or "")
                starts = StartAim(workload, uid, highest, start_factor)
        is_lent_none = len(selecting) > 1 or any(_untouched_classes(workload, under, body, live))
        factor = 1.0 if is_lent_none else under.limits.replica_floor_factor
        limits = msgspec.structs.replace(candidate.limits, replica_floor_factor=factor)
        yield replace(candidate, blocked=blocked or candidate.blocked, starts=starts, limits=limits)


def _candidate(
    workload: WorkloadRef, under: PolicyInForce, body: Json, allowed: Sequence[Recommendation]
) -> QueueCandidate:
    moving = [r for r in allowed if any(v.changes_template for v in r.values)]
    ready = readiness(moving, under.settings.guardrails) if moving else None
    first = ready.first if ready else ()
    moved = {resource: total for resource in Resource if (total := sum(total_change(r, resource) or 0 for r in first))}
    blocked = None
    if ready is None or not ready.ready.now:
        stopped = f"{', '.join(ready.stopped_by)}" if ready else ""
        blocked = (
            (Reason.AUTOPILOT_GUARDRAIL, f"stopped by {stopped}") if stopped else (Reason.AUTOPILOT_NOTHING_ALLOWED, "")
        )
    changing = [(r, v) for r in first for v in r.values if v.changes_template]
    rising_at_once = (
        resource
        for resource in RISING_AT_ONCE.values()
        if changing and all(v in _rising_at_once(r, resource, under.limits) for r, v in changing)
    )
    # A digest of the proposed amounts, so that the same proposal is written down once.
    amounts = [
        (str(r.container), [(v.resource, v.field, v.amount) for v in r.values if v.changes_template]) for r in first
    ]
    least = min((r.trust or Trust(0.0) for r in first), key=lambda trust: trust.confidence, default=Trust(0.0))
    ways, gitops = under.limits.ways, _gitops(workload, body, under)
    if gitops:
        ways = [way for way in ways if leaves_manifests(METHODS[way], body, allowed)]
    # It counts in the order by the money a month that it moves, saved or spent; where nothing has a price by cores,
    # with memory as so many cores (GIB_A_CORE).
    money = sum(abs(r.monthly_saving or 0.0) for r in first)
    cores = abs(moved.get(Resource.CPU, 0)) / 1000 + abs(moved.get(Resource.MEMORY, 0)) / GIB / GIB_A_CORE
    return QueueCandidate(
        workload,
        str(under.policy),
        under.mode,
        msgspec.structs.replace(under.limits, ways=ways),
        worth=money or cores,
        confidence=least.confidence,
        confidence_reason=least.because[0] if least.because else "",
        moved=moved,
        lowers=any((v.change or 0) < 0 for r in first for v in r.values),
        urgent=next(rising_at_once, None),
        blocked=blocked,
        allowed=tuple(allowed),
        digest=hashlib.sha256(msgspec.json.encode(amounts)).hexdigest()[:12],
        first=first,
        gitops=gitops,
    )


def _blocking_reason(
    candidate: QueueCandidate,
    under: PolicyInForce,
    body: Json,
    live: LiveNamespace,
    statuses: Sequence[ChangeStatus],
    cleared_seconds: float,
) -> tuple[Reason, str] | None:
    """Return the reason, with a sentence, why the workload itself must not be changed; None if there is none.

    `statuses` are all its changes. A person resumed it at `cleared_seconds` and knew of everything before that time.
    """
    never, ref = under.limits.never_touch, candidate.workload
    untouched = list(_untouched_classes(ref, under, body, live))
    spec, status = body.get("spec") or {}, body.get("status") or {}
    replicas = spec.get("replicas", status.get("desiredNumberScheduled"))
    if Untouched.SINGLE_REPLICA in never and int(replicas or 0) < 2:
        untouched.append("the workload has a single replica")
    if Untouched.AUTOSCALED in never:
        along = {v.resource for r in candidate.allowed for v in r.values if "hpa" in v.inputs}
        moving = {
            r for r in Resource if any(request_now(first, r) != request_then(first, r) for first in candidate.first)
        }
        untouched += _autoscaler_conflicts(ref, moving - along, live.autoscalers)
    if untouched:
        return Reason.AUTOPILOT_NEVER_TOUCHED, untouched[0]
    since = [s for s in statuses if s.accepted_seconds > cleared_seconds]
    if other := vertical_writer(ref.kind, ref.name, live.vpas) or describe_reversal(body, since):
        return Reason.AUTOPILOT_OTHER_WRITER, other
    # What did harm when it was tried before, by whomever: a resumed workload never gets the same again.
    moved = [(r, v) for r in candidate.first for v in r.values if v.changes_template]
    ends = max((r.end_seconds for r in candidate.first), default=0)
    rule = tried_before(moved, trials_of(statuses).get(ref, ()), ends, images_of(body, ref.kind))
    return (Reason.AUTOPILOT_GUARDRAIL, f"{rule.rule}: {rule.why}") if blocking([rule], ()) else None


def _gitops(workload: WorkloadRef, body: Json, under: PolicyInForce) -> str:
    """Return the evidence that a GitOps tool manages the workload, as text; "" if there is none."""
    keeper = kept_by(body, under.settings.guardrails)
    return keeper if operator_of(body) else gitops_writer(body, workload.kind) or keeper


def _untouched_classes(workload: WorkloadRef, under: PolicyInForce, body: Json, live: LiveNamespace) -> Iterator[str]:
    """Yield the QoS classes of its pods, by the template or at admission, that the policy must never touch."""
    template = ((body.get("spec") or {}).get("template") or {}).get("metadata") or {}
    classes = {qos_of(template.get("labels") or {}), *live.classes.get(workload, ())}
    for qos in sorted(classes & {QosClass.LSE, QosClass.LSR}):
        if Untouched(qos.value) in under.limits.never_touch:
            yield f"its pods have QoS class {qos}"


def _autoscaler_conflicts(
    workload: WorkloadRef, moved: Collection[Resource], autoscalers: Sequence[Json]
) -> Iterator[str]:
    """Yield the autoscalers that scale by one of the resources `moved`, which omits those whose target changes too."""
    for scaler in autoscalers:
        spec = scaler.get("spec") or {}
        target = spec.get("scaleTargetRef") or {}
        if (target.get("kind"), target.get("name")) != (workload.kind, workload.name):
            continue
        followed = {
            (m.get("resource") or m.get("containerResource") or {}).get("name") for m in spec.get("metrics") or ()
        }
        shared = sorted(r.value for r in moved if r.value in followed)
        if shared:
            yield f"autoscaler {(scaler.get('metadata') or {}).get('name')} scales the workload by {', '.join(shared)}"


def _allowed_values(
    recommendation: Recommendation, limits: PolicyLimits, guardrails: GuardrailSettings
) -> Iterator[Value]:
    """Yield the values that the policy lets move in their direction; request and limit of a resource move together.

    No memory limit is lowered or added: that frees nothing for the scheduler, and an OOM kill, unlike throttling,
    cannot be undone. If the memory request equals the limit, so that the pod is Guaranteed, neither is lowered.
    """
    for resource in Resource:
        values = [v for v in recommendation.values if v.resource is resource]
        cuts = [v for v in values if (v.resource, v.field) == (Resource.MEMORY, Field.LIMIT)]
        cuts = [v for v in cuts if v.changes_template and not _rises(v)]
        bounds = {v.resource: v.now for v in values if v.field is Field.LIMIT}
        requests = {effective_request(v.now, bounds.get(v.resource)) for v in values if v.field is Field.REQUEST}
        is_guaranteed = any(v.now in requests for v in cuts if v.now is not None)
        values = [] if is_guaranteed else [v for v in values if v not in cuts]
        moving = [v for v in values if v.changes_template]
        directions = {Direction.UP if _rises(v) else Direction.DOWN for v in moving}
        if resource is Resource.MEMORY and recommendation.heap is not None:
            directions.add(Direction.UP if recommendation.heap.change > 0 else Direction.DOWN)
        is_stuck = bool(moving) and is_out_of_reach(recommendation, resource, guardrails)
        if resource in limits.resources and directions.issubset(limits.directions) and not is_stuck:
            yield from values


def _keep_passing_values(
    allowed: tuple[Recommendation, ...], limits: PolicyLimits, guardrails: GuardrailSettings
) -> tuple[Recommendation, ...]:
    """Return the values that are certain enough and that no guardrail except the dead band stops.

    If no value passes, all are returned, so that the queue can give the reason.
    """

    def passes(recommendation: Recommendation, resource: Resource) -> bool:
        part = _with_values(recommendation, [v for v in recommendation.values if v.resource is resource])
        is_certain = recommendation.trust is not None and recommendation.trust.confidence >= limits.minimum_confidence
        return is_certain and set(readiness([part], guardrails).stopped_by) <= {DEAD_BAND}

    passing = tuple(_with_values(r, [v for v in r.values if passes(r, v.resource)]) for r in allowed)
    return passing if any(v.changes_template for r in passing for v in r.values) else allowed


def _rises(value: Value) -> bool:
    """Return whether a value gives more: a removed limit counts as a rise, a new one as a cut, because it restricts."""
    return value.amount is None if value.now is not None and value.amount is None else (value.change or 0) > 0


def _rising_at_once(recommendation: Recommendation, resource: Resource, limits: PolicyLimits) -> Iterator[Value]:
    """Yield values that must not wait: memory after a recorded OOM kill (not a simulated one), CPU after throttling."""
    rising = [v for v in recommendation.values if v.resource is resource and (v.change or 0) > 0]
    tried = recommendation.backtest
    if resource is Resource.MEMORY:
        is_urgent = any(v.reason is Reason.OOM_BUMP for v in rising)
    elif tried is None or not tried.pod_minutes or tried.throttled_minutes >= tried.now_throttled_minutes:
        is_urgent = False
    else:  # of as many pods as now, the limit throttles too large a share of time, and the proposal less
        is_urgent = tried.now_throttled_minutes >= limits.throttled_share * tried.pod_minutes
    if is_urgent:
        yield from rising


def _with_values(recommendation: Recommendation, values: Sequence[Value]) -> Recommendation:
    """Return the recommendation with only these values; its heap is kept only together with the memory request."""
    has_memory = any((v.resource, v.field) == (Resource.MEMORY, Field.REQUEST) for v in values)
    return replace(recommendation, values=tuple(values), heap=recommendation.heap if has_memory else None)


def raised_after_kills(
    live: Mapping[str, Any],
    recommendations: Iterable[Recommendation],
    kills: OomKills,
    changed_seconds: float,
    own: CotenantSettings,
) -> tuple[Recommendation, ...]:
    """Return all recommendations, with more memory for each container that was OOM killed after its last scan.

    A kill counts if no change of the workload followed it (`changed_seconds` is the Unix time of the last one). Request
    and limit then rise to the present limit plus the increase of strategy `cotenant` after a kill (settings `own`), at
    most to the annotation `cotenant.dev/max-memory`; a higher proposal of the scan stays. A proposed heap is dropped
    until the next scan. Memory whose request was computed together with an autoscaler's target is not raised.
    """
    wishes, _ = parse((live.get("metadata") or {}).get("annotations") or {})
    most_bytes = wishes.get("max-memory", float("inf"))

    def raise_memory(recommendation: Recommendation) -> Recommendation:
        killed_seconds = kills.get((recommendation.container.workload, recommendation.container.container), 0.0)
        limit = recommendation.value(Resource.MEMORY, Field.LIMIT)
        if killed_seconds <= max(recommendation.end_seconds, changed_seconds) or limit is None or limit.now is None:
            return recommendation
        is_solved = any(v.resource is Resource.MEMORY and "hpa" in v.inputs for v in recommendation.values)
        needed_bytes = int(min(rounded_up(after_kill(limit.now, own), MIB), most_bytes))
        if is_solved or limit.now >= needed_bytes:
            return recommendation
        values = []
        for value in recommendation.values:
            if value.resource is not Resource.MEMORY or value.now is None:
                values.append(value)
            elif value.amount is not None and value.amount >= needed_bytes:
                values.append(replace(value, reason=Reason.OOM_BUMP))
            else:
                values.append(replace(value, amount=needed_bytes, action=Action.SET, reason=Reason.OOM_BUMP, clamps=()))
        return replace(recommendation, values=tuple(values), heap=None)

    return tuple(raise_memory(recommendation) for recommendation in recommendations)
