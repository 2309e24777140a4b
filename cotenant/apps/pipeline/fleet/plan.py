"""The plan of a run: shards of neighbouring series, and a digest of the inputs of their results.

Shards cover all keys without gaps, so that a series that appears in a later hour has its place. Every worker of an
Indexed Job makes the same plan from the same store by itself. A block of a shard that exists under the plan's digest is
finished work; any change of input, settings or version gives another digest and so another folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant import __version__
from cotenant.apps.pipeline.nodes import POD_SIGNAL
from cotenant.core.adapters.store import Store
from cotenant.core.adapters.store.days import Between, Key
from cotenant.core.model.errors import NoData, UsageError
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.core.settings.base import digest
from cotenant.core.settings.root import Settings

SERIES_PER_SHARD: Final = 1000
"""16 MB of one signal's 14 days; one of the engine's own shards, one row group of a day."""
TURNS: Final = 24
"""Hours after which every shard has been forecast anew."""
LAYOUT: Final = 1
"""Grows when blocks of an older layout must not be taken for finished work."""
FOLDER: Final = "fleet"


@dataclass(frozen=True, slots=True)
class FleetShard:
    """A range of keys of one resource; `count` series were in it when the plan was made."""

    resource: Resource
    index: int
    between: Between
    count: int

    @property
    def name(self) -> str:
        """Name of its blocks."""
        return f"{self.resource.value}-{self.index:05d}"

    def turn(self, end_seconds: int) -> bool:
        """Whether it is this shard's hour of the day to be forecast anew."""
        return self.index % TURNS == end_seconds // HOUR_SECONDS % TURNS

    @property
    def signal(self) -> Signal:
        """What is read for it."""
        return POD_SIGNAL[self.resource]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Shards of the window; `digest` names what results rest on."""

    window: TimeGrid
    digest: str
    shards: tuple[FleetShard, ...]

    @property
    def folder(self) -> str:
        """Where its blocks lie, below the store's results."""
        return f"{FOLDER}/{self.digest}"

    @property
    def series(self) -> int:
        """Series of all resources."""
        return sum(shard.count for shard in self.shards)


@dataclass(frozen=True, slots=True)
class Share:
    """Part `index` of `of`, counted from 0, as a pod of an Indexed Job is given."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """`"3/8"` -> the fourth of eight; UsageError for anything else."""
        first, slash, second = text.partition("/")
        if not (slash and first.isascii() and first.isdigit() and second.isascii() and second.isdigit()):
            raise UsageError(f"--shard {text!r} is not i/n", fix="Count from 0: 0/8 to 7/8.")
        if not int(first) < int(second):
            raise UsageError(f"--shard {text!r}: there is no part {first} of {second}", fix="Count from 0: 0/8 to 7/8.")
        return cls(int(first), int(second))

    def of_shards(self, shards: Sequence[FleetShard]) -> tuple[FleetShard, ...]:
        """Every n-th shard, so that each part gets a like mix."""
        return tuple(shards[self.index :: self.of])


def window(store: Store, settings: Settings) -> TimeGrid:
    """The last days of stored usage up to its last whole hour; NoData when there is not an hour."""
    span = store.span(Signal.CPU_USAGE_MEAN)
    end = span[1] // HOUR_SECONDS * HOUR_SECONDS if span else 0
    # One more day than the forecast looks at: its last half hours may begin a day earlier.
    days = settings.forecasting.history_days + 1
    start = max(span[0], end - days * DAY_SECONDS) if span else 0
    if span is None or start >= end:
        raise NoData(
            f"no whole hour of usage of cluster {store.cluster} is stored at {store.url}",
            fix="Run cotenant scan --prometheus URL first.",
        )
    return TimeGrid.between(-(-start // HOUR_SECONDS) * HOUR_SECONDS, end, FIVE_MINUTES_SECONDS)


def make(store: Store, settings: Settings, resources: Sequence[Resource], size: int = SERIES_PER_SHARD) -> FleetPlan:
    """The plan for what the store holds now; NoData when no container is in the window."""
    if size < 1:
        raise UsageError(f"a shard of {size} series cannot be", fix="Give at least 1.")
    grid = window(store, settings)
    shards: list[FleetShard] = []
    rests_on = [
        f"layout {LAYOUT} of cotenant {__version__}",
        digest(settings.portrait),
        digest(settings.forecasting),
        f"{grid} by {size}",
    ]
    for resource in resources:
        keys, marks = store.contents(POD_SIGNAL[resource], grid)
        shards += _shards(resource, keys, size)
        rests_on += marks
    if not shards:
        raise NoData(f"no container of cluster {store.cluster} left usage in the window")
    return FleetPlan(grid, hashlib.sha256("\n".join(rests_on).encode()).hexdigest()[:16], tuple(shards))


def _shards(resource: Resource, keys: Sequence[Key], size: int) -> list[FleetShard]:
    starts = range(0, len(keys), size)
    bounds: list[Key | None] = [None, *(keys[i] for i in starts[1:]), None]
    return [
        FleetShard(resource, number, (bounds[number], bounds[number + 1]), len(keys[i : i + size]))
        for number, i in enumerate(starts)
    ]
