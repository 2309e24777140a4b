"""Pulls that are broken off, and answers that come late or from the wrong place, cost time and no history."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Container, EventKind, Inventory, Node, Pod, Workload
from cotenant.base.errors import SourceUnfit, StoreError
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Progress, Silent
from cotenant.base.resource import MIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, TimeWindow, Usage
from cotenant.profiler.history import STATE_DOCUMENT, UsageBlock, pull
from cotenant.profiler.pull_state import PullState, SignalSpan
from cotenant.profiler.settings import ProfilerSettings

NOW = 1_795_089_600 + 17 * 60
DAYS = 2
BEGIN = NOW // DAY_SECONDS * DAY_SECONDS - 4 * DAY_SECONDS
API = WorkloadRef("pay", "Deployment", "api")
STAYS, GONE = (PodContainerRef("pay", name, "app") for name in ("api-0", "api-old"))
KILL = NOW // HOUR_SECONDS * HOUR_SECONDS - 30 * HOUR_SECONDS
"""Start of the hour in which the pod that is gone was killed."""
GOES, COMES = KILL + 2 * HOUR_SECONDS, KILL + HOUR_SECONDS
SIGNALS = (
    Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX, Signal.CPU_REQUEST, Signal.MEMORY_LIMIT, Signal.OOM_KILLS,
    Signal.RESTARTS,
)  # fmt: skip
OF_STATE = SIGNALS[2:]
LIMIT = 512 * MIB


def truth(signal: Signal) -> Usage[PodContainerRef]:
    """Four days and two more of two pods: one was killed, got twice its limit at once, and left."""
    spec = signal.spec
    grid = TimeGrid(BEGIN, spec.step_seconds, 6 * DAY_SECONDS // spec.step_seconds)
    times = grid.times()
    level = {Signal.CPU_REQUEST: 250.0, Signal.MEMORY_LIMIT: float(LIMIT), Signal.OOM_KILLS: 0.0, Signal.RESTARTS: 0.0}
    values = np.full((2, grid.size), np.nan, np.float32)
    for row, lived in enumerate((times >= COMES, times < GOES)):
        values[row, lived] = level.get(signal, 1.0 + times[lived] % 977)
    if signal is Signal.MEMORY_LIMIT:
        values[0, times >= NOW - DAY_SECONDS] *= 2
        values[1, times >= KILL] *= 2
    if signal in (Signal.OOM_KILLS, Signal.RESTARTS):
        values[1, times == KILL] = 1
    return Usage((STAYS, GONE), grid, values, spec.resource, spec.statistic)


TRUTH = {signal: truth(signal) for signal in SIGNALS}


class Server:
    """A source with samples of usage and of state up to some moment; none at all where it is the wrong one."""

    def __init__(self, usage_until: int = NOW, state_until: int = NOW, clock: float | None = None) -> None:
        self.until = {s: state_until if s in OF_STATE else usage_until for s in SIGNALS}
        self.clock = clock
        self.asked: list[SignalSpan] = []

    def describe(self) -> str:
        return "server"

    def inventory(self, now_seconds: int, window: TimeWindow) -> Inventory:  # noqa: ARG002 - the protocol
        moment = min(now_seconds, self.until[Signal.CPU_USAGE_MEAN])
        amounts = {Resource.CPU: 4000, Resource.MEMORY: 8192 * MIB}
        template = Container("app", {Resource.CPU: 250}, {Resource.MEMORY: 2 * LIMIT})
        pods = (Pod("pay", "api-0", API, "n1", COMES), Pod("pay", "api-old", API, "n1", 0, moment))
        return Inventory("c", moment, (Node("n1", amounts, amounts),), (Workload(API, 1, (template,)),), pods)

    def has_usage(self, window: TimeWindow) -> bool:
        return self.until[Signal.CPU_USAGE_MEAN] > window.start_seconds

    def clock_seconds(self) -> float | None:
        return self.clock

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:  # noqa: ARG002 - the protocol
        days = sorted({start // DAY_SECONDS for s in spans for start in s.grid.times().tolist()})
        for day in days:
            for span in spans:
                start, end = max(span.start_seconds, day * DAY_SECONDS), min(span.end_seconds, (day + 1) * DAY_SECONDS)
                if end > start:
                    self.asked.append(SignalSpan(span.signal, start, end))
                    yield UsageBlock(tuple(self.series(span.signal, start, end)), (), {span.signal: end})

    def series(self, signal: Signal, start: int, end: int) -> Iterator[tuple[Signal, Usage[Any]]]:
        if signal in TRUTH:
            full_usage = TRUTH[signal]
            grid = TimeGrid.from_span(start, end, signal.spec.step_seconds)
            first = full_usage.grid.index_of(grid.start_seconds)
            values = full_usage.values[:, first : first + grid.size].copy()
            values[:, grid.times() + grid.step_seconds > self.until[signal]] = np.nan
            with_samples = np.flatnonzero((~np.isnan(values)).any(axis=1))
            if with_samples.size:
                yield signal, replace(full_usage, grid=grid, values=values).select(with_samples)

    errors = ()
    peak_seconds = 0.0

    def record(self, now_seconds: int) -> QualityRecord:
        return QualityRecord(now_seconds, self.describe(), 60.0, len(self.asked), 0)


class BreakingStore(Store):
    """A store whose write of some number fails, as a full disk or an ended process would have it."""

    writes = 0
    breaks_at = 10**9

    def _count(self) -> None:
        self.writes += 1
        if self.writes == self.breaks_at:
            raise StoreError("no space left on device")

    def append(self, signal: Signal, usage: Usage[Any]) -> None:
        self._count()
        super().append(signal, usage)

    def compact(self, most_parts_of_newest: int = 0) -> None:
        self._count()
        super().compact(most_parts_of_newest)

    def write_inventory(self, inventory: Inventory) -> None:
        self._count()
        super().write_inventory(inventory)

    def write_document(self, name: str, document: object) -> None:
        self._count()
        super().write_document(name, document)


def pulled(source: Server, store: Store, now: int = NOW) -> QualityRecord:
    return pull(source, store, ProfilerSettings(window_days=DAYS), FixedClock(now), Silent())


def state_of(store: Store) -> PullState:
    state = store.read_document(STATE_DOCUMENT, PullState)
    assert state is not None
    return state


def contents(store: Store, now: int = NOW) -> dict[Signal, list[tuple[Any, list[float]]]]:
    """Every value of the window, by signal."""
    by_signal = {}
    for signal in (*SIGNALS, Signal.NODE_CPU_USAGE_MEAN, Signal.NODE_MEMORY_WORKING_SET_MAX):
        grid = TimeGrid.from_span(now - DAYS * DAY_SECONDS, now, signal.spec.step_seconds)
        usage = store.read(signal, grid)
        by_signal[signal] = [
            (r, np.nan_to_num(v, nan=-1).tolist()) for r, v in zip(usage.refs, usage.values, strict=True)
        ]
    return by_signal


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> BreakingStore:
    """A store after one pull that nothing disturbed."""
    store = BreakingStore(f"file://{tmp_path_factory.mktemp('whole')}", "c")
    pulled(Server(), store)
    return store


def test_a_pull_that_nothing_disturbs_tells_of_the_kill_and_the_gone_pod(undisturbed: Store) -> None:
    inventory = undisturbed.read_inventory()
    assert inventory is not None
    assert {(e.time_seconds, e.kind, e.subject) for e in inventory.events} == {
        (KILL, EventKind.OOM_KILL, GONE),
        (KILL, EventKind.RESTART, GONE),
    }
    assert {e.memory_limit_bytes for e in inventory.events if e.kind is EventKind.OOM_KILL} == {LIMIT}
    # the window begins 48 h ago, at 12:17: the first whole slot of 5 minutes in it is that of 12:20
    first = NOW - DAYS * DAY_SECONDS + 3 * 60
    assert {(p.name, p.start_seconds, p.end_seconds) for p in inventory.pods} == {
        ("api-0", COMES, None),
        ("api-old", first, GOES),
    }


def test_scans_every_hour_know_the_limit_that_was_raised_right_after_a_kill(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    for now in (KILL, KILL + HOUR_SECONDS, KILL + 2 * HOUR_SECONDS):
        pulled(Server(now, now), store, now)
    inventory = store.read_inventory()
    assert inventory is not None
    assert {e.memory_limit_bytes for e in inventory.events if e.kind is EventKind.OOM_KILL} == {LIMIT}


def test_a_pull_that_breaks_off_at_its_last_write_adds_the_same_up_on_nodes(
    undisturbed: BreakingStore, tmp_path: Path
) -> None:
    store = BreakingStore(f"file://{tmp_path}", "c")
    store.breaks_at = undisturbed.writes
    with pytest.raises(StoreError):
        pulled(Server(), store)
    pulled(Server(), store)
    # from the hour in which api-old went on, n1 has what api-0 uses alone: 436 at the first of its slots, not 436 + 136
    assert contents(store) == contents(undisturbed)
    assert contents(undisturbed)[Signal.NODE_CPU_USAGE_MEAN][0][1][236] == 436


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(st.data())
def test_wherever_pulls_break_off_the_last_one_ends_as_a_single_one_does(
    undisturbed: BreakingStore, data: st.DataObject
) -> None:
    breaks = data.draw(st.lists(st.integers(1, undisturbed.writes), min_size=1, max_size=3), label="breaks at writes")
    with tempfile.TemporaryDirectory() as folder:
        store = BreakingStore(f"file://{folder}", "c")
        for at in breaks:
            store.writes, store.breaks_at = 0, at
            try:
                pulled(Server(), store)
            except StoreError:
                continue
        store.breaks_at = 10**9
        pulled(Server(), store)
        assert store.read_inventory() == undisturbed.read_inventory()
        assert contents(store) == contents(undisturbed)
        assert (state_of(store).until, state_of(store).open_spans) == (state_of(undisturbed).until, [])


pauses = st.integers(300, 9 * HOUR_SECONDS)
lags = st.sampled_from([0, 0, 0, 1200, 3 * HOUR_SECONDS, 40 * HOUR_SECONDS])


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(pauses, lags, lags, st.booleans()), max_size=5))
def test_whatever_came_late_is_asked_for_until_it_is_there(
    undisturbed: Store, turns: list[tuple[int, int, int, bool]]
) -> None:
    """Samples of pods or of kube-state-metrics lag behind and are there later; some pulls ask the wrong server."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"file://{folder}", "c")
        usage_until = state_until = now = NOW - sum(pause for pause, *_ in turns)
        pulled(Server(now, now), store, now)
        for pause, usage_lag, state_lag, wrong in turns:
            now += pause
            usage_until, state_until = max(usage_until, now - usage_lag), max(state_until, now - state_lag)
            if wrong:
                with pytest.raises(SourceUnfit, match="has no CPU usage of any container"):
                    pulled(Server(0, 0), store, now)
            else:
                pulled(Server(usage_until, state_until), store, now)
        pulled(Server(), store)
        assert {s: contents(store)[s] for s in SIGNALS} == {s: contents(undisturbed)[s] for s in SIGNALS}
        inventory, expected = store.read_inventory(), undisturbed.read_inventory()
        assert inventory and expected
        assert set(inventory.events) >= set(expected.events)


