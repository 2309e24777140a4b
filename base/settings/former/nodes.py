"""Former settings of scheduling and of nodes: reservations, queues, the extender, the node agent."""

from __future__ import annotations

from typing import Final

from cotenant.base.settings.former.group import FormerGroup

NODES: Final = (
    FormerGroup(
        "reservations",
        "cotenant.base.settings.sections.reservations.ReservationSettings",
        {
            "placeholders_per_node": (10, "Keeps pods that hold capacity below a tenth of the kubelet's 110 pods."),
            "swap_settle_seconds": (0.05, "Time that an entry of the guard takes to reach every API server's cache."),
            "gate_seconds": (
                60.0,
                "A pod that waits longer is better placed by the scheduler without the reservation.",
            ),
            "served_seconds": (
                30.0,
                "Twice a leader election's lease: a manager that is replaced is not taken for gone.",
            ),
            "keep_ended_seconds": (86400.0, "One day: what ended can still be read the next morning."),
        },
    ),
    FormerGroup(
        "reservations",
        "cotenant.scheduler_ext.reservations.assign",
        {
            "swaps_at_once": (64, "Bounds writes to the API server; each hand-over takes about a second."),
        },
    ),
    FormerGroup(
        "reservations",
        "cotenant.scheduler_ext.reservations.swap",
        {
            "swap_timeout_seconds": (15.0, "Many times what a hand-over takes."),
        },
    ),
    FormerGroup(
        "reservations",
        "cotenant.scheduler_ext.reservations.decide",
        {
            "swap_linger_seconds": (0.5, "Time that a second scheduler takes to see a bound pod."),
        },
    ),
    FormerGroup(
        "queues",
        "cotenant.base.settings.sections.queues.QueueSettings",
        {
            "min_scaling": (
                True,
                "As Koordinator scales guarantees; without it the guarantees of a cluster that shrank cannot be kept.",
            ),
            "gang_place_seconds": (30.0, "Longer than placing some hundreds of pods takes; other pods wait meanwhile."),
            "back_off_seconds": (5.0, "Pacing of further tries, doubled each time."),
            "longest_back_off_seconds": (
                300.0,
                "Pacing of further tries: kube-scheduler's unschedulable pods wait five minutes, too.",
            ),
            "served_seconds": (
                30.0,
                "Twice a leader election's lease: a manager that is replaced is not taken for gone.",
            ),
        },
    ),
    FormerGroup(
        "queues",
        "cotenant.scheduler_ext.queues.revoke",
        {
            "evictions_per_round": (
                10,
                "Ten pods in a round give back capacity within minutes and end no workload at once.",
            ),
        },
    ),
    FormerGroup(
        "queues",
        "cotenant.scheduler_ext.queues.gangs.group",
        {
            "gang_wait_seconds": (
                600.0,
                "Default of Koordinator's gangs (600 s); a gang's own annotation still says another.",
            ),
        },
    ),
    FormerGroup(
        "descheduler",
        "cotenant.scheduler_ext.rebalance.migration.churn",
        {
            "least_churn": (10, "Lets small clusters move anything at all: one percent of few pods is none."),
        },
    ),
    FormerGroup(
        "descheduler",
        "cotenant.base.settings.sections.descheduler.DeschedulerSettings",
        {
            "keep_ended_seconds": (
                86400.0,
                "One day: what ended can still be read the next morning, and the hourly limit is counted from it.",
            ),
        },
    ),
    FormerGroup(
        "extender",
        "cotenant.base.settings.sections.extender.ExtenderSettings",
        {
            "max_body_bytes": (
                16000000,
                "Bounds the process's memory; a pod's question names nodes, not objects, and has far fewer bytes.",
            ),
            "read_seconds": (5.0, "kube-scheduler sends at once; a slower caller got no answer anyway."),
            "http_timeout_seconds": (
                0.3,
                "Many times what an answer takes; kube-scheduler places the pod without us after it.",
            ),
            "near_points": (5, "Within five of a hundred points the scheduler's own ranking decides better."),
            "score_span": (
                25,
                "Scale of the points in the scheduler's eleven steps: its effect cannot be judged from outside.",
            ),
            "watcher": ("process", "A process of its own: a watch's burst never delays an answer."),
            "coalesce_seconds": (
                0.1,
                "Short enough that a burst of placements is seen, long enough that a change of each pod costs no "
                "answer.",
            ),
            "stale_seconds": (120.0, "Two missed bookmarks of an API server."),
        },
    ),
    FormerGroup(
        "extender.load_aware",
        "cotenant.base.settings.sections.extender.LoadAwareSettings",
        {
            "aggregated_seconds": (
                0,
                "Default of Koordinator's LoadAwareScheduling: the longest window that a node reports.",
            ),
            "score_aggregation": ("", "Default of Koordinator's LoadAwareScheduling (the mean)."),
            "score_aggregated_seconds": (0, "Default of Koordinator's LoadAwareScheduling."),
            "dominant_weight": (0, "Default of Koordinator's LoadAwareScheduling (dominantResourceWeight)."),
            "estimated_seconds_after_scheduled": (
                None,
                "Default of Koordinator's LoadAwareScheduling (estimatedSecondsAfterPodScheduled).",
            ),
            "estimated_seconds_after_initialized": (
                None,
                "Default of Koordinator's LoadAwareScheduling (estimatedSecondsAfterInitialized).",
            ),
        },
    ),
    FormerGroup(
        "extender.load_aware",
        "cotenant.scheduler_ext.extender.load.load_aware",
        {
            "breaker_fraction": (
                0.5,
                "When half of the nodes stop reporting it is the reporting that broke, not the nodes.",
            ),
        },
    ),
    FormerGroup(
        "extender.load_aware.scaling_factors",
        "cotenant.base.settings.sections.extender.LoadAwareSettings.scaling_factors",
        {
            "cpu": (85, "Default of Koordinator's LoadAwareScheduling (estimatedScalingFactors)."),
            "memory": (70, "Default of Koordinator's LoadAwareScheduling (estimatedScalingFactors)."),
        },
    ),
    FormerGroup(
        "extender.load_aware.weights",
        "cotenant.base.settings.sections.extender.LoadAwareSettings.weights",
        {
            "cpu": (1, "Default of Koordinator's LoadAwareScheduling (resourceWeights)."),
            "memory": (1, "Default of Koordinator's LoadAwareScheduling (resourceWeights)."),
        },
    ),
    FormerGroup(
        "extender.prediction",
        "cotenant.base.settings.sections.extender.PredictionSettings",
        {
            "horizon_hours": (6.0, "A quarter of the forecast: most pods' lives, and its best part."),
        },
    ),
    FormerGroup(
        "extender.balance",
        "cotenant.base.settings.sections.extender.BalanceSettings",
        {
            "load": (2, "Weight of one view among four: its effect cannot be judged from outside."),
            "peak": (2, "Weight of one view among four: its effect cannot be judged from outside."),
            "suppression": (1, "Weight of one view among four: its effect cannot be judged from outside."),
            "spread": (1, "Weight of one view among four: its effect cannot be judged from outside."),
        },
    ),
    FormerGroup(
        "extender.cpus",
        "cotenant.scheduler_ext.extender.cpus",
        {
            "bind_policy": (
                "FullPCPUs",
                "Default of Koordinator's NodeNUMAResource (defaultCPUBindPolicy); pods and nodes still say their own.",
            ),
            "numa_strategy": (
                "LeastAllocated",
                "Default of Koordinator's NodeNUMAResource (scoringStrategy); nodes still say their own.",
            ),
        },
    ),
    FormerGroup(
        "load_taints",
        "cotenant.base.settings.sections.extender.LoadTaintSettings",
        {
            "interval_seconds": (5.0, "Period of the rounds: shorter than a burst of new pods takes to start."),
            "hold_seconds": (
                120.0,
                "Twice the interval of NodeMetrics, so that a taint does not flap between two reports.",
            ),
        },
    ),
    FormerGroup(
        "load_taints",
        "cotenant.scheduler_ext.load_taints.controller",
        {
            "refuse_percent": (
                97.0,
                "Just below the threshold (extender.load_aware.usage sets it), since pods arrive before the "
                "taint does.",
            ),
            "avoid_percent": (
                60.0,
                "Only the order among busy nodes depends on it; avoided_share_percent bounds how many it reaches.",
            ),
            "leave_percent": (8.0, "Hysteresis above the noise of one NodeMetric to the next."),
        },
    ),
    FormerGroup(
        "enforcer",
        "cotenant.base.settings.sections.node.enforcer.EnforcerSettings",
        {
            "pods_ttl_seconds": (120.0, "Two missed bookmarks of an API server."),
        },
    ),
    FormerGroup(
        "enforcer",
        "cotenant.enforcer.agent",
        {
            "startup_seconds": (5.0, "A list of one node's pods arrives within a second."),
        },
    ),
    FormerGroup(
        "enforcer",
        "cotenant.enforcer.apply.pod_evictions",
        {
            "eviction_grace_seconds": (-1, "The pod's own grace period; the API's deletion keeps its terms."),
        },
    ),
    FormerGroup(
        "enforcer",
        "cotenant.enforcer.assembly",
        {
            "nvml_library": ("libnvidia-ml.so.1", "The name that NVIDIA's container toolkit and driver install."),
            "record_cap_bytes": (67108864, "Bounds the disk."),
        },
    ),
    FormerGroup(
        "enforcer.best_effort",
        "cotenant.base.settings.sections.node.best_effort.BestEffortSettings",
        {
            "ahead_seconds": (600.0, "One step of the forecast's grid behind the present one."),
            "starve_seconds": (30.0, "Longer than a burst of prod, shorter than any liveness probe's patience."),
            "pending_seconds": (60.0, "Twice the default grace period of a pod."),
            "interference_confirm_seconds": (3.0, "Three ticks: one alone may be chance."),
            "interference_patience_seconds": (20.0, "Two windows of the pressure's ten-second mean."),
            "interference_samples": (300, "Five minutes of quiet ticks."),
        },
    ),
    FormerGroup(
        "enforcer.best_effort",
        "cotenant.enforcer.strategies.eviction.victims",
        {
            "cpu_cooldown_seconds": (20.0, "Default of koordlet's CPU eviction (--cpu-evict-cool-time-seconds 20)."),
            "memory_cooldown_seconds": (
                4.0,
                "Default of koordlet's memory eviction (--memory-evict-cool-time-seconds 4).",
            ),
        },
    ),
    FormerGroup(
        "enforcer.best_effort",
        "cotenant.enforcer.strategies.interference",
        {
            "interference_factor": (2.0, "Twice the baseline is beyond its own spread."),
            "interference_quiet_percent": (
                5,
                "Below five percent of the node best effort cannot be what a pod suffers from.",
            ),
        },
    ),
    FormerGroup(
        "runtime",
        "cotenant.base.settings.sections.node.runtime.RuntimeSettings",
        {
            "nri_register_seconds": (5.0, "The runtime's own registration timeout (5 s)."),
            "nri_retry_seconds": (10.0, "Pacing of further tries."),
            "cri_hook_seconds": (10.0, "Far below a quarter of the kubelet's two minutes."),
        },
    ),
    FormerGroup(
        "enforcer.dra",
        "cotenant.base.settings.sections.node.runtime.DraSettings",
        {
            "plugin_dir": (
                "/var/lib/kubelet/plugins/node.cotenant.dev",
                "The kubelet's convention: plugins/ and the driver's name beside enforcer.dra.registry_dir.",
            ),
        },
    ),
)
