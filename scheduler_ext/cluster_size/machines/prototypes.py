"""Prototypes: what a new node of a machine type would be in a zone of this cluster, with its DaemonSets. Pure.

Existing nodes of the type override the list: their allocatable amounts (the smallest of each), labels and taints. A
type without nodes has the amounts of its line by the provider's rule, the labels of its line, those of the zone, the
operating system, and the custom labels and taints that all nodes share. A type without known amounts is left out and
named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.reasons import Reason
from cotenant.base.text import agree
from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.scheduler_ext.cluster_size.machines.kubelet import Machine, allocatable_of, provider_of
from cotenant.scheduler_ext.cluster_size.machines.shapes import MachineType
from cotenant.scheduler_ext.cluster_size.model import (
    ATTACHED,
    HOST_PORT,
    PODS,
    UNLIMITED,
    ZONE_LABEL,
    SizedCluster,
    SizedNode,
    SizedPod,
)
from cotenant.scheduler_ext.cluster_size.prices import SPOT, SPOT_LABELS, TYPE_LABELS, capacity_of, machine_of
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.stock_rules import refusals

HOSTNAME: Final = "kubernetes.io/hostname"
OPERATING_SYSTEM: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")
PROVIDER_DOMAINS: Final = (
    "kubernetes.io", "k8s.io", "k8s.aws", "amazonaws.com", "google.com", "azure.com", "karpenter.sh", "eksctl.io",
)  # fmt: skip
"""Suffixes of the domains of labels that a provider or Kubernetes sets: they differ by machine type."""
SPOT_TAINT: Final = ("cotenant.dev/spot", "", "NoSchedule")
"""A taint only in the model: it keeps workloads that run on no spot node now off new spot machines."""
_CONDITIONS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeleted", "DeletionCandidate")
DISK: Final = "ephemeral-storage"
_LENT: Final = frozenset(EXTENDED_RESOURCES.values())


@dataclass(frozen=True, slots=True)
class Prototype:
    """A possible new node: a machine type in one zone; `node` has no name yet, `daemons` are its DaemonSets' pods."""

    machine: MachineType
    zone: str
    node: SizedNode
    daemons: tuple[SizedPod, ...]

    @property
    def price_month(self) -> float:
        """Monthly price of one node of this machine type."""
        return self.machine.price_hour * HOURS_PER_MONTH

    def node_named(self, name: str) -> tuple[SizedNode, tuple[SizedPod, ...]]:
        """Return a node of this machine type and zone with the given name, and its DaemonSets' pods."""
        facts = replace(self.node.facts, name=name, labels={**self.node.facts.labels, HOSTNAME: name})
        pods = tuple(replace(pod, name=f"{pod.name}-{name}", node=name) for pod in self.daemons)
        return replace(self.node, facts=facts), pods


@dataclass(frozen=True, slots=True)
class Prototypes:
    """All possible new nodes, and sentences about the machine types that are left out."""

    found: tuple[Prototype, ...]
    left_out: tuple[str, ...] = ()


def prototypes_of(state: SizedCluster, types: Sequence[MachineType]) -> Prototypes:
    """Return a prototype for each machine type in each zone of the cluster where it is available."""
    workers = [
        node for node in state.nodes if not (node.stays is not None and node.stays.reason is Reason.CONTROL_PLANE_NODE)
    ]
    zones = sorted({node.zone for node in workers})
    names = {name for pod in state.pods for name in pod.requests}
    prototypes: list[Prototype] = []
    unknown: list[str] = []
    elsewhere: list[str] = []
    for machine in types:
        is_spot = machine.capacity_type == SPOT
        of_type = [node for node in workers if machine_of(node.facts.labels) == machine.name]
        own = [node for node in of_type if (capacity_of(node.facts.labels) == SPOT) == is_spot]
        amounts = _allocatable(machine, own, workers, names)
        if amounts is None:
            unknown.append(machine.title)
            continue
        usable = [zone for zone in zones if not machine.zones or zone in machine.zones]
        if not usable:
            elsewhere.append(machine.title)
        for zone in usable:
            node = _node(machine, zone, own, workers, amounts)
            prototypes.append(Prototype(machine, zone, node, tuple(_daemons(state, node, workers))))
    left_out = [
        *_left_out(unknown, "of unknown CPU and memory: no node has the type, and the list lacks amounts"),
        *_left_out(elsewhere, "in none of the cluster's zones"),
    ]
    return Prototypes(tuple(prototypes), tuple(left_out))


def _left_out(names: Sequence[str], why: str) -> list[str]:
    types = agree(len(names), "machine type is", "machine types are")
    return [f"{types} {why}: {', '.join(names)}"] if names else []


