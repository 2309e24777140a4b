"""What accepting refuses before anything is written: it rests, holds nobody up, and is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.decide.halt import LONGEST_REST_SECONDS, AcceptRefusal, gap_of
from cotenant.autopilot.decide.round_order import RoundInputs, decide
from cotenant.autopilot.model import AutopilotMode, QueueVerdict
from cotenant.base.reasons import Reason
from cotenant.base.text import in_time
from tests.autopilot.test_queue import NOW, candidate, names, ref

MINUTE = 60.0
REFUSAL = AcceptRefusal("shop/p", "guardrail running-rollout: it rolls out", NOW)


def test_what_was_refused_rests_with_its_reason_and_the_next_one_goes() -> None:
    inputs = RoundInputs(NOW + MINUTE, (candidate("a", 9.0), candidate("b", 1.0)), refusals={ref("a"): REFUSAL})
    acts, waits = decide(inputs)
    assert (acts.candidate.workload, acts.verdict) == (ref("b"), QueueVerdict.ACT)
    assert (waits.candidate.workload, waits.reason) == (ref("a"), Reason.AUTOPILOT_REFUSED)
    # a quarter of an hour, of which a minute has passed
    assert waits.words == "guardrail running-rollout: it rolls out; the next try is in 14 min"
    later = replace(inputs, now_seconds=NOW + 15 * MINUTE)
    assert names(decide(later)) == ["a"]  # at most one at once, the one that is worth more


def test_a_person_who_resumes_the_workload_ends_the_rest_and_a_proposal_never_rests() -> None:
    inputs = RoundInputs(NOW + MINUTE, (candidate("a"),), refusals={ref("a"): REFUSAL})
    assert names(decide(inputs)) == []
    assert names(decide(replace(inputs, cleared_seconds={str(ref("a")): NOW + 1}))) == ["a"]
    observed = (candidate("a", mode=AutopilotMode.OBSERVE),)
    assert names(decide(replace(inputs, candidates=observed)), QueueVerdict.PROPOSE) == ["a"]


@given(st.integers(1, 10_000), st.floats(-1e9, 1e9))
def test_a_rest_grows_to_a_day_and_ends(times: int, passed_seconds: float) -> None:
    refusal = replace(REFUSAL, times=times)
    # 15 minutes, an hour, four hours, sixteen hours, a day
    assert refusal.rest_seconds == min(15 * MINUTE * 4.0 ** min(times - 1, 4), LONGEST_REST_SECONDS)
    left_seconds = refusal.left_seconds(NOW + passed_seconds)
    assert 0.0 <= left_seconds <= refusal.rest_seconds
    assert (left_seconds > 0) == (NOW <= NOW + passed_seconds < NOW + refusal.rest_seconds)


def test_a_missing_right_is_the_gap_of_its_policy_alone() -> None:
    forbidden = replace(REFUSAL, words="may not list pods", is_forbidden=True)
    assert gap_of("shop/p", [REFUSAL, forbidden]) == "may not list pods"
    assert gap_of("shop/p", [REFUSAL]) == gap_of("pay/q", [forbidden]) == ""


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(-1.0, "at once"), (0.0, "at once"), (0.2, "in 1 s"), (59.5, "in 1 min"), (7200.0, "in 2 h")],
)
def test_what_waits_never_waits_for_nothing(seconds: float, duration: str) -> None:
    assert in_time(seconds) == duration
