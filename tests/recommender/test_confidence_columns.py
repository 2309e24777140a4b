"""Confidence is told in words with the weakest reason: its score is no probability, and never shown as a percentage."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.model import QUEUE
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.table import Kind
from cotenant.changes.commands.recommendation_lines import describe
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.cli.report.scan_report import ReportContents, page
from cotenant.pipeline.tables import recommendations
from cotenant.recommender.model.confidence_columns import CONFIDENCE_COLUMNS, confidence_cells
from cotenant.recommender.model.recommendation import Backtest, Confidence, Recommendation, Trust
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.support.overview import overview

ROOT = Path(__file__).resolve().parents[2]
REASON = "A single pod was seen."


def recommended(score: float, *because: str) -> Recommendation:
    ref = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")
    recommendation = Recommendation(ref, "cotenant", 3, (), 0, "d", 0)
    return replace(recommendation, trust=Trust(score, because), backtest=Backtest(7, 3.0, 40.0, 0, 2, 1, 2250, 0))


@pytest.mark.parametrize(
    ("score", "word"),
    # Both borders belong to the higher word, as in the rule of risk: low below 0.5, high from 0.7.
    [
        (0.0, "low"),
        (0.4999, "low"),
        (0.5, "medium"),
        (0.6999, "medium"),
        (0.7, "high"),
        (1.0, "high"),
        (float("nan"), "low"),
    ],
)
def test_a_score_has_one_word(score: float, word: str) -> None:
    assert Confidence.of(score) == word


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_higher_score_never_has_a_lower_word(first: float, other: float) -> None:
    order = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]
    low, high = sorted((first, other))
    assert order.index(Confidence.of(low)) <= order.index(Confidence.of(high))


def test_the_words_have_the_weakest_reason_with_them() -> None:
    assert recommended(0.62, REASON, "3 pods were seen.").trust == Trust(0.62, (REASON, "3 pods were seen."))
    assert Trust(0.62, (REASON, "3 pods were seen.")).words == f"medium: {REASON}"
    assert Trust(0.62).words == "medium"


@pytest.mark.parametrize("schema", [RECOMMENDATIONS, QUEUE])
def test_tables_have_the_word_the_reason_and_the_score_by_its_old_name(schema: object) -> None:
    columns = {c.name: c for c in schema.columns}  # type: ignore[attr-defined]
    assert [columns[c.name] for c in CONFIDENCE_COLUMNS] == list(CONFIDENCE_COLUMNS)
    # Shown as a plain number where somebody asks for it, and not among the columns that are shown unasked.
    assert columns["confidence"].kind is Kind.NUMBER and columns["confidence"].wide
    assert not columns["confidence_level"].wide


def test_every_surface_of_a_recommendation_says_the_word_and_the_reason_and_no_percentage() -> None:
    recommendation = recommended(0.73, REASON)
    (row,) = recommendations([recommendation], GuardrailSettings()).rows()
    assert {name: row[name] for name in confidence_cells(recommendation.trust)} == {
        "confidence_level": "high", "confidence_reason": REASON, "confidence": pytest.approx(0.73),
    }  # fmt: skip
    explained = "\n".join(describe(recommendation, "USD"))
    assert f"confidence:\n  high\n  {REASON}" in explained and "73 %" not in explained
    contents = ReportContents(
        overview(),
        recommendations([recommendation], GuardrailSettings()),
        {recommendation.container: recommendation},
        None,
        None,
        None,
        "USD",
    )
    report = page(contents)
    assert f"confidence high: {REASON}" in report and "73 %" not in report


def test_no_surface_formats_a_confidence_as_a_percentage() -> None:
    written = re.compile(r"percent\([^)]*confidence")
    code = [p for room in ("cotenant", "dashboard", "autopilot", "changes") for p in (ROOT / room).rglob("*.py")]
    assert [str(path) for path in code if written.search(path.read_text())] == []