def _allocatable(
    machine: MachineType, own: Sequence[SizedNode], workers: Sequence[SizedNode], names: Iterable[str]
) -> dict[str, int] | None:
    """Return a new node's amounts: by its line, else by existing nodes of the type, else by the provider's rule."""
    shown = {n: min(node.allocatable.get(n, 0) for node in own) for n in own[0].allocatable} if own else {}
    shown = {name: amount for name, amount in shown.items() if name not in _LENT}
    provider = machine.provider or next((p for node in workers if (p := provider_of(node.facts.labels))), "")
    by_rule = None
    if machine.cpu is not None and machine.memory is not None and machine.pods is not None:
        by_rule = allocatable_of(provider, Machine(machine.cpu, machine.memory, machine.pods))
    cpu = machine.allocatable_cpu or shown.get("cpu") or (by_rule.cpu if by_rule else None)
    memory = machine.allocatable_memory or shown.get("memory") or (by_rule.memory if by_rule else None)
    pods = machine.pods or shown.get(PODS)
    if not cpu or not memory or not pods:
        return None
    # Host ports, and volumes that drivers attach: by nodes of the type, else the fewest of any node.
    counted = {name: 1 for name in names if name.startswith(HOST_PORT)}
    if not shown and workers:  # a disk belongs to a node's configuration, not to its machine type
        counted[DISK] = min(node.allocatable.get(DISK, 0) for node in workers)
    for name in names:
        if name.startswith(ATTACHED):
            counted[name] = shown.get(name) or min(
                (n.allocatable.get(name, UNLIMITED) for n in workers), default=UNLIMITED
            )
    return {**shown, **counted, **machine.resources, "cpu": cpu, "memory": memory, PODS: pods}


def _node(
    machine: MachineType, zone: str, own: Sequence[SizedNode], workers: Sequence[SizedNode], amounts: Mapping[str, int]
) -> SizedNode:
    labels = _common_labels(own or workers)
    if not own:  # the operating system and the operator's own labels, as far as all nodes share them
        shared = {key for key in labels if not key.partition("/")[0].endswith(PROVIDER_DOMAINS)}
        labels = {key: value for key, value in labels.items() if key in shared or key in OPERATING_SYSTEM}
    in_zone = [node for node in workers if node.zone == zone]
    labels = {key: value for key, value in labels.items() if not _is_place(key) and key != HOSTNAME}
    labels |= {key: value for key, value in _common_labels(in_zone).items() if _is_place(key)}
    labels |= {TYPE_LABELS[0]: machine.name, **({ZONE_LABEL: zone} if zone else {})}
    if machine.capacity_type == SPOT:
        labels |= {k: v for k, v in SPOT_LABELS.items() if any(node.facts.labels.get(k) == v for node in workers)}
    labels |= machine.labels
    # Taints that all of these nodes have; those of conditions are none of a new node.
    first, *others = [node.facts.taints for node in own or workers] or [()]
    common = (t for t in first if all(t in taints for taints in others) and not t[0].startswith(_CONDITIONS))
    taints = (*common, *machine.taints)
    if machine.capacity_type == SPOT:
        taints = (*taints, SPOT_TAINT)
    return SizedNode(ExtenderNode("", allocatable=amounts, labels=labels, taints=tuple(dict.fromkeys(taints))), amounts)


def _is_place(key: str) -> bool:
    return "zone" in key or "region" in key


def _common_labels(nodes: Sequence[SizedNode]) -> dict[str, str]:
    """Return the labels that all of these nodes have with the same value."""
    first, *others = [node.facts.labels for node in nodes] or [{}]
    return {key: value for key, value in first.items() if all(labels.get(key) == value for labels in others)}


def _daemons(state: SizedCluster, node: SizedNode, workers: Sequence[SizedNode]) -> Iterable[SizedPod]:
    """Return a pod of each DaemonSet that would run on a node, and the largest static pods of any node."""
    static: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    sets: dict[str, list[SizedPod]] = defaultdict(list)
    names = {worker.name for worker in workers}
    for pod in state.pods:
        kind = pod.owner.split("/")[1] if pod.owner.count("/") >= 2 else ""
        if not pod.goes_with_node or pod.node not in names:
            continue
        if kind == "DaemonSet":
            sets[pod.owner].append(pod)
        elif kind in ("Node", "Pod"):
            for name, amount in {**pod.requests, PODS: 1}.items():
                static[pod.node][name] += amount
    for owner, pods in sorted(sets.items()):
        daemon_pod = _daemon(pods)
        if not refusals(msgspec.json.decode(daemon_pod.rules.static), [node.facts]):
            yield replace(daemon_pod, owner=owner)
    if static:
        largest: dict[str, int] = {}
        for amounts in static.values():
            for name, amount in amounts.items():
                largest[name] = max(largest.get(name, 0), amount)
        for number in range(largest.pop(PODS)):  # the first has the amounts of all, and each counts as a pod
            requests = largest if number == 0 else {}
            yield SizedPod("kube-system", f"static-{number}", "", requests, goes_with_node=True)


def _daemon(pods: Sequence[SizedPod]) -> SizedPod:
    """Return a DaemonSet's pod for any node: the largest requests, without the field that names a node.

    The DaemonSet controller adds that field, the node's name, to every term.
    """
    requests: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            requests[name] = max(requests.get(name, 0), amount)
    first = pods[0]
    static = msgspec.json.decode(first.rules.static)
    affinity = ((static.pop("affinity", None) or {}).get("nodeAffinity") or {}).items()
    kept_terms: dict[str, Any] = {}
    for key, required in affinity:
        terms = required.get("nodeSelectorTerms") or ()
        terms = [{k: v for k, v in term.items() if k != "matchFields"} for term in terms]
        if any(term.get("matchExpressions") for term in terms):
            kept_terms[key] = {"nodeSelectorTerms": terms}
    static |= {"affinity": {"nodeAffinity": kept_terms}} if kept_terms else {}
    rules = replace(first.rules, static=msgspec.json.encode(static, order="deterministic"))
    name = first.owner.rpartition("/")[2]
    return replace(first, name=name, node="", requests=requests, rules=rules, later={})
