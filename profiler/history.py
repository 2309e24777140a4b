"""EDGE: updates a cluster's stored history: queries a metric source for what the store lacks and records data quality.

First step of the flow. First and later scans run the same code; they differ in how much is missing. Blocks are stored
as they arrive, oldest first, so an interrupted pull leaves a usable history and the next pull continues from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.errors import SourceError, SourceUnfit, SourceUnreachable
from cotenant.base.inventory.partial_inventory import left_out_notes
from cotenant.base.process.clock import Clock
from cotenant.base.progress import Progress
from cotenant.base.store.store import Hole, Store
from cotenant.base.text import counted
from cotenant.base.usage.plausible import plausible_of_pods
from cotenant.base.usage.quality import QualityRecord
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
from cotenant.profiler.off_times import examine
from cotenant.profiler.pool import by_node, total
from cotenant.profiler.pull_state import (
    PullProof,
    PullState,
    SignalSpan,
    ask_silences,
    begin_pull,
    finish_pull,
    is_of_future,
    spans_to_pull,
    unread_seconds,
    without_future,
)
from cotenant.profiler.recorder.precedence import SIGNALS, RecordedTime, recorded_time, without_recorded
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.profiler.settings import ProfilerSettings
from cotenant.profiler.sightings import (
    NODE_SUMS,
    SHOWING,
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


@dataclass(frozen=True, slots=True, eq=False)
class UsageBlock:
    """One answer of a metric source: usage, and `holes`, the time spans that could not be read.

    `settled` has, by signal, the time up to which the source has answered.
    """

    usage: tuple[tuple[Signal, Usage[Any]], ...]
    holes: tuple[SignalSpan, ...] = ()
    settled: Mapping[Signal, int] = field(default_factory=dict)


class MetricSource(Protocol):
    """A source of usage, such as a Prometheus server.

    Methods raise kinds of SourceError; a failed part of a query is a hole in a block instead.
    """

    def describe(self) -> str:
        """Return one line that identifies the source to people, without secrets."""

    def inventory(self, now_seconds: int, window: TimeWindow) -> Inventory:
        """Return the present state of the cluster, with those pods of the window that no longer exist."""

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        """Yield the usage in the time spans of signals, oldest first, in parts of bounded size."""

    @property
    def errors(self) -> Sequence[SourceError]:
        """Errors of the queries that failed, each error once."""

    @property
    def peak_seconds(self) -> float:
        """Length in seconds of the rate windows whose highest value is a slot's peak; 0 if unknown."""

    def record(self, now_seconds: int) -> QualityRecord:
        """Return the source's quality record since its creation: costs of the queries, defects and notes."""


@runtime_checkable
class KnowsTime(Protocol):
    """A metric source that reports whether it has samples in a time window, and the present time by its clock."""

    def has_usage(self, window: TimeWindow) -> bool:
        """Return False if the source has no CPU usage of any container in the window; True if it has, or if unknown."""

    def clock_seconds(self) -> float | None:
        """Return the Unix time by the source's clock; None if it does not report one."""


