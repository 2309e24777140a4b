"""Settings of the scheduler extender: where it listens, and the rules by which it refuses and ranks nodes.

Names and defaults of the load-aware rules are those of Koordinator's LoadAwareSchedulingArgs. The load taints, by which
a scheduler that asks no extender keeps away from busy nodes, go by the same thresholds: `extender.load_aware` for the
load now, `extender.prediction` for the peaks to come.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cotenant.base.settings.base import NotNegative, Section, setting

Aggregation = Literal["", "avg", "p50", "p90", "p95", "p99"]


class Percentages(Section, frozen=True):
    """One percentage of allocatable for each resource; 0 = this resource is not looked at."""

    cpu: Annotated[int, setting("Of CPU; 0: not looked at.", unit="percent", ge=0, le=1000)] = 0
    memory: Annotated[int, setting("Of memory; 0: not looked at.", unit="percent", ge=0, le=1000)] = 0

    @property
    def given(self) -> bool:
        """True if any percentage is set."""
        return bool(self.cpu or self.memory)


USAGE_PERCENTAGES: Final = Percentages(65, 95)
"""Koordinator's thresholds: what holds while nobody sets any."""


class Weights(Section, frozen=True):
    """One weight for each resource."""

    cpu: Annotated[int, setting("Weight of CPU.", ge=0, le=1000)] = 1
    memory: Annotated[int, setting("Weight of memory.", ge=0, le=1000)] = 1


class LoadAwareSettings(Section, frozen=True):
    """Koordinator's LoadAware: nodes that are too busy are refused, idle ones preferred."""

    on: Annotated[bool, setting("Refuse and rank nodes by their load.")] = True
    metric_expiration_seconds: Annotated[
        float, setting("A NodeMetric of this age no longer says what a node uses.", unit="seconds", gt=0, le=86_400)
    ] = 180.0
    schedule_when_expired: Annotated[
        bool, setting("Let pods onto nodes whose NodeMetric has expired; otherwise such nodes are refused.")
    ] = False
    usage: Annotated[Percentages, setting("A node that would be used above this is refused.")] = USAGE_PERCENTAGES
    prod_usage: Annotated[
        Percentages, setting("The same for prod pods, of what prod pods use; 0 and 0: the plain thresholds hold.")
    ] = Percentages()
    aggregated_usage: Annotated[
        Percentages, setting("The same of an aggregated usage, instead of the plain thresholds; needs `aggregation`.")
    ] = Percentages()
    aggregation: Annotated[Aggregation, setting("Statistic that `aggregated_usage` looks at; empty: none.")] = ""
    aggregated_seconds: Annotated[
        int, setting("Window of that statistic; 0: the longest that a node reports.", unit="seconds", ge=0)
    ] = 0
    score_aggregation: Annotated[Aggregation, setting("Statistic that nodes are ranked by; empty: the mean.")] = ""
    score_aggregated_seconds: Annotated[
        int, setting("Window of that statistic; 0: the longest that a node reports.", unit="seconds", ge=0)
    ] = 0
    scaling_factors: Annotated[
        Percentages, setting("Share of its request (or limit) that a pod without measured usage counts.")
    ] = Percentages(85, 70)
    weights: Annotated[Weights, setting("Weight of each resource when nodes are ranked.")] = Weights()
    dominant_weight: Annotated[int, setting("Weight of the busiest resource beside those.", ge=0, le=1000)] = 0
    score_according_prod_usage: Annotated[bool, setting("Rank nodes for prod pods by what prod pods use.")] = False
    prod_usage_includes_system: Annotated[bool, setting("Count a node's system usage as prod's.")] = False
    customised_estimation: Annotated[
        bool, setting("Let pods' annotations say their scaling factors and how long they count as young.")
    ] = False
    estimated_seconds_after_scheduled: Annotated[
        NotNegative | None, setting("So long after it was placed a pod's estimate counts.", unit="seconds")
    ] = None
    estimated_seconds_after_initialized: Annotated[
        NotNegative | None, setting("So long after its initialisation a pod's estimate counts.", unit="seconds")
    ] = None
    breaker_fraction: Annotated[
        float,
        setting(
            "When a larger share of the reporting nodes is expired, it is the reporting that is broken: the load rules"
            " are off until it is back.",
            gt=0,
            le=1,
        ),
    ] = 0.5


