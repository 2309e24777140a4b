"""Guardrails about capacity: LimitRange, ResourceQuota, a node that is big enough, QoS class, autoscalers. Pure.

The API server accepts a template from which no pod can be created; the rollout then stalls without an error. So these
rules check here what the server would check for each pod, and report an autoscaler's trigger that would move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Final

import msgspec

from cotenant.base.cluster import Container, ContainerRole, RunningSum, pod_amount
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.autoscalers import MetricWire, utilization_targets
from cotenant.base.kubernetes.pod_qos import PodQos
from cotenant.base.kubernetes.pod_request import readable_amounts
from cotenant.base.kubernetes.pod_resources import PresentAmounts
from cotenant.base.kubernetes.pod_wire import present_amounts_of_pod
from cotenant.base.kubernetes.protocol import QUEUED_ANNOTATION
from cotenant.base.kubernetes.quantity import format_amount, parse_amount
from cotenant.base.kubernetes.quota_tree import PREEMPTIBLE_LABEL
from cotenant.base.resource import Resource
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.checks.rollout import rollout_of
from cotenant.changes.decide.field_changes import NO_VALUES, on_new_pods, pod_labels
from cotenant.changes.decide.patches import FIELDS, LISTS, TEMPLATE_PATHS
from cotenant.changes.decide.rule import Guardrail, GuardrailContext, GuardrailOutcome, Json, Moved, QuotaClaim, made
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from cotenant.changes.model.service import Method
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.restart import apply_recommendations, pod_qos

AUTOSCALER: Final = "autoscaler"
"""The rule about autoscalers that set requests or scale by them."""
PodAmounts = Mapping[str, PresentAmounts]
"""The present amounts of a pod's containers, by container name (`pod_resources.present_amounts`)."""
RunningRequests = Mapping[tuple[str, Resource], tuple[int, RunningSum]]
"""By container and resource: the highest present request of a workload's pods, and their sums."""
UNCOUNTED: Final = (ChangeState.UNKNOWN, ChangeState.WAITING, ChangeState.AWAITING, ChangeState.APPLIED)
"""States of accepted changes whose pods quotas may not count yet."""
_QUOTA_KEYS: Final = tuple(
    (key, resource, side)
    for resource in Resource
    for key, side in (
        (resource.value, "requests"),
        (f"requests.{resource}", "requests"),
        (f"limits.{resource}", "limits"),
    )
)


def capacity_guardrails(
    recommendations: Sequence[Recommendation], moved: Moved, context: GuardrailContext
) -> Iterator[Guardrail]:
    """Yield the result of each capacity rule on one workload, in the order in which pages show them."""
    running = requests_of_running(context.pods)
    now, new = _before_and_after(recommendations, context.live)
    # Warns where what pods count with on their nodes and what a new one gets differ: both are told. A resize that its
    # node puts off counts already, and runs not yet.
    requests = _every_request(_present_amounts_of(pod) for pod in context.pods)
    every = {key: {pod.counted for pod in of_pods} for key, of_pods in requests.items()}
    own, texts = {r.container.container for r in recommendations}, []
    for c in now:
        for resource, amount in c.requests.items():
            counted = every.get((c.name, resource), {amount})
            if c.name in own and counted != {amount}:
                span = " to ".join(format_amount(resource, end) for end in sorted({min(counted), max(counted)}))
                gets = f"a new pod gets {format_amount(resource, amount)}"
                texts.append(f"{c.name} has {span} of {resource} in running pods, and {gets}")
    why = "; ".join(texts) or "running pods have the same amounts as new ones get"
    yield made("running-pods", not texts, why, GuardrailOutcome.WARN)
    yield qos_class_rule(now, new)
    yield _limit_ranges(new, context)
    claim = claim_of(recommendations, context.live, running)
    yield _quota(new, claim, context)
    yield _elastic_quota(claim, context)
    yield _node(_as_running(now, running), new, context)
    yield _scalers(recommendations, moved, context)


def claim_of(recommendations: Sequence[Recommendation], live: Json, running: RunningRequests) -> QuotaClaim:
    """Return the quota that one workload's recommendations need beyond what the workload's present pods request."""
    now, new = _before_and_after(recommendations, live)
    return _claim(recommendations[0].container.workload, live, _as_running(now, running), new)


