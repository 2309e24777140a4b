"""What a process does about its memory."""

from __future__ import annotations

import gc
import threading

import pytest

from cotenant.core.adapters.memory import uncollected


def test_cycles_are_not_looked_for_until_the_last_thread_is_done() -> None:
    inside, done = threading.Event(), threading.Event()

    @uncollected()
    def work() -> None:
        inside.set()
        done.wait(30)

    other = threading.Thread(target=work)
    with uncollected():
        other.start()
        assert inside.wait(30)
        assert not gc.isenabled()
    assert not gc.isenabled()
    done.set()
    other.join(30)
    assert gc.isenabled()


def test_an_error_turns_the_collector_on_again() -> None:
    with pytest.raises(ZeroDivisionError), uncollected():
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
