"""The time of which a long-term store has no raw samples any more, but values of five minutes. Pure.

Thanos keeps sum, count, minimum, maximum and counter of each five minutes of a series (`compact`), often for longer
than the samples themselves. CPU that is read from them is smoothed over four of them, its peaks are gone, and a request
or a loan would come out smaller or larger for it. So they are not read; who has them is told why days are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS

RESOLUTION_SECONDS: Final = FIVE_MINUTES_SECONDS
"""Thanos' finer downsampling."""


def raw_start_seconds(hourly: Mapping[int, Mapping[int, int]]) -> int | None:
    """Start of the first hour that any series lived through by its raw samples; None without any.

    hourly: hour's end -> scrape interval -> series (`intervals.with_slow`).
    """
    seen = [end for end, found in hourly.items() if found]
    return min(seen) - HOUR_SECONDS if seen else None


def note(raw_start: int) -> str:
    """The sentence for a server that has downsampled values alone of the day before its first raw samples."""
    moment = datetime.fromtimestamp(raw_start, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"before {moment} the server has only values of 5 minutes (downsampled), which are not read: they have no "
        "peaks of CPU. Keep raw samples for profiler.window_days (Thanos: --retention.resolution-raw), or shorten it"
    )
