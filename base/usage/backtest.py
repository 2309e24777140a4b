"""A back-test: its horizon, and what it leaves behind: the frontier of a decision, the report of the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BACKTEST: Final = "backtest"
"""Name of the stored report."""
ORIGINS: Final = 24
"""Default number of times at which a back-test forecasts."""


class Horizon(StrEnum):
    """The horizon of a back-test's forecasts, and the slots that it uses."""

    DAY = "24h"
    WEEK = "7d"


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One setting of a predictor: share of predictions that were violated, share of the oracle's savings."""

    violation: float
    savings: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class FrontierCurve:
    """A predictor's settings in order of the violation; a single point is a predictor without a knob."""

    name: str
    points: tuple[FrontierPoint, ...]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Frontier:
    """Curves of one population; compare at equal violation."""

    title: str
    curves: tuple[FrontierCurve, ...]


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """A stored report: one HTML page that needs nothing else, and what it says in a line."""

    title: str
    computed_seconds: int
    summary: str
    html: str
