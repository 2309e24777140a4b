"""Quantities that are a column of a result table and nothing more: the column's own declaration is the definition.

A column that a subject's module claims is of that subject; all others come from here, so that no cell is shown that the
dictionary does not explain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.autopilot import model
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.tables.quantity import IN_TABLES, Aggregation, Level, Moment, Quantity, Sign, Surface, Unit
from cotenant.base.usage import week
from cotenant.changes.model import ladder_tables
from cotenant.changes.model import tables as change_tables
from cotenant.enforcer.model import enforcement_tables
from cotenant.recommender.colocation.model import lendable_tables
from cotenant.recommender.model import clusters, views
from cotenant.scheduler_ext.cluster_size import tables as size_tables
from cotenant.scheduler_ext.queues.model import tables as queue_tables
from cotenant.scheduler_ext.rebalance.model import tables as rebalance_tables

_UNIT_OF_KIND: Final = {
    Kind.MILLICORES: Unit.MILLICORES,
    Kind.BYTES: Unit.BYTES,
    Kind.AMOUNT: Unit.OF_RESOURCE,
    Kind.RATIO: Unit.RATIO,
    Kind.TIME: Unit.MOMENT,
    Kind.INTEGER: Unit.COUNT,
    Kind.NUMBER: Unit.NUMBER,
    Kind.LIST: Unit.OF_RESOURCE,
}
_UNIT_OF_ENDING: Final = (
    ("core_hours", Unit.CORE_HOURS),
    ("throttled_minutes", Unit.CONTAINER_MINUTES),
    ("week_throttled", Unit.CONTAINER_MINUTES),
    ("_seconds", Unit.SECONDS),
    ("saving_month", Unit.MONEY_PER_MONTH),
    ("saving_step", Unit.MONEY_PER_MONTH),
    ("freed_month", Unit.MONEY_PER_MONTH),
    ("raised_month", Unit.MONEY_PER_MONTH),
    ("freed_step", Unit.MONEY_PER_MONTH),
    ("raised_step", Unit.MONEY_PER_MONTH),
    ("week_money", Unit.MONEY_PER_MONTH),
    ("price_month", Unit.MONEY_PER_MONTH),
    ("_ratio", Unit.RATIO),
)
"""End of a column's name -> its unit, where the kind alone does not say it."""
_SIGN_OF_ENDING: Final = (
    ("_delta_total", Sign.POSITIVE_IS_RAISED),
    ("_step_total", Sign.POSITIVE_IS_RAISED),
    ("saving_month", Sign.POSITIVE_IS_FREED),
    ("saving_step", Sign.POSITIVE_IS_FREED),
    ("week_money", Sign.POSITIVE_IS_FREED),
    ("week_cpu", Sign.POSITIVE_IS_FREED),
    ("week_memory", Sign.POSITIVE_IS_FREED),
    ("week_kills", Sign.EITHER),
    ("week_throttled", Sign.EITHER),
)
"""End of a column's name -> what a negative cell says; every other column has none."""


@dataclass(frozen=True, slots=True)
class TableSubject:
    """The properties that all columns of a table share.

    units, signs, times: by column, where it differs from the table's other columns. surfaces: those that show the
    table's cells; lacks: of these, the columns that a surface does not have.
    """

    title: str
    schema: Schema
    of: Level
    function: str
    """Dotted path of the function that makes the table's rows."""
    time: Moment = Moment.LAST_SCAN
    units: Mapping[str, Unit] = field(default_factory=dict)
    signs: Mapping[str, Sign] = field(default_factory=dict)
    times: Mapping[str, Moment] = field(default_factory=dict)
    surfaces: tuple[Surface, ...] = IN_TABLES
    lacks: Mapping[Surface, Collection[str]] = field(default_factory=dict)

    def surfaces_of(self, column: str) -> tuple[Surface, ...]:
        """Return the surfaces that show one column's cells."""
        return tuple(surface for surface in self.surfaces if column not in self.lacks.get(surface, ()))


