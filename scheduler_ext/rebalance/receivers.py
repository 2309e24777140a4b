"""Nodes that may receive pods, with the unrequested capacity of each. A round changes its own copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotenant.scheduler_ext.arrays import Flags, Floats, Rows
from cotenant.scheduler_ext.extender.stock_rules import refusals
from cotenant.scheduler_ext.rebalance.load import NodeLoad, RebalancePod
from cotenant.scheduler_ext.volumes.bound_volumes import can_use

PODS: Final = "pods"
UNLIMITED_PODS: Final = 10**9  # where a node does not say how many pods it takes


@dataclass(slots=True)
class Receivers:
    """Nodes that may receive pods, as `rows` of `loads`; `free` has unrequested amounts (receivers,) by resource."""

    loads: Sequence[NodeLoad]
    rows: Rows
    free: dict[str, Floats]
    permitted: dict[bytes, Flags] = field(default_factory=dict)
    usable: dict[bytes, Flags] = field(default_factory=dict)

    @classmethod
    def of(cls, loads: Sequence[NodeLoad], rows: Rows, arrivals: Iterable[tuple[RebalancePod, int]] = ()) -> Receivers:
        """Return the receivers; `arrivals` are pods that this round has already moved, with their target rows."""
        free: dict[str, Floats] = {}
        for index, row in enumerate(rows):
            load = loads[row]
            rest = dict(load.node.allocatable)
            rest.setdefault(PODS, UNLIMITED_PODS)
            for pod in load.pods:
                for name, amount in pod.facts.requests.items():
                    rest[name] = rest.get(name, 0) - amount
            rest[PODS] -= len(load.pods)
            for name, amount in rest.items():
                free.setdefault(name, np.zeros(len(rows)))[index] = amount
        receivers = cls(loads, rows, free)
        places = {int(row): index for index, row in enumerate(rows)}
        for pod, target in arrivals:
            if target in places:
                receivers.take(places[target], pod)
        return receivers

    def take(self, index: int, pod: RebalancePod, times: int = 1) -> None:
        """Subtract the pod's requests from a receiver's free capacity; if `times` is -1, add them again."""
        for name, amount in (*pod.facts.requests.items(), (PODS, 1)):
            if name in self.free:
                self.free[name][index] -= times * amount

    def fits(self, pod: RebalancePod) -> Flags:
        """Return a mask (receivers,): those that have the pod's requests free, may run it and can use its volumes."""
        fits = self.reach_volumes(pod)
        for name, amount in (*pod.facts.requests.items(), (PODS, 1)):
            fits &= self.free.get(name, np.zeros(len(fits))) >= amount
        if pod.placement not in self.permitted:
            nodes = [self.loads[row].node for row in self.rows]
            permitted = np.ones(len(nodes), dtype=np.bool_)
            for refused in refusals(pod.constraints(), nodes).values():
                permitted &= ~np.array(refused, dtype=np.bool_)
            self.permitted[pod.placement] = permitted
        return fits & self.permitted[pod.placement]

    def reach_volumes(self, pod: RebalancePod) -> Flags:
        """Return a mask (receivers,): those that can use the pod's volumes, as far as these are known."""
        reach = np.ones(len(self.rows), dtype=np.bool_)
        for affinity in pod.volumes or ():
            if affinity not in self.usable:
                nodes = (self.loads[row].node for row in self.rows)
                self.usable[affinity] = np.array(can_use(affinity, nodes), dtype=np.bool_)
            reach &= self.usable[affinity]
        return reach