def pull(
    source: MetricSource, store: Store, settings: ProfilerSettings, clock: Clock, progress: Progress
) -> QualityRecord:
    """Update the store's history up to now from the source; return and store the quality record.

    Raise SourceError, with the store unchanged, if the source has no inventory, is of another cluster, or has no usage
    although the store has some. Raise it at the end if a query for CPU usage failed and no CPU usage is stored.
    """
    now, started = int(clock.now_seconds()), time.monotonic()
    state, clock_notes = _state_by_clock(_state(store), source, now)
    lost = open_holes(store, state)
    state = _with_silences_asked(add_lost_holes(state, lost), store, now, settings)
    spans = spans_to_pull(now, state, settings)
    window = TimeWindow(min([now - 2 * HOUR_SECONDS, *(span.start_seconds for span in spans)]), now)
    snapshot = source.inventory(now, window)
    stored, recording = store.read_inventory(), store.read_document(STATUS_DOCUMENT, RecorderStatus)
    _require_same_cluster(stored, snapshot, source, store)
    _require_usage(source, store, recording, window)
    # of a server that is late the snapshot is late too: what is kept is counted from what there is, not from a clock
    keep_since = min(now, snapshot.time_seconds) - settings.window_days * DAY_SECONDS
    inventory = (merge_inventories if snapshot.pods else carried_over)(stored, snapshot, keep_since)
    store.write_inventory(inventory)
    sightings = _sightings_before(store, state, spans, keep_since)
    due, proof = (*state.open_spans, *spans), _proof(store, state, recording, keep_since)
    state, hole_count = begin_pull(state, spans), len(state.holes)
    if spans:
        store.write_document(STATE_DOCUMENT, state)
    starting, stands = init_containers(inventory), None
    for raw in source.blocks(spans, progress):
        block = replace(raw, usage=tuple((s, declared_by_lasting(s, usage, starting)) for s, usage in raw.usage))
        stands = recorded_time(recording, source.peak_seconds) if recording else None
        proof.add(raw.usage, block.settled, block.holes)
        state = _store_block(block, store, state, proof, stands)
        sightings.add(block.usage)
    classified = inventory if snapshot.pods else by_usage(inventory, sightings)
    complete = with_history(classified, sightings)
    notes = (
        *clock_notes,
        *_node_totals(store, due, complete, sightings, recorded_time(recording, 0) if recording else None),
        *_source_notes(sightings, stands),
    )
    store.compact(_PARTS_OF_TODAY)
    again = [hole.path for hole in lost if hole.start_seconds + DAY_SECONDS > keep_since]
    store.write_inventory(complete)
    # A path that was cleared away may be given to the next lost file, so it must be forgotten.
    done, aside = finish_pull(state, spans, keep_since, state.holes[hole_count:]), {hole.path for hole in store.holes()}
    done = replace(done, asked_again=[path for path in (*state.asked_again, *again) if path in aside])
    store.write_document(STATE_DOCUMENT, done)
    off_notes = _off_notes(source, store, TimeWindow(keep_since, now))
    notes += (*unnamed_notes(complete), *left_out_notes(complete), *off_notes)
    if old := store.keep(settings.keep_days):
        notes += (f"{counted(old, 'file')} of usage removed, from before the newest {settings.keep_days} days",)
    if again:
        notes += (f"usage in {counted(len(again), 'file')} that the store had lost was requested again",)
    unread = unread_seconds(done.holes)
    pull_record, elapsed = source.record(now), time.monotonic() - started
    notes = (*pull_record.notes, *_unread_notes(unread, source), *notes)
    record = replace(pull_record, client_seconds=elapsed, notes=notes, unread_seconds=unread)
    store.append_quality(record)
    if Signal.CPU_USAGE_MEAN in unread and store.span(Signal.CPU_USAGE_MEAN) is None:
        if not source.errors:
            raise SourceUnreachable(f"{source.describe()} answered no query for CPU usage")
        raise type(source.errors[0])(
            f"no query for CPU usage was answered: {source.errors[0].message}", fix=source.errors[0].fix
        )
    return record


def _require_same_cluster(stored: Inventory | None, snapshot: Inventory, source: MetricSource, store: Store) -> None:
    """Raise SourceUnfit if the stored history is of a cluster with another time of creation, and add nothing to it."""
    before, now = (stored.created_seconds if stored else None), snapshot.created_seconds
    if before is None or now is None or before == now:
        return
    raise SourceUnfit(
        f"{source.describe()} belongs to another cluster than the history stored as {store.cluster}: its namespace "
        f"kube-system was created at {_moment(now)}, that of the history at {_moment(before)}",
        fix="Scan this cluster under another name: --cluster NAME. If it was rebuilt under its old name, move "
        f"{store.url.rstrip('/')}/{store.cluster} away first.",
    )


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _unread_notes(unread: Mapping[Signal, int], source: MetricSource) -> tuple[str, ...]:
    """Return a note on the history that was not read, its causes and the next attempt; empty if all was read."""
    if not unread:
        return ()
    amounts = ", ".join(f"{signal} {seconds / HOUR_SECONDS:.1f} h" for signal, seconds in unread.items())
    causes = "; ".join(error.message for error in source.errors[:2])
    return (
        f"incomplete: parts of the history were not read: {amounts}{f' ({causes})' if causes else ''}; nothing based "
        f"on these parts is lowered or called idle, and the next scan requests the parts again",
    )


def open_holes(store: Store, state: PullState | None = None) -> tuple[Hole, ...]:
    """Return the days whose stored file is lost and that were not requested again; `state` is read if it is None."""
    requested_paths = set((state or _state(store)).asked_again)
    return tuple(hole for hole in store.holes() if hole.path not in requested_paths)


def missing_spans(store: Store, signals: Sequence[Signal]) -> tuple[SignalSpan, ...]:
    """Return the time spans of these signals that are missing in the store.

    They are spans for which the source failed, and whole days whose stored file is lost.
    """
    lost = store.holes(signals)
    days = (SignalSpan(hole.signal, hole.start_seconds, hole.start_seconds + DAY_SECONDS) for hole in lost)
    state = store.read_document(STATE_DOCUMENT, PullState)
    return (*(span for span in (state.holes if state else ()) if span.signal in signals), *days)