_READ: Final = (Surface.EXPORT, Surface.CLI, Surface.REST, Surface.MCP)
_LISTED: Final = (Surface.TABLE, *_READ)
_IN_STORIES: Final = (Surface.CHART, Surface.REST, Surface.MCP)
"""Parts of a document about one workload or node, which no table is made of."""
_LIVE: Final = (Surface.TABLE, Surface.EXPORT, Surface.CLI, Surface.REST)
"""Read from the cluster with the rights of whoever asks; tools and DataFrames have stored results alone."""
_LEDGER: Final = (Surface.DRAWER, Surface.CLI, Surface.REST)
_SIZED: Final = (Surface.DRAWER, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP)
_PIPELINE: Final = "cotenant.pipeline"
_PLANS_TABLE: Final = "cotenant.scheduler_ext.reservations.plans.rehearsed_proposals.table"
_QUEUES: Final = "cotenant.scheduler_ext.queues.model.tables"
_REBALANCE: Final = "cotenant.scheduler_ext.rebalance.rebalance_report"
_CHANGES: Final = "cotenant.changes.model.tables"
_ENFORCEMENT: Final = "cotenant.enforcer.model.enforcement_tables"
_LINES_OF_PLAN: Final = {"wanted": Unit.COUNT, "median": Unit.COUNT, "windows": Unit.MOMENT}
_WEEK: Final = dict.fromkeys(("trend", "daily", "weekly", "rest"), Sign.EITHER)
_NEXT_DAY: Final = dict.fromkeys(("q10", "q50", "q90", "q95", "peak", "peak_median"), Moment.NEXT_24_HOURS)
_LANES: Final = dict.fromkeys(("others", "best_effort", "target", "limit", "burst"), Unit.MILLICORES)
_ABOUT_MOVES: Final = {"gain": Unit.NODE_SECONDS, "cost": Unit.NODE_SECONDS}
_SCALE: Final = {"fine_profile": Unit.RATIO}
_PORTRAIT: Final = {"weights": Unit.RATIO, "pods": Unit.COUNT}
_NO_PORTRAIT: Final = ("start", "mean", "highest", "request", "pods", "zero")
"""Columns of a portrait that charts draw, and of which a DataFrame of usage holds the samples."""
_PATHS: Final = tuple(column.name for column in views.FORECASTS.columns if column.kind is Kind.LIST)
"""Lines of a forecast, which are read one at a time."""
_AHEAD: Final = dict.fromkeys(("peak_time", "peak_cpu"), Moment.NEXT_24_HOURS)
_HISTORY: Final = dict.fromkeys(
    ("cpu_mean", "cpu_p95", "cpu_max", "memory_p95", "memory_max", "oom_kills", "restarts", "coverage"), Moment.WINDOW
)
_LAST_DAYS: Final = dict.fromkeys(("backtest_oom_kills", "backtest_throttled_minutes"), Moment.LAST_7_DAYS)
_STEP: Final = dict.fromkeys(
    ("cpu_step", "memory_step", "cpu_step_total", "memory_step_total", "saving_step", "freed_step", "raised_step"),
    Moment.AFTER_FIRST_STEP,
)
_ALL_STEPS: Final = dict.fromkeys(
    ("cpu_request", "memory_request", "cpu_limit", "memory_limit", "heap", "cpu_delta_total", "memory_delta_total",
     "saving_month", "freed_month", "raised_month"), Moment.AFTER_ALL_STEPS
)  # fmt: skip

