"""Quantities of counts by state: rows, plans, changes, findings."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "recommendations_ready_count",
        "Ready to apply",
        "Recommendations of which the guardrails allow a step now, without a second person and not put off.",
        Unit.COUNT,
        "cotenant.recommender.model.list_totals.ReadyCounts.ready",
        Aggregation(Level.SELECTION, "number of rows"),
        Moment.NOW,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "recommendations_second_person_count",
        "Need a second person",
        "Recommendations that only lack the confirmation of a second person.",
        Unit.COUNT,
        "cotenant.recommender.model.list_totals.ReadyCounts.second_person",
        Aggregation(Level.SELECTION, "number of rows"),
        Moment.NOW,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "todo_raise_count",
        "At risk",
        "Containers of which a request or limit rises by more than a little, and that nobody has put off.",
        Unit.COUNT,
        "cotenant.recommender.model.list_totals.TodoCounts.raises",
        Aggregation(Level.SELECTION, "number of rows"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "todo_cut_count",
        "Waste",
        "Containers of which a request falls, nothing rises by more than a little, and that nobody has put off.",
        Unit.COUNT,
        "cotenant.recommender.model.list_totals.TodoCounts.cuts",
        Aggregation(Level.SELECTION, "number of rows"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "round_changes_count",
        "Changes of a round",
        "Workloads that a round of the autopilot would change or propose to change.",
        Unit.COUNT,
        "cotenant.autopilot.model.RoundTotals.changes",
        Aggregation(Level.SELECTION, "number of workloads"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE,),
    ),
    Quantity(
        "round_most_restarts_count",
        "Pods that may restart",
        "Pods of the workloads whose change in a round may be rolled out.",
        Unit.COUNT,
        "cotenant.autopilot.model.RoundTotals.most_restarts",
        Aggregation(Level.SELECTION, "sum over workloads"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE,),
    ),
    Quantity(
        "plan_most_used_count",
        "Most at once",
        "Pods of a plan's workload that used its reservations at one time, at most.",
        Unit.COUNT,
        "cotenant.scheduler_ext.reservations.model.plan.OccurrenceProgress.most_used",
        Aggregation(Level.PLAN, "highest number of pods"),
        Moment.PLAN_WINDOW,
        surfaces=(Surface.TILE, Surface.OBJECT),
    ),
    Quantity(
        "plan_most_missed_count",
        "Waited without a reservation",
        "Pods of a plan's workload that waited at one time because no reservation was left, at most.",
        Unit.COUNT,
        "cotenant.scheduler_ext.reservations.model.plan.OccurrenceProgress.most_missed",
        Aggregation(Level.PLAN, "highest number of pods"),
        Moment.PLAN_WINDOW,
        surfaces=(Surface.TILE, Surface.OBJECT),
    ),
)
