"""What a node lends, term by term: the figures shown give the amount by hand, and the sentence names the largest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.colocation.reclaim_policies import TERMS, decode_terms, encode_terms
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.dashboard.nodes import lendable
from cotenant.dashboard.nodes.lendable import LentPaths
from cotenant.recommender.model.views import RECLAIMABLE
from tests.support.dashboard import Results

ROW = {
    "node": "n", "band": "batch", "resource": "cpu", "amount": 8700, "policy": "usage", "reason": "ok",
}  # fmt: skip
TERMS_OF_ROW = {"capacity": 32_000, "safety_margin": 12_800, "system_used": 1_100, "hp_used": 9_400}


def lent_of(terms: Mapping[str, int] = TERMS_OF_ROW, **other: Any) -> LentPaths:
    """As a page reads it from the store."""
    return LentPaths.of({**ROW, "term_amounts": encode_terms(terms), **other})


def by_hand(lent: LentPaths) -> int:
    """The formulas of Koordinator's batch and mid resources on the terms alone."""
    t = dict(lent.terms)
    cap = t.pop("cap", None)
    if lent.band == "batch":
        amount = t.pop("capacity") - sum(t.values())
    elif "static_share" in t:
        amount = t["static_share"]
    else:
        amount = min(t["prod_reclaimable"], t["unused"]) + t["unallocated_share"]
    return max(0, amount if cap is None else min(amount, cap))


def test_the_terms_of_every_node_give_its_amount(demo_results: Results) -> None:
    rows = list(demo_results.store.read_table(RECLAIMABLE).rows())
    assert len(rows) == 4 * 8
    for row in rows:
        lent = LentPaths.of(row)
        assert set(lent.terms) <= set(TERMS)
        assert by_hand(lent) == lent.amount == row["amount"]


def test_the_formula_is_written_with_its_numbers() -> None:
    # 32 - 12.8 - 1.1 - 9.4 = 8.7
    expected = "32 cores − 12.8 cores − 1.1 cores − 9.4 cores, at least 0 = 8.7 cores"
    assert lendable.formula(lent_of()) == expected


def test_the_largest_term_is_named_with_its_setting() -> None:
    sentence = lendable.why_not_more(lent_of())
    # 12.8 of 32 is 40 %.
    assert "the safety margin keeps 12.8 cores back (40 % of capacity)" in sentence
    assert "recommender.reclaimable.cpu_reclaim_percent" in sentence


def test_a_cap_that_binds_is_the_reason() -> None:
    lent = lent_of({**TERMS_OF_ROW, "cap": 3200}, amount=3200)
    assert "the settings cap it at 3.2 cores" in lendable.why_not_more(lent)
    assert "at most 3.2 cores" in lendable.formula(lent)


def test_what_counts_after_the_floor_is_said_last() -> None:
    # 8.7 cores x 1.1 = 9.57, less 2 of another scheduler
    lent = lent_of({**TERMS_OF_ROW, "normalization": 870, "third_party": 2000}, amount=7570)
    assert lendable.formula(lent).endswith("at least 0, then + 870 m, then − 2 cores = 7.57 cores")
    assert lendable.signs(lent)["normalization"] == "+"


def test_a_term_of_another_version_is_shown_by_its_name() -> None:
    lent = lent_of({**TERMS_OF_ROW, "dreamt": 5})
    assert lendable.words("dreamt") == "dreamt" and lendable.signs(lent)["dreamt"] == "−"
    assert "dreamt" not in lendable.why_not_more(lent)


@pytest.mark.parametrize("reason", [Reason.METRIC_MISSING, Reason.METRIC_EXPIRED])
def test_a_degraded_node_says_why_it_lends_nothing(reason: Reason) -> None:
    lent = lent_of(reason=reason.value, amount=None)
    assert lendable.why_not_more(lent) == f"Nothing is lent: {SENTENCES[reason]}"


def test_rows_without_terms_are_no_error() -> None:
    lent = LentPaths.of({**ROW, "term_amounts": "{}"})
    assert lendable.why_not_more(lent) == "The results do not say what limits this amount."
    assert lent.ceiling is None and lendable.formula(lent)


def test_a_proven_forecast_has_the_capacity_as_its_ceiling_and_the_risk_as_its_setting() -> None:
    # 32 - 1.5 - 18 = 12.5
    terms = {"capacity": 32_000, "system_peak": 1_500, "hp_peak": 18_000}
    lent = lent_of(terms, policy="forecast", amount=12_500)
    assert lent.ceiling == 32_000
    assert lendable.formula(lent) == "32 cores − 1.5 cores − 18 cores, at least 0 = 12.5 cores"
    assert lendable.why_not_more(lent).endswith(
        "prod is expected to need 18 cores (56 % of capacity); setting node_peak.risk_percent."
    )


@given(st.lists(st.integers(0, 10**15), min_size=3, max_size=3), st.sampled_from(list(Resource)))
def test_the_sentence_always_names_the_largest_subtrahend(taken: list[int], resource: Resource) -> None:
    names = ("safety_margin", "system_used", "hp_used")
    terms = dict(zip(("capacity", *names), (10**15, *taken), strict=True))
    sentence = lendable.why_not_more(lent_of(terms, resource=resource.value))
    largest = names[taken.index(max(taken))]
    beginning = re.escape(lendable.limit_words(largest).split("{")[0].strip())
    assert re.search(beginning, sentence)


@given(st.dictionaries(st.text(), st.integers(0, 2**53)))
def test_terms_of_any_name_come_back_as_they_were(terms: dict[str, int]) -> None:
    # a name with a blank or a comma would be torn apart if the amounts were read from words
    assert decode_terms(encode_terms(terms)) == terms
