"""Columns that recommendations have for all steps together: changes, money, and back-tested effects."""

from __future__ import annotations

from typing import Final

from cotenant.base.table import Column, Kind
from cotenant.base.tables.quantity import Sign, Unit

DELTA_COLUMNS: Final = (
    Column(
        "cpu_delta_total",
        "CPU delta",
        Kind.MILLICORES,
        "Change of the CPU requests of all pods (of a job: of its mean number of pods). A missing request counts "
        "as the limit, or as 0 without a limit.",
        sign=Sign.RAISED,
    ),
    Column("memory_delta_total", "Memory delta", Kind.BYTES, "Memory request change over all pods.", sign=Sign.RAISED),
)
"""What all steps change together."""
MONEY_COLUMNS: Final = (
    Column(
        "saving_month",
        "Saving/month",
        Kind.NUMBER,
        "Monthly cost of the requests that fall minus that of requests that rise, over all pods, by the price sheet.",
        sign=Sign.FREED,
    ),
    Column("freed_month", "Freed/month", Kind.NUMBER, "Monthly cost of the requests that fall.", wide=True),
    Column("raised_month", "Raised/month", Kind.NUMBER, "Monthly cost of the requests that rise.", wide=True),
)
"""What all steps are worth."""
BACKTEST_COLUMNS: Final = (
    Column(
        "backtest_oom_kills",
        "Back-test OOMs",
        Kind.INTEGER,
        "OOM kills in the last 7 days if the proposed memory limit had been set.",
    ),
    Column(
        "backtest_throttled_minutes",
        "Back-test throttled",
        Kind.NUMBER,
        "Container-minutes in the last 7 days with CPU demand above the proposed limit.",
        wide=True,
        unit=Unit.CONTAINER_MINUTES,
    ),
)
"""What they would have done in the last days."""
