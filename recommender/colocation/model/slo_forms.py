"""The schema of each key of slo-controller-config: its fields and ranges, its built-in values, its rules. Pure.

There are two forms: members `clusterStrategy` and `nodeStrategies`, or the cluster's values themselves beside a member
`nodeConfigs`. Source: Koordinator's sloconfig.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from cotenant.base.colocation.colocation_strategy import CONFIG_FORM
from cotenant.base.colocation.nodemetric import LONGEST_SECONDS, go_duration, seconds_of
from cotenant.base.json_documents.struct_validation import Deviation, below, field_names
from cotenant.enforcer.model import node_policy as defaults
from cotenant.enforcer.model.node_policy import ClassPolicies, CpuBurst, HostApplication, System, Thresholds


class SloKey(StrEnum):
    """The keys of the ConfigMap slo-controller-config."""

    COLOCATION = "colocation-config"
    THRESHOLDS = "resource-threshold-config"
    CLASSES = "resource-qos-config"
    CPU_BURST = "cpu-burst-config"
    SYSTEM = "system-config"
    HOST_APPLICATIONS = "host-application-config"
    CPU_NORMALIZATION = "cpu-normalization-config"
    AMPLIFICATION = "resource-amplification-config"


Rule: TypeAlias = Callable[[Mapping[str, Any], str], Iterator[Deviation]]
WHOLE_PERCENT: Final = 100
SATISFACTION: Final = ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent")
NETWORK_CLASSES: Final = ("lsrClass", "lsClass", "beClass")
Ratio: TypeAlias = Annotated[float, Meta(ge=1)]


class ModelRatios(msgspec.Struct, frozen=True, rename="camel"):
    """The speed ratios of a CPU model to the base model, by the CPU features that are enabled."""

    base_ratio: Ratio | None = None
    hyper_thread_enabled_ratio: Ratio | None = None
    turbo_enabled_ratio: Ratio | None = None
    hyper_thread_turbo_enabled_ratio: Ratio | None = None


class CpuNormalization(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of the ConfigMap key cpu-normalization-config: factors by which faster CPU models count for more CPU."""

    enable: bool = False
    default_ratio: Ratio | None = None
    ratio_model: dict[str, ModelRatios] | None = None