def test_a_wrong_server_changes_nothing_and_its_error_says_what_may_be_wrong(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(Server(), store, NOW)
    before = (state_of(store), store.read_inventory(), contents(store))
    with pytest.raises(SourceUnfit, match=r"history stored as c has some$") as caught:
        pulled(Server(0, 0, clock=NOW + 6 * HOUR_SECONDS), store, NOW + 6 * HOUR_SECONDS)
    assert all(cause in caught.value.fix for cause in ("labels", "tenant", "clock"))
    assert (state_of(store), store.read_inventory(), contents(store)) == before


@pytest.mark.parametrize("days", [1, 365])
def test_a_clock_that_is_ahead_costs_nothing(tmp_path: Path, days: int) -> None:
    """A day ahead, the server is merely late; a year ahead it has nothing in the window."""
    store = Store(f"file://{tmp_path}", "c")
    pulled(Server(), store)
    before, wrong = store.read_inventory(), NOW + days * DAY_SECONDS
    if days == 1:
        pulled(Server(clock=NOW), store, wrong)
    else:
        with pytest.raises(SourceUnfit, match="its clock says 2026-11-19 12:17:00 UTC, this machine's 2027-11-19"):
            pulled(Server(clock=NOW), store, wrong)
    after = store.read_inventory()
    assert before and after
    assert (after.events, {p.name for p in after.pods}) == (before.events, {"api-0", "api-old"})
    assert max(state_of(store).until.values()) <= NOW


def test_pulls_that_lie_in_the_future_are_asked_for_again(tmp_path: Path, undisturbed: Store) -> None:
    """As an earlier version left it, whose pulls went on to wherever a clock stood."""
    store, ahead = Store(f"file://{tmp_path}", "c"), NOW + 365 * DAY_SECONDS
    pulled(Server(), store)
    state, inventory = state_of(store), store.read_inventory()
    assert inventory is not None
    store.write_document(STATE_DOCUMENT, replace(state, until=dict.fromkeys(state.until, ahead)))
    store.write_inventory(replace(inventory, time_seconds=ahead, events=(), pods=()))
    record = pulled(Server(clock=NOW + 30), store)
    assert any("because a clock was wrong" in note for note in record.notes)
    assert state_of(store).until == state_of(undisturbed).until
    assert store.read_inventory() == undisturbed.read_inventory()
    again = Server()
    pulled(again, store)
    assert again.asked == []


@pytest.mark.parametrize("scanned_since", [True, False], ids=["between two scans", "after the last scan"])
def test_hours_that_an_earlier_version_lost_to_a_wrong_label_are_asked_for_once(
    tmp_path: Path, undisturbed: Store, scanned_since: bool
) -> None:
    """As an earlier version left it: an answer without a sample counted as complete up to its end."""
    store, last = Store(f"file://{tmp_path}", "c"), NOW - 20 * HOUR_SECONDS
    lost_until = last + 6 * HOUR_SECONDS
    pulled(Server(last, last), store, last)
    state = state_of(store)
    until = {signal: lost_until // signal.spec.step_seconds * signal.spec.step_seconds for signal in state.until}
    store.write_document(STATE_DOCUMENT, replace(state, until=until))
    if scanned_since:
        pulled(Server(), store, NOW)
        assert contents(store) != contents(undisturbed)
    store.write_document(STATE_DOCUMENT, replace(state_of(store), silences_asked=False))
    pulled(Server(), store)
    assert contents(store) == contents(undisturbed)
    again = Server()
    pulled(again, store)
    assert again.asked == []


def test_a_clock_that_is_behind_the_last_pull_is_refused_where_the_server_knows_better(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(Server(), store)
    before = state_of(store)
    with pytest.raises(SourceUnfit, match=r"the clock of this machine says 2026-11-16.*that of server says 2026-11-19"):
        pulled(Server(clock=NOW), store, NOW - 3 * DAY_SECONDS)
    assert state_of(store) == before


def test_without_kube_state_metrics_a_pull_without_anything_new_asks_nothing(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(Server(state_until=0), store)
    again = Server(state_until=0)
    pulled(again, store)
    assert again.asked == []


def test_what_kube_state_metrics_missed_is_given_up_once_the_window_has_passed_it(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    silent = NOW - DAYS * DAY_SECONDS - HOUR_SECONDS
    pulled(Server(silent, silent), store, silent)
    pulled(Server(state_until=silent), store)
    again = Server(state_until=silent)
    pulled(again, store)
    assert again.asked == []
