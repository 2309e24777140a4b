"""What is known of a runtime's heap, what is proposed for it, and how runtimes are found. Pure.

A runtime with a garbage collector takes what its heap may have, so that its working set says little about what it
needs; and a memory limit below heap + rest kills it. So heap, request and limit are sized together, and are one change.
A runtime is an entry point of group `cotenant.runtimes`: a class without arguments (`ManagedRuntime`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol

from cotenant.base.errors import CotenantError

GROUP: Final = "cotenant.runtimes"
BUILT_IN: Final[Mapping[str, str]] = {"jvm": "cotenant.base.runtimes.jvm:Jvm"}


class HeapFact(StrEnum):
    """One figure of `ManagedHeap`, under its name there."""

    MAXIMUM = "maximum_bytes"
    LIVE = "live_bytes"
    COMMITTED = "committed_bytes"
    OTHER = "other_bytes"
    COLLECTING = "collecting_fraction"


@dataclass(frozen=True, slots=True)
class ManagedHeap:
    """A container's heap, the highest of its pods in each figure.

    maximum: how far it may grow now; live: what collections leave, by the highest of the hourly minima; committed: the
    most that it took from the system; other: the most that the runtime used beside it. collecting: share of the time
    in collections, in all but the worst twentieth of the hours.
    """

    runtime: str
    maximum_bytes: int
    live_bytes: int
    committed_bytes: int = 0
    other_bytes: int = 0
    collecting_fraction: float = 0.0

    def rest_bytes(self, highest_bytes: float) -> int:
        """Memory beside the heap, by what was seen: of the runtime itself, or of the highest working set's excess."""
        return max(self.other_bytes, round(highest_bytes) - self.committed_bytes)


@dataclass(frozen=True, slots=True)
class HeapProposal:
    """The largest heap of a container now and as proposed; rest: what it needs beside it, with its margin."""

    runtime: str
    now_bytes: int
    amount_bytes: int
    rest_bytes: int

    @property
    def change(self) -> int:
        """Proposed minus present size, bytes."""
        return self.amount_bytes - self.now_bytes

    @property
    def fall_bytes(self) -> int:
        """The amount by which the heap falls, bytes; 0 if it rises."""
        return max(0, -self.change)

    @property
    def floor_bytes(self) -> int:
        """The least memory limit that holds it."""
        return self.amount_bytes + self.rest_bytes


Select = Callable[..., str]
"""(metric names, label=value...) -> a series selector of the scanned cluster."""


class ManagedRuntime(Protocol):
    """A runtime: which metrics tell of its heap, and how its largest heap is set."""

    name: str
    flag: str
    """How a person names the setting, such as -Xmx."""

    metrics: tuple[str, ...]
    """Metrics of which the server has one where such a runtime is scraped."""

    def questions(self, select: Select, by: str, span: str) -> Mapping[HeapFact, str]:
        """PromQL of each figure: one value for each set of the labels `by`, over `span` (a PromQL duration)."""

    def size_in(self, text: str) -> int | None:
        """The largest heap in bytes that a command line names last; None where it names none in bytes."""

    def with_heap_bytes(self, text: str, amount_bytes: int) -> str | None:
        """A command line with another largest heap; None where it does not set one, or in words that are not clear."""


@cache
def runtimes() -> tuple[ManagedRuntime, ...]:
    """Every runtime that is installed, by name; a built-in name cannot be taken by a plug-in."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {name: EntryPoint(name, address, GROUP) for name, address in BUILT_IN.items()}
    return tuple(_load_runtime(points[name]) for name in sorted(points))


def _load_runtime(point: EntryPoint) -> ManagedRuntime:
    try:
        runtime: ManagedRuntime = point.load()()
    except Exception as error:
        raise CotenantError(
            f"runtime {point.name} ({point.value}) does not load: {error}", fix="Update or remove the plug-in."
        ) from error
    return runtime


def runtime_named(name: str, among: Iterable[ManagedRuntime] | None = None) -> ManagedRuntime | None:
    """The runtime of that name; None where it is not installed any more."""
    return next((runtime for runtime in (runtimes() if among is None else among) if runtime.name == name), None)
