"""Ratios, counts, rests, ages and lengths that sentences of every room show, each by one function. Pure, without numpy.

A sentence calls these and formats the result; it never divides, adds or subtracts by itself, so that a number that two
surfaces show is one number, and a part of nothing is never drawn as 0 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def ratio_of(part: float | None, whole: float | None) -> float:
    """Return part / whole, a ratio; NaN where one of them is not known or the whole is 0."""
    return math.nan if part is None or whole is None or not whole else part / whole


def remaining_seconds(elapsed_seconds: float, done_ratio: float) -> float | None:
    """Return about how long work still takes, by its speed so far; None before anything of it is done."""
    return elapsed_seconds * (1 - done_ratio) / done_ratio if done_ratio > 0 else None


def requested_unused_ratio(used: float, requested: float) -> float:
    """Return what is requested and not used, `requested - used` and never below 0; NaN where one of them is NaN.

    All three are ratios of the same whole, such as the CPU of all nodes.
    """
    return math.nan if math.isnan(used + requested) else max(0.0, requested - used)


def neither_ratio(used: float, requested: float) -> float:
    """Return what is neither used nor requested, at least 0; NaN where one of them is NaN.

    All three are ratios of the same whole, such as the CPU of all nodes.
    """
    return math.nan if math.isnan(used + requested) else max(0.0, 1.0 - max(used, requested))


def matching_count(flags: Iterable[object]) -> int:
    """Count the things for which a condition holds: how many of the flags are true."""
    return sum(map(bool, flags))


def left_out_count(count: int, shown: int) -> int:
    """Count what a list of at most `shown` things leaves out of `count`; 0 where it has place for all."""
    return max(0, count - shown)


def age_seconds(now_seconds: float, then_seconds: float) -> float:
    """Return how long ago a moment was, in seconds; 0 where a clock that differs puts it ahead."""
    return max(0.0, now_seconds - then_seconds)


def length_seconds(start_seconds: float, end_seconds: float) -> float:
    """Return the length of a span of time in seconds, negative where it ends before it starts."""
    return end_seconds - start_seconds
