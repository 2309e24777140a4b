"""The cheapest mix of machine types found that holds a cluster's pods, and a lower bound of every mix's price. Pure.

    nodes that cannot leave, and their pods          stay, and offer what they have left
    linear program over all machine types            lower bound, and the types worth trying
    from the program's mix, and from each type alone: grow until every trial places every pod, then remove nodes or
    exchange them for cheaper ones

A mix is returned only if every trial of `placing.TRIALS` placed every pod, with the requested reserve. The work is
limited by a number of placements. A pod that no machine of the list could hold keeps its node.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np

from cotenant.base.progress import Progress, Silent
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.cluster_size.cluster_bound import (
    NodeKind,
    Solved,
    demand_groups,
    free_beside_daemons,
    solve_program,
)
from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import find_stays
from cotenant.scheduler_ext.cluster_size.machines.prototypes import SPOT_TAINT, Prototype
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizedNode, SizedPod, SizeOptions
from cotenant.scheduler_ext.cluster_size.placing import TRIALS, PlacingState, PlacingTrial, place_pods
from cotenant.scheduler_ext.cluster_size.prices import SPOT, capacity_of
from cotenant.scheduler_ext.cluster_size.reserve import Exemptions, find_exemptions, find_unplaced

MOST_PLACEMENTS: Final = 200_000  # placements for each start, after which the mix that was found so far is the answer
MOST_ROUNDS, FEWEST_ROUNDS = 40.0, 6.0
"""Bounds, for any number of pods, of the rounds (all pods in all trials) that the search from one start may take."""
MOST_TYPES: Final = 4  # machine types that are tried alone, the cheapest by the linear program
SPARE: Final = 1.4  # nodes of a type that the search may use, as a multiple of what the linear program would take
MORE_NODES: Final = 6  # nodes of a type in a zone that the search may use beyond that
GROWTH: Final = 0.04  # share of the new nodes that are added when a trial refuses a pod


@dataclass(frozen=True, slots=True)
class MixLine:
    """The nodes of one machine type in one zone; `price_month` is the monthly price of all of them."""

    machine: str
    zone: str
    count: int
    price_month: float


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix of new nodes that holds the pods; `kept` are the names of the nodes that stay beside the new ones.

    `price_month` is that of all nodes with a price, `unpriced` the number of kept nodes without one. No mix costs less
    than `bound_month`, even without a reserve; `bound_reason` says why it is None. If there is no mix, `reason` says
    why, and `pod` (NAMESPACE/NAME) is the one without a place; `placed` is the number of pods with a new place.
    """

    lines: tuple[MixLine, ...] = ()
    kept: tuple[str, ...] = ()
    price_month: float | None = None
    unpriced: int = 0
    bound_month: float | None = None
    bound_reason: str = ""
    reason: str = ""
    pod: str = ""
    placed: int = 0
    kept_month: float | None = None  # money a month of the kept nodes that have a price; None where there is no mix

    @property
    def nodes(self) -> int:
        """Number of nodes of the mix, kept and new."""
        return len(self.kept) + sum(line.count for line in self.lines)

    @property
    def price_by_bound(self) -> float | None:
        """Price of the mix as a multiple of the lower bound."""
        return self.price_month / self.bound_month if self.price_month is not None and self.bound_month else None


@dataclass(frozen=True, slots=True)
class _Question:
    """The search's input: the state without the removable nodes, prices of the kept nodes, and the prototypes."""

    nodes: tuple[SizedNode, ...]
    pods: tuple[SizedPod, ...]
    kept_month: float
    unpriced: int
    prototypes: tuple[Prototype, ...]
    options: SizeOptions


def cheapest_mix(
    state: SizedCluster,
    prototypes: Sequence[Prototype],
    monthly: Mapping[str, float],
    options: SizeOptions | None = None,
    uncounted: Collection[str] = (),
    progress: Progress | None = None,
) -> Mix:
    """Return the cheapest mix found; `monthly` are prices of today's nodes, `uncounted` pods that are ignored."""
    if not prototypes:
        return Mix(reason="no listed machine type can be used in this cluster")
    counted = replace(state, pods=tuple(pod for pod in state.pods if pod.address not in uncounted))
    question = _question(counted, tuple(prototypes), monthly, options or SizeOptions())
    solved = _bound(question, range(len(prototypes)))
    if solved.kept is None:
        kept_nodes = tuple(node.name for node in question.nodes)
        return Mix(kept=kept_nodes, bound_reason=solved.reason, reason=solved.reason)
    found_mix = _search(question, solved, progress or Silent())
    return replace(found_mix, bound_month=solved.value + question.kept_month)


