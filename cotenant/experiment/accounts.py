"""The accounts of one simulated run: sums, columns by step, and the outcome computed from them. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.experiment.batch_jobs import BatchJobs
from cotenant.experiment.interference import Interference, latency_multiplier
from cotenant.experiment.outcome import STEP_SECONDS, Sharing, SharingOutcome, SharingTimeline
from cotenant.experiment.world import World

Floats = npt.NDArray[np.float64]

STEP_HOURS: Final = STEP_SECONDS / HOUR_SECONDS
_COLUMNS: Final = ("online", "batch", "offered", "bound", "suppressed", "short", "evicted", "alone", "shared")


class Accounts:
    """Sums over the nodes of a simulated cluster for each step of five minutes; steps are entered one at a time."""

    def __init__(self, world: World, jobs: BatchJobs, model: Interference) -> None:
        self._world, self._jobs, self._model = world, jobs, model
        self._columns = {name: np.zeros(len(world.steps)) for name in _COLUMNS}
        self._ended_at = np.full(len(jobs.arrival), -1, dtype=np.intp)
        self.lost_millicore_steps = 0.0
        """Work of evicted jobs, which starts again."""

    def ended(self, jobs: npt.NDArray[np.intp], step: int) -> None:
        """Record the step in which these jobs have ended."""
        self._ended_at[jobs] = step

    def step(self, step: int, needed: Floats, batch: Floats, amounts: dict[str, Floats], evicted: int) -> None:
        """Enter a step: usage of services (`needed`) and batch, (2, n): CPU, memory; nodes' `amounts`; evicted pods."""
        columns = self._columns
        for name, values in amounts.items():
            columns[name][step] = values.sum()
        columns["online"][step], columns["batch"][step] = needed[0].sum(), batch[0].sum()
        columns["evicted"][step] = evicted
        world = self._world
        capacity = world.past[Resource.CPU].capacity
        memory = world.past.get(Resource.MEMORY)
        size = np.full(len(capacity), np.inf) if memory is None else memory.capacity
        online = needed[0] / capacity
        for name, cpu, of_memory in (("alone", 0.0 * batch[0], needed[1]), ("shared", batch[0], needed[1] + batch[1])):
            slower = latency_multiplier(self._model, world.cores, online, cpu / capacity, of_memory / size)
            columns[name][step] = float((slower * needed[0]).sum())

    def outcome(self, sharing: Sharing, knob: float) -> SharingOutcome:
        """Return the outcome over all entered steps of this way of sharing (`knob` is its parameter)."""
        columns, jobs = self._columns, self._jobs
        capacity = float(self._world.past[Resource.CPU].capacity.sum())
        nodes, steps = len(self._world.cores), len(self._world.steps)
        due = jobs.deadline < steps
        met = due & (self._ended_at >= 0) & (self._ended_at <= jobs.deadline)
        core_hours = STEP_HOURS / MILLICORES_PER_CORE
        start = self._world.past[Resource.CPU].grid.start_seconds + self._world.first_slot * STEP_SECONDS
        cores: dict[str, Any] = {
            f"{name}_cores": columns[name] / MILLICORES_PER_CORE for name in ("online", "batch", "offered", "bound")
        }
        timeline = SharingTimeline(
            time_seconds=start + STEP_SECONDS * np.arange(steps, dtype=np.float64),
            capacity_cores=np.full(steps, capacity / MILLICORES_PER_CORE),
            latency_ratio=columns["shared"] / np.maximum(columns["alone"], 1e-9),
            short_ratio=columns["short"] / nodes,
            evictions=columns["evicted"],
            **cores,
        )
        return SharingOutcome(
            scenario=self._world.scenario,
            sharing=sharing,
            knob=knob,
            utilisation_ratio=float((columns["online"] + columns["batch"]).sum() / (capacity * steps)),
            batch_core_hours=float(columns["batch"].sum() - self.lost_millicore_steps) * core_hours,
            deadlines_met_ratio=float(met.sum() / due.sum()) if due.any() else float("nan"),
            evictions=int(columns["evicted"].sum()),
            suppressed_core_hours=float(columns["suppressed"].sum()) * core_hours,
            violation_ratio=float(columns["short"].sum() / (nodes * steps)),
            latency_ratio=float(columns["shared"].sum() / max(columns["alone"].sum(), 1e-9)),
            timeline=timeline,
        )
