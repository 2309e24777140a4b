"""Place pods one after the other as a scheduler would: with its exact filters and several score rules. Pure.

    state = PlacingState.of(cluster, alive)
    refused = place_pods(state, pods, PlacingTrial(...))

A `PlacingTrial` is one order and one score rule. In which order controllers will create pods, and what the scheduler
will prefer then, is unknown, so an answer must hold in every trial.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.arrays import Flags, Floats, Ints, Rows
from cotenant.scheduler_ext.cluster_size.constraints import SCORED, CompiledCluster, PodClass
from cotenant.scheduler_ext.cluster_size.model import ZONE_LABEL
from cotenant.scheduler_ext.cluster_size.stock_scores import COUNTED_KINDS, most_scored, resource_scores, spread_scores

Counts = npt.NDArray[np.int16]
NOISE: Final = 0.02  # scores that differ by less count as equal: kube-scheduler rounds them to whole numbers of 100
_NOISE_LENGTH, _NOISE_STEP = 8_191, 7_919


class Order(StrEnum):
    """The order in which controllers create the pods of removed nodes again."""

    SMALLEST_FIRST = "smallest first"
    LARGEST_FIRST = "largest first"
    BY_NODE = "node by node"
    BY_OWNER = "workload by workload"
    RANDOM = "random"


class ScoreRule(StrEnum):
    """The rule by which a scheduler prefers one of the nodes that fit."""

    LEAST_ALLOCATED = "least allocated"
    MOST_ALLOCATED = "most allocated"
    SPREAD = "fewest pods of the workload"
    ANY = "any"
    STOCK = "as kube-scheduler"


@dataclass(frozen=True, slots=True)
class PlacingTrial:
    """A way in which a scheduler might place the pods: their order, and the rule by which it prefers nodes."""

    order: Order
    rule: ScoreRule
    seed: int = 0

    @property
    def words(self) -> str:
        """The trial's order and rule as a short text."""
        return f"order of pods: {self.order}, choice of nodes: {self.rule}"


TRIALS: Final = (
    PlacingTrial(Order.SMALLEST_FIRST, ScoreRule.LEAST_ALLOCATED, 1),
    PlacingTrial(Order.BY_NODE, ScoreRule.LEAST_ALLOCATED, 2),
    PlacingTrial(Order.RANDOM, ScoreRule.SPREAD, 3),
    PlacingTrial(Order.RANDOM, ScoreRule.LEAST_ALLOCATED, 4),
    PlacingTrial(Order.BY_OWNER, ScoreRule.MOST_ALLOCATED, 5),
    PlacingTrial(Order.RANDOM, ScoreRule.ANY, 6),
    PlacingTrial(Order.LARGEST_FIRST, ScoreRule.LEAST_ALLOCATED, 7),
    PlacingTrial(Order.RANDOM, ScoreRule.STOCK, 8),
)
GUIDES: Final = (
    PlacingTrial(Order.RANDOM, ScoreRule.STOCK, 1),
    PlacingTrial(Order.SMALLEST_FIRST, ScoreRule.STOCK, 2),
    PlacingTrial(Order.BY_OWNER, ScoreRule.STOCK, 3),
)
"""Trials with a stock scheduler that guide the search for nodes that leave one by one."""
UNSEEN: Final = tuple(PlacingTrial(order, ScoreRule.STOCK, seed) for seed, order in enumerate((*Order,) * 8, 101))
"""Trials with a stock scheduler that are not used in the search."""


@dataclass(slots=True)
class _DomainState:
    """A DomainCount while pods are placed; the last of `sums` is for nodes without the label."""

    of_node: Rows
    eligible: Flags | None
    sums: Ints

    def counts_on(self, index: int) -> bool:
        """Return whether pods on this node count in a domain."""
        return bool(self.of_node[index] >= 0 and (self.eligible is None or self.eligible[index]))


