from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Container, Event, EventKind, Inventory, Node, Pod, Workload
from cotenant.base.errors import SourceError, SourceForbidden, SourceUnreachable
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Progress, Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, Statistic, TimeGrid, Usage
from cotenant.profiler.history import STATE_DOCUMENT, UsageBlock, open_holes, pull
from cotenant.profiler.pull_state import PullState, SignalSpan, begin_pull, finish_pull, spans_to_pull
from cotenant.profiler.settings import ProfilerSettings
from cotenant.profiler.sightings import (
    Sightings,
    by_usage,
    carried_over,
    merge_inventories,
    unnamed_notes,
    with_history,
)

NOW = 1_795_089_600 + 17 * 60
SETTINGS = ProfilerSettings(window_days=2)
WEB = WorkloadRef("shop", "Deployment", "web")
REF = PodContainerRef("shop", "web-1", "app")


def asked_slots(spans: tuple[SignalSpan, ...], signal: Signal) -> set[int]:
    return {int(t) for span in spans if span.signal is signal for t in span.grid.times()}


def finished(state: PullState, spans: tuple[SignalSpan, ...]) -> PullState:
    """The state after a pull in which every span was answered."""
    running = begin_pull(state, spans)
    until = dict(running.until)
    for span in spans:
        until[span.signal] = max(until[span.signal], span.end_seconds)
    return finish_pull(PullState(running.since, until, running.holes), spans, NOW - 2 * DAY_SECONDS)


def test_a_first_pull_wants_the_whole_window_of_every_signal() -> None:
    spans = spans_to_pull(NOW, PullState(), SETTINGS)
    assert {s.signal for s in spans} == set(Signal)
    for span in spans:
        step = span.signal.spec.step_seconds
        assert span.end_seconds == NOW // step * step
        assert 0 <= span.start_seconds - (NOW - 2 * DAY_SECONDS) < step


def test_nothing_is_wanted_twice_but_the_overlap() -> None:
    state = finished(PullState(), spans_to_pull(NOW, PullState(), SETTINGS))
    assert spans_to_pull(NOW, state, SETTINGS) == ()
    later = spans_to_pull(NOW + 600, state, SETTINGS)
    # Two new 5-minute slots and the 10 minutes before them; no new whole hour.
    assert asked_slots(later, Signal.CPU_USAGE_MEAN) == {NOW // 300 * 300 + 300 * k for k in (-2, -1, 0, 1)}
    assert asked_slots(later, Signal.CPU_REQUEST) == set()


def test_a_longer_window_asks_for_the_time_before_the_first_pull_only() -> None:
    state = finished(PullState(), spans_to_pull(NOW, PullState(), SETTINGS))
    spans = spans_to_pull(NOW, state, ProfilerSettings(window_days=3))
    assert {s.signal for s in spans} == set(Signal)
    for span in spans:
        assert span.end_seconds == state.since[span.signal]
    again = finished(state, spans)
    assert spans_to_pull(NOW, again, ProfilerSettings(window_days=3)) == ()


def test_a_hole_is_asked_again_until_it_is_filled_or_too_old() -> None:
    state = finished(PullState(), spans_to_pull(NOW, PullState(), SETTINGS))
    start = (NOW - HOUR_SECONDS) // 300 * 300
    hole = SignalSpan(Signal.MEMORY_WORKING_SET_MAX, start, start + 900)
    state = replace(state, holes=[hole])
    assert spans_to_pull(NOW, state, SETTINGS) == (hole,)
    assert finished(state, (hole,)).holes == []
    assert spans_to_pull(NOW + 3 * DAY_SECONDS, state, SETTINGS).count(hole) == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=6), st.integers(0, 900))
