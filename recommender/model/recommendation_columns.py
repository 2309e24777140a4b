"""Columns of recommendations about all steps together: changes, money, and what they would have done."""

from __future__ import annotations

from typing import Final

from cotenant.base.table import Column, Kind
from cotenant.base.tables.quantity import Sign, Unit

DELTA_COLUMNS: Final = (
    Column(
        "cpu_delta_total",
        "CPU delta",
        Kind.MILLICORES,
        "Change of the CPU request over all pods (of jobs, the mean number): a request that is not set counts as the "
        "limit, else as 0.",
        sign=Sign.RAISED,
    ),
    Column("memory_delta_total", "Memory delta", Kind.BYTES, "Of the memory request, as for CPU.", sign=Sign.RAISED),
)
"""What all steps change together."""
MONEY_COLUMNS: Final = (
    Column(
        "saving_month",
        "Saving/month",
        Kind.NUMBER,
        "Cost difference over all pods, freed minus raised, in the price sheet's currency.",
        sign=Sign.FREED,
    ),
    Column("freed_month", "Freed/month", Kind.NUMBER, "Money of the requests that fall.", wide=True),
    Column("raised_month", "Raised/month", Kind.NUMBER, "Money of the requests that rise.", wide=True),
)
"""What all steps are worth."""
BACKTEST_COLUMNS: Final = (
    Column(
        "backtest_oom_kills",
        "Back-test OOMs",
        Kind.INTEGER,
        "Times that usage of the last 7 days exceeded the proposed memory limit.",
    ),
    Column(
        "backtest_throttled_minutes",
        "Back-test throttled",
        Kind.NUMBER,
        "Container-minutes of the last 7 days above the proposed CPU limit.",
        wide=True,
        unit=Unit.CONTAINER_MINUTES,
    ),
)
"""What they would have done in the last days."""
