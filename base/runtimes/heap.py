"""The measured heap of a runtime, the heap size proposed for it, and how runtimes are found. Pure.

A runtime with a garbage collector uses as much memory as its heap may have, so its working set says little about its
need; a memory limit below the heap and its other memory kills it. So heap, request and limit are sized together, as one
change. A runtime is an entry point of group `cotenant.runtimes`: a class without arguments (`ManagedRuntime`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol

from cotenant.base.errors import CotenantError

GROUP: Final = "cotenant.runtimes"
BUILT_IN: Final[Mapping[str, str]] = {"jvm": "cotenant.base.runtimes.jvm:Jvm"}


class HeapFact(StrEnum):
    """A figure of `ManagedHeap`; the value is the name of its field."""

    MAXIMUM = "maximum_bytes"
    LIVE = "live_bytes"
    COMMITTED = "committed_bytes"
    OTHER = "other_bytes"
    COLLECTING = "collecting_fraction"


@dataclass(frozen=True, slots=True)
class ManagedHeap:
    """The measured heap of a container; each figure is the highest of its pods.

    `maximum_bytes` is the current largest heap size; `live_bytes`, what collections leave, is the highest hourly
    minimum of the used heap; `committed_bytes` is the most that the heap allocated from the system; `other_bytes` is
    the most that the runtime used outside of the heap; `collecting_fraction` is the share of time (0..1) in
    collections, as the 95th percentile over the hours.
    """

    runtime: str
    maximum_bytes: int
    live_bytes: int
    committed_bytes: int = 0
    other_bytes: int = 0
    collecting_fraction: float = 0.0

    def rest_bytes(self, highest_bytes: float) -> int:
        """Return the bytes outside of the heap: the larger of `other_bytes` and `highest_bytes` - `committed_bytes`."""
        return max(self.other_bytes, round(highest_bytes) - self.committed_bytes)


@dataclass(frozen=True, slots=True)
class HeapProposal:
    """A proposed largest heap size of a container, the current size, and the memory outside of the heap plus margin."""

    runtime: str
    now_bytes: int
    amount_bytes: int
    rest_bytes: int

    @property
    def change(self) -> int:
        """Proposed minus current size, in bytes."""
        return self.amount_bytes - self.now_bytes

    @property
    def fall_bytes(self) -> int:
        """The amount by which the heap shrinks, in bytes; 0 if it grows."""
        return max(0, -self.change)

    @property
    def floor_bytes(self) -> int:
        """The least memory limit for the proposed heap, in bytes."""
        return self.amount_bytes + self.rest_bytes


Select = Callable[..., str]
"""(metric names, label=value...) -> a series selector of the scanned cluster."""


class ManagedRuntime(Protocol):
    """The interface of a runtime: the metrics of its heap, and how its largest heap is configured."""

    name: str
    flag: str
    """Name of the setting for people, such as -Xmx."""

    metrics: tuple[str, ...]
    """Metrics of which the server has at least one if such a runtime is scraped."""

    def questions(self, select: Select, by: str, span: str) -> Mapping[HeapFact, str]:
        """Return the PromQL of each figure: one value per combination of the labels `by`, over `span` (a duration)."""

    def size_in(self, text: str) -> int | None:
        """Return the largest heap in bytes that a command line sets (the last flag counts), or None if it sets none."""

    def with_heap_bytes(self, text: str, amount_bytes: int) -> str | None:
        """Return the command line with another largest heap; None if its flags do not set one unambiguously."""


@cache
def runtimes() -> tuple[ManagedRuntime, ...]:
    """Return every installed runtime, sorted by name; a plug-in cannot take a built-in name."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {name: EntryPoint(name, address, GROUP) for name, address in BUILT_IN.items()}
    return tuple(_load_runtime(points[name]) for name in sorted(points))


def _load_runtime(point: EntryPoint) -> ManagedRuntime:
    try:
        runtime: ManagedRuntime = point.load()()
    except Exception as error:
        raise CotenantError(
            f"runtime {point.name} ({point.value}) does not load: {error}", fix="Update or remove this plug-in."
        ) from error
    return runtime


def runtime_named(name: str) -> ManagedRuntime | None:
    """Return the runtime of this name, or None if it is not installed any more."""
    return next((runtime for runtime in runtimes() if runtime.name == name), None)