SUBJECTS: Final[tuple[TableSubject, ...]] = (
    TableSubject("Recommendations", views.RECOMMENDATIONS, Level.CONTAINER, f"{_PIPELINE}.tables.recommendations",
                 times={**_STEP, **_ALL_STEPS, **_LAST_DAYS}),
    TableSubject("Workloads", views.WORKLOADS, Level.WORKLOAD, f"{_PIPELINE}.tables.workloads",
                 units={"days": Unit.DAYS, "sparkline": Unit.MILLICORES},
                 times={**_AHEAD, **_HISTORY, "sparkline": Moment.LAST_7_DAYS},
                 surfaces=(Surface.TABLE, Surface.EXPORT, Surface.REST, Surface.PYTHON, Surface.MCP)),
    TableSubject("Nodes of the cluster", views.NODES, Level.NODE, f"{_PIPELINE}.tables.nodes",
                 times={"cpu_peak": Moment.NEXT_24_HOURS}),
    TableSubject("Pods", views.PODS, Level.POD, f"{_PIPELINE}.pods.pods", surfaces=_LISTED),
    TableSubject("Forecasts", views.FORECASTS, Level.SERIES, f"{_PIPELINE}.tables.forecast_table", units={
        **_SCALE, "peak": Unit.OF_RESOURCE, "peak_median": Unit.OF_RESOURCE}, times=_NEXT_DAY,
        lacks={Surface.TABLE: _PATHS, Surface.EXPORT: _PATHS}),
    TableSubject("Proposed plans", views.PLANS, Level.PLAN, _PLANS_TABLE, Moment.BACK_TEST, units={
        **_LINES_OF_PLAN, "idle_core_hours": Unit.CORE_HOURS_PER_DAY, "cost": Unit.MONEY_PER_DAY},
        signs={"skill": Sign.EITHER},
        times=dict.fromkeys(("start", "end", "pods", "wanted", "median", "windows"), Moment.PLAN_WINDOW),
        surfaces=_LISTED),
    TableSubject("Reclaimable capacity", views.RECLAIMABLE, Level.NODE, f"{_PIPELINE}.tables.reclaimable",
                 surfaces=(Surface.DRAWER, *_READ, Surface.PYTHON)),
    TableSubject("Findings", views.FINDINGS, Level.CONTAINER, f"{_PIPELINE}.tables.findings"),
    TableSubject("Replica floors", views.REPLICAS, Level.WORKLOAD, f"{_PIPELINE}.tables.replicas",
                 Moment.NEXT_24_HOURS, units={"floors": Unit.COUNT},
                 times=dict.fromkeys(("replicas", "least", "most"), Moment.LAST_SCAN), surfaces=(Surface.CLI,)),
    TableSubject("Portraits", views.PORTRAITS, Level.WORKLOAD, f"{_PIPELINE}.browse.portraits", Moment.WINDOW,
                 units=_PORTRAIT, surfaces=(*_IN_STORIES, Surface.PYTHON), lacks={Surface.PYTHON: _NO_PORTRAIT}),
    TableSubject("Events", views.EVENTS, Level.POD, f"{_PIPELINE}.browse.events", Moment.WINDOW, surfaces=_IN_STORIES),
    TableSubject("Nodes over time", lendable_tables.NODE_HISTORY, Level.NODE, f"{_PIPELINE}.browse.node_history",
                 Moment.EACH_SLOT, times={"ahead": Moment.NEXT_24_HOURS}, surfaces=_IN_STORIES),
    TableSubject("Log of recommendations", views.RECOMMENDATION_LOG, Level.CONTAINER,
                 f"{_PIPELINE}.browse.extend_recommendation_log", Moment.AFTER_ALL_STEPS,
                 surfaces=(Surface.DRAWER, Surface.REST, Surface.MCP)),
    TableSubject("Coverage by namespace", views.COVERAGE, Level.NAMESPACE, f"{_PIPELINE}.browse.coverage",
                 Moment.WINDOW, surfaces=(Surface.CHART, Surface.REST, Surface.MCP)),
    TableSubject("Coverage by day", views.COVERAGE_BY_DAY, Level.CLUSTER, f"{_PIPELINE}.browse.coverage",
                 Moment.WINDOW, surfaces=(Surface.CHART, Surface.REST, Surface.MCP),
                 lacks={Surface.CHART: ("series", "gap_seconds")}),
    TableSubject("Weeks", week.WEEKS, Level.WORKLOAD, f"{_PIPELINE}.weeks.table", Moment.EACH_SLOT, signs=_WEEK,
                 surfaces=(Surface.CHART,)),
    TableSubject("Clusters side by side", clusters.CLUSTERS, Level.CLUSTER,
                 "cotenant.recommender.model.clusters.clusters_table",
                 surfaces=(Surface.TABLE, Surface.CLI, Surface.REST)),
    TableSubject("Changes", change_tables.CHANGES, Level.WORKLOAD, f"{_CHANGES}.changes_table",
                 Moment.NOW, surfaces=_LIVE),
    TableSubject("Ladders", ladder_tables.LADDERS, Level.WORKLOAD,
                 "cotenant.changes.model.ladder_tables.ladders_table", surfaces=_LEDGER),
    TableSubject("Steps of a ladder", ladder_tables.RUNGS, Level.WORKLOAD,
                 "cotenant.changes.model.ladder_tables.rungs_table", surfaces=_LEDGER),
    TableSubject("Audit log", change_tables.ENTRIES, Level.WORKLOAD, f"{_CHANGES}.entries_table",
                 Moment.NOW, surfaces=(Surface.EXPORT, Surface.CLI, Surface.REST)),
    TableSubject("Autopilot's queue", model.QUEUE, Level.WORKLOAD, "cotenant.autopilot.service.queue_table",
                 Moment.AFTER_FIRST_STEP, surfaces=_LIVE),
    TableSubject("Autopilot's policies", model.STATUS, Level.NAMESPACE,
                 "cotenant.autopilot.service.status_table", Moment.NOW, surfaces=_LIVE),
    TableSubject("Autopilot's report", model.REPORT, Level.NAMESPACE,
                 "cotenant.autopilot.service.report_rows", Moment.LAST_7_DAYS, surfaces=_LIVE),
    TableSubject("Quotas", queue_tables.QUOTAS, Level.QUEUE, f"{_QUEUES}.quota_table", Moment.NOW, surfaces=_LIVE),
    TableSubject("Waiting pods", queue_tables.WAITING_PODS, Level.POD, f"{_QUEUES}.waiting_table",
                 Moment.NOW, surfaces=_LIVE),
    TableSubject("Gangs", queue_tables.GANGS, Level.QUEUE, f"{_QUEUES}.gang_table", Moment.NOW, surfaces=_LIVE),
    TableSubject("Rebalance: nodes", rebalance_tables.NODES, Level.NODE, f"{_REBALANCE}.node_rows",
                 Moment.NOW, signs={"moves": Sign.EITHER},
                 times={f"{r}_peak{a}": Moment.NEXT_24_HOURS for r in ("cpu", "memory") for a in ("", "_after")},
                 surfaces=_LIVE),
    TableSubject("Rebalance: moves", rebalance_tables.MOVES, Level.POD, f"{_REBALANCE}.move_rows",
                 Moment.NOW, units=_ABOUT_MOVES, surfaces=_LIVE),
    TableSubject("Rebalance: emptying", rebalance_tables.EMPTYING, Level.NODE,
                 f"{_REBALANCE}.emptying_rows", Moment.NOW, units=_ABOUT_MOVES, surfaces=_LIVE),
    TableSubject("Rebalance: jobs", rebalance_tables.JOBS, Level.POD,
                 "cotenant.scheduler_ext.rebalance.moves.jobs.job_rows", Moment.NOW,
                 surfaces=(Surface.TABLE, Surface.EXPORT, Surface.REST)),
    TableSubject("Cluster size: nodes", size_tables.NODES, Level.NODE,
                 "cotenant.scheduler_ext.cluster_size.tables.node_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Cluster size: moves", size_tables.MOVES, Level.POD,
                 "cotenant.scheduler_ext.cluster_size.tables.move_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Cluster size: steps", size_tables.STEPS, Level.NODE,
                 "cotenant.scheduler_ext.cluster_size.tables.step_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Cluster size: obstacles", size_tables.OBSTACLES, Level.CLUSTER,
                 "cotenant.scheduler_ext.cluster_size.tables.obstacle_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Cluster size: mix", size_tables.MIX, Level.CLUSTER,
                 "cotenant.scheduler_ext.cluster_size.tables.mix_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Cluster size: bills", size_tables.BILLS, Level.CLUSTER,
                 "cotenant.scheduler_ext.cluster_size.tables.bill_table", Moment.NOW, surfaces=_SIZED),
    TableSubject("Enforcement", enforcement_tables.ENFORCEMENT, Level.NODE,
                 f"{_ENFORCEMENT}.merge_actions", Moment.NOW, surfaces=_LISTED),
    TableSubject("Enforcement over time", enforcement_tables.ENFORCEMENT_LANES, Level.NODE,
                 f"{_ENFORCEMENT}.joined_lanes", Moment.EACH_SLOT, units=_LANES, surfaces=(Surface.CHART,)),
)  # fmt: skip
"""Every table of results that surfaces show."""


