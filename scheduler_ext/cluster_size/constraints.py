"""A cluster as arrays: amounts by node, and for each class of pods the nodes and counters of its rules. Pure.

Pods with equal demands are one class. A rule between pods reads a counter: the pods by node that a selector selects, or
that have a term of anti-affinity. A rule sums a counter by topology domain (`DomainCount`), so that checking a pod's
rules takes a few look-ups, however many pods there are.

Source of the rules: NodeResourcesFit, NodePorts, NodeAffinity, TaintToleration, VolumeBinding (bound volumes),
PodTopologySpread and InterPodAffinity of kube-scheduler 1.35.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from cotenant.base.kubernetes.quantity import LARGEST
from cotenant.base.kubernetes.selector import LabelSelector, Operator
from cotenant.scheduler_ext.arrays import Flags, Floats, Ints, Rows
from cotenant.scheduler_ext.cluster_size.model import PODS, ZONE_LABEL, AffinityTerm, SizedCluster, SizedNode, SizedPod
from cotenant.scheduler_ext.extender.stock_rules import refusals
from cotenant.scheduler_ext.volumes.bound_volumes import can_use

_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)
SCORED: Final = ("cpu", "memory")  # resources by which kube-scheduler's default scores compare nodes


class CounterKey(NamedTuple):
    """The pods that one counter counts: those that `selector` selects in `namespaces`, None for all namespaces.

    With `holders` (a topology key), it counts the pods that have an anti-affinity term with this selector and key
    instead. `staying` leaves out pods that are being deleted: kube-scheduler's topology spread ignores them, its pod
    affinity does not.
    """

    namespaces: frozenset[str] | None
    selector: LabelSelector
    holders: str = ""
    staying: bool = False


@dataclass(frozen=True, slots=True)
class DomainCount:
    """The pods of a counter, by node label value; `counter` and `eligible` (a node mask, -1: all nodes) are indices."""

    counter: int
    topology_key: str
    eligible: int = -1


@dataclass(frozen=True, slots=True)
class SpreadCheck:
    """A topology spread constraint; `domain` is the index of a DomainCount, `own` is 1 if it selects the pod itself."""

    domain: int
    max_skew: int
    min_domains: int
    own: int


@dataclass(frozen=True, slots=True)
class AffinityCheck:
    """A required term of pod affinity; `domain` is the index of a DomainCount, `own` true if it selects its own pod."""

    domain: int
    own: bool


@dataclass(slots=True)
class PodClass:
    """A class of pods with equal requests and equal scheduling rules.

    `amounts` are its requests of the resources with the indices `columns`; classes with equal requests have the same
    `shape`. `scored` are its requests of CPU and memory. `mask` is the index of the mask of usable nodes. `refusals`
    maps the text of a rule about nodes to the nodes that it refuses. `counters` are the indices of the CounterKeys that
    count such a pod, `avoided` those of the DomainCounts that must be 0 in its node's domain (anti-affinity).
    """

    example: SizedPod
    columns: Ints
    amounts: Ints
    scored: tuple[int, ...]
    shape: int
    mask: int
    refusals: Mapping[str, Flags]
    counters: list[int] = field(default_factory=list)
    avoided: list[int] = field(default_factory=list)
    affinity: list[AffinityCheck] = field(default_factory=list)
    spread: list[SpreadCheck] = field(default_factory=list)

    @property
    def waits_for_others(self) -> bool:
        """True if a node that the rules refuse now may be allowed once other pods are placed."""
        return bool(self.affinity or self.spread)


@dataclass(slots=True)
class CompiledCluster:
    """A cluster as arrays, for the placement of its pods.

    Shapes: `allocatable` (resources, nodes), each of `masks` (nodes,), `demand` (classes, resources). `class_of` is the
    index of each pod's class and `node_of` that of its node or -1; `domains` maps a label to the index of each node's
    value or -1; `class_sizes` is the largest share of a median node that each class requests of any resource.
    """

    nodes: Sequence[SizedNode]
    pods: Sequence[SizedPod]
    resources: tuple[str, ...]
    allocatable: Ints
    class_of: Ints
    node_of: Ints
    classes: list[PodClass]
    masks: list[Flags]
    domain_counts: list[DomainCount]
    counters: list[CounterKey]
    domains: dict[str, Rows]
    pods_of_owner: dict[str, list[int]]
    priority_of: Ints
    requested: Ints  # amounts that the pods on each node request, (resources, nodes)
    demand: Ints
    class_sizes: Floats
    classes_of_counter: list[Ints]  # numbers of the classes whose pods count in each counter
    nodes_of_class: list[Ints]  # node of each pod of each class that has a node
    pods_of_node: list[Ints]  # pods on each node, those that leave with it too

    def class_of_pod(self, pod: int) -> PodClass:
        """Return the class of the pod with this index."""
        return self.classes[int(self.class_of[pod])]

    def nodes_counted(self, counter: int) -> Ints:
        """Return the node index of each pod that a counter counts; a node occurs once for each such pod."""
        numbers = self.classes_of_counter[counter].tolist()
        return np.concatenate([self.nodes_of_class[number] for number in numbers]) if numbers else _NONE


def compile_cluster(state: SizedCluster) -> CompiledCluster:
    """Return the arrays of a cluster; a pod whose node does not exist counts as waiting."""
    places = {node.name: number for number, node in enumerate(state.nodes)}
    # Of the resources that pods ask for, those that some node has: a pod may name any number of others.
    asked_resources = {name for pod in state.pods for name, amount in pod.requests.items() if amount}
    had = asked_resources.intersection(chain.from_iterable(node.allocatable for node in state.nodes))
    resources = (*SCORED, PODS, *sorted(had - {*SCORED, PODS}))
    builder = _Builder(state, {name: number for number, name in enumerate(resources)})
    class_of = np.array([builder.class_number(pod) for pod in state.pods], dtype=np.int64)
    builder.link_classes()
    most = LARGEST // (len(state.pods) + len(state.nodes) + 1)  # so that no sum of any of these exceeds 64 bits
    allocatable = np.array([[n.allocatable.get(name, 0) for n in state.nodes] for name in resources], dtype=np.int64)
    matrix = np.zeros((len(builder.classes), len(resources)), dtype=np.int64)
    classes_of_counter: list[list[int]] = [[] for _ in builder.counters]
    for number, pod_class in enumerate(builder.classes):
        matrix[number, pod_class.columns] = pod_class.amounts
        for counter in pod_class.counters:
            classes_of_counter[counter].append(number)
    allocatable, demand = np.minimum(allocatable, most - 1), np.minimum(matrix, most)
    class_sizes = np.zeros(len(demand))
    if allocatable.shape[1]:
        median = np.median(allocatable, axis=1)
        median[len(SCORED)] = np.inf  # the number of pods, of which each is one, does not count
        median[median <= 0] = np.inf
        class_sizes = np.asarray((demand / median).max(axis=1, initial=0.0))
    domains: dict[str, Rows] = {}
    for key in {ZONE_LABEL, *(domain.topology_key for domain in builder.domain_counts)}:
        values: dict[str, int] = {}
        labels = [node.facts.labels.get(key) for node in state.nodes]
        numbers = [-1 if value is None else values.setdefault(value, len(values)) for value in labels]
        domains[key] = np.array(numbers, dtype=np.intp)
    pods_of_owner: dict[str, list[int]] = defaultdict(list)
    for number, pod in enumerate(state.pods):
        pods_of_owner[pod.owner].append(number)
    node_of = np.array([places.get(pod.node, -1) for pod in state.pods], dtype=np.int64)
    return CompiledCluster(
        nodes=state.nodes,
        pods=state.pods,
        resources=resources,
        allocatable=allocatable,
        class_of=class_of,
        node_of=node_of,
        classes=builder.classes,
        masks=builder.masks,
        domain_counts=list(builder.domain_counts),
        counters=list(builder.counters),
        domains=domains,
        pods_of_owner=dict(pods_of_owner),
        priority_of=np.array([pod.priority for pod in state.pods], dtype=np.int64),
        demand=demand,
        class_sizes=class_sizes,
        classes_of_counter=[np.array(class_numbers, dtype=np.int64) for class_numbers in classes_of_counter],
        **_sums_of_places(demand, class_of, node_of, len(state.nodes)),
    )


def move_pods(cluster: CompiledCluster, node_of: Ints) -> CompiledCluster:
    """Return the cluster with its pods on other nodes; `node_of` is the index of each pod's node, -1 for none."""
    sums = _sums_of_places(cluster.demand, cluster.class_of, node_of, len(cluster.nodes))
    return replace(cluster, node_of=node_of, **sums)


