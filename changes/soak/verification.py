"""EDGE: decides whether an applied change did harm, rule by rule, from the cluster and the metric source.

Rules about pods: OOM kills, restarts, missing replicas, resizes that nodes refuse. While no pod has the values, or a
rollout goes on, nothing else is checked and there is no verdict. Rules about metrics, over equal times before and
after: throttled CPU periods, time waiting for a CPU, and p99 latency and failed requests if a query for them is
configured.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from cotenant.base.errors import ClusterForbidden, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.text import agree
from cotenant.changes.accept import Actions
from cotenant.changes.decide.checks.capacity import with_less_memory
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.in_force import Live, describe_loss, rewritten_fields
from cotenant.changes.decide.in_place import workload_pods
from cotenant.changes.decide.regression_check import (
    Compared,
    Measure,
    Objective,
    regression_results,
    said,
    unanswered_query_reason,
)
from cotenant.changes.live_context import selector_of_pods
from cotenant.changes.model.annotated_resources import ERROR_ANNOTATION, LATENCY_ANNOTATION
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus
from cotenant.changes.model.judgement import ChangeVerdict, RuleResult, RuleVerdict
from cotenant.changes.objectives.declared import declared_objectives
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.soak.objects import read_object, read_objects
from cotenant.changes.soak.own_series import check_own
from cotenant.changes.soak.pod_rules import GONE, POD_RULES, kills_since, pod_results
from cotenant.changes.soak.usage_comparison import LEAST_SECONDS

Json = Mapping[str, Any]
ANNOTATIONS: Final = {Measure.LATENCY: LATENCY_ANNOTATION, Measure.ERRORS: ERROR_ANNOTATION}
"""The annotation of a workload with its query, by measure."""


def compute_change_verdict(actions: Actions, status: ChangeStatus) -> tuple[ChangeEvent, str, ChangeVerdict]:
    """Return the event to record for a change, such as REGRESSED, its text, and the verdict with each rule's numbers.

    Harm is checked before lost values: whoever restored the old values may have done so because of the harm.
    """
    change, since, now = status.change, status.begun_seconds, actions.journal.clock.now_seconds()
    objects = read_objects(actions, [change])
    path = address_of(change.ref).path
    live = objects[path] if path in objects else read_object(actions, address_of(change.ref))
    rules, compared = [RuleResult(GONE, RuleVerdict.NO_DATA, words=GONE)], list[Compared]()
    if live is not None:
        own = _own_pods(actions, change, live)
        rules = pod_results(change, live, own, since, actions.journal.clock.now_seconds())
    unready = next((rule.words for rule in rules if rule.verdict is RuleVerdict.NO_DATA), "")
    if not unready:
        queries, refused = queries_of(live, change.ref, actions.settings.latency_query)
        goals = [Objective(measure, query) for measure, query in queries.items()]
        if live is not None:
            declared = declared_objectives(actions.client, live, change.ref)
            goals, refused = [*goals, *declared.objectives], [*refused, *declared.refused]
        compared = [*actions.parts.compare(change, since, now, goals), *refused]
        queried = [
            *(objective if objective.name else objective.measure for objective in goals if not objective.needs_week),
            *(refusal.measure for refusal in refused if not refusal.name),
        ]
        rules += regression_results(compared, actions.settings, queried)
    verdict = ChangeVerdict(since, now, tuple(rules), tuple(actions.parts.trace(change, since, now)))
    if verdict.harm:
        return ChangeEvent.REGRESSED, verdict.harm, verdict
    if lost := find_loss(actions, status, objects):
        return ChangeEvent.GONE, lost, verdict
    if silent := unready or unanswered_query_reason(rules):
        return ChangeEvent.UNJUDGED, f"not verified: {silent}", verdict
    looked = ", ".join(rule.words for rule in rules if rule.rule in POD_RULES)
    return ChangeEvent.VERIFIED, f"after {(now - since) / 60:.0f} minutes: {looked}; {said(compared)}", verdict


def find_loss(actions: Actions, status: ChangeStatus, objects: Live) -> str:
    """Return, as text, which written values of a change the cluster no longer has, and who changed them; "" if none.

    `objects` are all objects that the change has written, from `read_objects`.
    """
    same = [s for s in actions.journal.statuses().values() if s.change.ref == status.change.ref]
    rewritten = rewritten_fields(same).get(status.change.id, frozenset())
    return describe_loss(status.change, objects, status.begun_seconds, rewritten)


def why_not_send(actions: Actions, status: ChangeStatus) -> str:
    """Return why a change that has waited must not be sent any more; "" if it may.

    The only reason is an OOM kill, since its acceptance, of a container whose memory it lowers, if pods may be read.
    """
    try:
        live = read_object(actions, address_of(status.change.ref))
        if live is None or not (lowered := with_less_memory(status.change, live)):
            return ""
        killed = kills_since(_own_pods(actions, status.change, live), status.accepted_seconds, lowered)
    except ClusterForbidden:
        return ""
    since = agree(killed, "container that gets less was OOM-killed", "containers that get less were OOM-killed")
    return f"the change lowers memory, and {since} since the change was accepted" if killed else ""


def queries_of(live: Json | None, workload: WorkloadRef, latency: str) -> tuple[dict[Measure, str], list[Compared]]:
    """Return the queries that verify a workload's changes, and the refused queries of its annotations with the reason.

    `live` is the workload, None if it is gone; `latency` is the setting's query, used if the workload has none. The
    operator's setting may read any series; an annotation may not, because whoever may write the workload may write it.
    """
    if live is None:
        return {}, []
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    queries, refused = ({Measure.LATENCY: latency} if latency else {}), []
    for measure, annotation in ANNOTATIONS.items():
        query = str(annotations.get(annotation) or "")
        if not query:
            continue
        try:
            check_own(fill_variables(query, workload, LEAST_SECONDS), workload.namespace, f"annotation {annotation}")
        except UsageError as error:
            queries.pop(measure, None)
            refused.append(Compared(measure, None, None, f"{error.message}. {error.fix}"))
        else:
            queries[measure] = query
    return queries, refused


def annotate_command(workload: WorkloadRef, measure: Measure, query: str) -> str:
    """Return the kubectl command that sets an annotation, so that a query verifies a workload's changes."""
    target = f"{workload.kind.lower()}/{workload.name}"
    annotation = shlex.quote(f"{ANNOTATIONS[measure]}={query}")
    return f"kubectl annotate -n {workload.namespace} {target} {annotation}"


def _own_pods(actions: Actions, change: Change, live: Json) -> list[Json]:
    """Return the workload's pods, found by their controllers."""
    path = f"/api/v1/namespaces/{change.namespace}/pods"
    pods = actions.client.list(path, labelSelector=selector_of_pods(live).query)
    return workload_pods(pods, change.ref, str((live.get("metadata") or {}).get("uid", "")))