def _question(
    state: SizedCluster, prototypes: tuple[Prototype, ...], monthly: Mapping[str, float], options: SizeOptions
) -> _Question:
    """Return the nodes that stay, the pods that keep their place, and the pods that need a new one."""
    pods = _with_spot_tolerance(state)
    cluster = compile_cluster(replace(state, pods=pods))
    stays = {cluster.nodes[number].name for number in find_stays(cluster)}
    # Pods that no prototype could ever hold: by selector, taints, volumes, or an amount.
    cluster, first = _compile(state.nodes, pods, prototypes, [1] * len(prototypes))
    free = free_beside_daemons(cluster)
    possible: dict[int, bool] = {}
    bound = set()
    for number, pod in enumerate(cluster.pods):
        class_number = int(cluster.class_of[number])
        if pod.goes_with_node or pod.node in stays:
            continue
        if class_number not in possible:
            mask = cluster.masks[cluster.classes[class_number].mask][first:]
            fits = (free[:, first:] >= cluster.demand[class_number][:, None]).all(axis=0)
            possible[class_number] = bool((mask & fits).any())
        if not possible[class_number]:
            bound.add(pod.address)
    stays |= {pod.node for pod in pods if pod.address in bound and pod.node}
    nodes = tuple(node for node in state.nodes if node.name in stays)
    pods_left: list[SizedPod] = []
    for pod in pods:
        if pod.node in stays and (pod.goes_with_node or pod.stays is not None or pod.address in bound):
            pods_left.append(pod)
        elif not pod.goes_with_node:
            pods_left.append(replace(pod, node=""))
    priced = [monthly[name] for name in stays if name in monthly]
    return _Question(nodes, tuple(pods_left), sum(priced), len(stays) - len(priced), prototypes, options)


def _with_spot_tolerance(state: SizedCluster) -> tuple[SizedPod, ...]:
    """Return the pods; those of workloads that run on spot nodes now tolerate the taint of new spot machines."""
    spot = {node.name for node in state.nodes if capacity_of(node.facts.labels) == SPOT}
    owners = {pod.owner for pod in state.pods if pod.node in spot}
    key, _, effect = SPOT_TAINT
    toleration = {"key": key, "operator": "Exists", "effect": effect}
    changed: dict[bytes, bytes] = {}

    def tolerant(pod: SizedPod) -> SizedPod:
        """Return the pod, with the toleration if its workload runs on a spot node."""
        if pod.owner not in owners or pod.goes_with_node:
            return pod
        static = pod.rules.static
        if static not in changed:
            rules = msgspec.json.decode(static)
            rules["tolerations"] = [*(rules.get("tolerations") or ()), toleration]
            changed[static] = msgspec.json.encode(rules, order="deterministic")
        return replace(pod, rules=replace(pod.rules, static=changed[static]))

    return tuple(tolerant(pod) for pod in state.pods)


def _compile(
    nodes: Sequence[SizedNode], pods: Sequence[SizedPod], prototypes: Sequence[Prototype], copies: Sequence[int]
) -> tuple[CompiledCluster, int]:
    """Return arrays of the nodes, then of copies of each prototype with DaemonSets, and the index of the first copy."""
    new_nodes: list[SizedNode] = []
    new_pods: list[SizedPod] = []
    for number, (prototype, count) in enumerate(zip(prototypes, copies, strict=True)):
        for copy in range(count):
            node, daemons = prototype.node_named(f"new-{number}-{copy}")
            new_nodes.append(node)
            new_pods += daemons
    state = SizedCluster((*nodes, *new_nodes), (*pods, *new_pods))
    return compile_cluster(state), len(nodes)


def _bound(question: _Question, chosen: Iterable[int]) -> Solved:
    """Solve the linear program of some prototypes: kept nodes cost nothing, new ones their price."""
    numbers = list(chosen)
    prototypes = [question.prototypes[number] for number in numbers]
    cluster, first = _compile(question.nodes, question.pods, prototypes, [1] * len(prototypes))
    free = np.maximum(cluster.allocatable - cluster.requested, 0)
    kinds = [NodeKind(free[:, node], 0.0, 1.0, 1.0) for node in range(first)]
    kinds += [NodeKind(free[:, first + n], p.price_month, 0.0, None) for n, p in enumerate(prototypes)]
    waiting = demand_groups(cluster, np.flatnonzero(cluster.node_of < 0).tolist())
    groups = [(cluster.demand[number], count) for _, number, count in waiting]
    pairs = [
        (group, kind)
        for group, (mask, number, _) in enumerate(waiting)
        for kind in np.flatnonzero(cluster.masks[mask] & (free >= cluster.demand[number][:, None]).all(axis=0)).tolist()
    ]
    if {group for group, _ in pairs} != set(range(len(groups))):
        return Solved(reason="a pod fits on none of the machine types")
    scale = np.maximum(cluster.allocatable.max(axis=1, initial=1), 1).astype(float)
    solved = solve_program(kinds, groups, pairs, scale)
    if solved.kept is None:
        return solved
    kept_counts = np.zeros(len(question.prototypes))
    kept_counts[numbers] = solved.kept[first:]
    return Solved(solved.value, kept_counts)


