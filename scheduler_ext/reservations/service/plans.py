"""EDGE: lists, previews, creates, approves and rejects reservation plans.

A writing function only returns the write; the caller shows it, sends it as a dry run, or sends it. Approvals are
applied under a field manager of their own, so that they never conflict with fields of the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import ClusterAbsent, ClusterForbidden, CotenantError, NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE, decoder_of
from cotenant.base.kube import KubeClient
from cotenant.base.kube.watch import read_each
from cotenant.base.kubernetes.intent import DNS_NAME, Address, Apply, Create
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire, PodPlace
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.observed import ObservedNode, ObservedPod, node_of, pod_of
from cotenant.base.kubernetes.pod_identity import object_of
from cotenant.base.kubernetes.pod_request import format_quantities, parse_quantities, sum_amounts
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, OWN_GROUP
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.resource import Resource
from cotenant.base.settings.base import SettingSections
from cotenant.recommender.settings import RecommenderSettings
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    KIND,
    PLURAL,
    Approval,
    Plan,
    PlanDecision,
    PlanOwner,
    Recurrence,
    Span,
    WindowSource,
    duration,
)
from cotenant.scheduler_ext.reservations.model.plan_service import PlanListing, Preview, UnreadablePlan
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan, span_body
from cotenant.scheduler_ext.reservations.model.reservation import AllocatePolicy
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.plans.guards import GAIN, Situation, check_guards
from cotenant.scheduler_ext.reservations.plans.preview import FreeNode, PreviewContext, forecast_free_capacity, preview
from cotenant.scheduler_ext.reservations.plans.realise import OwnerTemplate, amounts_per_pod, owner_of, size_note

FIELD_MANAGER: Final = "cotenant-approver"
_BATCH_CPU: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.CPU]


def plans(client: KubeClient, namespaces: Sequence[str] = ()) -> PlanListing:
    """Return the plans of these namespaces, or of all if none is given; invalid plans are listed with their errors."""
    root = f"/apis/{OWN_GROUP}"
    paths = [f"{root}/namespaces/{n}/{PLURAL}" for n in namespaces] or [f"{root}/{PLURAL}"]
    readable: dict[tuple[str, str], Plan] = {}
    refused: dict[tuple[str, str], str] = {}
    for path in paths:
        read, unread = read_each(client, path, dict[str, Any], _scheduled_plan)
        readable |= read
        refused |= unread
    unreadable = []
    for key, text in sorted(refused.items()):
        name = "/".join(key)
        unreadable.append(UnreadablePlan(*key, text if name in text else f"reservationplan {name}: {text}"))
    return PlanListing(tuple(readable[key] for key in sorted(readable)), tuple(unreadable))


def _scheduled_plan(body: Mapping[str, Any]) -> Plan:
    """Parse a plan; CotenantError also if its schedule names no time, which the API server's schema cannot reject."""
    plan = parse_plan(body)
    if plan.recurring is not None:
        schedule.check(plan.recurring)
    return plan


def plan(client: KubeClient, namespace: str, name: str) -> Plan:
    """Return one plan; raise NoData if it does not exist."""
    # What no object can be called is not put into an address, where `..` would lead to another one.
    is_name = DNS_NAME.fullmatch(namespace) and DNS_NAME.fullmatch(name)
    body = client.get(f"/apis/{OWN_GROUP}/namespaces/{namespace}/{PLURAL}/{name}") if is_name else None
    if body is None:
        raise NoData(f"reservation plan {namespace}/{name} does not exist", fix="See `cotenant reservations list`.")
    return parse_plan(body)


def decide_plan(plan: Plan, approval: Approval, standby: int | None = None) -> Apply:
    """Return the write that approves or rejects a plan; UsageError for an approval in phase MISSED.

    The API server refuses the write if the plan has changed since it was read. `standby` is the number of standby pods
    to approve; None keeps the plan's number. That number is written with every decision, because server-side apply
    removes a field that its owner no longer sends.
    """
    if approval.decision is PlanDecision.APPROVED and plan.status.phase is PlanPhase.MISSED:
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} missed its last occurrence, and its next is not proposed yet",
            fix="Try again in a minute.",
        )
    decision = {
        "decision": approval.decision.value,
        "scope": approval.scope.value,
        "by": approval.by,
        "at": moment(approval.at_seconds),
    }
    spec: dict[str, Any] = {"approval": {**decision, **({"reason": approval.reason} if approval.reason else {})}}
    if standby is not None or plan.standby:
        spec["amount"] = {"standby": plan.standby if standby is None else standby}
    address = Address(OWN_GROUP, PLURAL, plan.name, plan.namespace)
    same = {"uid": plan.uid} if plan.uid else {}  # a plan that was deleted meanwhile is not made anew
    same |= {"resourceVersion": plan.version} if plan.version else {}
    body = address.manifest(KIND, same, spec=spec)
    return Apply(address, body, why=f"{approval.decision.value} by {approval.by}")


