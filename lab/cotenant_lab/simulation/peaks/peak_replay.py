"""Reservation plans of services replayed on their own past: how long peak pods wait, and how much capacity is idle.

Every hour the manager's analysis runs on what was known then: forecasts, the rehearsal of the last week, the proposal.
A service's plan is approved when it is proposed for the first time, and follows the settings in force (`peak_play`).
The same days are also simulated without a plan. Pure except for progress.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.progress import Progress
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.usage import TimeGrid, Usage
from cotenant.experiment.world import forward_filled
from cotenant.forecasting.engine import forecast
from cotenant.profiler.portrait import build
from cotenant.scheduler_ext.reservations.model.plan import Proposal
from cotenant.scheduler_ext.reservations.plans.proposals import Rehearsal, Size
from cotenant.scheduler_ext.reservations.plans.rehearsed_proposals import (
    Candidates,
    candidates,
    proposals_after,
    rehearsals,
)
from cotenant.settings import Settings
from cotenant_lab.simulation.peaks.peak_cluster import DAY_SLOTS, ClusterShape, autoscaled_peak_pods
from cotenant_lab.simulation.peaks.peak_play import FILLING_SLOTS, HOUR_SLOTS, PeakOutcome, PeakService, play_peaks

MOST_NODES = 200
"""Of a replayed cluster: with more, room comes so often that every service waits as briefly."""
MOST_SERVICES = 10
"""Those with the largest peaks."""
HISTORY_DAYS = 9
"""Before the first judged day: two that are rehearsed, and the week before them that a rehearsal compares with."""

Analysed = tuple[Candidates, list[Rehearsal]]


@dataclass(frozen=True, slots=True)
class PeakReplay:
    """The outcomes of one service's days without a plan and with it."""

    workload: WorkloadRef
    without: PeakOutcome
    reserved: PeakOutcome

    @property
    def pending_ratio(self) -> float:
        """The p95 wait of peak pods with the plan, divided by that without it."""
        return self.reserved.p95_seconds / self.without.p95_seconds

    @property
    def reserved_share(self) -> float:
        """Share of the peak pods that used a Reservation."""
        return self.reserved.handed_over / max(len(self.reserved.pending_seconds), 1)

    @property
    def unplanned_share(self) -> float:
        """Share of the peak pods that arrived while the plan reserved nothing."""
        return self.reserved.unplanned / max(len(self.reserved.pending_seconds), 1)

    @property
    def idle_of_peak(self) -> float:
        """Idle reserved core-hours divided by the core-hours of peak pods; NaN without a peak pod."""
        return self.reserved.idle / self.reserved.peak if self.reserved.peak else float("nan")

    @property
    def idle_of_cluster(self) -> float:
        """Idle reserved core-hours divided by the core-hours of the whole cluster."""
        return self.reserved.idle / self.reserved.cluster

    @property
    def jobs_ratio(self) -> float:
        """Core-hours of batch jobs with the plan, divided by those without it."""
        return self.reserved.jobs / self.without.jobs


def analyse_services(sizes: Sequence[Size], usage: Usage[WorkloadRef], settings: Settings) -> Analysed:
    """Return the manager's analysis of each service; `usage` is that of the services, in all the time that is known."""
    recent = usage.tail(settings.forecasting.history_days * DAY_SLOTS)
    portraits = build(usage.refs, np.arange(len(usage.refs)), recent, settings.portrait)
    ahead = forecast(recent, portraits, settings.forecasting, fine=False)
    services = Candidates(tuple(sizes), np.zeros(len(sizes)), usage, ahead.quantiles, ahead.grid)
    return services, rehearsals(services, settings)


def service_proposals(analysis: Analysed, settings: Settings) -> tuple[Proposal, ...]:
    """Return the analysis's proposal for each service, in their order."""
    by_workload = {proposal.workload: proposal for proposal in proposals_after(*analysis, settings)}
    return tuple(by_workload[size.workload] for size in analysis[0].sizes)


def hourly(
    sizes: Sequence[Size], usage: Usage[WorkloadRef], first_slot: int, some: Sequence[Settings], progress: Progress
) -> list[list[tuple[Proposal, ...]]]:
    """Return for each of the settings the proposals of every evaluated hour, from what was known when the hour began.

    One analysis serves all settings, which differ in how they use forecasts.
    """
    by_settings: list[list[tuple[Proposal, ...]]] = [[] for _ in some]
    origins = range(first_slot, usage.grid.size, HOUR_SLOTS)
    progress.stage("Analyses", len(origins))
    for now in origins:
        analysis = analyse_services(sizes, _known_before(usage, now), some[0])
        for hours, settings in zip(by_settings, some, strict=True):
            hours.append(service_proposals(analysis, settings))
        progress.advance()
    return by_settings


