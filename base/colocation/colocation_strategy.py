"""The fields of Koordinator's colocation-config and those of cotenant, each declared once. Pure.

A declaration has the attribute's name, its type with bounds, its default, its meaning, its unit, and its key in the
ConfigMap. Derived from it are the settings that replace the ConfigMap (`ReclaimFields`), the values for a node
(`ColocationStrategy`), and the form by which the webhook and the reader check a ConfigMap (`CONFIG_FORM`). Bounds and
defaults are Koordinator's (sloconfig), plus upper bounds that it does not have: on the percentages of capacity, and on
windows and intervals, because the node agent keeps the samples of a day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, structs

from cotenant.base.colocation.nodemetric import LONGEST_SECONDS
from cotenant.base.colocation.reclaim_policies import CPU_POLICIES, POLICIES, CpuPolicy, MemoryPolicy, policy_words
from cotenant.base.resource import Resource

MOST_PERCENT: Final = 1000
"""Upper bound of percentages of a node's capacity: a larger value is a typing error."""
NotNegative: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
WithinADay: TypeAlias = Annotated[int, Meta(ge=1, le=LONGEST_SECONDS)]
Duration: TypeAlias = Annotated[str, Meta(pattern=r"^(?=.*[1-9])([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$")]


def field_metadata(key: str, doc: str, *, unit: str = "", constant: bool = False, **domain: Any) -> Meta:
    """Return the metadata of a field: its key in the ConfigMap, its meaning, and msgspec's bounds (ge, gt, le, lt).

    The page of settings advises to change the setting if the cluster's ConfigMap has another value; a field that is
    `constant` has no setting.
    """
    extra: dict[str, Any] = {"key": key, "when": f"the cluster's ConfigMap sets another {key}"}
    extra |= ({"unit": unit} if unit else {}) | ({"constant": True} if constant else {})
    return Meta(description=doc, extra=extra, extra_json_schema={"x-unit": unit} if unit else {}, **domain)


def percent(key: str, doc: str, most: int = 100, *, constant: bool = False) -> Meta:
    """Return the metadata of a percentage from 0 to `most`."""
    return field_metadata(key, doc, unit="percent", constant=constant, ge=0, le=most)


class ReclaimFields(msgspec.Struct, frozen=True):
    """The fields of colocation-config that determine reclaimed amounts; settings replace a ConfigMap that is not read.

    The `constant` fields have no setting: only the ConfigMap changes them, for all nodes or for some.
    """

    cpu_policy: Annotated[
        CpuPolicy, field_metadata("cpuCalculatePolicy", f"How capacity gives batch CPU ({policy_words(CPU_POLICIES)}).")
    ] = "usage"
    memory_policy: Annotated[
        MemoryPolicy,
        field_metadata("memoryCalculatePolicy", f"How capacity gives batch memory ({policy_words(POLICIES)})."),
    ] = "usage"
    cpu_reclaim_percent: Annotated[
        int,
        percent(
            "cpuReclaimThresholdPercent",
            "Share of CPU capacity that prod and batch may use together; the rest is the safety margin.",
            MOST_PERCENT,
        ),
    ] = 60
    memory_reclaim_percent: Annotated[
        int, percent("memoryReclaimThresholdPercent", "Share of memory that prod and batch may use.", MOST_PERCENT)
    ] = 65
    batch_cpu_percent: Annotated[
        NotNegative | None,
        field_metadata(
            "batchCPUThresholdPercent", "Largest share of CPU capacity for batch; null = no cap.", unit="percent"
        ),
    ] = None
    batch_memory_percent: Annotated[
        NotNegative | None,
        field_metadata("batchMemoryThresholdPercent", "Largest share of memory for batch.", unit="percent"),
    ] = None
    mid_cpu_percent: Annotated[
        int, percent("midCPUThresholdPercent", "Largest share of CPU capacity for mid pods.", constant=True)
    ] = 100
    mid_memory_percent: Annotated[
        int, percent("midMemoryThresholdPercent", "Largest share of memory for mid pods.", constant=True)
    ] = 100
    mid_unallocated_percent: Annotated[
        int, percent("midUnallocatedPercent", "Share of unrequested capacity that mid pods may use.", constant=True)
    ] = 0
    mid_mode: Annotated[
        Literal["dynamic", "static"],
        field_metadata(
            "midReclaimMode", "Mid capacity. dynamic: what prod's forecast leaves; static: fixed share.", constant=True
        ),
    ] = "dynamic"
    mid_static_cpu_percent: Annotated[
        int, percent("midStaticCPUReservedPercent", "Static mode: share of CPU for mid pods.", constant=True)
    ] = 0
    mid_static_memory_percent: Annotated[
        int, percent("midStaticMemoryReservedPercent", "Static mode: share of memory for mid pods.", constant=True)
    ] = 0
    degrade_minutes: Annotated[
        int,
        field_metadata(
            "degradeTimeMinutes",
            "Age of a node's metric above which nothing is reclaimed.",
            unit="minutes",
            constant=True,
            ge=1,
        ),
    ] = 15
    forecast_origins: Annotated[
        int,
        field_metadata(
            "forecastMinimumOrigins",
            "Policy forecast: number of back-tests that a node needs before its forecast alone sets amounts.",
            unit="days",
            constant=True,
            ge=1,
        ),
    ] = 5
    """Five back-tests are the least that say anything about a violation of one in ten."""
    forecast_violation_percent: Annotated[
        int,
        percent(
            "forecastToleratedViolationPercent",
            "Policy forecast: forecasts alone set amounts if usage exceeded them in at most this share of back-tests.",
            constant=True,
        ),
    ] = 10
    """One decision in ten is the limit of the forecast's own 90 percent quantile."""