class PredictionSettings(Section, frozen=True):
    """Refusal by forecast: the highest half hour within a pod's expected life, instead of the moment."""

    on: Annotated[
        bool,
        setting(
            "Also refuse nodes whose highest half hour's mean (p95) by the forecast would pass the threshold; the "
            "5-minute peak of a node's page is another quantity."
        ),
    ] = True
    horizon_hours: Annotated[
        float, setting("How far ahead a forecast is looked at, at most.", unit="hours", gt=0, le=24)
    ] = 6.0


class BalanceSettings(Section, frozen=True):
    """Ranking of nodes for batch pods: weights of four views, each from 0 to 100 points."""

    load: Annotated[int, setting("Weight of the load-aware points.", ge=0, le=100)] = 2
    peak: Annotated[
        int, setting("Weight of the capacity left in the highest half hour (p95) of the forecast.", ge=0, le=100)
    ] = 2
    suppression: Annotated[int, setting("Weight of how seldom the node suppressed best effort.", ge=0, le=100)] = 1
    spread: Annotated[int, setting("Weight of how little batch the node already holds.", ge=0, le=100)] = 1


class CpuAllocationSettings(Section, frozen=True):
    """CPUs of their own for LSE and LSR pods that ask to be bound by us."""

    on: Annotated[
        bool,
        setting(
            "Give LSE and LSR pods that request cotenant.dev/bind CPUs of their own, where their node publishes them."
        ),
    ] = False
    bind_policy: Annotated[
        Literal["FullPCPUs", "SpreadByPCPUs"], setting("How CPUs lie on cores where neither pod nor node says it.")
    ] = "FullPCPUs"
    numa_strategy: Annotated[
        Literal["MostAllocated", "LeastAllocated"],
        setting("Which NUMA node is filled first where the node does not say."),
    ] = "LeastAllocated"


class DeviceAllocationSettings(Section, frozen=True):
    """Shares of devices for pods that ask for koordinator.sh/{gpu, gpu-core, gpu-memory, gpu.shared, rdma, fpga}."""

    on: Annotated[
        bool,
        setting(
            "Bind such pods with devices of their node's Device object, the best fit. The scheduler's configuration "
            "must name these resources: take it anew from `cotenant serve extender --print-config`."
        ),
    ] = False


