"""Confidence falls with every weakness, and the sentences begin with the weakest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.model.recommendation import Action, Backtest, Field, Recommendation, Trust, Value
from cotenant.recommender.settings import BacktestSettings
from cotenant.recommender.trust import Grounds, trust
from tests.support.evidence import Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
DAY = 288
HARMLESS = Backtest(7, 0, 0, 0, 0, 0, 0, 0, pod_minutes=3 * 7 * 1440)
SET = (
    Value(CPU, Field.REQUEST, 1, 1, Action.SET, Reason.OK),
    Value(MEMORY, Field.REQUEST, 1, 1, Action.SET, Reason.OK),
)


def flat(amount: float, days: float = 14, pods: int = 3) -> np.ndarray:
    return np.full((pods, round(days * DAY)), float(amount))


GOOD = Case(cpu=flat(500), memory=flat(300 * MIB))


def trust_of(
    case: Case = GOOD,
    backtest: Backtest | None = HARMLESS,
    scrape_seconds: float | None = 30,
    values: tuple[Value, ...] = SET,
) -> Trust:
    evidence = evidence_of(case)
    recommendation = Recommendation(evidence.containers[0], "x", 1, values, 0, "", 0)
    case_trust = trust(Grounds(evidence, BacktestSettings(), scrape_seconds), 0, recommendation, backtest)
    assert case_trust is not None
    return case_trust


def scores(case_trust: Trust, phrase: str) -> str:
    """The one sentence with a phrase."""
    (sentence,) = (s for s in case_trust.because if phrase in s)
    return sentence


def test_confidence_is_half_the_weakest_and_half_the_mean() -> None:
    # 14 days: span 1; weeks (14 days less one slot) / 7 / 2 = 0.999752; 3 pods 3 / 3.5 = 0.857143, the weakest;
    # no peaks stored: one value in 300 s, 0.5 + 0.5 / 5 = 0.6 is weaker still; both halves alike: 1, 1; coverage 1;
    # back-test 1. Mean of 1, 0.999752, 0.857143, 0.6, 1, 1, 1, 1 = 0.932112; (0.6 + 0.932112) / 2
    assert trust_of().confidence == pytest.approx(0.766056, abs=1e-6)
    assert trust_of().because[0] == "One sample every 300 s; shorter peaks are not visible."


def test_a_short_history_is_named_first() -> None:
    short = trust_of(Case(cpu=flat(500, 2), memory=flat(300 * MIB, 2)))
    assert short.because[0].startswith("Only 0.3 weekly cycles seen")
    assert "Only 2.0 days of history; full confidence needs 7." in short.because
    assert short.confidence < trust_of().confidence


def test_an_oom_kill_in_the_back_test_is_named_first() -> None:
    with_kills = trust_of(backtest=replace(HARMLESS, oom_kills=3, now_oom_kills=1))
    assert with_kills.because[0] == "Back-test: 2 more OOM kills in 7 days than with the present limit."
    assert with_kills.confidence < 0.5
    assert trust_of(backtest=replace(HARMLESS, oom_kills=1, now_oom_kills=1)).confidence == trust_of().confidence


def test_more_throttling_or_evictions_than_now_lower_it() -> None:
    # 3 pods x 7 days = 30240 minutes; 302.4 of them are the 1 % that halve the score
    throttled = trust_of(backtest=replace(HARMLESS, throttled_minutes=302.4))
    # the mean falls by 0.5 / 8 and the weakest from 0.6 to 0.5
    assert trust_of().confidence - throttled.confidence == pytest.approx((0.1 + 0.5 / 8) / 2, abs=1e-6)
    assert scores(throttled, "Back-test") == "Back-test: 302.4 more minutes throttled in 7 days."
    evicted = trust_of(backtest=replace(HARMLESS, evictions=3))  # one a pod and week
    assert evicted.confidence == pytest.approx(throttled.confidence)
    assert scores(evicted, "Back-test").startswith("Back-test: memory exceeded the proposed request 3 times in 7 days")
    assert (
        trust_of(backtest=replace(HARMLESS, throttled_minutes=50, now_throttled_minutes=90)).confidence
        == trust_of().confidence
    )


def test_throttling_weighs_by_the_time_in_which_pods_ran() -> None:
    # 100 minutes more of the 10,080 of a pod that is always on are 1 %, which halves the score; of 2,520, as it is on
    # for six hours a day, they are 4 %: 0.5 ** 4.
    always = trust_of(backtest=replace(HARMLESS, throttled_minutes=100.8, pod_minutes=10_080))
    partly = trust_of(backtest=replace(HARMLESS, throttled_minutes=100.8, pod_minutes=2_520))
    # the mean of eight factors falls by (0.5 - 0.0625) / 8 and the weakest from 0.5 to 0.0625
    assert always.confidence - partly.confidence == pytest.approx((0.4375 + 0.4375 / 8) / 2, abs=1e-6)


def test_halves_that_ask_for_different_amounts_lower_it() -> None:
    cpu = flat(400)
    cpu[:, 7 * DAY :] = 500
    unequal = trust_of(replace(GOOD, cpu=cpu))
    assert "The newer half of the history needs 25 % more CPU than the older one." in unequal.because
    assert "Both halves of the history need the same amount of memory." in unequal.because
    assert unequal.confidence < trust_of().confidence


def test_a_half_without_any_demand_makes_the_other_doubtful() -> None:
    cpu = flat(400)
    cpu[:, : 8 * DAY] = 0
    half_idle = trust_of(replace(GOOD, cpu=cpu))
    assert half_idle.because[0] == "Only one half of the history needs CPU."


def test_a_single_pod_is_no_comparison() -> None:
    alone = trust_of(Case(cpu=flat(500, pods=1), memory=flat(300 * MIB, pods=1)))
    assert "A single pod was seen." in alone.because
    assert alone.confidence < trust_of().confidence


def test_gaps_lower_it() -> None:
    cpu = flat(500)
    cpu[:, 100 : 100 + 4 * DAY] = np.nan
    with_gaps = trust_of(replace(GOOD, cpu=cpu))
    # 10 of 14 days
    assert scores(with_gaps, "measured") == "The pods were measured in 71 % of the time in which they ran."
    assert with_gaps.confidence < trust_of().confidence


def test_only_resources_with_a_proposal_count() -> None:
    cpu = flat(500)
    cpu[:, : 13 * DAY] = np.nan
    withheld = (replace(SET[0], action=Action.WITHHELD, amount=None), SET[1])
    assert trust_of(replace(GOOD, cpu=cpu), values=withheld).confidence == pytest.approx(
        trust_of().confidence, abs=0.02
    )
    assert not any("CPU" in s for s in trust_of(values=withheld).because)


def test_without_a_proposal_there_is_nothing_to_trust() -> None:
    evidence = evidence_of(GOOD)
    withheld = tuple(replace(v, action=Action.WITHHELD, amount=None) for v in SET)
    recommendation = Recommendation(evidence.containers[0], "x", 1, withheld, 0, "", 0)
    assert trust(Grounds(evidence, BacktestSettings()), 0, recommendation, None) is None


@pytest.mark.slow
@given(
    st.floats(0.1, 16),
    st.integers(1, 4),
    st.none() | st.floats(1, 3600),
    st.builds(
        Backtest, st.floats(0.1, 30), *[st.floats(0, 1e6)] * 2, *[st.integers(0, 99)] * 3, *[st.integers(-9, 9)] * 2
    ),
)
def test_confidence_lies_between_0_and_1(days: float, pods: int, scrape: float | None, backtest: Backtest) -> None:
    case = Case(cpu=flat(500, days, pods), memory=flat(300 * MIB, days, pods))
    case_trust = trust_of(case, backtest, scrape)
    assert 0 <= case_trust.confidence <= 1
    assert len(case_trust.because) == 8
    worse = replace(backtest, oom_kills=backtest.now_oom_kills + 1)
    assert trust_of(case, worse, scrape).confidence <= case_trust.confidence
