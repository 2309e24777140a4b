"""Quantities of forecasts and peaks."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_NAME, HIGHEST_HALF_HOUR_P95_NAME, PEAK_MEDIAN_NAME, PEAK_NAME

_EVERYWHERE: Final = (Surface.TILE, Surface.CAPTION, Surface.SENTENCE, Surface.NOTE)

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        key="peak",
        name=PEAK_NAME,
        definition="The amount that the highest 5-minute value of the next 24 hours stays below with a chance of 95 %, "
        "of the series as a whole: all pods of a workload, a node or the cluster together.",
        unit=Unit.OF_RESOURCE,
        function="cotenant.base.usage.peak.shown_peaks",
        aggregation=Aggregation(Level.SERIES, "0.95 quantile of the highest value", "5 minutes"),
        time=Moment.NEXT_24_HOURS,
        surfaces=_EVERYWHERE,
        columns=("forecasts.peak", "workloads.peak_cpu", "nodes.cpu_peak"),
    ),
    Quantity(
        key="peak_median",
        name=PEAK_MEDIAN_NAME,
        definition="The median of the highest 5-minute value of the next 24 hours, of the series as a whole.",
        unit=Unit.OF_RESOURCE,
        function="cotenant.base.usage.forecast.Forecasts.peak_level",
        aggregation=Aggregation(Level.SERIES, "0.5 quantile of the highest value", "5 minutes"),
        time=Moment.NEXT_24_HOURS,
        surfaces=(Surface.SENTENCE,),
        columns=("forecasts.peak_median",),
    ),
    Quantity(
        key="highest_half_hour_ratio",
        name=HIGHEST_HALF_HOUR_NAME,
        definition="The highest half hour's mean of a node's next 24 hours, of capacity, which thresholds of a round "
        "are compared with, on the path that moves are decided by: the sum of the medians of its pods, or its own "
        "p95 where workloads have no forecast.",
        unit=Unit.RATIO,
        function="cotenant.scheduler_ext.rebalance.plan.RebalancedNode.peak",
        aggregation=Aggregation(Level.NODE, "highest", "half hour"),
        time=Moment.NEXT_24_HOURS,
        surfaces=(Surface.CHART, Surface.CAPTION, Surface.TABLE, Surface.CLI, Surface.REST),
        columns=("rebalance_nodes.cpu_peak", "rebalance_nodes.memory_peak"),
    ),
    Quantity(
        key="highest_half_hour_p95",
        name=HIGHEST_HALF_HOUR_P95_NAME,
        definition="The highest half hour of a node's forecast at the 0.95 quantile within the life of a pod or a "
        "taint's horizon, which the thresholds of the extender and of load taints are compared with.",
        unit=Unit.OF_RESOURCE,
        function="cotenant.scheduler_ext.extender.load.prediction.peaks",
        aggregation=Aggregation(Level.NODE, "highest 0.95 quantile", "half hour"),
        time=Moment.NEXT_24_HOURS,
        surfaces=(Surface.SENTENCE,),
    ),
)
