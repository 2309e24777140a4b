"""The reserve: whether nodes or a zone may fail after others have left, also once all pods are replaced. Pure.

A group of nodes is removed from a trial's final state, and its pods are placed on the rest. For a reserve of N nodes
the groups are N nodes each, in the order of how full they are, so that every node fails once and the N fullest fail
together. For a reserve of a zone each zone is a group.

The reserve outlives the pods (`Turnover`). A scheduler that spreads load evenly leaves a little on each node: a large
pod that fits somewhere today may fit nowhere once other pods have been replaced, as roll-outs do within weeks. So every
pod that a controller creates again is placed anew on the staying nodes, in random order, before nodes fail. A trial
that fails even with today's whole cluster says nothing about its size and does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.errors import UsageError
from cotenant.base.text import counted, format_value
from cotenant.scheduler_ext.arrays import Flags
from cotenant.scheduler_ext.cluster_size.constraints import SCORED, CompiledCluster, move_pods
from cotenant.scheduler_ext.cluster_size.model import ZONE_LABEL, SizedNode, SizeOptions
from cotenant.scheduler_ext.cluster_size.placing import (
    Order,
    PlacingState,
    PlacingTrial,
    ScoreRule,
    moving_of,
    place_pods,
)

NODE_FAILURE: Final = ""  # name of the failure of single nodes; that of a zone has the zone's name
Exemptions = Mapping[str, frozenset[int]]  # failure -> pods that would wait after the same failure of today's cluster
REPLACEMENTS: Final = tuple(PlacingTrial(Order.RANDOM, ScoreRule.STOCK, seed) for seed in range(201, 211))
MOST_REPLACED: Final = 30_000  # placements after which no further trials are made for the same nodes


class UnplacedPod(NamedTuple):
    """The first pod without a place after nodes fail (NAMESPACE/NAME, "" if none), and how many pods were placed."""

    pod: str
    placements: int


def find_unplaced(
    state: PlacingState,
    options: SizeOptions,
    trial: PlacingTrial,
    exemptions: Exemptions = MappingProxyType({}),
    most_failures: int | None = None,
) -> UnplacedPod:
    """Return the first pod that finds no place after a failure of nodes or a zone that the reserve covers, "" if none.

    `exemptions` are pods that do not count in certain failures (`find_exemptions`). `most_failures` is how many node
    failures to try, the fullest nodes first; None for all.
    """
    placements = 0
    for number, (failure, group) in enumerate(failure_groups(state, options)):
        if failure == NODE_FAILURE and most_failures is not None and number >= most_failures:
            continue
        state_left, pods = _fail(state, group)
        exempt = exemptions.get(failure, frozenset())
        counted = [pod for pod in pods if pod not in exempt]
        placements += len(counted)
        pod = place_pods(state_left, counted, trial) if len(state_left.places) else next(iter(pods), None)
        if pod is not None:
            return UnplacedPod(state.cluster.pods[pod].address, placements)
    return UnplacedPod("", placements)


def find_exemptions(state: PlacingState, options: SizeOptions, trial: PlacingTrial) -> Exemptions:
    """Return, by failure, the pods that find no place after it even in the whole cluster, and therefore do not count.

    Such pods may need the failed nodes (for a volume or a label), or run on every node. A pod exempt in one zone's
    failure still counts when a node or another zone fails.
    """
    exempt: dict[str, set[int]] = defaultdict(set)
    for failure, group in failure_groups(state, options):
        state_left, pods = _fail(state, group)
        is_last = not len(state_left.places)  # no node is left for any pod
        exempt[failure] |= {pod for pod in pods if is_last or place_pods(state_left, [pod], trial) is not None}
    return {failure: frozenset(pods) for failure, pods in exempt.items()}


def require_other_nodes(nodes: Sequence[SizedNode], options: SizeOptions) -> None:
    """Raise UsageError if a failure that the reserve covers would leave no node."""
    if nodes and options.reserve_nodes >= len(nodes):
        raise UsageError(
            f"--reserve-nodes {options.reserve_nodes}: the cluster has {counted(len(nodes), 'node')}, and none would "
            "be left",
            fix=f"Give a number below {len(nodes)}.",
        )
    zones = {node.zone for node in nodes}
    if options.reserve_zone and len(zones) == 1:
        (zone,) = zones
        where = f"all nodes are in zone {format_value(zone, 63)}" if zone else f"no node has the label {ZONE_LABEL}"
        raise UsageError(
            f"--reserve-zone: {where}, and none would be left",
            fix="Give --reserve-nodes N: N nodes may fail at the same time.",
        )


def failure_groups(state: PlacingState, options: SizeOptions) -> Iterator[tuple[str, list[int]]]:
    """Yield the name of each failure, and the indices of the remaining nodes that fail together."""
    count = options.reserve_nodes
    if count:
        used = 1 - (state.free[: len(SCORED)] / state.capacity).min(axis=0)
        order = np.argsort(-used, kind="stable").tolist()
        yield from ((NODE_FAILURE, order[start : start + count]) for start in range(0, len(order), count))
    if options.reserve_zone:
        zones: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(state.places.tolist()):
            zones[state.cluster.nodes[node].zone].append(index)
        yield from ((zone, zones[zone]) for zone in sorted(zones))


def _fail(state: PlacingState, group: list[int]) -> tuple[PlacingState, list[int]]:
    """Return the state without the group, and the pods of the group to place again."""
    is_gone = np.zeros(len(state.places), dtype=np.bool_)
    is_gone[group] = True
    state_left = state.copy_without(is_gone)
    return state_left, moving_of(state_left)


@dataclass(slots=True)
class Turnover:
    """Trials that place all `pods` anew, on an otherwise unchanged `cluster` in which none of them has a node."""

    cluster: CompiledCluster
    pods: Sequence[int]
    options: SizeOptions
    exemptions: Exemptions
    trials: list[PlacingTrial] = field(default_factory=lambda: list(REPLACEMENTS))
    checked: set[PlacingTrial] = field(default_factory=set)  # trials that the whole cluster passes

    @classmethod
    def of(
        cls, cluster: CompiledCluster, waiting: Sequence[int], options: SizeOptions, exemptions: Exemptions
    ) -> Turnover:
        """Return trials that place anew all pods that may leave their node, and the `waiting` pods, which have none."""
        nowhere = cluster.node_of.copy()
        for number, pod in enumerate(cluster.pods):
            if not pod.goes_with_node and not pod.stays:
                nowhere[number] = -1
        replaced = np.flatnonzero(cluster.node_of != nowhere)
        return cls(move_pods(cluster, nowhere), [*replaced.tolist(), *waiting], options, exemptions)

    def holds(self, alive: Flags) -> bool:
        """Return whether all trials place all pods on `alive` nodes, also after each failure that the reserve covers.

        A trial that fails on all nodes of the cluster too is dropped. One that fails only on the `alive` nodes comes
        first in the next call: it will probably fail again. After MOST_REPLACED placements no further trial is made.
        """
        placements = 0
        for trial in tuple(self.trials):
            if placements >= MOST_REPLACED:
                break
            needed = self._placements_of(trial, alive)
            if needed is not None:
                placements += needed
                continue
            all_nodes = np.ones(len(self.cluster.nodes), dtype=np.bool_)
            counts = trial in self.checked or self._placements_of(trial, all_nodes) is not None
            self.trials.remove(trial)  # for good where the whole cluster does not pass it either
            if counts:
                self.checked.add(trial)
                self.trials.insert(0, trial)
                return False
        return True

    def _placements_of(self, trial: PlacingTrial, alive: Flags) -> int | None:
        """Return how many pods a trial placed; None if one found no place."""
        state = PlacingState.of(self.cluster, alive)
        if place_pods(state, self.pods, trial) is not None:
            return None
        refused = find_unplaced(state, self.options, trial, self.exemptions)
        return None if refused.pod else len(self.pods) + refused.placements
