"""Clusters to simulate: the usage of latency-sensitive pods and the system on every node, by time slot. Pure.

The cluster's own batch pods are left out, because the experiment adds its own. A gap in scrapes does not stop a pod, so
gaps are filled with the value before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.backtesting.policies import NodesPast, decision_slots
from cotenant.base.errors import NoData
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.experiment.incidents import Effect, effect_of
from cotenant.experiment.outcome import STEP_SECONDS, Incident, SharingScenario
from cotenant.forecasting.node_peaks.peak_records import RECORD_DAYS

Floats = npt.NDArray[np.floating[Any]]

HISTORY_DAYS: Final = RECORD_DAYS
"""Days of history before the first evaluated step, from which calibrated peaks are computed."""
SLOTS_PER_DAY: Final = DAY_SECONDS // STEP_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A cluster to simulate: scenario, nodes and incident, which are the same under every way of sharing.

    `past` is the nodes' usage by resource, without memory if a trace has none; all slots from `first_slot` on are
    evaluated; `effect` is that of the scenario's incident.
    """

    scenario: SharingScenario
    past: Mapping[Resource, NodesPast]
    first_slot: int
    effect: Effect

    @property
    def steps(self) -> range:
        """The numbers of the time slots that are simulated."""
        return range(self.first_slot, self.past[Resource.CPU].grid.size)

    def need(self, resource: Resource) -> Floats:
        """Return the usage of each node by everything but batch in every slot, (n, slots), at most its capacity."""
        past = self.past[resource]
        needed: Floats = np.minimum(past.high + past.system, past.capacity[:, None])
        return needed

    @property
    def cores(self) -> Floats:
        """The cores of each node, (n,)."""
        return self.past[Resource.CPU].capacity / 1000


def world_of(scenario: SharingScenario, past: Mapping[Resource, NodesPast]) -> World:
    """Return the cluster of these nodes with the scenario's incident; its last `days` are evaluated.

    The evaluation begins at a decision on the nodes' peaks. If fewer days follow the history than requested, the
    returned scenario has their number. Raises NoData if none follows or the incident cannot happen.
    """
    of_cpu = past[Resource.CPU]
    slots = decision_slots(of_cpu.grid, of_cpu.older)
    earliest = of_cpu.grid.size - scenario.days * SLOTS_PER_DAY
    later = slots[slots >= earliest]
    if not len(later):
        raise NoData(
            f"{of_cpu.grid.size / SLOTS_PER_DAY:.1f} days of node usage are stored; {HISTORY_DAYS} days of history "
            "and one more day are needed",
            fix="Keep scanning, or scan once with a longer profiler.window_days if the source has more history.",
        )
    first = int(later[0])
    # Policies that ask for demand are not run here.
    filled = {
        r: replace(
            of,
            demand=None,
            prod=forward_filled(of.prod),
            high=forward_filled(of.high),
            system=forward_filled(of.system),
        )
        for r, of in past.items()
    }
    days = (of_cpu.grid.size - first) // SLOTS_PER_DAY
    # NoData where an incident has no second day, or nothing that it could happen to.
    incident = scenario.incident
    if incident is not None and days < 2:
        raise NoData(
            f"{incident} happens on the second evaluated day; only {days} day follows {HISTORY_DAYS} days of history",
            fix="Give --days 2 or more; with --trace stored, keep scanning.",
        )
    if incident is Incident.MEMORY_LEAK and Resource.MEMORY not in past:
        fix = "Choose another incident, or a trace with the memory of pods."
        raise NoData(f"{incident} needs the memory of pods, which this trace lacks", fix=fix)
    effect = effect_of(scenario, filled[Resource.CPU], first)
    return World(replace(scenario, days=days), {r: effect.on(of) for r, of in filled.items()}, first, effect)


def forward_filled(values: Floats) -> Floats:
    """Return values (n, slots) with gaps filled by the value before, else the row's first; empty rows become 0."""
    present = np.isfinite(values)
    place = np.where(present, np.arange(values.shape[1]), 0)
    np.maximum.accumulate(place, axis=1, out=place)
    firsts = present.argmax(axis=1)[:, None]
    filled: Floats = np.nan_to_num(np.take_along_axis(values, np.maximum(place, firsts), axis=1))
    return filled
