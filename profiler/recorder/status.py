"""Status of a recorder: the time up to which it recorded, each node's source, and results still to come. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.base.text import agree, counted
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS
from cotenant.forecasting.settings import ForecastingSettings, NodePeakSettings
from cotenant.profiler.recorder.gaps import RecordingGap
from cotenant.recommender.settings import CotenantSettings

STORED_SECONDS: Final = 2 * FIVE_MINUTES_SECONDS
"""Delay of results: the slot with the last sample must end, and it is stored within one more slot."""


@dataclass(frozen=True, slots=True)
class ComingResult:
    """A kind of result that appears with the first analysis after a Unix time, because it needs a longer history."""

    what: str
    days: float
    at_seconds: float


RESULTS: Final = (
    ("first recommendations", CotenantSettings().minimum_days),
    ("forecasts", float(ForecastingSettings().minimum_days)),
    ("nodes' own peaks", float(NodePeakSettings().minimum_days)),
)
"""Results and the days of history that each needs."""


def moment_of(since_seconds: float, days: float) -> float:
    """Return the Unix time at which the stored history that began at `since_seconds` is `days` long."""
    first_slot = math.floor(since_seconds / FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS
    return first_slot + FIVE_MINUTES_SECONDS + days * DAY_SECONDS + STORED_SECONDS


def coming_results(since_seconds: float, now_seconds: float) -> list[ComingResult]:
    """Return the kinds of results for which the recorded history is still too short, soonest first."""
    dated = [ComingResult(what, days, moment_of(since_seconds, days)) for what, days in RESULTS]
    return [result for result in dated if result.at_seconds > now_seconds]


def coming_sentence(since_seconds: float, now_seconds: float) -> str:
    """Return text on when results come, such as `first recommendations from 2026-11-27 10:15 UTC`; "" if none do."""
    return ", ".join(
        f"{result.what} from {datetime.fromtimestamp(result.at_seconds, UTC):%Y-%m-%d %H:%M} UTC"
        for result in coming_results(since_seconds, now_seconds)
    )


STATUS_DOCUMENT: Final = "recorder"
TROUBLES_KEPT: Final = 20
SILENT_SECONDS: Final = 900.0
"""A recorder that has written nothing for so long does not run: it writes every five minutes."""


class NodeSource(StrEnum):
    """The source from which a recorder reads a node's usage."""

    KUBELET = "kubelet"
    METRICS_API = "metrics API"
    NONE = "none"


class PresentUse(msgspec.Struct, frozen=True):
    """Usage at a recorder's newest readings, in millicores and bytes, and the number of nodes and containers in it."""

    at_seconds: float
    nodes: int
    containers: int
    millicores: float
    memory_bytes: float

    def __str__(self) -> str:
        """Return a sentence without its full stop: `4 nodes with 61 containers use 3.2 cores and 12.0 GiB`."""
        cores = self.millicores / MILLICORES_PER_CORE
        memory = human_bytes(round(self.memory_bytes))
        nodes, containers = counted(self.nodes, "node"), counted(self.containers, "container")
        return f"{nodes} with {containers} {'uses' if self.nodes == 1 else 'use'} {cores:.1f} cores and {memory}"


class RecorderStatus(msgspec.Struct, frozen=True):
    """The status document `recorder`, stored with the history; times in Unix seconds.

    `begun_seconds` is the first reading, `until_seconds` the end of the newest stored slot, 0 before the first. `nodes`
    has the number of nodes by source. `troubles` says why kubelets are not read, for at most TROUBLES_KEPT nodes. Of
    the other nodes, `unthrottled` have CPU limits but report no throttled time, the first because of
    `throttling_trouble`. `left_out` are pods and nodes that cannot be read, each with its reason. `gaps` are the newest
    times in which nothing was recorded. `present` is the newest usage, None until a node was read twice.
    """

    begun_seconds: float
    written_seconds: float = 0.0
    until_seconds: int = 0
    interval_seconds: float = 60.0
    nodes: dict[NodeSource, int] = {}
    troubles: dict[str, str] = {}
    unthrottled: int = 0
    throttling_trouble: str = ""
    questions: int = 0
    samples: int = 0
    gaps: list[RecordingGap] = []
    present: PresentUse | None = None
    left_out: dict[str, str] = {}

    @property
    def source(self) -> str:
        """One line that describes the source: `the recorder (12 nodes from kubelet, 1 node from metrics API)`."""
        parts = [
            f"{counted(count, 'node')} from {source}"
            for source, count in self.nodes.items()
            if source is not NodeSource.NONE
        ]
        return f"the recorder ({', '.join(parts) or 'no node was read'})"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on data that are missing or less precise."""
        notes = [self._throttling_note] if self.unthrottled else []
        if count := self.nodes.get(NodeSource.METRICS_API):
            notes.append(
                f"{agree(count, 'node was', 'nodes were')} read from the metrics API: CPU and memory are means of the "
                "API's short windows, and usage counts as demand"
            )
        if count := self.nodes.get(NodeSource.NONE):
            first = next(iter(self.troubles.items()), ("", ""))
            unread = agree(count, "node was not read", "nodes were not read")
            notes.append(f"{unread}, such as {first[0]}: {first[1]}")
        notes += [*self._left_out_notes, *map(str, self.gaps)]
        return tuple(notes)

    @property
    def _left_out_notes(self) -> list[str]:
        return [f"{subject} is not recorded until it changes: {why}" for subject, why in self.left_out.items()]

    @property
    def _throttling_note(self) -> str:
        return (
            f"throttled time is unknown on {counted(self.unthrottled, 'node')}, where usage counts as demand: "
            f"{self.throttling_trouble}"
        )

    def is_silent(self, now_seconds: float) -> bool:
        """Return whether the status was last written so long ago that no recorder can be running."""
        return now_seconds - self.written_seconds > SILENT_SECONDS

    def sentence(self, now_seconds: float) -> str:
        """Return a sentence on when the recording began, up to when it is stored, and whether it still runs."""
        since = f"recording since {_moment(self.begun_seconds)}"
        if not self.until_seconds:
            return f"{since}; the first five minutes are not complete yet"
        if self.is_silent(now_seconds):
            written = _moment(self.written_seconds)
            return f"recorded from {_moment(self.begun_seconds)}; nothing was written since {written}"
        return f"{since}, stored up to {_moment(self.until_seconds)}"

    def coming_words(self, now_seconds: float) -> str:
        """Return a text on when further kinds of results come; "" if there are none to come or no recorder runs."""
        return "" if self.is_silent(now_seconds) else coming_sentence(self.begun_seconds, now_seconds)

    def lines(self, now_seconds: float) -> list[str]:
        """Return all facts about the recording, one sentence each."""
        sentences = [self.sentence(now_seconds), self.source]
        if self.present is not None and not self.is_silent(now_seconds):
            sentences.append(f"now {self.present}")
        if coming := self.coming_words(now_seconds):
            sentences.append(f"{coming}, each with the first analysis after that time")
        if self.unthrottled:
            sentences.append(self._throttling_note)
        troubles = (f"node {node}: {why}" for node, why in self.troubles.items())
        return [*sentences, *troubles, *self._left_out_notes, *map(str, self.gaps)]


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def count_sources(nodes: Mapping[str, NodeSource]) -> dict[NodeSource, int]:
    """Count the nodes by source, those without a source last; sources without nodes are left out."""
    counts = {source: sum(node_source is source for node_source in nodes.values()) for source in NodeSource}
    return {source: count for source, count in counts.items() if count}
