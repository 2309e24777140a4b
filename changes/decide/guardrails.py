"""The guardrails: rules that a recommendation must pass before it is applied; each passes, warns or fails. Pure.

A failed rule stops the change unless a person overrides it by name, which the ledger records. Limits are settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.resource import Resource
from cotenant.base.text import counted, digits_beside, moment, percent, visible
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.change_windows import is_open, next_opening_text
from cotenant.changes.decide.checks.capacity import capacity_guardrails
from cotenant.changes.decide.checks.gpus import gpu_rules
from cotenant.changes.decide.checks.rollout import rollout_of
from cotenant.changes.decide.checks.trials import images_of, tried_before
from cotenant.changes.decide.field_changes import quiet, template_containers
from cotenant.changes.decide.heap_flags import template_heap_bytes
from cotenant.changes.decide.patches import TEMPLATE_PATHS
from cotenant.changes.decide.rule import STEP_RULES, Guardrail, GuardrailContext, GuardrailOutcome, Json, Moved, made
from cotenant.changes.decide.steps import largest_cut, least_step
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Field, Recommendation, Value
from cotenant.recommender.model.savings import request_now, request_then
from cotenant.recommender.model.sibling import SIBLING_INPUT

MEMORY_ABOVE_MAXIMUM: Final = 1.1
"""Memory requests and limits must be at least this multiple of the highest working set seen. Ten percent above all that
was seen: less would be an OOM kill by our own hand."""

__all__ = [
    "Guardrail",
    "GuardrailContext",
    "GuardrailOutcome",
    "blocking",
    "gitops_owner",
    "judge",
    "judge_batch",
    "judge_recorded",
    "leaves_manifests",
]

HOUR_SECONDS: Final = 3600.0
SECOND_PERSON: Final = "second-person"
GITOPS: Final = "gitops"
OPERATOR_PATHS: Final = {
    ("grafana.integreatly.org", "Grafana"): "spec.deployment.spec.template.spec.containers[].resources",
    ("monitoring.coreos.com", "Prometheus"): "spec.resources (of its own container), spec.containers[].resources",
    ("monitoring.coreos.com", "PrometheusAgent"): "spec.resources (of its own container), spec.containers[].resources",
    ("monitoring.coreos.com", "Alertmanager"): "spec.resources (of its own container), spec.containers[].resources",
    ("monitoring.coreos.com", "ThanosRuler"): "spec.resources (of its own container), spec.containers[].resources",
    ("opentelemetry.io", "OpenTelemetryCollector"): "spec.resources",
    ("operator.victoriametrics.com", "VMSingle"): "spec.resources",
    ("operator.victoriametrics.com", "VMAgent"): "spec.resources",
    ("elasticsearch.k8s.elastic.co", "Elasticsearch"): "spec.nodeSets[].podTemplate.spec.containers[].resources",
    ("kibana.k8s.elastic.co", "Kibana"): "spec.podTemplate.spec.containers[].resources",
    ("rabbitmq.com", "RabbitmqCluster"): "spec.resources",
    ("jaegertracing.io", "Jaeger"): "spec.resources",
    ("argoproj.io", "ArgoCD"): "",
}
"""Path of the container amounts in an operator's object, by API group and kind."""


