"""Quantities of the replay of past days at another risk."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

_OUTCOME: Final = "cotenant.base.usage.backtest.RiskOutcome"
_SHOWN: Final = (Surface.TILE, Surface.CHART)


def _of_replay(
    name: str, title: str, definition: str, unit: Unit, statistic: str, surfaces: tuple[Surface, ...] = _SHOWN
) -> Quantity:
    """A number of one risk of the replay."""
    of, function = Aggregation(Level.CLUSTER, statistic), f"{_OUTCOME}.{name}"
    return Quantity(f"what_if_{name}", title, definition, unit, function, of, Moment.BACK_TEST, surfaces=surfaces)


QUANTITIES: Final[tuple[Quantity, ...]] = (
    _of_replay(
        "lent_cores",
        "Lent to batch",
        "Cores that all nodes would have lent to batch pods at this risk.",
        Unit.CORES,
        "mean over time",
    ),
    _of_replay(
        "batch_core_hours",
        "Batch work done",
        "Core-hours that batch pods would have done with it, without lost work.",
        Unit.CORE_HOURS,
        "sum over the days",
    ),
    _of_replay(
        "short",
        "Node-time short",
        "Share of node-time in which services and what batch was promised would have exceeded the node.",
        Unit.RATIO,
        "share of the time of all nodes",
    ),
    _of_replay(
        "latency_ratio",
        "p99 of services",
        "p99 of services over that without batch, by the model of interference.",
        Unit.NUMBER,
        "0.99 quantile",
        (Surface.TILE,),
    ),
)
