"""The structs by which other processes read UsageForecasts and the SwapGuard (cotenant.dev/v1alpha1). Pure.

A forecast's curves have one value per step of `step_seconds`, beginning at `start`: CPU in millicores, memory in bytes.
"""

from __future__ import annotations

import msgspec

from cotenant.base.kubernetes.models.metadata import ObjectMeta
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.resource import Resource


class CpuCurves(msgspec.Struct, rename={"median": "q50Millicores", "high": "q95Millicores"}):
    """Forecast of CPU in millicores: quantiles 0.5 and 0.95 of each step's mean, and the day's peak as a quantity."""

    median: list[int] = []
    high: list[int] = []
    peak: str | int = 0


class MemoryCurves(msgspec.Struct, rename={"median": "q50Bytes", "high": "q95Bytes"}):
    """Forecast of memory in bytes: quantiles 0.5 and 0.95 of each step's mean, and the day's peak as a quantity."""

    median: list[int] = []
    high: list[int] = []
    peak: str | int = 0


class UsageForecastSpec(msgspec.Struct, rename="camel"):
    """The spec of a UsageForecast; its times are RFC 3339 text, "" if missing."""

    start: str = ""
    step_seconds: int = 1800
    valid_until: str = ""
    history_end: str = ""
    settings_digest: str = ""
    cpu: CpuCurves | None = None
    memory: MemoryCurves | None = None

    def series(self, resource: Resource) -> CpuCurves | MemoryCurves | None:
        """Return the curves of one resource, or None if the resource has no forecast."""
        return self.cpu if resource is Resource.CPU else self.memory

    @property
    def start_seconds(self) -> float | None:
        """Unix time at which the first step begins, None if missing; raises UsageError if the text is not a time."""
        return moment_of(self.start, "UsageForecast: start")

    @property
    def valid_until_seconds(self) -> float | None:
        """Unix time at which the forecast expires, None if missing; raises UsageError if the text is not a time."""
        return moment_of(self.valid_until, "UsageForecast: validUntil")

    @property
    def history_end_seconds(self) -> float | None:
        """Unix time of the end of the history used, None if missing; raises UsageError if the text is not a time."""
        return moment_of(self.history_end, "UsageForecast: historyEnd")


class UsageForecast(msgspec.Struct):
    """The forecast of one node's usage; the object is named after the node."""

    metadata: ObjectMeta = msgspec.field(default_factory=lambda: ObjectMeta(""))
    spec: UsageForecastSpec = msgspec.field(default_factory=UsageForecastSpec)


class _SwapGuardSpec(msgspec.Struct, rename="camel"):
    served_until: str = ""
    queues_served_until: str = ""
    nodes: dict[str, list[str]] | None = None


class SwapGuardWire(msgspec.Struct):
    """The SwapGuard object: pods for which each node keeps capacity, and until when the manager removes gates."""

    spec: _SwapGuardSpec = msgspec.field(default_factory=_SwapGuardSpec)