def uncounted_claim(status: ChangeStatus, live: Json) -> QuotaClaim | None:
    """Return the quota that an accepted change needs but the quotas' `used` does not count yet; None once it does.

    Quotas count pods: a change that is waiting or unknown has no new pods yet, one that rolls out has some of them.
    """
    change, rollout = status.change, rollout_of(live, status.change.kind)
    is_rolled_out = not (rollout and (rollout.unread or rollout.behind))
    if status.state not in UNCOUNTED or (status.state is ChangeState.APPLIED and is_rolled_out):
        return None
    return _claim(change.ref, live, *_written_sides(change, live))


def with_less_memory(change: Change, live: Json) -> frozenset[str]:
    """Return the names of containers whose new pods get less memory by a change; a newly set limit counts as less."""
    return frozenset(
        new.name
        for old, new in zip(*_written_sides(change, live), strict=True)
        if new.requests.get(Resource.MEMORY, 0) < old.requests.get(Resource.MEMORY, 0)
        or new.limits.get(Resource.MEMORY, inf) < old.limits.get(Resource.MEMORY, inf)
    )


def _written_sides(change: Change, live: Json) -> tuple[list[Container], list[Container]]:
    """Return the containers of new pods before and after a change's writes to the workload object."""
    own = [write for write in change.writes if write.uid == (live.get("metadata") or {}).get("uid")]
    before, after = ({p: v for write in own for p, v in getattr(write, side).items()} for side in ("before", "after"))
    return new_pods(live, change.kind, before), new_pods(live, change.kind, after)


def _claim(workload: WorkloadRef, live: Json, now: Sequence[Container], new: Sequence[Container]) -> QuotaClaim:
    # The number of pods of the template: for a DaemonSet one per node that it is meant for, 1 if unknown.
    spec, status = live.get("spec") or {}, live.get("status") or {}
    pods = int(spec.get("replicas") or status.get("desiredNumberScheduled") or 1)
    sides = [(resource, side) for resource in Resource for side in FIELDS.values()]
    more = {key: pods * (pod_amount(new, *key) - pod_amount(now, *key)) for key in sides}
    return QuotaClaim(workload, more, pod_labels(live))


def _before_and_after(recommendations: Sequence[Recommendation], live: Json) -> tuple[list[Container], list[Container]]:
    """Return the containers of new pods by the live workload, and by it with the recommendations."""
    now = new_pods(live, recommendations[0].container.workload.kind)
    return now, apply_recommendations(now, recommendations)


def new_pods(live: Json, kind: str, values: Json = NO_VALUES) -> list[Container]:
    """Return the containers of new pods; `values` ({JSON pointer: value}) replace those of the live object."""
    spec: Any = live
    for key in TEMPLATE_PATHS.get(kind, ()):
        spec = spec.get(key) or {}
    resources, of_pod = dict(on_new_pods(live, kind, values)), {}
    for name in dict.fromkeys(LISTS.values()):
        of_pod[name] = [{**body, "resources": resources[str(body.get("name", ""))]} for body in spec.get(name) or ()]
    return containers(of_pod)


def requests_of_running(pods: Iterable[Json]) -> RunningRequests:
    """Return the present requests of a workload's Pods; pods with unreadable amounts are skipped."""
    return running_requests(_present_amounts_of(pod) for pod in pods)


def _present_amounts_of(pod: Json) -> PodAmounts:
    with suppress(CotenantError):
        return present_amounts_of_pod(pod)
    return {}


def running_requests(pods: Iterable[PodAmounts]) -> RunningRequests:
    """Return by (container, resource) the highest request of a pod and the sums over pods that have the request."""
    every = _every_request(pods).items()
    return {key: (max(pod.counted for pod in of_pods), RunningSum.of(of_pods)) for key, of_pods in every}


def _every_request(pods: Iterable[PodAmounts]) -> Mapping[tuple[str, Resource], list[RunningSum]]:
    """Return each pod's requests as the scheduler counts them and as the node applies them (different in a resize)."""
    requests: dict[tuple[str, Resource], list[RunningSum]] = defaultdict(list)
    for present in pods:
        for name, amounts in present.items():
            for resource in Resource:
                if amount := amounts.requests.get(resource.value, 0):
                    requests[name, resource].append(RunningSum(1, amount, amounts.in_force.get(resource.value, 0)))
    return requests


