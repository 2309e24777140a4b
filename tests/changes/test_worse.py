"""How each measure comes out, before against after; silence is an answer of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.changes.decide.regression_check import (
    NO_SOURCE,
    Compared,
    Measure,
    measure_text,
    regression_results,
    unanswered_query_reason,
)
from cotenant.changes.model.judgement import ChangeVerdict, RuleUnit, RuleVerdict
from cotenant.changes.model.settings import ActionSettings

SETTINGS = ActionSettings(most_latency_factor=1.2)


def latency(before: float | None, after: float | None, error: str = "") -> list[Compared]:
    return [Compared(Measure.LATENCY, before, after, error)]


def test_a_latency_beyond_the_allowed_factor_is_harm_and_one_at_it_is_none() -> None:
    # 1.2 x 100 ms is 120 ms.
    *_, at = regression_results(latency(0.1, 0.12), SETTINGS, queried=[Measure.LATENCY])
    *_, beyond = regression_results(latency(0.1, 0.121), SETTINGS, queried=[Measure.LATENCY])
    assert (at.verdict, round(at.most or 0, 6), at.unit) == (RuleVerdict.KEPT, 0.12, RuleUnit.SECONDS)
    assert beyond.verdict is RuleVerdict.WORSE
    assert ChangeVerdict(0, 1, (at, beyond)).harm == "p99 latency 100 ms -> 121 ms, more than 1.2 times as long"


@given(st.floats(1e-4, 1e4))
def test_a_latency_is_written_in_milliseconds_that_can_be_read(seconds: float) -> None:
    number, unit = measure_text(Measure.LATENCY, seconds).split(" ")
    assert unit == "ms" and "e" not in number
    # Three digits: at most half of the third is lost.
    assert float(number.replace(",", "")) == pytest.approx(1000 * seconds, rel=0.005)


def test_a_latency_without_samples_on_either_side_is_neither_good_nor_bad() -> None:
    for comparisons in (
        latency(0.1, None),
        latency(None, 0.1),
        latency(None, None, "parse error"),
        latency(0.0, 0.1),
        [],
    ):
        rules = regression_results(comparisons, SETTINGS, queried=[Measure.LATENCY])
        assert rules[-1].verdict is RuleVerdict.NO_DATA and ChangeVerdict(0, 1, tuple(rules)).harm == ""
        assert unanswered_query_reason(rules).startswith("p99 latency")
    assert (
        unanswered_query_reason(
            regression_results(latency(None, None, "parse error"), SETTINGS, queried=[Measure.LATENCY])
        )
        == "p99 latency: parse error"
    )


def test_a_latency_that_nobody_configured_is_no_rule_and_withholds_nothing() -> None:
    rules = regression_results([], SETTINGS)
    assert [rule.rule for rule in rules] == [Measure.THROTTLED, Measure.PRESSURE]
    assert {rule.words.partition(": ")[2] for rule in rules} == {NO_SOURCE} and unanswered_query_reason(rules) == ""


def test_one_failure_more_in_a_hundred_requests_is_harm_and_from_none_at_all_too() -> None:
    # 2 % + one point are 3 %; from 0 %, one point is allowed.
    cases = [(0.02, 0.03, RuleVerdict.KEPT), (0.02, 0.031, RuleVerdict.WORSE), (0.0, 0.011, RuleVerdict.WORSE)]
    for before, after, verdict in cases:
        *_, rule = regression_results([Compared(Measure.ERRORS, before, after)], SETTINGS, queried=[Measure.ERRORS])
        assert (rule.rule, rule.verdict, rule.unit) == (Measure.ERRORS, verdict, RuleUnit.RATIO)


def test_failures_without_requests_before_or_after_are_neither_good_nor_bad() -> None:
    for comparisons in ([Compared(Measure.ERRORS, None, 0.2)], [Compared(Measure.ERRORS, 0.0, None)], []):
        rules = regression_results(comparisons, SETTINGS, queried=[Measure.ERRORS])
        assert rules[-1].verdict is RuleVerdict.NO_DATA and ChangeVerdict(0, 1, tuple(rules)).harm == ""
        assert unanswered_query_reason(rules).startswith("failed requests")


def test_throttling_may_rise_by_so_much_from_where_it_was_and_counts_from_nothing_where_nothing_was_seen() -> None:
    # 5 % + 10 points of rise are 15 %; without a sample before, 10 %.
    within, worse = (regression_results([Compared(Measure.THROTTLED, b, 0.15)], SETTINGS)[0] for b in (0.05, None))
    assert (within.verdict, round(within.most or 0, 6)) == (RuleVerdict.KEPT, 0.15)
    assert (worse.verdict, round(worse.most or 0, 6)) == (RuleVerdict.WORSE, 0.1)
