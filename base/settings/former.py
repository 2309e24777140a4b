"""Keys that were settings and are constants now: what a person who still sets one is warned of. Pure.

The constant itself says what it is and why it has its value; docs/constants.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_TABLE: Final = """
profiler profiler.settings.ProfilerSettings: overlap_seconds
profiler.prometheus profiler.settings.PrometheusSettings: connect_timeout_seconds retries backoff_seconds
    max_points_per_query
profiler.prometheus profiler.prometheus.source: recording_rules
portrait profiler.settings.PortraitSettings: half_life_hours days_kept
portrait profiler.pattern: pattern_days idle_millicores flat_amplitude trend_rise trend_fit season_share week_share
forecasting forecasting.settings.ForecastingSettings: history_days minimum_days prior_days relearn_hours
    booster_minimum_series coverage_step cluster_peak_share week_workloads
forecasting forecasting.engine: stale_hours
forecasting forecasting.selection: origin_decay near_weight
forecasting forecasting.served_mixture: near_mix_weight blend_sharpness mix_sharpness
forecasting forecasting.boosting.booster: booster_threads
forecasting forecasting.peaks: peak_day_decay peak_prior_days
forecasting forecasting.windows: peak_amplitude window_minutes
node_peak forecasting.settings.NodePeakSettings: calibration_days prior_days node_tolerance minimum_days
notify changes.commands.watcher_output: peak_hours
notify base.settings.sections.notify.NotifySettings: rows notes_per_hour timeout_seconds
plans scheduler_ext.reservations.plans.rehearsed_proposals: most_proposals
plans scheduler_ext.reservations.model.settings.PlanSettings: minimum_coverage backtest_days waiting_fraction
    minimum_window_minutes minimum_skill pod_start_seconds scheduler_seconds interval_seconds
plans scheduler_ext.reservations.plans.proposals: headroom_ratio join_gap_minutes
plans scheduler_ext.reservations.plan_decisions: ttl_margin_minutes
plans scheduler_ext.reservations.plans.hold: hysteresis_fraction change_interval_seconds
plans scheduler_ext.reservations.plans.lead: room_free_seconds
recommender.krr recommender.strategies.settings.KrrSettings: step_seconds cpu_request_percentile cpu_limit_percentile
    minimum_history_minutes
recommender.krr recommender.strategies.krr: cpu_floor_millicores memory_floor_bytes oom_memory_buffer_percent
recommender.vpa recommender.strategies.vpa: lower_fraction upper_fraction memory_interval_hours
recommender.vpa recommender.strategies.settings.VpaSettings: half_life_hours pod_floor_millicores pod_floor_bytes
    oom_bump_ratio oom_bump_bytes
recommender.cotenant.profiles.conservative recommender.settings.ProfilesSettings.conservative: cpu_fraction
    cpu_margin_fraction memory_margin_fraction cpu_root_margin_millicores
recommender.cotenant.profiles.balanced recommender.settings.ProfilesSettings.balanced: cpu_fraction cpu_margin_fraction
    memory_margin_fraction cpu_root_margin_millicores
recommender.cotenant.profiles.aggressive recommender.settings.ProfilesSettings.aggressive: cpu_fraction
    cpu_margin_fraction memory_margin_fraction cpu_root_margin_millicores
recommender.cotenant recommender.settings.CotenantSettings: oom_bump_ratio oom_bump_bytes pod_floor_millicores
    pod_floor_bytes minimum_days minimum_coverage dead_band_fraction cpu_limit_margin_fraction heap_collecting_fraction
recommender.cotenant recommender.strategies.cotenant.withhold: minimum_runs
recommender.cotenant recommender.strategies.cotenant.demand: guaranteed_fraction returning_peak_ratio uneven_ratio
recommender.cotenant recommender.strategies.cotenant.heap: heap_live_factor heap_raise
recommender.cotenant recommender.strategies.cotenant.strategy: hpa_target_max_percent
recommender.cotenant recommender.strategies.cotenant.trend: growth_weekly_fraction growth_horizon_days leak_days
    leak_rise_fraction leak_agreement