@dataclass(slots=True)
class PlacingState:
    """The remaining nodes, with their free amounts and the pods placed on them so far.

    `places` are the remaining nodes' indices among all nodes; `place_of` has, for each pod, its node's index among the
    remaining nodes, or -1. `free` is (resources, remaining nodes), `capacity` (scored resources, remaining nodes).
    `there` flags all nodes whose pods and labels count: remaining ones, and leaving ones, which take no more pods but
    still exist. Sums that scheduling rules need are computed at their first use, from the cluster or from `parent` (the
    state that this one copies with fewer nodes); each placed pod updates them.
    """

    cluster: CompiledCluster
    places: Ints
    free: Ints
    capacity: Floats
    place_of: Ints
    there: Flags
    parent: PlacingState | None = None
    kept: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """For a copy: indices of its nodes among the parent's."""
    gone: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """For a copy: the pods on the nodes that were left out."""
    _log: list[int] = field(default_factory=list)  # place of each put, in their order
    _free_shares: Floats | None = None
    _shares_of: dict[tuple[int, ...], Floats] = field(default_factory=dict)
    """Amounts of the scored resources -> their shares of each living node, (scored resources, alive)."""
    _domains: dict[int, _DomainState] = field(default_factory=dict)
    _present: dict[tuple[str, int], Flags] = field(default_factory=dict)
    """(label, mask of eligible nodes) -> the domains that nodes make now."""
    _by_counter: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _put: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _masks: dict[int, Flags] = field(default_factory=dict)
    _fits: dict[tuple[int, int], tuple[Flags, int]] = field(default_factory=dict)
    """(mask, shape) -> nodes with room for it, and how many puts they know."""
    _of_owner: dict[str, Counts] = field(default_factory=dict)
    _zones_of_owner: dict[str, Ints] = field(default_factory=dict)
    """Pods of a controller in each zone, those on leaving nodes too; the last number is of nodes without a zone."""
    _gone_of_class: Mapping[int, Sequence[int]] | None = None

    @classmethod
    def of(cls, cluster: CompiledCluster, alive: Flags, leaving: Flags | None = None) -> PlacingState:
        """Return the state in which pods on the `alive` nodes stay there and all other pods have no node.

        `leaving` are further nodes that take no pods and exist until `take_away` removes them.
        """
        places = np.flatnonzero(alive)
        index = np.full(len(alive) + 1, -1, dtype=np.int64)
        index[places] = np.arange(len(places))
        on = index[cluster.node_of]
        allocatable = cluster.allocatable[:, places]
        capacity = np.maximum(allocatable[: len(SCORED)], 1).astype(float)
        is_there = alive.copy() if leaving is None else alive | leaving
        return cls(cluster, places, allocatable - cluster.requested[:, places], capacity, on, is_there)

    def copy_without(self, leaving: Flags) -> PlacingState:
        """Return a copy without the nodes of the mask `leaving` and the pods on them."""
        kept_places = np.flatnonzero(~leaving)
        index = np.full(len(leaving) + 1, -1, dtype=np.int64)
        index[kept_places] = np.arange(len(kept_places))
        on = index[self.place_of]
        is_there = self.there.copy()
        is_there[self.places[leaving]] = False
        gone_places = np.flatnonzero((self.place_of >= 0) & (on < 0))
        rest = self.places[kept_places], self.free[:, kept_places], self.capacity[:, kept_places]
        return PlacingState(self.cluster, *rest, on, is_there, parent=self, kept=kept_places, gone=gone_places)

    def _domain(self, number: int) -> _DomainState:
        """Return the sums of a domain count, computed at the first use."""
        if number not in self._domains:
            counter = self.cluster.domain_counts[number]
            state = self._sum_domain(number) if self.parent is None else self._slice_domain(number, self.parent)
            for place in self._put[counter.counter]:
                if state.counts_on(place):
                    state.sums[state.of_node[place]] += 1
            self._domains[number] = state
            self._by_counter[counter.counter].append(number)
        return self._domains[number]

    def _sum_domain(self, number: int) -> _DomainState:
        cluster, domain_count = self.cluster, self.cluster.domain_counts[number]
        of_node = cluster.domains[domain_count.topology_key]
        eligible = None if domain_count.eligible < 0 else cluster.masks[domain_count.eligible][self.places]
        sums = np.zeros(int(of_node.max(initial=-1)) + 2, dtype=np.int64)
        nodes = cluster.nodes_counted(domain_count.counter)
        counted = nodes[self.there[nodes] & (of_node[nodes] >= 0)]
        if domain_count.eligible >= 0:
            counted = counted[cluster.masks[domain_count.eligible][counted]]
        np.add.at(sums, of_node[counted], 1)
        return _DomainState(of_node[self.places], eligible, sums)

    def _slice_domain(self, number: int, parent: PlacingState) -> _DomainState:
        """Return the counts of one topology key for the remaining nodes, from those of the parent state.

        The pods of the removed nodes are subtracted. Equal to `_sum_domain`, without counting anew.
        """
        cluster, parent_domain = self.cluster, parent._domain(number)
        eligible = None if parent_domain.eligible is None else parent_domain.eligible[self.kept]
        state = _DomainState(parent_domain.of_node[self.kept], eligible, parent_domain.sums.copy())
        # Class -> the places that its pods had in the parent, of the pods that went.
        if self._gone_of_class is None:
            places_of_class: dict[int, list[int]] = defaultdict(list)
            classes, places = self.cluster.class_of[self.gone].tolist(), parent.place_of[self.gone].tolist()
            for class_number, place in zip(classes, places, strict=True):
                places_of_class[class_number].append(place)
            self._gone_of_class = dict(places_of_class)
        for class_number in cluster.classes_of_counter[cluster.domain_counts[number].counter].tolist():
            for place in self._gone_of_class.get(class_number, ()):
                if parent_domain.counts_on(place):
                    state.sums[parent_domain.of_node[place]] -= 1
        return state

    def mask_of(self, pod_class: PodClass) -> Flags:
        """Return a mask of the remaining nodes that the class may use by selector, affinity, taints and volumes."""
        if pod_class.mask not in self._masks:
            self._masks[pod_class.mask] = self.cluster.masks[pod_class.mask][self.places]
        return self._masks[pod_class.mask]

    def fitting_nodes(self, pod_class: PodClass) -> Flags:
        """Return a mask of the remaining nodes on which a pod of the class fits now; callers must not change it.

        Amounts are compared only for nodes that got pods since the last call.
        """
        key, puts = (pod_class.mask, pod_class.shape), len(self._log)
        fit_cache = self._fits.get(key)
        if fit_cache is None or puts - fit_cache[1] > len(self.places):
            fits = self.mask_of(pod_class) & (self.free[pod_class.columns] >= pod_class.amounts[:, None]).all(axis=0)
            self._fits[key] = fits, puts
        else:
            fits, start = fit_cache
            if start != puts:
                changed = np.array(self._log[start:], dtype=np.int64)
                free = self.free[pod_class.columns[:, None], changed]
                fits[changed] &= (free >= pod_class.amounts[:, None]).all(axis=0)
                self._fits[key] = fits, puts
        for refused in self._refused_by_relations(pod_class):
            fits = fits & ~refused
        return fits

    def relation_refusals(self, pod_class: PodClass) -> list[tuple[str, Flags]]:
        """Return (name, mask of the nodes refused) of each rule between pods that concerns a pod of the class."""
        names = ["anti-affinity between pods"] * len(pod_class.avoided) + ["topology spread"] * len(pod_class.spread)
        names += ["affinity to pods"] * len(pod_class.affinity)
        return list(zip(names, self._refused_by_relations(pod_class), strict=True))

    def _refused_by_relations(self, pod_class: PodClass) -> Iterator[Flags]:
        """Yield the nodes refused by each anti-affinity, spread and affinity rule, in this order."""
        for number in pod_class.avoided:
            domain = self._domain(number)
            yield (domain.sums > 0)[domain.of_node]
        for spread in pod_class.spread:
            domain = self._domain(spread.domain)
            present = domain.sums[self._present_domains(spread.domain)]
            least = 0 if len(present) < max(spread.min_domains, 1) else int(present.min())
            allowed = domain.sums + spread.own - least <= spread.max_skew
            yield ~(allowed[domain.of_node] & (domain.of_node >= 0))
        if pod_class.affinity:
            first = all(check.own and not self._domain(check.domain).sums[:-1].any() for check in pod_class.affinity)
            for check in pod_class.affinity:
                # nodes without the label, and without such a pod in their domain unless the pod is the first of a group
                domain = self._domain(check.domain)
                without = domain.of_node < 0
                yield without if first else without | (domain.sums[domain.of_node] <= 0)

    def _present_domains(self, number: int) -> Flags:
        """Return the domains of a count that have nodes now, which take part in the minimum."""
        domain = self.cluster.domain_counts[number]
        key = domain.topology_key, domain.eligible
        if key not in self._present:
            of_node = self.cluster.domains[domain.topology_key]
            is_there = self.there if domain.eligible < 0 else self.there & self.cluster.masks[domain.eligible]
            present = np.zeros(int(of_node.max(initial=-1)) + 2, dtype=np.bool_)
            present[of_node[is_there & (of_node >= 0)]] = True
            self._present[key] = present
        return self._present[key]

    def take_away(self, node: int) -> None:
        """Remove a node and its pods from all counts, and its topology domains if it was their last node."""
        cluster = self.cluster
        self.there[node] = False
        self._present.clear()
        zone = cluster.domains[ZONE_LABEL][node]
        for pod in cluster.pods_of_node[node].tolist():
            counts = self._zones_of_owner.get(cluster.pods[pod].owner)
            if counts is not None:
                counts[zone] -= 1
        for class_number in cluster.class_of[cluster.pods_of_node[node]].tolist():
            for counter in cluster.classes[class_number].counters:
                for number in self._by_counter.get(counter, ()):
                    domain = cluster.domain_counts[number]
                    value = cluster.domains[domain.topology_key][node]
                    if value >= 0 and (domain.eligible < 0 or cluster.masks[domain.eligible][node]):
                        self._domains[number].sums[value] -= 1

    def share_after(self, pod_class: PodClass) -> Floats:
        """Return each node's smaller free share, of CPU or memory, if a pod of the class were placed on it.

        It is LeastAllocated + BalancedAllocation - 1: (c + m) / 2 - |c - m| / 2 for free shares c and m. A large pod
        lowers a small node's value more, so a scheduler that spreads load evenly puts large pods on large nodes.
        """
        cpu, memory = self._free_after(pod_class)
        return np.asarray(np.minimum(cpu, memory))

    def _free_after(self, pod_class: PodClass) -> Floats:
        """Return each node's free shares of the scored resources with such a pod on it, (scored resources, alive)."""
        if self._free_shares is None:
            self._free_shares = self.free[: len(SCORED)] / self.capacity
        if pod_class.scored not in self._shares_of:
            self._shares_of[pod_class.scored] = np.array(pod_class.scored)[:, None] / self.capacity
        return np.asarray(self._free_shares - self._shares_of[pod_class.scored])

    def stock_scores(self, pod: int, places: Ints) -> Ints:
        """Return kube-scheduler's scores, (places,), of the remaining nodes at `places`, each of which the pod fits."""
        cluster, pod_class, owner = self.cluster, self.cluster.class_of_pod(pod), self.cluster.pods[pod].owner
        scores = resource_scores(self._free_after(pod_class)[:, places])
        kind = owner.partition("/")[2].partition("/")[0]
        if pod_class.spread or kind not in COUNTED_KINDS:
            return scores
        zone_of = cluster.domains[ZONE_LABEL][self.places[places]]
        on_node = self.of_owner(owner)[places].astype(np.int64)
        if owner not in self._zones_of_owner:
            pods, zones = cluster.pods_of_owner[owner], cluster.domains[ZONE_LABEL]
            place, before = self.place_of[pods], cluster.node_of[pods]
            places_left = before[(place < 0) & (before >= 0)]
            counts = np.zeros(int(zones.max(initial=-1)) + 2, dtype=np.int64)
            np.add.at(counts, zones[self.places[place[place >= 0]]], 1)
            np.add.at(counts, zones[places_left[self.there[places_left]]], 1)
            self._zones_of_owner[owner] = counts
        return np.asarray(scores + spread_scores(on_node, self._zones_of_owner[owner], zone_of))

    def put(self, pod: int, index: int) -> None:
        """Place a pod on the remaining node with this index."""
        pod_class = self.cluster.classes[self.cluster.class_of[pod]]
        self.free[pod_class.columns, index] -= pod_class.amounts
        self._log.append(index)
        if self._free_shares is not None:
            self._free_shares[:, index] = self.free[: len(SCORED), index] / self.capacity[:, index]
        for counter in pod_class.counters:
            self._put[counter].append(index)
            for number in self._by_counter.get(counter, ()):
                domain = self._domains[number]
                if domain.counts_on(index):
                    domain.sums[domain.of_node[index]] += 1
        owner = self.cluster.pods[pod].owner
        if owner in self._of_owner:
            self._of_owner[owner][index] += 1
        if owner in self._zones_of_owner:
            self._zones_of_owner[owner][self.cluster.domains[ZONE_LABEL][self.places[index]]] += 1
        self.place_of[pod] = index

    @property
    def puts(self) -> int:
        """Number of pods placed so far."""
        return len(self._log)

    def of_owner(self, owner: str) -> Counts:
        """Return the number of a controller's pods on each remaining node."""
        if owner not in self._of_owner:
            own = self.place_of[self.cluster.pods_of_owner[owner]]
            counts = np.bincount(own[own >= 0], minlength=len(self.places))
            self._of_owner[owner] = counts.astype(np.int16)
        return self._of_owner[owner]


