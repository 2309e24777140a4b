"""On which node every seat stands: a bin-packing as kube-scheduler does it, on requests alone.

A seat is one replica's place; the pods that follow each other in it (deploys, autoscaling, runs of a CronJob) keep its
node, so a placement that fits once fits at every moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cotenant.model.cluster import Node
from cotenant.model.resource import Resource
from profiler.synthetic.sizing import Sized

Ints = npt.NDArray[np.int64]
UNPLACED = -1


def place(fleet: Sequence[Sized], nodes: Sequence[Node]) -> tuple[Ints, ...]:
    """Node index of every seat of every workload (`UNPLACED` where it fits nowhere: a pod that stays pending).

    Node agents first, then the largest requests; each seat goes to the node it leaves most evenly free.
    """
    allocatable = np.array([[node.allocatable[r] for r in Resource] for node in nodes], dtype=np.int64)
    requests = np.array([[sized.request[r] for r in Resource] for sized in fleet], dtype=np.int64)
    free = allocatable.copy()
    pods = np.zeros(len(nodes), dtype=np.int64)
    places: list[Ints] = [np.full(sized.blueprint.seats, UNPLACED, dtype=np.int64) for sized in fleet]
    for index in _order(fleet, requests, allocatable):
        daemon = fleet[index].blueprint.ref.kind == "DaemonSet"
        for seat in range(fleet[index].blueprint.seats):
            candidates = np.array([seat]) if daemon else np.arange(len(nodes))
            places[index][seat] = _choose(requests[index], candidates, free, allocatable, pods)
            if places[index][seat] != UNPLACED:
                free[places[index][seat]] -= requests[index]
                pods[places[index][seat]] += 1
    return tuple(places)


def _order(fleet: Sequence[Sized], requests: Ints, allocatable: Ints) -> list[int]:
    """Agents, then by the larger share of a node, then as listed."""
    weight = (requests / allocatable.mean(axis=0)).max(axis=1)
    daemon = [sized.blueprint.ref.kind == "DaemonSet" for sized in fleet]
    return sorted(range(len(fleet)), key=lambda i: (not daemon[i], -weight[i], i))


def _choose(request: Ints, candidates: Ints, free: Ints, allocatable: Ints, pods: Ints) -> int:
    """The candidate with the largest free share of its scarcer resource after the pod, fewest pods for a tie."""
    left = free[candidates] - request
    fits = (left >= 0).all(axis=1)
    if not fits.any():
        return UNPLACED
    score = (left / allocatable[candidates]).min(axis=1) - 1e-6 * pods[candidates]
    return int(candidates[np.argmax(np.where(fits, score, -np.inf))])
