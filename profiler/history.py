"""EDGE: updates a cluster's stored history: queries a metric source for what the store lacks and records data quality.

First step of the flow. A first scan and a later one are the same code; they differ in how much is missing. Blocks are
stored as they come, oldest first, so an interrupted pull leaves a usable history and the next one goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from cotenant.base.cluster import Inventory
from cotenant.base.errors import SourceError, SourceUnfit, SourceUnreachable
from cotenant.base.inventory.one_off import left_out_notes
from cotenant.base.process.clock import Clock
from cotenant.base.progress import Progress
from cotenant.base.store.store import Hole, Store
from cotenant.base.text import agree
from cotenant.base.usage.plausible import plausible_of_pods
from cotenant.base.usage.quality import Defect, QualityRecord, ScrapeSpan
from cotenant.base.usage.usage import (
    DAY_SECONDS,
    FIVE_MINUTES_SECONDS,
    HOUR_SECONDS,
    Signal,
    TimeGrid,
    TimeWindow,
    Usage,
)
from cotenant.profiler import off_times
from cotenant.profiler.off_signs import examine
from cotenant.profiler.pool import by_node, total
from cotenant.profiler.recorder.precedence import SIGNALS, RecordedTime, recorded_time, without_recorded
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.profiler.settings import ProfilerSettings
from cotenant.profiler.sightings import (
    NODE_SUMS,
    Sightings,
    by_usage,
    carried_over,
    declared_by_lasting,
    init_containers,
    merge_inventories,
    unnamed_notes,
    with_history,
)

STATE_DOCUMENT: Final = "pull"
_PARTS_OF_TODAY: Final = 6
"""Of the newest day that stay apart: reading that many takes less than writing the day anew in every scan."""


@dataclass(frozen=True, slots=True)
class SignalSpan:
    """A stretch of one signal, [start, end) in Unix seconds."""

    signal: Signal
    start_seconds: int
    end_seconds: int

    @property
    def grid(self) -> TimeGrid:
        """Its whole slots."""
        return TimeGrid.from_span(self.start_seconds, self.end_seconds, self.signal.spec.step_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class UsageBlock:
    """One answer of a source: usage, stretches that could not be had, and up to where each signal is now complete."""

    usage: tuple[tuple[Signal, Usage[Any]], ...]
    holes: tuple[SignalSpan, ...] = ()
    settled: Mapping[Signal, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source's own account since it was made."""

    scrape_interval_seconds: float
    queries: int
    samples: int
    waited_seconds: float
    defects: Mapping[Defect, int]
    notes: tuple[str, ...]
    errors: tuple[SourceError, ...] = ()
    """Why questions stayed without an answer, each error once."""
    scrapes: tuple[ScrapeSpan, ...] = ()
    """Scrape intervals that were found, of how many series; empty where the source does not tell."""
    peak_seconds: float = 0.0
    """Time over which a rate reaches whose maximum is a slot's peak, the longest of all series; 0 = unknown."""


class MetricSource(Protocol):
    """A source of usage.

    Methods raise SourceError's kinds; one failed part is a hole in a block instead.
    """

    def describe(self) -> str:
        """One line for people, without secrets."""

    def inventory(self, now_seconds: int, window: TimeWindow) -> Inventory:
        """The cluster now, with the pods of the window that are gone."""

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        """Usage of the spans, oldest first, a bounded part at a time."""

    def report(self) -> SourceReport:
        """Return the costs of the queries so far, and the defects and errors found."""


@dataclass(frozen=True, slots=True)
class PullState:
    """Up to where each signal has been asked for (also where the answer was empty), and what failed then.

    `asked_again`: files of lost days (`Hole.path`) whose day the source was asked for once more.
    """

    since: dict[Signal, int] = field(default_factory=dict)
    until: dict[Signal, int] = field(default_factory=dict)
    holes: list[SignalSpan] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)


