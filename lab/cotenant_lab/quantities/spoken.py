"""Quantities that sentences contain and no tile or table does: counts of what is named, ages, lengths, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Sign, Surface, Unit

_KEYS: Final[Mapping[tuple[Surface, ...], str]] = {
    (Surface.SENTENCE,): """
        reason_containers_count
        chosen_count job_nodes_count job_pods_count queue_waiting_count trial_evictions_count pull_seconds
        plan_quantile plans_demand plan_windows_count plan_workloads_count quota_left request_amount
        freed_amount lendable_term latency_change quota_amount quota_starved_hours what_if_capacity_cores
        what_if_risk_percent facet_count chosen_workloads_count chosen_at_risk_count workloads_left_out_count
        recommendations_count gang_pods_count scraped_series_count samples_pulled lending_nodes_count
        lendable_known_nodes_count nodes_not_known_ahead_count nodes_above_threshold_count
        node_allocatable_amount cluster_allocatable_amount node_used_ratio nodes_median_used_percent
        node_least_and_most_used_percent node_highest_used_percent nodes_spread_percent
        cluster_lendable_ahead_least job_age_seconds job_wait_seconds soak_left_seconds plan_window_seconds
        plan_lead_seconds plan_ttl_seconds ladder_steps_count alarming_hours_count later_steps_count
        review_left_seconds replay_left_seconds replay_runs_count move_left_seconds move_done_ratio
        change_mean_usage forecast_median_coverage_ratio what_if_utilisation_ratio
        """,
    (Surface.SENTENCE, Surface.CLI): """
        trouble_count back_test_days peak_above_mean_ratio policy_switch_ratio policy_violation_ratio
        forecast_loss_ratio forecast_coverage_ratio plan_idle_core_hours plan_lent_core_hours
        plan_held_core_hours plan_standby_core_hours plan_cost plan_cores_per_pod plan_pods_count plans_count
        shortage_seconds usage_amount named_count matching_count by_kind_count left_out_count
        unsettled_changes_count changes_by_state_count ledger_rows_count agents_count rebalance_moves_count
        defects_count age_seconds length_seconds false_alarm_ratio
        """,
    (Surface.CLI,): """
        worth_the_effort_count kept_recommendations_count learned_hours_seconds peak_above_now_millicores
        plan_displaced_core_hours pending_seconds scraped_containers_count answered_values_count
        pod_fits_nodes_count reported_nodes_count policy_age_seconds metric_limit_seconds
        served_requests_per_hour demo_left_seconds demo_done_ratio
        """,
    (Surface.SENTENCE, Surface.CLI, Surface.REPORT): """
        nodes_count severity_count replicas_count window_days interval_seconds throttled_minutes
        """,
    (Surface.CLI, Surface.REPORT): """
        workloads_count pods_count what_if_cost
        """,
    (Surface.SENTENCE, Surface.REPORT): """
        reason_count rows_count
        """,
    (Surface.SENTENCE, Surface.REPORT, Surface.NOTE): """
        containers_count waste_amount
        """,
}
"""The surfaces of sentences -> the keys of the quantities that are said there."""
SAID: Final[Mapping[str, tuple[Surface, ...]]] = MappingProxyType(
    {key: surfaces for surfaces, keys in _KEYS.items() for key in keys.split()}
)
"""Key -> where sentences contain it; a house test finds the sentences in the code and refuses any other surface."""
_VIEWS: Final = "cotenant.recommender.model.views.Overview"
_DOCUMENT: Final = (Surface.REST, Surface.MCP)
"""Both answer with the document that the overview is drawn from."""
_PLANS: Final = "cotenant.scheduler_ext.reservations.model"
_RISK: Final = "cotenant.base.usage.backtest"


def _of(
    key: str,
    name: str,
    definition: str,
    unit: Unit,
    function: str,
    of: Aggregation,
    time: Moment = Moment.LAST_SCAN,
    sign: Sign = Sign.NEVER_NEGATIVE,
) -> Quantity:
    """A quantity of sentences."""
    surfaces = (*SAID.get(key, ()), *(_DOCUMENT if function.startswith(_VIEWS) else ()))
    return Quantity(key, name, definition, unit, function, of, time, sign=sign, surfaces=surfaces)


_CLUSTER: Final = Aggregation(Level.CLUSTER)
_COUNT: Final = Aggregation(Level.CLUSTER, "number")
_SELECTION: Final = Aggregation(Level.SELECTION, "number")
_CONTAINER: Final = Aggregation(Level.CONTAINER)
_PLAN: Final = Aggregation(Level.PLAN)
_NODE: Final = Aggregation(Level.NODE)
_SERIES: Final = Aggregation(Level.SERIES)
_MEASURES: Final = "cotenant.base.measures"
_EXTREMES: Final = "cotenant.base.usage.extremes"

_COUNTS: Final = (
    _of("nodes_count", "Nodes", "Nodes of the inventory.", Unit.COUNT, f"{_VIEWS}.nodes", _COUNT),
    _of("workloads_count", "Workloads", "Workloads of the inventory.", Unit.COUNT, f"{_VIEWS}.workloads", _COUNT),
    _of("pods_count", "Pods", "Pods that run.", Unit.COUNT, f"{_VIEWS}.pods", _COUNT),
    _of("containers_count", "Containers", "Containers of the inventory.", Unit.COUNT, f"{_VIEWS}.containers", _COUNT),
    _of("severity_count", "Recommendations of a severity", "Recommendations of each severity: critical, high, medium, "
        "low.", Unit.COUNT, f"{_VIEWS}.severities", _COUNT),
    _of("reason_count", "Values with a reason", "CPU or memory request values that carry a reason code.", Unit.COUNT,
        f"{_VIEWS}.reasons", _COUNT),
    _of("reason_containers_count", "Containers with a reason", "Containers whose CPU or memory carries a reason "
        "code.", Unit.COUNT, "cotenant.recommender.model.list_totals.reason_counts", _COUNT),
    _of("pattern_count", "Workloads of a pattern", "Workloads whose usage follows a pattern.", Unit.COUNT,
        f"{_VIEWS}.patterns", _COUNT),
    _of("worth_the_effort_count", "Worth the effort", "Fewest recommendations that together give 70 % of the CPU "
        "saving.", Unit.COUNT, f"{_VIEWS}.worth_the_effort", _COUNT),
    _of("kept_recommendations_count", "Kept recommendations", "Recommendations of an earlier analysis that still hold.",
        Unit.COUNT, f"{_VIEWS}.kept_recommendations", _COUNT),
    _of("chosen_count", "Chosen", "Rows, or workloads of them, that a person has ticked or that filters leave.",
        Unit.COUNT, "cotenant.dashboard.tables.selection.SelectionTotals.rows", _SELECTION, Moment.NOW),
    _of("job_nodes_count", "Nodes for a job", "Nodes on which a batch pod of a size fits in a window.", Unit.COUNT,
        "cotenant.recommender.colocation.batch.StartWindow.nodes", _COUNT, Moment.NEXT_24_HOURS),
    _of("job_pods_count", "Pods of a job", "Batch pods of a size that fit on all nodes in a window.", Unit.COUNT,
        "cotenant.recommender.colocation.batch.StartWindow.pods", _COUNT, Moment.NEXT_24_HOURS),
    _of("queue_waiting_count", "Waiting pods", "Pods that wait in a quota, or their place in it.", Unit.COUNT,
        "cotenant.scheduler_ext.queues.model.report.QuotaRow.waiting_pods", Aggregation(Level.QUEUE, "number of pods"),
        Moment.NOW),
    _of("trouble_count", "Kills, restarts, evictions", "Events of a workload or container in the window.", Unit.COUNT,
        "cotenant.recommender.model.recommendation.Backtest.oom_kills", _CONTAINER, Moment.WINDOW),
    _of("trial_evictions_count", "Evictions of a trial", "Batch pods that left for want of memory, or that a replay "
        "of a proposal would have put at risk.", Unit.COUNT, f"{_RISK}.RiskOutcome.evictions", _COUNT,
        Moment.BACK_TEST),
    _of("replicas_count", "Replicas", "Pods of a workload that run, or that a proposal multiplies its effect by.",
        Unit.COUNT, "cotenant.recommender.model.recommendation.Recommendation.replicas", Aggregation(Level.WORKLOAD)),
)  # fmt: skip
_TIMES: Final = (
    _of("window_days", "Days of history", "Days that the results rest on.", Unit.DAYS, f"{_VIEWS}.window_days",
        _CLUSTER, Moment.WINDOW),
    _of("back_test_days", "Days of a back-test", "Days on which a decision was tried on the past.", Unit.DAYS,
        "cotenant.base.usage.backtest.PolicySwitch.tested_days", _CLUSTER, Moment.BACK_TEST),
    _of("interval_seconds", "Scrape interval", "Seconds between two samples of a series.", Unit.SECONDS,
        f"{_VIEWS}.scrape_interval_seconds", _CLUSTER, Moment.WINDOW),
    _of("throttled_minutes", "Throttled", "Container-minutes with CPU demand above the limit in the days of the "
        "back-test, with the proposal and with the present values.", Unit.CONTAINER_MINUTES,
        "cotenant.recommender.model.recommendation.Backtest.throttled_minutes", _CONTAINER, Moment.BACK_TEST),
    _of("learned_hours_seconds", "Time since learning", "How long ago forecasts or recommendations were learned or "
        "computed that these results still use.", Unit.SECONDS, f"{_VIEWS}.learned_seconds", _CLUSTER, Moment.NOW),
    _of("pull_seconds", "Time of a pull", "Seconds that the client, and the server as it says, took for one pull.",
        Unit.SECONDS, "cotenant.base.usage.quality.QualityRecord.server_seconds", _CLUSTER, Moment.NOW),
)  # fmt: skip
_PEAKS: Final = (
    _of("peak_above_mean_ratio", "Above the mean", "Mean of the busiest two hours / mean of the next 24 hours "
        "- 1, both of the median path.", Unit.RATIO, "cotenant.base.usage.peak.PeakAhead.above_mean", _CLUSTER,
        Moment.NEXT_24_HOURS, sign=Sign.EITHER),
    _of("peak_above_now_millicores", "Above now", "The peak less what is used now.", Unit.MILLICORES,
        "cotenant.base.usage.peak.PeakAhead.above_now_millicores", _CLUSTER, Moment.NEXT_24_HOURS, sign=Sign.EITHER),
    _of("policy_switch_ratio", "Times more lent", "CPU that policy forecast would have lent / what the policy in force "
        "lent.", Unit.RATIO, "cotenant.base.usage.backtest.PolicySwitch.ratio", _CLUSTER, Moment.BACK_TEST),
    _of("policy_violation_ratio", "Violated", "Share of node-time in which prod used more than the policy had left it; "
        "another rule than what_if_short, which counts what batch takes too.", Unit.RATIO,
        "cotenant.base.usage.backtest.PolicySwitch.violation", _CLUSTER, Moment.BACK_TEST),
    _of("forecast_loss_ratio", "Error of forecasts", "Loss of a model's forecasts / loss of repeating the last day or "
        "week; below 1 is better.", Unit.NUMBER, "cotenant.base.usage.forecast.ModelCard.relative_loss", _SERIES,
        Moment.BACK_TEST),
    _of("forecast_coverage_ratio", "Within the band", "Share of values, unseen by the model, that lay below the "
        "0.95 quantile or within a band.", Unit.RATIO, "cotenant.base.usage.week.Weeks.covered", _SERIES,
        Moment.BACK_TEST),
)  # fmt: skip
_OF_PLANS: Final = (
    _of("plan_idle_core_hours", "Idle", "Core-hours of reserved capacity that no pod used.", Unit.CORE_HOURS,
        f"{_PLANS}.plan.Score.idle_core_hours", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_lent_core_hours", "Lent", "Core-hours of idle reserved capacity that batch used.", Unit.CORE_HOURS,
        f"{_PLANS}.plan.Score.lent_core_hours", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_held_core_hours", "Reserved", "Core-hours that a plan would reserve in its windows.", Unit.CORE_HOURS,
        f"{_PLANS}.plan_service.Preview.reserved_core_hours", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_displaced_core_hours", "Displaced", "Core-hours of batch work that a plan would displace.",
        Unit.CORE_HOURS, f"{_PLANS}.plan_service.Preview.displaced_core_hours", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_standby_core_hours", "Standby", "Core-hours a day that capacity kept ready at any time leaves idle at "
        "most.", Unit.CORE_HOURS_PER_DAY, f"{_PLANS}.plan.Plan.standby_core_hours", _PLAN, Moment.NOW),
    _of("plan_cost", "Cost of a plan", "Reserved, displaced or idle capacity of a plan at the price sheet's rates.",
        Unit.MONEY_PER_DAY, f"{_PLANS}.plan.Score.cost", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_cores_per_pod", "Cores of one pod", "CPU request of one pod of a plan, in cores.", Unit.CORES,
        f"{_PLANS}.plan.Plan.cores_per_pod", _PLAN, Moment.NOW),
    _of("plan_pods_count", "Pods of a plan", "Pods that a plan, a window, a score or a preview counts: reserved, used, "
        "waiting, placed.", Unit.COUNT, f"{_PLANS}.plan_states.wanted_pods", _PLAN, Moment.PLAN_WINDOW),
    _of("plan_quantile", "Quantile of a plan", "Quantile of the demand that a plan reserves for.", Unit.NUMBER,
        f"{_PLANS}.plan.Plan.quantile", _PLAN, Moment.NOW),
    _of("plans_demand", "Together", "What all plans need together in a half hour at most, and how many half hours "
        "that is more than is free.", Unit.OF_RESOURCE, "cotenant.dashboard.figures.gantt.DemandCurve.highest",
        _CLUSTER, Moment.EACH_SLOT),
    _of("plans_count", "Plans", "Plans of the cluster, whatever number of windows each has.", Unit.COUNT,
        f"{_PLANS}.plan_states.PlanCounts.plans", _COUNT, Moment.NOW),
    _of("plan_windows_count", "Windows", "Windows of plans and proposals in what is drawn, or the further ones of a "
        "plan.", Unit.COUNT, f"{_PLANS}.plan_states.PlanCounts.windows", _COUNT, Moment.PLAN_WINDOW),
    _of("plan_workloads_count", "Workloads with windows", "Workloads of which a plan or proposal is drawn, listed or "
        "withheld: lines of the chart.", Unit.COUNT,
        "cotenant.dashboard.reservations.proposed_plans.PlanSums.workloads", _COUNT, Moment.NOW),
    _of("quota_left", "Left of the quota", "What a quota leaves after the pods of a plan.", Unit.OF_RESOURCE,
        f"{_PLANS}.plan_service.Preview.quota_left", Aggregation(Level.QUEUE), Moment.NOW, sign=Sign.EITHER),
    _of("shortage_seconds", "Minutes of shortage", "Whole minutes of a window in which pods of a workload were "
        "missing, counted alike with and without the plan.", Unit.SECONDS,
        "cotenant_lab.simulation.shortage.ShortageCount.short_seconds",
        _PLAN, Moment.PLAN_WINDOW),
    _of("pending_seconds", "Wait of peak pods", "0.95 quantile of what peak pods waited, without plans and with them.",
        Unit.SECONDS, "cotenant_lab.simulation.peaks.peak_play.PeakOutcome.p95_seconds", _PLAN, Moment.BACK_TEST),
)  # fmt: skip
_USAGE: Final = (
    _of("usage_amount", "Usage", "What a workload, a node, its pods or the cluster used: newest, mean, highest or a "
        "quantile, as the sentence says.", Unit.OF_RESOURCE, "cotenant.base.usage.usage.Usage.values", _SERIES,
        Moment.WINDOW),
    _of("request_amount", "Request or limit", "A request or limit of a container, now, proposed or after a step.",
        Unit.OF_RESOURCE, "cotenant.recommender.model.recommendation.Value.amount", _CONTAINER, Moment.NOW),
    _of("freed_amount", "Freed on average", "Decrease of the request in the days of a back-test, mean over time, all "
        "pods together; negative when more is requested.", Unit.OF_RESOURCE,
        "cotenant.recommender.model.recommendation.Backtest.freed_bytes", _CONTAINER, Moment.BACK_TEST,
        sign=Sign.POSITIVE_IS_FREED),
    _of("waste_amount", "Requested and not used", "Requests less mean usage of a namespace or workload.",
        Unit.MILLICORES, f"{_VIEWS}.waste", Aggregation(Level.NAMESPACE, "sum over the pods")),
    _of("lendable_term", "Term of the formula", "One term of a node's lendable amount: capacity, margin, system, "
        "usage of prod, cap.", Unit.OF_RESOURCE, "cotenant.dashboard.nodes.lendable.LentPaths.terms", _NODE),
    _of("latency_change", "Change of latency", "What a rule of verification compares: after the change / before it.",
        Unit.NUMBER, "cotenant.changes.model.judgement.RuleResult.after", _CONTAINER, Moment.WINDOW),
    _of("quota_amount", "Amount of a quota", "Guarantee, use, request or maximum of a quota.", Unit.OF_RESOURCE,
        "cotenant.scheduler_ext.queues.model.report.QuotaRow.used", Aggregation(Level.QUEUE), Moment.NOW),
    _of("quota_starved_hours", "Below the guarantee", "Hours of the last day in which a quota requested more than it "
        "might use, or in which a pod waited for it.", Unit.NUMBER, "cotenant.dashboard.figures.quotas.starved_hours",
        Aggregation(Level.QUEUE), Moment.WINDOW),
    _of("what_if_capacity_cores", "Capacity", "Cores of all nodes of a replay, and how many of them services, batch or "
        "lending took on the mean day.", Unit.CORES, f"{_RISK}.WhatIf.capacity_cores", _CLUSTER, Moment.BACK_TEST),
    _of("what_if_risk_percent", "Risk", "Chance of a forecast peak being passed, in percent, that a replay was made "
        "with.", Unit.PERCENT, f"{_RISK}.RiskOutcome.risk_percent", _CLUSTER, Moment.BACK_TEST),
    _of("what_if_cost", "Cost of sharing", "One figure of what an incident cost, in the unit that it names.",
        Unit.NUMBER, "cotenant_lab.simulation.nodes.incident_story.IncidentCost.value", _CLUSTER,
        Moment.BACK_TEST, sign=Sign.EITHER),
)  # fmt: skip

QUANTITIES: Final[tuple[Quantity, ...]] = (*_COUNTS, *_TIMES, *_PEAKS, *_OF_PLANS, *_USAGE)
