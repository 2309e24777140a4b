"""Pods placed one after the other as a scheduler would: its filters exactly, its scores by several rules. Pure.

    state = PlacingState.of(cluster, alive)
    refused = place_pods(state, pods, Trial(...))

A `Trial` is one order and one score rule. Nobody knows in which order controllers will create pods, nor what the
scheduler prefers at that time: what is to hold must hold in every trial.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.cluster_size.constraints import (
    SCORED,
    AffinityCheck,
    CompiledCluster,
    PodClass,
    SpreadCheck,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NOISE: Final = 0.02
"""Scores that differ by less count as equal: kube-scheduler rounds them to whole numbers of 100."""
_NOISE_LENGTH: Final = 8_191


class Order(StrEnum):
    """The order in which pods are created again."""

    SMALLEST_FIRST = "smallest first"
    LARGEST_FIRST = "largest first"
    BY_NODE = "node by node"
    BY_OWNER = "workload by workload"
    RANDOM = "random"


class ScoreRule(StrEnum):
    """The node that a scheduler prefers among those that fit."""

    LEAST_ALLOCATED = "least allocated"
    MOST_ALLOCATED = "most allocated"
    SPREAD = "fewest pods of the workload"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Trial:
    """One way in which a scheduler might place the pods."""

    order: Order
    rule: ScoreRule
    seed: int = 0

    @property
    def words(self) -> str:
        """The trial in a few words."""
        return f"pods {self.order}, nodes {self.rule}"


TRIALS: Final = (
    Trial(Order.SMALLEST_FIRST, ScoreRule.LEAST_ALLOCATED, 1),
    Trial(Order.BY_NODE, ScoreRule.LEAST_ALLOCATED, 2),
    Trial(Order.RANDOM, ScoreRule.SPREAD, 3),
    Trial(Order.RANDOM, ScoreRule.LEAST_ALLOCATED, 4),
    Trial(Order.BY_OWNER, ScoreRule.MOST_ALLOCATED, 5),
    Trial(Order.RANDOM, ScoreRule.ANY, 6),
    Trial(Order.LARGEST_FIRST, ScoreRule.LEAST_ALLOCATED, 7),
)


@dataclass(slots=True)
class _DomainState:
    """A DomainCount while pods are placed: sums by domain, the last one a place for nodes without the label."""

    of_node: npt.NDArray[np.intp]
    eligible: Flags | None
    sums: Ints
    present: Flags

    def counts_on(self, place: int) -> bool:
        """Return whether pods on this node count in a domain."""
        return bool(self.of_node[place] >= 0 and (self.eligible is None or self.eligible[place]))


@dataclass(slots=True)
class PlacingState:
    """The nodes that are alive, with what is free on them. places: number of each among all nodes.

    free: (resources, alive); capacity: (scored resources, alive). placed: pod -> place among the alive, of those placed
    since the state was made; there: the same of those that were there already. What rules between pods read is summed
    when a pod first asks for it, from the parent's sums (a state of which this is a copy with fewer nodes) or from the
    cluster's, and then kept.
    """

    cluster: CompiledCluster
    places: Ints
    free: Ints
    capacity: Floats
    there: dict[int, int] = field(default_factory=dict)
    placed: dict[int, int] = field(default_factory=dict)
    parent: PlacingState | None = None
    kept: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of a copy: places of its nodes among the parent's."""
    gone: tuple[tuple[int, int], ...] = ()
    """Of a copy: (pod, place in the parent) of the pods that went with the others."""
    _domains: dict[int, _DomainState] = field(default_factory=dict)
    _by_counter: dict[int, list[_DomainState]] = field(default_factory=lambda: defaultdict(list))
    _put: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _masks: dict[int, Flags] = field(default_factory=dict)
    _of_owner: dict[str, Ints] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: CompiledCluster, alive: Flags) -> PlacingState:
        """The state in which every pod on a living node is where it is, and the others are nowhere."""
        places = np.flatnonzero(alive)
        index = np.full(len(alive) + 1, -1)
        index[places] = np.arange(len(places))
        on = index[cluster.node_of]
        pods = np.flatnonzero(on >= 0)
        used = np.zeros((len(places), len(cluster.resources)), dtype=np.int64)
        np.add.at(used, on[pods], cluster.demand[cluster.class_of[pods]])
        allocatable = cluster.allocatable[:, places]
        capacity = np.maximum(allocatable[: len(SCORED)], 1).astype(float)
        there = dict(zip(pods.tolist(), on[pods].tolist(), strict=True))
        return cls(cluster, places, allocatable - used.T, capacity, there)

    def copy_without(self, leaving: Flags) -> PlacingState:
        """The same without some of the living nodes and the pods on them."""
        kept = np.flatnonzero(~leaving)
        gone = [(pod, place) for pod, place in self.all_placed() if leaving[place]]
        return PlacingState(
            self.cluster,
            self.places[kept],
            self.free[:, kept],
            self.capacity[:, kept],
            parent=self,
            kept=kept,
            gone=tuple(gone),
        )

    def all_placed(self) -> list[tuple[int, int]]:
        """(pod, place) of every pod on a living node; of a state that is no copy."""
        return [*self.there.items(), *self.placed.items()]

    def _domain(self, number: int) -> _DomainState:
        """The sums of a domain count, made at the first use."""
        if number not in self._domains:
            counter = self.cluster.domain_counts[number]
            state = self._sum_domain(number) if self.parent is None else self._slice_domain(number, self.parent)
            for place in self._put[counter.counter]:
                if state.counts_on(place):
                    state.sums[state.of_node[place]] += 1
            self._domains[number] = state
            self._by_counter[counter.counter].append(state)
        return self._domains[number]

    def _sum_domain(self, number: int) -> _DomainState:
        cluster, counter = self.cluster, self.cluster.domain_counts[number]
        of_node = cluster.domains[counter.topology_key][self.places]
        eligible = None if counter.eligible < 0 else cluster.masks[counter.eligible][self.places]
        state = _empty_domain(of_node, eligible, int(cluster.domains[counter.topology_key].max(initial=-1)) + 2)
        counted = state.of_node >= 0 if eligible is None else (state.of_node >= 0) & eligible
        np.add.at(state.sums, of_node[counted], cluster.counts_on(counter.counter)[self.places][counted])
        return state

    def _slice_domain(self, number: int, parent: PlacingState) -> _DomainState:
        cluster, whole = self.cluster, parent._domain(number)
        counter = cluster.domain_counts[number].counter
        eligible = None if whole.eligible is None else whole.eligible[self.kept]
        state = _empty_domain(whole.of_node[self.kept], eligible, len(whole.sums))
        state.sums[:] = whole.sums
        for pod, place in self.gone:
            if counter in cluster.classes[cluster.class_of[pod]].counters and whole.counts_on(place):
                state.sums[whole.of_node[place]] -= 1
        return state

    def mask_of(self, pod_class: PodClass) -> Flags:
        """Living nodes that the class may use by selector, affinity, taints and volumes."""
        if pod_class.mask not in self._masks:
            self._masks[pod_class.mask] = self.cluster.masks[pod_class.mask][self.places]
        return self._masks[pod_class.mask]

    def fitting_nodes(self, pod_class: PodClass) -> Flags:
        """Living nodes that a pod of the class may be placed on now."""
        fits = self.mask_of(pod_class) & (self.free[pod_class.columns] >= pod_class.amounts[:, None]).all(axis=0)
        for _, refused in self.relation_refusals(pod_class):
            fits &= ~refused
        return fits

    def relation_refusals(self, pod_class: PodClass) -> list[tuple[str, Flags]]:
        """(words, nodes refused) by each rule between pods that the class has or that pods have against it."""
        found: list[tuple[str, Flags]] = []
        for number in pod_class.avoided:
            domain = self._domain(number)
            found.append(("anti-affinity between pods", domain.sums[domain.of_node] > 0))
        found.extend(("topology spread", ~self._spread_allows(spread)) for spread in pod_class.spread)
        first = bool(pod_class.affinity) and self._is_first_of_its_kind(pod_class)
        found.extend(("affinity to pods", self._affinity_refuses(check, first=first)) for check in pod_class.affinity)
        return found

    def _affinity_refuses(self, check: AffinityCheck, *, first: bool) -> Flags:
        """Nodes without the label, and without such a pod in their domain unless the pod is the first of a group."""
        domain = self._domain(check.domain)
        without = domain.of_node < 0
        return without if first else without | (domain.sums[domain.of_node] <= 0)

    def _is_first_of_its_kind(self, pod_class: PodClass) -> bool:
        """No pod satisfies any of its terms, and it satisfies all itself: the first of a group may be placed."""
        return all(check.own and not self._domain(check.domain).sums[:-1].any() for check in pod_class.affinity)

    def _spread_allows(self, check: SpreadCheck) -> Flags:
        domain = self._domain(check.domain)
        present = domain.sums[domain.present]
        least = 0 if len(present) < max(check.min_domains, 1) else int(present.min())
        allowed = domain.sums + check.own - least <= check.max_skew
        return np.asarray(allowed[domain.of_node] & (domain.of_node >= 0))

    def put(self, pod: int, place: int) -> None:
        """Place a pod on a living node."""
        pod_class = self.cluster.classes[self.cluster.class_of[pod]]
        self.free[pod_class.columns, place] -= pod_class.amounts
        for counter in pod_class.counters:
            self._put[counter].append(place)
            for domain in self._by_counter.get(counter, ()):
                if domain.counts_on(place):
                    domain.sums[domain.of_node[place]] += 1
        owner = self.cluster.pods[pod].owner
        if owner in self._of_owner:
            self._of_owner[owner][place] += 1
        self.placed[pod] = place

    def of_owner(self, owner: str) -> Ints:
        """Pods of a controller on each living node."""
        if owner not in self._of_owner:
            if self.parent is None:
                counts = np.zeros(len(self.places), dtype=np.int64)
                known = self.there
            else:
                counts, known = self.parent.of_owner(owner)[self.kept], {}
            for pod in self.cluster.pods_of_owner[owner]:
                place = self.placed.get(pod, known.get(pod, -1))
                if place >= 0:
                    counts[place] += 1
            self._of_owner[owner] = counts
        return self._of_owner[owner]