def pull(
    source: MetricSource, store: Store, settings: ProfilerSettings, clock: Clock, progress: Progress
) -> QualityRecord:
    """Bring the store up to now; returns and stores the account.

    Raises SourceError when nothing can be had at all: no inventory, or no CPU usage while a question for it failed.
    """
    now, started = int(clock.now_seconds()), time.monotonic()
    state = _state(store)
    lost = open_holes(store, state)
    state = add_lost_holes(state, lost)
    spans = spans_to_pull(now, state, settings)
    keep_since = now - settings.window_days * DAY_SECONDS
    start = min([now - 2 * HOUR_SECONDS, *(span.start_seconds for span in spans)])
    snapshot = source.inventory(now, TimeWindow(start, now))
    stored = store.read_inventory()
    _require_same_cluster(stored, snapshot, source, store)
    inventory = (merge_inventories if snapshot.pods else carried_over)(stored, snapshot, keep_since)
    store.write_inventory(inventory)
    state, sightings, hole_count = begin_pull(state, spans), Sightings(), len(state.holes)
    starting = init_containers(inventory)
    recording, stands = store.read_document(STATUS_DOCUMENT, RecorderStatus), None
    for raw in source.blocks(spans, progress):
        block = replace(raw, usage=tuple((s, declared_by_lasting(s, usage, starting)) for s, usage in raw.usage))
        stands = recorded_time(recording, source.report().peak_seconds) if recording else None
        state = _store_block(block, store, state, stands)
        sightings.add(block.usage)
    notes = (
        *_node_totals(store, spans, inventory, sightings, recorded_time(recording, 0) if recording else None),
        *_gpu_notes(sightings),
        *_recorded_notes(stands),
    )
    store.compact(_PARTS_OF_TODAY)
    again = [hole.path for hole in lost if hole.start_seconds + DAY_SECONDS > keep_since]
    done = finish_pull(state, spans, keep_since, state.holes[hole_count:])
    store.write_document(STATE_DOCUMENT, replace(done, asked_again=_still_aside(store, [*state.asked_again, *again])))
    classified = inventory if snapshot.pods else by_usage(inventory, sightings)
    complete = with_history(classified, sightings)
    store.write_inventory(complete)
    notes = (*notes, *unnamed_notes(complete), *left_out_notes(complete))
    notes = (*notes, *_off_notes(source, store, TimeWindow(keep_since, now)))
    if old := store.keep(settings.keep_days):
        notes = (*notes, f"files of usage older than {settings.keep_days} days removed: {old}")
    if again:
        notes = (
            *notes,
            f"{agree(len(again), 'lost file of stored usage was', 'lost files of stored usage were')} asked for again",
        )
    unread = unread_seconds(done.holes)
    record = _record(source, now, time.monotonic() - started, (*_unread_notes(unread, source), *notes), unread)
    store.append_quality(record)
    if Signal.CPU_USAGE_MEAN in unread and store.span(Signal.CPU_USAGE_MEAN) is None:
        raise _no_answer_error(source)
    return record


def _require_same_cluster(stored: Inventory | None, snapshot: Inventory, source: MetricSource, store: Store) -> None:
    """SourceUnfit where the stored history is of a cluster that was created at another moment: none is added to it."""
    before, now = (stored.created_seconds if stored else None), snapshot.created_seconds
    if before is None or now is None or before == now:
        return
    raise SourceUnfit(
        f"{source.describe()} is of another cluster than the history stored as {store.cluster}: its namespace "
        f"kube-system was created at {_moment(now)}, that of the history at {_moment(before)}",
        fix="Give this one a name of its own: --cluster NAME. If the cluster was built anew under its old name, move "
        f"{store.url.rstrip('/')}/{store.cluster} away first.",
    )


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def unread_seconds(holes: Iterable[SignalSpan]) -> dict[Signal, int]:
    """Time that the source failed to answer for, by signal; holes that overlap count once."""
    seconds: dict[Signal, int] = {}
    for signal in Signal:
        reached = 0
        for hole in sorted((h for h in holes if h.signal is signal), key=lambda h: h.start_seconds):
            start = max(hole.start_seconds, reached)
            if hole.end_seconds > start:
                seconds[signal] = seconds.get(signal, 0) + hole.end_seconds - start
                reached = hole.end_seconds
    return seconds


def _unread_notes(unread: Mapping[Signal, int], source: MetricSource) -> tuple[str, ...]:
    """Return a note on the history that was not read, its causes and the next attempt; empty if all was read."""
    if not unread:
        return ()
    amounts = ", ".join(f"{signal} {seconds / HOUR_SECONDS:.1f} h" for signal, seconds in unread.items())
    causes = "; ".join(error.message for error in source.report().errors[:2])
    return (
        f"incomplete: not read of the history: {amounts}{f' ({causes})' if causes else ''}; what rests on it is "
        "not lowered and not called idle, and the next scan asks for it again",
    )