def plan_creation(client: KubeClient, requested: Plan) -> Create:
    """Return the creation of a plan; without an explicit size its pods have the requests of the workload's template.

    Raise UsageError if the schedule is invalid, and NoData if the workload does not exist.
    """
    if requested.recurring:
        schedule.check(requested.recurring)
    size = dict(requested.per_pod_text) or size_of(client, requested)
    standby = {"standby": requested.standby} if requested.standby else {}
    spec: dict[str, Any] = {
        "source": requested.source.value,
        "owner": {
            "apiVersion": requested.owner.api_version,
            "kind": requested.owner.kind,
            "name": requested.owner.name,
        },
        "amount": {"perPod": size, "count": requested.count, **standby},
        "realisation": requested.realisation.value,
        "lead": duration(requested.lead_seconds),
    }
    if requested.recurring:
        spec["recurring"] = {
            "schedule": requested.recurring.schedule,
            "timeZone": requested.recurring.zone,
            "duration": duration(requested.recurring.duration_seconds),
        }
    elif requested.window:
        spec["window"] = span_body(requested.window)
    # Fields that differ from what the definition says of itself.
    spec |= {} if requested.ttl_seconds is None else {"ttl": duration(requested.ttl_seconds)}
    spec |= {} if requested.allocate_once else {"allocateOnce": False}
    if requested.allocate_policy is AllocatePolicy.RESTRICTED:
        spec["allocatePolicy"] = requested.allocate_policy.value
    address = Address(OWN_GROUP, PLURAL, requested.name, requested.namespace)
    return Create(address, address.manifest(KIND, spec=spec), why="requested")


def size_of(client: KubeClient, requested: Plan) -> dict[str, str]:
    """Return the CPU and memory that a pod of the workload requests; NoData without it, UsageError without requests."""
    owner, namespace = requested.owner, requested.namespace
    path = _owner_path(requested)
    workload = client.get(path) if path else None
    if workload is None:
        raise NoData(f"there is no {owner.kind} {namespace}/{owner.name}", fix="Name a workload that exists.")
    template = dict(((workload.get("spec") or {}).get("template") or {}).get("spec") or {})
    template.pop("overhead", None)  # it is added to what is reserved for a pod
    requests = {
        n: a for n, a in requests_of(template, str(requested.owner.name)).items() if n in ("cpu", "memory") and a
    }
    if not requests:
        raise UsageError(
            f"pods of {namespace}/{owner.name} request no CPU or memory, so there is no capacity to reserve",
            fix="Set CPU or memory requests in the workload's pod template.",
        )
    return format_quantities(requests)


def new_plan(workload: WorkloadRef, name: str, count: int, when: Recurrence | Span) -> Plan:
    """Return a plan that reserves capacity for `count` pods of a workload, by schedule or for one window."""
    recurring, window = (when, None) if isinstance(when, Recurrence) else (None, when)
    source = WindowSource.RECURRING if recurring else WindowSource.MANUAL
    owner = PlanOwner(workload.kind, workload.name)
    return Plan(workload.namespace, name, source, owner, {}, count, recurring=recurring, window=window)


Ahead: TypeAlias = Callable[[float], Mapping[str, Mapping[str, int]]]
"""Forecast usage at a Unix time: node -> resource -> amount in the resource's unit; nodes without one are absent."""


def nothing_ahead(_at_seconds: float) -> Mapping[str, Mapping[str, int]]:
    """Return an empty usage forecast, for a preview that knows no node's future usage."""
    return {}


def preview_plan(
    client: KubeClient, plan: Plan, now_seconds: float, settings: SettingSections, ahead: Ahead = nothing_ahead
) -> Preview:
    """Return what approving a plan would do now, with its guards; raise NoData if the plan has no future window.

    The guard on the forecast's skill is left out, because only the pipeline knows it; the plan's conditions show it.
    """
    window = plan.status.window or plan.window
    if window is None and plan.recurring:
        window = next(schedule.occurrences(plan.recurring, now_seconds), None)
    if window is None:
        raise NoData(f"plan {plan.namespace}/{plan.name} has no future window to preview")
    try:
        owner_and_pods = read_owner(client, plan)
    except ClusterForbidden as error:
        note = f"The preview leaves out the overhead of the pods' RuntimeClass: {error.message}."
    else:
        owner = owner_and_pods[0] if owner_and_pods else None
        note = size_note(plan, owner)
        plan = replace(plan, per_pod=amounts_per_pod(plan, owner))
    nodes = list(read_each(client, "/api/v1/nodes", NodeWire, node_of)[0].values())
    used = ahead(max(window.start_seconds, now_seconds))
    place = PreviewContext(
        _node_capacities(client, nodes, used),
        quota_left(client, plan.namespace),
        settings.section(RecommenderSettings).prices.per_core_hour,
    )
    listed = plans(client)
    others = [p for p in listed.plans if p.key != plan.key]
    situation = Situation(
        WindowSource.MANUAL,
        wanted={name: amount * plan.count for name, amount in plan.per_pod.items()},
        reserved=sum_amounts({n: a * p.reserved_pods for n, a in p.per_pod.items()} for p in others),
        allocatable=sum_amounts(node.allocatable for node in nodes),
        quota_left=place.quota_left,
    )
    verdicts = tuple(
        verdict for verdict in check_guards(situation, settings.section(PlanSettings)) if verdict.guard != GAIN
    )
    answer = preview(plan, window, place, verdicts)
    return msgspec.structs.replace(answer, notes=(*answer.notes, *filter(None, (listed.note, note))))


