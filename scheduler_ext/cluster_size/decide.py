"""Find the nodes that could be removed: the largest set found whose pods fit elsewhere in every trial. Pure.

    order the candidates -> take as many as one trial can do without -> fewer, until all trials can -> try the others

All removable nodes are cordoned and removed one by one, those with the largest pods first: a scheduler that spreads
load evenly leaves no gap for a large pod that comes late. For the returned set, every trial of `placing.GUIDES` and
`placing.UNSEEN` has placed every pod with the requested reserve. The work is limited by a number of placements, so that
the answer does not depend on a clock. Each staying node gets the reason that keeps it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.progress import Progress, Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, kind_of
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, compile_cluster
from cotenant.scheduler_ext.cluster_size.model import (
    PODS,
    ClusterSize,
    LeavingNode,
    PodOfNode,
    RequestLevel,
    SizedCluster,
    SizeOptions,
    Stay,
    StayingNode,
)
from cotenant.scheduler_ext.cluster_size.placing import (
    GUIDES,
    UNSEEN,
    PlacingState,
    PlacingTrial,
    moving_of,
    place_pods,
)
from cotenant.scheduler_ext.cluster_size.reserve import Exemptions, Turnover, find_exemptions, find_unplaced

NAMED_FAILURES: Final = 3
"""Number of node failures, the fullest nodes first, that are searched for a waiting pod: all take too long."""
MOST_PLACEMENTS: Final = 40_000  # placements after which no further nodes are tried beyond the first answer
FIRST_GUESS: Final = 0.7  # share of the nodes that amounts alone would let go of; the longest run is first tried there
RESOLUTION: Final = 0.01
"""Share of the candidate nodes that a bisection of their order may miss; the missed nodes are tried afterwards."""
SEARCHED_FAILURES: Final = 40
"""Number of node failures, the fullest nodes first, that the search tries; the answer is checked with all."""
MARGIN: Final = 0.02
"""Share of the nodes with pods that stay although the trials would remove them: no scheduler follows a trial."""
FEWEST_UNSEEN: Final = 10
"""Least number of trials unused in the search that the answer must pass, however large the cluster is."""
MOST_UNSEEN: Final = 80_000
"""Placements after which no further unseen trials are made; half of it with a reserve, whose turnover is tried too."""
SHRINK: Final = 0.02  # share of the leaving nodes that stay after all when a trial refuses; doubled each time
_MEMORY: Final = Resource.MEMORY.value


@dataclass(slots=True)
class _Search:
    """The state of the search.

    `pods_on`: pods of each node that need a new place; `waiting`: pods without a node that fit; `largest`: size of the
    largest pod of each node, 0 without pods. `trials`: the last one that refused is first; `placements`: how many were
    made; `most_failures`: node failures that a trial must survive; `proof`: the final state of each trial for the last
    accepted set.
    """

    cluster: CompiledCluster
    options: SizeOptions
    pods_on: dict[int, list[int]]
    waiting: list[int]
    largest: Floats
    progress: Progress
    trials: list[PlacingTrial] = field(default_factory=lambda: list(GUIDES))
    placements: int = 0
    most_failures: int = SEARCHED_FAILURES
    exemptions: Exemptions = field(default_factory=dict)
    proof: dict[PlacingTrial, PlacingState] = field(default_factory=dict)
    unseen: list[PlacingTrial] = field(default_factory=lambda: list(UNSEEN))
    refused_on: int = -1
    """The node whose pods found no place in the last trial that refused; -1 if the pods were of no node."""

    def alive_without(self, leaving: Iterable[int]) -> Flags:
        """Return flags of the nodes that stay."""
        alive = np.ones(len(self.cluster.nodes), dtype=np.bool_)
        alive[list(leaving)] = False
        return alive

    def moving_pods(self, leaving: Sequence[int]) -> list[int]:
        """Return the pods that need a place once these nodes are gone."""
        return [*self.waiting, *(pod for node in leaving for pod in self.pods_on.get(node, ()))]

    def placed_by(self, trial: PlacingTrial, leaving: Sequence[int]) -> PlacingState | None:
        """Return the state after a trial without the `leaving` nodes; None if a pod or the reserve does not fit."""
        state = self._end_state(trial, leaving)
        if state is None:
            return None
        refused = find_unplaced(state, self.options, trial, self.exemptions, self.most_failures)
        self.placements += refused.placements
        return None if refused.pod else state

    @property
    def keeps_reserve(self) -> bool:
        """True if a reserve for failing nodes or zones was requested."""
        return bool(self.options.reserve_nodes or self.options.reserve_zone)

    @property
    def most_unseen(self) -> int:
        """Number of placements after which no further unseen trial is made."""
        return MOST_UNSEEN // 2 if self.keeps_reserve else MOST_UNSEEN

    def passes_unseen(self, leaving: Sequence[int]) -> bool:
        """Return whether trials that did not guide the search place every pod too; the reserve is not checked.

        The last one that refused comes first. At least FEWEST_UNSEEN are made, and all while the work limit allows.
        """
        most = self.placements + self.most_unseen
        for number, trial in enumerate(self.unseen):
            if number >= FEWEST_UNSEEN and self.placements > most:
                break
            if self._end_state(trial, leaving) is None:
                self.unseen.insert(0, self.unseen.pop(number))
                return False
        return True

    def _end_state(self, trial: PlacingTrial, leaving: Sequence[int]) -> PlacingState | None:
        """Return the state after the nodes left one by one; None if a pod finds no place. None of them takes a pod."""
        self.progress.advance()
        self.refused_on = -1
        alive = self.alive_without(leaving)
        state = PlacingState.of(self.cluster, alive, ~alive)
        self.placements += len(self.waiting)
        if self.waiting and place_pods(state, self.waiting, trial) is not None:
            return None
        for node in self.in_turns(leaving):
            state.take_away(node)
            pods = self.pods_on.get(node, [])
            self.placements += len(pods)
            if place_pods(state, pods, trial) is not None:
                self.refused_on = node
                return None
        return state

    def in_turns(self, leaving: Iterable[int]) -> list[int]:
        """Return the nodes in the order of removal: those with the largest pods first, while most capacity is left."""
        return sorted(leaving, key=lambda node: (-round(float(self.largest[node]), 3), node))

    def holds(self, leaving: Sequence[int]) -> bool:
        """Return whether every trial places every pod; a trial that refuses is the first one next time."""
        if len(leaving) >= len(self.cluster.nodes):
            return False
        states: dict[PlacingTrial, PlacingState] = {}
        for number, trial in enumerate(self.trials):
            state = self.placed_by(trial, leaving)
            if state is None:
                self.trials.insert(0, self.trials.pop(number))
                return False
            states[trial] = state
        self.proof = states
        return True


def decide_size(
    state: SizedCluster, options: SizeOptions | None = None, progress: Progress | None = None
) -> ClusterSize:
    """Return which nodes could be removed, where their pods would go, and what keeps each other node."""
    options, progress = options or SizeOptions(), progress or Silent()
    progress.stage("Compile the rules", 0)
    cluster = compile_cluster(state)
    stays = find_stays(cluster)
    # Pods of each node that are placed anew when it leaves, and pods that have no node.
    pods_on: dict[int, list[int]] = defaultdict(list)
    waiting, largest = list[int](), np.zeros(len(cluster.nodes))
    for number, node in enumerate(cluster.node_of.tolist()):
        if node < 0:
            waiting.append(number)
        elif not cluster.pods[number].goes_with_node:
            pods_on[node].append(number)
            largest[node] = max(largest[node], float(cluster.class_sizes[cluster.class_of[number]]))
    search = _Search(cluster, options, dict(pods_on), waiting, largest, progress)
    search.waiting, hopeless = _split_waiting(search)
    search.exemptions = find_exemptions(PlacingState.of(cluster, search.alive_without(())), options, GUIDES[0])
    progress.stage("Try which nodes could be removed", 0)
    candidates = [number for number in range(len(cluster.nodes)) if number not in stays]
    order = _order_candidates(search, candidates)
    leaving, step = _longest_run(search, order), SHRINK
    while leaving and not search.holds(leaving):
        leaving = leaving[: len(leaving) - max(1, int(len(leaving) * step))]
        step *= 2
    leaving = _extend(search, order, leaving)
    search.most_failures = len(cluster.nodes)
    leaving = leaving[: len(leaving) - round(MARGIN * sum(node in search.pods_on for node in leaving))]
    leaving = _prove(search, leaving)
    outliving = _outlive_pods(search, leaving)
    leaving = leaving if len(outliving) == len(leaving) else _prove(search, outliving)
    progress.stage("Find what keeps each of the other nodes", len(cluster.nodes) - len(leaving))
    return _answer(search, leaving, stays, hopeless, state.gaps)


def find_stays(cluster: CompiledCluster) -> dict[int, Stay]:
    """Return the index of each node that cannot be removed, with the reason: the node itself or a pod on it."""
    stays = {number: node.stays for number, node in enumerate(cluster.nodes) if node.stays}
    for pod, node in zip(cluster.pods, cluster.node_of.tolist(), strict=True):
        if node >= 0 and pod.stays and not pod.goes_with_node:
            stays.setdefault(node, pod.stays)
    return stays


def _split_waiting(search: _Search) -> tuple[list[int], tuple[str, ...]]:
    """Return waiting pods that all trials place in the whole cluster, and names of the others, which are ignored."""
    alive, fitting, hopeless = search.alive_without(()), list(search.waiting), []
    placements = 0
    for number, trial in enumerate((*search.trials, *search.unseen)):
        if not fitting or (number >= len(search.trials) + FEWEST_UNSEEN and placements > search.most_unseen):
            break
        while (pod := place_pods(PlacingState.of(search.cluster, alive), fitting, trial)) is not None:
            fitting.remove(pod)
            hopeless.append(search.cluster.pods[pod].address)
            placements += len(fitting)
        placements += len(fitting)
    return fitting, tuple(hopeless)


def _order_candidates(search: _Search, candidates: Sequence[int]) -> list[int]:
    """Return the candidates in the order in which they are tried.

    Removing a node costs its capacity, and its pods need as much elsewhere, whatever they are. So the smallest nodes
    come first, and among equals those with the smallest largest pod. Zones alternate by what they have left, so that
    pods spread over zones keep their places.
    """
    cluster, largest = search.cluster, search.largest
    totals = np.maximum(cluster.allocatable.sum(axis=1), 1)
    shares = (cluster.allocatable / totals[:, None])[:2].mean(axis=0)
    requested = np.zeros(len(cluster.nodes))
    for pod, node in enumerate(cluster.node_of.tolist()):
        if node >= 0 and not cluster.pods[pod].goes_with_node:
            requested[node] += (cluster.demand[cluster.class_of[pod]] / totals)[:2].sum()
    share_left: dict[str, float] = defaultdict(float)
    for number, node in enumerate(cluster.nodes):
        share_left[node.zone] += float(shares[number])
    queues: dict[str, list[tuple[float, float, float, int]]] = defaultdict(list)
    for number in candidates:
        size, biggest = round(float(shares[number]), 9), round(float(largest[number]), 3)
        heapq.heappush(queues[cluster.nodes[number].zone], (size, biggest, float(requested[number]), number))
    order = []
    while any(queues.values()):
        zone = max((z for z, queue in queues.items() if queue), key=lambda z: (share_left[z], z))
        number = heapq.heappop(queues[zone])[-1]
        share_left[zone] -= float(shares[number])
        order.append(number)
    return order


def _longest_run(search: _Search, order: Sequence[int]) -> list[int]:
    """Return a long beginning of the order that the hardest trial places, by bisection below what amounts allow."""
    # Nodes of the order after which the others have less of some resource than all pods request, whatever the rules.
    # Pods that leave with their node request nothing elsewhere.
    cluster = search.cluster
    moving = np.zeros((len(cluster.resources), len(order)), dtype=np.int64)
    for number, node in enumerate(order):
        pods = search.pods_on.get(node, [])
        moving[:, number] = cluster.demand[cluster.class_of[pods]].sum(axis=0)
    waiting = cluster.demand[cluster.class_of[search.waiting]].sum(axis=0)
    free = np.maximum(cluster.allocatable - cluster.requested, 0)
    needed = waiting[:, None] + np.cumsum(moving, axis=1)
    capacity_left = free.sum(axis=1)[:, None] - np.cumsum(free[:, list(order)], axis=1)
    enough = (needed <= capacity_left).all(axis=0)
    most = len(order) if enough.all() else int(np.argmin(enough))
    low, high = 0, min(most, len(cluster.nodes) - 1)
    step = max(1, int(len(order) * RESOLUTION))
    middle = int(high * FIRST_GUESS) or high
    while low < high:
        fits = search.placed_by(search.trials[0], order[:middle]) is not None
        low, high = (middle, high) if fits else (low, middle - 1)
        if low and high - low < step:
            break
        middle = (low + high + 1) // 2
    return list(order[:low])


def _prove(search: _Search, leaving: list[int]) -> list[int]:
    """Remove nodes whose pods found no place from the set until every trial, unseen ones too, places all pods.

    From the second time on some of the last nodes are removed from the set as well.
    """
    further = 0
    while leaving and not (search.passes_unseen(leaving) and search.holds(leaving)):
        rest = [node for node in leaving if node != search.refused_on]
        further = further if len(rest) < len(leaving) else max(further, 1)
        leaving = rest[: len(rest) - further]
        further = 2 * further + 1
    return leaving


def _outlive_pods(search: _Search, leaving: list[int]) -> list[int]:
    """Return a long beginning of the removable nodes that keeps the reserve even after all pods are replaced.

    The set shrinks in growing steps until it holds; the longest one in between is found by bisection. Without a
    reserve, all nodes are returned.
    """
    if not leaving or not search.keeps_reserve:
        return leaving
    turnover = Turnover.of(search.cluster, search.waiting, search.options, search.exemptions)
    resolution = max(1, int(len(leaving) * SHRINK))
    low, high, step = len(leaving), len(leaving) + 1, resolution
    while low and not turnover.holds(search.alive_without(leaving[:low])):
        search.progress.advance()
        low, high, step = max(0, low - step), low, 2 * step
    while high - low > resolution:
        middle = (low + high) // 2
        holds = turnover.holds(search.alive_without(leaving[:middle]))
        low, high = (middle, high) if holds else (low, middle)
    return leaving[:low]


def _extend(search: _Search, order: Sequence[int], leaving: list[int]) -> list[int]:
    """Add other candidates in groups, halved if one does not fit, while the work limit allows."""
    rest = [node for node in order if node not in set(leaving)]
    size = max(1, len(rest) // 4)
    most = search.placements + MOST_PLACEMENTS
    while rest and search.placements < most:
        failed: list[int] = []
        for start in range(0, len(rest), size):
            group = rest[start : start + size]
            if search.placements < most and search.holds([*leaving, *group]):
                leaving = [*leaving, *group]
            else:
                failed += group
        if size == 1:
            break
        rest, size = failed, size // 2
    return leaving


def _answer(
    search: _Search, leaving: Sequence[int], stays: dict[int, Stay], hopeless: tuple[str, ...], gaps: tuple[str, ...]
) -> ClusterSize:
    cluster = search.cluster
    gone_numbers = set(leaving)
    turns = search.in_turns(leaving)
    proof = search.proof if leaving else {trial: search.placed_by(trial, leaving) for trial in search.trials}
    final = [(trial, state) for trial in GUIDES if (state := proof.get(trial)) is not None]
    first = final[0][1] if final else None
    # The share of each node that pods request, of CPU or memory, whichever is more: now, and after the first trial.
    columns = [cluster.resources.index(resource.value) for resource in Resource if resource.value in cluster.resources]
    allocatable = np.maximum(cluster.allocatable[columns], 1)
    capacity_left = allocatable - cluster.requested[columns]
    before = (1 - (capacity_left / allocatable).min(axis=0, initial=1.0)).tolist()
    if first is not None:
        capacity_left[:, first.places] = first.free[columns]
    after = (1 - (capacity_left / allocatable).min(axis=0, initial=1.0)).tolist()
    leaves = []
    for turn, number in enumerate(turns, 1):
        node, places = cluster.nodes[number], list[PodOfNode]()
        if first is not None:
            for pod in search.pods_on.get(number, ()):
                target = cluster.nodes[int(first.places[first.place_of[pod]])].name
                places.append(PodOfNode(cluster.pods[pod].address, cluster.pods[pod].owner, node.name, target))
        leaves.append(LeavingNode(node.name, node.zone, turn, node.allocatable, tuple(places), filled=before[number]))
    staying = []
    for number, node in enumerate(cluster.nodes):
        if number not in gone_numbers:
            stay = stays.get(number) or binding_of(final, number, search)
            shares = before[number], after[number]
            staying.append(StayingNode(node.name, node.zone, stay, node.allocatable, None, *shares))
            search.progress.advance()
    moved = [pod for pod in search.moving_pods(leaving) if cluster.node_of[pod] >= 0]
    unmodelled_counts = Counter(pod.unmodelled for pod in cluster.pods if pod.unmodelled)
    missing = []  # bytes of memory by which the requests of pods are below all steps of their recommendations
    for facts in cluster.pods:
        recommended = facts.later.get(RequestLevel.ALL_STEPS)
        if recommended is not None:
            missing.append(recommended.get(_MEMORY, 0) - facts.requests.get(_MEMORY, 0))
    return ClusterSize(
        leaving=tuple(leaves),
        staying=tuple(staying),
        trials=tuple(trial.words for trial, _ in final),
        options=search.options,
        waiting=hopeless,
        unmodelled=dict(unmodelled_counts),
        losing_storage=sum(cluster.pods[pod].temporary_storage for pod in moved),
        gaps=gaps,
        missing_memory=tuple(amount for amount in missing if amount > 0),
    )


def binding_of(final: Sequence[tuple[PlacingTrial, PlacingState]], node: int, search: _Search) -> Stay:
    """Return why the node stays. `final` has each trial's state after the removable nodes' pods moved to other nodes.

    The reason is the node's first pod that fits on no other node in a trial, with the refusals by rule. Else it is the
    first pod that finds no node when further nodes fail; else that no set of nodes with this one passed every trial.
    """
    hardest, after = search.trials[0], None
    for trial, state in final:
        if search.options.reserve_nodes and trial != hardest:
            continue  # every node failed in every trial, and its pods found places
        rest = state.copy_without(state.places == node)
        if not len(rest.places):
            return Stay(Reason.NO_OTHER_PLACE, "the node is the last remaining node")
        refused = place_pods(rest, moving_of(rest), trial)
        if refused is not None:
            text = refusal_words(rest, refused, trial)
            return Stay(Reason.NO_OTHER_PLACE, text, state.cluster.pods[refused].address)
        after = rest
    options = replace(search.options, reserve_zone=False)
    if options.reserve_nodes and after is not None:
        waiting = find_unplaced(after, options, hardest, search.exemptions, NAMED_FAILURES).pod
        if waiting:
            fail = "node fails" if options.reserve_nodes == 1 else f"{options.reserve_nodes} nodes fail"
            text = f"{waiting} finds no other node once this node is removed and a further {fail} ({hardest.words})"
            return Stay(Reason.NO_OTHER_PLACE, text, waiting)
    reserve = " and kept the reserve" if search.options.reserve_nodes or search.options.reserve_zone else ""
    text = "the node's pods fit elsewhere, but no tried removal that includes this node passed every placement trial"
    return Stay(Reason.NO_OTHER_PLACE, text + reserve)


def refusal_words(state: PlacingState, pod: int, trial: PlacingTrial) -> str:
    """Return a text with the pod and, for each rule, how many of the remaining nodes it is the first to refuse."""
    cluster = state.cluster
    pod_class = cluster.classes[cluster.class_of[pod]]
    refused = np.zeros(len(state.places), dtype=np.bool_)
    parts: list[tuple[int, str]] = []
    words_and_flags = [(text, flags[state.places]) for text, flags in pod_class.refusals.items()]
    for column, amount in zip(pod_class.columns.tolist(), pod_class.amounts.tolist(), strict=True):
        free, name = state.free[column], cluster.resources[column]
        usable = free[state.mask_of(pod_class) & (free < amount)]
        most = int(usable.max()) if len(usable) else 0
        needs = "" if name == PODS else f" (needs {_amount(name, amount)}, at most {_amount(name, max(most, 0))} free)"
        words_and_flags.append((f"{'pod count' if name == PODS else name}{needs}", free < amount))
    for why, flags in (*words_and_flags, *state.relation_refusals(pod_class)):
        new = int((flags & ~refused).sum())
        refused |= flags
        if new:
            parts.append((new, why))
    counted = ", ".join(f"{count} by {why}" for count, why in sorted(parts, key=lambda part: -part[0]))
    return f"{cluster.pods[pod].address} finds no other node ({trial.words}); {len(refused)} refuse it: {counted}"


def _amount(name: str, amount: int) -> str:
    kind = kind_of(name)
    if kind is Kind.MILLICORES:
        return f"{format_millicores(amount)} cores" if amount % 1000 == 0 else format_millicores(amount)
    return human_bytes(amount) if kind is Kind.BYTES else str(amount)