def moving_of(copy: PlacingState) -> list[int]:
    """Return the pods that a copied state lost with its removed nodes and that controllers would create again."""
    pods = copy.cluster.pods
    return [pod for pod in copy.gone.tolist() if not pods[pod].goes_with_node]


def place_pods(state: PlacingState, pods: Sequence[int] | Ints, trial: PlacingTrial) -> int | None:
    """Place pods in the trial's order; return the first that finds no place, None if all have one.

    A pod that depends on others (affinity, spread) is tried again after them, as a scheduler does.
    """
    cluster, noise = state.cluster, _Noise(trial.seed, len(state.places), state.puts)
    choose = _choose_as_stock if trial.rule is ScoreRule.STOCK else _best_by(_SCORES[trial.rule])
    rest = order_pods(cluster, pods, trial)
    while rest:
        refused: list[int] = []
        for pod in rest:
            pod_class = cluster.class_of_pod(pod)
            place = choose(state, pod, state.fitting_nodes(pod_class), noise)
            if place is not None:
                state.put(pod, place)
            elif pod_class.waits_for_others:
                refused.append(pod)
            else:
                return pod
        if len(refused) == len(rest):
            return refused[0]
        rest = refused
    return None


def order_pods(cluster: CompiledCluster, pods: Sequence[int] | Ints, trial: PlacingTrial) -> list[int]:
    """Return pods in the order of a trial: higher priorities first, equal ranks in random order."""
    mixed = np.random.default_rng(trial.seed).permutation(np.array(pods, dtype=np.int64))
    if trial.order is Order.BY_OWNER:
        owners = [cluster.pods[pod].owner for pod in mixed.tolist()]
        mixed = mixed[np.argsort(np.array(owners), kind="stable")] if owners else mixed
    elif trial.order is not Order.RANDOM:
        ranks = cluster.class_sizes[cluster.class_of[mixed]]
        if trial.order is Order.BY_NODE:
            ranks = cluster.node_of[mixed].astype(float)
        elif trial.order is Order.LARGEST_FIRST:
            ranks = -ranks
        mixed = mixed[np.argsort(ranks, kind="stable")]
    return [int(pod) for pod in mixed[np.argsort(-cluster.priority_of[mixed], kind="stable")]]