def test_however_often_one_pulls_every_slot_of_the_window_is_asked(pauses: list[int], overlap: int) -> None:
    chosen = ProfilerSettings(window_days=1, overlap_seconds=overlap)
    state, now, queried = PullState(), NOW, {signal: set[int]() for signal in Signal}
    for pause in pauses:
        now += pause
        spans = spans_to_pull(now, state, chosen)
        for signal in Signal:
            queried[signal] |= asked_slots(spans, signal)
        state = finished(state, spans)
    for signal in Signal:
        step = signal.spec.step_seconds
        assert queried[signal] >= set(range(-(-(now - DAY_SECONDS) // step) * step, now // step * step, step))


def pod(name: str, start: int = NOW - 7200, end: int | None = None) -> Pod:
    return Pod("shop", name, WEB, "n1", start, end)


def inventory(moment: int, *pods: Pod, containers: tuple[Container, ...] = ()) -> Inventory:
    running = sum(p.running for p in pods)
    return Inventory("c", moment, (), (Workload(WEB, running, containers),) if pods else (), pods)


def test_a_pod_that_left_between_two_snapshots_stays_known_until_its_history_is_too_old() -> None:
    first, second = inventory(NOW - 600, pod("web-1")), inventory(NOW, pod("web-2"))
    joined = merge_inventories(first, second, NOW - DAY_SECONDS)
    assert {(p.name, p.end_seconds) for p in joined.pods} == {("web-1", NOW), ("web-2", None)}
    much_later = merge_inventories(joined, inventory(NOW + 2 * DAY_SECONDS, pod("web-2")), NOW + DAY_SECONDS)
    assert {p.name for p in much_later.pods} == {"web-2"}


def on_nodes(moment: int, sizes: Mapping[str, int], *pods: Pod) -> Inventory:
    nodes = tuple(Node(name, {Resource.CPU: cores}, {Resource.CPU: cores}) for name, cores in sizes.items())
    return replace(inventory(moment, *pods), nodes=nodes)


@pytest.mark.parametrize("pods_seen", [True, False])
def test_a_node_that_leaves_or_becomes_smaller_stays_known_while_its_pods_are(pods_seen: bool) -> None:
    join = merge_inventories if pods_seen else carried_over
    pods = tuple(replace(pod(f"web-{name}"), node=name) for name in ("big", "same", "small"))
    sizes = {"big": 64_000, "same": 32_000, "small": 16_000, "empty": 96_000}
    first = on_nodes(NOW - 600, sizes, *pods)
    # nothing ran on "empty", so no usage is bounded by it; the node "same" came back with half its cores
    now = on_nodes(NOW, {"same": 16_000, "small": 16_000}, *pods[2:] * pods_seen)
    joined = join(first, now, NOW - DAY_SECONDS)
    assert [(n.name, n.capacity[Resource.CPU], n.end_seconds) for n in joined.gone_nodes] == [
        ("big", 64_000, NOW), ("same", 32_000, NOW),
    ]  # fmt: skip
    again = merge_inventories(joined, on_nodes(NOW + 600, sizes, *pods), NOW - DAY_SECONDS)
    assert not again.gone_nodes
    later = merge_inventories(joined, replace(now, time_seconds=NOW + DAY_SECONDS), NOW + 300)
    assert not later.gone_nodes


def test_a_running_pod_keeps_the_start_that_usage_showed_where_nothing_tells_when_it_was_created() -> None:
    first, second = inventory(NOW - 600, pod("web-1", NOW - 7200)), inventory(NOW, pod("web-1", 0))
    assert [p.start_seconds for p in merge_inventories(first, second, NOW - DAY_SECONDS).pods] == [NOW - 7200]
    created_anew = inventory(NOW, pod("web-1", NOW - 60))
    assert [p.start_seconds for p in merge_inventories(first, created_anew, NOW - DAY_SECONDS).pods] == [NOW - 60]


def test_a_workload_without_running_pods_keeps_its_template() -> None:
    template = (Container("app", {Resource.CPU: 100}),)
    first = inventory(NOW - 600, pod("web-1"), containers=template)
    joined = merge_inventories(first, Inventory("c", NOW, (), (), ()), NOW - DAY_SECONDS)
    assert joined.workloads == (Workload(WEB, 0, template),)


def test_a_link_that_is_missing_now_is_known_from_the_scan_before() -> None:
    first = inventory(NOW - 600, pod("web-1"))
    half = WorkloadRef("shop", "ReplicaSet", "web-7d9c5b4f8x")
    lost = tuple(replace(pod(name), workload=half, owner_known=False) for name in ("web-1", "web-2"))
    second = Inventory("c", NOW, (), (Workload(half, 2, (Container("app"),)),), lost)
    joined = merge_inventories(first, second, NOW - DAY_SECONDS)
    # web-1 was the Deployment's: so is its ReplicaSet, and with it web-2
    assert {(p.name, p.workload, p.owner_known) for p in joined.pods} == {("web-1", WEB, True), ("web-2", WEB, True)}
    assert joined.workloads == (Workload(WEB, 2, (Container("app"),)),)


@pytest.mark.parametrize("minutes", [0, 60])
def test_a_pod_that_is_told_of_no_more_runs_on_while_it_uses_something(minutes: int) -> None:
    stored = inventory(NOW - 3600, pod("web-1"), pod("web-2"))
    scan = inventory(NOW, pod("web-1"))
    start = NOW // 300 * 300 - 3600
    refs = (REF, PodContainerRef("shop", "web-2", "app"))

    def seen(until: int) -> Sightings:
        values = np.full((2, (until - start) // 300), 5, np.float32)
        sightings, grid = Sightings(), TimeGrid(start, 300, values.shape[1])
        sightings.add([(Signal.CPU_USAGE_MEAN, Usage(refs, grid, values, Resource.CPU, Statistic.MEAN))])
        return sightings

    once = with_history(merge_inventories(stored, scan, NOW - DAY_SECONDS), seen(NOW))
    # it may have been deleted a minute ago: an earlier scan has to have missed it
    assert {p.name: p.running for p in once.pods} == {"web-1": True, "web-2": False}
    later = inventory(NOW + 60 * minutes, pod("web-1"))
    twice = with_history(merge_inventories(once, later, NOW - DAY_SECONDS), seen(NOW + 60 * minutes))
    again = with_history(merge_inventories(twice, later, NOW - DAY_SECONDS), seen(NOW + 60 * minutes))
    for sightings in (twice, again):
        assert {p.name: p.running for p in sightings.pods} == {"web-1": True, "web-2": minutes == 60}
        assert [w.replicas for w in sightings.workloads] == [1 + (minutes == 60)]
        assert any("no longer reports" in note for note in unnamed_notes(sightings)) == (minutes == 60)


def usage(signal: Signal, start: int, values: list[float]) -> tuple[Signal, Usage[PodContainerRef]]:
    grid = TimeGrid(start, signal.spec.step_seconds, len(values))
    return signal, Usage((REF,), grid, np.array([values], np.float32), signal.spec.resource, signal.spec.statistic)


def test_usage_tells_when_a_gone_pod_lived_what_it_asked_for_and_what_befell_it() -> None:
    start, nan = NOW // 3600 * 3600 - 7200, np.nan
    sightings = Sightings()
    sightings.add([usage(Signal.CPU_USAGE_MEAN, start, [nan, 5, nan, 7, nan])])
    sightings.add([usage(Signal.MEMORY_LIMIT, start, [1024.0]), usage(Signal.CPU_REQUEST, start, [250.0])])
    sightings.add([usage(Signal.OOM_KILLS, start, [0, 2])])
    joined = with_history(inventory(NOW, pod("web-1", 0, NOW)), sightings)
    # First value in slot 1, last one in slot 3, which ends at start + 4 x 300.
    assert [(p.start_seconds, p.end_seconds) for p in joined.pods] == [(start + 300, start + 1200)]
    assert joined.workloads[0].containers == (Container("app", {Resource.CPU: 250}, {Resource.MEMORY: 1024}),)
    assert joined.events == (Event(start + 3600, EventKind.OOM_KILL, REF, 1024),)
    assert with_history(joined, sightings) == joined


@pytest.mark.parametrize(
    ("limits", "kill", "in_force"),
    [
        ([512, 512, 512, 2048], 1, 512),  # raised two hours after the kill
        ([512, 512, 2048, 2048], 2, 512),  # raised in the hour of the kill, because of it
        ([512, 2048, 2048, 2048], 2, 2048),
        ([np.nan, 512, 2048, 2048], 1, 512),  # nothing is known of the hour before
        ([np.nan, np.nan, np.nan, 512], 1, None),
    ],
)
def test_the_limit_in_force_at_a_kill_is_that_of_the_hour_before_it(
    limits: list[float], kill: int, in_force: int | None
) -> None:
    start, sightings = NOW // 3600 * 3600 - 4 * 3600, Sightings()
    kills = [float(hour == kill) for hour in range(4)]
    # in two blocks, as answers come by day
    for hours in (slice(0, 2), slice(2, 4)):
        begin = start + hours.start * 3600
        sightings.add([usage(Signal.OOM_KILLS, begin, kills[hours]), usage(Signal.MEMORY_LIMIT, begin, limits[hours])])
    (event,) = with_history(inventory(NOW, pod("web-1")), sightings).events
    assert (event.time_seconds, event.memory_limit_bytes) == (start + kill * 3600, in_force)


def test_requests_and_limits_that_are_known_from_samples_alone_are_those_that_were_written() -> None:
    sightings, start = Sightings(), NOW // 3600 * 3600 - 3600
    sightings.add([usage(Signal.MEMORY_LIMIT, start, [1e11]), usage(Signal.MEMORY_REQUEST, start, [512 * 2.0**20])])
    (workload,) = with_history(inventory(NOW, pod("web-1")), sightings).workloads
    # float32 holds 100G as 99,999,997,952
    assert workload.containers == (Container("app", {Resource.MEMORY: 2**29}, {Resource.MEMORY: 10**11}),)


def test_while_kube_state_metrics_is_away_usage_tells_who_runs_and_knowledge_stays() -> None:
    stored = replace(inventory(NOW - 3600, pod("web-1"), pod("web-2")), nodes=(Node("n1", {}, {}),))
    blind = Inventory("c", NOW, (), (), (), notes=("away",))
    sightings = Sightings()
    grid = TimeGrid(NOW // 300 * 300 - 3600, 300, 12)
    refs = (REF, PodContainerRef("shop", "web-2", "app"), PodContainerRef("new", "job-1", "app"))
    values = np.array([[5] * 12, [5] * 3 + [np.nan] * 9, [7] * 12], np.float32)
    sightings.add([(Signal.CPU_USAGE_MEAN, Usage(refs, grid, values, Resource.CPU, Statistic.MEAN))])
    joined = with_history(by_usage(carried_over(stored, blind, NOW - DAY_SECONDS), sightings), sightings)
    # web-2 was silent for the last 45 minutes; job-1 is known by its usage alone.
    assert {p.name: p.running for p in joined.pods} == {"web-1": True, "web-2": False, "job-1": True}
    assert {(w.ref.kind, w.ref.name): w.replicas for w in joined.workloads} == {
        ("Deployment", "web"): 1,
        ("Pod", "job-1"): 1,
    }
    assert [c.name for c in joined.workloads[-1].containers] == ["app"]
    assert (joined.nodes, joined.notes, joined.time_seconds) == (stored.nodes, ("away",), NOW)
    assert by_usage(stored, Sightings()) == stored


# ---- what failed, and what the store lost


class Recorded:
    """A source that answers from usage it holds; spans of a signal in `broken` fail."""

    def __init__(self, usage: dict[Signal, Usage[PodContainerRef]]) -> None:
        self.usage = usage
        self.broken: set[Signal] = set()
        self.errors: tuple[SourceError, ...] = ()
        self.asked: list[SignalSpan] = []

    def describe(self) -> str:
        return "recorded"

    def inventory(self, now_seconds: int, window: tuple[int, int]) -> Inventory:  # noqa: ARG002 - the protocol
        return Inventory("c", now_seconds, (), (), ())

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:  # noqa: ARG002 - the protocol
        for span in spans:
            self.asked.append(span)
            grid = span.grid
            if span.signal in self.broken:
                yield UsageBlock((), (span,), {span.signal: span.end_seconds})
            elif span.signal in self.usage:
                recorded_usage = self.usage[span.signal]
                first, last = (
                    recorded_usage.grid.index_of(grid.start_seconds),
                    recorded_usage.grid.index_of(grid.end_seconds),
                )
                part = replace(recorded_usage, grid=grid, values=recorded_usage.values[:, first:last])
                yield UsageBlock(((span.signal, part),), (), {span.signal: span.end_seconds})
            else:
                yield UsageBlock((), (), {span.signal: span.end_seconds})

    peak_seconds = 0.0

    def record(self, now_seconds: int) -> QualityRecord:
        return QualityRecord(now_seconds, self.describe(), 60.0, len(self.asked), 0)


CPU_MEAN = Signal.CPU_USAGE_MEAN
HELD = TimeGrid(NOW // DAY_SECONDS * DAY_SECONDS - 4 * DAY_SECONDS, 300, 5 * 288)


@pytest.fixture
def source() -> Recorded:
    """Five days of one container whose usage in slot k is k."""
    values = np.arange(HELD.size, dtype=np.float32)[None, :]
    return Recorded({CPU_MEAN: Usage((REF,), HELD, values, Resource.CPU, Statistic.MEAN)})


def pulled(source: Recorded, store: Store, now: int, days: int = 2) -> QualityRecord:
    source.asked.clear()
    return pull(source, store, ProfilerSettings(window_days=days), FixedClock(now), Silent())


def stored(store: Store, now: int) -> list[float]:
    grid = TimeGrid.from_span(now - 2 * DAY_SECONDS, now, 300)
    usage = store.read(CPU_MEAN, grid)
    return usage.values[0].tolist() if usage.refs else []


def expected(now: int) -> list[float]:
    grid = TimeGrid.from_span(now - 2 * DAY_SECONDS, now, 300)
    first = HELD.index_of(grid.start_seconds)
    return [float(k) for k in range(first, first + grid.size)]


def day_file(folder: Path, days_ago: int) -> Path:
    Store(f"file://{folder}", "c").compact()  # a few parts of the newest day stay apart until then
    return sorted((folder / "c" / "usage" / CPU_MEAN.value).glob("*.parquet"))[-1 - days_ago]


@pytest.mark.parametrize("days_ago", [0, 1, 2])
def test_a_day_that_the_store_lost_is_asked_for_again_once(source: Recorded, tmp_path: Path, days_ago: int) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(source, store, NOW)
    assert stored(store, NOW) == expected(NOW)
    day_file(tmp_path, days_ago).write_bytes(b"not a file of ours")
    assert stored(store, NOW) != expected(NOW)
    (hole,) = open_holes(store)
    later = NOW + 900
    record = pulled(source, store, later)
    assert stored(store, later) == expected(later)
    assert "usage in 1 file that the store had lost was requested again" in record.notes
    # Only the lost day and what is new was asked, and the lost day never again.
    assert {s.start_seconds for s in source.asked} <= {hole.start_seconds, NOW // 300 * 300 - SETTINGS.overlap_seconds}
    assert (open_holes(store), len(store.holes())) == ((), 1)
    pulled(source, store, later + 900)
    assert [s for s in source.asked if s.start_seconds == hole.start_seconds] == []
    # The name of a file that was cleared away may be used again: then it is another loss.
    Path(hole.path).unlink()
    pulled(source, store, later + 900)
    day_file(tmp_path, days_ago).write_bytes(b"again")
    stored(store, later)
    assert [h.path for h in open_holes(store)] == [hole.path]


def test_a_lost_day_that_the_source_no_longer_has_is_given_up(source: Recorded, tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(source, store, NOW)
    day_file(tmp_path, 1).write_bytes(b"lost")
    stored(store, NOW)
    source.usage.clear()
    pulled(source, store, NOW)
    assert len(source.asked) == 1
    assert open_holes(store) == ()
    pulled(source, store, NOW)
    assert source.asked == []


def test_days_past_what_is_kept_go_with_the_next_pull(source: Recorded, tmp_path: Path) -> None:
    store, keeping = Store(f"file://{tmp_path}", "c"), ProfilerSettings(window_days=2, keep_days=3)
    pull(source, store, keeping, FixedClock(NOW - DAY_SECONDS), Silent())
    days = sorted(p.name for p in day_file(tmp_path, 0).parent.iterdir())
    # Two days back from a quarter past midnight are parts of three days, which are all kept.
    assert len(days) == 3
    record = pull(source, store, keeping, FixedClock(NOW), Silent())
    after = sorted(p.name for p in day_file(tmp_path, 0).parent.iterdir())
    # One day more, so the oldest goes.
    assert (after[:2], len(after)) == (days[1:], 3)
    assert "1 file of usage removed, from before the newest 3 days" in record.notes


def test_what_failed_as_a_whole_is_asked_again_until_it_comes(source: Recorded, tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    source.broken = {CPU_MEAN}
    source.errors = (SourceForbidden("http://p answered 401", fix="Give credentials."),)
    for _ in range(3):
        with pytest.raises(SourceForbidden, match="no query for CPU usage was answered: http://p answered 401") as e:
            pulled(source, store, NOW)
        assert e.value.fix == "Give credentials."
        assert [s.signal for s in source.asked if s.signal is CPU_MEAN] == [CPU_MEAN]
        assert stored(store, NOW) == []
    source.broken = set()
    pulled(source, store, NOW)
    assert stored(store, NOW) == expected(NOW)
    pulled(source, store, NOW)
    assert source.asked == []


def test_after_a_source_without_any_usage_the_right_one_is_asked_for_the_whole_window(
    source: Recorded, tmp_path: Path
) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(Recorded({}), store, NOW)
    pulled(source, store, NOW)
    assert stored(store, NOW) == expected(NOW)
    pulled(source, store, NOW)
    assert source.asked == []


def test_what_could_not_be_read_is_counted_and_told_until_it_is_read(source: Recorded, tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    source.broken = {Signal.OOM_KILLS}
    source.errors = (SourceUnreachable("http://p answered 503"),)
    for now in (NOW, NOW + 900):
        record = pulled(source, store, now)
        assert record.unread_seconds == {Signal.OOM_KILLS: 47 * HOUR_SECONDS}
        (note,) = [note for note in record.notes if "oom_kills 47.0 h (http://p answered 503)" in note]
        assert "nothing based on these parts is lowered" in note
        assert store.read_quality()[-1].unread_seconds == record.unread_seconds
    source.broken = set()
    assert not pulled(source, store, NOW + 1800).unread_seconds
    source.broken = {CPU_MEAN}
    assert pulled(source, store, NOW + 3600).unread_seconds.keys() == {CPU_MEAN}, "what is stored still stands"


def test_a_lost_day_that_fails_again_stays_a_hole(source: Recorded, tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}", "c")
    pulled(source, store, NOW)
    day_file(tmp_path, 1).write_bytes(b"lost")
    stored(store, NOW)
    source.broken = {CPU_MEAN}
    pulled(source, store, NOW)
    pulled(source, store, NOW)
    assert len(source.asked) == 1
    source.broken = set()
    pulled(source, store, NOW)
    assert stored(store, NOW) == expected(NOW)


def test_a_state_from_before_lost_days_were_counted_still_loads(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Before:
        since: dict[Signal, int]
        until: dict[Signal, int]
        holes: list[SignalSpan]

    store = Store(f"file://{tmp_path}", "c")
    store.write_document(STATE_DOCUMENT, Before({CPU_MEAN: 1}, {CPU_MEAN: 2}, []))
    assert store.read_document(STATE_DOCUMENT, PullState) == PullState({CPU_MEAN: 1}, {CPU_MEAN: 2})
