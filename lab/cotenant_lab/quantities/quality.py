"""Quantities of data quality and confidence."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        key="confidence_score",
        name="Confidence score",
        definition="How far a proposal can be relied on, half the weakest of its factors and half their mean: it "
        "orders proposals and policies compare it, but it is no probability; people are told high, medium or low.",
        unit=Unit.NUMBER,
        function="cotenant.recommender.model.recommendation.Trust.confidence",
        aggregation=Aggregation(Level.CONTAINER, "value"),
        time=Moment.LAST_SCAN,
        columns=("recommendations.confidence", "autopilot_queue.confidence"),
    ),
    Quantity(
        key="samples_present",
        name="Samples present",
        definition="Of the samples of CPU usage that were due while pods lived, the share that is there; what is "
        "switched off misses none, and where nobody can say whether something lived, as many are due as on average.",
        unit=Unit.RATIO,
        function="cotenant.profiler.coverage.SampleCount.samples_present",
        aggregation=Aggregation(
            Level.WORKLOAD,
            "sum over all pods; also of a namespace, a UTC day, the cluster",
            "5 minutes",
        ),
        time=Moment.WINDOW,
        surfaces=(Surface.SENTENCE, Surface.CHART, Surface.REPORT),
        columns=("workloads.coverage", "coverage.coverage", "coverage_by_day.coverage", "clusters.coverage"),
    ),
    Quantity(
        key="time_measured",
        name="Time measured",
        definition="Of the time in which pods with the container ran, each pod's counted, the share in which it was "
        "measured; a value rests on it.",
        unit=Unit.RATIO,
        function="cotenant.base.usage.samples.ContainerLife.time_measured",
        aggregation=Aggregation(Level.CONTAINER, "value", "5 minutes"),
        time=Moment.WINDOW,
        surfaces=(Surface.SENTENCE, Surface.DRAWER),
    ),
)