@dataclass(slots=True)
class _MixSearch:
    """The state of the search. `copies`: indices of new nodes of each prototype; `rounds`: number of trials made."""

    question: _Question
    cluster: CompiledCluster
    copies: list[list[int]]
    moving: list[int]
    progress: Progress
    prototype_of: dict[int, int] = field(default_factory=dict)
    trials: list[PlacingTrial] = field(default_factory=lambda: list(TRIALS))
    exemptions: Exemptions = field(default_factory=dict)
    rounds: float = 0.0
    refused: int = -1

    @property
    def is_over(self) -> bool:
        """True once a start has used up its placements."""
        most = MOST_PLACEMENTS / max(len(self.moving) * len(TRIALS), 1)
        return self.rounds >= min(max(most, FEWEST_ROUNDS), MOST_ROUNDS)

    def price_of(self, new: Collection[int]) -> float:
        """Return the monthly price of new nodes."""
        return sum(self.question.prototypes[self.prototype_of[node]].price_month for node in new)

    def alive(self, new: Collection[int]) -> Flags:
        """Return flags of the kept nodes and of these new ones."""
        flags = np.zeros(len(self.cluster.nodes), dtype=np.bool_)
        flags[: len(self.question.nodes)] = True
        flags[list(new)] = True
        return flags

    def holds(self, new: Collection[int]) -> bool:
        """Return whether every trial places every pod; `refused` is then the first pod that one refused."""
        for number, trial in enumerate(self.trials):
            self.rounds += 1 / len(self.trials)
            self.progress.advance()
            state = PlacingState.of(self.cluster, self.alive(new))
            refused = place_pods(state, self.moving, trial) if len(state.places) else next(iter(self.moving), None)
            if refused is None:
                waiting = find_unplaced(state, self.question.options, trial, self.exemptions).pod
                refused = (
                    next((n for n in self.moving if self.cluster.pods[n].address == waiting), -1) if waiting else None
                )
            if refused is not None:
                self.refused = refused
                self.trials.insert(0, self.trials.pop(number))
                return False
        return True


def _search(question: _Question, solved: Solved, progress: Progress) -> Mix:
    progress.stage("Try mixes of machine types", 0)
    starts = _starts(question, solved)
    most = np.max([start for _, start in starts], axis=0)
    used = [number for number in range(len(question.prototypes)) if most[number] > 0]
    copies = [math.ceil(float(most[n]) * SPARE) + MORE_NODES if n in used else 0 for n in range(len(most))]
    copies = [count + question.options.reserve_nodes if count else 0 for count in copies]
    cluster, first = _compile(question.nodes, question.pods, question.prototypes, copies)
    places, at = list[list[int]](), first
    for count in copies:
        places.append(list(range(at, at + count)))
        at += count
    moving = [n for n, node in enumerate(cluster.node_of.tolist()) if node < 0]
    owner = {place: number for number, copy in enumerate(places) for place in copy}
    search = _MixSearch(question, cluster, places, moving, progress, owner)
    everything = PlacingState.of(cluster, np.ones(len(cluster.nodes), dtype=np.bool_))
    if place_pods(everything, moving, TRIALS[0]) is None:
        search.exemptions = find_exemptions(everything, question.options, TRIALS[0])
    best: list[int] | None = None
    for least, start in starts:
        if best is not None and least >= search.price_of(best):
            continue  # no mix from here can be cheaper
        search.rounds = 0.0
        new = _grow(search, start)
        if new is not None:
            new = _cheapen(search, new)
            if best is None or search.price_of(new) < search.price_of(best):
                best = new
    if best is None:
        pod = cluster.pods[search.refused].address if search.refused >= 0 else ""
        return Mix(reason="no tried mix of machine types had a node for every pod in every placement trial", pod=pod)
    counts = Counter(owner[node] for node in best)
    lines = []
    for number, count in counts.items():
        prototype = question.prototypes[number]
        lines.append(MixLine(prototype.machine.title, prototype.zone, count, count * prototype.price_month))
    return Mix(
        lines=tuple(sorted(lines, key=lambda line: (line.machine, line.zone))),
        kept=tuple(node.name for node in question.nodes),
        price_month=question.kept_month + search.price_of(best),
        unpriced=question.unpriced,
        placed=len(moving),
        kept_month=question.kept_month,
    )


