"""A UsageForecast and the SwapGuard (cotenant.dev/v1alpha1) as those read them who did not write them. Pure.

A forecast's curves have one value per step of `step_seconds` from `start` on: CPU in millicores, memory in bytes.
"""

from __future__ import annotations

import msgspec

from cotenant.base.kubernetes.models.metadata import ObjectMeta
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.resource import Resource


class CpuCurves(msgspec.Struct, rename={"median": "q50Millicores", "high": "q95Millicores"}):
    """Quantiles 0.5 and 0.95 of each step's mean, and the day's peak as a quantity."""

    median: list[int] = []
    high: list[int] = []
    peak: str | int = 0


class MemoryCurves(msgspec.Struct, rename={"median": "q50Bytes", "high": "q95Bytes"}):
    """Quantiles 0.5 and 0.95 of each step's mean, and the day's peak as a quantity."""

    median: list[int] = []
    high: list[int] = []
    peak: str | int = 0


class UsageForecastSpec(msgspec.Struct, rename="camel"):
    """The forecast, with its moments as the server writes them ("" for one that is missing)."""

    start: str = ""
    step_seconds: int = 1800
    valid_until: str = ""
    history_end: str = ""
    settings_digest: str = ""
    cpu: CpuCurves | None = None
    memory: MemoryCurves | None = None

    def series(self, resource: Resource) -> CpuCurves | MemoryCurves | None:
        """Return the curves of one resource; None where it is not forecast."""
        return self.cpu if resource is Resource.CPU else self.memory

    @property
    def start_seconds(self) -> float | None:
        """Return the Unix time of the first step's beginning; None without any. UsageError if it cannot be read."""
        return moment_of(self.start, "UsageForecast: start")

    @property
    def valid_until_seconds(self) -> float | None:
        """Return the Unix time from which it must not be used; None without any. UsageError if it cannot be read."""
        return moment_of(self.valid_until, "UsageForecast: validUntil")

    @property
    def history_end_seconds(self) -> float | None:
        """Return the Unix time at which its history ends; None without any. UsageError if it cannot be read."""
        return moment_of(self.history_end, "UsageForecast: historyEnd")


class UsageForecast(msgspec.Struct):
    """The forecast of one node's usage; the object has the node's name."""

    metadata: ObjectMeta = msgspec.field(default_factory=lambda: ObjectMeta(""))
    spec: UsageForecastSpec = msgspec.field(default_factory=UsageForecastSpec)


class _SwapGuardSpec(msgspec.Struct, rename="camel"):
    served_until: str = ""
    queues_served_until: str = ""
    nodes: dict[str, list[str]] | None = None


class SwapGuardWire(msgspec.Struct):
    """Until when Reservations and queues are served (moments, "" for none), and the pods that may be bound, by node."""

    spec: _SwapGuardSpec = msgspec.field(default_factory=_SwapGuardSpec)
