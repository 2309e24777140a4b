"""Quantities of requests and limits, as they are and as they are proposed."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

_SHORTAGE: Final = "cotenant.recommender.backtest.Recorded.shortage"
_TOLD: Final = (Surface.SENTENCE, Surface.CLI, Surface.REST, Surface.MCP)

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "days_above_cpu_request",
        "Days with CPU above the request",
        "How many days of a container's pods had CPU demand above the request at any time in the back-test, of the "
        "days with a sample; missing where there is no request.",
        Unit.COUNT,
        _SHORTAGE,
        Aggregation(Level.CONTAINER, "number of pods' days", "5 minutes"),
        Moment.BACK_TEST,
        surfaces=_TOLD,
    ),
    Quantity(
        "minutes_above_cpu_request",
        "Minutes with CPU above the request",
        "Container-minutes of the back-test with CPU demand above the request, shown as a mean over its pods' days; "
        "missing where there is no request.",
        Unit.CONTAINER_MINUTES,
        _SHORTAGE,
        Aggregation(Level.CONTAINER, "sum over the pods", "5 minutes"),
        Moment.BACK_TEST,
        surfaces=_TOLD,
    ),
)
