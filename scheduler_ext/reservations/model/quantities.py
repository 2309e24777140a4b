"""Quantities of reservation plans: their scores, pods and windows."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Sign, Surface, Unit

_SCORES: Final = "cotenant.scheduler_ext.reservations.model.plan_scores"
_STATES: Final = "cotenant.scheduler_ext.reservations.model.plan_states"
_BACK_TEST: Final = "cotenant.scheduler_ext.reservations.plans.backtest.PlanAccount"
_OF_OCCURRENCE: Final = Aggregation(Level.PLAN, "sum of pod-seconds over one occurrence", "control period")
_OF_BACK_TEST: Final = Aggregation(Level.PLAN, "sum of pod-hours over the back-test", "5 minutes")
_OF_PLAN: Final = Aggregation(Level.PLAN)
_OF_CLUSTER: Final = Aggregation(Level.CLUSTER, "number of plans by phase")
_PAST: Final = (
    Surface.SENTENCE, Surface.CHART, Surface.TABLE, Surface.DRAWER, Surface.CLI, Surface.REST, Surface.OBJECT,
)  # fmt: skip
_NOW: Final = (Surface.TABLE, Surface.DRAWER, Surface.TILE, Surface.CLI, Surface.REST)

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "plan_coverage",
        "Coverage",
        "Share of the pod-time that a plan's workload needed beyond its baseline and that found reserved capacity.",
        Unit.RATIO,
        f"{_SCORES}.coverage",
        _OF_OCCURRENCE,
        Moment.PLAN_WINDOW,
        surfaces=_PAST,
        columns=("reservation_plans.coverage", "plan_scores.coverage"),
        differs={Surface.OBJECT: "An object has 1 where no pod needed capacity, which all others say in words."},
    ),
    Quantity(
        "plan_hit_ratio",
        "Used of reserved",
        "Share of the reserved pod-time that pods used; a plan that reserved next to nothing is near 1.",
        Unit.RATIO,
        f"{_SCORES}.hit_ratio",
        _OF_OCCURRENCE,
        Moment.PLAN_WINDOW,
        surfaces=_PAST,
        columns=("reservation_plans.hit", "plan_scores.hit"),
    ),
    Quantity(
        "plan_available_before_start_seconds",
        "Available before the start",
        "How long before a window's start all its capacity was there; negative is late, and missing is never.",
        Unit.SECONDS,
        f"{_SCORES}.lead_seconds",
        _OF_PLAN,
        Moment.PLAN_WINDOW,
        Sign.EITHER,
        surfaces=_PAST,
        columns=("plan_scores.lead_seconds",),
    ),
    Quantity(
        "plan_coverage_back_test",
        "Coverage of past peaks",
        "Share of the needed pod-time of the last days that a plan like this would have covered.",
        Unit.RATIO,
        f"{_BACK_TEST}.coverage",
        _OF_BACK_TEST,
        Moment.BACK_TEST,
        surfaces=(Surface.TABLE, Surface.DRAWER, Surface.CLI, Surface.REST),
        columns=("plans.coverage", "plan_backtest.coverage"),
    ),
    Quantity(
        "plan_hit_ratio_back_test",
        "Used of reserved in past peaks",
        "Share of the pod-time that a plan like this would have reserved in the last days and that pods had used.",
        Unit.RATIO,
        f"{_BACK_TEST}.hit_ratio",
        _OF_BACK_TEST,
        Moment.BACK_TEST,
        surfaces=(Surface.TABLE, Surface.DRAWER, Surface.CLI, Surface.REST, Surface.OBJECT),
        columns=("plans.hit_ratio", "plan_backtest.hit", "reservation_plans.expected_hit"),
    ),
    Quantity(
        "plan_pods_wanted",
        "Pods",
        "Pods that a plan reserves capacity for in its present occurrence, or will at most.",
        Unit.COUNT,
        f"{_STATES}.wanted_pods",
        _OF_PLAN,
        Moment.NOW,
        surfaces=_NOW,
        columns=("reservation_plans.pods",),
    ),
    Quantity(
        "plan_pods_available",
        "There",
        "Of these pods, those whose capacity is reserved.",
        Unit.COUNT,
        f"{_STATES}.available_pods",
        _OF_PLAN,
        Moment.NOW,
        surfaces=_NOW,
        columns=("reservation_plans.there",),
    ),
    Quantity(
        "plan_reservations_used",
        "Used",
        "Reservations of the present occurrence that a pod took, also one that has ended since.",
        Unit.COUNT,
        f"{_STATES}.used_reservations",
        _OF_PLAN,
        Moment.NOW,
        surfaces=(Surface.DRAWER, Surface.TILE, Surface.SENTENCE, Surface.REST),
    ),
    Quantity(
        "plans_by_phase",
        "Plans by phase",
        "Number of plans of the cluster in each phase; a plan counts once, whatever number of windows it has.",
        Unit.COUNT,
        f"{_STATES}.counts",
        _OF_CLUSTER,
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.CLI),
    ),
)
