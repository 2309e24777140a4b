"""How long pods of a daily peak wait for room, with and without forecast-driven reservations, in simulated time.

Ten seeds, each a service and a cluster of its own (`bench peak_world` says which), a week after 28 days of history.
Every hour the manager's analysis runs on what was known then (`cotenant_lab.simulation.peaks.peak_replay`), under the
shipped settings.
The analysis sees the ten services as one cluster's, so that its models' weights are shared between them.

Pending: from a peak pod's creation to its node, in control periods of 30 s, and the scheduler's 10 s for every pod.
Idle: core-hours of reservations that have their room and no pod. Both stand here against a goal of 5 %: their share of
the peak pods' core-hours, the strict reading, and of the cluster's.
The world was written down before the first trial and changed after it: jobs that arrive as fast as would just fill the
cluster left room for the pods of either arm, so three times as many arrive, from a day before; their ends were in step
with the service's scaling. Nothing was changed for what reservations make of it.

python -m bench.reservations.closed_loop_reservations           # ten seeds, a week, three prices of a miss
python -m bench.reservations.closed_loop_reservations --small   # two seeds, two days, the default; records nothing
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
from msgspec.structs import replace

from bench.record import Row, below, record
from bench.reservations.peak_world import CLUSTER, MONDAY_SECONDS, POD_CORES, demand_of, size_of
from cotenant.base.identity import WorkloadRef
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.scheduler_ext.reservations.model.plan import Proposal
from cotenant.scheduler_ext.reservations.plans.proposals import Size
from cotenant.settings import Settings
from cotenant_lab.experiment.comparison import SeedInterval, interval
from cotenant_lab.simulation.peaks.peak_cluster import DAY_SLOTS, SLOT_SECONDS, Floats, autoscaled_peak_pods
from cotenant_lab.simulation.peaks.peak_play import FILLING_SLOTS, PeakOutcome, PeakService, play_peaks
from cotenant_lab.simulation.peaks.peak_replay import PeakReplay, hourly

HISTORY_DAYS, DAYS = 28, 7
SEEDS = tuple(range(1, 11))
PRICES = (19.0, 4.0, 1.0)
"""`plans.miss_cost_ratio`: the default first."""


def measured(seeds: Sequence[int], days: int, prices: Sequence[float]) -> Mapping[float, list[PeakReplay]]:
    """Runs of each price, in the order of the seeds."""
    first = HISTORY_DAYS * DAY_SLOTS
    demand = np.stack([demand_of(seed, HISTORY_DAYS + days) for seed in seeds])
    sizes = [size_of(row[:first], seed) for row, seed in zip(demand, seeds, strict=True)]
    start = float(MONDAY_SECONDS + first * SLOT_SECONDS)
    plain = Settings()

    def play(row: int, settings: Settings, ahead: Sequence[Proposal] = ()) -> PeakOutcome:
        size = sizes[row]
        pods = autoscaled_peak_pods(demand[row, first - FILLING_SLOTS :], size)
        service = PeakService(CLUSTER, round(size.base / size.capacity), POD_CORES)
        return play_peaks(pods, service, seeds[row], start, settings.plans, ahead)

    without = [play(row, plain) for row in range(len(seeds))]
    priced = [replace(plain, plans=replace(plain.plans, miss_cost_ratio=price)) for price in prices]
    every = hourly(sizes, usage_of(sizes, demand), first, priced, Silent())
    return {
        price: [
            PeakReplay(size.workload, without[row], play(row, settings, [hour[row] for hour in ahead]))
            for row, size in enumerate(sizes)
        ]
        for price, settings, ahead in zip(prices, priced, every, strict=True)
    }


def usage_of(sizes: Sequence[Size], demand: Floats) -> Usage[WorkloadRef]:
    """The services' demand as a store has it; demand: (n, T), from a Monday's midnight on."""
    grid = TimeGrid(MONDAY_SECONDS, SLOT_SECONDS, demand.shape[1])
    refs = tuple(size.workload for size in sizes)
    return Usage(refs, grid, demand.astype(np.float32), Resource.CPU, Statistic.MEAN)


def rows(runs: Mapping[float, Sequence[PeakReplay]]) -> Iterator[Row]:
    """The rows with goals of the shipped settings, and what explains it."""
    own = runs[PRICES[0]]
    ratio = across(own, lambda run: run.pending_ratio)
    reserved, without = (
        across(own, wait).mean for wait in (lambda run: run.reserved.p95_seconds, lambda run: run.without.p95_seconds)
    )
    note = f"{interval_text(ratio, own)}; {reserved:.0f} s with, {without:.0f} s without (means of p95)"
    yield below("p95 pending time of peak pods, with / without reservations", ratio.mean, "ratio", 0.2, note)
    idle, share = across(own, lambda run: run.idle_of_peak), across(own, lambda run: run.idle_of_cluster)
    yield below(
        "idle reserved core-hours / core-hours of peak pods", idle.mean, "ratio", 0.05, interval_text(idle, own)
    )
    yield below(
        "idle reserved core-hours / core-hours of the cluster", share.mean, "ratio", 0.05, interval_text(share, own)
    )
    jobs = across(own, lambda run: run.jobs_ratio)
    yield Row(
        "core-hours of others' jobs, with / without reservations", jobs.mean, "ratio", note=interval_text(jobs, own)
    )
    for name, value in (
        ("took a reservation", lambda run: run.reserved_share),
        ("came while the plan held nothing", lambda run: run.unplanned_share),
    ):
        share = across(own, value)
        yield Row(f"peak pods that {name}", share.mean, "ratio", note=interval_text(share, own))
    for price, some in runs.items():
        if price != PRICES[0]:
            name = f"a miss at {price:g} idle core-hours instead of {PRICES[0]:g}"
            ratio, idle = across(some, lambda run: run.pending_ratio), across(some, lambda run: run.idle_of_peak)
            yield Row(f"{name}: p95 pending time, with / without", ratio.mean, "ratio", note=interval_text(ratio, some))
            yield Row(f"{name}: idle / core-hours of peak pods", idle.mean, "ratio", note=interval_text(idle, some))


def across(runs: Sequence[PeakReplay], value: Callable[[PeakReplay], float]) -> SeedInterval:
    return interval([value(run) for run in runs])


def interval_text(value: SeedInterval, runs: Sequence[PeakReplay]) -> str:
    return f"95 % interval {value.low:.3g}..{value.high:.3g} over {len(runs)} seeds"


def main(arguments: Sequence[str]) -> None:
    if "--small" in arguments:
        for row in rows(measured(SEEDS[:2], 2, PRICES[:1])):
            print(f"{row.metric} = {row.value:g} {row.goal} {row.note}")
        return
    name = "closed_loop_reservations"
    record(name, f".venv/bin/python -m bench.{name}", list(rows(measured(SEEDS, DAYS, PRICES))))


if __name__ == "__main__":
    main(sys.argv[1:])
