"""Seven simulated days of a cluster with daily peaks: forecast mode, observed mode, and no descheduler.

Rounds every two minutes, Koordinator's defaults, thresholds 45/65 % of CPU and 55/80 % of memory. Both modes decide
with the product's own rounds, whose detectors go from one to the next; forecasts are made every hour by the product's
own forecasting from what the nodes have used. Bursty and scheduled workloads are left out: their load has no daily
peak. Look-ahead, margin and the range of a forecast were chosen on seeds 1 and 2; another one is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.rebalance_world import World, WorldSpec
from bench.record import Row, above, below, record
from profiler.synthetic import Shape
from scheduler_ext.rebalance.anomaly import AnomalyDetectors
from scheduler_ext.rebalance.arguments import DEFAULT_ARGS, MigrationArgs, RebalanceArgs
from scheduler_ext.rebalance.decide import decide

HIGH: Final = 0.65
ARGS: Final = RebalanceArgs(DEFAULT_ARGS.low_node_load, MigrationArgs(skip_check_expected_replicas=True))
DAILY: Final = frozenset(Shape) - {Shape.BURSTY, Shape.SCHEDULED}
SEEDS: Final = (11,)
NONE, OBSERVED, FORECAST = "no descheduler", "observed mode", "forecast mode"
FEWER, MORE = 60.0, 1.2


def spec(seed: int, days: int = 7) -> WorldSpec:
    """Twenty nodes whose requests take two thirds."""
    return WorldSpec(seed, days=days, cpu_used=0.6, cpu_requested=0.65, shapes=DAILY)


@dataclass(frozen=True, slots=True)
class Week:
    """node_minutes: above the CPU threshold."""

    node_minutes: float
    moves: int


def week(world_spec: WorldSpec, mode: str) -> Week:
    """A cluster in one mode."""
    world, detectors = World.of(world_spec), AnomalyDetectors()
    node_minutes, moves, seconds = 0.0, 0, 0.0
    while world.slot < world.grid.size:
        if mode == FORECAST and world.slot % world_spec.forecast_slots == 0:
            world.forecast()
        while seconds < world.grid.step_seconds:
            part = seconds / world.grid.step_seconds
            if mode != NONE:
                plan = decide(world.inputs(part), ARGS, with_forecast=mode == FORECAST, detectors=detectors)
                detectors, moves = plan.detectors, moves + len(plan.moves)
                world.carry_out([(move.pod, move.target) for move in plan.moves])
            high = world.loads(part)[0] > HIGH * world.capacity[0]
            node_minutes += float(high.sum()) * world_spec.round_seconds / 60
            seconds += world_spec.round_seconds
        seconds -= world.grid.step_seconds
        world.advance()
    return Week(node_minutes, moves)


def rows(seeds: tuple[int, ...] = SEEDS, days: int = 7) -> list[Row]:
    """All modes on the clusters of the seeds, summed."""
    weeks = {mode: [week(spec(seed, days), mode) for seed in seeds] for mode in (NONE, OBSERVED, FORECAST)}
    minutes = {mode: sum(one.node_minutes for one in those) for mode, those in weeks.items()}
    moves = {mode: sum(one.moves for one in those) for mode, those in weeks.items()}
    fewer = 100 * (1 - minutes[FORECAST] / minutes[OBSERVED]) if minutes[OBSERVED] else 0.0
    title = f"{len(seeds)} x 20 nodes, {days} days"
    note = "; ".join(f"{one.node_minutes:g} min, {one.moves} moves" for one in weeks[FORECAST])
    return [
        above(f"{title}: fewer node-minutes above the threshold than in observed mode", round(fewer, 1), "%", FEWER),
        below(
            f"{title}: moves / moves in observed mode", round(moves[FORECAST] / max(moves[OBSERVED], 1), 2), "x", MORE
        ),
        Row(f"{title}: {FORECAST}", minutes[FORECAST], "node-min", note=f"{moves[FORECAST]} moves: {note}"),
        Row(f"{title}: {OBSERVED}", minutes[OBSERVED], "node-min", note=f"{moves[OBSERVED]} moves"),
        Row(f"{title}: {NONE}", minutes[NONE], "node-min"),
    ]


if __name__ == "__main__":
    record("rebalance_forecast", ".venv/bin/python -m bench.rebalance_forecast", rows())
