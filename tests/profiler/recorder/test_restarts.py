"""Restarts and kills are counted once: by repeated readings, by a new process, and by readings out of turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import PodContainerRef
from cotenant.profiler.recorder.restarts import ContainerEnd, ContainerEnds, HourCounts, RestartLog, RestartState

REF = PodContainerRef("shop", "web-1", "app")
HOUR = 3600
BEGUN = 100 * HOUR


def log(begun_at: float = BEGUN) -> RestartLog:
    return RestartLog(RestartState(begun_at))


def total(restart_log: RestartLog) -> tuple[int, int]:
    counts = [c for of in restart_log.state.hours.values() for c in of.values()]
    return sum(c.restarts for c in counts), sum(c.kills for c in counts)


def ends(
    restarts: int, *kills: float, created: float = BEGUN, last: float | None = None, uid: str = "u"
) -> ContainerEnds:
    """A reading that shows these kills, and an end at `last` for another cause."""
    other = () if last is None else (ContainerEnd(f"id-{last}", last, killed=False),)
    shown = (*(ContainerEnd(f"id-{kill}", kill, killed=True) for kill in kills), *other)
    return ContainerEnds(REF, uid, created, restarts, shown)


def test_a_kill_that_is_read_many_times_counts_once_in_its_hour() -> None:
    restart_log, killed = log(), BEGUN + HOUR - 5.0

    for now in range(BEGUN + HOUR - 4, BEGUN + HOUR + 300, 10):
        restart_log.note([ends(1, killed)], now)

    assert total(restart_log) == (1, 1)
    assert restart_log.counts(REF, BEGUN).kills == 1


def test_what_happened_before_the_beginning_is_not_counted() -> None:
    restart_log = log()

    restart_log.note([ends(7, BEGUN - 50.0, created=BEGUN - 9000)], BEGUN + 1)
    assert total(restart_log) == (0, 0)

    restart_log.note([ends(8, BEGUN - 50.0, BEGUN + 20.0, created=BEGUN - 9000)], BEGUN + 21)
    assert total(restart_log) == (1, 1)


def test_a_container_that_restarted_since_the_beginning_and_before_it_was_first_seen_counts_its_last_end() -> None:
    restart_log = log()

    # Of an older pod six of the seven restarts are of unknown times; one is known to be of now.
    restart_log.note([ends(7, BEGUN + 3.0, created=BEGUN - 9000)], BEGUN + 5)

    assert total(restart_log) == (1, 1)


def test_an_older_pod_whose_containers_had_not_ended_when_all_were_read_counts_every_restart() -> None:
    restart_log = log()
    restart_log.note([ends(0, created=BEGUN - 9000)], BEGUN + 1)
    restart_log.state.complete = True

    restart_log.note([ends(3, BEGUN + 50.0, created=BEGUN - 9000)], BEGUN + 51)

    assert total(restart_log) == (3, 1)


def test_all_restarts_of_a_pod_that_is_younger_than_the_recording_count() -> None:
    restart_log = log()

    restart_log.note([ends(3, last=BEGUN + 100.0)], BEGUN + 110)

    assert total(restart_log) == (3, 0)


def test_a_pod_of_the_same_name_begins_at_zero() -> None:
    restart_log = log()

    restart_log.note([ends(2, last=BEGUN + 10.0)], BEGUN + 11)
    restart_log.note([ends(1, BEGUN + 50.0, created=BEGUN + 40, uid="other")], BEGUN + 51)

    assert total(restart_log) == (3, 1)


def test_a_new_process_goes_on_from_what_was_kept() -> None:
    first = log()
    first.note([ends(1, BEGUN + 10.0)], BEGUN + 11)
    stored_state = msgspec.json.decode(msgspec.json.encode(first.state), type=RestartState)

    second = RestartLog(stored_state)
    second.note([ends(1, BEGUN + 10.0)], BEGUN + 200)
    assert total(second) == (1, 1)
    second.note([ends(3, BEGUN + 190.0)], BEGUN + 200)  # twice while nobody looked; the last one's cause is known

    assert total(second) == (3, 2)
    assert second.counts(REF, BEGUN).unexplained == 1


def test_a_restart_whose_cause_nobody_saw_leaves_the_number_of_kills_unknown_and_not_zero() -> None:
    restart_log = log()

    # Three restarts, of which the status shows the last end alone: two may have been kills.
    restart_log.note([ends(3, last=BEGUN + 100.0)], BEGUN + 110)

    assert restart_log.counts(REF, BEGUN) == HourCounts(restarts=3, kills=0, unexplained=2)
    assert restart_log.known_kills(REF, BEGUN) is None
    # A kill that is certain is counted, though there may have been more.
    restart_log.note([ends(4, BEGUN + 200.0)], BEGUN + 210)
    assert restart_log.known_kills(REF, BEGUN) == 1


def test_a_cause_that_the_kubelet_does_not_know_explains_nothing() -> None:
    restart_log = log()
    lost = ContainerEnd("lost", BEGUN + 10.0, killed=None)

    restart_log.note([ContainerEnds(REF, "u", BEGUN, 1, (lost,))], BEGUN + 11)

    assert restart_log.counts(REF, BEGUN) == HourCounts(restarts=1, kills=0, unexplained=1)


def test_an_end_is_seen_before_its_restart_and_explains_it() -> None:
    restart_log = log()
    ended = ContainerEnd("a", BEGUN + 10.0, killed=True, restarted=False)

    restart_log.note([ContainerEnds(REF, "u", BEGUN, 0, (ended,))], BEGUN + 11)
    assert restart_log.counts(REF, BEGUN) == HourCounts(restarts=0, kills=1)
    restart_log.note([ContainerEnds(REF, "u", BEGUN, 1, (replace(ended, restarted=True),))], BEGUN + 13)

    assert restart_log.counts(REF, BEGUN) == HourCounts(restarts=1, kills=1)


def test_two_kills_within_one_second_are_two() -> None:
    restart_log = log()
    first, second = (ContainerEnd(name, BEGUN + 10.0, killed=True) for name in ("b", "a"))

    restart_log.note([ContainerEnds(REF, "u", BEGUN, 1, (first,))], BEGUN + 11)
    restart_log.note([ContainerEnds(REF, "u", BEGUN, 2, (second,))], BEGUN + 12)
    restart_log.note([ContainerEnds(REF, "u", BEGUN, 2, (second,))], BEGUN + 13)

    assert restart_log.counts(REF, BEGUN) == HourCounts(restarts=2, kills=2)


def test_counts_of_an_hour_stay_absolute_so_that_writing_them_again_changes_nothing() -> None:
    restart_log = log()
    restart_log.note([ends(1, BEGUN + 10.0)], BEGUN + 11)
    assert restart_log.changed == {(BEGUN, REF)}
    restart_log.changed.clear()
    restart_log.note([ends(2, BEGUN + 60.0)], BEGUN + 61)

    assert restart_log.counts(REF, BEGUN).restarts == 2
    assert restart_log.changed == {(BEGUN, REF)}


def test_what_is_gone_is_forgotten_and_what_is_open_stays() -> None:
    restart_log = log()
    restart_log.note([ends(1, BEGUN + 10.0)], BEGUN + 11)

    restart_log.forget([], BEGUN + HOUR)
    assert total(restart_log) == (1, 1)
    restart_log.forget([], BEGUN + 2 * HOUR)
    assert total(restart_log) == (0, 0)
    assert not restart_log.state.containers


MOMENTS = st.lists(st.integers(1, 3 * HOUR), min_size=1, max_size=20, unique=True).map(sorted)


@given(
    MOMENTS, st.lists(st.booleans(), min_size=20, max_size=20), st.lists(st.integers(1, 4), min_size=20, max_size=20)
)
def test_every_end_counts_once_however_it_is_read(moments: list[int], killed: list[bool], times: list[int]) -> None:
    restart_log, kept_kills = log(), Counter[bool]()
    for i, (moment, oom, repeated) in enumerate(zip(moments, killed, times, strict=False)):
        kept_kills[oom] += 1
        at = float(BEGUN + moment)
        reading = ends(i + 1, at) if oom else ends(i + 1, last=at)
        for again in range(repeated):
            restart_log.note([replace(reading, restarts=reading.restarts)], BEGUN + moment + again)

    assert total(restart_log) == (len(moments), kept_kills[True])
    assert sum(c.unexplained for of in restart_log.state.hours.values() for c in of.values()) == 0
