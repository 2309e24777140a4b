"""The demo's clock: goes, stands, is moved ahead, and never back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_lab.simulation.clock import SteeredClock


class Machine:
    """Seconds that the test lets pass."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_it_goes_with_the_machine_from_its_own_beginning() -> None:
    machine = Machine()
    clock = SteeredClock(1_000.0, machine)
    machine.seconds += 7
    assert clock.now_seconds() == 1_007.0


def test_halted_it_shows_one_moment_and_goes_on_from_there() -> None:
    machine = Machine()
    clock = SteeredClock(1_000.0, machine)
    clock.halt()
    machine.seconds += 60
    assert (clock.now_seconds(), clock.halted) == (1_000.0, True)
    clock.halt(False)
    machine.seconds += 5
    assert clock.now_seconds() == 1_005.0


def test_it_is_moved_ahead_halted_or_not_and_never_back() -> None:
    machine = Machine()
    clock = SteeredClock(1_000.0, machine)
    clock.move(1_600.0)
    clock.move(900.0)
    machine.seconds += 1
    assert clock.now_seconds() == 1_601.0
    clock.halt()
    clock.move(2_000.0)
    machine.seconds += 1
    assert clock.now_seconds() == 2_000.0


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["pass", "halt", "go", "move"]), st.floats(0, 1e6)), max_size=20))
def test_time_never_runs_backwards_whatever_is_done_to_it(deeds: list[tuple[str, float]]) -> None:
    machine = Machine()
    clock = SteeredClock(1_000.0, machine)
    shown = clock.now_seconds()
    for deed, amount in deeds:
        if deed == "pass":
            machine.seconds += amount
        elif deed == "move":
            clock.move(amount)
        else:
            clock.halt(deed == "halt")
        assert clock.now_seconds() >= shown - 1e-6
        shown = clock.now_seconds()
