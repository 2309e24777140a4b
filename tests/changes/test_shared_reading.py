"""Answers that several readers share: how old they may be, and what a change does to a query under way."""

from __future__ import annotations

import threading

from cotenant.changes.shared_reading import BackgroundRefresh


def test_an_answer_that_was_asked_before_a_change_is_not_given_after_it() -> None:
    query_seen, released = threading.Event(), threading.Event()
    numbers = iter((1, 2))

    def ask() -> int:
        number = next(numbers)
        if number == 1:  # asked before the change, answered after it
            query_seen.set()
            assert released.wait(10)
        return number

    reach = BackgroundRefresh(ask, 0, every_seconds=60)
    assert reach.now() == 0 and query_seen.wait(10)
    reach.forget()
    assert reach.fresh(10) == 2
    released.set()
    assert reach.fresh(10) == 2
