"""Settings of the scheduler extender: where it listens, and the rules by which it refuses and ranks nodes.

Names and defaults of the load-aware rules are those of Koordinator's LoadAwareSchedulingArgs. The load taints use the
same thresholds: `load_aware` for the present load, `prediction` for forecast peaks.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from cotenant.base.settings.base import NotNegative, Section, setting

Aggregation = Literal["", "avg", "p50", "p90", "p95", "p99"]


class Percentages(Section, frozen=True):
    """A percentage of allocatable for each resource; 0 = this resource is not checked."""

    cpu: Annotated[
        int,
        setting("CPU threshold; 0: none.", when="nodes should be filled more, or less", unit="percent", ge=0, le=1000),
    ] = 0
    memory: Annotated[
        int,
        setting(
            "Memory threshold; 0: none.", when="nodes should be filled more, or less", unit="percent", ge=0, le=1000
        ),
    ] = 0

    @property
    def given(self) -> bool:
        """True if any percentage is set."""
        return bool(self.cpu or self.memory)


USAGE_PERCENTAGES: Final = Percentages(65, 95)
"""Koordinator's default thresholds."""


class Weights(Section, frozen=True):
    """The weight of each resource's usage in a node's score."""

    cpu: int = 1
    """Weight of CPU."""
    memory: int = 1
    """Weight of memory."""


class LoadAwareSettings(Section, frozen=True):
    """Koordinator's LoadAware: nodes that are too busy are refused, idle ones are preferred."""

    on: Annotated[bool, setting("Refuse and rank nodes by their load.", when="load should not decide placement")] = True
    metric_expiration_seconds: Annotated[
        float,
        setting(
            "A NodeMetric of this age counts as expired.",
            when="NodeMetrics are written less often",
            unit="seconds",
            gt=0,
            le=86_400,
        ),
    ] = 180.0
    schedule_when_expired: Annotated[
        bool,
        setting(
            "Let pods onto nodes whose NodeMetric has expired; otherwise such nodes are refused.",
            when="pods must start on nodes without reports",
        ),
    ] = False
    usage: Annotated[Percentages, setting("Usage above which a node is refused.")] = USAGE_PERCENTAGES
    prod_usage: Annotated[
        Percentages, setting("Thresholds for prod pods, by the usage of prod pods; if both are 0, `usage` applies.")
    ] = Percentages()
    aggregated_usage: Annotated[
        Percentages, setting("Thresholds for an aggregated usage, in place of `usage`; they need `aggregation`.")
    ] = Percentages()
    aggregation: Annotated[
        Aggregation,
        setting(
            "Statistic for `aggregated_usage`; empty: none.",
            when="a percentile should decide instead of the present usage",
        ),
    ] = ""
    aggregated_seconds: int = 0
    """Window of that statistic; 0: the longest that a node reports. Default of Koordinator's LoadAwareScheduling: the
    longest window that a node reports.
    """
    score_aggregation: Aggregation = ""
    """Statistic that nodes are ranked by; empty: the mean. Default of Koordinator's LoadAwareScheduling (the mean)."""
    score_aggregated_seconds: int = 0
    """Window of that statistic; 0: the longest that a node reports. Default of Koordinator's LoadAwareScheduling."""
    scaling_factors: Annotated[Percentages, msgspec.Meta(extra={"constant": True})] = Percentages(85, 70)
    """Share of its request (or limit) with which a pod without measured usage counts. Default of Koordinator's
    LoadAwareScheduling (estimatedScalingFactors)."""
    weights: Weights = Weights()
    """Weight of each resource when nodes are ranked. Default of Koordinator's LoadAwareScheduling (resourceWeights)."""
    dominant_weight: int = 0
    """Weight of the busiest resource in addition to those. Default of Koordinator's LoadAwareScheduling
    (dominantResourceWeight)."""
    score_according_prod_usage: Annotated[
        bool, setting("Rank nodes for prod pods by prod's usage.", when="batch should not keep prod pods away")
    ] = False
    prod_usage_includes_system: Annotated[
        bool,
        setting("Count a node's system usage as that of prod pods.", when="your Koordinator has prodUsageIncludeSys"),
    ] = False
    customised_estimation: Annotated[
        bool,
        setting(
            "Read usage-estimate factors, and how long estimates replace measurements, from pods' annotations.",
            when="your Koordinator has allowCustomizeEstimation",
        ),
    ] = False
    estimated_seconds_after_scheduled: NotNegative | None = None
    """How long after its placement a pod counts with its estimate. Default of Koordinator's LoadAwareScheduling
    (estimatedSecondsAfterPodScheduled)."""
    estimated_seconds_after_initialized: NotNegative | None = None
    """How long after its initialisation a pod counts with its estimate. Default of Koordinator's LoadAwareScheduling
    (estimatedSecondsAfterInitialized)."""


class PredictionSettings(Section, frozen=True):
    """Refusal by forecast: the highest half hour within a pod's expected run time, in addition to the present load."""

    on: Annotated[
        bool,
        setting(
            "Also refuse nodes if the forecast (p95) of their highest half hour's mean exceeds the threshold; the "
            "5-minute peak on a node's page is another quantity.",
            when="only the present load should count",
        ),
    ] = True
    horizon_hours: float = 6.0
    """Longest part of a forecast that is used. A quarter of the forecast: most pods' lives, and its best part."""


