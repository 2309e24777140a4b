"""The state between two pulls of usage history: what was requested, and how much of it is proven complete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.settings import ProfilerSettings

_USAGE_OF_PODS: Final = frozenset({Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX})
_STATE_SHOWN: Final = frozenset(
    {Signal.CPU_REQUEST, Signal.CPU_LIMIT, Signal.MEMORY_REQUEST, Signal.MEMORY_LIMIT, Signal.RESTARTS}
)
"""Signals of kube-state-metrics alone: kubelets count kills too."""
_OF_STATE: Final = _STATE_SHOWN | {
    Signal.OOM_KILLS,
    Signal.GPU_CORE_REQUEST,
    Signal.GPU_MEMORY_REQUEST,
    Signal.GPU_INSTANCE_REQUEST,
}
_FUTURE_SECONDS: Final = HOUR_SECONDS
"""Clocks of two machines with one store may differ; by this much none does that is right."""


@dataclass(frozen=True, slots=True)
class SignalSpan:
    """A time span of one signal, [start, end) in Unix seconds."""

    signal: Signal
    start_seconds: int
    end_seconds: int

    @property
    def grid(self) -> TimeGrid:
        """Grid of the whole slots in the span."""
        return TimeGrid.from_span(self.start_seconds, self.end_seconds, self.signal.spec.step_seconds)


@dataclass(frozen=True, slots=True)
class PullState:
    """The time that pulls covered for each signal, from `since` to `until` (Unix seconds), and what is missing in it.

    `holes` are the spans that failed. `asked_again` are paths of unreadable files whose day was requested once more.
    `open_spans` are spans whose usage an unfinished pull stored, so that the inventory lacks what this usage shows;
    `open_signals` are the signals of that usage. `silences_asked` is True once time without any usage was requested
    again (`ask_silences`), because older versions counted every answer as complete.
    """

    since: dict[Signal, int] = field(default_factory=dict)
    until: dict[Signal, int] = field(default_factory=dict)
    holes: list[SignalSpan] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)
    open_spans: list[SignalSpan] = field(default_factory=list)
    open_signals: list[Signal] = field(default_factory=list)
    silences_asked: bool = False


@dataclass(slots=True)
class PullProof:
    """The time up to which a source's answers prove that it had samples, and each signal is therefore complete.

    An answer without a sample proves nothing about its time: labels, tenant or clock may be wrong, or samples may be
    late. A server receives delayed samples in order, so it has all samples before its newest one.
    - `usage_seconds`: end of the newest slot with usage of pods.
    - `state_seconds`: the same for kube-state-metrics and its signals; None if it has no samples: usage proves them.
    - `answered`: by signal, the time up to which the source answered.
    - `failed`: by signal, the end of the parts that failed, which are queried again anyway.
    """

    usage_seconds: int = 0
    state_seconds: int | None = None
    answered: dict[Signal, int] = field(default_factory=dict)
    failed: dict[Signal, int] = field(default_factory=dict)

    def add(
        self, usage: Iterable[tuple[Signal, Usage[Any]]], answered: Mapping[Signal, int], holes: Iterable[SignalSpan]
    ) -> None:
        """Record an answer: what it proves, the times up to which signals were answered, and what failed."""
        for signal, values in usage:
            if signal in _USAGE_OF_PODS:
                self.usage_seconds = max(self.usage_seconds, _newest_end(values))
            elif signal in _STATE_SHOWN:
                self.state_seconds = max(self.state_seconds or 0, _newest_end(values)) or None
        for signal, end in answered.items():
            self.answered[signal] = max(end, self.answered.get(signal, 0))
        for hole in holes:
            self.failed[hole.signal] = max(hole.end_seconds, self.failed.get(hole.signal, 0))

    def until(self, before: Mapping[Signal, int]) -> dict[Signal, int]:
        """Return the time up to which each signal is complete, given the times before this pull."""
        told_seconds = self.usage_seconds if self.state_seconds is None else min(self.usage_seconds, self.state_seconds)
        complete = dict(before)
        for signal, answered in self.answered.items():
            newest, step = told_seconds if signal in _OF_STATE else self.usage_seconds, signal.spec.step_seconds
            end = min(answered, max(newest, self.failed.get(signal, 0))) // step * step
            complete[signal] = max(before.get(signal, 0), end)
        return complete


def _newest_end(usage: Usage[Any]) -> int:
    """Return the end of the newest slot with a value of any series; 0 without any."""
    slots = np.flatnonzero((~np.isnan(usage.values)).any(axis=0))
    return int(usage.grid.start_seconds + (slots[-1] + 1) * usage.grid.step_seconds) if slots.size else 0


def unread_seconds(holes: Iterable[SignalSpan]) -> dict[Signal, int]:
    """Return by signal the seconds for which the source failed (its holes); overlapping holes count once."""
    seconds: dict[Signal, int] = {}
    for signal in Signal:
        reached = 0
        for hole in sorted((h for h in holes if h.signal is signal), key=lambda h: h.start_seconds):
            start = max(hole.start_seconds, reached)
            if hole.end_seconds > start:
                seconds[signal] = seconds.get(signal, 0) + hole.end_seconds - start
                reached = hole.end_seconds
    return seconds


def spans_to_pull(now_seconds: int, state: PullState, settings: ProfilerSettings) -> tuple[SignalSpan, ...]:
    """Return the time spans to request: after the last pull, before the first pull, and spans that failed earlier.

    A signal's newest slots are requested again, because samples may be late. An hourly signal is requested once a new
    hour is complete, and its earlier hours are not requested again.
    """
    window_start = now_seconds - settings.window_days * DAY_SECONDS
    spans: list[SignalSpan] = [hole for hole in state.holes if hole.end_seconds > window_start]
    for signal in Signal:
        step = signal.spec.step_seconds
        first, end = -(-window_start // step) * step, now_seconds // step * step
        since, until = state.since.get(signal, end), state.until.get(signal, first)
        again = settings.overlap_seconds if step < HOUR_SECONDS and until > first else 0
        spans.append(SignalSpan(signal, first, min(since, until)))
        if end > until:
            spans.append(SignalSpan(signal, max(first, (until - again) // step * step), end))
    return tuple(span for span in spans if span.end_seconds > span.start_seconds)


def begin_pull(state: PullState, spans: Sequence[SignalSpan]) -> PullState:
    """Return the state while these spans are pulled: they are open, and a new signal begins at its first span."""
    first: dict[Signal, int] = {}
    for span in spans:
        first[span.signal] = min(first.get(span.signal, span.start_seconds), span.start_seconds)
    # One span for each signal, from its first start to its last end.
    ends: dict[Signal, SignalSpan] = {}
    for span in (*state.open_spans, *spans):
        span_before = ends.get(span.signal, span)
        start, end = min(span.start_seconds, span_before.start_seconds), max(span.end_seconds, span_before.end_seconds)
        ends[span.signal] = SignalSpan(span.signal, start, end)
    return replace(state, since=first | state.since, until=first | state.until, open_spans=list(ends.values()))


def is_of_future(state: PullState, now_seconds: int) -> bool:
    """Return whether an earlier pull reached well beyond now: its clock was ahead, or the present clock is behind."""
    return any(end > now_seconds + _FUTURE_SECONDS for end in state.until.values())


def without_future(state: PullState, now_seconds: int) -> PullState:
    """Return the state without signals requested beyond the present: their whole window is requested again."""
    latest = now_seconds + _FUTURE_SECONDS
    wrong = {signal for signal, end in state.until.items() if end > latest}
    since, until = ({s: t for s, t in times.items() if s not in wrong} for times in (state.since, state.until))
    holes, open_spans = (
        [span for span in spans if span.signal not in wrong] for spans in (state.holes, state.open_spans)
    )
    return replace(state, since=since, until=until, holes=holes, open_spans=open_spans)


def ask_silences(state: PullState, grid: TimeGrid, is_seen: npt.NDArray[np.bool_]) -> PullState:
    """Return the state in which every span without any usage, also after the newest sample, is requested again.

    `is_seen`, (slots,), says whether any pod has a sample. A scan with a wrong label or tenant may have found nothing.
    """
    slots = np.flatnonzero(is_seen)
    if not slots.size:
        return replace(state, silences_asked=True)
    step, gaps = grid.step_seconds, np.flatnonzero(np.diff(slots) > 1)
    ends = [
        (grid.start_seconds + (int(slots[i]) + 1) * step, grid.start_seconds + int(slots[i + 1]) * step) for i in gaps
    ]
    holes, until = list(state.holes), dict(state.until)
    for signal, until_seconds in state.until.items():
        own = signal.spec.step_seconds
        until[signal] = min(until_seconds, (grid.start_seconds + (int(slots[-1]) + 1) * step) // own * own)
        for start, end in ends:
            first, last = max(start // own * own, state.since[signal]), min(-(-end // own) * own, until[signal])
            holes += [SignalSpan(signal, first, last)] if last > first else []
    return replace(state, until=until, holes=list(dict.fromkeys(holes)), silences_asked=True)


def finish_pull(
    state: PullState, spans: Sequence[SignalSpan], keep_since: int, failed: Sequence[SignalSpan] = ()
) -> PullState:
    """Return the state after a complete pull: no span is open; holes now read or before `keep_since` are dropped."""
    since = {s: min([t, *(x.start_seconds for x in spans if x.signal is s)]) for s, t in state.since.items()}
    answered = set(spans) - set(failed)
    holes = [h for h in dict.fromkeys(state.holes) if h not in answered and h.end_seconds > keep_since]
    return replace(state, since=since, holes=holes, open_spans=[], open_signals=[])