def _as_running(now: Sequence[Container], running: RunningRequests) -> list[Container]:
    """Return the containers of new pods, with the requests of the running pods."""
    amounts = ({r: running[c.name, r][0] for r in Resource if (c.name, r) in running} for c in now)
    return [replace(c, requests={**c.requests, **of_pods}) for c, of_pods in zip(now, amounts, strict=True)]


def containers(spec: Json) -> list[Container]:
    """Return the containers of a pod spec, init containers and sidecars included."""
    parts = [_container(body, ContainerRole.MAIN) for body in spec.get("containers") or ()]
    for body in spec.get("initContainers") or ():
        is_sidecar = body.get("restartPolicy") == "Always"
        parts.append(_container(body, ContainerRole.SIDECAR if is_sidecar else ContainerRole.INIT))
    return parts


def _container(body: Json, role: ContainerRole) -> Container:
    resources = body.get("resources") or {}
    policies = [p for p in body.get("resizePolicy") or () if p.get("restartPolicy") == "RestartContainer"]
    restarts = tuple(r for r in Resource for policy in policies if policy.get("resourceName") == r.value)
    requests, limits = (readable_amounts(resources.get(side) or {}) for side in ("requests", "limits"))
    return Container(str(body.get("name", "")), requests, limits, role, restarts)


def qos_class_rule(now: Sequence[Container], new: Sequence[Container]) -> Guardrail:
    """Fail if pods lose the QoS class Guaranteed: other classes are evicted first under memory pressure."""
    before, after = pod_qos(now), pod_qos(new)
    if before is after:
        return Guardrail("qos-class", GuardrailOutcome.PASS, f"the QoS class of the workload's pods stays {before}")
    why = f"the QoS class of the workload's pods changes from {before} to {after}"
    if before is not PodQos.GUARANTEED:
        return Guardrail("qos-class", GuardrailOutcome.PASS, why)
    return Guardrail("qos-class", GuardrailOutcome.FAIL, f"{why}, which is evicted first: set limits equal to requests")


def _limit_ranges(new: Sequence[Container], context: GuardrailContext) -> Guardrail:
    if context.cluster_limits.limit_ranges is None:
        return context.cluster_limits.unread("limit-range", "LimitRanges")
    items = [i for rule in context.cluster_limits.limit_ranges for i in (rule.get("spec") or {}).get("limits") or ()]
    admitted, broken = [], []
    for container in new:
        # A container with what LimitRanges give it where it names nothing; a missing request is first its own limit.
        limits, requests = dict(container.limits), dict(container.effective_requests)
        for item in items:
            if item.get("type") == "Container":
                limits = {**readable_amounts(item.get("default") or {}), **limits}
                requests = {**readable_amounts(item.get("defaultRequest") or item.get("default") or {}), **requests}
        admitted.append(replace(container, requests=requests, limits=limits))
        for resource in Resource:
            request, limit = requests.get(resource, 0), limits.get(resource)
            if resource not in container.limits and limit is not None and request > limit:
                wants, most = format_amount(resource, request), format_amount(resource, limit)
                broken.append(f"{container.name} would request {wants} of {resource}, over its default limit of {most}")
    broken += [why for item in items for why in _breaks(item, admitted)]
    why = f"a LimitRange would refuse new pods: {broken[0]}; request less, or change the LimitRange" if broken else ""
    return made("limit-range", not broken, why or "no LimitRange would refuse new pods")


def _breaks(item: Json, new: Sequence[Container]) -> Iterator[str]:
    """Yield, as text, each bound of a LimitRange item that a container or the whole pod violates."""
    least, most = readable_amounts(item.get("min") or {}), readable_amounts(item.get("max") or {})
    pairs: list[tuple[str, int | None, int | None]]
    for resource in Resource:
        if item.get("type") == "Pod":
            pairs = [("the pod", pod_amount(new, resource), pod_amount(new, resource, "limits"))]
        elif item.get("type") == "Container":
            pairs = [(c.name, c.requests.get(resource), c.limits.get(resource)) for c in new]
        else:
            return
        for name, request, limit in pairs:
            if request is not None and resource in least and request < least[resource]:
                floor, amount = format_amount(resource, least[resource]), format_amount(resource, request)
                yield f"{name} requests {amount} of {resource}, and the minimum is {floor}"
            if limit and resource in least and limit < least[resource]:
                floor, amount = format_amount(resource, least[resource]), format_amount(resource, limit)
                yield f"{name} has a limit of {amount} of {resource}, and the minimum is {floor}"
            top = max(request or 0, limit or 0)
            if resource in most and top > most[resource]:
                ceiling = format_amount(resource, most[resource])
                yield f"{name} has {format_amount(resource, top)} of {resource}, and the maximum is {ceiling}"
            text = (item.get("maxLimitRequestRatio") or {}).get(resource.value)
            if text is not None and request and limit:
                most_ratio = parse_amount(Resource.CPU, text) / 1000  # a plain number, read as cores
                if limit / request > most_ratio + 1e-9:
                    ratio = f"{limit / request:.2g} times its request, and the maximum is {most_ratio:g}"
                    yield f"{name}'s limit of {resource} is {ratio}"


