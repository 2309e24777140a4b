"""Quantities are read as the Kubernetes API server reads them, and never cost time or a byte."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.quantity import (
    LARGEST,
    LENGTH_CAP,
    format_bytes,
    format_millicores,
    human_bytes,
    parse_bytes,
    parse_millicores,
)

# value in bytes, value in millicores; answers of resource.Quantity (Value, MilliValue) of apimachinery 0.35.4
ACCEPTED = {
    "107374182400m": (107374183, 107374182400),  # 107374182.4 B, up
    "1150Mi": (1150 * 2**20, 1150 * 2**20 * 1000),
    "50k": (50_000, 50_000_000),
    "1e3": (1000, 1_000_000),
    "1E3": (1000, 1_000_000),
    "1e+3": (1000, 1_000_000),
    "100u": (1, 1),  # 0.0001, up in both
    "0.5": (1, 500),
    "2Gi": (2**31, 2**31 * 1000),
    "1E": (10**18, LARGEST),  # 10^21 millicores do not fit
    "250m": (1, 250),
    "1.0000000001": (2, 1001),
    "1e-30": (1, 1),
    "16Ei": (LARGEST, LARGEST),
    "1e30": (LARGEST, LARGEST),
    "1.5Ki": (1536, 1_536_000),
    "0.3Ki": (308, 307_200),  # 307.2 B
    "+5": (5, 5000),
    ".5": (1, 500),
    "5.": (5, 5000),
    "1Ki ": (1024, 1_024_000),
    "\u00a05": (5, 5000),
    "-0": (0, 0),
    "0": (0, 0),
    "000": (0, 0),
    # the server reads a missing number as zero
    "Ki": (0, 0),
    ".": (0, 0),
    "m": (0, 0),
    "-": (0, 0),
}
REFUSED = [
    "1e999999",
    "1e-999999",
    "1e31",
    "9" * 400,
    "-1",
    "-1n",
    "NaN",
    "nan",
    "inf",
    "Infinity",
    "１２",
    "٣",
    "0x10",
]
REFUSED += [
    "1_000",
    "1.5Zi",
    "1K",
    "1KI",
    "1e",
    "1e+",
    "1e-3Ki",
    "",
    " ",
    "1 Ki",
    "1..5",
    "1.2.3",
    "--1",
    "Ei",
    ".Ei",
    "e-10",
]
REFUSED += ["1GiB", "1b", "one", "1" * (LENGTH_CAP + 1), "1\x1c", "1\x00", "1m\n2", "\t1", "1\n"]


@pytest.mark.parametrize(("text", "values"), ACCEPTED.items())
def test_a_text_the_server_accepts_has_the_servers_value(text: str, values: tuple[int, int]) -> None:
    assert (parse_bytes(text), parse_millicores(text)) == values


@pytest.mark.parametrize("text", REFUSED)
def test_garbage_is_refused_with_the_object_and_the_value(text: str) -> None:
    for parse in (parse_bytes, parse_millicores):
        with pytest.raises(QuantityError) as caught:
            parse(text, "shop/Deployment/web memory request")
        assert caught.value.message.startswith("shop/Deployment/web memory request: '")
        assert repr(text)[1:20].rstrip("'") in caught.value.message
        assert len(caught.value.message) < 200
        assert caught.value.fix


def test_json_numbers_are_quantities_and_other_json_is_not() -> None:
    assert parse_millicores(5) == 5000
    assert parse_millicores(5.5) == 5500
    assert parse_bytes(1e22) == LARGEST
    wrong: list[Any] = [True, None, math.nan, math.inf, 10**5000, [], {}]
    for value in wrong:
        with pytest.raises(QuantityError):
            parse_bytes(value)


def test_amounts_are_written_exactly_in_the_shortest_usual_form() -> None:
    assert [format_millicores(a) for a in (0, 1, 250, 1000, 2000, 2500)] == ["0", "1m", "250m", "1", "2", "2500m"]
    assert [format_bytes(a) for a in (0, 1, 1000, 1024, 2**29, 3 * 2**30, 2**30 + 1)] == [
        "0", "1", "1000", "1Ki", "512Mi", "3Gi", "1073741825",
    ]  # fmt: skip


def test_the_human_form_is_rounded_to_a_tenth_of_a_binary_unit() -> None:
    # 1.25e9 / 2^30 = 1.164; 1023.99 KiB must not print as 1024.0 KiB
    assert human_bytes(1.25e9) == "1.2 GiB"
    assert human_bytes(512) == "512 B"
    assert human_bytes(1023.99 * 1024) == "1.0 MiB"
    assert human_bytes(-3 * 2**20) == "-3.0 MiB"
    assert human_bytes(2.0**80) == "1048576.0 EiB"


@given(st.integers(0, LARGEST))
def test_what_is_written_is_read_back_to_the_last_byte(amount: int) -> None:
    assert parse_bytes(format_bytes(amount)) == amount
    assert parse_millicores(format_millicores(amount)) == amount


plain = st.builds(
    lambda whole, fraction, suffix: (whole, fraction, suffix),
    st.integers(0, 10**15),
    st.text("0123456789", max_size=12),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "e-7", "E2"]),
)
FACTOR = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
}
FACTOR |= {
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
}
FACTOR |= {"Ti": Fraction(2**40), "e3": Fraction(1000), "e-7": Fraction(1, 10**7), "E2": Fraction(100)}


@given(plain)
def test_a_value_is_rounded_up_and_by_less_than_one_unit(parts: tuple[int, str, str]) -> None:
    digits, fraction, suffix = parts
    exact = Fraction(f"{digits}.{fraction or 0}") * FACTOR[suffix]
    text = f"{digits}.{fraction}{suffix}" if fraction else f"{digits}{suffix}"
    assert parse_bytes(text) == min(math.ceil(exact), LARGEST)
    assert parse_millicores(text) == min(math.ceil(exact * 1000), LARGEST)


@given(plain, st.integers(0, 10**6))
def test_a_larger_number_is_never_a_smaller_amount(parts: tuple[int, str, str], more: int) -> None:
    digits, fraction, suffix = parts
    assert parse_bytes(f"{digits + more}.{fraction}{suffix}") >= parse_bytes(f"{digits}.{fraction}{suffix}")


@given(st.text() | st.from_regex(r"[-+]?[0-9]*\.?[0-9]*([eE][-+]?[0-9]*|[numkKMGTPEi]*)", fullmatch=True))
def test_any_text_is_an_amount_in_range_or_an_error_and_always_quick(text: str) -> None:
    began = time.process_time()
    for parse in (parse_bytes, parse_millicores):
        try:
            assert 0 <= parse(text) <= LARGEST
        except QuantityError as error:
            assert error.exit_code == 2
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text", ["1e999999999999", "9" * 10**6, "0." + "0" * 10**6 + "1", "1e" + "9" * 10**6, " " * 10**6]
)
def test_absurd_texts_are_refused_before_any_arithmetic(text: str) -> None:
    began = time.process_time()
    with pytest.raises(QuantityError):
        parse_bytes(text)
    assert time.process_time() - began < 1
