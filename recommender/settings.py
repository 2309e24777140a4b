"""Settings of the recommender: one section per strategy, and the formulas of reclaimable capacity.

The defaults of `krr` and `vpa` are those of KRR and VPA, so that both reproduce their numbers. `cotenant` has profiles.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.colocation.colocation_strategy import ReclaimFields
from cotenant.base.settings.base import NotNegative, Section, setting
from cotenant.recommender.strategies.settings import KrrSettings, VpaSettings

Percent = float
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
Margin = Annotated[float, msgspec.Meta(ge=0, le=10)]
MIB = 1024**2


class ProfileSettings(Section, frozen=True):
    """One profile of strategy `cotenant`: the quantile and the margins that a name such as "balanced" stands for."""

    cpu_fraction: float = 0.95
    """Quantile of one pod's demand (usage + throttled). Defines the profile; recommender.cotenant.cpu_fraction sets a
    quantile of your own."""
    cpu_margin_fraction: float = 0.0
    """Added to the CPU demand. Defines the profile; recommender.cotenant.cpu_margin_fraction sets a margin of your own.
    """
    memory_margin_fraction: float = 0.15
    """Added to the highest memory ever seen. Defines the profile; recommender.cotenant.memory_margin_fraction sets a
    margin of your own."""
    cpu_root_margin_millicores: float = 2.0
    """Added to the CPU demand: the square root of (demand x this). Relative to its demand, a small container gets a
    larger margin, because its bursts are larger. Defines the profile."""


class ProfilesSettings(Section, frozen=True):
    """The three profiles; a workload selects one with the annotation `cotenant.dev/profile`."""

    conservative: ProfileSettings = ProfileSettings(0.98, 0.1, 0.3, 4.0)
    """For workloads that must never wait."""
    balanced: ProfileSettings = ProfileSettings()
    """For the busy hours, not for rare bursts."""
    aggressive: ProfileSettings = ProfileSettings(0.9, 0.0, 0.1)
    """For workloads that may wait and be restarted."""


class SeveritySettings(Section, frozen=True):
    """The thresholds by which strategy `cotenant` grades a change, and by which waste is graded.

    Critical means danger only: memory must rise above the present limit after an OOM kill or because usage already
    exceeds the request; or CPU demand exceeds the request while the container is throttled. Other changes are graded by
    their share of the present value and by their amount over all replicas: both must reach a level's thresholds. A
    limit that may be lowered harms no workload and is good. Waste (none, small, medium, large) is graded by the same
    thresholds; large also requires a minimum share of all that the cluster requests.
    """

    throttled_share: float = 0.03
    """Share of the CPU demand throttled by the limit from which throttling is a risk. It affects the severity and its
    reason; it changes no amount."""


class CotenantSettings(Section, frozen=True):
    """Strategy `cotenant`: CPU for the busy hours of one pod, memory above the highest ever measured.

    A workload's annotation takes precedence over these settings, and a setting that is not null over the profile.
    """

    profile: Annotated[
        Literal["conservative", "balanced", "aggressive"],
        setting(
            "Profile of workloads without a profile of their own.",
            when="the cluster as a whole should save more, or risk less",
        ),
    ] = "balanced"
    profiles: ProfilesSettings = ProfilesSettings()
    """The quantiles and margins of each profile."""
    cpu_fraction: Annotated[
        Fraction | None,
        setting(
            "Quantile of CPU demand; null = that of the profile.",
            when="none of the profiles has the quantile you want",
        ),
    ] = None
    cpu_margin_fraction: Annotated[
        Margin | None,
        setting(
            "Margin added to the CPU demand; null = that of the profile.",
            when="none of the profiles has the margin you want",
        ),
    ] = None
    cpu_day_risk: Annotated[
        Fraction | None,
        setting(
            "Largest share of days, over all containers, on which demand may exceed a CPU request. Back-tests set the "
            "margin, which rises at once and falls slowly. null = requests are sized by the profile.",
            when="requests should follow a risk that you can state in days",
        ),
    ] = None
    memory_margin_fraction: Annotated[
        Margin | None,
        setting(
            "Margin added to the highest memory usage; null = that of the profile.",
            when="none of the profiles has the margin you want",
        ),
    ] = None
    oom_bump_ratio: float = 1.2
    """Memory after an OOM kill, as a multiple of the usage. Default of the Vertical Pod Autoscaler (oom-bump-up-ratio),
    so that both answer an OOM kill alike."""
    oom_bump_bytes: int = 100 * MIB
    """Minimum that an OOM kill adds. Default of the Vertical Pod Autoscaler (oom-min-bump-up-bytes), so that both
    answer an OOM kill alike."""
    pod_floor_millicores: int = 10
    """Lowest CPU request of a pod, split evenly over its containers. What a process needs to start at all; the
    annotation cotenant.dev/min-cpu sets another for a workload."""
    pod_floor_bytes: int = 64 * MIB
    """Lowest memory request of a pod, split evenly over its containers. What a process needs to start at all; the
    annotation cotenant.dev/min-memory sets another for a workload."""
    minimum_days: float = 1.0
    """Days between first and last sample that a proposal needs. One whole day: less may lack the daily peak."""
    minimum_coverage: float = 0.5
    """Share of the pods' time with samples that a proposal needs. With fewer than half of the samples the unseen part
    decides, not the seen one."""
    dead_band_fraction: float = 0.1
    """Relative change below which the present value is kept: a smaller change is not worth a restart. The same as
    actions.guardrails.least_change by default."""
    lower_limits: Annotated[
        bool,
        setting(
            "Also lower limits. Limits reserve no capacity: a lower limit frees nothing and can throttle or kill.",
            when="quotas on limits are full",
        ),
    ] = False
    cpu_limit: Annotated[
        Literal["keep", "unset"],
        setting(
            "keep: CPU limits stay set; unset: recommend removing them.", when="your policy is to have no CPU limits"
        ),
    ] = "keep"
    cpu_limit_margin_fraction: float = 1.0
    """Margin of a CPU limit above the highest CPU demand. A limit twice the highest demand throttles
    nothing that was ever seen; a limit reserves no capacity."""
    keep_qos_class: Annotated[
        bool,
        setting(
            "Keep request = limit for Guaranteed pods whose QoS label is not BE, and propose no request for pods "
            "whose QoS label is BE and which request nothing.",
            when="Guaranteed pods may become Burstable",
        ),
    ] = True
    cpu_steps_millicores: Annotated[
        list[NotNegative],
        setting(
            "Allowed CPU amounts, to which requests are rounded up; empty = any amount.",
            when="requests come in sizes that your company prescribes",
            unit="millicores",
        ),
    ] = msgspec.field(default_factory=list)
    memory_steps_bytes: Annotated[
        list[NotNegative],
        setting(
            "Allowed memory amounts, to which requests are rounded up; empty = any amount.",
            when="requests come in sizes that your company prescribes",
            unit="bytes",
        ),
    ] = msgspec.field(default_factory=list)
    heap_collecting_fraction: float = 0.05
    """Share of an hour spent in garbage collections above which a heap is too small. Five percent of the time is
    what runtimes' own guides call too much."""
    severity: SeveritySettings = SeveritySettings()
    """Thresholds for the severity of a change."""


