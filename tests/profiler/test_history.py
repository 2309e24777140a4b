from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.cluster import Container, Event, EventKind, Inventory, Pod, Workload
from cotenant.model.identity import PodContainerRef, WorkloadRef
from cotenant.model.resource import Resource
from cotenant.model.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.settings.profiler import ProfilerSettings
from profiler.history import PullState, Span, closed, opened, wanted
from profiler.sightings import Sightings, merged, with_history

NOW = 1_795_089_600 + 17 * 60
SETTINGS = ProfilerSettings(window_days=2)
WEB = WorkloadRef("shop", "Deployment", "web")
REF = PodContainerRef("shop", "web-1", "app")


def asked_slots(spans: tuple[Span, ...], signal: Signal) -> set[int]:
    return {int(t) for span in spans if span.signal is signal for t in span.grid.times()}


def finished(state: PullState, spans: tuple[Span, ...]) -> PullState:
    """The state after a pull in which every span was answered."""
    running = opened(state, spans)
    until = dict(running.until)
    for span in spans:
        until[span.signal] = max(until[span.signal], span.end_seconds)
    return closed(PullState(running.since, until, running.holes), spans, NOW - 2 * DAY_SECONDS)


def test_a_first_pull_wants_the_whole_window_of_every_signal() -> None:
    spans = wanted(NOW, PullState(), SETTINGS)
    assert {s.signal for s in spans} == set(Signal)
    for span in spans:
        step = span.signal.spec.step_seconds
        assert span.end_seconds == NOW // step * step
        assert 0 <= span.start_seconds - (NOW - 2 * DAY_SECONDS) < step


def test_nothing_is_wanted_twice_but_the_overlap() -> None:
    state = finished(PullState(), wanted(NOW, PullState(), SETTINGS))
    assert wanted(NOW, state, SETTINGS) == ()
    later = wanted(NOW + 600, state, SETTINGS)
    # Two new 5-minute slots and the 10 minutes before them; no new whole hour.
    assert asked_slots(later, Signal.CPU_USAGE_MEAN) == {NOW // 300 * 300 + 300 * k for k in (-2, -1, 0, 1)}
    assert asked_slots(later, Signal.CPU_REQUEST) == set()


def test_a_longer_window_asks_for_the_time_before_the_first_pull_only() -> None:
    state = finished(PullState(), wanted(NOW, PullState(), SETTINGS))
    spans = wanted(NOW, state, ProfilerSettings(window_days=3))
    assert {s.signal for s in spans} == set(Signal)
    for span in spans:
        assert span.end_seconds == state.since[span.signal]
    again = finished(state, spans)
    assert wanted(NOW, again, ProfilerSettings(window_days=3)) == ()


def test_a_hole_is_asked_again_until_it_is_filled_or_too_old() -> None:
    state = finished(PullState(), wanted(NOW, PullState(), SETTINGS))
    start = (NOW - HOUR_SECONDS) // 300 * 300
    hole = Span(Signal.MEMORY_WORKING_SET_MAX, start, start + 900)
    state = replace(state, holes=[hole])
    assert wanted(NOW, state, SETTINGS) == (hole,)
    assert finished(state, (hole,)).holes == []
    assert wanted(NOW + 3 * DAY_SECONDS, state, SETTINGS).count(hole) == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=6), st.integers(0, 900))
def test_however_often_one_pulls_every_slot_of_the_window_is_asked(pauses: list[int], overlap: int) -> None:
    chosen = ProfilerSettings(window_days=1, overlap_seconds=overlap)
    state, now, asked = PullState(), NOW, {signal: set[int]() for signal in Signal}
    for pause in pauses:
        now += pause
        spans = wanted(now, state, chosen)
        for signal in Signal:
            asked[signal] |= asked_slots(spans, signal)
        state = finished(state, spans)
    for signal in Signal:
        step = signal.spec.step_seconds
        assert asked[signal] >= set(range(-(-(now - DAY_SECONDS) // step) * step, now // step * step, step))


def pod(name: str, start: int = NOW - 7200, end: int | None = None) -> Pod:
    return Pod("shop", name, WEB, "n1", start, end)


def inventory(moment: int, *pods: Pod, containers: tuple[Container, ...] = ()) -> Inventory:
    running = sum(p.running for p in pods)
    return Inventory("c", moment, (), (Workload(WEB, running, containers),) if pods else (), pods)


def test_a_pod_that_left_between_two_snapshots_stays_known_until_its_history_is_too_old() -> None:
    first, second = inventory(NOW - 600, pod("web-1")), inventory(NOW, pod("web-2"))
    joined = merged(first, second, NOW - DAY_SECONDS)
    assert {(p.name, p.end_seconds) for p in joined.pods} == {("web-1", NOW), ("web-2", None)}
    much_later = merged(joined, inventory(NOW + 2 * DAY_SECONDS, pod("web-2")), NOW + DAY_SECONDS)
    assert {p.name for p in much_later.pods} == {"web-2"}


def test_a_workload_without_running_pods_keeps_its_template() -> None:
    template = (Container("app", {Resource.CPU: 100}),)
    first = inventory(NOW - 600, pod("web-1"), containers=template)
    joined = merged(first, Inventory("c", NOW, (), (), ()), NOW - DAY_SECONDS)
    assert joined.workloads == (Workload(WEB, 0, template),)


def usage(signal: Signal, start: int, values: list[float]) -> tuple[Signal, Usage[PodContainerRef]]:
    grid = TimeGrid(start, signal.spec.step_seconds, len(values))
    return signal, Usage((REF,), grid, np.array([values], np.float32), signal.spec.resource, signal.spec.statistic)


def test_usage_tells_when_a_gone_pod_lived_what_it_asked_for_and_what_befell_it() -> None:
    start, nan = NOW // 3600 * 3600 - 7200, np.nan
    seen = Sightings()
    seen.add([usage(Signal.CPU_USAGE_MEAN, start, [nan, 5, nan, 7, nan])])
    seen.add([usage(Signal.MEMORY_LIMIT, start, [1024.0]), usage(Signal.CPU_REQUEST, start, [250.0])])
    seen.add([usage(Signal.OOM_KILLS, start, [0, 2])])
    told = with_history(inventory(NOW, pod("web-1", 0, NOW)), seen)
    # First value in slot 1, last one in slot 3, which ends at start + 4 x 300.
    assert [(p.start_seconds, p.end_seconds) for p in told.pods] == [(start + 300, start + 1200)]
    assert told.workloads[0].containers == (Container("app", {Resource.CPU: 250}, {Resource.MEMORY: 1024}),)
    assert told.events == (Event(start + 3600, EventKind.OOM_KILL, REF, 1024),)
    # Two values in the three slots of its life.
    assert seen.coverage() == 2 / 3
    assert with_history(told, seen) == told