def add_lost_holes(state: PullState, lost: Sequence[Hole]) -> PullState:
    """Return the state with a hole for each lost day that was requested before, so that it is requested once more."""
    spans = [
        SignalSpan(hole.signal, hole.start_seconds, min(hole.start_seconds + DAY_SECONDS, state.until[hole.signal]))
        for hole in lost
        if hole.signal in state.until
    ]
    new = [span for span in spans if span.end_seconds > span.start_seconds and span not in state.holes]
    return replace(state, holes=[*state.holes, *dict.fromkeys(new)])


def _state(store: Store) -> PullState:
    """Return the stored pull state; if it is missing, what the store contains counts as requested.

    Without any usage of pods nothing counts as requested: the source was a wrong one, and the right one is queried for
    everything. Nor does what a recorder wrote, because a source may fill its gaps.
    """
    state = store.read_document(STATE_DOCUMENT, PullState)
    if state is not None:
        return state if store.usage_span() else PullState(asked_again=state.asked_again)
    if store.read_document(STATUS_DOCUMENT, RecorderStatus) is not None:
        return PullState()
    stored = {signal: span for signal in Signal if (span := store.span(signal))}
    return PullState({s: a for s, (a, _) in stored.items()}, {s: b for s, (_, b) in stored.items()})


def _with_silences_asked(state: PullState, store: Store, now_seconds: int, settings: ProfilerSettings) -> PullState:
    """Return the state in which the window's time without any usage is requested once more, if it never was."""
    if state.silences_asked or not state.until:
        return replace(state, silences_asked=True)
    window = TimeGrid.from_span(now_seconds - settings.window_days * DAY_SECONDS, now_seconds, FIVE_MINUTES_SECONDS)
    usage = (store.read(Signal.CPU_USAGE_MEAN, day).values for day in _days(window))
    return ask_silences(state, window, np.concatenate([(~np.isnan(values)).any(axis=0) for values in usage]))


def _state_by_clock(state: PullState, source: MetricSource, now_seconds: int) -> tuple[PullState, tuple[str, ...]]:
    """Return the state that is valid at this time, and notes on it.

    If earlier pulls are in the future, either their clock was ahead or this machine's clock is behind. The source's
    clock decides; raise SourceUnfit if this machine's is behind.
    """
    if not is_of_future(state, now_seconds):
        return state, ()
    if (behind := _clock_ahead_seconds(source, now_seconds)) is not None and behind > HOUR_SECONDS:
        raise SourceUnfit(
            f"the clock of this machine says {_moment(now_seconds)}, which is before the last pull; that of "
            f"{source.describe()} says {_moment(now_seconds + behind)}",
            fix="Correct the clock of this machine, then scan again. Nothing was changed.",
        )
    return without_future(state, now_seconds), (
        f"earlier scans stored data of times after {_moment(now_seconds)}, because a clock was wrong: the whole window "
        "was read again",
    )


def _clock_ahead_seconds(source: MetricSource, now_seconds: int) -> int | None:
    """Return by how much the source's clock is ahead of this machine's; None if it reports no time."""
    theirs = source.clock_seconds() if isinstance(source, KnowsTime) else None
    return None if theirs is None else int(theirs) - now_seconds


def _require_usage(source: MetricSource, store: Store, recording: RecorderStatus | None, window: TimeWindow) -> None:
    """Raise SourceUnfit if the source has no usage in the window although earlier pulls stored some."""
    if recording is not None or not isinstance(source, KnowsTime) or not store.usage_span():
        return
    if source.has_usage(window):
        return
    ahead = _clock_ahead_seconds(source, window.end_seconds)
    clocks = (
        f"; its clock says {_moment(window.end_seconds + ahead)}, this machine's {_moment(window.end_seconds)}"
        if ahead is not None and abs(ahead) > HOUR_SECONDS
        else ""
    )
    raise SourceUnfit(
        f"{source.describe()} has no CPU usage of any container from {_moment(window.start_seconds)} to "
        f"{_moment(window.end_seconds)}, and the history stored as {store.cluster} has some{clocks}",
        fix="Check the labels that choose the cluster (profiler.prometheus.labels), the tenant, the address, and this "
        "machine's clock. Nothing was changed: once they are right, the next scan continues where the last one ended.",
    )


def _proof(store: Store, state: PullState, recording: RecorderStatus | None, since_seconds: int) -> PullProof:
    """Return the proof with which a pull begins: the time up to which earlier pulls found samples.

    With a recorder, its stored usage counts too. If kube-state-metrics had samples in the window, it must have newer
    ones; if it had none, it is not waited for.
    """
    usage_seconds = state.until.get(Signal.CPU_USAGE_MEAN, 0)
    if recording is not None:
        span = store.usage_span()
        return PullProof(max(usage_seconds, span[1] if span else 0))
    restart_span = store.span(Signal.RESTARTS)
    waits = restart_span is not None and restart_span[1] > since_seconds
    return PullProof(usage_seconds, state.until.get(Signal.RESTARTS, 0) if waits else None)


