"""Quantities that many sentences have: how many of what they name, how long ago, how long, what share. Pure.

The functions are those of `cotenant.base.measures` and `cotenant.base.usage.extremes`, which do no more than their name
says; a quantity with a meaning of its own has a key of its own.
"""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Sign, Unit
from cotenant_lab.quantities.spoken import SAID

_MEASURES: Final = "cotenant.base.measures"
_EXTREMES: Final = "cotenant.base.usage.extremes"
_COLOCATION: Final = "cotenant.recommender.colocation"
_SELECTION_TOTALS: Final = "cotenant.dashboard.tables.selection.SelectionTotals"
_PULLS: Final = "cotenant.base.usage.quality"
_PLAN_MODEL: Final = "cotenant.scheduler_ext.reservations.model.plan"
_COUNT: Final = Aggregation(Level.SELECTION, "number")
_NODES: Final = Aggregation(Level.CLUSTER, "number of nodes")
_NODE: Final = Aggregation(Level.NODE)
_PLAN: Final = Aggregation(Level.PLAN)


def _of(
    key: str,
    name: str,
    definition: str,
    unit: Unit,
    function: str,
    of: Aggregation = _COUNT,
    time: Moment = Moment.NOW,
    sign: Sign = Sign.NEVER_NEGATIVE,
) -> Quantity:
    """A quantity of sentences."""
    return Quantity(key, name, definition, unit, function, of, time, sign=sign, surfaces=SAID.get(key, ()))