def _quota(new: Sequence[Container], claim: QuotaClaim, context: GuardrailContext) -> Guardrail:
    """Fail if the change needs more over all replicas than a ResourceQuota has left; quotas with scopes are skipped.

    What other changes of the namespace will use is not left. Warn if the sum fits but one more pod does not, because a
    rolling update starts a new pod before it ends an old one.
    """
    if context.cluster_limits.quotas is None:
        return context.cluster_limits.unread("quota", "ResourceQuotas")
    rolls = context.method is Method.TEMPLATE
    tight = ""
    for quota in context.cluster_limits.quotas:
        if (quota.get("spec") or {}).get("scopes") or (quota.get("spec") or {}).get("scopeSelector"):
            continue
        hard, used = (quota.get("status") or {}).get("hard") or {}, (quota.get("status") or {}).get("used") or {}
        for key, resource, side in _QUOTA_KEYS:
            if key not in hard:
                continue
            taken = _claims_on(context, resource, side, lambda c: c.workload.namespace == claim.workload.namespace)
            remaining = parse_amount(resource, hard[key]) - parse_amount(resource, used.get(key, "0"))
            remaining -= sum(taken.values())
            more = claim.more[resource, side]
            name = f"ResourceQuota {(quota.get('metadata') or {}).get('name', '')}: {key}"
            if more > remaining and more > 0:
                return Guardrail("quota", GuardrailOutcome.FAIL, _short(name, resource, more, remaining, taken))
            if rolls and pod_amount(new, resource, side) > remaining:
                tight = f"{name} has no capacity for one more pod: old pods have to end before new ones start"
    outcome = GuardrailOutcome.WARN if tight else GuardrailOutcome.PASS
    return Guardrail("quota", outcome, tight or "ResourceQuotas have enough left")


def _claims_on(
    context: GuardrailContext, resource: Resource, side: str, shares: Callable[[QuotaClaim], bool]
) -> dict[WorkloadRef, int]:
    """Return how much of a quota the changes of other workloads will use, by workload."""
    claims = (claim for claim in context.cluster_limits.claims if shares(claim))
    return {c.workload: c.more[resource, side] for c in claims if c.more[resource, side] > 0}


def _elastic_quota(claim: QuotaClaim, context: GuardrailContext) -> Guardrail:
    """Fail if the change needs more than the ElasticQuota of its pods, or one above it, has left.

    The webhook checks an in-place resize in the same way (`QuotaTree.bounds`).
    """
    tree = context.cluster_limits.tree
    if tree is None:
        return Guardrail("elastic-quota", GuardrailOutcome.PASS, "ElasticQuotas were not read")
    gates = [(pod["metadata"].get("annotations") or {}).get(QUEUED_ANNOTATION, "") for pod in context.pods]
    quota = tree.of_pod(claim.workload.namespace, claim.labels, next(filter(None, gates), ""))
    firm = claim.labels.get(PREEMPTIBLE_LABEL) == "false"
    for word, bound, most, used in tree.bounds(quota, firm) if quota else ():
        below = {bound.name, *(name for name in tree.quotas if bound.name in tree.ancestors(tree.quotas[name]))}

        def shares(other: QuotaClaim, below: Collection[str] = below) -> bool:
            own = tree.of_pod(other.workload.namespace, other.labels)
            return own is not None and own.name in below

        for resource in Resource:
            more = claim.more[resource, "requests"]
            if more <= 0 or resource.value not in most:
                continue
            taken = _claims_on(context, resource, "requests", shares)
            remaining = most[resource.value] - used.get(resource.value, 0) - sum(taken.values())
            if more > remaining:
                name = f"ElasticQuota {bound.name}: {word} of {resource}"
                return Guardrail("elastic-quota", GuardrailOutcome.FAIL, _short(name, resource, more, remaining, taken))
    return Guardrail("elastic-quota", GuardrailOutcome.PASS, "ElasticQuotas have enough left")


