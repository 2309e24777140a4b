"""Former settings of the recommender and of the strategies that reproduce peers."""

from __future__ import annotations

from typing import Final

from cotenant.base.settings.former.group import FormerGroup

RECOMMENDER: Final = (
    FormerGroup(
        "recommender.krr",
        "cotenant.base.settings.sections.peer_strategies.KrrSettings",
        {
            "step_seconds": (
                75,
                "Default of Robusta KRR (--timeframe-duration 1.25 minutes), which its results depend on.",
            ),
            "cpu_request_percentile": (66.0, "Default of Robusta KRR's simple_limit (--cpu-request)."),
            "cpu_limit_percentile": (96.0, "Default of Robusta KRR's simple_limit (--cpu-limit)."),
            "minimum_history_minutes": (
                125,
                "Default of Robusta KRR (--points-required 100) at its own step of 75 seconds.",
            ),
        },
    ),
    FormerGroup(
        "recommender.krr",
        "cotenant.recommender.strategies.krr",
        {
            "cpu_floor_millicores": (10, "Default of Robusta KRR (--cpu-min 10)."),
            "memory_floor_bytes": (104857600, "Default of Robusta KRR (--mem-min 100)."),
            "oom_memory_buffer_percent": (25.0, "Default of Robusta KRR (--oom-memory-buffer-percentage)."),
        },
    ),
    FormerGroup(
        "recommender.vpa",
        "cotenant.recommender.strategies.vpa",
        {
            "lower_fraction": (
                0.5,
                "Default of the Vertical Pod Autoscaler (recommendation-lower-bound-cpu-percentile); the bound "
                "is shown, not applied.",
            ),
            "upper_fraction": (
                0.95,
                "Default of the Vertical Pod Autoscaler (recommendation-upper-bound-cpu-percentile); the bound "
                "is shown, not applied.",
            ),
            "memory_interval_hours": (24, "Default of the Vertical Pod Autoscaler (memory-aggregation-interval)."),
        },
    ),
    FormerGroup(
        "recommender.vpa",
        "cotenant.base.settings.sections.peer_strategies.VpaSettings",
        {
            "half_life_hours": (24, "Default of the Vertical Pod Autoscaler (cpu-histogram-decay-half-life)."),
            "pod_floor_millicores": (
                25,
                "Default of the Vertical Pod Autoscaler (pod-recommendation-min-cpu-millicores).",
            ),
            "pod_floor_bytes": (
                262144000,
                "Default of the Vertical Pod Autoscaler (pod-recommendation-min-memory-mb).",
            ),
            "oom_bump_ratio": (1.2, "Default of the Vertical Pod Autoscaler (oom-bump-up-ratio)."),
            "oom_bump_bytes": (104857600, "Default of the Vertical Pod Autoscaler (oom-min-bump-up-bytes)."),
        },
    ),
    FormerGroup(
        "recommender.cotenant.profiles.conservative",
        "cotenant.base.settings.sections.recommender.ProfilesSettings.conservative",
        {
            "cpu_fraction": (
                0.98,
                "What the word means; recommender.cotenant.cpu_fraction sets a quantile of your own.",
            ),
            "cpu_margin_fraction": (
                0.1,
                "What the word means; recommender.cotenant.cpu_margin_fraction sets a margin of your own.",
            ),
            "memory_margin_fraction": (
                0.3,
                "What the word means; recommender.cotenant.memory_margin_fraction sets a margin of your own.",
            ),
            "cpu_root_margin_millicores": (
                4.0,
                "Part of the profile's meaning: small containers burst more, relative to their demand, than "
                "large ones.",
            ),
        },
    ),
    FormerGroup(
        "recommender.cotenant.profiles.balanced",
        "cotenant.base.settings.sections.recommender.ProfilesSettings.balanced",
        {
            "cpu_fraction": (
                0.95,
                "What the word means; recommender.cotenant.cpu_fraction sets a quantile of your own.",
            ),
            "cpu_margin_fraction": (
                0.0,
                "What the word means; recommender.cotenant.cpu_margin_fraction sets a margin of your own.",
            ),
            "memory_margin_fraction": (
                0.15,
                "What the word means; recommender.cotenant.memory_margin_fraction sets a margin of your own.",
            ),
            "cpu_root_margin_millicores": (
                2.0,
                "Part of the profile's meaning: small containers burst more, relative to their demand, than "
                "large ones.",
            ),
        },
    ),
    FormerGroup(
        "recommender.cotenant.profiles.aggressive",
        "cotenant.base.settings.sections.recommender.ProfilesSettings.aggressive",
        {
            "cpu_fraction": (
                0.9,
                "What the word means; recommender.cotenant.cpu_fraction sets a quantile of your own.",
            ),
            "cpu_margin_fraction": (
                0.0,
                "What the word means; recommender.cotenant.cpu_margin_fraction sets a margin of your own.",
            ),
            "memory_margin_fraction": (
                0.1,
                "What the word means; recommender.cotenant.memory_margin_fraction sets a margin of your own.",
            ),
            "cpu_root_margin_millicores": (
                2.0,
                "Part of the profile's meaning: small containers burst more, relative to their demand, than "
                "large ones.",
            ),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.base.settings.sections.recommender.CotenantSettings",
        {
            "oom_bump_ratio": (
                1.2,
                "Default of the Vertical Pod Autoscaler (oom-bump-up-ratio), so that both answer an OOM kill alike.",
            ),
            "oom_bump_bytes": (
                104857600,
                "Default of the Vertical Pod Autoscaler (oom-min-bump-up-bytes), so that both answer an OOM kill "
                "alike.",
            ),
            "pod_floor_millicores": (
                10,
                "What a process needs to start at all; the annotation cotenant.dev/min-cpu sets another for a "
                "workload.",
            ),
            "pod_floor_bytes": (
                67108864,
                "What a process needs to start at all; the annotation cotenant.dev/min-memory sets another for a "
                "workload.",
            ),
            "minimum_days": (1.0, "One whole day: less has not seen the daily peak."),
            "minimum_coverage": (0.5, "With fewer than half of the samples the unseen part decides, not the seen one."),
            "dead_band_fraction": (
                0.1,
                "The share below which a change is not worth its unrest, as actions.guardrails.least_change by "
                "default.",
            ),
            "cpu_limit_margin_fraction": (
                1.0,
                "A limit twice the highest demand throttles nothing that was ever seen; a limit holds no capacity.",
            ),
            "heap_collecting_fraction": (
                0.05,
                "Five percent of the time in collections is what runtimes' own guides call too much.",
            ),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.recommender.strategies.cotenant.withhold",
        {
            "minimum_runs": (3, "Three runs are the least of which one may be an exception."),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.recommender.strategies.cotenant.demand",
        {
            "guaranteed_fraction": (
                0.999,
                "Where the limit is the request, what lies above it is throttled: one part in a thousand.",
            ),
            "returning_peak_ratio": (3.0, "Three times the quantile is beyond the spread of one regime of usage."),
            "uneven_ratio": (2.0, "Twice the median pod is what findings call uneven, too."),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.recommender.strategies.cotenant.heap",
        {
            "heap_live_factor": (
                2.5,
                "A collector needs one to three times the live data as free heap; the middle of what runtimes advise.",
            ),
            "heap_raise": (1.5, "One step of half the present size, judged again after the next scan."),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.recommender.strategies.cotenant.strategy",
        {
            "hpa_target_max_percent": (90, "Above ninety percent an autoscaler reacts after the pods are full."),
        },
    ),
    FormerGroup(
        "recommender.cotenant",
        "cotenant.recommender.strategies.cotenant.trend",
        {
            "growth_weekly_fraction": (0.05, "Less than five percent a week is within the spread of weekly means."),
            "growth_horizon_days": (7.0, "The recommendation is made anew long before one week is over."),
            "leak_days": (7, "One whole week: a weekly pattern must not look like a leak."),
            "leak_rise_fraction": (0.1, "A tenth over a week is above the noise of daily maxima."),
            "leak_agreement": (0.8, "Threshold of Kendall's agreement: one pair of days in five may go the other way."),
        },
    ),
    FormerGroup(
        "recommender.cotenant.severity",
        "cotenant.recommender.severity",
        {
            "critical_cluster_share": (
                0.003,
                "Grade of a word on the page; it changes no amount, and grades stay comparable between clusters.",
            ),
            "critical_change": (
                0.5,
                "Grade of a word on the page; it changes no amount, and grades stay comparable between clusters.",
            ),
            "warning_change": (
                0.4,
                "Grade of a word on the page; it changes no amount, and grades stay comparable between clusters.",
            ),
            "warning_millicores": (1000, "One core: what a person notices on a bill."),
            "warning_bytes": (2147483648, "Two GiB: what a person notices on a bill."),
            "ok_change": (0.1, "The dead band: below it nothing is proposed."),
            "ok_millicores": (100, "A tenth of a core: below it nobody acts."),
            "ok_bytes": (134217728, "An eighth of a GiB: below it nobody acts."),
        },
    ),
    FormerGroup(
        "recommender.cotenant.severity",
        "cotenant.base.settings.sections.recommender.SeveritySettings",
        {
            "throttled_share": (0.03, "Grade of a word on the page and of a cause; it changes no amount."),
        },
    ),
    FormerGroup(
        "recommender.reclaimable",
        "cotenant.base.settings.sections.recommender.ReclaimableSettings",
        {
            "mid_cpu_percent": (
                100,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "mid_memory_percent": (
                100,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "mid_unallocated_percent": (
                0,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "mid_mode": (
                "dynamic",
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "mid_static_cpu_percent": (
                0,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "mid_static_memory_percent": (
                0,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "degrade_minutes": (
                15,
                "Known from Koordinator's ConfigMap, which still sets it per cluster and node; analyses use its "
                "default.",
            ),
            "forecast_origins": (5, "Five back-tests are the least that say anything about a violation of one in ten."),
            "forecast_violation_percent": (
                10,
                "One decision in ten is the limit of the forecast's own 90 percent quantile.",
            ),
        },
    ),
    FormerGroup(
        "recommender.findings",
        "cotenant.base.settings.sections.recommender.FindingSettings",
        {
            "minimum_days": (
                5.0,
                "Five days hold one weekend's edge and four working days: less cannot tell idle from a day off.",
            ),
            "minimum_coverage": (0.5, "With fewer than half of the samples the unseen part decides, not the seen one."),
            "idle_pod_millicores": (5, "Five millicores is what a health check uses: nobody works there."),
            "idle_gpu_percent": (3.0, "Three percent of one device is what drivers and health checks use."),
        },
    ),
    FormerGroup(
        "recommender.findings",
        "cotenant.recommender.findings",
        {
            "idle_node_fraction": (0.1, "A tenth of the node is about what daemons use."),
            "idle_node_pod_share": (
                0.05,
                "One twentieth of the window: a batch job that passed by does not make a node busy.",
            ),
            "leak_critical_days": (7.0, "One week is the time that people need to plan a restart."),
            "skew_ratio": (2.0, "Twice the median pod: what a load balancer's usual spread does not reach."),
            "skew_pods": (3, "Three pods are the least that have a median and an outlier."),
            "skew_millicores": (100, "Below a tenth of a core an uneven load costs nothing."),
            "skew_bytes": (134217728, "Below an eighth of a GiB an uneven load costs nothing."),
        },
    ),
    FormerGroup(
        "recommender.gpus",
        "cotenant.recommender.gpus",
        {
            "core_fraction": (0.95, "The quantile that strategy cotenant uses for CPUs in profile balanced."),
            "unmeasured_hours": (2, "Two hours are longer than any exporter's restart."),
        },
    ),
    FormerGroup(
        "recommender.gpus",
        "cotenant.base.settings.sections.recommender.GpuSettings",
        {
            "core_margin_fraction": (0.15, "The margin that strategy cotenant uses for memory in profile balanced."),
            "memory_margin_fraction": (0.15, "The margin that strategy cotenant uses for memory in profile balanced."),
            "step_percent": (
                10,
                "Koordinator shares GPUs in hundredths; tenths leave remainders that other pods can use.",
            ),
        },
    ),
    FormerGroup(
        "recommender.backtest",
        "cotenant.base.settings.sections.recommender.BacktestSettings",
        {
            "days": (7.0, "One week: each weekday is tried once."),
        },
    ),
    FormerGroup(
        "recommender.backtest",
        "cotenant.recommender.trust",
        {
            "trusted_days": (7.0, "One week: each weekday was seen once."),
            "trusted_weeks": (2.0, "Two weekly cycles are the least that confirm each other."),
            "trusted_throttling": (0.01, "One percent more time throttled is where latency begins to suffer."),
        },
    ),
    FormerGroup(
        "recommender",
        "cotenant.base.settings.sections.recommender.RecommenderSettings",
        {
            "renew_hours": (
                12.0,
                "Half a day: a recommendation without news is the same; news of a workload renews it at once.",
            ),
        },
    ),
    FormerGroup(
        "recommender.replicas",
        "cotenant.base.settings.sections.recommender.ReplicaSettings",
        {
            "percentile": (90, "Nine days in ten: the tenth is what the autoscaler itself is for."),
            "kinds": (["Deployment", "StatefulSet"], "The kinds whose scale subresource Kubernetes itself has."),
        },
    ),
    FormerGroup(
        "recommender.replicas",
        "cotenant.recommender.replicas",
        {
            "many_replicas": (
                6,
                "From six replicas on, one pod is less than a fifth of the capacity, so that a floor can follow "
                "the demand.",
            ),
            "target_percent": (70, "Room for one pod in three to fail or start while the others carry its load."),
        },
    ),
)