recommender.cotenant.severity recommender.severity: critical_cluster_share critical_change warning_change
    warning_millicores warning_bytes ok_change ok_millicores ok_bytes
recommender.cotenant.severity recommender.settings.SeveritySettings: throttled_share
recommender.reclaimable recommender.settings.ReclaimableSettings: mid_cpu_percent mid_memory_percent
    mid_unallocated_percent mid_mode mid_static_cpu_percent mid_static_memory_percent degrade_minutes forecast_origins
    forecast_violation_percent
recommender.findings recommender.settings.FindingSettings: minimum_days minimum_coverage idle_pod_millicores
    idle_gpu_percent
recommender.findings recommender.findings: idle_node_fraction idle_node_pod_share leak_critical_days skew_ratio
    skew_pods skew_millicores skew_bytes
recommender.gpus recommender.gpus: core_fraction unmeasured_hours
recommender.gpus recommender.settings.GpuSettings: core_margin_fraction memory_margin_fraction step_percent
recommender.backtest recommender.settings.BacktestSettings: days
recommender.backtest recommender.trust: trusted_days trusted_weeks trusted_throttling
recommender recommender.settings.RecommenderSettings: renew_hours
recommender.replicas recommender.settings.ReplicaSettings: percentile kinds
recommender.replicas recommender.replicas: many_replicas target_percent
dashboard dashboard.frame.shell: amber_after_seconds
dashboard dashboard.settings.DashboardSettings: reload_seconds poll_seconds body_cap_bytes read_seconds
dashboard dashboard.tables.list_page: page_rows
dashboard dashboard.home.overview: waste_bars
access dashboard.access.gate: most_sessions
kube base.settings.sections.kube.KubeSettings: deadline_seconds retries body_cap_bytes watch_idle_seconds
    watch_backoff_seconds
kube base.kube.client: page_size
kube base.kube.writes: write_connections
kube base.kube.watch: relist_seconds
manager base.settings.sections.manager.ManagerSettings: retry_seconds renew_deadline_seconds coalesce_seconds
    resync_seconds stale_seconds feature_retry_seconds forecast_interval_seconds
manager profiler.enforcement.collector: enforcement_interval_seconds
manager manager.features: node_metric_interval_seconds
manager manager.decisions.recommendations: recommendation_dead_band_fraction recommendation_fall_hours
    recommendation_stale_hours
manager manager.decisions.forecasts: forecast_dead_band_fraction forecast_refresh_hours
actions changes.soak.reconcile: verify_hours
actions changes.model.settings.ActionSettings: resize_seconds watch_seconds
actions changes.decide.regression_check: most_throttled_rise most_pressure_rise most_restarts
actions.guardrails changes.model.settings.GuardrailSettings: minimum_coverage
actions.guardrails changes.decide.guardrails: memory_above_maximum
autopilot.ceiling autopilot.settings.CeilingSettings: throttled_share
autopilot autopilot.settings.AutopilotSettings: interval_seconds back_off_hours stop_share stop_changes
autopilot autopilot.configured_controller: start_up_seconds
autopilot autopilot.decide.halt: most_nodes_not_ready
admission admission.settings.AdmissionSettings: max_body_bytes read_seconds max_connections service configuration
    authority_days certificate_days overlap_seconds
admission admission.webhook_server.certificates: certificate_secret_name
reservations scheduler_ext.reservations.model.settings.ReservationSettings: placeholders_per_node swap_settle_seconds
    gate_seconds served_seconds keep_ended_seconds
reservations scheduler_ext.reservations.assign: swaps_at_once
reservations scheduler_ext.reservations.swap: swap_timeout_seconds
reservations scheduler_ext.reservations.decide: swap_linger_seconds
queues scheduler_ext.queues.model.settings.QueueSettings: min_scaling gang_place_seconds back_off_seconds
    longest_back_off_seconds served_seconds
queues scheduler_ext.queues.revoke: evictions_per_round
queues scheduler_ext.queues.gangs.group: gang_wait_seconds
descheduler scheduler_ext.rebalance.migration.churn: least_churn
descheduler scheduler_ext.rebalance.model.settings.DeschedulerSettings: keep_ended_seconds
extender scheduler_ext.extender.settings.ExtenderSettings: max_body_bytes read_seconds http_timeout_seconds near_points
    score_span watcher coalesce_seconds stale_seconds
