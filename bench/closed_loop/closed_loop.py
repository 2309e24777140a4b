"""The closed loop in simulated time: ways to share nodes with batch work, compared at equal safety.

Three families of pods (the synthetic cluster, bitbrains_rnd, azure_v1), ten seeds each, 40 nodes and 800 pods, a week
after 14 days of history. Violation is the share of node-time in which online use and the requests of the batch pods
that run exceed the node. Two comparisons:

- as installed: cotenant under policy `forecast` at the risk that is set by default against Koordinator's formulas at
  their defaults, and cotenant at the highest risk that violates no more often than those do, or at most for .1 % of
  node-time where they do not (1 % at most). Both are what the shipped defaults make of a policy that is switched on:
  settings, thresholds and strategies come from where a running manager, agent and extender have them;
- each tuned in hindsight to 1 % on the same days: static overcommit by its share, Koordinator's formulas by their
  reclaim percentage, cotenant by its risk. An oracle that knows the next day stands beside: where it is not ahead of a
  tuned rule by as much as the goal asks, no forecast can be.

python -m bench.closed_loop.closed_loop                # everything, the largest size first
python -m bench.closed_loop.closed_loop FAMILY ...     # the families named
python -m bench.closed_loop.closed_loop --large        # 1,000 nodes, 20,000 pods, 30 days: time and memory
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.record import RESULTS, Row, below, record, traces
from bench.report import CURVES
from cotenant.base.progress import Silent
from cotenant.experiment.interference import Interference
from cotenant.experiment.loop import INSTALLED, run_all_settings
from cotenant.experiment.outcome import Sharing, SharingOutcome, SharingScenario
from cotenant.experiment.world import World
from cotenant_lab.experiment import families
from cotenant_lab.experiment.comparison import (
    KNOBS,
    VIOLATION,
    SeedInterval,
    batch_at,
    installed_outcomes,
    interval,
    of,
)
from cotenant_lab.experiment.worlds import SYNTHETIC, synthetic_world, trace_world

NODES, PODS, DAYS = 40, 800, 7
SEEDS = tuple(range(1, 11))
FAMILIES = (SYNTHETIC, "bitbrains_rnd", "azure_v1_vms")
LARGE = SharingScenario(SYNTHETIC, 1000, 20_000, 30, 1)
SELDOM = 0.001
"""Share of node-time short that counts as none, where the other side has none at all."""
Seeds = Sequence[Sequence[SharingOutcome]]


def worlds(family: str) -> Callable[[int], World]:
    """World of a seed."""
    if family == SYNTHETIC:
        return lambda seed: synthetic_world(SharingScenario(family, NODES, PODS, DAYS, seed), Silent())
    folder = traces()
    if folder is None:
        raise SystemExit("no real traces: set COTENANT_TRACES to their folder; nothing was measured")
    series = families.read(folder / f"{family}.parquet")
    return lambda seed: trace_world(SharingScenario(family, NODES, PODS, DAYS, seed), series)


def ratio(runs: Seeds, ours: Callable[[Sequence[SharingOutcome]], float], other: Callable[..., float]) -> SeedInterval:
    return interval([ours(run) / other(run) for run in runs])


def hours(run: Sequence[SharingOutcome], sharing: Sharing) -> float:
    return installed_outcomes(run, sharing)[0].batch_core_hours


def no_more_violated(run: Sequence[SharingOutcome]) -> float:
    """Cotenant's best setting that violates no more often than Koordinator's formulas as installed, or for SELDOM."""
    most = min(max(installed_outcomes(run, Sharing.KOORDINATOR)[0].violation_ratio, SELDOM), VIOLATION)
    return batch_at(of(run, Sharing.COTENANT), most)


def tuned(sharing: Sharing) -> Callable[[Sequence[SharingOutcome]], float]:
    return lambda run: batch_at(of(run, sharing))


def rows(family: str, runs: Seeds) -> Iterator[Row]:
    """The rows of one family that have goals, and what explains them."""
    ours, theirs = (lambda run, s=s: hours(run, s) for s in (Sharing.COTENANT, Sharing.KOORDINATOR))
    yield goal(
        f"{family}: batch core-hours as installed, cotenant / Koordinator's formulas", ratio(runs, ours, theirs), 1.15
    )
    yield goal(
        f"{family}: the same, cotenant at the risk that violates no more than they do, or .1 %",
        ratio(runs, no_more_violated, theirs),
        1.15,
    )
    cotenant = tuned(Sharing.COTENANT)
    for sharing, floor in ((Sharing.KOORDINATOR, 1.15), (Sharing.STATIC, 1.5)):
        name = f"{family}: batch core-hours, each tuned in hindsight to 1 % violations, cotenant / {sharing}"
        yield goal(name, ratio(runs, cotenant, tuned(sharing)), floor)
        most = ratio(runs, tuned(Sharing.ORACLE), tuned(sharing))
        yield Row(f"{family}: oracle / {sharing} tuned in hindsight", most.mean, "ratio", note=interval_text(most))
    for sharing in (Sharing.KOORDINATOR, Sharing.COTENANT):
        outcomes = [installed_outcomes(run, sharing)[0] for run in runs]
        for name, unit in (
            ("violation_ratio", "of node-time"),
            ("utilisation_ratio", "ratio"),
            ("deadlines_met_ratio", "ratio"),
            ("evictions", "pods"),
            ("suppressed_core_hours", "core-hours"),
        ):
            value = interval([getattr(o, name) for o in outcomes])
            yield Row(f"{family}: {sharing} as installed, {name}", value.mean, unit, note=interval_text(value))
    slower = interval([installed_outcomes(run, Sharing.COTENANT)[0].latency_ratio for run in runs])
    yield below(
        f"{family}: latency-sensitive p99 as installed / no colocation",
        slower.mean,
        "ratio",
        1.1,
        interval_text(slower),
    )


def goal(metric: str, value: SeedInterval, floor: float) -> Row:
    """Met when the mean reaches the floor and the interval lies above 1."""
    met = bool(value.mean >= floor and value.low > 1)
    return Row(metric, value.mean, "ratio", f">= {floor:g}, interval above 1", met, interval_text(value))


def interval_text(value: SeedInterval) -> str:
    if np.isnan(value.mean):
        return "not reachable: on some seed no setting violates as seldom"
    return f"95 % interval {value.low:.3g}..{value.high:.3g} over {len(SEEDS)} seeds"


def curves(runs: Seeds) -> list[dict[str, object]]:
    """Means over seeds of every setting, and the interval of batch core-hours: what a figure shows."""
    points = []
    for index, first in enumerate(runs[0]):
        same = [run[index] for run in runs]
        means = {
            name: float(np.nanmean([getattr(o, name) for o in same]))
            for name in (
                "violation_ratio",
                "batch_core_hours",
                "utilisation_ratio",
                "deadlines_met_ratio",
                "latency_ratio",
            )
        }
        across = interval([o.batch_core_hours for o in same])
        bar = {"batch_core_hours_low": across.low, "batch_core_hours_high": across.high}
        points.append({"sharing": str(first.sharing), "knob": first.knob} | means | bar)
    return points


def measured(family: str) -> Seeds:
    """Outcomes by seed."""
    make, runs = worlds(family), []
    for seed in SEEDS:
        start = time.process_time()
        runs.append(run_all_settings(make(seed), KNOBS, Interference(), Silent()))
        print(f"{family} seed {seed}: {time.process_time() - start:.0f} s of CPU", flush=True)
    return runs


def large() -> list[Row]:
    """The size that must fit two cores: world, forecasts and one way as installed."""
    began, cpu = time.monotonic(), time.process_time()
    cluster = synthetic_world(LARGE, Silent())
    outcome = run_all_settings(cluster, {Sharing.COTENANT: (INSTALLED[Sharing.COTENANT],)}, Interference(), Silent())[0]
    minutes, own = (time.monotonic() - began) / 60, (time.process_time() - cpu) / 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    note = f"{own:.1f} minutes of CPU; {outcome.batch_core_hours:,.0f} batch core-hours"
    return [
        below("1,000 nodes, 20,000 pods, 30 days", minutes, "minutes", 20, note),
        below("1,000 nodes, 20,000 pods, 30 days: peak memory", peak, "GiB", 6),
    ]


def main(arguments: Sequence[str]) -> None:
    if not arguments or arguments == ["--large"]:
        record("closed_loop_large", ".venv/bin/python -m bench.closed_loop.closed_loop --large", large())
    for family in [a for a in arguments if a != "--large"] if arguments else FAMILIES:
        runs = measured(family)
        record(
            f"closed_loop_{family}",
            f".venv/bin/python -m bench.closed_loop.closed_loop {family}",
            list(rows(family, runs)),
        )
        path = RESULTS.parent / "closed_loop" / f"{CURVES}{family}.json"
        path.write_text(json.dumps(curves(runs), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
