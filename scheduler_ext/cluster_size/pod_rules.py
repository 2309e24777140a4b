"""Read a pod's scheduling rules from the API's JSON; a rule that is not modelled makes the pod immovable. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.models.metadata import ObjectOwner
from cotenant.base.kubernetes.models.pod import SizedPodSpec, SizedPodWire
from cotenant.base.kubernetes.moments import duration_seconds
from cotenant.base.kubernetes.owners import DEPLOYMENT_CONFIG_LABEL, TEMPLATE_HASH_LABEL, workload_by_name
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import pod_resources
from cotenant.base.kubernetes.protocol import (
    EXTENDED_RESOURCES,
    MIRROR_ANNOTATION,
    REQUIRED_TERMS,
    RESERVATION_AFFINITY_ANNOTATION,
)
from cotenant.base.kubernetes.qos import priority_of, qos_of, with_default
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.cluster_size.autoscalers.model import PodMarks
from cotenant.scheduler_ext.cluster_size.autoscalers.obstacles import (
    DO_NOT_DISRUPT,
    FORBIDS_EVICTION,
    SAFE_VOLUMES,
    forbidding_annotation,
)
from cotenant.scheduler_ext.cluster_size.demand import Proposals, proposed_spec
from cotenant.scheduler_ext.cluster_size.model import (
    ATTACHED,
    HOST_PORT,
    AffinityTerm,
    PodRules,
    RequestLevel,
    SizedPod,
    SpreadRule,
    Stay,
)
from cotenant.scheduler_ext.rebalance.load import BudgetIndex, DisruptionBudget
from cotenant.scheduler_ext.volumes.bound_volumes import ClaimedVolumes, affinities_of, claim_of

Json = dict[str, Any]
STOCK_SCHEDULER: Final = "default-scheduler"
HARMLESS_VOLUMES: Final = frozenset(
    {"configMap", "secret", "downwardAPI", "projected", "csi", "nfs", "image", "emptyDir", "gitRepo", "cephfs"}
)
"""Kinds of volumes that do not bind a pod to a node."""
_READ_BY_AUTOSCALERS: Final = frozenset({*FORBIDS_EVICTION, SAFE_VOLUMES})
_LENT: Final = frozenset(EXTENDED_RESOURCES.values())


@dataclass(frozen=True)
class ClusterObjects:
    """The objects that pods' rules refer to; `volumes` are by (namespace, claim), None for an unbound claim.

    Each collection is None if it could not be read.
    """

    budgets: Sequence[DisruptionBudget] | None = ()
    volumes: ClaimedVolumes | None = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] | None = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] | None = field(default_factory=dict)
    now_seconds: float = 0.0  # Unix time at which they were read

    @cached_property
    def budget_index(self) -> BudgetIndex:
        """Finds the budgets of a pod by its labels."""
        return BudgetIndex(self.budgets or ())


class NotModelledError(Exception):
    """Raised for a scheduling rule that the computation does not model; the message names the rule."""


def sized_pod(wire: SizedPodWire, objects: ClusterObjects, proposals: Proposals = MappingProxyType({})) -> SizedPod:
    """Return a pod with its rules, present requests and `proposals`; raise QuantityError for an unreadable amount."""
    meta, spec, labels = wire.metadata, wire.spec, wire.metadata.labels or {}
    owner = next((owner for owner in meta.owner_references or () if owner.controller), None)
    what = f"pod {meta.namespace}/{meta.name}"
    requests = counted_requests(pod_resources(spec, wire.status, what))
    rules, broken, counted = PodRules(), "", dict[str, int]()
    try:
        volumes, attached = _volumes(wire, objects)
        counted = _host_ports(spec) | attached
        requests = requests | counted
        rules = rules_of(spec, meta.namespace, labels, volumes, objects)
        # What another scheduler, or a plugin that is not in the stock one, decides.
        if spec.scheduler_name not in ("", STOCK_SCHEDULER):
            raise NotModelledError(f"scheduler {spec.scheduler_name}")
        if spec.resource_claims:
            raise NotModelledError("ResourceClaims (dynamic resource allocation)")
        if RESERVATION_AFFINITY_ANNOTATION in (meta.annotations or {}):
            raise NotModelledError("affinity to Reservations")
        if objects.budgets is None:
            raise NotModelledError("disruption budgets, because they could not be read")
    except NotModelledError as error:
        broken = str(error)
    except UsageError as error:
        broken = error.message
    static = owner is not None and owner.kind in ("DaemonSet", "Node")
    goes = static or MIRROR_ANNOTATION in (meta.annotations or {}) or meta.deletion_timestamp is not None
    stays = None if goes else _stay_of(wire, objects, owner is not None, broken, requests)
    # A pod is batch work if it requests lent capacity, or its class runs on that; without either it is a service.
    batch = not goes and (
        bool(_lent_names(requests)) or with_default(qos_of(labels), priority_of(labels, spec.priority)).is_reclaimer
    )
    return SizedPod(
        namespace=meta.namespace,
        name=meta.name,
        node=spec.node_name,
        requests=requests,
        rules=rules,
        labels=labels,
        owner=f"{meta.namespace}/{owner.kind}/{owner.name}" if owner else f"{meta.namespace}/Pod/{meta.name}",
        priority=spec.priority or 0,
        goes_with_node=goes,
        stays=stays,
        ending=meta.deletion_timestamp is not None,
        unmodelled=broken,
        batch=batch,
        marks=_marks(wire, objects, owner),
        temporary_storage=any("emptyDir" in volume for volume in spec.volumes or ()),
        later=_later_requests(wire, owner, proposals, counted) if proposals and owner else {},
    )


def _later_requests(
    wire: SizedPodWire, owner: ObjectOwner, proposals: Proposals, counted: Mapping[str, int]
) -> dict[RequestLevel, dict[str, int]]:
    """Return the requests at levels that change a container of the pod; `counted` is counted beside the requests."""
    meta, spec, labels = wire.metadata, wire.spec, wire.metadata.labels or {}
    direct = WorkloadRef(meta.namespace, owner.kind, owner.name)
    workload = workload_by_name(direct, labels.get(TEMPLATE_HASH_LABEL, ""), labels.get(DEPLOYMENT_CONFIG_LABEL, ""))
    names = [container.name for container in (*(spec.containers or ()), *(spec.init_containers or ()))]
    levels_of = {name: proposals[ref] for name in names if (ref := ContainerRef(workload, name)) in proposals}
    later = {}
    for level in (RequestLevel.READY, RequestLevel.ALL_STEPS):
        amounts = {name: levels[level] for name, levels in levels_of.items() if levels.get(level)}
        if amounts:
            what = f"pod {meta.namespace}/{meta.name}"
            changed = counted_requests(pod_resources(proposed_spec(spec, amounts), None, what))
            later[level] = {**changed, **counted}
    return later


def _marks(wire: SizedPodWire, objects: ClusterObjects, owner: ObjectOwner | None) -> PodMarks:
    in_force = _annotations_in_force(wire, objects.now_seconds)
    annotations = {key: text for key, text in in_force.items() if key in _READ_BY_AUTOSCALERS}
    local = []
    for volume in wire.spec.volumes or ():  # cluster-autoscaler does not count an emptyDir in memory as local
        in_memory = "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") == "Memory"
        if "hostPath" in volume or ("emptyDir" in volume and not in_memory):
            local.append(str(volume.get("name", "")))
    own = None if objects.budgets is None else tuple((b.name, b.allowed) for b in _own_budgets(wire, objects))
    return PodMarks(annotations, owner.kind if owner else "", tuple(local), own)


def _annotations_in_force(wire: SizedPodWire, now_seconds: float) -> Mapping[str, str]:
    """Return a pod's annotations without a `do-not-disrupt` whose duration since the pod's creation is over."""
    meta = wire.metadata
    text = (meta.annotations or {}).get(DO_NOT_DISRUPT)
    seconds = duration_seconds(text)
    if (
        seconds is None
        or meta.creation_timestamp is None
        or meta.creation_timestamp.timestamp() + seconds > now_seconds
    ):
        return meta.annotations or {}
    return {key: value for key, value in (meta.annotations or {}).items() if key != DO_NOT_DISRUPT}


def _own_budgets(wire: SizedPodWire, objects: ClusterObjects) -> list[DisruptionBudget]:
    numbers = objects.budget_index.of(wire.metadata.namespace, wire.metadata.labels or {})
    return [objects.budgets[number] for number in numbers] if objects.budgets else []


def _stay_of(
    wire: SizedPodWire, objects: ClusterObjects, controlled: bool, broken: str, requests: Mapping[str, int]
) -> Stay | None:
    """Return the first reason why the pod cannot leave its node; None if it can."""
    name = f"{wire.metadata.namespace}/{wire.metadata.name}"
    if not controlled:
        reason, sentence = Reason.NO_CONTROLLER, f"{name} has no controller that would create it again"
    elif forbidding := forbidding_annotation(_annotations_in_force(wire, objects.now_seconds)):
        reason, sentence = Reason.EVICTION_FORBIDDEN, f"{name} has the annotation {forbidding[0]}={forbidding[1]}"
    elif local := _local_storage(wire, objects):
        reason, sentence = Reason.LOCAL_STORAGE, f"{name} keeps data on its node: {local}"
    elif lent := _lent_names(requests):
        reason, sentence = Reason.BATCH_WORK, f"{name} requests {lent[0]}"
    elif broken:
        reason, sentence = Reason.RULE_NOT_MODELLED, f"{name} has a rule that is not modelled: {broken}"
    elif len(own := _own_budgets(wire, objects)) > 1:
        names = " and ".join(sorted(budget.name for budget in own)[:2])
        reason, sentence = (
            Reason.TWO_BUDGETS,
            f"{name} has two disruption budgets, so that it cannot be evicted: {names}",
        )
    elif own and own[0].allowed <= 0:
        reason, sentence = Reason.DISRUPTION_BUDGET, f"{name}: budget {own[0].name} allows no eviction now"
    else:
        return None
    return Stay(reason, sentence, name)


def _lent_names(requests: Mapping[str, int]) -> list[str]:
    return sorted(_LENT & {resource for resource, amount in requests.items() if amount})


def _local_storage(wire: SizedPodWire, objects: ClusterObjects) -> str:
    for volume in wire.spec.volumes or ():
        if "hostPath" in volume:
            return f"hostPath {(volume['hostPath'] or {}).get('path', '')}"
        claim = claim_of(volume)
        bound = (objects.volumes or {}).get((wire.metadata.namespace, claim)) if claim else None
        if bound and bound.local:
            return f"the local volume of claim {claim}"
    return ""


def _volumes(wire: SizedPodWire, objects: ClusterObjects) -> tuple[tuple[bytes, ...], dict[str, int]]:
    """Return the node affinities of the pod's volumes, and how many volumes each CSI driver attaches."""
    claims, attached = [], dict[str, int]()
    for volume in wire.spec.volumes or ():
        claim = claim_of(volume)
        if claim is None:
            kinds = set(volume) - {"name"} - HARMLESS_VOLUMES - {"hostPath"}
            if kinds:
                raise NotModelledError(f"volumes of kind {min(kinds)}")
        else:
            claims.append(claim)
    if claims and (objects.volumes is None or objects.attach_limits is None):
        raise NotModelledError("volume claims, because volumes or CSINodes could not be read")
    volumes = objects.volumes or {}
    affinities = affinities_of(claims, wire.metadata.namespace, volumes)
    if affinities is None:
        raise NotModelledError("volume claims that are not bound")
    for bound in (volumes[wire.metadata.namespace, claim] for claim in claims):
        if bound is not None and bound.driver:
            attached[ATTACHED + bound.driver] = attached.get(ATTACHED + bound.driver, 0) + 1
    return affinities, attached


