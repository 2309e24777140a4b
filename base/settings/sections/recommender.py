"""Settings of the recommender: one section per strategy, and the formulas of reclaimable capacity.

Defaults of `krr` and `vpa` are their peers' own, so that both reproduce their numbers. `cotenant`
speaks in profiles.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.colocation.colocation_strategy import ReclaimFields
from cotenant.base.settings.base import NotNegative, Section, setting

Percent = float
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
Margin = Annotated[float, msgspec.Meta(ge=0, le=10)]
MIB = 1024**2


class KrrSettings(Section, frozen=True):
    """Strategies `krr-simple` and `krr-simple-limit` (defaults of Robusta KRR's `simple` and `simple_limit`)."""

    history_hours: Annotated[
        float, setting("History looked at, never cut to whole days.", unit="hours", gt=0, le=2160)
    ] = 336.0
    step_seconds: Annotated[int, setting("Step and rate window of the questions.", unit="seconds", ge=15, le=3600)] = 75
    cpu_percentile: Annotated[
        Percent,
        setting("krr-simple: percentile of each pod's CPU, exact to the decimal.", unit="percent", gt=0, le=100),
    ] = 95.0
    cpu_request_percentile: Annotated[
        Percent,
        setting("krr-simple-limit: percentile over all pods' points for the request.", unit="percent", gt=0, le=100),
    ] = 66.0
    cpu_limit_percentile: Annotated[
        Percent,
        setting("krr-simple-limit: percentile over all pods' points for the limit.", unit="percent", gt=0, le=100),
    ] = 96.0
    memory_buffer_percent: Annotated[
        Percent, setting("Added to the highest working set.", unit="percent", ge=0, le=1000)
    ] = 15.0
    minimum_history_minutes: Annotated[
        int,
        setting("Time with samples that a value needs: 100 steps of 75 s, however many pods.", unit="minutes", ge=0),
    ] = 125
    cpu_floor_millicores: Annotated[int, setting("Lowest CPU proposal.", unit="millicores", ge=0)] = 10
    memory_floor_bytes: Annotated[int, setting("Lowest memory proposal.", unit="bytes", ge=0)] = 100 * MIB
    allow_hpa: Annotated[bool, setting("Propose also where a HorizontalPodAutoscaler follows the resource.")] = False
    use_oom_kills: Annotated[bool, setting("Raise memory above the limit at which a container was OOM-killed.")] = False
    oom_memory_buffer_percent: Annotated[
        Percent, setting("Added to the limit at which a container was killed.", unit="percent", ge=0, le=1000)
    ] = 25.0


class VpaSettings(Section, frozen=True):
    """Strategy `vpa` (defaults of the Vertical Pod Autoscaler's recommender)."""

    target_fraction: Annotated[float, setting("Quantile of the target.", gt=0, le=1)] = 0.9
    lower_fraction: Annotated[float, setting("Quantile of the lower bound.", gt=0, le=1)] = 0.5
    upper_fraction: Annotated[float, setting("Quantile of the upper bound.", gt=0, le=1)] = 0.95
    margin_fraction: Annotated[float, setting("Safety margin added to every estimate.", ge=0, le=10)] = 0.15
    half_life_hours: Annotated[int, setting("Half life of a sample's weight.", unit="hours", ge=1, le=2160)] = 24
    memory_interval_hours: Annotated[
        int, setting("One memory peak counts per pod and interval.", unit="hours", ge=1, le=168)
    ] = 24
    pod_floor_millicores: Annotated[
        int, setting("Lowest CPU of a pod, split evenly over its containers.", unit="millicores", ge=0)
    ] = 25
    pod_floor_bytes: Annotated[
        int, setting("Lowest memory of a pod, split evenly over its containers.", unit="bytes", ge=0)
    ] = 250 * MIB
    oom_bump_ratio: Annotated[float, setting("Memory after an OOM kill, times what was used.", ge=1, le=10)] = 1.2
    oom_bump_bytes: Annotated[int, setting("Least that an OOM kill adds.", unit="bytes", ge=0)] = 100 * MIB


class ProfileSettings(Section, frozen=True):
    """One profile of strategy `cotenant`: the quantile and the margins that a word such as "balanced" stands for."""

    cpu_fraction: Annotated[float, setting("Quantile of one pod's demand (usage + throttled).", gt=0, le=1)] = 0.95
    cpu_margin_fraction: Annotated[float, setting("Added to the CPU demand.", ge=0, le=10)] = 0.0
    memory_margin_fraction: Annotated[float, setting("Added to the highest memory ever seen.", ge=0, le=10)] = 0.15
    cpu_root_margin_millicores: Annotated[
        float,
        setting(
            "Added to the CPU demand: the square root of demand x this. Much for a small container, little for a large "
            "one, as bursts are.",
            unit="millicores",
            ge=0,
            le=1000,
        ),
    ] = 2.0


class ProfilesSettings(Section, frozen=True):
    """The meaning of the three profiles; a workload chooses with the annotation `cotenant.dev/profile`."""

    conservative: Annotated[ProfileSettings, setting("For what must never wait.")] = ProfileSettings(
        0.98, 0.1, 0.3, 4.0
    )
    balanced: Annotated[ProfileSettings, setting("For the busy hours, not for the rare burst.")] = ProfileSettings()
    aggressive: Annotated[ProfileSettings, setting("For what may wait, and be started again.")] = ProfileSettings(
        0.9, 0.0, 0.1
    )


class SeveritySettings(Section, frozen=True):
    """The thresholds by which strategy `cotenant` grades a change, and by which waste is graded.

    Critical is danger only: memory must rise above the present limit after an OOM kill or because usage is already
    beyond the request; CPU demand beyond the request while the container is throttled. Below that a change is graded
    by its share of the present value and by its amount over all replicas: both must reach a level's thresholds. A
    limit that may be lowered harms no workload and is good. Waste (none, small, medium, large) is graded by the same
    thresholds; large is also a share of all that the cluster requests.
    """

    critical_cluster_share: Annotated[
        float, setting("Large waste: over all pods, as a share of all that the cluster requests.", gt=0, le=1)
    ] = 0.003
    critical_change: Annotated[float, setting("Large waste: share of the present value.", ge=0, le=1)] = 0.5
    warning_change: Annotated[float, setting("Share of the present value that changes.", ge=0, le=1)] = 0.4
    warning_millicores: Annotated[int, setting("CPU over all replicas.", unit="millicores", ge=0)] = 1000
    warning_bytes: Annotated[int, setting("Memory over all replicas.", unit="bytes", ge=0)] = 2048 * MIB
    ok_change: Annotated[float, setting("Share of the present value that changes.", ge=0, le=1)] = 0.1
    ok_millicores: Annotated[int, setting("CPU over all replicas.", unit="millicores", ge=0)] = 100
    ok_bytes: Annotated[int, setting("Memory over all replicas.", unit="bytes", ge=0)] = 128 * MIB
    throttled_share: Annotated[
        float, setting("Share of the CPU demand refused by the limit from which throttling is a risk.", ge=0, le=1)
    ] = 0.03


class CotenantSettings(Section, frozen=True):
    """Strategy `cotenant`: CPU for the busy hours of one pod, memory above all that was seen.

    A workload's annotation goes before these settings, and a setting that is not null before the profile.
    """

    profile: Annotated[
        Literal["conservative", "balanced", "aggressive"], setting("Profile of every workload that names none.")
    ] = "balanced"
    profiles: Annotated[ProfilesSettings, setting("What the profiles mean.")] = ProfilesSettings()
    cpu_fraction: Annotated[Fraction | None, setting("Quantile instead of the profile's; null = the profile's.")] = None
    cpu_margin_fraction: Annotated[
        Margin | None, setting("CPU margin instead of the profile's; null = the profile's.")
    ] = None
    cpu_day_risk: Annotated[
        Fraction | None,
        setting(
            "Size CPU requests by days instead: at most this share of days, over all containers, may hold a moment "
            "above the request, by back-test; its margin rises at once and falls slowly. null = by the profile."
        ),
    ] = None
    memory_margin_fraction: Annotated[
        Margin | None, setting("Memory margin instead of the profile's; null = the profile's.")
    ] = None
    oom_bump_ratio: Annotated[float, setting("Memory after an OOM kill, times what was used.", ge=1, le=10)] = 1.2
    oom_bump_bytes: Annotated[int, setting("Least that an OOM kill adds.", unit="bytes", ge=0)] = 100 * MIB
    pod_floor_millicores: Annotated[
        int, setting("Lowest CPU request of a pod, split evenly over its containers.", unit="millicores", ge=0)
    ] = 10
    pod_floor_bytes: Annotated[
        int, setting("Lowest memory request of a pod, split evenly over its containers.", unit="bytes", ge=0)
    ] = 64 * MIB
    minimum_days: Annotated[
        float, setting("Days between first and last sample that a value needs.", unit="days", ge=0, le=90)
    ] = 1.0
    minimum_runs: Annotated[int, setting("Runs of a job that do instead of the days.", ge=1)] = 3
    minimum_coverage: Annotated[
        float, setting("Share of the pods' time with samples that a value needs.", ge=0, le=1)
    ] = 0.5
    dead_band_fraction: Annotated[
        float, setting("Relative change below which the present value is kept.", ge=0, le=1)
    ] = 0.1
    lower_limits: Annotated[
        bool, setting("Lower limits too: they hold no capacity, so a lower one frees nothing and can throttle or kill.")
    ] = False
    cpu_limit: Annotated[
        Literal["keep", "unset"], setting("keep: a CPU limit that is set stays set; unset: remove it.")
    ] = "keep"
    cpu_limit_margin_fraction: Annotated[
        float, setting("Added to the highest CPU demand that a CPU limit has to let through.", ge=0, le=10)
    ] = 1.0
    keep_qos_class: Annotated[
        bool,
        setting(
            "Request = limit stays so (Guaranteed, unless the QoS label says best effort), and what is best effort by "
            "its label and asks for nothing gets no request."
        ),
    ] = True
    guaranteed_fraction: Annotated[
        float, setting("Quantile of the CPU demand where request = limit must stay.", gt=0, le=1)
    ] = 0.999
    cpu_steps_millicores: Annotated[
        list[NotNegative], setting("CPU amounts to round up to; empty = any.", unit="millicores")
    ] = msgspec.field(default_factory=list)
    memory_steps_bytes: Annotated[
        list[NotNegative], setting("Memory amounts to round up to; empty = any.", unit="bytes")
    ] = msgspec.field(default_factory=list)
    heap_live_factor: Annotated[
        float,
        setting("Largest heap of a runtime, times what collections leave in it; a collector needs room to work.", ge=1),
    ] = 2.5
    heap_raise: Annotated[float, setting("The same, times its present size, under collection pressure.", ge=1)] = 1.5
    heap_collecting_fraction: Annotated[
        float, setting("Share of an hour spent in collections from which a heap is too small.", gt=0, le=1)
    ] = 0.05
    hpa_target_max_percent: Annotated[
        int, setting("Highest utilisation target proposed to an autoscaler.", unit="percent", ge=1, le=100)
    ] = 90
    returning_peak_ratio: Annotated[
        float,
        setting(
            "Half hour that is busy on most days, or hour that is busy every week, / the quantile of the demand, above "
            "which it is a peak of its own.",
            ge=1,
        ),
    ] = 3.0
    uneven_ratio: Annotated[
        float, setting("Highest pod's p95 / median pod's p95 above which replicas count as uneven.", ge=1)
    ] = 2.0
    growth_weekly_fraction: Annotated[
        float,
        setting(
            "Growth of the CPU demand from week to week, over three weeks or more, that is projected on.", gt=0, le=10
        ),
    ] = 0.05
    growth_horizon_days: Annotated[float, setting("Days that growth is projected.", unit="days", ge=0, le=90)] = 7.0
    leak_days: Annotated[
        int, setting("Full days since the last restart that a leak is judged by.", unit="days", ge=3, le=90)
    ] = 7
    leak_rise_fraction: Annotated[float, setting("Rise of the daily maxima over them that counts.", ge=0)] = 0.1
    leak_agreement: Annotated[
        float, setting("Share of pairs of days of which the later one is higher.", gt=0.5, le=1)
    ] = 0.8
    severity: Annotated[SeveritySettings, setting("How a change is graded.")] = SeveritySettings()


class ReclaimableSettings(ReclaimFields, Section, frozen=True):
    """Reclaimable capacity per node (fields and defaults of Koordinator's colocation-config)."""


class FindingSettings(Section, frozen=True):
    """The thresholds for a finding about a workload or node."""

    minimum_days: Annotated[
        float, setting("History that a statement about idleness, growth or skew needs.", unit="days", ge=0, le=90)
    ] = 5.0
    minimum_coverage: Annotated[float, setting("Share of slots with a sample that it needs.", ge=0, le=1)] = 0.5
    idle_pod_millicores: Annotated[
        int, setting("A workload is idle when no pod ever used more CPU in 5 minutes.", unit="millicores", ge=0)
    ] = 5
    idle_gpu_percent: Annotated[
        float,
        setting(
            "GPUs are idle when they never computed for more of 5 minutes, all of a container's together.",
            unit="percent of one device",
            ge=0,
            le=100,
        ),
    ] = 3.0
    idle_node_fraction: Annotated[
        float, setting("A node is idle when its p95 CPU usage is at most this share of allocatable.", ge=0, le=1)
    ] = 0.1
    idle_node_pod_share: Annotated[
        float, setting("Share of the window in which pods other than daemons may have run on it.", ge=0, le=1)
    ] = 0.05
    system_namespaces: Annotated[
        list[str], setting("Namespaces whose quiet workloads and missing limits are left alone.")
    ] = msgspec.field(default_factory=lambda: ["kube-system"])
    leak_critical_days: Annotated[
        float, setting("A leak that reaches the memory limit within this time is critical.", unit="days", ge=0)
    ] = 7.0
    skew_ratio: Annotated[
        float, setting("Busiest pod / median pod, above which replicas are uneven.", gt=1, le=1000)
    ] = 2.0
    skew_pods: Annotated[int, setting("Pods that a statement about skew needs.", ge=3, le=1000)] = 3
    skew_millicores: Annotated[
        int, setting("Least difference between busiest and median pod.", unit="millicores", ge=0)
    ] = 100
    skew_bytes: Annotated[int, setting("The same for memory.", unit="bytes", ge=0)] = 128 * MIB


class GpuSettings(Section, frozen=True):
    """The share of a GPU that is proposed instead of a larger request."""

    core_fraction: Annotated[float, setting("Quantile of the GPUs' time that one pod used.", gt=0, le=1)] = 0.95
    core_margin_fraction: Annotated[float, setting("Added to it.", ge=0, le=10)] = 0.15
    memory_margin_fraction: Annotated[
        float, setting("Added to the highest GPU memory ever seen: beyond it an allocation fails.", ge=0, le=10)
    ] = 0.15
    step_percent: Annotated[
        Literal[1, 2, 5, 10, 20, 25, 50, 100], setting("Steps that shares are rounded up to.", unit="percent")
    ] = 10
    unmeasured_hours: Annotated[
        int, setting("How long GPUs are requested before their missing metrics are told.", unit="hours", ge=1, le=168)
    ] = 2


class PatchSettings(Section, frozen=True):
    """The format of recommendations for tools that apply them."""

    helm_path: Annotated[
        str,
        setting(
            "Where a chart's values hold the resources of a workload's only container; dots part the keys, and "
            "{container}, {workload}, {kind}, {namespace} stand for names.",
            min_length=1,
        ),
    ] = "resources"
    helm_path_of_several: Annotated[
        str, setting("The same where a workload has several containers to change.", min_length=1)
    ] = "{container}.resources"


class BacktestSettings(Section, frozen=True):
    """The history on which a proposal is back-tested before it is shown, and what it takes to trust a proposal."""

    days: Annotated[
        float, setting("Newest part of the history that a proposal is tried on.", unit="days", gt=0, le=90)
    ] = 7.0
    trusted_days: Annotated[
        float, setting("Days between first and last sample that deserve full trust.", unit="days", gt=0, le=90)
    ] = 7.0
    trusted_weeks: Annotated[
        float, setting("Weekly cycles seen that deserve full trust.", unit="weeks", gt=0, le=12)
    ] = 2.0
    trusted_throttling: Annotated[
        float, setting("More of the time throttled than now, at which trust is halved.", gt=0, le=1)
    ] = 0.01


Price = Annotated[float, msgspec.Meta(ge=0)]


class PriceSettings(Section, frozen=True):
    """The price sheet behind every sum of money; the defaults are OpenCost's for a cluster without a provider."""

    currency: Annotated[str, setting("Currency of all prices.", min_length=1, max_length=8)] = "USD"
    per_core_hour: Annotated[float, setting("Price of one requested core.", unit="currency per hour", ge=0)] = 0.031611
    per_gib_hour: Annotated[float, setting("Price of one requested GiB of memory.", unit="currency per hour", ge=0)] = (
        0.004237
    )
    per_gpu_hour: Annotated[float, setting("Price of one requested GPU.", unit="currency per hour", ge=0)] = 0.95
    core_hour_by_node_label: Annotated[
        dict[str, Price],
        setting("Other core prices for nodes with a label, written label=value; the first that fits counts."),
    ] = msgspec.field(default_factory=dict)
    gib_hour_by_node_label: Annotated[dict[str, Price], setting("The same for a GiB of memory.")] = msgspec.field(
        default_factory=dict
    )
    gpu_hour_by_node_label: Annotated[dict[str, Price], setting("The same for a GPU.")] = msgspec.field(
        default_factory=dict
    )


class ReplicaSettings(Section, frozen=True):
    """Floors of replicas that follow the forecast."""

    percentile: Annotated[
        Literal[50, 60, 70, 80, 90, 95, 98], setting("Percentile of the demand that the floor holds.", unit="percent")
    ] = 90
    lead_seconds: Annotated[
        int, setting("How long before it is needed a floor stands: a pod's start.", unit="seconds", ge=0, le=21_600)
    ] = 900
    many_replicas: Annotated[
        int, setting("Replicas from which a workload without autoscaler gets a floor too.", ge=2, le=10_000)
    ] = 6
    target_percent: Annotated[
        int, setting("CPU utilisation that such a workload is to run at.", unit="percent of the request", ge=10, le=100)
    ] = 70
    kinds: Annotated[list[str], setting("Kinds whose replicas can be changed.")] = msgspec.field(
        default_factory=lambda: ["Deployment", "StatefulSet"]
    )


class RecommenderSettings(Section, frozen=True):
    """The strategies for recommendations, and how cautious they are."""

    strategy: Annotated[str, setting("Strategy that makes the proposals.", min_length=1)] = "cotenant"
    krr: Annotated[KrrSettings, setting("Strategies krr-simple and krr-simple-limit.")] = KrrSettings()
    vpa: Annotated[VpaSettings, setting("Strategy vpa.")] = VpaSettings()
    cotenant: Annotated[CotenantSettings, setting("Strategy cotenant.")] = CotenantSettings()
    reclaimable: Annotated[ReclaimableSettings, setting("Reclaimable capacity of nodes.")] = ReclaimableSettings()
    findings: Annotated[FindingSettings, setting("What counts as a finding.")] = FindingSettings()
    gpus: Annotated[GpuSettings, setting("Shares of GPUs.")] = GpuSettings()
    patches: Annotated[PatchSettings, setting("How patches are written.")] = PatchSettings()
    backtest: Annotated[BacktestSettings, setting("Back-test and confidence of proposals.")] = BacktestSettings()
    renew_hours: Annotated[
        float,
        setting(
            "How long a scan keeps a recommendation while nothing new is seen of its workload; 0 = "
            "every scan makes all anew.",
            unit="hours",
            ge=0,
            le=168,
        ),
    ] = 12.0
    replicas: Annotated[ReplicaSettings, setting("Floors of replicas.")] = ReplicaSettings()
    prices: Annotated[PriceSettings, setting("Price sheet.")] = PriceSettings()
