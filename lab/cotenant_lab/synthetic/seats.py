"""The seats' containers as columns for `demand`, a row per (workload, seat, container). A seat is a replica's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Node
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant_lab.synthetic.lifetimes import Life, Lives
from cotenant_lab.synthetic.placement import UNPLACED
from cotenant_lab.synthetic.size import Sized
from cotenant_lab.synthetic.spec import Shape, SyntheticSpec

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Seats:
    """Containers of all seats (pods' places) as columns, (n,); amounts in millicores and bytes, infinite = no limit."""

    workload: Ints
    seat: Ints
    part: Ints
    node: Ints
    life: tuple[Life, ...]
    wish: dict[Resource, Floats]
    limit: dict[Resource, Floats]
    level: dict[Resource, Floats]
    """Mean use at relative load 1."""

    def __len__(self) -> int:
        return len(self.workload)

    def alive(self, grid: TimeGrid, rows: slice) -> npt.NDArray[np.bool_]:
        """Return the mask of the slots in which a pod runs in the rows' seats, (rows, grid.size)."""
        mask = np.zeros((len(self.workload[rows]), grid.size), dtype=bool)
        for row, life in enumerate(self.life[rows]):
            for start, end in life.runs:
                mask[row, max(start, 0) : max(end, 0)] = True
        return mask

    def age(self, grid: TimeGrid, rows: slice) -> npt.NDArray[np.float32]:
        """Return the slots since the container's last start, (rows, grid.size); meaningless while no pod runs."""
        slots = np.arange(grid.size)
        started = np.full((len(self.workload[rows]), grid.size), -(1 << 20), dtype=np.int64)
        for row, (life, part) in enumerate(zip(self.life[rows], self.part[rows], strict=True)):
            starts = [start for start, _ in life.runs] + [r.slot for r in life.restarts if part == 0]
            for start in sorted(starts):
                started[row, max(start, 0) : max(start, 0) + 1] = start
        return (slots - np.maximum.accumulate(started, axis=1)).astype(np.float32)


def seats(
    spec: SyntheticSpec, fleet: Sequence[Sized], lives: Sequence[Lives], places: Sequence[Ints], nodes: Sequence[Node]
) -> Seats:
    """Return the containers of every placed seat, their usage scaled so that the cluster uses the spec's shares."""
    rows = [
        (w, s, p)
        for w, sized in enumerate(fleet)
        for s in range(sized.blueprint.seats)
        if places[w][s] != UNPLACED
        for p in range(len(sized.containers))
    ]
    workload, seat, part = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    node = np.array([places[w][s] for w, s, _ in rows], dtype=np.int64)
    life = tuple(lives[w].seats[s] for w, s, _ in rows)
    size = {r: np.array([fleet[w].wish[p][r] for w, _, p in rows], dtype=float) for r in Resource}
    limit = {r: np.array([fleet[w].most[p].get(r, np.inf) for w, _, p in rows]) for r in Resource}
    bare = Seats(workload, seat, part, node, life, size, limit, {})
    return replace(bare, level={r: _level(spec, bare, fleet, nodes, r) for r in Resource})


def _level(
    spec: SyntheticSpec, seats: Seats, fleet: Sequence[Sized], nodes: Sequence[Node], resource: Resource
) -> Floats:
    """Mean use of every row: what its blueprint says, times one factor for the crowd, under a roof near its limit."""
    cpu = resource is Resource.CPU
    parts = [fleet[w].blueprint.parts[p] for w, p in zip(seats.workload, seats.part, strict=True)]
    stated = np.array([part.busy if cpu else part.full for part in parts]) * seats.wish[resource]
    roof = seats.limit[resource] * np.array([part.roof if cpu else 0.88 for part in parts])
    fixed = np.array([_has_fixed_level(fleet[w]) for w in seats.workload])
    # The nodes' own processes use about 2 %.
    share = (spec.cpu_used if cpu else spec.memory_used) - 0.02
    target = share * sum(node.allocatable[resource] for node in nodes)
    roof = np.minimum(roof, 3.0 * seats.wish[resource])
    return _scale_to_target(stated, roof, _alive_share(spec.grid, seats.life), fixed, target)


def _has_fixed_level(sized: Sized) -> bool:
    """Return whether a workload keeps its level whatever the cluster's target.

    The story's workloads, the agents and the idle ones do.
    """
    return sized.blueprint.told or sized.blueprint.archetype == "agent" or sized.blueprint.shape is Shape.IDLE


def _alive_share(grid: TimeGrid, life: Sequence[Life]) -> Floats:
    taken = [sum(min(b, grid.size) - max(a, 0) for a, b in seat.runs if b > 0 and a < grid.size) for seat in life]
    return np.array(taken, dtype=float) / grid.size


def _scale_to_target(level: Floats, roof: Floats, share: Floats, fixed: npt.NDArray[np.bool_], target: float) -> Floats:
    """Levels times one factor, under their roofs, so that their expected sum is the target, as near as roofs allow."""
    factor = 1.0
    for _ in range(20):
        scaled = np.minimum(np.where(fixed, level, level * factor), roof)
        moving = float((scaled * share)[~fixed].sum())
        missing = target - float((scaled * share)[fixed].sum())
        factor *= float(np.clip(missing / moving, 0.5, 2.0)) if moving > 0 and missing > 0 else 1.0
    return np.minimum(np.where(fixed, level, level * factor), roof)