def _host_ports(spec: SizedPodSpec) -> dict[str, int]:
    """Return 1 for each host port; host addresses are not distinguished, which only refuses more."""
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    containers = [*(spec.containers or ()), *sidecars]
    ports = (port for container in containers for port in container.ports or () if port.host_port)
    return {f"{HOST_PORT}{port.protocol}/{port.host_port}": 1 for port in ports}


def rules_of(
    spec: SizedPodSpec, namespace: str, labels: Mapping[str, str], volumes: tuple[bytes, ...], objects: ClusterObjects
) -> PodRules:
    """Return a pod's scheduling rules; raise NotModelledError for an unmodelled one, UsageError for a bad selector."""
    affinity = spec.affinity or {}
    static: Json = {"nodeSelector": spec.node_selector or {}, "tolerations": spec.tolerations or []}
    if node_affinity := (affinity.get("nodeAffinity") or {}).get(REQUIRED_TERMS):
        static["affinity"] = {"nodeAffinity": {REQUIRED_TERMS: node_affinity}}
    terms = {kind: (affinity.get(kind) or {}).get(REQUIRED_TERMS) or () for kind in ("podAffinity", "podAntiAffinity")}
    spread = [c for c in spec.topology_spread_constraints or () if c.get("whenUnsatisfiable") != "ScheduleAnyway"]
    return PodRules(
        static=msgspec.json.encode(static, order="deterministic"),
        volumes=volumes,
        affinity=tuple(_term(term, namespace, objects) for term in terms["podAffinity"]),
        anti_affinity=tuple(_term(term, namespace, objects) for term in terms["podAntiAffinity"]),
        spread=tuple(_spread(constraint, labels) for constraint in spread),
    )


