"""Two scales of a finding: how dangerous a current value is, and how much of it is waste."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """The distance of the current value from the proposed one; ordered GOOD < OK < WARNING < CRITICAL."""

    UNKNOWN = "unknown"
    GOOD = "good"
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The severity's position in the order, UNKNOWN lowest."""
        return list(Severity).index(self)

    @property
    def meaning(self) -> str:
        """The meaning of the severity as text; its thresholds are in `recommender.cotenant.severity`."""
        return _MEANINGS[self]


_MEANINGS: Final[Mapping[Severity, str]] = {
    Severity.CRITICAL: "pods may be killed, evicted first or throttled until the request or limit rises",
    Severity.WARNING: "a change that is large both in percent and in amount, or a request that is not set",
    Severity.OK: "a small change",
    Severity.GOOD: "no difference that is worth a change",
    Severity.UNKNOWN: "not enough evidence; the reason says what is missing",
}


class Waste(StrEnum):
    """The size of the part of a request that is not needed; a scale separate from `Severity`."""

    NONE = "none"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"

    @property
    def rank(self) -> int:
        """The waste's position in the order, NONE lowest."""
        return list(Waste).index(self)