def quantities(subject: TableSubject, claimed: Collection[str]) -> tuple[Quantity, ...]:
    """The columns of one table that hold numbers and that no subject's module claims."""
    return tuple(quantity for quantity in _columns(subject) if not set(quantity.columns) & set(claimed))


def _columns(subject: TableSubject) -> Iterator[Quantity]:
    for column in subject.schema.columns:
        if column.kind is Kind.TEXT:
            continue
        yield Quantity(
            key=f"{subject.schema.name}_{column.name}".replace("-", "_").lower(),
            name=column.title.strip(),
            definition=column.doc,
            unit=subject.units.get(column.name) or _unit(column),
            function=subject.function,
            aggregation=Aggregation(subject.of),
            time=subject.times.get(column.name, subject.time),
            sign=subject.signs.get(column.name) or _sign(column),
            surfaces=subject.surfaces_of(column.name),
            columns=(f"{subject.schema.name}.{column.name}",),
        )


def _unit(column: Column) -> Unit:
    return next((unit for end, unit in _UNIT_OF_ENDING if column.name.endswith(end)), _UNIT_OF_KIND[column.kind])


def _sign(column: Column) -> Sign:
    return next((sign for end, sign in _SIGN_OF_ENDING if column.name.endswith(end)), Sign.NEVER_NEGATIVE)
