"""Fields of Koordinator's colocation-config, and ours: JSON key, attribute and what a value may be. Pure.

A value outside its range is refused with key, value and range; a key that nobody knows is left alone, because newer
versions of the protocol may know it. null means "not set".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.core.model.errors import SettingsError
from cotenant.core.model.text import shown

LARGEST: Final = 2**53
_DURATION: Final = re.compile(r"(?=.)(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")


@dataclass(frozen=True, slots=True)
class Domain:
    """The allowed values of a field as text, and its decoder; `read` returns None for a value outside the domain."""

    words: str
    read: Callable[[Any], Any]


def whole(low: int, high: int = LARGEST) -> Domain:
    """A whole number from low to high."""
    description = f"a whole number >= {low}" if high == LARGEST else f"a whole number from {low} to {high}"
    return Domain(description, lambda v: v if type(v) is int and low <= v <= high else None)


def one_of(*values: str) -> Domain:
    """One of a set of strings."""
    return Domain(f"one of {', '.join(values)}", lambda v: v if isinstance(v, str) and v in values else None)


def _fraction(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 < value <= 1 else None


def _mode(value: Any) -> str | None:
    return {"": "dynamic", "dynamic": "dynamic", "static": "static"}.get(value) if isinstance(value, str) else None


def _durations(value: Any) -> tuple[int, ...] | None:
    """Seconds of {"durations": ["5m", "1h30m"]}."""
    texts = value.get("durations") if isinstance(value, Mapping) else None
    if not isinstance(texts, list):
        return None
    matches = [_DURATION.fullmatch(t) if isinstance(t, str) else None for t in texts]
    seconds = tuple(int(m[1] or 0) * 3600 + int(m[2] or 0) * 60 + int(m[3] or 0) for m in matches if m is not None)
    return seconds if len(seconds) == len(texts) and all(seconds) else None


FLAG: Final = Domain("true or false", lambda v: v if isinstance(v, bool) else None)
MOST_PERCENT: Final = 1000
"""Koordinator takes any number; ten times a node's capacity is a slip of the hand."""
PERCENT: Final = Domain(
    f"a whole number from 0 to {MOST_PERCENT} (percent of the node's capacity)", whole(0, MOST_PERCENT).read
)
SHARE: Final = whole(0, 100)

FIELDS: Final[Mapping[str, tuple[str, Domain]]] = {
    "enable": ("enable", FLAG),
    "metricAggregateDurationSeconds": ("metric_aggregate_seconds", whole(1)),
    "metricReportIntervalSeconds": ("metric_report_seconds", whole(1)),
    "metricAggregatePolicy": (
        "metric_durations_seconds",
        Domain('an object such as {"durations": ["5m", "10m", "30m"]}', _durations),
    ),
    "metricMemoryCollectPolicy": (
        "metric_memory_policy",
        one_of("usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"),
    ),
    "cpuReclaimThresholdPercent": ("cpu_reclaim_percent", PERCENT),
    "cpuCalculatePolicy": ("cpu_policy", one_of("usage", "maxUsageRequest", "forecast")),
    "memoryReclaimThresholdPercent": ("memory_reclaim_percent", PERCENT),
    "memoryCalculatePolicy": ("memory_policy", one_of("usage", "request", "maxUsageRequest", "forecast")),
    "degradeTimeMinutes": ("degrade_minutes", whole(1)),
    "updateTimeThresholdSeconds": ("update_threshold_seconds", whole(1)),
    "resourceDiffThreshold": ("diff_threshold", Domain("a number > 0 and <= 1", _fraction)),
    "midReclaimMode": ("mid_mode", Domain("one of static, dynamic", _mode)),
    "midCPUThresholdPercent": ("mid_cpu_percent", SHARE),
    "midMemoryThresholdPercent": ("mid_memory_percent", SHARE),
    "midUnallocatedPercent": ("mid_unallocated_percent", SHARE),
    "midStaticCPUReservedPercent": ("mid_static_cpu_percent", SHARE),
    "midStaticMemoryReservedPercent": ("mid_static_memory_percent", SHARE),
    "batchCPUThresholdPercent": ("batch_cpu_percent", PERCENT),
    "batchMemoryThresholdPercent": ("batch_memory_percent", PERCENT),
    # our own
    "forecastMinimumOrigins": ("forecast_origins", whole(1)),
    "forecastToleratedViolationPercent": ("forecast_violation_percent", SHARE),
    "maxRisePercent": ("max_rise_percent", whole(1)),
}
"""JSON key -> (attribute of ColocationStrategy, domain)."""

KEY_OF: Final[Mapping[str, str]] = {attribute: key for key, (attribute, _) in FIELDS.items()}


def read_fields(config: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Attribute -> value of the known keys that are set; SettingsError names key, value and range."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if value is None or key not in FIELDS:
            continue
        attribute, domain = FIELDS[key]
        values[attribute] = read = domain.read(value)
        if read is None:
            raise refusal(what, key, value, domain.words)
    return values


def refusal(what: str, key: str, value: Any, requirement: str) -> SettingsError:
    """The error for one value."""
    return SettingsError(f"{what}: {key} is {shown(value)}, it must be {requirement}", fix=f"Correct {key} in {what}.")


def read_object(text: str, what: str) -> dict[str, Any]:
    """Decode a JSON object; SettingsError gives the position of the syntax error."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{what} is not JSON: {str(error)[:120]}", fix=f"Correct the JSON text of {what}."
        ) from error
    if not isinstance(document, dict):
        raise SettingsError(f"{what} is JSON, but no object", fix='Write {"enable": true, ...}.')
    return document


def percent_of_ratio(text: str) -> int | None:
    """Percent of a node label such as "0.65": int(value * 100), cut as upstream; None for no ratio from 0 to 10."""
    try:
        scaled = float(text) * 100 if "_" not in text else math.nan
    except ValueError:
        return None
    return int(scaled) if math.isfinite(scaled) and 0 <= scaled <= MOST_PERCENT else None
