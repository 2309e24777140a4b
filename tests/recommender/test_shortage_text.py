"""What a CPU request would have meant for its pods: days, minutes a day, throttling, in one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.resource import Resource
from cotenant.recommender.backtest import Amounts, backtest, present, record
from cotenant.recommender.model.recommendation import Backtest
from cotenant.recommender.model.shortage_text import NO_REQUEST, CpuShortage, sentences
from tests.support.evidence import Case, evidence_of

CPU = Resource.CPU
DAY, DAYS = 288, 10
TRIED = Backtest(10.0, 0.0, 0.0, 0, 0, 0, 0, 0, cpu_pod_days=10, short_pod_days=6, short_minutes=120.0)


def tried(usage: np.ndarray, request: float, limit: float = np.nan) -> Backtest:
    """The back-test of ten days under a CPU request and limit; usage (pods, slots), NaN = no sample."""
    evidence = evidence_of(Case(cpu=usage))
    now = present(evidence)
    then = Amounts({**now.requests, CPU: np.full(1, request)}, {**now.limits, CPU: np.full(1, limit)})
    backtested = backtest(record(evidence, DAYS), now, then).of(0)
    assert backtested is not None
    return backtested


def calm(pods: int = 1) -> np.ndarray:
    return np.full((pods, DAYS * DAY), 100.0, dtype=np.float32)


def test_days_and_minutes_above_the_request_of_one_pod() -> None:
    usage = calm()
    for day in (0, 2, 3, 5, 8, 9):
        usage[0, day * DAY + 100 : day * DAY + 104] = 300.0
    # Six days with four slots of five minutes each: 120 minutes in ten days are 12 a day. There is no limit.
    shortage = CpuShortage.proposed(tried(usage, 200.0))
    assert shortage is not None
    assert (shortage.short_days, shortage.pod_days) == (6, 10) and shortage.minutes == pytest.approx(120.0)
    assert shortage.sentence == (
        "CPU demand above the request on 6 of 10 pod-days, for 12 minutes a day; throttled at no time."
    )


def test_minutes_above_a_limit_are_throttled_ones() -> None:
    usage = calm()
    usage[0, :8] = 300.0
    # 8 slots are 40 minutes of ten days, all above both.
    shortage = CpuShortage.proposed(tried(usage, 200.0, 200.0))
    assert shortage is not None
    assert shortage.sentence.endswith("on 1 of 10 pod-days, for 4 minutes a day; throttled for 4 minutes a day.")


def test_every_pod_has_days_of_its_own_and_days_without_a_sample_are_none() -> None:
    usage = calm(pods=2)
    usage[1, : 7 * DAY] = np.nan  # the second pod began three days ago
    usage[1, 8 * DAY] = 900.0
    shortage = CpuShortage.proposed(tried(usage, 200.0))
    assert shortage is not None
    assert (shortage.short_days, shortage.pod_days) == (1, 13)
    assert "on 1 of 13 pod-days, for less than a minute a day" in shortage.sentence


def test_a_request_that_nothing_passed_is_said_in_days_not_in_a_zero() -> None:
    shortage = CpuShortage.proposed(tried(calm(), 100.0))
    assert shortage is not None
    assert shortage.sentence == "CPU demand above the request on none of 10 pod-days; throttled at no time."


@pytest.mark.parametrize("request_", [np.nan, 0.0])
def test_without_a_request_nothing_is_called_above_it(request_: float) -> None:
    backtested = tried(calm(), request_)
    assert (backtested.short_pod_days, backtested.short_minutes) == (None, None)
    of = CpuShortage.proposed(backtested)
    assert of is not None and of.sentence == f"{NO_REQUEST}; throttled at no time."


def test_results_of_an_older_version_say_nothing() -> None:
    assert sentences(replace(TRIED, cpu_pod_days=0)) == ()


def test_both_values_are_told_as_it_was_first() -> None:
    both = dict(sentences(replace(TRIED, now_short_pod_days=0, now_short_minutes=0.0)))
    assert list(both) == ["as it was", "as proposed"]
    assert "none of 10 pod-days" in both["as it was"] and "6 of 10 pod-days" in both["as proposed"]


@pytest.mark.slow
@given(st.lists(st.floats(0, 500), min_size=DAY, max_size=DAY), st.floats(1, 400), st.floats(0, 200))
def test_a_larger_request_is_never_passed_more_often(day: list[float], request_: float, more: float) -> None:
    usage = np.tile(np.array(day, dtype=np.float32), (1, DAYS))
    less, larger = (tried(usage, amount) for amount in (request_, request_ + more))
    assert larger.short_minutes is not None and less.short_minutes is not None
    assert larger.short_pod_days is not None and less.short_pod_days is not None
    assert larger.short_minutes <= less.short_minutes and larger.short_pod_days <= less.short_pod_days
    assert (larger.short_minutes > 0) == (larger.short_pod_days > 0)
