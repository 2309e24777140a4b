"""Work on parts in several threads: the same results as in one."""

from __future__ import annotations

import os
import threading

import pytest

from cotenant.base.threads import MOST_THREADS, side_by_side

two_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")


def thread_of(_: int) -> int:
    return threading.get_ident()


@two_processors
def test_results_are_in_the_order_of_their_parts_whichever_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    last_ended = threading.Event()

    def squared(part: int) -> int:
        if part == 0:
            assert last_ended.wait(30)
        if part == 3:
            last_ended.set()
        return part * part

    assert side_by_side(squared, range(4)) == [0, 1, 4, 9]


def test_an_error_of_one_part_is_raised() -> None:
    def failing(part: int) -> int:
        if part == 2:
            raise ValueError("part 2")
        return part

    with pytest.raises(ValueError, match="part 2"):
        side_by_side(failing, range(4))


def test_no_more_than_two_threads_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert len(set(side_by_side(thread_of, range(50)))) <= MOST_THREADS


def test_a_process_that_was_started_for_one_thread_does_all_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert set(side_by_side(thread_of, range(5))) == {threading.get_ident()}
