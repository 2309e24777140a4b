"""Simulates one way of sharing on one cluster, in steps of five minutes, over all nodes at once. Pure.

    lend (formulas) -> place (extender) -> use (suppression) -> evict (memory) -> account, and so on

The same world, way, parameter and seed give the same outcome. `run_all_settings` compares ways and their parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import structs

from cotenant.base.colocation.reclaim_policies import AMPLE_PERCENT
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.experiment import agents
from cotenant.experiment.accounts import Accounts
from cotenant.experiment.batch_jobs import MEMORY_USED_SHARE, BatchJobs, BatchQueue, sample_batch_jobs
from cotenant.experiment.install import FORECAST, USAGE, Install, install_of
from cotenant.experiment.interference import Interference
from cotenant.experiment.lenders import Forecasts, TriedLender, forecast_peaks, lender
from cotenant.experiment.outcome import STEP_SECONDS, Incident, Sharing, SharingOutcome
from cotenant.experiment.placement import ROUNDS, BatchPlacement, PlacementLoad
from cotenant.experiment.world import World
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.scheduler_ext.extender.settings import Percentages

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

CPU, MEMORY = Resource.CPU, Resource.MEMORY
LOAD: Final = 1.0
"""Batch work that arrives, as a share of the capacity that is free on average."""
ROUNDING: Final = 1e-6
"""Tolerance: share by which need and promises may exceed a node's capacity; a job with fewer steps left has ended."""
HOUR_STEPS: Final = 12
"""Steps of an hour, over which the extender's suppression is averaged; the progress advances after each hour."""
BLOCK_STEPS: Final = 72
"""Steps whose amounts are computed together."""


def thresholds_of(sharing: Sharing, knob: float) -> Install:
    """Return the configuration for a way of sharing; Koordinator's thresholds rise with its reclaim percentage.

    Static overcommit and the oracle have the thresholds of policy `forecast`, so that only what they lend differs.
    """
    own = install_of(USAGE if sharing is Sharing.KOORDINATOR else FORECAST)
    above = int(knob) - own.strategy.cpu_reclaim_percent if sharing is Sharing.KOORDINATOR else 0
    if above <= 0:
        return own
    percent = min(own.agents.cpu_suppress_threshold_percent + above, AMPLE_PERCENT)
    memory = min(own.agents.memory_evict_threshold_percent + above, AMPLE_PERCENT)
    raised = structs.replace(own.agents, cpu_suppress_threshold_percent=percent, memory_evict_threshold_percent=memory)
    load = structs.replace(own.extender.load_aware, usage=Percentages(percent, AMPLE_PERCENT))
    return replace(own, agents=raised, extender=structs.replace(own.extender, load_aware=load))


@dataclass(slots=True)
class Running:
    """The r running batch pods: the job, node, steps of work left and steps of work done of each, (r,) arrays."""

    job: Indices
    node: Indices
    left: Floats
    done: Floats

    @classmethod
    def nothing(cls) -> Running:
        """Return an empty set of running pods."""
        return cls(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0), np.zeros(0))

    def take(self, chosen: npt.NDArray[Any]) -> Running:
        """Return only the running pods at the indices, or in the mask, `chosen`."""
        return Running(self.job[chosen], self.node[chosen], self.left[chosen], self.done[chosen])

    def plus(self, jobs: Indices, nodes: Indices, work: Floats) -> Running:
        """Return these running pods together with new pods of `jobs`, each with its node and its steps of work."""
        return Running(
            np.concatenate([self.job, jobs]),
            np.concatenate([self.node, nodes]),
            np.concatenate([self.left, work]),
            np.concatenate([self.done, np.zeros(len(jobs))]),
        )