extender.load_aware scheduler_ext.extender.settings.LoadAwareSettings: aggregated_seconds score_aggregation
    score_aggregated_seconds dominant_weight estimated_seconds_after_scheduled estimated_seconds_after_initialized
extender.load_aware scheduler_ext.extender.load.load_aware: breaker_fraction
extender.load_aware.scaling_factors scheduler_ext.extender.settings.LoadAwareSettings.scaling_factors: cpu memory
extender.load_aware.weights scheduler_ext.extender.settings.LoadAwareSettings.weights: cpu memory
extender.prediction scheduler_ext.extender.settings.PredictionSettings: horizon_hours
extender.balance scheduler_ext.extender.settings.BalanceSettings: load peak suppression spread
extender.cpus scheduler_ext.extender.cpus: bind_policy numa_strategy
load_taints scheduler_ext.load_taints.settings.LoadTaintSettings: interval_seconds hold_seconds
load_taints scheduler_ext.load_taints.controller: refuse_percent avoid_percent leave_percent
enforcer enforcer.settings.agent.EnforcerSettings: pods_ttl_seconds
enforcer enforcer.agent: startup_seconds
enforcer enforcer.apply.pod_evictions: eviction_grace_seconds
enforcer enforcer.assembly: nvml_library record_cap_bytes
enforcer.best_effort enforcer.settings.best_effort.BestEffortSettings: ahead_seconds starve_seconds pending_seconds
    interference_confirm_seconds interference_patience_seconds interference_samples
enforcer.best_effort enforcer.strategies.eviction.victims: cpu_cooldown_seconds memory_cooldown_seconds
enforcer.best_effort enforcer.strategies.interference: interference_factor interference_quiet_percent
runtime enforcer.settings.runtime.RuntimeSettings: nri_register_seconds nri_retry_seconds cri_hook_seconds
enforcer.dra enforcer.settings.runtime.DraSettings: plugin_dir
"""
"""One line per section and holder of its constants, "section holder: keys"; an indented line continues the one above.

The holder is a class, whose fields have the keys' names, or a module, whose constants have them in capitals.
"""
_OTHER_NAMES: Final = {"plans.room_free_seconds": "CAPACITY_FREE_SECONDS"}
"""Former key -> the constant's name, where it is not the key's."""


@dataclass(frozen=True, slots=True)
class FormerSetting:
    """A key that no settings file can set any more, and the constant that took its place."""

    key: str
    """Path as it was in a settings file: "section.key"."""
    constant: str
    """Dotted name of the constant: of a module's variable, or of a class's field with that default."""

    @property
    def warning(self) -> str:
        """The sentence for somebody who still sets the key."""
        return f"{self.key} is no setting any more: its value is ignored, the constant {self.constant} takes its place"


def _former_settings() -> Iterator[FormerSetting]:
    """Yield one former setting per key, in the order of the table."""
    for row in _TABLE.replace("\n    ", " ").strip().splitlines():
        head, _, keys = row.partition(": ")
        section, holder = head.split(" ")
        of_class = any(part[:1].isupper() for part in holder.split("."))
        for key in keys.split():
            path = f"{section}.{key}"
            name = key if of_class else _OTHER_NAMES.get(path, key.upper())
            yield FormerSetting(path, f"cotenant.{holder}.{name}")


FORMER: Final[Mapping[str, FormerSetting]] = MappingProxyType({found.key: found for found in _former_settings()})
"""Former key -> the constant that took its place."""

FORMER_SECTIONS: Final = frozenset(
    key.rsplit(".", depth)[0] for key in FORMER for depth in range(1, key.count(".") + 1)
)
"""Paths of all sections above a former key, such as "recommender" and "recommender.krr"."""


def former_setting(path: str) -> FormerSetting | None:
    """Return the former setting that a path names, or of which it names an entry; None for every other path."""
    while path not in FORMER and "." in path:
        path = path.rpartition(".")[0]
    return FORMER.get(path)
