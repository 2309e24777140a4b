"""How a node's usage is collected and reported: the spec of a NodeMetric, for every reporter. Pure.

The node agent measures by it, the manager writes it and measures by it from Prometheus where there is no agent.
Source: Koordinator's NodeMetric v1alpha1 and its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.kubernetes.moments import duration_seconds

LEAST_AGGREGATE_SECONDS: Final = 60
LEAST_REPORT_SECONDS: Final = 30
LONGEST_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class CollectPolicy:
    """The policy of usage collection, which is the spec of a NodeMetric; defaults are Koordinator's."""

    aggregate_seconds: int = 300
    report_seconds: int = 60
    durations_seconds: tuple[int, ...] = (300, 600, 1800)
    memory_policy: str = "usageWithoutPageCache"
    """Published and not applied: the working set is measured."""

    @property
    def longest_seconds(self) -> int:
        """The age up to which samples are needed, in seconds."""
        return max(self.aggregate_seconds, *self.durations_seconds, 0)


def from_spec(collect: Mapping[str, Any]) -> CollectPolicy:
    """Parse spec.metricCollectPolicy of a NodeMetric.

    Missing and invalid fields get the default; the minimums of Koordinator's agent apply.
    """
    usual = CollectPolicy()
    aggregate = collect.get("nodeAggregatePolicy")
    raw_durations = aggregate.get("durations") if isinstance(aggregate, Mapping) else None
    durations = tuple(d for d in map(seconds_of, raw_durations if isinstance(raw_durations, list) else ()) if d)
    return CollectPolicy(
        max(LEAST_AGGREGATE_SECONDS, _valid_seconds(collect, "aggregateDurationSeconds", usual.aggregate_seconds)),
        max(LEAST_REPORT_SECONDS, _valid_seconds(collect, "reportIntervalSeconds", usual.report_seconds)),
        durations or usual.durations_seconds,
    )


def go_duration(seconds: int) -> str:
    """Whole seconds as Go writes a duration: 300 -> "5m0s"."""
    hours, rest = divmod(seconds, 3600)
    minutes, remainder = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{remainder}s"
    return f"{minutes}m{remainder}s" if minutes else f"{remainder}s"


def seconds_of(text: Any) -> int:
    """Seconds of a Go duration of whole hours, minutes and seconds; 0 for anything else, and beyond a day."""
    seconds = duration_seconds(text) or 0.0
    return int(seconds) if seconds.is_integer() and seconds <= LONGEST_SECONDS else 0


def _valid_seconds(collect: Mapping[str, Any], name: str, usual: int) -> int:
    value = collect.get(name)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LONGEST_SECONDS
    return value if isinstance(value, int) and fits else usual
