"""People's words for codes: short, one each, and the codes themselves where the API is asked."""

from __future__ import annotations

from cotenant.base.reasons import Reason
from cotenant.dashboard.figures.display import LABELS, label
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.steps import Ready


def test_no_chip_shows_a_code_of_ours_with_hyphens() -> None:
    codes = [code.value for code in (*Reason, *FindingKind, *Ready)]
    assert [label(code) for code in codes if "-" in label(code)] == []


def test_labels_are_short_and_no_two_codes_share_one() -> None:
    # a chip of 150 pixels holds 25 letters
    assert [text for text in LABELS.values() if len(text) > 25] == []
    assert len(set(LABELS.values())) == len(LABELS)


def test_other_texts_stand_for_themselves() -> None:
    assert (label("first-step"), label("ok"), label("node-7")) == ("in steps", "ok", "node-7")
