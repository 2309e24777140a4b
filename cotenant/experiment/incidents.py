"""The effect of an incident, such as a flash crowd or an outage of Prometheus, on a simulated cluster. Pure.

Each begins on the second evaluated day: the flash crowd, the outage of Prometheus and the failure of nodes at the day's
busiest hour, the memory leak in the morning, the manager's outage at 20:00 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.backtesting.policies import NodesPast
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.experiment.outcome import STEP_SECONDS, Incident, SharingScenario

Floats = npt.NDArray[np.floating[Any]]

CROWD_FACTOR: Final = 2.0
"""Usage of latency-sensitive pods during a flash crowd, as a multiple of their usage without it."""
LEAK_SHARE: Final = 0.4
"""Share of a node's memory that a leak takes by its end."""
FAILING_SHARE: Final = 0.1
"""Share of the nodes that fail together, at least one node; the scenario's seed selects them."""
HOURS: Final = {
    Incident.FLASH_CROWD: 1,
    Incident.PROMETHEUS_AWAY: 1,
    Incident.MEMORY_LEAK: 8,
    Incident.MANAGER_DEAD: 10,
    Incident.NODE_FAILURE: 2,
}


@dataclass(frozen=True, slots=True)
class Effect:
    """An incident, its slots (`first` to `last`, exclusive), and the rows of the nodes that it makes fail."""

    incident: Incident | None = None
    first: int = 0
    last: int = 0
    failed: tuple[int, ...] = ()

    def during(self, slots: npt.NDArray[np.intp], incident: Incident) -> npt.NDArray[np.bool_]:
        """Return for each slot whether the given incident is active in it."""
        return np.asarray((self.incident is incident) & (self.first <= slots) & (slots < self.last))

    def on(self, past: NodesPast) -> NodesPast:
        """Return the nodes' past usage as it would be with the incident.

        A crowd multiplies CPU usage, a leak fills the first node's memory, pods of failed nodes move to the others.
        """
        part = slice(self.first, self.last)
        if self.incident is Incident.FLASH_CROWD and past.resource is Resource.CPU:
            return replace(past, prod=_times(past.prod, part), high=_times(past.high, part))
        if self.incident is Incident.MEMORY_LEAK and past.resource is Resource.MEMORY:
            leak = np.linspace(0.0, LEAK_SHARE * past.capacity[0], self.last - self.first)
            return replace(past, prod=_plus(past.prod, part, leak), high=_plus(past.high, part, leak))
        if self.failed:
            prod, high = (self._move_use(values, past.capacity) for values in (past.prod, past.high))
            system = past.system.copy()
            system[list(self.failed), part] = 0
            return replace(past, prod=prod, high=high, system=system)
        return past

    def _move_use(self, values: Floats, capacity: Floats) -> Floats:
        """Move the usage of restarted pods to the other nodes, in proportion to capacity; drop it if there are none."""
        part, failed = slice(self.first, self.last), list(self.failed)
        share = capacity.astype(np.float64)
        share[failed] = 0
        changed = values.copy()
        changed[failed, part] = 0
        if share.any():
            changed[:, part] += np.outer(share / share.sum(), values[failed, part].sum(axis=0))
        return changed


def effect_of(scenario: SharingScenario, cpu: NodesPast, first_slot: int) -> Effect:
    """Return the effect of the scenario's incident: its slots and the nodes that fail."""
    incident = scenario.incident
    if incident is None:
        return Effect()
    per_hour = HOUR_SECONDS // STEP_SECONDS
    day = slice(first_slot + 24 * per_hour, first_slot + 48 * per_hour)
    busiest = day.start + int(cpu.high[:, day].sum(axis=0).argmax())
    morning_seconds = cpu.grid.start_seconds + day.start * STEP_SECONDS
    night = day.start + (20 * HOUR_SECONDS - morning_seconds) % DAY_SECONDS // STEP_SECONDS
    first = {Incident.MANAGER_DEAD: night, Incident.MEMORY_LEAK: day.start}.get(incident, busiest)
    failed: tuple[int, ...] = ()
    if incident is Incident.NODE_FAILURE:
        nodes = len(cpu.nodes)
        rng = np.random.default_rng([scenario.seed, 5])
        failed = tuple(sorted(rng.choice(nodes, max(1, int(FAILING_SHARE * nodes)), replace=False).tolist()))
    return Effect(incident, first, min(first + HOURS[incident] * per_hour, cpu.grid.size), failed)


def _times(values: Floats, part: slice) -> Floats:
    changed = values.copy()
    changed[:, part] *= CROWD_FACTOR
    return changed


def _plus(values: Floats, part: slice, leak: Floats) -> Floats:
    changed = values.copy()
    changed[0, part] += leak
    return changed
