"""Former settings of scans, portraits, forecasts, plans and messages."""

from __future__ import annotations

from typing import Final

from cotenant.base.settings.former.group import FormerGroup

FORECASTS: Final = (
    FormerGroup(
        "profiler",
        "cotenant.base.settings.sections.profiler.ProfilerSettings",
        {
            "overlap_seconds": (
                600,
                "Twice the default lookback of a Prometheus server (5 minutes): late samples come within it.",
            ),
        },
    ),
    FormerGroup(
        "profiler.prometheus",
        "cotenant.base.settings.sections.profiler.PrometheusSettings",
        {
            "connect_timeout_seconds": (
                5.0,
                "A connection within a data centre takes milliseconds; five seconds tell slow from gone.",
            ),
            "retries": (2, "Pacing of further tries; the outage's length decides, not their number."),
            "backoff_seconds": (
                0.5,
                "Pacing of further tries, doubled each time, so that a server that comes back is not flooded.",
            ),
            "max_points_per_query": (
                200000,
                "Size of one question: large enough to be few, small enough for a server's --query.max-samples.",
            ),
        },
    ),
    FormerGroup(
        "profiler.prometheus",
        "cotenant.profiler.prometheus.source",
        {
            "recording_rules": (
                True,
                "kubernetes-mixin's rule is the same rate, computed once; where it does not cover the window it "
                "is not read.",
            ),
        },
    ),
    FormerGroup(
        "portrait",
        "cotenant.base.settings.sections.profiler.PortraitSettings",
        {
            "half_life_hours": (24, "Default of the Vertical Pod Autoscaler (cpu-histogram-decay-half-life)."),
            "days_kept": (35, "Five whole weeks: a weekly pattern needs four, and a missing day must not cost one."),
        },
    ),
    FormerGroup(
        "portrait",
        "cotenant.profiler.pattern",
        {
            "pattern_days": (2.0, "Fewer than two days cannot show that anything repeats."),
            "idle_millicores": (10.0, "Ten millicores is what a health check and a runtime's timers use."),
            "flat_amplitude": (0.3, "Threshold of a word that describes a series; it changes no amount."),
            "trend_rise": (0.3, "Threshold of a word that describes a series; it changes no amount."),
            "trend_fit": (
                0.7,
                "Threshold of a class label: the share of variance that is called a good fit (R squared).",
            ),
            "season_share": (0.3, "Threshold of a word that describes a series; it changes no amount."),
            "week_share": (0.1, "Threshold of a word that describes a series; it changes no amount."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.base.settings.sections.forecasts.ForecastingSettings",
        {
            "history_days": (14, "Two weeks: each weekday twice, as profiler.window_days keeps by default."),
            "minimum_days": (2.0, "Two days are the least from which one daily pattern can be tried on another day."),
            "prior_days": (
                2.0,
                "Strength of the prior over all series: inside the models' weights, its effect cannot be judged "
                "from outside.",
            ),
            "relearn_hours": (12.0, "Half a day: the models' weights move from day to day, not from scan to scan."),
            "booster_minimum_series": (
                50,
                "A model over all series needs many of them to learn what one alone does not show.",
            ),
            "coverage_step": (
                0.2,
                "Step size of adaptive conformal inference: its effect cannot be judged from outside.",
            ),
            "cluster_peak_share": (
                0.03,
                "A daily rise of the totals below three percent of the allocatable amount is not worth an "
                "announcement.",
            ),
            "week_workloads": (10, "The workloads that use most: what a page shows; it bounds the scan's time."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.engine",
        {
            "stale_hours": (24.0, "A day without a sample is one whole daily pattern that was not seen."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.selection",
        {
            "origin_decay": (
                0.8,
                "Weight of older back-tests: inside the models' weights, its effect cannot be judged from outside.",
            ),
            "near_weight": (0.3, "Weight within a model's score: its effect cannot be judged from outside."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.served_mixture",
        {
            "near_mix_weight": (0.5, "Weight within the mixture's score: its effect cannot be judged from outside."),
            "blend_sharpness": (4.0, "Sharpness of the exponential weights: its effect cannot be judged from outside."),
            "mix_sharpness": (10.0, "Sharpness of the exponential weights: its effect cannot be judged from outside."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.boosting.booster",
        {
            "booster_threads": (1, "One thread per shard: shards already run in parallel by pipeline.workers."),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.peaks",
        {
            "peak_day_decay": (
                0.9,
                "Weight of older days in the peak's errors: its effect cannot be judged from outside.",
            ),
            "peak_prior_days": (
                24.0,
                "Strength of the prior over equally restless series: its effect cannot be judged from outside.",
            ),
        },
    ),
    FormerGroup(
        "forecasting",
        "cotenant.forecasting.windows",
        {
            "peak_amplitude": (0.3, "The limit of portrait.flat_amplitude: what is flat has no peak."),
            "window_minutes": (60, "Two half hours of the forecast's grid: a shorter valley is within its error."),
        },
    ),
    FormerGroup(
        "node_peak",
        "cotenant.base.settings.sections.forecasts.NodePeakSettings",
        {
            "calibration_days": (
                90,
                "Three months of decisions resolve a risk of one percent; profiler.keep_days says what is kept.",
            ),
            "prior_days": (
                10.0,
                "Strength of the shipped prior: its effect cannot be judged from outside; risk_percent is what "
                "an operator sets.",
            ),
            "node_tolerance": (4.0, "Allowance for chance before a single node's own past decides alone."),
            "minimum_days": (
                7,
                "One whole week: below it the weekday's pattern is not known, and Koordinator's formula is used.",
            ),
        },
    ),
    FormerGroup(
        "notify",
        "cotenant.changes.commands.watcher_output",
        {
            "peak_hours": (2.0, "Two hours: time enough to act on a peak."),
        },
    ),
    FormerGroup(
        "notify",
        "cotenant.base.settings.sections.notify.NotifySettings",
        {
            "rows": (5, "Five lines are what a chat message shows without folding."),
            "notes_per_hour": (
                12,
                "One message in five minutes; what waits is sent with the next one, so nothing is lost.",
            ),
            "timeout_seconds": (10.0, "A receiver that takes longer is away; what was not sent is told in the log."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.scheduler_ext.reservations.plans.rehearsed_proposals",
        {
            "most_proposals": (50, "Fifty plans are more than a person reads at a time; the largest come first."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.base.settings.sections.reservations.PlanSettings",
        {
            "minimum_coverage": (0.9, "Nine tenths of the needed pod-time: less is no plan to rely on."),
            "backtest_days": (7, "One week: each weekday is tried once."),
            "waiting_fraction": (
                0.05,
                "One pod in twenty, as the newsvendor quantile of plans.miss_cost_ratio's default.",
            ),
            "minimum_window_minutes": (30, "One half hour is the grid of the forecast."),
            "minimum_skill": (0.0, "Zero: not worse than the same time last week."),
            "pod_start_seconds": (
                120.0,
                "Used only where no start was measured; two minutes are slow for an image that is there.",
            ),
            "scheduler_seconds": (10.0, "Placing one pod on a busy kube-scheduler, with its queue."),
            "interval_seconds": (30.0, "Control period: shorter than any window, longer than an API server's answer."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.scheduler_ext.reservations.plans.proposals",
        {
            "headroom_ratio": (
                0.0,
                "The quantile of the demand is the headroom; a second one on top would count it twice.",
            ),
            "join_gap_minutes": (60, "Releasing and taking capacity again within an hour costs more than it frees."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.scheduler_ext.reservations.plan_decisions",
        {
            "ttl_margin_minutes": (15, "Longer than a restart of the manager and its election of a leader."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.scheduler_ext.reservations.plans.hold",
        {
            "hysteresis_fraction": (0.2, "A release of a fifth is above the forecast's own noise from hour to hour."),
            "change_interval_seconds": (600.0, "Longer than placing a pod and reading the next metric."),
        },
    ),
    FormerGroup(
        "plans",
        "cotenant.scheduler_ext.reservations.plans.lead",
        {
            "room_free_seconds": (120.0, "Longest usual grace period of batch pods, with the time of its eviction."),
        },
        {"room_free_seconds": "CAPACITY_FREE_SECONDS"},
    ),
)