class SharingLoop:
    """A simulated cluster under one way of sharing; `run` simulates all steps once."""

    def __init__(self, world: World, jobs: BatchJobs, lending: TriedLender, settings: Install) -> None:
        """Create the cluster without batch pods."""
        self.world, self.jobs, self.lending, self.policy = world, jobs, lending, settings.agents
        self.nodes = len(world.cores)
        self.placing = BatchPlacement(self.nodes, settings, np.random.default_rng([world.scenario.seed, 3]))
        self.queue, self.running = BatchQueue(jobs), Running.nothing()
        self.request = {r: jobs.requests(r) for r in Resource}
        own = {r: past.capacity.astype(np.float64) for r, past in world.past.items()}
        self.capacity = {r: own.get(r, np.full(self.nodes, np.inf)) for r in Resource}
        self.need = {r: world.need(r) for r in world.past}
        self.batch_used = np.zeros((2, self.nodes))
        self.suppressed = np.zeros(self.nodes)

    def run(self, accounts: Accounts, progress: Progress) -> None:
        """Simulate all steps and enter them in the accounts; `progress` advances once per simulated hour."""
        steps = self.world.steps
        for first in range(steps.start, steps.stop, BLOCK_STEPS):
            slots = np.arange(first, min(first + BLOCK_STEPS, steps.stop), dtype=np.intp)
            lent = self._offered_capacity(slots)
            for index, slot in enumerate(slots.tolist()):
                offered, step = lent[:, :, index], slot - steps.start
                if slot == self.world.effect.first:
                    self._begin_anew(np.isin(self.running.node, self.world.effect.failed), accounts)
                self._place(offered, slot, step)
                self._work(offered, slot, step, accounts)
                if step % HOUR_STEPS == HOUR_STEPS - 1:
                    progress.advance()

    def _offered_capacity(self, slots: Indices) -> Floats:
        """Return (2, n, slots), at most the nodes' capacity; memory is unlimited if the trace has none.

        What is lent does not depend on what batch does with it, so that a block of slots is computed at once.
        """
        unbounded = np.full((self.nodes, len(slots)), np.inf)
        rows = [
            np.minimum(self.lending.offered(r, slots), self.capacity[r][:, None]) if r in self.world.past else unbounded
            for r in Resource
        ]
        lent = np.stack(rows)
        effect = self.world.effect
        away = np.flatnonzero(effect.during(slots, Incident.NODE_FAILURE))
        for node in effect.failed:
            lent[:, node, away] = 0
        return lent

    def _need_at(self, slot: int) -> Floats:
        return np.stack([self.need[r][:, slot] if r in self.need else np.zeros(self.nodes) for r in Resource])

    def _bound(self) -> Floats:
        rows = [np.bincount(self.running.node, self.request[r][self.running.job], self.nodes) for r in Resource]
        return np.stack(rows).astype(np.float64)

    def _place(self, offered: Floats, slot: int, step: int) -> None:
        """Place waiting pods, the oldest first; the extender counts a placed pod's estimated usage at once."""
        capacity = np.stack([np.where(np.isfinite(self.capacity[r]), self.capacity[r], 0.0) for r in Resource])
        used = self._need_at(max(slot - 1, 0)) + self.batch_used
        bound = self._bound()
        kinds = self.jobs.kind[self.queue.waiting(step)]
        for _ in range(ROUNDS):
            load = PlacementLoad(capacity, used, offered, bound, self.suppressed)
            pods, nodes = self.placing.places(kinds, load, float(slot * STEP_SECONDS))
            if not len(pods):
                break
            jobs, kinds = self.queue.take(pods), np.delete(kinds, pods)
            self.running = self.running.plus(jobs, nodes, self.jobs.work_steps[jobs])
            bound[:, nodes] += np.stack([self.request[r][jobs] for r in Resource])
            used[:, nodes] += self.placing.estimates[:, self.jobs.kind[jobs]]

    def _work(self, offered: Floats, slot: int, step: int, accounts: Accounts) -> None:
        """Simulate one step of usage: pods get CPU in the order of their class, and are evicted if memory is short."""
        needed, bound = self._need_at(slot), self._bound()
        unused = self.capacity[CPU] - needed[0]
        available = np.minimum(agents.batch_cpu_millicores(self.capacity[CPU], needed[0], self.policy), unused)
        speed = np.divide(available, bound[0], out=np.ones(self.nodes), where=bound[0] > available)
        evicted = self._evict(needed[1], accounts)
        running = self.running
        progress = np.minimum(speed[running.node], running.left)
        used = np.bincount(running.node, progress * self.request[CPU][running.job], self.nodes)
        used_memory = self._bound()[1] * MEMORY_USED_SHARE
        running.left -= progress
        running.done += progress
        has_ended = running.left <= ROUNDING
        accounts.ended(running.job[has_ended], step)
        self.running = running.take(~has_ended)
        self.batch_used = np.stack([used, used_memory])
        self.suppressed += (1.0 - speed - self.suppressed) / HOUR_STEPS
        short = needed[0] + bound[0] > self.capacity[CPU] * (1 + ROUNDING)
        short |= needed[1] + bound[1] > self.capacity[MEMORY] * (1 + ROUNDING)
        amounts = {"offered": offered[0], "bound": bound[0], "suppressed": np.maximum(bound[0] - available, 0.0)}
        accounts.step(step, needed, self.batch_used, amounts | {"short": short.astype(np.float64)}, evicted)

    def _evict(self, needed_bytes: Floats, accounts: Accounts) -> int:
        """Evict pods for memory and return their number; their work is lost and they wait again."""
        if MEMORY not in self.world.past or not len(self.running.job):
            return 0
        running = self.running
        used_memory = self.request[MEMORY][running.job] * MEMORY_USED_SHARE
        used = needed_bytes + np.bincount(running.node, used_memory, self.nodes)
        leaving: list[int] = []
        for node in agents.nodes_short_of_memory(self.capacity[MEMORY], used, self.policy).tolist():
            here = np.flatnonzero(running.node == node)
            pods = list(zip(running.job[here].tolist(), used_memory[here].tolist(), strict=True))
            leaving += agents.jobs_to_evict(self.capacity[MEMORY][node], used[node], pods, self.policy) if pods else []
        if leaving:
            self._begin_anew(np.isin(running.job, leaving), accounts)
        return len(leaving)

    def _begin_anew(self, leaves: npt.NDArray[Any], accounts: Accounts) -> None:
        """Remove the pods of mask `leaves` from their nodes: their work is lost, and they wait again."""
        running = self.running
        accounts.lost_millicore_steps += float((running.done * self.request[CPU][running.job])[leaves].sum())
        self.queue.put_back(running.job[leaves])
        self.running = running.take(~leaves)