class Amplification(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of resource-amplification-config: the factor by which a node's allocatable is enlarged, by resource."""

    enable: bool = False
    resource_amplification_ratio: dict[str, Ratio] | None = None


class HostApplications(msgspec.Struct, frozen=True):
    """Fields of the ConfigMap key host-application-config: the processes of nodes that run outside of pods."""

    applications: tuple[HostApplication, ...] = ()


@dataclass(frozen=True, slots=True)
class SloKeyForm:
    """The schema of one key of slo-controller-config.

    `cluster` is the member that contains the cluster's values, empty if they are members of the document itself; `part`
    is the field of NodeSLO's spec that the key sets, empty if it sets none.
    """

    title: str
    kind: Any
    cluster: str = "clusterStrategy"
    entries: str = "nodeStrategies"
    built_in: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    part: str = ""


def ascending_rule(*names: str) -> Rule:
    """Return a rule which requires that the named values, as far as they are set, are strictly ascending."""

    def check(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
        for low, high in pairwise(n for n in names if n in values):
            if values[low] >= values[high]:
                yield Deviation(f"{path}.{low}", values[low], f"is not below {high}, which is {values[high]} here")

    return check


def needing_rule(*names: str) -> Rule:
    """Return a rule that warns if the first named value is set without the second, since it then has no effect."""
    name, needed = names

    def check(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
        if values.get(name) is not None and values.get(needed) is None:
            fix = f"Set {path}.{needed} too, or remove {name}."
            yield Deviation(f"{path}.{name}", values[name], f"has no effect without {needed}", fatal=False, fix=fix)

    return check


def _network_shares(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Yield faults of the classes' network shares: a sum above 100 percent, or a request above the class's limit."""
    classes = {name: (values.get(name) or {}).get("networkQOS") or {} for name in NETWORK_CLASSES}
    switched_on = {name: qos for name, qos in classes.items() if qos.get("enable") is True}
    for way in ("ingress", "egress"):
        shares = {name: qos.get(f"{way}Request") for name, qos in switched_on.items()}
        total = sum(share for share in shares.values() if isinstance(share, int))
        if total > WHOLE_PERCENT:
            name = next(name for name, share in shares.items() if share)
            problem = f"plus the other classes' requests is {total} percent of the node's bandwidth"
            fix = f"Lower {way}Request of {', '.join(switched_on)} to at most {WHOLE_PERCENT} together."
            here = f"{path}.{name}.networkQOS.{way}Request"
            yield Deviation(here, shares[name], problem, fatal=False, fix=fix)
        for name, qos in switched_on.items():
            promise, limit = qos.get(f"{way}Request"), qos.get(f"{way}Limit")
            if isinstance(promise, int) and isinstance(limit, int) and promise > limit > 0:
                here = f"{path}.{name}.networkQOS.{way}Request"
                yield Deviation(here, promise, f"is above {way}Limit, which is {limit} here", fatal=False)


def _caches(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Yield classes whose cache range is empty; members that are no class are not checked."""
    rule = ascending_rule("catRangeStartPercent", "catRangeEndPercent")
    for name in sorted(field_names(ClassPolicies)):
        group = values.get(name) or {}
        if "resctrlQOS" in group:
            yield from rule(group["resctrlQOS"], f"{path}.{name}.resctrlQOS")


def _applications(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Yield host applications whose name is not unique, or whose path leaves its base."""
    names: set[str] = set()
    for index, app in enumerate(values.get("applications", [])):
        here, name = f"{path}.applications[{index}]", app.get("name", "")
        if not name or name in names:
            yield Deviation(f"{here}.name", name, "is the name of another application too" if name else "is empty")
        names.add(name)
        for key, value in app.get("cgroupPath", {}).items():
            if isinstance(value, str) and ".." in value.split("/"):
                yield Deviation(f"{here}.cgroupPath.{key}", value, "points outside of the cgroups' base directory")


def _check_overcommit(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Yield percentages that lend more than the whole node: allowed, but seldom intended."""
    for name in ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent"):
        percent = values.get(name)
        if isinstance(percent, int) and percent > WHOLE_PERCENT:
            problem = f"percent of a node's capacity is more than the whole node ({WHOLE_PERCENT} percent)"
            fix = f"Set {path}.{name} to at most {WHOLE_PERCENT}, unless nodes are to be overcommitted."
            yield Deviation(f"{path}.{name}", percent, problem, fatal=False, fix=fix)


def _long_windows(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Yield windows longer than reporters keep samples; all readers reject them, because nobody can fill them."""
    for index, window in enumerate(values.get("metricAggregatePolicy", {}).get("durations", ())):
        if not seconds_of(window):
            here = f"{path}.metricAggregatePolicy.durations[{index}]"
            yield Deviation(here, window, f"is longer than {go_duration(LONGEST_SECONDS)}, for which samples are kept")


def _without_effect(values: Mapping[str, Any], path: str) -> Iterator[Deviation]:
    """Warn about Koordinator's keys that cotenant checks but does not act on, if one is enabled."""
    if values.get("enable") is True:
        fix = f"Leave {path} to Koordinator's manager, which writes the ratios into nodes' annotations."
        yield Deviation(below(path, "enable"), True, "has no effect on cotenant's manager", fatal=False, fix=fix)


FORMS: Final[Mapping[SloKey, SloKeyForm]] = {
    SloKey.COLOCATION: SloKeyForm(
        "colocation", CONFIG_FORM, "", "nodeConfigs", rules=(_check_overcommit, _long_windows)
    ),
    SloKey.THRESHOLDS: SloKeyForm(
        "suppression and eviction",
        Thresholds,
        built_in=defaults.THRESHOLDS,
        rules=(
            ascending_rule("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
            ascending_rule("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
            ascending_rule(*SATISFACTION),
            needing_rule(*SATISFACTION),
            needing_rule(*reversed(SATISFACTION)),
            ascending_rule("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
            ascending_rule("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
            *(
                needing_rule(f"{name}EvictLowerPercent", f"{name}EvictThresholdPercent")
                for name in ("cpu", "cpuAllocatable", "memoryAllocatable")
            ),
        ),
        part="resourceUsedThresholdWithBE",
    ),
    SloKey.CLASSES: SloKeyForm(
        "QoS classes",
        ClassPolicies,
        built_in=defaults.CLASSES,
        rules=(_caches, _network_shares),
        part="resourceQOSStrategy",
    ),
    SloKey.CPU_BURST: SloKeyForm("CPU burst", CpuBurst, built_in=defaults.CPU_BURST, part="cpuBurstStrategy"),
    SloKey.SYSTEM: SloKeyForm("system settings", System, built_in=defaults.SYSTEM, part="systemStrategy"),
    SloKey.HOST_APPLICATIONS: SloKeyForm(
        "host applications", HostApplications, "", "nodeConfigs", rules=(_applications,), part="hostApplications"
    ),
    SloKey.CPU_NORMALIZATION: SloKeyForm(
        "CPU normalization", CpuNormalization, "", "nodeConfigs", rules=(_without_effect,)
    ),
    SloKey.AMPLIFICATION: SloKeyForm(
        "resource amplification", Amplification, "", "nodeConfigs", rules=(_without_effect,)
    ),
}