def _sums_of_places(demand: Ints, class_of: Ints, node_of: Ints, nodes: int) -> dict[str, Any]:
    """Return the fields of a cluster that depend on where its pods are."""
    pods = np.flatnonzero(node_of >= 0)
    sums = np.zeros((nodes, demand.shape[1]), dtype=np.int64)
    np.add.at(sums, node_of[pods], demand[class_of[pods]])
    return {
        "requested": np.ascontiguousarray(sums.T),
        "nodes_of_class": _by_number(node_of[pods], class_of[pods], len(demand)),
        "pods_of_node": _by_number(pods, node_of[pods], nodes),
    }


def _by_number(values: Ints, numbers: Ints, count: int) -> list[Ints]:
    """Return the values of each number below `count`, in their order."""
    ends = np.cumsum(np.bincount(numbers, minlength=count))
    return np.split(values[np.argsort(numbers, kind="stable")], ends[:-1]) if count else []


def is_selected(key: CounterKey, pod: SizedPod) -> bool:
    """Return whether a counter counts the pod, by namespace and labels; `staying` leaves out pods being deleted."""
    inside = key.namespaces is None or pod.namespace in key.namespaces
    return inside and not (key.staying and pod.ending) and key.selector.matches(pod.labels)


@dataclass(slots=True)
class _Builder:
    """Collects classes, masks and counters; the dicts number their keys in the order of arrival."""

    state: SizedCluster
    columns: Mapping[str, int]
    classes: list[PodClass] = field(default_factory=list)
    masks: list[Flags] = field(default_factory=list)
    counters: dict[CounterKey, int] = field(default_factory=dict)
    domain_counts: dict[DomainCount, int] = field(default_factory=dict)
    _class_numbers: dict[Any, int] = field(default_factory=dict)
    _mask_numbers: dict[bytes, int] = field(default_factory=dict)
    _shape_numbers: dict[tuple[tuple[int, int], ...], int] = field(default_factory=dict)
    _keyed: dict[tuple[str, ...], Flags] = field(default_factory=dict)
    _static: dict[bytes, tuple[Flags, Flags, dict[str, Flags]]] = field(default_factory=dict)
    _used_labels: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        rules = {pod.rules for pod in self.state.pods}
        selectors = [term.selector for r in rules for term in (*r.affinity, *r.anti_affinity)]
        selectors += [rule.selector for r in rules for rule in r.spread]
        self._used_labels = frozenset(r.key for s in selectors for r in s.requirements or ())

    def class_number(self, pod: SizedPod) -> int:
        """Return the index of the pod's class, a new one if no earlier pod has the same demands."""
        labels = frozenset((k, v) for k, v in pod.labels.items() if k in self._used_labels)
        key = (pod.namespace, labels, frozenset(pod.requests.items()), pod.rules, pod.ending)
        number = self._class_numbers.get(key)
        if number is None:
            number = self._class_numbers[key] = len(self.classes)
            requested = {**pod.requests, PODS: 1}
            requests = sorted((name, amount) for name, amount in requested.items() if amount)
            column_amounts = sorted((self.columns[name], amount) for name, amount in requests if name in self.columns)
            absent = next((pair for pair in requests if pair[0] not in self.columns), None)
            selected, tolerated, refusal_flags = self._static_masks(pod.rules.static)
            mask = selected & tolerated
            if absent is not None:
                everywhere = np.ones_like(mask)
                refusal_flags = {**refusal_flags, "{} (needs {}, no node has it)".format(*absent): everywhere}
                mask = ~everywhere
            for volume in pod.rules.volumes:
                key_of_volume = b"volume" + volume
                if key_of_volume not in self._static:
                    usable = np.array(can_use(volume, (node.facts for node in self.state.nodes)), dtype=np.bool_)
                    self._static[key_of_volume] = usable, usable, {}
                fits = self._static[key_of_volume][0]
                refusal_flags = {**refusal_flags, "a volume that is elsewhere": ~fits}
                mask = mask & fits
            new_class = PodClass(
                example=pod,
                columns=np.array([column for column, _ in column_amounts], dtype=np.int64),
                amounts=np.array([amount for _, amount in column_amounts], dtype=np.int64),
                scored=tuple(requested.get(name, 0) for name in SCORED),
                shape=self._shape_numbers.setdefault(tuple(column_amounts), len(self._shape_numbers)),
                mask=self._mask_number(mask),
                refusals=refusal_flags,
            )
            self.classes.append(new_class)
        return number

    def _static_masks(self, static: bytes) -> tuple[Flags, Flags, dict[str, Flags]]:
        """Return the nodes that selector and affinity select, the nodes whose taints are tolerated, and refusals."""
        if static not in self._static:
            nodes = [node.facts for node in self.state.nodes]
            selected, tolerated = np.ones(len(nodes), dtype=np.bool_), np.ones(len(nodes), dtype=np.bool_)
            refusal_flags = {}
            for (rule, reason), refused in refusals(msgspec.json.decode(static), nodes).items():
                flags = np.array(refused, dtype=np.bool_)
                refusal_flags[reason] = flags
                target = tolerated if rule == "taints" else selected
                target &= ~flags
            self._static[static] = selected, tolerated, refusal_flags
        return self._static[static]

    def _mask_number(self, mask: Flags) -> int:
        key = mask.tobytes()
        if key not in self._mask_numbers:
            self._mask_numbers[key] = len(self.masks)
            self.masks.append(mask)
        return self._mask_numbers[key]

    def link_classes(self) -> None:
        """Set the counters and checks of every class, once all classes are known."""
        holders: dict[AffinityTerm, list[PodClass]] = defaultdict(list)
        by_label: dict[tuple[str, str], list[PodClass]] = defaultdict(list)
        for pod_class in self.classes:
            self._link_own(pod_class)
            for term in pod_class.example.rules.anti_affinity:
                holders[term].append(pod_class)
            for label in pod_class.example.labels.items():
                by_label[label].append(pod_class)
        for term, owners in holders.items():
            key = CounterKey(term.namespaces, term.selector, holders=term.topology_key)
            number = self.counters.setdefault(key, len(self.counters))
            domain = self._domain(DomainCount(number, term.topology_key))
            for pod_class in owners:
                pod_class.counters.append(number)
            for pod_class in self._selected_classes(key, by_label):
                pod_class.avoided.append(domain)
        for key, number in self.counters.items():
            if not key.holders:
                for pod_class in self._selected_classes(key, by_label):
                    pod_class.counters.append(number)

    def _selected_classes(
        self, key: CounterKey, by_label: Mapping[tuple[str, str], list[PodClass]]
    ) -> Iterator[PodClass]:
        """Yield the classes that a counter counts; a requirement of a single label value narrows the search."""
        single = next(
            (r for r in key.selector.requirements or () if r.operator is Operator.IN and len(r.values) == 1), None
        )
        classes = self.classes if single is None else by_label.get((single.key, min(single.values)), [])
        return (pod_class for pod_class in classes if is_selected(key, pod_class.example))

    def _link_own(self, pod_class: PodClass) -> None:
        """Set the checks of the class's own rules."""
        pod, rules = pod_class.example, pod_class.example.rules
        for term in rules.anti_affinity:
            pod_class.avoided.append(self._domain(DomainCount(self._counter(term), term.topology_key)))
        for term in rules.affinity:
            number = self._counter(term)
            selects_itself = is_selected(CounterKey(term.namespaces, term.selector), pod)
            domain = self._domain(DomainCount(number, term.topology_key))
            pod_class.affinity.append(AffinityCheck(domain, selects_itself))
        keys = tuple(spread.topology_key for spread in rules.spread)
        if keys not in self._keyed:
            flags = [all(key in node.facts.labels for key in keys) for node in self.state.nodes]
            self._keyed[keys] = np.array(flags, dtype=np.bool_)
        keyed = self._keyed[keys]
        for spread in rules.spread:
            namespaces = frozenset((pod.namespace,))
            key = CounterKey(namespaces, spread.selector, staying=True)
            number = self.counters.setdefault(key, len(self.counters))
            selected, tolerated, _ = self._static_masks(rules.static)
            eligible = keyed.copy()
            if spread.by_affinity:
                eligible &= selected
            if spread.by_taints:
                eligible &= tolerated
            domain = self._domain(DomainCount(number, spread.topology_key, self._mask_number(eligible)))
            own = int(spread.selector.matches(pod.labels))
            pod_class.spread.append(SpreadCheck(domain, spread.max_skew, spread.min_domains, own))

    def _counter(self, term: AffinityTerm) -> int:
        return self.counters.setdefault(CounterKey(term.namespaces, term.selector), len(self.counters))

    def _domain(self, domain: DomainCount) -> int:
        return self.domain_counts.setdefault(domain, len(self.domain_counts))
