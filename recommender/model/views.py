"""What surfaces show: the schemas of the result tables, and the overview document.

The pipeline stores them; CLI and dashboard read them. Amounts: millicores, bytes; ratios 0..1; times Unix seconds UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.identity import folder_part
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.base.usage.peak import PEAK_MEANING, PEAK_MEDIAN_NAME, PEAK_NAME, PeakAhead, WorstDay
from cotenant.recommender.model.confidence_columns import CONFIDENCE_COLUMNS
from cotenant.recommender.model.recommendation_columns import BACKTEST_COLUMNS, DELTA_COLUMNS, MONEY_COLUMNS
from cotenant.recommender.model.savings import PlannedSavings
from cotenant.recommender.model.steps import STEP_COLUMNS
from cotenant.recommender.model.todo import LIST_COLUMNS

_WORKLOAD_KEY = (
    Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workload.", essential=True),
    Column("kind", "Kind", Kind.TEXT, "Kind of the controller; Pod for a bare pod."),
    Column("workload", "Workload", Kind.TEXT, "Name of the controller.", essential=True),
)

WORKLOADS: Final = Schema(
    "workloads",
    (
        *_WORKLOAD_KEY,
        Column("qos", "QoS", Kind.TEXT, "Koordinator QoS class; empty when the pods carry no label."),
        Column("priority", "Priority", Kind.TEXT, "Koordinator priority class; empty when outside every band."),
        Column("replicas", "Replicas", Kind.INTEGER, "Pods running now."),
        Column("pattern", "Pattern", Kind.TEXT, "CPU pattern: idle, flat, daily, weekly, bursty, trend, unknown."),
        Column("cpu_request", "CPU request", Kind.MILLICORES, "Sum of the running pods' effective CPU requests."),
        Column("cpu_mean", "CPU mean", Kind.MILLICORES, "Mean usage of the whole workload."),
        Column(
            "cpu_p95",
            "CPU p95",
            Kind.MILLICORES,
            "95th percentile of the workload's usage while any pod ran (decaying histogram).",
        ),
        Column("cpu_max", "CPU max", Kind.MILLICORES, "Highest 5-minute value of the whole workload."),
        Column("cpu_used_ratio", "CPU used/req", Kind.RATIO, "Mean CPU usage / CPU request."),
        Column("cpu_throttled_ratio", "Throttled", Kind.RATIO, "Throttled core time / demand (usage + throttled)."),
        Column("memory_request", "Memory request", Kind.BYTES, "Sum of the running pods' effective memory requests."),
        Column(
            "memory_p95", "Memory p95", Kind.BYTES, "95th percentile of the working set while any pod ran.", wide=True
        ),
        Column("memory_max", "Memory max", Kind.BYTES, "Highest working set of the whole workload."),
        Column("memory_used_ratio", "Memory max/req", Kind.RATIO, "Highest working set / request."),
        Column("peak_time", "Next peak", Kind.TIME, "Start of the day's peak window; empty when no peak is expected."),
        Column("peak_cpu", f"CPU {PEAK_NAME}", Kind.MILLICORES, PEAK_MEANING),
        Column("model", "Model", Kind.TEXT, "Forecast model chosen by back-test.", wide=True),
        Column(
            "forecast_error",
            "rel. WQL",
            Kind.NUMBER,
            "Loss of the forecast in back-tests / loss of the seasonal naive forecast (< 1 is better).",
            wide=True,
        ),
        Column("oom_kills", "OOM kills", Kind.INTEGER, "OOM kills in the window."),
        Column("restarts", "Restarts", Kind.INTEGER, "Restarts in the window.", wide=True),
        Column("days", "Days", Kind.NUMBER, "Days between the first and the last sample."),
        Column(
            "coverage",
            "Samples present",
            Kind.RATIO,
            "Stored share of the CPU samples that were expected while pods ran.",
            wide=True,
        ),
        Column(
            "sparkline",
            "Last 7 days",
            Kind.LIST,
            "CPU usage of the last 7 days in 84 two-hour means, millicores.",
            wide=True,
            unit=Unit.MILLICORES,
        ),
    ),
    ("namespace", "kind", "workload"),
)

RECOMMENDATIONS: Final = Schema(
    "recommendations",
    (
        *_WORKLOAD_KEY,
        Column("container", "Container", Kind.TEXT, "Container of the workload's template.", essential=True),
        Column("replicas", "Replicas", Kind.INTEGER, "Pods running now."),
        Column(
            "severity",
            "Severity",
            Kind.TEXT,
            "Worst severity of the requests and limits: unknown, good, ok, warning, critical (only for danger).",
        ),
        Column("waste", "Waste", Kind.TEXT, "Unneeded part of the requests: none, small, medium or large."),
        *LIST_COLUMNS,
        *STEP_COLUMNS,
        Column("cpu_request_now", "CPU req now", Kind.MILLICORES, "Present CPU request of one pod; empty = not set."),
        Column(
            "cpu_request",
            "CPU req",
            Kind.MILLICORES,
            "Proposed CPU request; empty: not proposed or to be removed.",
            essential=True,
        ),
        Column("cpu_limit_now", "CPU limit now", Kind.MILLICORES, "Present CPU limit; empty = not set."),
        Column("cpu_limit", "CPU limit", Kind.MILLICORES, "Proposed CPU limit; empty: not proposed or to be removed."),
        Column("memory_request_now", "Mem req now", Kind.BYTES, "Present memory request; empty = not set."),
        Column("memory_request", "Mem req", Kind.BYTES, "Memory request proposed, if any.", essential=True),
        Column("memory_limit_now", "Mem limit now", Kind.BYTES, "Present memory limit; empty = not set.", wide=True),
        Column("memory_limit", "Mem limit", Kind.BYTES, "Proposed memory limit; empty = not proposed.", wide=True),
        Column("heap_now", "Heap now", Kind.BYTES, "Present maximum heap; empty if no heap is proposed.", wide=True),
        Column("heap", "Heap", Kind.BYTES, "Proposed maximum heap, applied with the memory amounts.", wide=True),
        Column("cpu_observed_max", "CPU max seen", Kind.MILLICORES, "Highest CPU use measured in one pod.", wide=True),
        Column("cpu_demand_max", "CPU demand max", Kind.MILLICORES, "Highest usage + throttling of a pod.", wide=True),
        Column("memory_observed_max", "Mem max seen", Kind.BYTES, "Highest working set ever seen in one pod."),
        *DELTA_COLUMNS,
        Column("cpu_reason", "CPU reason", Kind.TEXT, "Code of the reason for the proposed CPU request."),
        Column("memory_reason", "Memory reason", Kind.TEXT, "Code of the reason for the proposed memory request."),
        Column("cpu_action", "CPU action", Kind.TEXT, "Proposed for the CPU request: set, unset, withheld.", wide=True),
        Column("memory_action", "Memory action", Kind.TEXT, "Memory request: set, unset or withheld.", wide=True),
        Column("cpu_limit_action", "CPU limit action", Kind.TEXT, "CPU limit: set, unset or withheld.", wide=True),
        Column("memory_limit_action", "Memory limit action", Kind.TEXT, "Memory limit: set/unset/withheld.", wide=True),
        *CONFIDENCE_COLUMNS,
        *MONEY_COLUMNS,
        *BACKTEST_COLUMNS,
        Column(
            "restart", "Restart", Kind.TEXT, "Restart that the proposal needs: none, in-place or rollout.", wide=True
        ),
        Column(
            "profile",
            "Profile",
            Kind.TEXT,
            "Profile in effect: conservative, balanced, aggressive, or empty.",
            wide=True,
        ),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy that made the proposal.", wide=True),
    ),
    ("namespace", "kind", "workload", "container"),
)

NODES: Final = Schema(
    "nodes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node.", essential=True),
        Column("pods", "Pods", Kind.INTEGER, "Number of pods that run on the node."),
        Column("requested_ratio", "Full", Kind.RATIO, "Larger of requested shares of CPU and memory.", essential=True),
        Column("cpu_allocatable", "CPU alloc.", Kind.MILLICORES, "Allocatable CPU."),
        Column("cpu_request", "CPU requests", Kind.MILLICORES, "Sum of the CPU requests of the node's pods."),
        Column("cpu_usage", "CPU usage", Kind.MILLICORES, "Present CPU usage (mean of the last aggregation window)."),
        Column("batch_cpu", "CPU free for batch", Kind.MILLICORES, "CPU that batch pods may use now.", essential=True),
        Column("mid_cpu", "CPU free for a day", Kind.MILLICORES, "CPU for mid pods; batch pods may use part of it."),
        Column("memory_allocatable", "Memory alloc.", Kind.BYTES, "Allocatable memory."),
        Column("memory_request", "Memory requests", Kind.BYTES, "Sum of the memory requests of the node's pods."),
        Column("memory_usage", "Memory usage", Kind.BYTES, "Present working set."),
        Column("batch_memory", "Memory free for batch", Kind.BYTES, "Memory that batch pods may use.", essential=True),
        Column("mid_memory", "Memory free for a day", Kind.BYTES, "Memory for mid pods, part of it for batch pods."),
        Column("cpu_peak", f"CPU {PEAK_NAME}", Kind.MILLICORES, PEAK_MEANING),
        Column("reason", "Reason", Kind.TEXT, "ok, or why batch or mid amounts are not reclaimed."),
    ),
    ("node",),
)

PODS: Final = Schema(
    "pods",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the pod.", essential=True),
        Column("pod", "Pod", Kind.TEXT, "Name of the pod.", essential=True),
        Column("node", "Node", Kind.TEXT, "Node that the pod runs on; empty while it is pending."),
        Column("kind", "Kind", Kind.TEXT, "Kind of the controller; Pod for a bare pod."),
        Column("workload", "Workload", Kind.TEXT, "Name of the controller."),
        Column("qos", "QoS", Kind.TEXT, "Koordinator QoS class; empty when the pod carries no label."),
        Column("priority", "Priority", Kind.TEXT, "Koordinator priority class; empty when outside every band."),
        Column("cpu_request", "CPU request", Kind.MILLICORES, "Effective request of the whole pod; empty = not set."),
        Column("cpu_usage", "CPU usage", Kind.MILLICORES, "Present CPU usage; empty without a recent sample."),
        Column("cpu_used_ratio", "CPU used/req", Kind.RATIO, "Present CPU usage / CPU request."),
        Column("memory_request", "Memory request", Kind.BYTES, "Effective request of the whole pod; empty = not set."),
        Column("memory_usage", "Memory usage", Kind.BYTES, "Present working set of all containers.", essential=True),
        Column("memory_used_ratio", "Memory used/req", Kind.RATIO, "Present working set / request."),
        Column("start", "Since", Kind.TIME, "Time when the pod started.", wide=True),
    ),
    ("namespace", "pod"),
)

FORECASTS: Final = Schema(
    "forecasts",
    (
        Column("scope", "Scope", Kind.TEXT, "Scope of the forecast: cluster, node or workload."),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of a workload, else empty.", essential=True),
        Column("kind", "Kind", Kind.TEXT, "Kind of a workload, else empty."),
        Column("name", "Name", Kind.TEXT, "Name of the cluster, node or workload.", essential=True),
        Column("resource", "Resource", Kind.TEXT, "cpu (millicores), memory (bytes) or gpu-core (percent of one GPU)."),
        Column("peak", PEAK_NAME, Kind.INTEGER, PEAK_MEANING, essential=True, unit=Unit.OF_RESOURCE),
        Column("peak_median", PEAK_MEDIAN_NAME, Kind.INTEGER, "Median 24 h peak.", wide=True, unit=Unit.OF_RESOURCE),
        Column("peak_time", "Peak window", Kind.TIME, "Start of the day's peak window; empty when none is expected."),
        Column("peak_end", "until", Kind.TIME, "End of the peak window."),
        Column("valley_time", "Valley window", Kind.TIME, "Start of the lowest valley window.", wide=True),
        Column("model", "Model", Kind.TEXT, "Forecast model chosen by back-test."),
        Column(
            "relative_wql",
            "rel. WQL",
            Kind.NUMBER,
            "Model's loss in back-tests / loss of the daily seasonal naive forecast (< 1 is better).",
        ),
        Column(
            "coverage_95",
            "p95 coverage",
            Kind.RATIO,
            "Share of measured values at or below the forecast's 0.95 quantile; ideally 0.95.",
        ),
        Column("reason", "Reason", Kind.TEXT, "ok, or why there is no full forecast or no peak window."),
        Column(
            "losses",
            "Models compared",
            Kind.TEXT,
            "Back-test loss of each model / loss of the daily seasonal naive forecast, best first; empty = not tested.",
            wide=True,
        ),
        Column("start", "Start", Kind.TIME, "Start of the forecast's first half hour.", wide=True),
        *(
            Column(f"{name}{q}", f"{name}{q}", Kind.LIST, f"0.{q} quantile of {what} in 48 half hours.", wide=True)
            for name, what in (("q", "the mean (memory: maximum)"), ("fine_q", "a 5-minute value / `fine_profile`"))
            for q in (10, 50, 90, 95)
        ),
        Column("fine_profile", "5 min profile", Kind.LIST, "Scales of `fine_q`; empty: 1.", wide=True, unit=Unit.RATIO),
    ),
    ("scope", "namespace", "kind", "name", "resource"),
)

PLANS: Final = Schema(
    "plans",
    (
        *_WORKLOAD_KEY,
        Column("start", "Start", Kind.TIME, "Start of the largest peak of the next day."),
        Column("end", "End", Kind.TIME, "End of the largest peak of the next day."),
        Column("pods", "Pods", Kind.INTEGER, "Highest number of pods with reserved capacity.", essential=True),
        Column("cpu", "CPU/pod", Kind.MILLICORES, "CPU request of one pod."),
        Column("memory", "Memory/pod", Kind.BYTES, "Memory request of one pod; empty = not set."),
        Column("quantile", "Quantile", Kind.NUMBER, "Demand quantile with the least cost in the back-test."),
        Column(
            "hit_ratio",
            "Used",
            Kind.RATIO,
            "Share of the reserved capacity that would have been used in the last days.",
        ),
        Column("coverage", "Coverage", Kind.RATIO, "Share of the needed pod-time that would have found capacity."),
        Column("idle_core_hours", "Idle core-h/day", Kind.NUMBER, "Reserved idle CPU.", unit=Unit.CORE_HOURS_DAILY),
        Column("cost", "Cost/day", Kind.NUMBER, "Cost of the idle capacity by the price sheet.", unit=Unit.DAILY),
        Column("skill", "Gain", Kind.NUMBER, "1 - its cost / cost of a plan by last week's demand.", sign=Sign.EITHER),
        Column("reason", "Reason", Kind.TEXT, "ok, or why the plan is not proposed."),
        Column("base_pods", "Base pods", Kind.NUMBER, "Baseline pods, which run without the plan.", wide=True),
        Column("occurrences", "Peaks", Kind.INTEGER, "Number of past peaks in the back-test.", wide=True),
        Column("words", "Back-test", Kind.TEXT, "Result of the plan's back-test.", wide=True),
        Column("path_start", "Path start", Kind.TIME, "Start of `wanted` and `median`.", wide=True),
        Column("wanted", "Wanted", Kind.LIST, "Pods above the baseline at `quantile`.", wide=True, unit=Unit.COUNT),
        Column("median", "Median", Kind.LIST, "Pods above the baseline at the median.", wide=True, unit=Unit.COUNT),
        Column("windows", "Windows", Kind.LIST, "Start, end, pods of each reservation.", wide=True, unit=Unit.MOMENT),
        Column("standby", "Standby", Kind.INTEGER, "Pods for which capacity would be reserved at all times."),
    ),
    ("namespace", "kind", "workload"),
)

RECLAIMABLE: Final = Schema(
    "reclaimable",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("band", "Band", Kind.TEXT, "batch or mid."),
        Column("resource", "Resource", Kind.TEXT, "cpu (millicores) or memory (bytes)."),
        Column("amount", "Amount", Kind.AMOUNT, "Amount that batch or mid pods may use now; empty if not known."),
        Column("policy", "Policy", Kind.TEXT, "Reclaim policy: the variant of the formula."),
        Column("reason", "Reason", Kind.TEXT, "ok, or why nothing is reclaimed."),
        Column("terms", "Terms", Kind.TEXT, "Amount of each term of the reclaim formula.", wide=True),
        Column("term_amounts", "Amounts of terms", Kind.TEXT, "Formula terms as JSON: name -> amount.", wide=True),
    ),
    ("node", "band", "resource"),
)

FINDINGS: Final = Schema(
    "findings",
    (
        Column("finding", "Finding", Kind.TEXT, "Kind of the finding.", essential=True),
        Column("severity", "Severity", Kind.TEXT, "good, ok, warning or critical."),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of a workload, else empty.", essential=True),
        Column("kind", "Kind", Kind.TEXT, "Kind of a workload; Node for a node."),
        Column("workload", "Name", Kind.TEXT, "Name of the workload or node.", essential=True),
        Column("container", "Container", Kind.TEXT, "Container that the finding is about, if any."),
        Column("proposal", "Proposal", Kind.TEXT, "Proposed request, if the finding has one."),
        Column("saving_month", "Saving/month", Kind.NUMBER, "Monthly saving by the price sheet.", sign=Sign.FREED),
        Column("cpu_freed", "CPU freed", Kind.MILLICORES, "CPU that removing an idle workload or node frees."),
        Column("memory_freed", "Memory freed", Kind.BYTES, "Memory that removing an idle workload or node frees."),
        Column("evidence", "Evidence", Kind.TEXT, "Named figures behind the finding."),
    ),
    ("finding", "namespace", "kind", "workload", "container"),
)

REPLICAS: Final = Schema(
    "replicas",
    (
        *_WORKLOAD_KEY,
        Column("replicas", "Replicas", Kind.INTEGER, "Pods that run now."),
        Column("least", "Floor now", Kind.INTEGER, "Present minReplicas; empty without an autoscaler."),
        Column("most", "Most", Kind.INTEGER, "Present maxReplicas; empty without an autoscaler."),
        Column("floor", "Highest floor", Kind.INTEGER, "Highest proposed minReplicas of the next 24 hours, if any."),
        Column("floor_time", "From", Kind.TIME, "Time from which `floor` pods are needed."),
        Column("needed", "Needed", Kind.INTEGER, "Pods needed by forecast, maybe above maxReplicas.", essential=True),
        Column("by", "By", Kind.TEXT, "Resource that demands the most pods."),
        Column("target", "Target", Kind.TEXT, "Autoscaler's target by resource, percent of the request."),
        Column("reason", "Reason", Kind.TEXT, "ok, or why no minReplicas is proposed."),
        Column("start", "Start", Kind.TIME, "Start of the first half hour of `floors`.", wide=True),
        Column("floors", "Floors", Kind.LIST, "Proposed minReplicas by half hour.", wide=True, unit=Unit.COUNT),
    ),
    ("namespace", "kind", "workload"),
)

PORTRAITS: Final = Schema(
    "portraits",
    (
        *_WORKLOAD_KEY,
        Column("resource", "Resource", Kind.TEXT, "cpu (millicores) or memory (bytes)."),
        Column("start", "Start", Kind.TIME, "Start of the first hour of `mean` and `highest`."),
        Column("mean", "Mean", Kind.LIST, "Mean usage of the whole workload in each hour."),
        Column("highest", "Highest", Kind.LIST, "Highest 5-minute usage of the workload in each hour."),
        Column("request", "Request", Kind.LIST, "Sum of the pods' requests in each hour."),
        Column("pods", "Pods", Kind.LIST, "Pods with a recorded request, by hour.", wide=True, unit=Unit.COUNT),
        Column("heat", "Hour x weekday", Kind.LIST, "Mean usage by hour of the week, from Monday 00:00 UTC."),
        Column("bounds", "Histogram bounds", Kind.LIST, "Lower bounds of the non-empty histogram buckets."),
        Column(
            "weights",
            "Histogram weights",
            Kind.LIST,
            "Share of the pods' running time in each usage bucket (decaying weights).",
            unit=Unit.RATIO,
        ),
        Column("ladder", "Usage quantiles", Kind.LIST, "p50, p90, p95, p98, p99, maximum of usage while a pod ran."),
    ),
    ("namespace", "kind", "workload", "resource"),
)


def portraits_of(namespace: str) -> Schema:
    """Return the schema PORTRAITS for one namespace, stored separately so that a page reads only what it shows."""
    return replace(PORTRAITS, name=f"{PORTRAITS.name}@{folder_part(namespace)}")


EVENTS: Final = Schema(
    "events",
    (
        *_WORKLOAD_KEY,
        Column("time", "Time", Kind.TIME, "Time of the event."),
        Column("event", "Event", Kind.TEXT, "oom-kill, restart or deploy."),
        Column("pod", "Pod", Kind.TEXT, "Pod of the event; empty for a deploy."),
        Column("container", "Container", Kind.TEXT, "Container of the event; empty for a deploy."),
    ),
    ("namespace", "kind", "workload", "time", "event", "pod"),
)

RECOMMENDATION_LOG: Final = Schema(
    "recommendation_log",
    (
        *_WORKLOAD_KEY,
        Column("container", "Container", Kind.TEXT, "Container."),
        Column("time", "Time", Kind.TIME, "End of the history that the recommendation used."),
        Column("cpu_request", "CPU req", Kind.MILLICORES, "Proposed CPU request."),
        Column("cpu_limit", "CPU limit", Kind.MILLICORES, "Proposed CPU limit."),
        Column("memory_request", "Mem req", Kind.BYTES, "Proposed memory request."),
        Column("memory_limit", "Mem limit", Kind.BYTES, "Proposed memory limit."),
        Column("cpu_reason", "CPU reason", Kind.TEXT, "Reason code of the CPU request."),
        Column("memory_reason", "Memory reason", Kind.TEXT, "Reason code of the memory request."),
        Column("strategy", "Strategy", Kind.TEXT, "Strategy that made the recommendation."),
    ),
    ("namespace", "kind", "workload", "container", "time"),
)

COVERAGE: Final = Schema(
    "coverage",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace."),
        Column("series", "Series", Kind.INTEGER, "Containers with a CPU usage sample in the window."),
        Column("coverage", "Samples present", Kind.RATIO, "Share of the samples that were due while pods lived."),
        Column("longest_gap_seconds", "Longest gap", Kind.INTEGER, "Longest time without samples of a container."),
        Column("newest", "Newest sample", Kind.TIME, "End of the newest slot with a sample."),
    ),
    ("namespace",),
)

COVERAGE_BY_DAY: Final = Schema(
    "coverage_by_day",
    (
        Column("day", "Day", Kind.TIME, "Start of the UTC day."),
        Column("series", "Series", Kind.INTEGER, "Largest number of containers that ran at the same time."),
        Column("coverage", "Samples present", Kind.RATIO, "Share of the samples that were due while pods lived."),
        Column("gap_seconds", "Silent", Kind.INTEGER, "Seconds with expected samples of which none is stored."),
    ),
    ("day",),
)


@dataclass(frozen=True, slots=True)
class Headline:
    """Six figures of one cluster, named as in kubernetes-mixin, as ratios of allocatable capacity (1 = all of it)."""

    cpu_utilisation: float
    cpu_requests_commitment: float
    cpu_limits_commitment: float
    memory_utilisation: float
    memory_requests_commitment: float
    memory_limits_commitment: float


@dataclass(frozen=True, slots=True)
class BandSeries:
    """Past and forecast totals and lendable amounts of one resource, in its unit, NaN if missing, on two time grids."""

    times: list[int]
    """Hours of the history, for the hourly means in `usage` and `request`; `ahead` are times of the forecast."""
    usage: list[float]
    request: list[float]
    allocatable: float
    ahead: list[int]
    quantiles: Mapping[str, list[float]]  # by "0.1", "0.5", "0.9", "0.95"
    batch_now: float
    mid_now: float
    """Sums over the nodes of RECLAIMABLE's amounts; NaN where no node's amount is known."""
    batch: list[float] = field(default_factory=list)
    """The sum over nodes of what batch pods could have used at the end of each hour of `times`; the last is now."""
    mid: list[float] = field(default_factory=list)
    """The same sum as `batch`, for mid pods."""
    batch_ahead: Mapping[str, list[float]] = field(default_factory=dict)
    """What batch pods can use in each half hour of `ahead`, by LIKELY and SURE (the sum of every node's value)."""
    mid_ahead: Mapping[str, list[float]] = field(default_factory=dict)
    """The same amounts as `batch_ahead`, for mid pods."""
    lending_nodes: int = 0
    """Number of nodes whose present amount for batch is known, even if it is 0."""
    peak: int | None = None
    """The forecast peak as defined by `cotenant.base.usage.peak`; None if it is not known."""


@dataclass(frozen=True, slots=True)
class NamespaceWaste:
    """Requested minus used amounts of one namespace, as means over the window; each workload counts with at least 0."""

    namespace: str
    cpu_millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Figures on the dashboard's Home page and in a cluster's status; `nodes`, `workloads` and `pods` are counts."""

    cluster: str
    computed_seconds: int
    nodes: int
    workloads: int
    pods: int
    peak: PeakAhead | None
    peak_reason: str


@dataclass(frozen=True, slots=True)
class Overview(ClusterFigures):
    """Everything that the dashboard's Home page shows and `cotenant demo --once` prints.

    `containers` is a count; `severities`, `patterns` and `reasons` are counts by name; `waste` is by namespace, in
    millicores and bytes.
    """

    source: str
    demo: bool
    time_seconds: int
    """Unix time of the newest sample."""
    window_days: float
    scrape_interval_seconds: float
    containers: int
    headline: Headline
    cpu: BandSeries
    memory: BandSeries
    heat: list[list[float]]
    """7 x 24 mean CPU usage / allocatable by weekday (0 = Monday) and UTC hour, NaN where never seen."""
    waste: list[NamespaceWaste]
    severities: Mapping[str, int]
    patterns: Mapping[str, int]
    reasons: Mapping[str, int]
    """How many CPU or memory request values carry each reason code."""
    saving_cpu_millicores: int
    saving_memory_bytes: int
    """Memory as in `savings.all_steps.frees`: raised requests are not deducted."""
    worth_the_effort: int
    """Fewest recommendations that together give 70 % of the CPU saving."""
    strategy: str
    settings_digest: str
    coverage: float
    notes: list[str] = field(default_factory=list)
    learned_seconds: int | None = None
    """End of the history of the back-tests that the forecasts use; None if no series could be tested."""
    kept_recommendations: int | None = 0
    """Number of recommendations kept from an earlier analysis; None if hidden, as they may be of any namespace."""
    kept_seconds: int | None = None
    """End of the history behind the oldest of the kept recommendations."""
    savings: PlannedSavings | None = None
    """What recommendations free and raise, now and after all steps; None where it is not known."""
    worst_days: Mapping[str, WorstDay] = field(default_factory=dict)
    """By resource: the 24 hours in which the most nodes exceeded their peaks."""
    worst_day_sentences: list[str] = field(default_factory=list)
    """`worst_days` as text, one sentence for each resource."""