def _short(name: str, resource: Resource, more: int, remaining: int, taken: Mapping[WorkloadRef, int]) -> str:
    needed_text, remaining_text = format_amount(resource, more), format_amount(resource, max(0, remaining))
    needed_first, workloads = format_amount(resource, sum(taken.values())), ", ".join(map(str, taken))
    others = f" after the {needed_first} that changes of {workloads} need" if taken else ""
    shortage = f"{name} has {remaining_text} left{others}, but this change needs {needed_text}"
    return f"{shortage}: pods would be refused; have the quota raised"


def _node(now: Sequence[Container], new: Sequence[Container], context: GuardrailContext) -> Guardrail:
    raised = [r for r in Resource if pod_amount(new, r) > pod_amount(now, r)]
    if not raised:
        return Guardrail("node-fit", GuardrailOutcome.PASS, "no request is raised")
    if context.cluster_limits.nodes is None:
        return context.cluster_limits.unread("node-fit", "nodes")
    pod_requests = {resource: pod_amount(new, resource) for resource in Resource}
    size_text = " and ".join(f"{format_amount(r, a)} of {r}" for r, a in pod_requests.items() if a)
    if context.cluster_limits.daemon_nodes:
        # Fails when a daemon would not fit on each node that it runs on: it has no other one to go to.
        nodes = context.cluster_limits.daemon_nodes
        small = sorted(name for name, node in nodes.items() if not _holds(node, pod_requests))
        why = f"all {len(nodes)} nodes that the workload runs on are big enough for a pod of {size_text}"
        if small:
            why = f"{len(small)} of {len(nodes)} nodes that the workload runs on are too small for a pod of {size_text}"
            why = f"{why}, among them {small[0]}: request less, or use one DaemonSet per node size"
        return made("node-fit", not small, why)
    fits = sum(_holds(node, pod_requests) for node in context.cluster_limits.nodes)
    why = f"{fits} of {len(context.cluster_limits.nodes)} nodes are big enough for a pod of {size_text}"
    return made("node-fit", fits > 0, why if fits else f"{why}: add a larger node, or request less")


def _holds(node: Mapping[Resource, int], pod_requests: Mapping[Resource, int]) -> bool:
    return all(node.get(r, 0) >= amount for r, amount in pod_requests.items())


def _scalers(recommendations: Sequence[Recommendation], moved: Moved, context: GuardrailContext) -> Guardrail:
    """Fail if requests change but their autoscaler's target (percent of the request) does not: its trigger moves."""
    if why := context.cluster_limits.vertical:
        return Guardrail(AUTOSCALER, GuardrailOutcome.FAIL, f"{why}: set the VPA's updateMode to Off first")
    along = autoscaler_targets.moves(list(recommendations))
    led = {(move.name, move.resource) for move in along}
    resources = {value.resource for _, value in moved if value.field is Field.REQUEST}
    for scaler in context.cluster_limits.scalers or ():
        name = str((scaler.get("metadata") or {}).get("name", ""))
        metrics = msgspec.convert((scaler.get("spec") or {}).get("metrics") or [], list[MetricWire])
        solvable, unsolvable = utilization_targets(metrics)
        for resource in sorted(resources & {*solvable, *unsolvable}):
            why = f"autoscaler {name} scales by {resource} in percent of the request, but its target stays the same"
            if resource in unsolvable:
                why = f"{why}: the target is not for whole pods; change requests and target by hand"
            elif (name, resource) not in led:
                why = f"{why}: scan again so that request and target are computed together"
            else:
                continue
            return Guardrail(AUTOSCALER, GuardrailOutcome.FAIL, why)
    if along:
        return Guardrail(AUTOSCALER, GuardrailOutcome.WARN, "; ".join(move.sentence for move in along))
    if context.cluster_limits.scalers is None:
        return context.cluster_limits.unread(AUTOSCALER, "HorizontalPodAutoscalers")
    has_scaler = context.autoscaled or bool(context.cluster_limits.scalers)
    why = "no autoscaler scales by the changed requests" if has_scaler else "no autoscaler"
    return Guardrail(AUTOSCALER, GuardrailOutcome.PASS, why)
