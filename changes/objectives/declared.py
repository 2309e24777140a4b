"""EDGE: reads the objectives that people have written for a workload: in autopilot policies, and as SLO objects.

An object in the workload's own namespace verifies its changes at once: whoever may write there may write the workload's
annotations too. One in another namespace is only proposed. Kinds that are not installed and missing rights become
notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.field_changes import pod_labels
from cotenant.changes.decide.in_place import workload_pods
from cotenant.changes.decide.regression_check import Compared, Measure, Objective
from cotenant.changes.objectives.belonging import (
    Ownership,
    Surroundings,
    misreading_reason,
    namespace_label,
    others_of,
    ownership,
)
from cotenant.changes.objectives.conventions import own_services
from cotenant.changes.objectives.policy_objectives import objectives_of_policies
from cotenant.changes.objectives.query_labels import Selector, put_labels, selectors_of
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.objectives.slo_objects import (
    OPENSLO,
    PYRRA,
    SLOTH,
    SloObject,
    openslo_objectives,
    pyrra_objectives,
    sloth_objectives,
)
from cotenant.changes.soak.own_series import NAMESPACE_LABELS, check_own

Json = Mapping[str, Any]
POLICIES: Final = "cotenant.dev/v1alpha1/autopilotpolicies"
KINDS: Final = {
    SLOTH: "sloth.slok.dev/v1/prometheusservicelevels",
    PYRRA: "pyrra.dev/v1alpha1/servicelevelobjectives",
    OPENSLO: "openslo.com/v1/slos",
}
"""API version and plural of each tool's SLO objects."""
MOST_DECLARED: Final = 20
"""Most objectives that one workload's changes are verified by: each is several queries, for which all others wait."""
INDICATORS: Final = "openslo.com/v1/slis"
SOURCES: Final = "openslo.com/v1/datasources"


@dataclass(frozen=True, slots=True)
class SloReading:
    """The SLO objects that were read, and notes about those that could not be."""

    objects: Sequence[SloObject] = ()
    gaps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """The objectives that people have written for a workload.

    `objectives`, at most `MOST_DECLARED`, can be queried; `slo_objects` are their SLO objects by the objective's name;
    `refused` says why objectives are not queried, and `gaps` what could not be read or assigned to the workload.
    """

    objectives: Sequence[Objective] = ()
    slo_objects: Mapping[str, SloObject] = field(default_factory=dict)
    refused: Sequence[Compared] = ()
    gaps: Sequence[str] = ()


def declared_objectives(client: KubeClient, live: Json, workload: WorkloadRef, everywhere: bool = False) -> Declared:
    """Return the objectives that people have written for the workload `live`; raise ClusterError if unreachable.

    If `everywhere`, read the SLO objects of all namespaces.
    """
    policies = _list_kind(client, POLICIES, workload.namespace)
    objectives_of_policies_, refused = objectives_of_policies(policies or (), live)
    reading = read_slo_objects(client, workload.namespace, everywhere)
    usable = [slo for slo in reading.objects if not slo.reason]
    surroundings = read_surroundings(client, live, workload) if usable else Surroundings(workload)
    bound: dict[str, tuple[SloObject, Objective]] = {}
    useless = [slo for slo in reading.objects if slo.reason and _is_near(slo, workload)]
    gaps = [*reading.gaps, *(f"{slo.title}: {slo.reason}" for slo in useless)]
    for slo in usable:
        try:
            objective = bind(slo, surroundings)
        except UsageError as error:
            gaps.append(f"{slo.title}: {error.message}")
            continue
        if objective is not None:
            bound[slo.title] = slo, objective
    own_first = sorted(bound.values(), key=lambda pair: not _is_near(pair[0], workload))
    objectives = (*objectives_of_policies_, *(objective for _, objective in own_first))
    if left_out := len(objectives[MOST_DECLARED:]) + len(refused[MOST_DECLARED:]):
        why = f"{left_out:,} further objectives are not read: at most {MOST_DECLARED} verify a workload; remove some"
        refused = [*refused[:MOST_DECLARED], Compared(Measure.ERRORS, None, None, why, "all objectives")]
    return Declared(objectives[:MOST_DECLARED], {title: slo for title, (slo, _) in bound.items()}, refused, gaps)


def _is_near(slo: SloObject, workload: WorkloadRef) -> bool:
    return slo.namespace == workload.namespace