def replay_services(
    inventory: Inventory, usage: Usage[WorkloadRef], days: int, seed: int, settings: Settings, progress: Progress
) -> list[PeakReplay]:
    """Replay the services with the largest peaks over the last `days` days, or fewer if history before them is missing.

    Raise NoData if there is no such day, or if no forecast requests more pods. `usage` has 5-minute CPU totals of all
    workloads. Each service is on a separate cluster of the size of the inventory's nodes, which jobs keep full.
    """
    replayed_days = min(days, usage.grid.size // DAY_SLOTS - HISTORY_DAYS)
    if replayed_days < 1:
        raise NoData(
            f"a replay needs {HISTORY_DAYS} days of history and a day after it, but only "
            f"{usage.grid.size / DAY_SLOTS:.1f} days of usage are stored",
            fix="Keep scanning, or scan once with a longer profiler.window_days if the source has the data.",
        )
    first = usage.grid.size - replayed_days * DAY_SLOTS
    shape, sizes = shape_of(inventory), []
    for size in _services(inventory, usage, first, settings, progress):
        cores = size.request_millicores / MILLICORES_PER_CORE  # a node has room for a pod, and all for those that run
        if cores <= shape.node_cores and cores * size.base / size.capacity <= shape.cores:
            sizes.append(size)
    if not sizes:
        raise NoData(
            "no forecast needed more pods than already run, or no node had capacity for them",
            fix="Plans are for Deployments and StatefulSets that request CPU and whose peaks recur.",
        )
    own = usage.select(np.array([usage.row_of[size.workload] for size in sizes], dtype=np.intp))
    own = dataclasses.replace(own, values=forward_filled(own.values).astype(np.float32))
    (hours,) = hourly(sizes, own, first, [settings], progress)
    progress.stage("Days with and without plans", len(sizes))
    start = float(own.grid.start_seconds + first * own.grid.step_seconds)
    replays = []
    for row, size in enumerate(sizes):
        pods = autoscaled_peak_pods(own.values[row, first - FILLING_SLOTS :].astype(np.float64), size)
        service = PeakService(shape, round(size.base / size.capacity), size.request_millicores / MILLICORES_PER_CORE)
        plans = ((), [hour[row] for hour in hours])
        without, reserved = (play_peaks(pods, service, seed, start, settings.plans, ahead) for ahead in plans)
        replays.append(PeakReplay(size.workload, without, reserved))
        progress.advance()
    return replays


def _services(
    inventory: Inventory, usage: Usage[WorkloadRef], first_slot: int, settings: Settings, progress: Progress
) -> list[Size]:
    """Return the services with the largest peaks ahead as the evaluated days began.

    Each is sized by what was known when it first had a peak.
    """
    days = range(first_slot, usage.grid.size, DAY_SLOTS)
    progress.stage("Services with a peak ahead", len(days))
    sizes: dict[WorkloadRef, Size] = {}
    extra: dict[WorkloadRef, float] = {}
    for slot in days:
        past = _known_before(usage, slot)
        portraits = build(past.refs, np.arange(len(past.refs)), past, settings.portrait)
        ahead = forecast(past, portraits, settings.forecasting, fine=False)
        of_day = candidates(inventory, past, ahead, settings)
        for size, millicores in zip(of_day.sizes, of_day.extra_millicores.tolist(), strict=True):
            sizes.setdefault(size.workload, size)
            extra[size.workload] = max(millicores, extra.get(size.workload, 0.0))
        progress.advance()
    largest = sorted(extra, key=lambda ref: (-extra[ref], ref))[:MOST_SERVICES]
    return [sizes[ref] for ref in largest]


def shape_of(inventory: Inventory) -> ClusterShape:
    """Return the inventory's shape: its number of nodes, at most MOST_NODES, each of the size of the median node.

    Raises NoData without a node.
    """
    cores = [node.allocatable[Resource.CPU] / MILLICORES_PER_CORE for node in inventory.nodes]
    if not cores:
        raise NoData("no node is stored", fix="Run cotenant scan first.")
    return ClusterShape(min(len(cores), MOST_NODES), median(cores))


def _known_before(usage: Usage[WorkloadRef], slot: int) -> Usage[WorkloadRef]:
    """Return the usage that was known when a slot began."""
    grid = TimeGrid(usage.grid.start_seconds, usage.grid.step_seconds, slot)
    return dataclasses.replace(usage, grid=grid, values=usage.values[:, :slot])