def judge(
    recommendations: Sequence[Recommendation], context: GuardrailContext, settings: GuardrailSettings
) -> list[Guardrail]:
    """Return the result of every rule on one workload, in the order in which people see them."""
    moved, live = _changed_values(recommendations), context.live
    kind = recommendations[0].container.workload.kind
    killed = [
        f"{name} ({moment(context.kills[name])})"
        for r, v in moved
        if (name := r.container.container) in context.kills
        and v.resource is Resource.MEMORY
        and (v.change or 0) <= 0
        and context.kills[name] > r.end_seconds
    ]
    why = f"OOM kills since the last scan, but memory is not raised: {', '.join(dict.fromkeys(killed))}"
    kills_since = [Guardrail("oom", GuardrailOutcome.FAIL, why)] if killed else []
    put_off = f"{context.put_off}; recall it first" if context.put_off else "the recommendation is not hidden"
    rules = [
        *_recommendation_guardrails(recommendations, moved, settings),
        *kills_since,
        _heap_flag(moved, live),
        *capacity_guardrails(recommendations, moved, context),
        *gpu_rules(recommendations, context),
        _namespace_guardrail(recommendations[0], settings),
        _gitops(recommendations, context, settings),
        _rollout_guardrail(live, kind),
        _disruption(context),
        _cool_down(recommendations, moved, context, settings),
        tried_before(moved, context.trials, context.seconds, images_of(live, kind)),
        made("put-off", not context.put_off, put_off),
        _window(moved, context),
    ]
    if context.method in (Method.ANNOTATE, Method.IN_PLACE):
        missing = context.webhook
        rules.append(made("webhook", not missing, missing or "cotenant's webhook sets the values on new pods"))
    return [*rules, _second(context)]


def judge_recorded(recommendations: Sequence[Recommendation], settings: GuardrailSettings) -> list[Guardrail]:
    """Return the results of the rules that need only the recommendations of one workload, not the cluster."""
    rules = _recommendation_guardrails(recommendations, _changed_values(recommendations), settings)
    return [*rules, _namespace_guardrail(recommendations[0], settings)]


def _changed_values(recommendations: Sequence[Recommendation]) -> list[tuple[Recommendation, Value]]:
    return [(r, v) for r in recommendations for v in r.values if v.changes_template]


def _recommendation_guardrails(
    recommendations: Sequence[Recommendation], moved: Moved, settings: GuardrailSettings
) -> list[Guardrail]:
    if any(recommendation.gpu for recommendation in recommendations):
        return []  # its finding has judged the history, and nothing else moves with it
    return [
        *_evidence(moved, settings),
        _memory(moved),
        _oom(recommendations, moved),
        *(_cut(moved, resource, settings) for resource in Resource),
    ]


def judge_batch(
    workloads: int, moved_millicores: int, requested_millicores: int, settings: GuardrailSettings
) -> list[Guardrail]:
    """Check a batch: the number of workloads that change at once, and the share of all CPU requests that moves.

    `moved_millicores` and `requested_millicores` are sums over all replicas: of the batch, and of the whole cluster.
    """
    share = moved_millicores / requested_millicores if requested_millicores else 0.0
    few, most = workloads <= settings.most_workloads, settings.most_requests_share
    moves = f"{_percent_beside(most, share)} of the cluster's CPU requests change at once; at most {percent(most)} may"
    return [
        made("batch-size", few, f"{counted(workloads, 'workload')} change at once; at most {settings.most_workloads}"),
        made("batch-share", share <= most, moves),
    ]


def blocking(guardrails: Iterable[Guardrail], overridden: Iterable[str]) -> list[Guardrail]:
    """Return the failed rules that are not overridden."""
    allowed = set(overridden)
    return [rule for rule in guardrails if rule.outcome is GuardrailOutcome.FAIL and rule.rule not in allowed]


def _percent_beside(limit: float, ratio: float) -> str:
    return percent(ratio, digits_beside(100 * limit, 100 * ratio))


def _evidence(moved: Moved, settings: GuardrailSettings) -> Iterator[Guardrail]:
    days = min((float(v.inputs.get("days", r.window_seconds / 86_400)) for r, v in moved), default=0.0)
    coverage = min((float(v.inputs.get("coverage", 1.0)) for _, v in moved), default=1.0)
    least = settings.minimum_days
    had = f"{days:.{digits_beside(least, days, 1)}f}"
    lent = sorted({str(v.inputs[SIBLING_INPUT]) for _, v in moved if SIBLING_INPUT in v.inputs})
    why = f"; older history comes from {', '.join(lent)}" if lent else ""
    yield made("history", days >= least and not lent, f"{had} days of history; at least {least:g} are needed{why}")
    measured = f"the workload's pods were measured in {percent(coverage)} of the time in which they ran"
    yield made("data-gap", coverage >= settings.minimum_coverage, measured)
    # A value that is set, removed or unset before counts as the whole of it.
    most = max((abs(v.change) / v.now if v.change is not None and v.now else 1.0 for _, v in moved), default=0.0)
    worth = f"less than {percent(settings.least_change)} is not worth a restart"
    yield made("dead-band", most >= settings.least_change, f"the largest change is {percent(most)}; {worth}")