def _starts(question: _Question, solved: Solved) -> list[tuple[float, Floats]]:
    """Return (least cost, nodes of each prototype) to start from: of all types, and of each cheapest type alone."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for number, prototype in enumerate(question.prototypes):
        by_type[prototype.machine.title].append(number)
    alone = []
    for numbers in by_type.values():
        program = _bound(question, numbers)
        if program.kept is not None:
            alone.append((program.value, _level_zones(program.kept, [numbers])))
    alone.sort(key=lambda pair: pair[0])
    assert solved.kept is not None
    return [(solved.value, _level_zones(solved.kept, by_type.values())), *alone[:MOST_TYPES]]


def _level_zones(kept_counts: Floats, groups: Iterable[Sequence[int]]) -> Floats:
    """Return the nodes of each type spread evenly over its zones, which the program ignores."""
    start = np.zeros(len(kept_counts))
    for numbers in groups:
        start[numbers] = np.ceil(kept_counts[numbers].sum() / len(numbers) - 1e-6)
    return start


def _grow(search: _MixSearch, start: Floats) -> list[int] | None:
    """Add nodes to a start until all pods are placed; return None if no further nodes are available.

    Added nodes must fit the refused pod; the start's types are preferred, zones in turn.
    """
    new = [place for copy, count in zip(search.copies, start.tolist(), strict=True) for place in copy[: int(count)]]
    allowed = {number for number, count in enumerate(start.tolist()) if count > 0}
    prototypes = search.question.prototypes
    while not search.holds(new):
        before, taken = len(new), set(new)
        used = Counter(search.prototype_of[node] for node in new)
        able = [n for n, copy in enumerate(search.copies) if _may_use(search, copy)]
        for _ in range(max(1, int(before * GROWTH))):
            rest = [n for n in able if any(place not in taken for place in search.copies[n])]
            if not rest:
                break
            _, _, _, number = min((n not in allowed, used[n], prototypes[n].price_month, n) for n in rest)
            place = next(place for place in search.copies[number] if place not in taken)
            taken.add(place)
            used[number] += 1
            new.append(place)
        if len(new) == before:
            return None
    return new


def _may_use(search: _MixSearch, copy: Sequence[int]) -> bool:
    """Return whether an empty node of a prototype could hold the refused pod, ignoring rules between pods."""
    if not copy or search.refused < 0:
        return bool(copy)
    cluster, node = search.cluster, copy[0]
    number = int(cluster.class_of[search.refused])
    free = cluster.allocatable[:, node] - cluster.requested[:, node]
    return bool(cluster.masks[cluster.classes[number].mask][node] and (free >= cluster.demand[number]).all())


def _cheapen(search: _MixSearch, new: list[int]) -> list[int]:
    """Return the mix without unneeded nodes, and with others exchanged for cheaper ones of the same zone.

    Nodes are removed in groups, the most expensive first; a group is halved if one of its nodes is needed.
    """
    prototypes = search.question.prototypes
    size = max(1, len(new) // 4)
    while not search.is_over:
        order = sorted(new, key=lambda node: (-prototypes[search.prototype_of[node]].price_month, -node))
        for start in range(0, len(order), size):
            rest = [node for node in new if node not in set(order[start : start + size])]
            if not search.is_over and len(rest) < len(new) and search.holds(rest):
                new = rest
        if size == 1:
            break
        size //= 2
    for node in sorted(new, key=lambda node: -prototypes[search.prototype_of[node]].price_month):
        own = prototypes[search.prototype_of[node]]
        cheaper = [
            place
            for number, copy in enumerate(search.copies)
            if prototypes[number].zone == own.zone and prototypes[number].price_month < own.price_month
            for place in copy
            if place not in new
        ]
        by_type = {search.prototype_of[place]: place for place in reversed(cheaper)}
        for _, place in sorted(by_type.items(), key=lambda item: prototypes[item[0]].price_month):
            if search.is_over:
                return new
            changed = [place if other == node else other for other in new]
            if search.holds(changed):
                new = changed
                break
    return new