class BalanceSettings(Section, frozen=True):
    """Ranking of nodes for batch pods: the weights of four scores of 0 to 100."""

    load: int = 2
    """Weight of the load-aware points. Weight of one view among four: its effect cannot be judged from outside."""
    peak: int = 2
    """Weight of the capacity left in the highest half hour (p95) of the forecast. Weight of one view among four: its
    effect cannot be judged from outside.
    """
    suppression: int = 1
    """Weight of how seldom the node suppressed best effort. Weight of one view among four: its effect cannot be judged
    from outside.
    """
    spread: int = 1
    """Weight of how few batch requests the node already has. Weight of one view among four: its effect cannot be judged
    from outside."""


class CpuAllocationSettings(Section, frozen=True):
    """Exclusive CPUs for LSE and LSR pods that cotenant binds."""

    on: Annotated[
        bool,
        setting(
            "Give LSE and LSR pods that request cotenant.dev/bind exclusive CPUs if their node publishes its CPUs.",
            when="pods should get exclusive CPUs without Koordinator's scheduler",
        ),
    ] = False


class DeviceAllocationSettings(Section, frozen=True):
    """Shares of devices for pods that request koordinator.sh/{gpu, gpu-core, gpu-memory, gpu.shared, rdma, fpga}."""

    on: Annotated[
        bool,
        setting(
            "Give pods that request device shares the best-fitting devices of their node's Device. The "
            "scheduler configuration must name the resources: print it with `cotenant serve extender --print-config`.",
            when="pods should get devices without Koordinator's scheduler",
        ),
    ] = False


class ExtenderSettings(Section, frozen=True):
    """The extender's address, the size of its requests, how recent its data must be, and its rules."""

    host: Annotated[
        str, setting("Address that the extender listens on.", when="the scheduler must reach it", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[
        int, setting("Port of the extender; 0 picks a free one.", when="the port is taken", ge=0, le=65535)
    ] = 9445
    certificate_folder: Annotated[
        str,
        setting(
            "Folder with tls.crt, tls.key and ca.crt; callers must show a certificate of that authority. Empty: plain"
            " HTTP, which only a loopback address may serve.",
            when="the extender is reached over the network",
        ),
    ] = ""
    max_body_bytes: int = 16_000_000
    """Largest size of a request; a larger one is refused unread. Bounds the process's memory; a pod's question names
    nodes, not objects, and has far fewer bytes."""
    read_seconds: float = 5.0
    """Longest time in which a caller may send its request. kube-scheduler sends at once; a slower caller got no answer
    anyway."""
    http_timeout_seconds: float = 0.3
    """How long the scheduler waits for the rules' answer before it continues without it (printed configuration); at
    least a second for bind, which writes to the API server. Many times what an answer takes; kube-scheduler places
    the pod without us after it."""
    weight: Annotated[
        int,
        setting(
            "Weight of the extender's score in the printed configuration. 0: the scheduler does not request the "
            "score, which saves one call per pod, and ranks the nodes that `near_points` leaves.",
            when="the extender's ranking should count in addition to the scheduler's",
            ge=0,
            le=1000,
        ),
    ] = 0
    near_points: int = 5
    """While `weight` is 0, filter returns only nodes that score at most this many points (of 100) below the best (of
    their zone, for replicas); all of them for pods with preferences of their own (preferred affinity, soft spread).
    Nodes without reported usage stay. Within five of a hundred points the scheduler's own ranking decides better."""
    most_nodes: Annotated[
        int,
        setting(
            "Most nodes that the extender returns for a pod, best first, so that the scheduler ranks fewer nodes. "
            "1: only the extender's score decides. 0: no limit.",
            when="the scheduler's ranking is slow, or should see all nodes",
            ge=0,
        ),
    ] = 100
    score_span: int = 25
    """The scheduler takes eleven steps only: the best node of a call gets 10, one that is this many points (of 100)
    lower gets 0. Scale of the points in the scheduler's eleven steps: its effect cannot be judged from outside."""
    watcher: Literal["process", "thread"] = "process"
    """Who watches the cluster: a process of its own never delays an answer; a thread needs less memory. A process of
    its own: a watch's burst never delays an answer.
    """
    coalesce_seconds: float = 0.1
    """After a quiet time, a change reaches the rules at once; in a burst, changes are applied together once per this
    time (placed pods within one and a half of it). Short enough that a burst of placements is seen, long enough that
    a change of each pod costs no answer."""
    stale_seconds: float = 120.0
    """A view of the cluster older than this turns load rules off; hand-overs of reservations are then guarded more
    widely. Two missed bookmarks of an API server."""
    load_aware: LoadAwareSettings = LoadAwareSettings()
    prediction: PredictionSettings = PredictionSettings()
    balance: BalanceSettings = BalanceSettings()
    cpus: CpuAllocationSettings = CpuAllocationSettings()
    devices: DeviceAllocationSettings = DeviceAllocationSettings()