_COUNTS: Final = (
    _of("named_count", "Number of what is named", "How many of the things a sentence names there are: the length of "
        "the list that it is about.", Unit.COUNT, "builtins.len"),
    _of("matching_count", "Number that fulfil a condition", "How many of these things fulfil the condition that the "
        "sentence names.", Unit.COUNT, f"{_MEASURES}.matching_count"),
    _of("by_kind_count", "Number of each kind", "How many of these things there are of each kind or state that they "
        "have.", Unit.COUNT, "collections.Counter"),
    _of("left_out_count", "And more", "How many of these things a list leaves out, because it has a length.",
        Unit.COUNT, f"{_MEASURES}.left_out_count"),
    _of("rows_count", "Rows", "How many rows of a table the filters leave.", Unit.COUNT,
        "cotenant.base.tables.queries.count"),
    _of("facet_count", "Rows of a value", "How many rows of a table have a value, under all other filters.",
        Unit.COUNT, "cotenant.base.tables.queries.facet"),
    _of("chosen_workloads_count", "Workloads chosen", "Workloads of the rows that a person has ticked.", Unit.COUNT,
        f"{_SELECTION_TOTALS}.workloads"),
    _of("chosen_at_risk_count", "Chosen by risk", "Rows that a person has ticked, by the risk of their change.",
        Unit.COUNT, f"{_SELECTION_TOTALS}.risks"),
    _of("workloads_left_out_count", "Left out of a review", "Workloads that were ticked and that a review would leave "
        "out, by reason and in all.", Unit.COUNT, "cotenant.recommender.model.list_totals.NextReview.left_count"),
    _of("recommendations_count", "Recommendations", "Recommendations of the last scan, of any severity.", Unit.COUNT,
        "cotenant.recommender.model.views.Overview.recommendations_count", time=Moment.LAST_SCAN),
    _of("unsettled_changes_count", "Unknown outcome", "Changes whose outcome is unknown until the cluster was read.",
        Unit.COUNT, "cotenant.changes.model.change.unsettled_count"),
    _of("changes_by_state_count", "Changes by state", "Changes that are in one of some states.", Unit.COUNT,
        "cotenant.changes.model.change.count_of_states"),
    _of("ledger_rows_count", "Rows of the ledger", "Rows of the ledger that were checked.", Unit.COUNT,
        "cotenant.changes.model.service.LedgerHealth.rows"),
    _of("agents_count", "Agents", "Node agents that run, and of these the dry runs.", Unit.COUNT,
        "cotenant.enforcer.model.enforcement.Gathering.agents", _NODES),
    _of("rebalance_moves_count", "Moves", "Pods that a round of rebalancing would move, without the refusals.",
        Unit.COUNT, "cotenant.scheduler_ext.rebalance.model.tables.RebalanceReport.move_count"),
    _of("gang_pods_count", "Pods of a gang", "Pods of a gang that exist, or that are bound or have reserved capacity.",
        Unit.COUNT, "cotenant.scheduler_ext.queues.model.report.GangRow.members", Aggregation(Level.QUEUE, "number")),
    _of("scraped_series_count", "Series of an interval", "Series that were scraped at an interval, the largest number "
        "of any hour.", Unit.COUNT, f"{_PULLS}.ScrapeSpan.series", time=Moment.WINDOW),
    _of("scraped_containers_count", "Containers with metrics", "Containers with a CPU metric, in all namespaces.",
        Unit.COUNT, "cotenant.profiler.prometheus.plan.Population.containers_count"),
    _of("answered_values_count", "Values answered", "Values that the server answered the trial questions with.",
        Unit.COUNT, "cotenant.cli.cluster.probes.metrics._values_count"),
    _of("samples_pulled", "Samples pulled", "Samples that one pull of the history got, and the queries that it took.",
        Unit.COUNT, f"{_PULLS}.QualityRecord.samples", time=Moment.WINDOW),
    _of("defects_count", "Defects", "Samples of one pull that were mended or left out, of one kind or of all.",
        Unit.COUNT, f"{_PULLS}.QualityRecord.defects_count", time=Moment.WINDOW),
)  # fmt: skip
_OF_NODES: Final = (
    _of("lending_nodes_count", "Nodes that lend", "Nodes of which all amounts for batch, one a resource, are known and "
        "above 0.", Unit.COUNT, f"{_COLOCATION}.model.lendable.lending_nodes_count", _NODES, Moment.LAST_SCAN),
    _of("lendable_known_nodes_count", "Nodes whose amount is known", "Nodes of which the amount for batch is known, 0 "
        "included.", Unit.COUNT, "cotenant.recommender.model.views.BandSeries.lending_nodes", _NODES,
        Moment.LAST_SCAN),
    _of("nodes_not_known_ahead_count", "Nodes not known ahead", "Nodes of which what batch may take over the next day "
        "is not known in both.", Unit.COUNT, "cotenant.recommender.colocation.batch.LendableCapacity.unknown", _NODES,
        Moment.NEXT_24_HOURS),
    _of("nodes_above_threshold_count", "Nodes above their threshold", "Nodes whose usage is above the high threshold "
        "of rebalancing.", Unit.COUNT, f"{_MEASURES}.matching_count", _NODES),
    _of("pod_fits_nodes_count", "Nodes for a pod", "Nodes that no rule of the extender refuses a pod.", Unit.COUNT,
        "cotenant.scheduler_ext.extender.why.Explanation", _NODES),
    _of("reported_nodes_count", "Nodes reported", "Fake nodes of a demo that a round reports usage for, or that have "
        "an agent of their own.", Unit.COUNT, "cotenant_lab.simulation.node_agents.AgentRound.reported", _NODES),
    _of("node_allocatable_amount", "Allocatable", "What pods may request of a node, by its status.", Unit.OF_RESOURCE,
        "cotenant.base.cluster.Node.allocatable", _NODE, Moment.LAST_SCAN),
    _of("cluster_allocatable_amount", "Allocatable", "The sum of what pods may request of the nodes.",
        Unit.OF_RESOURCE, "cotenant.recommender.model.views.BandSeries.allocatable",
        Aggregation(Level.CLUSTER, "sum over the nodes"), Moment.LAST_SCAN),
    _of("node_used_ratio", "Used, requested of allocatable", "Usage or requests of a node / its allocatable amount.",
        Unit.RATIO, f"{_MEASURES}.ratio_of", _NODE, Moment.LAST_SCAN),
    _of("nodes_median_used_percent", "Median of the nodes", "Median over the nodes of what is used, or requested, of "
        "their allocatable amount.", Unit.PERCENT, f"{_EXTREMES}.median_of", Aggregation(Level.CLUSTER, "median"),
        Moment.LAST_SCAN),
    _of("node_least_and_most_used_percent", "Most used, least used", "What the node that is used most, or least, uses "
        "of its allocatable amount.", Unit.PERCENT, f"{_EXTREMES}.extremes", Aggregation(Level.CLUSTER, "extremes"),
        Moment.LAST_SCAN),
    _of("node_highest_used_percent", "Highest", "What the node that is used most uses of its capacity, as rebalancing "
        "compares it with thresholds.", Unit.PERCENT, f"{_EXTREMES}.extremes", Aggregation(Level.CLUSTER, "highest")),
    _of("nodes_spread_percent", "Spread", "Standard deviation over the nodes of what is used of their capacity, in "
        "points.", Unit.PERCENT, f"{_EXTREMES}.spread_of", Aggregation(Level.CLUSTER, "standard deviation")),
    _of("cluster_lendable_ahead_least", "From now on", "The least and the most of what batch pods may take from now "
        "on, all nodes together, the present included: on the median line or on that of 95 % values.", Unit.OF_RESOURCE,
        f"{_COLOCATION}.model.lendable.extremes_ahead", Aggregation(Level.CLUSTER, "extremes of a line", "half hour"),
        Moment.NEXT_24_HOURS),
)  # fmt: skip
_TIMES: Final = (
    _of("age_seconds", "Age", "How long ago something was measured, computed or heard of; 0 where another clock is "
        "ahead.", Unit.SECONDS, f"{_MEASURES}.age_seconds"),
    _of("policy_age_seconds", "Age of the policy", "How long ago a node agent last heard of its policy.", Unit.SECONDS,
        "cotenant.enforcer.report.status.NodeStatus.policy_age_seconds", _NODE),
    _of("job_age_seconds", "Age of a kind of work", "How long ago a kind of regular work last succeeded.", Unit.SECONDS,
        "cotenant.dashboard.sources.status.UpkeepJob.age_seconds"),
    _of("length_seconds", "Length", "How long a span of time is, or is still to come.", Unit.SECONDS,
        f"{_MEASURES}.length_seconds", sign=Sign.EITHER),
    _of("job_wait_seconds", "Wait of a job", "How long from now until a job's pod fits.", Unit.SECONDS,
        f"{_MEASURES}.length_seconds"),
    _of("soak_left_seconds", "Soak time left", "How long until a change is verified.", Unit.SECONDS,
        "cotenant.dashboard.changes.change_tables.soaks", Aggregation(Level.WORKLOAD)),
    _of("plan_window_seconds", "Length of a window", "How long an occurrence of a recurring plan lasts.", Unit.SECONDS,
        f"{_PLAN_MODEL}.Recurrence.duration_seconds", _PLAN),
    _of("plan_lead_seconds", "Lead", "How long before the start of its window a plan's capacity is reserved.",
        Unit.SECONDS, f"{_PLAN_MODEL}.Plan.lead_seconds", _PLAN),
    _of("plan_ttl_seconds", "Time to live", "How long a plan's reservation lives.", Unit.SECONDS,
        f"{_PLAN_MODEL}.Plan.ttl_seconds", _PLAN),
    _of("metric_limit_seconds", "Oldest metric", "Age of a node's metric beyond which nothing is lent.", Unit.SECONDS,
        f"{_COLOCATION}.explain.NodeExplained.degrade_seconds", _NODE),
)  # fmt: skip
_OTHERS: Final = (
    _of("ladder_steps_count", "Steps", "Steps of accepted ladders that have begun, and those that were accepted.",
        Unit.COUNT, "cotenant.changes.model.ladder.LadderProgress.steps_begun", Aggregation(Level.WORKLOAD, "number")),
    _of("false_alarm_ratio", "Hours that would have counted as harm", "Share of pairs of neighbouring hours without a "
        "change in which a measure of a service rose by more than a verdict allows.", Unit.RATIO,
        "cotenant.changes.objectives.found.false_alarm_ratio", Aggregation(Level.WORKLOAD, "share"), Moment.WINDOW),
    _of("alarming_hours_count", "Hours that would have looked like harm", "Hours of the last week in which a measure "
        "of a service was above the most that a verdict allows after the hour before.", Unit.COUNT,
        "cotenant.changes.objectives.found.alarming_hours_count", Aggregation(Level.WORKLOAD, "number"), Moment.WINDOW),
    _of("served_requests_per_hour", "Requests an hour", "Number of requests that a service served in the median hour "
        "of the last week.", Unit.COUNT, "cotenant.changes.objectives.found.median_hourly_count",
        Aggregation(Level.WORKLOAD, "median"), Moment.WINDOW),
    _of("later_steps_count", "Later steps", "Steps that come after the first ones of the workloads of a review.",
        Unit.COUNT, "cotenant.dashboard.changes.review_end.later_steps_count"),
    _of("review_left_seconds", "Left of a review", "How long the review of many workloads still takes.", Unit.SECONDS,
        "cotenant.dashboard.changes.review_job.ReviewJob.left_seconds"),
    _of("replay_left_seconds", "Left of a replay", "How long the replay in the background still takes.", Unit.SECONDS,
        "cotenant.base.usage.backtest.ReplayProgress.left_seconds"),
    _of("replay_runs_count", "Runs of a replay", "Runs of the replay in the background that are done, and all of them.",
        Unit.COUNT, "cotenant.base.usage.backtest.ReplayProgress.done_runs"),
    _of("move_left_seconds", "Left of a move ahead", "How long the demo still takes to move its clock ahead, on the "
        "machine's clock.", Unit.SECONDS, "cotenant.base.demo_clock.MoveProgress.left_seconds"),
    _of("move_done_ratio", "Done of a move ahead", "Share of a move ahead of the demo's clock that lies behind it.",
        Unit.RATIO, "cotenant.base.demo_clock.MoveProgress.done_ratio"),
    _of("demo_left_seconds", "Left of a demo", "How long the making of a demo still takes.", Unit.SECONDS,
        "cotenant_lab.demo.time_left.MakingTime.left_seconds"),
    _of("demo_done_ratio", "Done of a demo", "Share of the making of a demo that is done.", Unit.RATIO,
        "cotenant_lab.demo.time_left.MakingTime.done_ratio"),
    _of("change_mean_usage", "Mean before and after", "Mean usage of a workload before a change, and after it.",
        Unit.OF_RESOURCE, "cotenant.dashboard.figures.passage.Passage.mean_usage", Aggregation(Level.WORKLOAD, "mean"),
        Moment.WINDOW),
    _of("forecast_median_coverage_ratio", "Coverage of half the forecasts", "Median over the measured forecasts of the "
        "share of values at or below their 0.95 quantile.", Unit.RATIO, f"{_EXTREMES}.median_of",
        Aggregation(Level.CLUSTER, "median"), Moment.BACK_TEST),
    _of("what_if_utilisation_ratio", "Utilisation", "Used core-hours of a replay / those that its nodes have.",
        Unit.RATIO, "cotenant.base.usage.backtest.RiskOutcome.utilisation", Aggregation(Level.CLUSTER),
        Moment.BACK_TEST),
)  # fmt: skip

QUANTITIES: Final[tuple[Quantity, ...]] = (*_COUNTS, *_OF_NODES, *_TIMES, *_OTHERS)
