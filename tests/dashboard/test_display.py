"""Amounts and moments in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.resource import GIB, MIB, Resource
from cotenant.dashboard.figures import display


@pytest.mark.parametrize(
    ("millicores", "text"),
    [(0, "0 m"), (250, "250 m"), (999, "999 m"), (1000, "1"), (1250, "1.25"), (12_340, "12.3"), (310_000, "310"),
     (1_234_567, "1,235"), (None, "–"), (math.nan, "–")],
)  # fmt: skip
def test_cores_have_three_digits(millicores: float | None, text: str) -> None:
    assert display.cores(millicores) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (512 * MIB, "512 MiB"), (1.5 * GIB, "1.5 GiB"), (2355 * GIB, "2.3 TiB")],
)
def test_bytes_take_the_largest_unit_below_them(amount: float, text: str) -> None:
    assert display.gib(amount) == text


@pytest.mark.parametrize(
    ("low", "high", "resource", "text"),
    [
        (0, 4800, Resource.CPU, "0 to 4.8 cores"),
        (250, 1250, Resource.CPU, "0.25 to 1.25 cores"),
        (0, 250, Resource.CPU, "0 to 250 m"),
        (0, 0, Resource.CPU, "0 m"),
        (52_100, 125_000, Resource.CPU, "52.1 to 125 cores"),
        (30_001, 30_004, Resource.CPU, "30 cores"),
        (512 * MIB, 1.5 * GIB, Resource.MEMORY, "0.5 to 1.5 GiB"),
        (0, 1023, Resource.MEMORY, "0 to 1,023 B"),
    ],
)
def test_a_range_says_its_unit_once(low: float, high: float, resource: Resource, text: str) -> None:
    assert display.between(low, high, resource) == text


@given(st.floats(-1e15, 1e15))
def test_a_change_shows_its_sign_and_the_same_amount_both_ways(change: float) -> None:
    up, down = display.signed(abs(change), Resource.CPU), display.signed(-abs(change), Resource.CPU)
    assert (up, down) == ("0", "0") if change == 0 else (up[0], down[0], up[1:]) == ("+", "−", down[1:])


@given(st.floats(-1e15, 1e15))
def test_a_negative_number_has_the_same_digits_as_its_opposite_and_a_true_minus(value: float) -> None:
    size = abs(value)
    for write in (
        lambda number: display.amount(number, Resource.CPU),
        lambda number: display.amount(number, Resource.MEMORY),
        display.cores,
        display.gib,
        lambda number: display.money(number, "USD"),
        display.percent,
    ):
        assert write(-size) in ("−" + write(size), write(size))
        assert "-" not in write(-size)
    assert display.signed_number(-0.126) == "−0.13" and display.signed_number(0.126) == "+0.13"


def test_moments_are_utc() -> None:
    # 1 700 000 000 s after the epoch is 2023-11-14 22:13:20 UTC, a Tuesday.
    assert display.moment(1_700_000_000) == "Tue 14 Nov 22:13 UTC"
    assert display.clock(1_700_000_000) == "22:13"


@pytest.mark.parametrize(
    ("seconds", "text"), [(42, "42 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (200_000, "2 d"), (-5, "0 s")]
)
def test_durations_take_their_largest_unit(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


def test_percent_and_counts() -> None:
    assert (display.percent(0.234), display.percent(math.nan)) == ("23 %", "–")
    assert (display.counted(1, "node"), display.counted(1200, "node")) == ("1 node", "1,200 nodes")