class ExtenderSettings(Section, frozen=True):
    """The address of the extender, what it accepts, and how fresh its view must be."""

    host: Annotated[str, setting("Address that the extender listens on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, setting("Port of the extender; 0 picks a free one.", ge=0, le=65535)] = 9445
    certificate_folder: Annotated[
        str,
        setting(
            "Folder with tls.crt, tls.key and ca.crt; callers must show a certificate of that authority. Empty: plain"
            " HTTP, which only a loopback address may serve."
        ),
    ] = ""
    max_body_bytes: Annotated[
        int, setting("A larger request is refused unread.", unit="bytes", ge=10_000, le=100_000_000)
    ] = 16_000_000
    read_seconds: Annotated[
        float, setting("A caller that takes longer to send its request is cut off.", unit="seconds", gt=0, le=60)
    ] = 5.0
    http_timeout_seconds: Annotated[
        float,
        setting(
            "How long the scheduler waits for the rules' answer to a pod, and goes on without (printed configuration)."
            " A bind, which writes to the API server, is waited for at least a second.",
            unit="seconds",
            gt=0,
        ),
    ] = 0.3
    weight: Annotated[
        int,
        setting(
            "Weight of our points in the printed configuration. 0: the scheduler does not ask for them, which is one"
            " call a pod less; it ranks by itself what `near_points` leaves.",
            ge=0,
            le=1000,
        ),
    ] = 0
    near_points: Annotated[
        int,
        setting(
            "While `weight` is 0, only nodes that are at most so many points worse than the best (of their zone, for"
            " replicas) are handed back; all of them for pods with preferences of their own (preferred affinity, spread"
            " if possible). Nodes that report no use stay.",
            unit="points",
            ge=0,
            le=100,
        ),
    ] = 5
    most_nodes: Annotated[
        int,
        setting(
            "When more nodes are left for a pod, only the best so many are handed back, so that the scheduler has less"
            " to rank. 1: our points alone decide, and the scheduler ranks nothing. 0: no bound.",
            ge=0,
        ),
    ] = 100
    score_span: Annotated[
        int,
        setting(
            "The scheduler takes eleven steps only: the best node of a question gets 10, one that is so many points (of"
            " 100) worse gets 0. Small spans tell nearly equal nodes apart.",
            unit="points",
            ge=1,
            le=100,
        ),
    ] = 25
    watcher: Annotated[
        Literal["process", "thread"],
        setting("Who watches the cluster: a process of its own never delays an answer; a thread needs less memory."),
    ] = "process"
    coalesce_seconds: Annotated[
        float,
        setting(
            "Changes reach the rules at once after a quiet time, and otherwise together, once in so long a time; pods"
            " that are placed in quick succession, within one and a half of it.",
            unit="seconds",
            ge=0,
            le=5,
        ),
    ] = 0.1
    stale_seconds: Annotated[
        float,
        setting(
            "A view older than this says nothing of load; a hand-over of a reservation is then guarded more widely.",
            unit="seconds",
            ge=1,
            le=3600,
        ),
    ] = 120.0
    load_aware: LoadAwareSettings = LoadAwareSettings()
    prediction: PredictionSettings = PredictionSettings()
    balance: BalanceSettings = BalanceSettings()
    cpus: CpuAllocationSettings = CpuAllocationSettings()
    devices: DeviceAllocationSettings = DeviceAllocationSettings()


class LoadTaintSettings(Section, frozen=True):
    """The manager's taint cotenant.dev/load: NoSchedule above the thresholds, PreferNoSchedule on the busiest."""

    enabled: Annotated[
        bool,
        setting("The manager judges every node's load; false: it takes the taints away that it set earlier."),
    ] = False
    dry_run: Annotated[
        bool, setting("What would be tainted is counted and told, and no node has the taint; else nodes get it.")
    ] = True
    interval_seconds: Annotated[float, setting("Between two looks.", unit="seconds", ge=1, le=600)] = 5.0
    hold_seconds: Annotated[
        float,
        setting("A node keeps its taint for so long at least; only a stricter one replaces it.", unit="seconds", ge=0),
    ] = 120.0
    refuse_percent: Annotated[
        float,
        setting(
            "NoSchedule from this share of a threshold on: pods arrive before the taint does. 100: at the threshold.",
            unit="percent of the threshold",
            gt=0,
            le=200,
        ),
    ] = 97.0
    avoid_percent: Annotated[
        float,
        setting(
            "PreferNoSchedule on nodes from this share of a threshold on, the busiest first.",
            unit="percent of the threshold",
            gt=0,
            le=200,
        ),
    ] = 60.0
    leave_percent: Annotated[
        float,
        setting(
            "A taint goes when the node is so far below what it was set for; a node in the place of another is so much "
            "busier.",
            unit="percent of the threshold",
            ge=0,
            le=100,
        ),
    ] = 8.0
    refused_share_percent: Annotated[
        float,
        setting(
            "Share of the schedulable nodes that has NoSchedule, at most; rounded down. Beyond it nodes get "
            "PreferNoSchedule. 0: never NoSchedule.",
            unit="percent of nodes",
            ge=0,
            le=50,
        ),
    ] = 10.0
    avoided_share_percent: Annotated[
        float,
        setting(
            "Share of the schedulable nodes that has PreferNoSchedule, at most; rounded down.",
            unit="percent of nodes",
            ge=0,
            le=90,
        ),
    ] = 25.0
