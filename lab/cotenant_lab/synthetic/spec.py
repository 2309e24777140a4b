"""Input and output of the synthetic cluster: data types, no algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage

DEFAULT_END_SECONDS: Final = 1_795_089_600
"""2026-11-19 12:00 UTC, a Thursday: the evening peak lies ahead."""


class Shape(StrEnum):
    """The course of a workload's load, in the generator's terms; a portrait has to recognise it."""

    IDLE = "idle"
    FLAT = "flat"
    DAILY = "daily"
    WEEKLY = "weekly"
    BURSTY = "bursty"
    TREND = "trend"
    SCHEDULED = "scheduled"


class MemoryShape(StrEnum):
    """The course of a workload's working set."""

    STEADY = "steady"
    FOLLOWS_LOAD = "follows-load"
    LEAK = "leak"
    SAWTOOTH = "sawtooth"
    """Grows to the limit, is killed, starts again."""


@dataclass(frozen=True, slots=True)
class SyntheticSpec:
    """A cluster to generate; the ratios are shares of the nodes' allocatable: requests at the end, mean usage."""

    nodes: int = 60
    workloads: int = 900
    days: int = 28
    seed: int = 7
    end_seconds: int = DEFAULT_END_SECONDS
    cpu_requested: float = 0.81
    cpu_used: float = 0.23
    memory_requested: float = 0.75
    memory_used: float = 0.50
    rush: bool = False
    """A demo's story: feed/rank is scaled by an autoscaler and outgrows its usual replicas every evening, pay/vault is
    Guaranteed, and some workloads have GPUs (`gpus`)."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.workloads < 1 or self.days < 1:
            raise ValueError(f"a cluster needs nodes, workloads and days of at least 1, not {self}")

    @property
    def grid(self) -> TimeGrid:
        """The 5-minute grid; it ends at the whole hour at or before `end_seconds`."""
        end = self.end_seconds // HOUR_SECONDS * HOUR_SECONDS
        return TimeGrid.from_span(end - self.days * DAY_SECONDS, end, FIVE_MINUTES_SECONDS)

    @property
    def hours(self) -> TimeGrid:
        """The hourly grid over the same span."""
        grid = self.grid
        return TimeGrid.from_span(grid.start_seconds, grid.end_seconds, HOUR_SECONDS)


@dataclass(frozen=True, slots=True)
class Truth:
    """The generator's own knowledge, which tests compare with results.

    Deploys and kills are the inventory's events.
    """

    shape: Mapping[WorkloadRef, Shape]
    memory: Mapping[WorkloadRef, MemoryShape]
    holidays: tuple[int, ...]
    """Start of each holiday (UTC day) in Unix seconds."""
    outages: tuple[tuple[int, int], ...]
    """Stretches without any scrape in the whole cluster, [start, end) in Unix seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticCluster:
    """A whole cluster: its inventory, and its usage by signal with rows sorted by reference."""

    spec: SyntheticSpec
    inventory: Inventory
    usage: Mapping[Signal, Usage[Any]]
    truth: Truth
