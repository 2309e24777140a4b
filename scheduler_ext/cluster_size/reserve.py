"""The reserve: whether nodes, or a zone, may fail after the others have left. Pure.

A failure group is taken away from the state that a trial ended in, and its pods are placed on the rest. Groups: each
single node for a reserve of one; for N nodes, N at a time in the order of what they hold, so that every node fails
once and the N fullest fail together; each zone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from cotenant.scheduler_ext.cluster_size.constraints import SCORED
from cotenant.scheduler_ext.cluster_size.model import SizeOptions
from cotenant.scheduler_ext.cluster_size.placing import PlacingState, Trial, place_pods


def find_unplaced(state: PlacingState, options: SizeOptions, trial: Trial, exempt: Collection[int] = ()) -> str:
    """The first pod that would wait after a failure that the reserve covers, as NAMESPACE/NAME; "" when none would.

    exempt: pods that would wait after a failure of today's cluster too (`find_exempt`).
    """
    for group in failure_groups(state, options):
        left, pods = _fail(state, group)
        pod = (
            place_pods(left, [one for one in pods if one not in exempt], trial)
            if len(left.places)
            else next(iter(pods), None)
        )
        if pod is not None:
            return state.cluster.pods[pod].address
    return ""


def find_exempt(state: PlacingState, options: SizeOptions, trial: Trial) -> frozenset[int]:
    """Pods that find no place after a failure of the whole cluster, so that no size of it helps them.

    They may run only in what fails (a volume there, a label), or on one node each where every node has one.
    """
    exempt: set[int] = set()
    for group in failure_groups(state, options):
        left, pods = _fail(state, group)
        exempt.update(pod for pod in pods if not len(left.places) or place_pods(left, [pod], trial) is not None)
    return frozenset(exempt)


def failure_groups(state: PlacingState, options: SizeOptions) -> Iterator[list[int]]:
    """Places among the living nodes that fail together."""
    count = options.reserve_nodes
    if count:
        used = 1 - (state.free[: len(SCORED)] / state.capacity).min(axis=0)
        order = np.argsort(-used, kind="stable").tolist()
        yield from (order[start : start + count] for start in range(0, len(order), count))
    if options.reserve_zone:
        zones: dict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(state.places.tolist()):
            zones[state.cluster.nodes[node].zone].append(place)
        yield from (zones[zone] for zone in sorted(zones))


def _fail(state: PlacingState, group: list[int]) -> tuple[PlacingState, list[int]]:
    """The state without the group, and the pods of the group that are placed again."""
    gone = np.zeros(len(state.places), dtype=np.bool_)
    gone[group] = True
    left = state.copy_without(gone)
    return left, [pod for pod, _ in left.gone if not state.cluster.pods[pod].goes_with_node]