def _empty_domain(of_node: npt.NDArray[np.intp], eligible: Flags | None, size: int) -> _DomainState:
    """A domain count of no pods; present: the domains that living nodes make."""
    present = np.zeros(size, dtype=np.bool_)
    present[of_node[of_node >= 0 if eligible is None else (of_node >= 0) & eligible]] = True
    return _DomainState(of_node, eligible, np.zeros(size, dtype=np.int64), present)


def place_pods(state: PlacingState, pods: Sequence[int], trial: Trial) -> int | None:
    """Place pods in the trial's order; the first that finds no place, or None when all have one.

    A pod that waits for others (affinity, spread) is tried again after them, as a scheduler does.
    """
    cluster, noise = state.cluster, _Noise(trial.seed)
    score = _score_function(trial.rule)
    rest = order_pods(cluster, pods, trial)
    while rest:
        refused: list[int] = []
        for pod in rest:
            pod_class = cluster.classes[cluster.class_of[pod]]
            fits = state.fitting_nodes(pod_class)
            if not fits.any():
                if not pod_class.waits_for_others:
                    return pod
                refused.append(pod)
                continue
            values = score(state, pod) + noise.take(len(fits))
            state.put(pod, int(np.argmax(np.where(fits, values, -np.inf))))
        if len(refused) == len(rest):
            return refused[0]
        rest = refused
    return None