def _node_capacities(
    client: KubeClient, nodes: Sequence[ObservedNode], used: Mapping[str, Mapping[str, int]]
) -> list[FreeNode]:  # fmt: skip
    """Return the nodes' unrequested capacity now, and at the window by the forecast usage `used`.

    A node is left out if one of its pods cannot be read.
    """

    def read_pod(raw: msgspec.Raw) -> ObservedPod | str:
        try:
            return pod_of(decoder_of(ObservedPodWire).decode(raw))
        except (CotenantError, *UNDECODABLE):
            place: PodPlace = decoder_of(PodPlace).decode(raw)
            return place.spec.node_name

    taken: dict[str, dict[str, int]] = {}
    unknown = {""}
    for pod in read_each(client, "/api/v1/pods", msgspec.Raw, read_pod)[0].values():
        if isinstance(pod, str):
            unknown.add(pod)
        elif pod.node and pod.active:
            of_node = taken.setdefault(pod.node, {})
            for name, amount in {**pod.requests, "pods": 1}.items():
                of_node[name] = of_node.get(name, 0) + amount
    rooms = []
    for node in (node for node in nodes if node.name not in unknown):
        requested = taken.get(node.name, {})
        free = {n: amount - requested.get(n, 0) for n, amount in node.allocatable.items()}
        then = forecast_free_capacity(free, node.allocatable, used[node.name]) if node.name in used else None
        rooms.append(FreeNode(node.name, free, requested.get(_BATCH_CPU, 0), not node.unschedulable, then))
    return rooms


def quota_left(client: KubeClient, namespace: str) -> dict[str, int]:
    """Return how much cpu and memory pods may still request under the tightest ResourceQuota of the namespace.

    Quotas with scopes are left to the API server, because a plan does not tell which of them limit its pods.
    """
    remaining: dict[str, int] = {}
    try:
        quotas = list(client.list(f"/api/v1/namespaces/{namespace}/resourcequotas", dict[str, Any]))
    except ClusterAbsent:  # a server without the kind bounds nothing by it
        return remaining
    for quota in quotas:
        if (spec := quota.get("spec") or {}).get("scopes") or spec.get("scopeSelector"):
            continue
        status = quota.get("status") or {}
        hard, used = (_requests(status.get(part) or {}) for part in ("hard", "used"))
        for name, amount in hard.items():
            remaining[name] = min(remaining.get(name, amount), amount - used.get(name, 0))
    return remaining


def _requests(quota_amounts: dict[str, Any]) -> dict[str, int]:
    """Return the CPU and memory of a quota's map, whose keys may have the prefix `requests.`."""
    by_resource = {name.removeprefix("requests."): text for name, text in quota_amounts.items()}
    return parse_quantities(
        {name: text for name, text in by_resource.items() if name in ("cpu", "memory")}, "ResourceQuota"
    )


Json = dict[str, Any]


def _owner_path(plan: Plan) -> str:
    """Return the API path of a plan's workload; "" for a name that no object can have."""
    owner = plan.owner
    parts = (*owner.api_version.split("/"), "namespaces", plan.namespace, f"{owner.kind.lower()}s", owner.name)
    # Kubernetes takes none of these as a segment of a path. The API server resolves an escaped "/" before it checks
    # rights: a name such as "a/../../x" asks for another resource, and its 403 would be taken for a missing right.
    if any(part in {"", ".", ".."} or {"/", "%"} & set(part) for part in parts):
        return ""
    return "/".join(["/apis", *(quote(part, safe="") for part in parts)])


def read_owner(client: KubeClient, plan: Plan) -> tuple[OwnerTemplate, list[Json]] | None:
    """Return a plan's workload and its pods, or None if it does not exist; UsageError for an invalid pod template."""
    owner, path = plan.owner, _owner_path(plan)
    body = client.get(path) if path else None
    if body is None:
        return None
    what = f"{owner.kind} {plan.namespace}/{owner.name}: spec"
    spec = object_of(body.get("spec"), what)
    template, selector = (object_of(spec.get(part), f"{what}.{part}") for part in ("template", "selector"))
    object_of(template.get("spec"), f"{what}.template.spec")
    path, query = f"/api/v1/namespaces/{plan.namespace}/pods", LabelSelector.parse(selector, f"{what}.selector").query
    pods = list(client.list(path, dict[str, Any], labelSelector=query)) if query else []
    return owner_of(template, selector, pods), pods