class _Noise:
    """Random numbers that decide between nodes of equal score."""

    def __init__(self, seed: int, count: int, taken: int) -> None:
        self._values = _noise_values(seed, count)
        self._start, self._count = taken * _NOISE_STEP % _NOISE_LENGTH, count

    def take(self) -> Floats:
        """Return the next random numbers, one per node, from 0 to NOISE."""
        self._start = (self._start + _NOISE_STEP) % _NOISE_LENGTH
        return self._values[self._start : self._start + self._count]


@lru_cache(maxsize=64)  # a reserve places the pods of every node anew, on as many nodes each time
def _noise_values(seed: int, count: int) -> Floats:
    values = np.random.default_rng(seed).random(_NOISE_LENGTH) * NOISE
    return np.resize(values, _NOISE_LENGTH + count)


_SCORES: Final[Mapping[ScoreRule, Callable[[PlacingState, int], Floats]]] = {
    ScoreRule.LEAST_ALLOCATED: lambda state, pod: state.share_after(state.cluster.class_of_pod(pod)),
    ScoreRule.MOST_ALLOCATED: lambda state, pod: -state.share_after(state.cluster.class_of_pod(pod)),
    ScoreRule.SPREAD: lambda state, pod: (
        state.share_after(state.cluster.class_of_pod(pod)) - state.of_owner(state.cluster.pods[pod].owner)
    ),
    ScoreRule.ANY: lambda state, _: np.zeros(len(state.places)),
}
_Choice = Callable[[PlacingState, int, Flags, _Noise], int | None]


def _best_by(score: Callable[[PlacingState, int], Floats]) -> _Choice:
    """Return a function that chooses the fitting node with the highest score; None if none fits."""

    def choose(state: PlacingState, pod: int, fits: Flags, noise: _Noise) -> int | None:
        values = np.where(fits, score(state, pod) + noise.take(), -np.inf)
        place = int(values.argmax())
        return place if fits[place] else None

    return choose


def _choose_as_stock(state: PlacingState, pod: int, fits: Flags, noise: _Noise) -> int | None:
    """Return the node that kube-scheduler would choose, at random among equals; with many nodes it scores only some."""
    places = np.flatnonzero(fits)
    if not len(places):
        return None
    lots = noise.take() / NOISE
    most = most_scored(int(np.count_nonzero(state.there)))
    if len(places) > most:
        start = int(lots[-1] * len(places))
        places = places[(start + np.arange(most)) % len(places)]
    return int(places[(state.stock_scores(pod, places) + lots[: len(places)]).argmax()])