def order_pods(cluster: CompiledCluster, pods: Sequence[int], trial: Trial) -> list[int]:
    """Pods in the order of a trial; those of equal rank in a random one."""
    mixed = np.random.default_rng(trial.seed).permutation(np.array(pods, dtype=np.int64)).tolist()
    if trial.order is Order.RANDOM:
        return [int(pod) for pod in mixed]
    if trial.order in (Order.SMALLEST_FIRST, Order.LARGEST_FIRST):
        ranks: dict[int, Any] = {pod: float(cluster.class_sizes[cluster.class_of[pod]]) for pod in mixed}
    elif trial.order is Order.BY_NODE:
        ranks = {pod: int(cluster.node_of[pod]) for pod in mixed}
    else:
        ranks = {pod: cluster.pods[pod].owner for pod in mixed}
    return sorted(mixed, key=ranks.__getitem__, reverse=trial.order is Order.LARGEST_FIRST)


class _Noise:
    """Random numbers that decide between nodes of equal score."""

    def __init__(self, seed: int) -> None:
        self._values = np.random.default_rng(seed).random(_NOISE_LENGTH) * NOISE
        self._start = 0

    def take(self, count: int) -> Floats:
        """The next numbers, from 0 to NOISE."""
        self._start = (self._start + 7_919) % _NOISE_LENGTH
        return np.take(self._values, np.arange(self._start, self._start + count), mode="wrap")


def _score_function(rule: ScoreRule) -> Callable[[PlacingState, int], Floats]:
    return {
        ScoreRule.LEAST_ALLOCATED: _free_share,
        ScoreRule.MOST_ALLOCATED: lambda state, pod: -_free_share(state, pod),
        ScoreRule.SPREAD: lambda state, pod: _free_share(state, pod) - state.of_owner(state.cluster.pods[pod].owner),
        ScoreRule.ANY: lambda state, _: np.zeros(len(state.places)),
    }[rule]


def _free_share(state: PlacingState, _pod: int) -> Floats:
    """LeastAllocated and BalancedAllocation, equally weighted, before the pod: nodes rank nearly the same after it."""
    cpu, memory = state.free[: len(SCORED)] / state.capacity
    return np.asarray((cpu + memory) / 2 - np.abs(cpu - memory) / 2)
