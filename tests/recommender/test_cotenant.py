"""The cotenant strategy covers busy hours, keeps memory above all that was seen, and withholds instead of guessing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.severity import Severity
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.strategies.cotenant import Cotenant
from tests.support.evidence import END, Case, evidence_of, series

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT
DAY = 288


def recommended(case: Case, **own: float | str) -> Recommendation:
    chosen = RecommenderSettings(cotenant=CotenantSettings(**own))  # type: ignore[arg-type]
    return Cotenant().recommend(evidence_of(case), chosen)[0]


def value(recommendation: Recommendation, resource: Resource, which: Field = REQUEST) -> Value:
    proposal = recommendation.value(resource, which)
    assert proposal is not None
    return proposal


def flat(amount: float, days: float = 2) -> np.ndarray:
    return np.full((1, round(days * DAY)), float(amount))


def test_a_flat_demand_is_requested_with_its_margin() -> None:
    proposal = value(recommended(Case(cpu=flat(400))), CPU)
    # the histogram's percentile is the end of a 5 % bucket, above 400 m; nothing above 400 m was ever seen
    assert proposal.amount == 429  # 400 + sqrt(400 x 2 m) = 428.3
    assert "daily_peak" not in proposal.inputs  # nothing stands out
    assert proposal.inputs["demand_quantile"] == 400
    assert proposal.reason is Reason.OK
    assert proposal.formula


def test_throttled_time_counts_as_demand() -> None:
    starved = recommended(Case(cpu=flat(400), throttled=flat(600)))
    free = recommended(Case(cpu=flat(1000)))
    assert value(starved, CPU).amount == value(free, CPU).amount


@pytest.mark.parametrize("pods", [1, 2])
def test_throttled_time_without_a_sample_of_usage_is_no_part_of_the_demand(pods: int) -> None:
    # 100 m used and 100 m refused on two of four days, no sample of usage on the others: half of the demand is refused.
    used = np.tile(np.concatenate([flat(100, 1), flat(math.nan, 1)], axis=1), (pods, 2))
    proposal = value(recommended(Case(cpu=used, throttled=np.tile(flat(100, 4), (pods, 1)))), CPU)
    assert proposal.inputs["throttled_share"] == 0.5


def test_pods_without_a_sample_of_cpu_in_a_window_off_the_half_hours_leave_memory_judged() -> None:
    slots = DAY + 1  # the window begins five minutes before a half hour of the clock
    unseen, memory = np.full((2, slots), math.nan), np.full((2, slots), 300.0 * MIB)
    recommendation = recommended(Case(cpu=unseen, memory=memory, requests={CPU: 200}))
    assert value(recommendation, CPU).amount is None
    assert value(recommendation, MEMORY).amount is not None


def test_a_nightly_half_hour_below_the_p95_is_still_covered() -> None:
    # 30 of 1440 minutes are 2.1 % of the samples: the p95 sees 50 m only; the half hour of every night is 2000 m
    cpu = flat(50, days=4)
    for day in range(4):
        cpu[0, day * DAY + 24 : day * DAY + 30] = 2000  # 02:00 to 02:30
    proposal = value(recommended(Case(cpu=cpu)), CPU)
    assert float(proposal.inputs["demand_quantile"]) < 60
    assert proposal.inputs["daily_peak"] == 2000
    assert proposal.amount == 2064  # 2000 + sqrt(2000 x 2 m) = 2063.2


def test_one_burst_is_no_habit() -> None:
    # the same hour of two days of fourteen: neither most days nor every week
    cpu = flat(50, days=14)
    for day in (1, 3):
        cpu[0, day * DAY + 24 : day * DAY + 36] = 2000
    proposal = value(recommended(Case(cpu=cpu)), CPU)
    assert not {"daily_peak", "weekly_peak"} & set(proposal.inputs)
    # between 50 + sqrt(50 x 2 m) and the same of a bucket's end, 5 % or 10 m above
    assert proposal.amount is not None
    assert 60 <= proposal.amount <= 71


def test_half_of_a_rise_is_taken_to_last() -> None:
    # 100 m for thirteen days, 900 m in the newest half: the whole window's p95 is 100 m
    cpu = np.concatenate([flat(100, days=13.5), flat(900, days=0.5)], axis=1)
    demand = float(value(recommended(Case(cpu=cpu)), CPU).inputs["demand_quantile"])
    assert demand == pytest.approx((100 + 900) / 2, rel=0.03)  # the decaying p95 sees 900 m, to a bucket of 5 %


def test_a_cpu_limit_that_was_in_the_way_rises_without_history() -> None:
    hour = Case(cpu=flat(500, days=0.05), throttled=flat(300, days=0.05), requests={CPU: 200}, limits={CPU: 500})
    recommendation = recommended(hour)
    assert value(recommendation, CPU).reason is Reason.NOT_ENOUGH_HISTORY
    limit = value(recommendation, CPU, LIMIT)
    assert (limit.amount, limit.reason) == (1600, Reason.OBSERVED_MAXIMUM)  # 800 x 2
    wide = value(recommended(replace(hour, limits={CPU: 900})), CPU, LIMIT)
    assert (wide.amount, wide.reason) == (None, Reason.NOT_ENOUGH_HISTORY)


def test_a_start_up_burst_raises_the_limit_but_not_the_request() -> None:
    calm = Case(cpu=flat(100), requests={CPU: 1000}, limits={CPU: 1200})
    warm = replace(calm, startup={CPU: 1500.0})
    assert value(recommended(warm), CPU).amount == value(recommended(calm), CPU).amount
    limit = value(recommended(warm), CPU, LIMIT)
    assert (limit.amount, limit.reason) == (3000, Reason.OBSERVED_MAXIMUM)  # 1500 x 2


def test_a_limit_stays_unless_it_must_rise_and_an_absent_one_stays_absent() -> None:
    case = Case(cpu=flat(400), memory=flat(200 * MIB), requests={CPU: 1000}, limits={CPU: 4000, MEMORY: 1024 * MIB})
    default, followed = recommended(case), recommended(case, lower_limits=True)
    assert (value(default, CPU, LIMIT).amount, value(default, CPU, LIMIT).reason) == (4000, Reason.LIMIT_KEPT)
    assert (value(default, MEMORY, LIMIT).amount, value(default, MEMORY).amount) == (1024 * MIB, 230 * MIB)
    assert value(followed, CPU, LIMIT).amount == 4 * 429
    assert value(followed, MEMORY, LIMIT).amount == 230 * MIB
    assert recommended(replace(case, limits={})).value(MEMORY, LIMIT) is None
    assert recommended(Case(cpu=flat(400), requests={CPU: 1000})).value(CPU, LIMIT) is None
    removed = value(recommended(Case(cpu=flat(400), limits={CPU: 900}), cpu_limit="unset"), CPU, LIMIT)
    assert (removed.action, removed.amount) == (Action.UNSET, None)


def test_memory_stands_above_the_highest_value_ever_seen_start_up_included() -> None:
    memory = flat(200 * MIB)
    memory[0, 7] = 300 * MIB
    recommendation = recommended(Case(memory=memory, limits={MEMORY: 310 * MIB}))
    for which in Field:
        assert value(recommendation, MEMORY, which).amount == 345 * MIB
        assert value(recommendation, MEMORY, which).reason is Reason.OBSERVED_MAXIMUM
    assert value(recommended(Case(memory=memory, startup={MEMORY: 400.0 * MIB})), MEMORY).amount == 460 * MIB


def test_an_oom_kill_raises_memory_at_once_however_short_the_history() -> None:
    case = Case(memory=flat(200 * MIB, days=0.05), kills=[(600, 512 * MIB)], limits={MEMORY: 512 * MIB})
    proposal = value(recommended(case), MEMORY)
    # max(512 + 100, 512 x 1.2 = 614.4) -> 615 MiB
    assert (proposal.amount, proposal.reason) == (615 * MIB, Reason.OOM_BUMP)
    assert proposal.inputs["oom_kills"] == 1
    calm = value(recommended(replace(case, kills=[])), MEMORY)
    assert (calm.amount, calm.reason) == (None, Reason.NOT_ENOUGH_HISTORY)


def test_an_old_oom_kill_does_not_justify_a_cut_on_a_short_history() -> None:
    # killed at 512 MiB, the limit was raised to 2 GiB since: 615 MiB on an hour of history would be a blind cut
    case = Case(memory=flat(200 * MIB, days=0.05), kills=[(600, 512 * MIB)], limits={MEMORY: 2048 * MIB})
    proposal = value(recommended(case), MEMORY)
    assert (proposal.amount, proposal.reason) == (None, Reason.NOT_ENOUGH_HISTORY)


def test_a_container_that_only_ever_started_up_is_sized_by_that() -> None:
    evidence = evidence_of(Case(cpu=flat(math.nan), startup={CPU: 700.0}))
    portrait = evidence.portraits[CPU]
    span = replace(portrait, first_seconds=np.array([0.0]), last_seconds=np.array([86_400.0]), seen=np.array([289.0]))
    full_coverage = {**evidence.coverage, CPU: np.ones(1)}
    started = replace(evidence, portraits={**evidence.portraits, CPU: span}, coverage=full_coverage)
    recommendations = Cotenant().recommend(started, RecommenderSettings())
    assert value(recommendations[0], CPU).amount == 738  # 700 + sqrt(700 x 2 m) = 737.4
    assert value(recommendations[0], CPU).inputs["startup_max"] == 700


def test_an_oom_kill_with_a_small_limit_adds_at_least_100_mib() -> None:
    proposal = value(recommended(Case(memory=flat(100 * MIB), kills=[(600, 128 * MIB)])), MEMORY)
    assert proposal.amount == 228 * MIB


def test_an_oom_kill_whose_limit_is_unknown_counts_from_the_template_or_from_what_was_seen() -> None:
    known_now = Case(memory=flat(100 * MIB), kills=[(600, None)], limits={MEMORY: 1000 * MIB})
    assert value(recommended(known_now), MEMORY).amount == 1200 * MIB
    # the history of limits knows better than a template that was raised since
    raised = evidence_of(replace(known_now, limits={MEMORY: 4000 * MIB}))
    pod, spec = series(known_now, 0), Signal.MEMORY_LIMIT.spec
    limits = np.full((1, 2), 1000 * MIB, dtype=np.float32)
    recorded = Usage((pod,), TimeGrid(END - 7200, 3600, 2), limits, spec.resource, spec.statistic)
    rows = {**raised.usage_rows, Signal.MEMORY_LIMIT: np.array([0])}
    raised = replace(raised, usage={**raised.usage, Signal.MEMORY_LIMIT: recorded}, usage_rows=rows)
    assert value(Cotenant().recommend(raised, RecommenderSettings())[0], MEMORY).amount == 1200 * MIB
    nothing = Case(memory=flat(1000 * MIB), kills=[(600, None)])
    assert value(recommended(nothing), MEMORY).amount == 1200 * MIB


def test_an_oom_kill_raises_within_the_dead_band_too() -> None:
    case = Case(
        memory=flat(100 * MIB), kills=[(600, 1000 * MIB)], requests={MEMORY: 1150 * MIB}, limits={MEMORY: 1150 * MIB}
    )
    proposal = value(recommended(case), MEMORY)
    assert (proposal.amount, proposal.reason) == (1200 * MIB, Reason.OOM_BUMP)  # 4 % more than now


def test_a_small_change_keeps_the_present_value_and_says_so() -> None:
    steady = Case(memory=flat(1000 * MIB), requests={MEMORY: 1200 * MIB}, limits={MEMORY: 1200 * MIB})
    proposal = value(recommended(steady), MEMORY)  # 1150 would be 4 % less
    assert (proposal.amount, proposal.reason, proposal.severity) == (1200 * MIB, Reason.WITHIN_DEAD_BAND, Severity.GOOD)
    assert proposal.change == 0
    above = replace(steady, requests={MEMORY: 1100 * MIB}, memory=flat(1101 * MIB / 1.0))
    raised = value(recommended(above), MEMORY)  # usage is above the present request: even a small raise is due
    assert raised.amount == math.ceil(1101 * 1.15) * MIB


def test_the_dead_band_keeps_no_request_below_the_demand() -> None:
    lacking = value(recommended(Case(cpu=flat(1040), requests={CPU: 1000})), CPU)
    assert (lacking.amount, lacking.reason) == (1086, Reason.OK)  # 1040 + sqrt(2080) = 1085.6: within 10 % of 1000
    holding = value(recommended(Case(cpu=flat(980), requests={CPU: 1000})), CPU)
    assert (holding.amount, holding.reason) == (1000, Reason.WITHIN_DEAD_BAND)


def test_floors_hold_for_the_pod_and_are_shared_by_its_containers() -> None:
    recommendation = recommended(Case(cpu=flat(0.2), memory=flat(1 * MIB), containers=4))
    assert (value(recommendation, CPU).amount, value(recommendation, CPU).reason) == (
        3,
        Reason.FLOOR,
    )  # 10 m / 4, up; 0.2 + sqrt(0.4) = 0.83 m
    assert (value(recommendation, MEMORY).amount, value(recommendation, MEMORY).reason) == (
        16 * MIB,
        Reason.FLOOR,
    )  # 64 MiB / 4
    alone = recommended(Case(memory=flat(1 * MIB)))
    assert value(alone, MEMORY).amount == 64 * MIB


def test_request_and_autoscaler_target_are_solved_together() -> None:
    # now 1000 m at 50 %: a pod is added above 500 m; 400 + sqrt(800) = 429 m would need 117 %, and 90 % is the highest:
    # the request is what keeps the 500 m there: 500 / 0.9 = 555.6, up
    case = Case(cpu=flat(400), memory=flat(200 * MIB), hpa={CPU: 50}, requests={CPU: 1000}, limits={CPU: 2000})
    recommendation = recommended(case)
    request = value(recommendation, CPU)
    assert (request.amount, request.reason) == (556, Reason.HPA_SOLVED)
    assert (request.inputs["hpa_target_now_percent"], request.inputs["hpa_target_percent"]) == (50, 90)
    assert [n for n in recommendation.notes if "from 50 % to 90 %" in n]
    assert value(recommendation, MEMORY).amount == 230 * MIB


def test_an_autoscaler_that_cannot_be_solved_withholds_its_resource() -> None:
    no_request = Case(cpu=flat(400), memory=flat(200 * MIB), hpa={CPU: 70})
    custom_metric = replace(no_request, hpa={}, requests={CPU: 500}, limits={CPU: 1000})
    for case in (no_request, custom_metric):
        recommendation = recommended(case)
        of_cpu = [(v.field, v.amount, v.reason) for v in recommendation.values if v.resource is CPU]
        assert of_cpu == [(which, None, Reason.HPA_UNSOLVED) for which in list(Field)[: 1 + len(case.limits)]]
        assert value(recommendation, MEMORY).amount == 230 * MIB


def test_short_or_broken_history_is_withheld_with_its_reason() -> None:
    assert value(recommended(Case(cpu=flat(400, days=0.9))), CPU).reason is Reason.NOT_ENOUGH_HISTORY
    holes = flat(400, days=4)
    holes[0, 100:-100] = math.nan  # 200 of 1152 slots
    assert value(recommended(Case(cpu=holes)), CPU).reason is Reason.LOW_COVERAGE
    assert value(recommended(Case(cpu=holes), minimum_coverage=0.1), CPU).amount is not None
    nothing = recommended(Case(cpu=flat(math.nan)))
    assert {value(nothing, r).reason for r in Resource} == {Reason.NO_DATA}
    assert all(v.action is Action.WITHHELD for v in nothing.values)


def test_a_container_that_was_never_seen_has_no_value() -> None:
    recommendations = Cotenant().recommend(evidence_of(Case(cpu=flat(400), containers=2)), RecommenderSettings())
    assert value(recommendations[0], CPU).amount is not None
    assert value(recommendations[1], CPU).reason is Reason.NO_DATA


absurd = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.floats(0, 5000, width=32)
some = st.none() | st.integers(0, 2**62)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    st.lists(absurd, min_size=1, max_size=12),
    st.tuples(some, some, some, some),
    st.lists(st.tuples(st.integers(0, 10**6), some), max_size=2),
    st.floats(0, 2.0**127, width=32),
)
def test_whatever_comes_in_amounts_are_whole_and_a_limit_is_never_below_its_request(
    pattern: list[float], now: tuple[int | None, ...], kills: list[tuple[int, int | None]], startup: float
) -> None:
    rows = np.resize(np.array(pattern, dtype=np.float32), (2, 2 * DAY))
    requests = {r: a for r, a in zip(Resource, now[:2], strict=True) if a is not None}
    limits = {r: a for r, a in zip(Resource, now[2:], strict=True) if a is not None}
    recommendation = recommended(
        Case(
            cpu=rows, memory=rows, throttled=rows, requests=requests, limits=limits, kills=kills, startup={CPU: startup}
        )
    )
    for resource in Resource:
        request, limit = recommendation.value(resource, REQUEST), recommendation.value(resource, LIMIT)
        assert request is not None
        for v in (request, limit):
            if v is not None:
                assert (v.amount is None) == (v.action is Action.WITHHELD)
                assert v.amount is None or 0 <= v.amount < 2**63
                assert all(isinstance(i, str) or math.isfinite(i) for i in v.inputs.values())
        if limit is not None and limit.amount is not None and request.amount is not None:
            assert limit.amount >= request.amount


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**38), min_size=1, max_size=50))
def test_proposed_memory_always_exceeds_every_observed_value(memory_bytes: list[int]) -> None:
    rows = np.resize(np.array(memory_bytes, dtype=np.float32), (1, 2 * DAY))
    proposal = value(recommended(Case(memory=rows)), MEMORY)
    assert proposal.amount is not None
    assert proposal.amount >= max(float(rows.max()) * 1.15 * (1 - 1e-6), 64 * MIB)
