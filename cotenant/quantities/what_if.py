"""Quantities of the replay of past days at another risk."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

_OUTCOME: Final = "cotenant.base.usage.what_if.RiskOutcome"
_SHOWN: Final = (Surface.TILE, Surface.CHART)


def _of_replay(name: str, title: str, definition: str, unit: Unit, statistic: str) -> Quantity:
    """A number of one risk of the replay."""
    aggregation = Aggregation(Level.CLUSTER, statistic)
    return Quantity(
        f"what_if_{name}", title, definition, unit, f"{_OUTCOME}.{name}", aggregation, Moment.BACK_TEST, surfaces=_SHOWN
    )


QUANTITIES: Final[tuple[Quantity, ...]] = (
    _of_replay(
        "lent_cores",
        "Lent to batch",
        "Cores that all nodes would have lent to batch pods at this risk.",
        Unit.CORES,
        "mean over the days",
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
    ),
)
