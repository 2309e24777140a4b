"""Columns on the confidence in a proposal; every table on proposals has the same ones."""

from __future__ import annotations

from typing import Any, Final

from cotenant.base.table import Column, Kind
from cotenant.recommender.model.recommendation import Trust

CONFIDENCE_COLUMNS: Final = (
    Column("confidence_level", "Confidence", Kind.TEXT, "Confidence in the proposal: high, medium or low."),
    Column("confidence_reason", "Weakest reason", Kind.TEXT, "Main reason for a lower confidence.", wide=True),
    Column(
        "confidence",
        "Confidence score",
        Kind.NUMBER,
        "Score 0..1 that orders proposals and that policies use: high from 0.7, low below 0.5; it is no probability.",
        wide=True,
    ),
)


def confidence_cells(trust: Trust | None) -> dict[str, Any]:
    """Return the confidence cells of one recommendation; empty cells if it proposes nothing."""
    if trust is None:
        return {"confidence_level": "", "confidence_reason": "", "confidence": None}
    reason = trust.because[0] if trust.because else ""
    return {"confidence_level": trust.level.value, "confidence_reason": reason, "confidence": trust.confidence}