def _oom(recommendations: Sequence[Recommendation], moved: Moved) -> Guardrail:
    """Fail if memory of an OOM-killed container changes but is not raised; warn if only its CPU changes."""
    memory = [(r.container, (v.change or 0) > 0) for r, v in moved if v.resource is Resource.MEMORY]
    raised, moving = {container for container, is_rise in memory if is_rise}, {container for container, _ in memory}
    killed = [r for r in recommendations if r.backtest and r.backtest.now_oom_kills and r.container not in raised]
    if not killed:
        return Guardrail("oom", GuardrailOutcome.PASS, "no OOM kills in the back-tested days, or memory is raised")
    names = ", ".join(f"{r.container.container} ({r.backtest.now_oom_kills})" for r in killed if r.backtest)
    is_moved = any(r.container in moving for r in killed)
    outcome = GuardrailOutcome.FAIL if is_moved else GuardrailOutcome.WARN
    return Guardrail("oom", outcome, f"OOM kills in the back-tested days, but memory is not raised: {names}")


def _memory(moved: Moved) -> Guardrail:
    """Fail for memory requests and limits below `MEMORY_ABOVE_MAXIMUM` x the highest working set seen.

    A value without a known highest working set passes.
    """
    low = []
    for r, v in moved:
        highest = v.inputs.get("observed_max")
        if v.resource is Resource.MEMORY and v.amount is not None and isinstance(highest, int | float):
            floor = float(highest) * MEMORY_ABOVE_MAXIMUM
            floor = min(floor, r.heap.floor_bytes) if r.heap else floor  # a runtime cannot take more
            if v.amount < floor - 1:
                low.append(f"{r.container.container} {v.field} {format_amount(Resource.MEMORY, v.amount)}")
    at_least = f"{MEMORY_ABOVE_MAXIMUM:g} x the highest working set seen"
    return made("memory-floor", not low, f"below {at_least}: {', '.join(low)}" if low else f"at least {at_least}")


def _heap_flag(moved: Moved, live: Json) -> Guardrail:
    """Fail if a memory limit is lowered, or newly set, below the largest heap that the template sets.

    Not every strategy knows heaps, and somebody may have raised the flag since the scan.
    """
    low = []
    for r, v in moved:
        is_limit = (v.resource, v.field) == (Resource.MEMORY, Field.LIMIT)
        if not is_limit or v.amount is None or (v.now or v.amount) < v.amount:
            continue
        container = template_containers(live, r.container.workload.kind).get(r.container.container, {})
        flag = r.heap.amount_bytes if r.heap and r.heap.change else template_heap_bytes(container)
        if v.amount <= flag:
            amounts = (format_amount(Resource.MEMORY, amount) for amount in (v.amount, flag))
            low.append("{}: memory limit {} is not above the maximum heap {}".format(r.container.container, *amounts))
    return made("memory-heap", not low, "; ".join(low) or "no limit is lowered below the maximum heap")