def _no_answer_error(source: MetricSource) -> SourceError:
    """The error of a pull that got no CPU usage because its questions failed."""
    errors = source.report().errors
    if not errors:
        return SourceUnreachable(f"{source.describe()} answered no question for CPU usage")
    first = errors[0]
    return type(first)(f"no question for CPU usage was answered: {first.message}", fix=first.fix)


def open_holes(store: Store, state: PullState | None = None) -> tuple[Hole, ...]:
    """Days that the store lost and the source has not been asked for since; `state` is read where it is not given."""
    requested_paths = set((state or _state(store)).asked_again)
    return tuple(hole for hole in store.holes() if hole.path not in requested_paths)


def missing_spans(store: Store, signals: Sequence[Signal]) -> tuple[SignalSpan, ...]:
    """Return the missing spans of some signals.

    They are those that the source failed to answer for, and entire days of which the stored file is lost.
    """
    lost = store.holes(signals)
    days = (SignalSpan(hole.signal, hole.start_seconds, hole.start_seconds + DAY_SECONDS) for hole in lost)
    state = store.read_document(STATE_DOCUMENT, PullState)
    return (*(span for span in (state.holes if state else ()) if span.signal in signals), *days)


def _still_aside(store: Store, paths: Sequence[str]) -> list[str]:
    """Return the paths of lost files that the store still reports.

    A path that was cleared away may be given to the next lost file, so it must be forgotten.
    """
    paths_aside = {hole.path for hole in store.holes()}
    return [path for path in paths if path in paths_aside]


def add_lost_holes(state: PullState, lost: Sequence[Hole]) -> PullState:
    """The state with the lost days as holes, as far as they had been asked for."""
    spans = [
        SignalSpan(hole.signal, hole.start_seconds, min(hole.start_seconds + DAY_SECONDS, state.until[hole.signal]))
        for hole in lost
        if hole.signal in state.until
    ]
    new = [span for span in spans if span.end_seconds > span.start_seconds and span not in state.holes]
    return replace(state, holes=[*state.holes, *dict.fromkeys(new)])


def spans_to_pull(now_seconds: int, state: PullState, settings: ProfilerSettings) -> tuple[SignalSpan, ...]:
    """Return the missing spans: time since the last pull, time before the first one, and earlier failures.

    A signal's newest slots are asked again for late samples; those of an hourly signal only once a new hour is
    complete.
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
    """The state while a pull runs: a signal asked for the first time is complete up to nothing."""
    first: dict[Signal, int] = {}
    for span in spans:
        first[span.signal] = min(first.get(span.signal, span.start_seconds), span.start_seconds)
    return replace(state, since=first | state.since, until=first | state.until)


def finish_pull(
    state: PullState, spans: Sequence[SignalSpan], keep_since: int, failed: Sequence[SignalSpan] = ()
) -> PullState:
    """The state after a complete pull: what was asked lies behind us, but for what `failed` in it."""
    since = {s: min([t, *(x.start_seconds for x in spans if x.signal is s)]) for s, t in state.since.items()}
    answered = set(spans) - set(failed)
    holes = [h for h in dict.fromkeys(state.holes) if h not in answered and h.end_seconds > keep_since]
    return replace(state, since=since, holes=holes)


def _state(store: Store) -> PullState:
    """The state kept beside the results; where it is missing, what the store holds is what was asked.

    Without any usage of pods nothing counts as asked: the source was a wrong one, and the right one is asked for all.
    Nor does what a recorder wrote, which has gaps that a source may fill.
    """
    state = store.read_document(STATE_DOCUMENT, PullState)
    if state is not None:
        return state if store.usage_span() else PullState(asked_again=state.asked_again)
    if store.read_document(STATUS_DOCUMENT, RecorderStatus) is not None:
        return PullState()
    stored = {signal: span for signal in Signal if (span := store.span(signal))}
    return PullState({s: a for s, (a, _) in stored.items()}, {s: b for s, (_, b) in stored.items()})


def _store_block(block: UsageBlock, store: Store, state: PullState, stands: RecordedTime | None) -> PullState:
    """Append a block, but for what a recorder's values stand for, and remember how far we are."""
    for signal, usage in block.usage:
        store.append(signal, _beside_recorded(usage, signal, store, stands))
    until = {s: max(end, state.until.get(s, 0)) for s, end in block.settled.items()}
    after = replace(state, until={**state.until, **until}, holes=[*state.holes, *block.holes])
    if after != state:
        store.write_document(STATE_DOCUMENT, after)
    return after