class ReclaimableSettings(ReclaimFields, Section, frozen=True):
    """Reclaimable capacity per node (fields and defaults of Koordinator's colocation-config)."""


class FindingSettings(Section, frozen=True):
    """The thresholds for a finding about a workload or node."""

    minimum_days: float = 5.0
    """Days of history that a finding on idleness, growth or skew needs. Five days hold one weekend's edge and four
    working days: less cannot tell idle from a day off."""
    minimum_coverage: float = 0.5
    """Share of slots with a sample that a finding needs. With fewer than half of the samples the unseen part
    decides, not the seen one."""
    idle_pod_millicores: int = 5
    """A workload is idle if no pod ever used more CPU than this in 5 minutes. Health checks alone use five millicores.
    """
    idle_gpu_percent: float = 3.0
    """A container's GPUs are idle if together they never computed for a larger part of 5 minutes. Three percent of one
    device is what drivers and health checks use."""
    system_namespaces: Annotated[
        list[str],
        setting(
            "Namespaces without findings on idle workloads and missing limits.",
            when="other namespaces hold the cluster's own components",
        ),
    ] = msgspec.field(default_factory=lambda: ["kube-system"])


class GpuSettings(Section, frozen=True):
    """The margins and steps of the GPU share that is proposed instead of a larger request."""

    core_margin_fraction: float = 0.15
    """Added to the used share of GPU time. The margin that strategy cotenant uses for memory in profile balanced."""
    memory_margin_fraction: float = 0.15
    """Added to the highest GPU memory ever seen: beyond it an allocation fails. The margin that strategy cotenant uses
    for memory in profile balanced."""
    step_percent: Literal[1, 2, 5, 10, 20, 25, 50, 100] = 10
    """Shares are rounded up to multiples of this. Koordinator shares GPUs in hundredths; tenths leave remainders that
    other pods can use."""


