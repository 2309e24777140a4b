"""Amounts that people write survive the float32 of the stored matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.resource import MIB
from cotenant.base.usage.usage import exact_amount


@pytest.mark.parametrize(
    "amount", [0, 1, 250, 16_777_215, 512 * MIB, 1536 * MIB, 10**11, 1_500_000_000, 97_500_000_000, 123_456 * 1024]
)
def test_an_amount_as_people_write_it_comes_back_as_it_was(amount: int) -> None:
    assert exact_amount(np.float32(amount)) == amount


def test_every_amount_of_whole_mebibytes_up_to_a_large_node_comes_back() -> None:
    wrong = [n for n in range(1, 65_536, 7) if exact_amount(np.float32(n * MIB)) != n * MIB]
    assert wrong == []


@given(st.integers(1, 999), st.integers(0, 12))
def test_an_amount_of_few_decimal_digits_comes_back(digits: int, zeros: int) -> None:
    assert exact_amount(np.float32(digits * 10**zeros)) == digits * 10**zeros


@given(st.integers(0, 2**60))
def test_any_other_amount_is_no_farther_off_than_float32_makes_it(amount: int) -> None:
    assert np.float32(exact_amount(np.float32(amount))) == np.float32(amount)