def _cut(moved: Moved, resource: Resource, settings: GuardrailSettings) -> Guardrail:
    """Fail if one step cuts a request too far; a value that `steps` has reduced to a first step passes."""
    most, rule = largest_cut(resource, settings), STEP_RULES[resource]
    requests = [
        (r.container.container, now, v.amount, v.clamps, least_step(r, resource, settings))
        for r, v in moved
        if (v.resource, v.field) == (resource, Field.REQUEST)
        and (now := request_now(r, resource))
        and v.amount is not None
    ]
    cuts = [(1 - amount / now, name) for name, now, amount, _, least in requests if amount < least]
    if cuts:
        cut, name = max(cuts)
        why = f"{name} is cut by {_percent_beside(most, cut)}; at most {percent(most)} in one step"
        return Guardrail(rule, GuardrailOutcome.FAIL, why)
    steps = [
        f"{name} {format_amount(resource, now)} → {format_amount(resource, amount)} is the first step to "
        f"{format_amount(resource, clamp.before)}"
        for name, now, amount, clamps, _ in requests
        for clamp in clamps
        if clamp.rule == rule
    ]
    return Guardrail(rule, GuardrailOutcome.PASS, "; ".join(steps) or f"no cut above {percent(most)}")


def _namespace_guardrail(recommendation: Recommendation, settings: GuardrailSettings) -> Guardrail:
    namespace = recommendation.container.workload.namespace
    free = namespace not in settings.protected_namespaces
    return made("namespace", free, f"namespace {namespace} is {'not ' if free else ''}protected")


def gitops_owner(live: Json, settings: GuardrailSettings) -> str:
    """Return the label or annotation that shows that a GitOps tool owns the object; "" if there is none."""
    meta = live.get("metadata") or {}
    return gitops_key({**(meta.get("labels") or {}), **(meta.get("annotations") or {})}, settings)


def operator_of(live: Json) -> str:
    """Return, as text, the operator's object that owns the workload, and the amounts' path there if known; else "".

    An operator overwrites the template from its own object. A workload is an operator's if the kind of its controlling
    owner is none of Kubernetes' own, as a Job's CronJob is.
    """
    meta = live.get("metadata") or {}
    owner: Json = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
    kind, name = str(owner.get("kind") or ""), str(owner.get("name") or "")
    if not kind or kind in TEMPLATE_PATHS:
        return ""
    group = str(owner.get("apiVersion") or "").partition("/")[0]
    path = OPERATOR_PATHS.get((group, kind), "")
    return f"{kind} {meta.get('namespace', '')}/{name}" + (f", {path}" if path else "")


def kept_by(live: Json, settings: GuardrailSettings) -> str:
    """Return, as a clause, the GitOps tool or operator that would overwrite the workload's template; "" without one."""
    if operator := operator_of(live):
        return f"an operator writes the workload's template: change {operator}"
    owner = gitops_owner(live, settings)
    return f"{owner} shows that a GitOps tool owns the workload" if owner else ""


def gitops_key(keys: Collection[str], settings: GuardrailSettings) -> str:
    """Return the first of these label and annotation keys by which a GitOps tool owns an object; "" if none does."""
    return next((key for key in settings.managed_by if key in keys), "")


def leaves_manifests(method: Method, live: Json, recommendations: Sequence[Recommendation]) -> bool:
    """Return whether a method writes no field of a GitOps manifest, but only pods, cotenant's own metadata, or files.

    Server-side apply and a three-way merge do not touch metadata that is in no manifest.
    """
    if method is Method.BUNDLE:
        return True
    by_pods = method is Method.IN_PLACE and not quiet(live, recommendations[0].container.workload.kind)
    return (method is Method.ANNOTATE or by_pods) and not autoscaler_targets.moves(list(recommendations))


def _gitops(recommendations: Sequence[Recommendation], context: GuardrailContext, own: GuardrailSettings) -> Guardrail:
    keeper, operator = kept_by(context.live, own), bool(operator_of(context.live))
    if not keeper:
        return made(GITOPS, True, "no GitOps owner and no operator")
    by_bundle = context.method is Method.BUNDLE
    if not leaves_manifests(context.method, context.live, recommendations) or (operator and by_bundle):
        end = "; the operator would undo the change" if operator else ", which would undo the change: write a bundle"
        return made(GITOPS, False, f"{keeper}{end}")
    end = "that tool applies the bundle" if by_bundle else "the change writes no field of the tool's manifests"
    return made(GITOPS, True, f"{keeper}: {end}")