class ColocationStrategy(ReclaimFields, frozen=True):
    """The colocation strategy of a node, and the rules for publishing its amounts."""

    enable: Annotated[bool, field_metadata("enable", "Whether the node lends capacity to batch and mid pods.")] = False
    update_threshold_seconds: Annotated[
        int,
        field_metadata(
            "updateTimeThresholdSeconds", "Age of an amount at which any change is published.", unit="seconds", ge=1
        ),
    ] = 300
    diff_threshold: Annotated[
        float, field_metadata("resourceDiffThreshold", "Relative change that is published at once.", gt=0, le=1)
    ] = 0.1
    max_rise_percent: Annotated[
        Positive | None,
        field_metadata(
            "maxRisePercent",
            "Largest rise of a lent amount per update_threshold_seconds, as a share of capacity; null = unlimited.",
            unit="percent",
        ),
    ] = None

    @classmethod
    def of_settings(cls, settings: ReclaimFields) -> ColocationStrategy:
        """Return the strategy that the settings define if there is no ConfigMap; colocation is enabled in it."""
        return cls(enable=True, **structs.asdict(settings))

    def policy(self, resource: Resource) -> str:
        """Return the name of the policy that computes the batch amount of a resource."""
        return self.cpu_policy if resource is Resource.CPU else self.memory_policy

    def reclaim_percent(self, resource: Resource) -> int:
        """Return the percentage of capacity that prod and batch pods may use together."""
        return self.cpu_reclaim_percent if resource is Resource.CPU else self.memory_reclaim_percent

    def batch_percent(self, resource: Resource) -> int | None:
        """Return the percentage of capacity that batch pods may use at most, or None for no cap."""
        return self.batch_cpu_percent if resource is Resource.CPU else self.batch_memory_percent

    def mid_percent(self, resource: Resource) -> int:
        """Return the percentage of capacity that mid pods may use at most."""
        return self.mid_cpu_percent if resource is Resource.CPU else self.mid_memory_percent

    def mid_static_percent(self, resource: Resource) -> int:
        """Return the percentage of capacity that mid pods may use if `mid_mode` is "static"."""
        return self.mid_static_cpu_percent if resource is Resource.CPU else self.mid_static_memory_percent


class AggregatePolicy(msgspec.Struct, frozen=True):
    """The time windows over which the node agent aggregates usage."""

    durations: tuple[Duration, ...] = ()


class CollectFields(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of usage collection for all nodes of the cluster; `CollectPolicy` has the defaults."""

    metric_aggregate_duration_seconds: WithinADay | None = None
    metric_report_interval_seconds: WithinADay | None = None
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy()
    metric_memory_collect_policy: (
        Literal["usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"] | None
    ) = None
    extensions: dict[str, Any] | None = None


def _config_fields() -> Iterator[tuple[str, Any, Any]]:
    """Yield the strategy's fields as they are in the ConfigMap; an empty midReclaimMode means the default."""
    for field in structs.fields(ColocationStrategy):
        kind = Literal["dynamic", "static", ""] if field.name == "mid_mode" else field.type
        yield field.name, kind, msgspec.field(default=field.default, name=KEY_OF[field.name])


KEY_OF: Final[Mapping[str, str]] = {
    field.encode_name: next(meta.extra["key"] for meta in field.type.__metadata__)
    for field in structs.fields(ColocationStrategy)
}
"""Attribute of ColocationStrategy -> key of colocation-config."""
CONFIG_FORM: Final = msgspec.defstruct("ColocationConfigForm", _config_fields(), bases=(CollectFields,), frozen=True)
"""All keys of colocation-config that are read, with their types and bounds; its attributes are the strategy's."""
