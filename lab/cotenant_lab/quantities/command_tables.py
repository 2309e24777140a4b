"""Quantities that are a column of a table of single commands: scores, simulations, plans, and what a node says."""

from __future__ import annotations

from typing import Final

from cotenant.backtesting import forecast_scores
from cotenant.base.tables.quantity import Level, Moment, Sign, Surface, Unit
from cotenant.cli.analysis import backtest_reclaim
from cotenant.enforcer.commands import node, topology
from cotenant.scheduler_ext.extender.commands import why
from cotenant.scheduler_ext.reservations.commands import rows
from cotenant_lab.commands import simulate
from cotenant_lab.quantities.tables import TableSubject
from cotenant_lab.simulation.peaks import replay_table

_COMMAND: Final = (Surface.CLI,)
_ON_PAGES_TOO: Final = (Surface.DRAWER, Surface.CLI, Surface.REST)
_FORECASTS: Final = "cotenant.backtesting.forecast_scores"
_ANALYSIS: Final = "cotenant.cli.analysis"
_NODE: Final = "cotenant.enforcer.commands"
_PLANS: Final = "cotenant.scheduler_ext.reservations.commands.rows"

SUBJECTS: Final[tuple[TableSubject, ...]] = (
    TableSubject("Scores of forecasts", forecast_scores.SCHEMA, Level.SERIES, f"{_FORECASTS}.table", Moment.BACK_TEST,
                 units={"late_minutes": Unit.MINUTES}, signs={"height_50": Sign.EITHER, "height_90": Sign.EITHER},
                 surfaces=(Surface.CLI, Surface.PYTHON)),
    TableSubject("Coverage of forecasts", forecast_scores.CURVES, Level.SERIES, f"{_FORECASTS}.curves",
                 Moment.BACK_TEST, units={"pinball": Unit.OF_RESOURCE, "by_hour": Unit.RATIO}, surfaces=_COMMAND),
    TableSubject("Scores of reclaim policies", backtest_reclaim.SCHEMA, Level.CLUSTER,
                 f"{_ANALYSIS}.backtest_reclaim.table", Moment.BACK_TEST, units={
                     "core_hours_short": Unit.CORE_HOURS, "gib_hours_short": Unit.GIB_HOURS, "proven": Unit.RATIO,
                     "tested_days": Unit.DAYS}, surfaces=_COMMAND),
    TableSubject("Simulated sharing", simulate.SCHEMA, Level.CLUSTER, "cotenant_lab.commands.simulate.table",
                 Moment.SIMULATION, units={"days": Unit.DAYS, "seed": Unit.NUMBER}, surfaces=_COMMAND),
    TableSubject("Replayed peaks", replay_table.PEAK_REPLAYS, Level.WORKLOAD,
                 "cotenant_lab.simulation.peaks.replay_table.peak_replays", Moment.SIMULATION,
                 units={"pending_without": Unit.SECONDS, "pending_with": Unit.SECONDS}, surfaces=_COMMAND),
    TableSubject("Rules that refuse nodes", why.WHY, Level.POD, "cotenant.scheduler_ext.extender.commands.why."
                 "refusal_rows", Moment.NOW, surfaces=_COMMAND),
    TableSubject("Pods of a node's agent", node.STATUS, Level.POD, f"{_NODE}.node.status_rows", Moment.NOW,
                 surfaces=_COMMAND),
    TableSubject("Decisions of a recording", node.REPLAY, Level.NODE, f"{_NODE}.node.replay_rows", Moment.WINDOW,
                 units={"tick": Unit.NUMBER}, surfaces=_COMMAND),
    TableSubject("CPUs of a node", topology.TOPOLOGY, Level.DEVICE, f"{_NODE}.topology.cpu_rows", Moment.NOW,
                 units=dict.fromkeys(("cpu", "core", "socket", "numa_node"), Unit.NUMBER), surfaces=_COMMAND),
    TableSubject("Reservation plans by command", rows.RESERVATION_PLANS, Level.PLAN, f"{_PLANS}.plan_table",
                 Moment.PLAN_WINDOW, times={"standby": Moment.NOW, "quantile": Moment.NOW}, surfaces=_ON_PAGES_TOO),
    TableSubject("Scores of a plan", rows.SCORES, Level.PLAN, f"{_PLANS}.score_table", Moment.PLAN_WINDOW,
                 units={"cost": Unit.MONEY}, surfaces=_ON_PAGES_TOO),
    TableSubject("Back-test of a plan", rows.BACKTESTS, Level.PLAN, f"{_PLANS}.backtest_table", Moment.BACK_TEST,
                 units={"cost": Unit.CORE_HOURS}, surfaces=_COMMAND),
)  # fmt: skip
"""Tables that no page lists; each says by which command or drawer it is read."""
