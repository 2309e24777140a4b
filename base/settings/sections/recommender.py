"""Settings of the recommender: one section per strategy, and the formulas of reclaimable capacity.

Defaults of `krr` and `vpa` are their peers' own, so that both reproduce their numbers. `cotenant`
speaks in profiles.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.colocation.colocation_strategy import ReclaimFields
from cotenant.base.settings.base import NotNegative, Section, constant, setting
from cotenant.base.settings.sections.peer_strategies import KrrSettings, VpaSettings

Percent = float
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
Margin = Annotated[float, msgspec.Meta(ge=0, le=10)]
MIB = 1024**2


class ProfileSettings(Section, frozen=True):
    """One profile of strategy `cotenant`: the quantile and the margins that a word such as "balanced" stands for."""

    cpu_fraction: Annotated[float, constant("Quantile of one pod's demand (usage + throttled).")] = 0.95
    cpu_margin_fraction: Annotated[float, constant("Added to the CPU demand.")] = 0.0
    memory_margin_fraction: Annotated[float, constant("Added to the highest memory ever seen.")] = 0.15
    cpu_root_margin_millicores: Annotated[
        float,
        constant(
            "Added to the CPU demand: the square root of demand x this. Much for a small container, little for a large "
            "one, as bursts are.",
            unit="millicores",
        ),
    ] = 2.0


class ProfilesSettings(Section, frozen=True):
    """The meaning of the three profiles; a workload chooses with the annotation `cotenant.dev/profile`."""

    conservative: Annotated[ProfileSettings, constant("For what must never wait.")] = ProfileSettings(
        0.98, 0.1, 0.3, 4.0
    )
    balanced: Annotated[ProfileSettings, constant("For the busy hours, not for the rare burst.")] = ProfileSettings()
    aggressive: Annotated[ProfileSettings, constant("For what may wait, and be started again.")] = ProfileSettings(
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

    throttled_share: Annotated[
        float, constant("Share of the CPU demand refused by the limit from which throttling is a risk.")
    ] = 0.03


class CotenantSettings(Section, frozen=True):
    """Strategy `cotenant`: CPU for the busy hours of one pod, memory above all that was seen.

    A workload's annotation goes before these settings, and a setting that is not null before the profile.
    """

    profile: Annotated[
        Literal["conservative", "balanced", "aggressive"],
        setting(
            "Profile of every workload that names none.", when="the cluster as a whole should save more, or risk less"
        ),
    ] = "balanced"
    profiles: Annotated[ProfilesSettings, constant("What the profiles mean.")] = ProfilesSettings()
    cpu_fraction: Annotated[
        Fraction | None,
        setting(
            "Quantile instead of the profile's; null = the profile's.",
            when="none of the profiles has the quantile you want",
        ),
    ] = None
    cpu_margin_fraction: Annotated[
        Margin | None,
        setting(
            "CPU margin instead of the profile's; null = the profile's.",
            when="none of the profiles has the margin you want",
        ),
    ] = None
    cpu_day_risk: Annotated[
        Fraction | None,
        setting(
            "Size CPU requests by days instead: at most this share of days, over all containers, may hold a moment "
            "above the request, by back-test; its margin rises at once and falls slowly. null = by the profile.",
            when="requests should follow a risk that you can state in days",
        ),
    ] = None
    memory_margin_fraction: Annotated[
        Margin | None,
        setting(
            "Memory margin instead of the profile's; null = the profile's.",
            when="none of the profiles has the margin you want",
        ),
    ] = None
    oom_bump_ratio: Annotated[float, constant("Memory after an OOM kill, times what was used.")] = 1.2
    oom_bump_bytes: Annotated[int, constant("Least that an OOM kill adds.", unit="bytes")] = 100 * MIB
    pod_floor_millicores: Annotated[
        int,
        constant("Lowest CPU request of a pod, split evenly over its containers.", unit="millicores"),
    ] = 10
    pod_floor_bytes: Annotated[
        int,
        constant("Lowest memory request of a pod, split evenly over its containers.", unit="bytes"),
    ] = 64 * MIB
    minimum_days: Annotated[float, constant("Days between first and last sample that a value needs.", unit="days")] = (
        1.0
    )
    minimum_coverage: Annotated[float, constant("Share of the pods' time with samples that a value needs.")] = 0.5
    dead_band_fraction: Annotated[float, constant("Relative change below which the present value is kept.")] = 0.1
    lower_limits: Annotated[
        bool,
        setting(
            "Lower limits too: they hold no capacity, so a lower one frees nothing and can throttle or kill.",
            when="quotas on limits are full",
        ),
    ] = False
    cpu_limit: Annotated[
        Literal["keep", "unset"],
        setting(
            "keep: a CPU limit that is set stays set; unset: remove it.", when="your policy is to have no CPU limits"
        ),
    ] = "keep"
    cpu_limit_margin_fraction: Annotated[
        float, constant("Added to the highest CPU demand that a CPU limit has to let through.")
    ] = 1.0
    keep_qos_class: Annotated[
        bool,
        setting(
            "Request = limit stays so (Guaranteed, unless the QoS label says best effort), and what is best effort by "
            "its label and asks for nothing gets no request.",
            when="Guaranteed pods may become Burstable",
        ),
    ] = True
    cpu_steps_millicores: Annotated[
        list[NotNegative],
        setting(
            "CPU amounts to round up to; empty = any.",
            when="requests come in sizes that your company prescribes",
            unit="millicores",
        ),
    ] = msgspec.field(default_factory=list)
    memory_steps_bytes: Annotated[
        list[NotNegative],
        setting(
            "Memory amounts to round up to; empty = any.",
            when="requests come in sizes that your company prescribes",
            unit="bytes",
        ),
    ] = msgspec.field(default_factory=list)
    heap_collecting_fraction: Annotated[
        float, constant("Share of an hour spent in collections from which a heap is too small.")
    ] = 0.05
    severity: Annotated[SeveritySettings, constant("How a change is graded.")] = SeveritySettings()


class ReclaimableSettings(ReclaimFields, Section, frozen=True):
    """Reclaimable capacity per node (fields and defaults of Koordinator's colocation-config)."""


class FindingSettings(Section, frozen=True):
    """The thresholds for a finding about a workload or node."""

    minimum_days: Annotated[
        float, constant("History that a statement about idleness, growth or skew needs.", unit="days")
    ] = 5.0
    minimum_coverage: Annotated[float, constant("Share of slots with a sample that it needs.")] = 0.5
    idle_pod_millicores: Annotated[
        int, constant("A workload is idle when no pod ever used more CPU in 5 minutes.", unit="millicores")
    ] = 5
    idle_gpu_percent: Annotated[
        float,
        constant(
            "GPUs are idle when they never computed for more of 5 minutes, all of a container's together.",
            unit="percent of one device",
        ),
    ] = 3.0
    system_namespaces: Annotated[
        list[str],
        setting(
            "Namespaces whose quiet workloads and missing limits are left alone.",
            when="other namespaces hold the cluster's own components",
        ),
    ] = msgspec.field(default_factory=lambda: ["kube-system"])


class GpuSettings(Section, frozen=True):
    """The share of a GPU that is proposed instead of a larger request."""

    core_margin_fraction: Annotated[float, constant("Added to it.")] = 0.15
    memory_margin_fraction: Annotated[
        float, constant("Added to the highest GPU memory ever seen: beyond it an allocation fails.")
    ] = 0.15
    step_percent: Annotated[
        Literal[1, 2, 5, 10, 20, 25, 50, 100], constant("Steps that shares are rounded up to.", unit="percent")
    ] = 10


class PatchSettings(Section, frozen=True):
    """The format of recommendations for tools that apply them."""

    helm_path: Annotated[
        str,
        setting(
            "Where a chart's values hold the resources of a workload's only container; dots part the keys, and "
            "{container}, {workload}, {kind}, {namespace} stand for names.",
            when="your chart keeps resources elsewhere in its values",
            min_length=1,
        ),
    ] = "resources"
    helm_path_of_several: Annotated[
        str,
        setting(
            "The same where a workload has several containers to change.",
            when="your chart keeps resources elsewhere in its values",
            min_length=1,
        ),
    ] = "{container}.resources"


class BacktestSettings(Section, frozen=True):
    """The history on which a proposal is back-tested before it is shown, and what it takes to trust a proposal."""

    days: Annotated[float, constant("Newest part of the history that a proposal is tried on.", unit="days")] = 7.0


Price = Annotated[float, msgspec.Meta(ge=0)]


class PriceSettings(Section, frozen=True):
    """The price sheet behind every sum of money; the defaults are OpenCost's for a cluster without a provider."""

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
            "Other core prices for nodes with a label, written label=value; the first that fits counts.",
            when="spot or reserved nodes cost something else",
        ),
    ] = msgspec.field(default_factory=dict)
    gib_hour_by_node_label: Annotated[
        dict[str, Price], setting("The same for a GiB of memory.", when="spot or reserved nodes cost something else")
    ] = msgspec.field(default_factory=dict)
    gpu_hour_by_node_label: Annotated[
        dict[str, Price], setting("The same for a GPU.", when="kinds of GPUs cost something else")
    ] = msgspec.field(default_factory=dict)