def jobs_of(world: World) -> BatchJobs:
    """Return batch jobs that would keep LOAD times the nodes' mean free CPU busy, so that capacity limits batch."""
    free = world.past[CPU].capacity[:, None] - world.need(CPU)[:, world.first_slot :]
    return sample_batch_jobs(float(free.mean(axis=1).sum()) * LOAD, len(world.steps), world.scenario.seed)


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """A world, its forecasts at the tested risks, and the model of how batch work slows latency-sensitive pods down."""

    world: World
    forecasts: Forecasts
    model: Interference

    def run(self, sharing: Sharing, knob: float, progress: Progress, settings: Install | None = None) -> SharingOutcome:
        """Run one way of sharing at one value of its parameter; `progress` advances once per simulated hour.

        `settings` are those of node agents and extender; None means the result of `thresholds_of`.
        """
        world = self.world
        jobs = jobs_of(world)
        accounts = Accounts(world, jobs, self.model)
        progress.stage(f"{sharing} {knob:g}", len(world.steps) // HOUR_STEPS)
        in_force = settings or thresholds_of(sharing, knob)
        SharingLoop(world, jobs, lender(world, sharing, knob, self.forecasts), in_force).run(accounts, progress)
        return accounts.outcome(sharing, knob)


INSTALLED: Final = {
    Sharing.KOORDINATOR: float(install_of(USAGE).strategy.cpu_reclaim_percent),
    Sharing.COTENANT: NodePeakSettings().risk_percent,
}
"""Way of sharing -> value of its parameter (knob) in an installation with default settings."""


def run_all_settings(
    world: World, knobs: Mapping[Sharing, Sequence[float]], model: Interference, progress: Progress
) -> list[SharingOutcome]:
    """Return the outcomes on one world of every way of sharing at each value of its parameter (`knobs`)."""
    risks = knobs.get(Sharing.COTENANT, ())
    forecasts = forecast_peaks(world, risks, NodePeakSettings(), progress) if risks else {}
    experiment = Experiment(world, forecasts, model)
    return [experiment.run(sharing, knob, progress) for sharing, settings in knobs.items() for knob in settings]
