"""What an incident does to a simulated cluster. Pure.

Each begins on the second judged day: the flash crowd and Prometheus's absence at the day's busiest hour, the leak in
the morning, the manager's night at 20:00 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.apps.backtest.policies import NodesPast
from cotenant.apps.experiment.outcome import STEP_SECONDS, Incident, SharingScenario
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.usage import DAY_SECONDS, HOUR_SECONDS

Floats = npt.NDArray[np.floating[Any]]

CROWD_FACTOR: Final = 2.0
"""Of the use of latency-sensitive pods while a flash crowd is there."""
LEAK_SHARE: Final = 0.4
"""Of a node's memory that the leak takes by its end."""
HOURS: Final = {
    Incident.FLASH_CROWD: 1,
    Incident.PROMETHEUS_AWAY: 1,
    Incident.MEMORY_LEAK: 8,
    Incident.MANAGER_DEAD: 10,
}


@dataclass(frozen=True, slots=True)
class Effect:
    """The slots [first, last) of an incident, none of them without one."""

    incident: Incident | None = None
    first: int = 0
    last: int = 0

    def during(self, slots: npt.NDArray[np.intp], incident: Incident) -> npt.NDArray[np.bool_]:
        """Whether this incident is going on in each slot."""
        return np.asarray((self.incident is incident) & (self.first <= slots) & (slots < self.last))

    def on(self, past: NodesPast) -> NodesPast:
        """What the nodes do with it: a crowd multiplies use, a leak fills the first node's memory."""
        part = slice(self.first, self.last)
        if self.incident is Incident.FLASH_CROWD and past.resource is Resource.CPU:
            return replace(past, prod=_times(past.prod, part), high=_times(past.high, part))
        if self.incident is Incident.MEMORY_LEAK and past.resource is Resource.MEMORY:
            leak = np.linspace(0.0, LEAK_SHARE * past.capacity[0], self.last - self.first)
            return replace(past, prod=_plus(past.prod, part, leak), high=_plus(past.high, part, leak))
        return past


def effect_of(scenario: SharingScenario, cpu: NodesPast, first_slot: int) -> Effect:
    """When the scenario's incident is."""
    incident = scenario.incident
    if incident is None:
        return Effect()
    per_hour = HOUR_SECONDS // STEP_SECONDS
    day = slice(first_slot + 24 * per_hour, first_slot + 48 * per_hour)
    busiest = day.start + int(cpu.high[:, day].sum(axis=0).argmax())
    morning_seconds = cpu.grid.start_seconds + day.start * STEP_SECONDS
    night = day.start + (20 * HOUR_SECONDS - morning_seconds) % DAY_SECONDS // STEP_SECONDS
    first = {Incident.MANAGER_DEAD: night, Incident.MEMORY_LEAK: day.start}.get(incident, busiest)
    return Effect(incident, first, min(first + HOURS[incident] * per_hour, cpu.grid.size))


def _times(values: Floats, part: slice) -> Floats:
    changed = values.copy()
    changed[:, part] *= CROWD_FACTOR
    return changed


def _plus(values: Floats, part: slice, leak: Floats) -> Floats:
    changed = values.copy()
    changed[0, part] += leak
    return changed