class ReplicaSettings(Section, frozen=True):
    """Floors of replicas that follow the forecast."""

    percentile: Annotated[
        Literal[50, 60, 70, 80, 90, 95, 98],
        constant("Percentile of the demand that the floor holds.", unit="percent"),
    ] = 90
    lead_seconds: Annotated[
        int,
        setting(
            "How long before it is needed a floor stands: a pod's start.",
            when="your pods take longer, or shorter, to start",
            unit="seconds",
            ge=0,
            le=21_600,
        ),
    ] = 900
    kinds: Annotated[list[str], constant("Kinds whose replicas can be changed.")] = msgspec.field(
        default_factory=lambda: ["Deployment", "StatefulSet"]
    )


class RecommenderSettings(Section, frozen=True):
    """The strategies for recommendations, and how cautious they are."""

    strategy: Annotated[
        str,
        setting(
            "Strategy that makes the proposals.",
            when="proposals should equal another recommender's, or a plug-in makes them",
            min_length=1,
        ),
    ] = "cotenant"
    krr: Annotated[KrrSettings, setting("Strategies krr-simple and krr-simple-limit.")] = KrrSettings()
    vpa: Annotated[VpaSettings, setting("Strategy vpa.")] = VpaSettings()
    cotenant: Annotated[CotenantSettings, setting("Strategy cotenant.")] = CotenantSettings()
    reclaimable: Annotated[ReclaimableSettings, setting("Reclaimable capacity of nodes.")] = ReclaimableSettings()
    findings: Annotated[FindingSettings, setting("What counts as a finding.")] = FindingSettings()
    gpus: Annotated[GpuSettings, constant("Shares of GPUs.")] = GpuSettings()
    patches: Annotated[PatchSettings, setting("How patches are written.")] = PatchSettings()
    backtest: Annotated[BacktestSettings, constant("Back-test and confidence of proposals.")] = BacktestSettings()
    renew_hours: Annotated[
        float,
        constant(
            "How long a scan keeps a recommendation while nothing new is seen of its workload; 0 = "
            "every scan makes all anew.",
            unit="hours",
        ),
    ] = 12.0
    replicas: Annotated[ReplicaSettings, setting("Floors of replicas.")] = ReplicaSettings()
    prices: Annotated[PriceSettings, setting("Price sheet.")] = PriceSettings()