def _rollout_guardrail(live: Json, kind: str) -> Guardrail:
    rollout = rollout_of(live, kind)
    if rollout is None:
        return Guardrail("rollout", GuardrailOutcome.PASS, "nothing rolls out")
    rolling = bool(rollout.unread) or (rollout.updated is not None and rollout.updated < rollout.desired)
    why = "a rollout is going on" if rolling else rollout.readiness
    return made("rollout", not rolling and not rollout.unready, why)


def _disruption(context: GuardrailContext) -> Guardrail:
    if context.method is not Method.TEMPLATE:
        return Guardrail("disruption-budget", GuardrailOutcome.PASS, f"no pod is replaced: {context.method.full_name}")
    if context.disruptions is None:
        return context.cluster_limits.unread("disruption-budget", "PodDisruptionBudgets")
    if context.disruptions == float("inf"):
        return Guardrail("disruption-budget", GuardrailOutcome.PASS, "no PodDisruptionBudget")
    permits = f"the workload's PodDisruptionBudget permits {counted(int(context.disruptions), 'eviction')} now"
    return made("disruption-budget", context.disruptions >= 1, permits)


def _cool_down(
    recommendations: Sequence[Recommendation], moved: Moved, context: GuardrailContext, settings: GuardrailSettings
) -> Guardrail:
    lowers = (
        any(recommendation.gpu for recommendation in recommendations)
        or any(v.now is not None and v.amount is not None and v.amount < v.now for _, v in moved)
        or any(request_then(r, resource) < request_now(r, resource) for r in recommendations for resource in Resource)
    )
    if context.changed_seconds is None or not lowers:
        return Guardrail("cool-down", GuardrailOutcome.PASS, "not changed lately" if lowers else "nothing is lowered")
    hours = (context.seconds - context.changed_seconds) / HOUR_SECONDS
    who = f" by {visible(context.changed_by)}, {moment(context.changed_seconds)}" if context.changed_by else ""
    wait = f"a change that lowers values waits for {settings.cool_down_hours:g} hours"
    why = f"the workload was changed{who}, {hours:.1f} hours ago; {wait}"
    return made("cool-down", hours >= settings.cool_down_hours, why)


def _window(moved: Moved, context: GuardrailContext) -> Guardrail:
    if is_open(context.windows, context.seconds):
        why = "a change window is open" if context.windows else "no change window is set"
        return Guardrail("change-window", GuardrailOutcome.PASS, why)
    raises = all(v.resource is Resource.MEMORY and (v.change or 0) > 0 for _, v in moved)
    if moved and raises and context.windows_spare_memory:
        return Guardrail("change-window", GuardrailOutcome.PASS, "raising memory does not wait for a change window")
    why = f"no change window is open; the next one opens {next_opening_text(context.windows, context.seconds)}"
    return Guardrail("change-window", GuardrailOutcome.FAIL, why)


def takes_second(qos: QosClass) -> bool:
    """Return whether changes of workloads of this QoS class need a second person."""
    return qos in (QosClass.LSE, QosClass.LSR)


def _second(context: GuardrailContext) -> Guardrail:
    """Return the result of the rule about a second person.

    With a login, the change waits for the second person; without one, only the typed name of a second person is
    recorded.
    """
    if not takes_second(context.qos):
        return Guardrail(SECOND_PERSON, GuardrailOutcome.PASS, f"QoS {context.qos or 'LS'} needs no second person")
    needs = f"QoS {context.qos} needs a second person"
    if context.logs_in:
        return Guardrail(SECOND_PERSON, GuardrailOutcome.WARN, f"{needs}: the accepted change waits for that person")
    if context.second_person:
        why = f"confirmed by {context.second_person}: the name was not verified"
        return Guardrail(SECOND_PERSON, GuardrailOutcome.WARN, why)
    return Guardrail(SECOND_PERSON, GuardrailOutcome.FAIL, needs)