def bind(slo: SloObject, surroundings: Surroundings) -> Objective | None:
    """Return the SLO object's objective, narrowed to the workload; None if it is another workload's.

    Raise UsageError with the reason if it may be the workload's but cannot be used.
    """
    workload = surroundings.workload

    def fill(text: str) -> str:
        return fill_variables(text, workload, HOUR_SECONDS)

    selectors = selectors_of(fill(slo.query))
    owner = ownership(selectors, surroundings, slo.namespace, slo.labels)
    if owner is Ownership.OTHER or (owner is Ownership.UNKNOWN and not _is_near(slo, workload)):
        return None
    if owner is Ownership.UNKNOWN:
        raise UsageError(f"{owner}: its query names no pods, workload, Service or app")
    if reason := next((reason for selector in selectors if (reason := misreading_reason(selector, workload))), ""):
        raise UsageError(reason)

    def labels_to_add(selector: Selector) -> str:
        is_named = any(selector.equal(label) == workload.namespace for label in NAMESPACE_LABELS)
        pods = ['pod=~"$pods"'] if owner is Ownership.BY_OBJECT else []
        return ",".join([*([] if is_named else [f'{namespace_label(selector)}="$namespace"']), *pods])

    query, exists = (put_labels(text, labels_to_add, fill) if text else "" for text in (slo.query, slo.exists))
    for text in filter(None, (query, exists)):
        check_own(fill(text), workload.namespace, "its query")
    ceiling = slo.most_bad_share if _is_near(slo, workload) else None  # an annotation has none
    return Objective(Measure.ERRORS, query, slo.title, ceiling, exists, needs_week=True)


def read_slo_objects(client: KubeClient, namespace: str, everywhere: bool = False) -> SloReading:
    """Return a namespace's SLO objects, or all if `everywhere` and permitted; an unusable object has a `reason`."""
    slo_objects: list[SloObject] = []
    absent: list[str] = []
    forbidden: list[str] = []
    gaps: list[str] = []
    for tool, kind in KINDS.items():
        try:
            bodies = _bodies(client, kind, namespace, everywhere)
        except ClusterAbsent:
            absent.append(tool)
            continue
        except ClusterForbidden:
            forbidden.append(tool)
            continue
        if tool == SLOTH:
            slo_objects += [slo for body in bodies for slo in sloth_objectives(body)]
        elif tool == PYRRA:
            slo_objects += [slo for body in bodies for slo in pyrra_objectives(body)]
        else:
            owned = [(str((body.get("metadata") or {}).get("namespace") or ""), body) for body in bodies]
            for owner in dict.fromkeys(name for name, _ in owned):
                indicators, sources = (_by_name(client, kind, owner, gaps) for kind in (INDICATORS, SOURCES))
                for body in (body for name, body in owned if name == owner):
                    slo_objects += openslo_objectives(body, indicators, sources)
    if forbidden:
        gaps.append(f"SLO objects of {', '.join(forbidden)} were not searched: the right to list them is missing")
    if absent:
        gaps.append(f"SLO objects of {', '.join(absent)} were not searched: their kinds are not installed")
    return SloReading(slo_objects, gaps)


def _by_name(client: KubeClient, kind: str, namespace: str, gaps: list[str]) -> Mapping[str, Json]:
    bodies = _list_kind(client, kind, namespace)
    if bodies is None:
        gaps.append(f"{kind.rpartition('/')[2]} of {OPENSLO} in {namespace} were not listed: not installed or no right")
    return {str((body.get("metadata") or {}).get("name") or ""): body for body in bodies or ()}


def _bodies(client: KubeClient, kind: str, namespace: str, everywhere: bool) -> list[Json]:
    """Return the objects of all namespaces, or of one if no more may be listed."""
    if everywhere:
        try:
            return list(client.list(_path(kind, "")))
        except ClusterForbidden:
            pass
    return list(client.list(_path(kind, namespace)))


def _list_kind(client: KubeClient, kind: str, namespace: str) -> list[Json] | None:
    """Return the objects of a namespace; None if their kind is not installed or may not be listed."""
    try:
        return list(client.list(_path(kind, namespace)))
    except (ClusterAbsent, ClusterForbidden):
        return None


def _path(kind: str, namespace: str) -> str:
    version, _, plural = kind.rpartition("/")
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def read_surroundings(client: KubeClient, live: Json, workload: WorkloadRef) -> Surroundings:
    """Return the workload with the other pods and the Services of its namespace, as far as they may be listed."""
    labels = pod_labels(live)
    surroundings = Surroundings(workload, labels)
    pods = _list_kind(client, "v1/pods", workload.namespace)
    services = _list_kind(client, "v1/services", workload.namespace)
    if pods is None:
        return surroundings
    own = {pod["metadata"]["name"] for pod in workload_pods(pods, workload, str(live["metadata"].get("uid", "")))}
    heads = [pod["metadata"] for pod in pods if pod["metadata"]["name"] not in own]
    others = others_of(((str(head.get("name")), head.get("labels") or {}) for head in heads), labels)
    surroundings = replace(surroundings, others=others)
    if services is None:
        return surroundings
    selectors = {str(service["metadata"]["name"]): (service.get("spec") or {}).get("selector") for service in services}
    alone = own_services(selectors, [head.get("labels") or {} for head in heads], labels)
    return replace(surroundings, services={name: name in alone for name in selectors})