def _sightings_before(store: Store, state: PullState, spans: Sequence[SignalSpan], since_seconds: int) -> Sightings:
    """Return what the usage stored by unfinished pulls shows, and the memory limits before the spans of this pull."""
    sightings = Sightings(signals=set(state.open_signals))
    for span in state.open_spans:
        if span.signal in SHOWING:
            kept_span = replace(span, start_seconds=max(span.start_seconds, since_seconds))
            for day in _days(kept_span.grid):
                sightings.add([(span.signal, store.read(span.signal, day))])
    for span in spans:
        if span.signal is Signal.MEMORY_LIMIT:
            before = TimeGrid.from_span(span.start_seconds - HOUR_SECONDS, span.start_seconds, HOUR_SECONDS)
            sightings.limits.add(store.read(span.signal, before))
    return sightings


def _store_block(
    block: UsageBlock, store: Store, state: PullState, proof: PullProof, stands: RecordedTime | None
) -> PullState:
    """Append a block, except where a recorder's values take precedence, and store the progress."""
    for signal, usage in block.usage:
        store.append(signal, _beside_recorded(usage, signal, store, stands))
    signals_seen = dict.fromkeys((*state.open_signals, *(signal for signal, usage in block.usage if usage.refs)))
    holes = [*state.holes, *block.holes]
    after = replace(state, until=proof.until(state.until), holes=holes, open_signals=list(signals_seen))
    if after != state:
        store.write_document(STATE_DOCUMENT, after)
    return after


def _beside_recorded(new: Usage[Any], signal: Signal, store: Store, stands: RecordedTime | None) -> Usage[Any]:
    """Return the usage without the slots in which a recorder's values take precedence."""
    if stands is None or signal not in SIGNALS:
        return new
    return without_recorded(new, store.read(signal, new.grid), stands)


def _off_notes(source: MetricSource, store: Store, window: TimeWindow) -> tuple[str, ...]:
    """Examine the window's spans without a sample of any node; return the note on times when the cluster was off."""
    nodes = store.read(Signal.NODE_CPU_USAGE_MEAN, TimeGrid.from_span(*window, FIVE_MINUTES_SECONDS))
    examined_before = store.read_document(off_times.OFF_DOCUMENT, off_times.OffTimes) or off_times.OffTimes()
    silent = off_times.silences(nodes)
    examined = examine(examined_before.of(silent, window[0]), silent, source)
    if examined != examined_before:
        store.write_document(off_times.OFF_DOCUMENT, examined)
    return off_times.note(examined.off)


def _node_totals(
    store: Store, spans: Sequence[SignalSpan], inventory: Inventory, sightings: Sightings, recorded: RecordedTime | None
) -> tuple[str, ...]:
    """Store the sum of each node's pods, day by day, if the source has no series of nodes.

    A recorder's value of a node takes precedence over any sum, because a node runs more than its pods. Return the note
    on the sums, or on series of nodes none of which has the name of a node of the inventory; empty without either.
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
    if missing:
        return ("nodes report no usage of their own, so the sum of their pods' usage is used",)
    hour = TimeGrid.from_span(inventory.time_seconds - HOUR_SECONDS, inventory.time_seconds, FIVE_MINUTES_SECONDS)
    measured = sorted(ref.name for ref in store.read(Signal.NODE_CPU_USAGE_MEAN, hour).refs)
    nodes = sorted(node.name for node in inventory.nodes)
    if not measured or not nodes or not set(nodes).isdisjoint(measured):
        return ()
    return (
        f"no node's usage is known: series name nodes such as {measured[0]}, but the nodes have names such as "
        f"{nodes[0]}; relabel cAdvisor's label node to the node's own name (__meta_kubernetes_node_name)",
    )


def _source_notes(sightings: Sightings, stands: RecordedTime | None) -> tuple[str, ...]:
    """Return notes on requested GPUs without metrics, and on the time for which a recorder's values are used."""
    notes: list[str] = []
    requested = not sightings.signals.isdisjoint({Signal.GPU_CORE_REQUEST, Signal.GPU_INSTANCE_REQUEST})
    if requested and Signal.GPU_CORE_MEAN not in sightings.signals:
        notes.append(
            "no GPU metrics: containers request GPUs, but DCGM's exporter is not scraped, so GPU usage is unknown"
        )
    if stands is not None:
        since, until = _moment(int(stands.begin_seconds)), _moment(int(stands.end_seconds))
        notes.append(f"from {since} to {until} usage is the recorder's, whose rates are finer than Prometheus'")
    return tuple(notes)


def _days(grid: TimeGrid) -> Iterator[TimeGrid]:
    for start in range(grid.start_seconds, grid.end_seconds, DAY_SECONDS):
        yield TimeGrid.from_span(start, min(start + DAY_SECONDS, grid.end_seconds), grid.step_seconds)
