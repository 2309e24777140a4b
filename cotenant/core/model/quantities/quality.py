"""Quantities of data quality and confidence."""

from __future__ import annotations

from typing import Final

from cotenant.core.model.quantities.quantity import IN_TABLES, Aggregation, Level, Moment, Quantity, Unit

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        key="confidence_score",
        name="Confidence score",
        definition="How far a proposal can be relied on, half the weakest of its factors and half their mean: it "
        "orders proposals and policies compare it, but it is no probability; people are told high, medium or low.",
        unit=Unit.NUMBER,
        function="cotenant.core.model.recommendation.Trust.confidence",
        aggregation=Aggregation(Level.CONTAINER, "value"),
        time=Moment.LAST_SCAN,
        surfaces=IN_TABLES,
        columns=("recommendations.confidence", "autopilot_queue.confidence"),
    ),
)
