"""Columns that say how far a proposal can be relied on, the same in every table that has them."""

from __future__ import annotations

from typing import Any, Final

from cotenant.base.table import Column, Kind
from cotenant.recommender.model.recommendation import Trust

CONFIDENCE_COLUMNS: Final = (
    Column("confidence_level", "Confidence", Kind.TEXT, "high, medium or low: how reliable it is."),
    Column("confidence_reason", "Weakest reason", Kind.TEXT, "Strongest reason against relying on it.", wide=True),
    Column(
        "confidence",
        "Confidence score",
        Kind.NUMBER,
        "0..1, by which proposals are ordered and policies choose: high from 0.7, low below 0.5; no probability.",
        wide=True,
    ),
)


def confidence_cells(trust: Trust | None) -> dict[str, Any]:
    """The cells of one proposal; empty where it proposes nothing."""
    if trust is None:
        return {"confidence_level": "", "confidence_reason": "", "confidence": None}
    reason = trust.because[0] if trust.because else ""
    return {"confidence_level": trust.level.value, "confidence_reason": reason, "confidence": trust.confidence}