def _term(term: Mapping[str, Any], namespace: str, objects: ClusterObjects) -> AffinityTerm:
    """Return a term with its namespaces resolved: those named and selected, or else the pod's own."""
    selector, names = term.get("namespaceSelector"), frozenset(term.get("namespaces") or ())
    chosen: frozenset[str] | None = names
    if selector is not None:
        by_label = LabelSelector.parse(selector, "namespaceSelector")
        if by_label.requirements == ():
            chosen = None
        elif objects.namespaces is None:
            raise NotModelledError("selectors of namespaces, because namespaces could not be read")
        else:
            chosen = names | {name for name, labels in objects.namespaces.items() if by_label.matches(labels)}
    elif not names:
        chosen = frozenset((namespace,))
    return AffinityTerm(LabelSelector.parse(term.get("labelSelector")), str(term.get("topologyKey", "")), chosen)


def _spread(constraint: Mapping[str, Any], labels: Mapping[str, str]) -> SpreadRule:
    selector = LabelSelector.parse(constraint.get("labelSelector"))
    keys = {key: labels[key] for key in constraint.get("matchLabelKeys") or () if key in labels}
    if keys and selector.requirements is not None:
        more = LabelSelector.parse({"matchLabels": keys}).requirements or ()
        selector = LabelSelector(
            (*selector.requirements, *(requirement for requirement in more if requirement not in selector.requirements))
        )
    return SpreadRule(
        selector=selector,
        topology_key=str(constraint.get("topologyKey", "")),
        max_skew=int(constraint.get("maxSkew", 1)),
        min_domains=int(constraint.get("minDomains") or 1),
        by_affinity=constraint.get("nodeAffinityPolicy") != "Ignore",
        by_taints=constraint.get("nodeTaintsPolicy") == "Honor",
    )
