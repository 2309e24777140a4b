"""Where sentences contain each quantity that no table has: on pages, from commands, in reports, in notes. Pure.

A house test finds the sentences in the code and refuses a surface that is missing here, or that no sentence is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cotenant.quantities.quantity import Surface

_KEYS: Final[Mapping[tuple[Surface, ...], str]] = {
    (Surface.SENTENCE,): """
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
        review_left_seconds change_mean_usage forecast_median_coverage_ratio what_if_utilisation_ratio
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
        served_requests_per_hour
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
    (Surface.REPORT, Surface.NOTE): """
        containers_count
        """,
    (Surface.SENTENCE, Surface.REPORT, Surface.NOTE): """
        waste_amount
        """,
}
"""The surfaces of sentences -> the keys of the quantities that are said there."""
SAID: Final[Mapping[str, tuple[Surface, ...]]] = MappingProxyType(
    {key: surfaces for surfaces, keys in _KEYS.items() for key in keys.split()}
)