class PatchSettings(Section, frozen=True):
    """The format of patches for Helm charts, GitOps tools and other tools that apply recommendations."""

    helm_path: Annotated[
        str,
        setting(
            "Path in a chart's values to the resources of a workload with one container; dots separate keys, and "
            "{container}, {workload}, {kind}, {namespace} stand for names.",
            when="your chart keeps resources elsewhere in its values",
            min_length=1,
        ),
    ] = "resources"
    helm_path_of_several: Annotated[
        str,
        setting(
            "Path in a chart's values to one container's resources if several containers change.",
            when="your chart keeps resources elsewhere in its values",
            min_length=1,
        ),
    ] = "{container}.resources"


class BacktestSettings(Section, frozen=True):
    """The part of the history on which a proposal is back-tested before it is shown."""

    days: float = 7.0
    """Newest part of the history on which a proposal is back-tested. One week: each weekday is tested once."""


Price = Annotated[float, msgspec.Meta(ge=0)]


class PriceSettings(Section, frozen=True):
    """The price sheet for all sums of money; the defaults are OpenCost's for a cluster without a cloud provider."""

    currency: Annotated[
        str, setting("Currency of all prices.", when="you pay in another currency", min_length=1, max_length=8)
    ] = "USD"
    per_core_hour: Annotated[
        float,
        setting("Price of one requested core.", when="your contract has another price", unit="currency per hour", ge=0),
    ] = 0.031611
    per_gib_hour: Annotated[
        float,
        setting(
            "Price of one requested GiB of memory.",
            when="your contract has another price",
            unit="currency per hour",
            ge=0,
        ),
    ] = 0.004237
    per_gpu_hour: Annotated[
        float,
        setting("Price of one requested GPU.", when="your contract has another price", unit="currency per hour", ge=0),
    ] = 0.95
    core_hour_by_node_label: Annotated[
        dict[str, Price],
        setting(
            "Core prices for nodes with a label, written label=value; the first that matches is used.",
            when="spot or reserved nodes cost something else",
        ),
    ] = msgspec.field(default_factory=dict)
    gib_hour_by_node_label: Annotated[
        dict[str, Price], setting("Prices of a GiB by node label.", when="spot or reserved nodes cost something else")
    ] = msgspec.field(default_factory=dict)
    gpu_hour_by_node_label: Annotated[
        dict[str, Price], setting("Prices of a GPU by node label.", when="kinds of GPUs cost something else")
    ] = msgspec.field(default_factory=dict)


class ReplicaSettings(Section, frozen=True):
    """Settings of the replica floors: the fewest replicas that a workload will need, by forecast."""

    percentile: Literal[50, 60, 70, 80, 90, 95, 98] = 90
    """Percentile of the demand that the floor covers. Nine days in ten: the tenth is what the autoscaler itself is for.
    """
    lead_seconds: Annotated[
        int,
        setting(
            "How long before the demand minReplicas is raised; long enough for a pod to start.",
            when="your pods take longer, or shorter, to start",
            unit="seconds",
            ge=0,
            le=21_600,
        ),
    ] = 900
    kinds: list[str] = msgspec.field(default_factory=lambda: ["Deployment", "StatefulSet"])
    """Kinds whose replicas can be changed. The kinds whose scale subresource Kubernetes itself has."""


class RecommenderSettings(Section, frozen=True):
    """The strategy that makes recommendations, and the options of each strategy."""

    strategy: Annotated[
        str,
        setting(
            "Strategy that makes the proposals.",
            when="proposals should equal another recommender's, or a plug-in makes them",
            min_length=1,
        ),
    ] = "cotenant"
    krr: Annotated[KrrSettings, setting("Options of krr-simple and krr-simple-limit.")] = KrrSettings()
    vpa: Annotated[VpaSettings, setting("Options of strategy vpa.")] = VpaSettings()
    cotenant: Annotated[CotenantSettings, setting("Strategy cotenant.")] = CotenantSettings()
    reclaimable: Annotated[ReclaimableSettings, setting("Reclaimable capacity of nodes.")] = ReclaimableSettings()
    findings: Annotated[FindingSettings, setting("Thresholds for findings.")] = FindingSettings()
    gpus: GpuSettings = GpuSettings()
    """Shares of GPUs."""
    patches: Annotated[PatchSettings, setting("Format of the patches that tools apply.")] = PatchSettings()
    backtest: BacktestSettings = BacktestSettings()
    """Back-test and confidence of proposals."""
    renew_hours: float = 12.0
    """Hours for which a scan keeps a recommendation whose workload has not changed; 0 = each scan recomputes all.
    Half a day: without a change the result is the same; a change of the workload recomputes it at once."""
    replicas: Annotated[ReplicaSettings, setting("Proposed replica floors (minReplicas).")] = ReplicaSettings()
    prices: Annotated[PriceSettings, setting("Price sheet.")] = PriceSettings()