def _beside_recorded(new: Usage[Any], signal: Signal, store: Store, stands: RecordedTime | None) -> Usage[Any]:
    """The usage without what a recorder's values stand for."""
    if stands is None or signal not in SIGNALS:
        return new
    return without_recorded(new, store.read(signal, new.grid), stands)


def _off_notes(source: MetricSource, store: Store, window: TimeWindow) -> tuple[str, ...]:
    """Examine the stretches of the window without a sample of any node; return the note on those of a cluster off."""
    nodes = store.read(Signal.NODE_CPU_USAGE_MEAN, TimeGrid.from_span(*window, FIVE_MINUTES_SECONDS))
    known = store.read_document(off_times.OFF_DOCUMENT, off_times.OffTimes) or off_times.OffTimes()
    silent = off_times.silences(nodes)
    found = examine(known.of(silent, window[0]), silent, source)
    if found != known:
        store.write_document(off_times.OFF_DOCUMENT, found)
    return off_times.note(found.off)


def _recorded_notes(stands: RecordedTime | None) -> tuple[str, ...]:
    """Return a note on the time that is read from a recorder; empty where none is."""
    if stands is None:
        return ()
    since, until = _moment(int(stands.begin_seconds)), _moment(int(stands.end_seconds))
    return (f"from {since} to {until} the recorder's values stand where it has any, as its rates are finer",)


def _node_totals(
    store: Store,
    spans: Sequence[SignalSpan],
    inventory: Inventory,
    sightings: Sightings,
    recorded: RecordedTime | None,
) -> tuple[str, ...]:
    """Store the sum of each node's pods, day by day, where the source has no series of nodes.

    What a recorder read of a node stands, however fine the source is: its pods are not all that it runs. Returns the
    note on it; empty if nothing was missing.
    """
    missing = [
        (node_signal, parts)
        for node_signal, parts in NODE_SUMS.items()
        if node_signal not in sightings.signals and parts in sightings.signals
    ]
    for node_signal, parts in missing:
        for span in (span for span in spans if span.signal is parts):
            for day in _days(span.grid):
                usage = plausible_of_pods(store.read(parts, day), inventory)
                if usage.refs:
                    sums = total(usage, by_node(usage.refs, inventory))
                    store.append(node_signal, _beside_recorded(sums, node_signal, store, recorded))
    return ("nodes report no usage of their own: the sum of their pods stands for it",) if missing else ()


def _gpu_notes(sightings: Sightings) -> tuple[str, ...]:
    """Return a note if containers request GPUs whose metrics the source does not have; else nothing."""
    requested = not sightings.signals.isdisjoint({Signal.GPU_CORE_REQUEST, Signal.GPU_INSTANCE_REQUEST})
    if not requested or Signal.GPU_CORE_MEAN in sightings.signals:
        return ()
    return ("no GPU metrics: containers request GPUs, but DCGM's exporter is not scraped, so their use is unknown",)


def _days(grid: TimeGrid) -> Iterator[TimeGrid]:
    for start in range(grid.start_seconds, grid.end_seconds, DAY_SECONDS):
        yield TimeGrid.from_span(start, min(start + DAY_SECONDS, grid.end_seconds), grid.step_seconds)


def _record(
    source: MetricSource,
    now_seconds: int,
    elapsed_seconds: float,
    notes: tuple[str, ...],
    unread: Mapping[Signal, int],
) -> QualityRecord:
    """The quality record of one pull: what was asked and answered, defects, and notes of source and pull."""
    report = source.report()
    return QualityRecord(
        time_seconds=now_seconds,
        source=source.describe(),
        scrape_interval_seconds=report.scrape_interval_seconds,
        queries=report.queries,
        samples=report.samples,
        server_seconds=report.waited_seconds,
        client_seconds=elapsed_seconds,
        defects={defect: count for defect, count in report.defects.items() if count},
        notes=(*report.notes, *notes),
        unread_seconds=unread,
        scrapes=report.scrapes,
    )
