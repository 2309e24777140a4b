"""Ratios, counts, remainders, ages and lengths, computed for sentences that people read. Pure, without numpy.

A sentence calls these and formats the result; it never divides, adds or subtracts itself, so that a number on two pages
is the same number, and a share of nothing is never shown as 0 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def ratio_of(part: float | None, total: float | None) -> float:
    """Return `part / total`; NaN if one of them is unknown or `total` is 0."""
    return math.nan if part is None or total is None or not total else part / total


def remaining_seconds(elapsed_seconds: float, done_ratio: float) -> float | None:
    """Return the estimated remaining seconds of work, by its speed so far; None before any of it is done."""
    return elapsed_seconds * (1 - done_ratio) / done_ratio if done_ratio > 0 else None


def requested_unused_ratio(used: float, requested: float) -> float:
    """Return the share of a whole that is requested but not used, at least 0; NaN if an argument is NaN.

    The arguments and the result are ratios of the same whole, such as the CPU of all nodes.
    """
    return math.nan if math.isnan(used + requested) else max(0.0, requested - used)


def neither_ratio(used: float, requested: float) -> float:
    """Return the share of a whole that is neither used nor requested, at least 0; NaN if an argument is NaN.

    The arguments and the result are ratios of the same whole, such as the CPU of all nodes.
    """
    return math.nan if math.isnan(used + requested) else max(0.0, 1.0 - max(used, requested))


def matching_count(flags: Iterable[object]) -> int:
    """Return how many of the flags are true."""
    return sum(map(bool, flags))


def left_out_count(count: int, shown: int) -> int:
    """Return how many of `count` items a list of at most `shown` items leaves out; at least 0."""
    return max(0, count - shown)


def age_seconds(now_seconds: float, then_seconds: float) -> float:
    """Return how many seconds ago a time was; 0 if it is in the future because of another clock."""
    return max(0.0, now_seconds - then_seconds)


def length_seconds(start_seconds: float, end_seconds: float) -> float:
    """Return the length of a time span in seconds; negative if it ends before it starts."""
    return end_seconds - start_seconds
