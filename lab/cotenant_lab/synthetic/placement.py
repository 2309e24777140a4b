"""The node of every seat: filtered by requests as kube-scheduler does, spread by what the pods need.

Without the spreading all pods that declare no request would be on the emptiest node (Koordinator's load-aware plugin
estimates them for the same reason).

A seat is one replica's place; the pods that follow each other in it (deploys, autoscaling, runs of a CronJob) keep its
node, so a placement that fits once fits at every moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Node
from cotenant.base.resource import Resource
from cotenant_lab.synthetic.size import Sized

Ints = npt.NDArray[np.int64]
UNPLACED = -1


def assign_seats(fleet: Sequence[Sized], nodes: Sequence[Node]) -> tuple[Ints, ...]:
    """Return by workload the node index of each seat (a pod's place); UNPLACED if it fits nowhere and stays pending.

    Node agents come first, then the largest requests; each seat goes to the node that it leaves most evenly free.
    """
    allocatable = np.array([[node.allocatable[r] for r in Resource] for node in nodes], dtype=np.int64)
    requests = np.array([[sized.request[r] for r in Resource] for sized in fleet], dtype=np.int64)
    needs = np.array([[sum(size[r] for size in sized.wish) for r in Resource] for sized in fleet], dtype=np.int64)
    free, idle = allocatable.copy(), allocatable.copy()
    places = [np.full(sized.blueprint.seats, UNPLACED, dtype=np.int64) for sized in fleet]
    for index in _order(fleet, needs / allocatable.mean(axis=0)):
        daemon = fleet[index].blueprint.ref.kind == "DaemonSet"
        for seat in range(fleet[index].blueprint.seats):
            fits = (free >= requests[index]).all(axis=1)
            fits &= (np.arange(len(nodes)) == seat) if daemon else True
            if fits.any():
                free_share = ((idle - needs[index]) / allocatable).min(axis=1)
                node = int(np.argmax(np.where(fits, free_share, -np.inf)))
                places[index][seat] = node
                free[node] -= requests[index]
                idle[node] -= needs[index]
    return tuple(places)


def _order(fleet: Sequence[Sized], shares: npt.NDArray[np.float64]) -> list[int]:
    """Agents, then by the larger share of a node, then as listed."""
    daemon = [sized.blueprint.ref.kind == "DaemonSet" for sized in fleet]
    return sorted(range(len(fleet)), key=lambda i: (not daemon[i], -shares[i].max(), i))
