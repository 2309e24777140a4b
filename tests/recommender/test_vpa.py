"""The vpa strategy gives the numbers of VPA's published rules; each is derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.histogram import CPU_BUCKETS, MEMORY_BUCKETS, HistogramBatch
from cotenant.recommender.base import proportional_limit
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.settings import VpaSettings
from cotenant.recommender.strategies.vpa import Vpa, VpaStart, confidence, estimate, pod_peaks
from tests.support.evidence import END, STEP, Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
DAY = 288
OWN = VpaSettings()
NO_CHECKPOINTS = VpaStart(CPU, 1)


def recommended(case: Case, own: VpaSettings = OWN) -> Recommendation:
    return Vpa().recommend(evidence_of(case), RecommenderSettings(vpa=own))[0]


def value(recommendation: Recommendation, resource: Resource, which: Field = Field.REQUEST) -> Value:
    proposal = recommendation.value(resource, which)
    assert proposal is not None
    return proposal


def flat(amount: float, days: float = 2) -> np.ndarray:
    return np.full((1, round(days * DAY)), float(amount))


def test_a_flat_series_gives_the_end_of_its_bucket_plus_fifteen_percent() -> None:
    # CPU bucket b starts at 10 (1.05^b - 1) / 0.05 m. 500 m: 1.05^b = 3.5 -> b = 25.67, bucket 25 ends at
    # 200 (1.05^26 - 1) = 511.13 m -> 511, margin 76.65 -> 76: 587 m.
    # Memory 300 MiB = 314572800 B: 2e8 (1.05^b - 1), b = 19.36; bucket 19 ends at 2e8 (1.05^20 - 1) = 330659541 B,
    # margin 49598931: 380258472 B.
    recommendation = recommended(Case(cpu=flat(500), memory=flat(300 * MIB)))
    assert value(recommendation, CPU).amount == 587
    assert value(recommendation, MEMORY).amount == 380_258_472


def test_bounds_stretch_with_little_confidence() -> None:
    # 2 days less one step: days = 575 * 300 / 86400 = 1.99653; minutes = 576 * 5 / 1440 = 2.0; c = 1.99653
    # upper = trunc(587 x (1 + 1 / 1.99653)) = trunc(881.01); lower = trunc(587 (1 + 0.001 / 1.99653)^-2) = 586
    proposal = value(recommended(Case(cpu=flat(500))), CPU)
    assert proposal.inputs["confidence_days"] == pytest.approx(1.996528, abs=1e-6)
    assert proposal.inputs["upper_bound"] == 881
    assert proposal.inputs["lower_bound"] == 586


def test_confidence_is_the_smaller_of_span_and_minutes_sampled() -> None:
    # every second slot of 2 days: span 574 slots = 1.993 days, minutes 288 * 5 / 1440 = 1.0
    holes = flat(500)
    holes[0, 1::2] = math.nan
    assert confidence(evidence_of(Case(cpu=holes)), NO_CHECKPOINTS)[0] == pytest.approx(1.0)
    # two pods at once double the minutes, as VPA counts samples; the span is 1.9965 days
    assert confidence(evidence_of(Case(cpu=np.full((2, 2 * DAY), 5.0))), NO_CHECKPOINTS)[0] == pytest.approx(
        575 * 300 / 86400
    )
    assert confidence(evidence_of(Case(cpu=flat(math.nan))), NO_CHECKPOINTS)[0] == 0


def test_without_confidence_the_upper_bound_is_endless_and_the_lower_one_the_floor() -> None:
    # one sample: span 0
    proposal = value(recommended(Case(cpu=np.array([[500.0]]))), CPU)
    assert proposal.inputs["upper_bound"] == 10**14
    assert proposal.inputs["lower_bound"] == 25
    assert proposal.amount == 587


def test_the_pods_minimum_is_split_evenly_over_its_containers() -> None:
    case = Case(cpu=flat(1), memory=flat(1 * MIB), containers=3)
    recommendation = recommended(case)
    # 1 m: bucket 0 ends at 10 m -> 10 + 1 = 11 m; 25 / 3 = 8.33 -> 8 m does not bind; memory 250 MiB / 3 -> 87381333 B
    assert value(recommendation, CPU).amount == 11
    assert value(recommendation, MEMORY).amount == 87_381_333
    alone = recommended(Case(cpu=flat(1), memory=flat(1 * MIB)))
    assert (value(alone, CPU).amount, value(alone, MEMORY).amount) == (25, 250 * MIB)


def test_an_init_container_takes_no_share_of_the_pods_minimum() -> None:
    evidence = evidence_of(Case(cpu=flat(1), memory=flat(1 * MIB), containers=2))
    main, other = evidence.workloads[0].containers
    workload = replace(evidence.workloads[0], containers=(main, replace(other, role=ContainerRole.INIT)))
    evidence = replace(evidence, workloads=(workload,) * len(evidence))
    recommendation = Vpa().recommend(evidence, RecommenderSettings(vpa=OWN))[0]
    assert (value(recommendation, CPU).amount, value(recommendation, MEMORY).amount) == (25, 250 * MIB)


def test_recent_samples_weigh_twice_those_of_a_day_before() -> None:
    # weights by day, newest first: 1, 1/2, 1/4, ...: four days old busy 2000 m, then calm 100 m for 4 days:
    # share of the busy day = (1/16) / (1 + 1/2 + 1/4 + 1/8 + 1/16) = 3.2 % < 10 %, so p90 is the calm bucket;
    # with one calm day it is (1/2) / (3/2) = 33 %, so p90 is the busy bucket
    busy = np.full((1, DAY), 2000.0)
    long_calm = np.concatenate([busy, flat(100, 4)], axis=1)
    short_calm = np.concatenate([busy, flat(100, 1)], axis=1)

    def with_margin(amount: float) -> int:
        end = int(CPU_BUCKETS.starts[CPU_BUCKETS.find(np.array([amount]))[0] + 1])
        return end + int(end * 0.15)

    assert value(recommended(Case(cpu=long_calm)), CPU).amount == with_margin(100)
    assert value(recommended(Case(cpu=short_calm)), CPU).amount == with_margin(2000)


def test_one_peak_a_day_counts_from_the_pods_first_sample() -> None:
    times = np.arange(0, 3 * 86_400, 3600, dtype=np.int64) + 7_200
    values = np.ones(len(times))
    values[[5, 30, 70]] = [10.0, 20.0, 30.0]
    ends, peaks = pod_peaks(times, values, [], OWN)
    assert ends.tolist() == [7_200 + 86_400, 7_200 + 2 * 86_400, 7_200 + 3 * 86_400]
    assert peaks.tolist() == [10.0, 20.0, 30.0]


def test_an_interval_without_samples_has_no_peak_and_does_not_move_the_next() -> None:
    ends, peaks = pod_peaks(np.array([0, 3 * 86_400 + 5]), np.array([4.0, 6.0]), [], OWN)
    assert ends.tolist() == [86_400, 4 * 86_400]
    assert peaks.tolist() == [4.0, 6.0]
    assert [a.tolist() for a in pod_peaks(np.array([], dtype=np.int64), np.array([]), [], OWN)] == [[], []]


def test_an_oom_kill_is_a_peak_above_the_request_and_what_was_used() -> None:
    times, values = np.array([0, 600]), np.array([900.0 * MIB, 950.0 * MIB])
    # request 512 MiB < peak 900 MiB so far: max(900 + 100, 900 x 1.2) = 1080 MiB; the later sample is lower
    assert pod_peaks(times, values, [(300, 512.0 * MIB)], OWN)[1].tolist() == [1080 * MIB]
    # request above the peak, small: 150 + 100 beats 150 x 1.2
    assert pod_peaks(times[:1], np.array([1.0]), [(300, 150.0 * MIB)], OWN)[1].tolist() == [250 * MIB]
    # a kill that opens an interval still counts from the peak before, and a second kill is not built on the first
    assert pod_peaks(times, values, [(90_000, 10.0 * MIB)], OWN)[1].tolist() == [950 * MIB, 1140 * MIB]
    assert pod_peaks(times[:1], values[:1], [(300, 1.0), (600, 1.0)], OWN)[1].tolist() == [1080 * MIB]
    # a kill before any sample opens the first interval
    ends, peaks = pod_peaks(np.array([], dtype=np.int64), np.array([]), [(50, 200.0 * MIB)], OWN)
    assert (ends.tolist(), peaks.tolist()) == ([86_450], [300 * MIB])


def test_a_kill_raises_the_recommendation_even_of_a_pod_without_memory_samples() -> None:
    calm = Case(memory=flat(300 * MIB), requests={MEMORY: 2048 * MIB})
    killed = Case(memory=flat(300 * MIB), requests={MEMORY: 2048 * MIB}, kills=[(STEP, None)])
    # two daily peaks: 300 MiB and, in the last day, max(2148, 2457.6) MiB, whose weight is twice the other's: p90 is it
    end = int(MEMORY_BUCKETS.starts[MEMORY_BUCKETS.find(np.array([2048 * MIB * 1.2]))[0] + 1])
    assert value(recommended(killed), MEMORY).amount == end + int(end * 0.15)
    assert (value(recommended(calm), MEMORY).amount or 0) < 400 * MIB
    only = Case(cpu=flat(1), requests={MEMORY: 2048 * MIB}, kills=[(STEP, None)])
    assert value(recommended(only), MEMORY).amount == end + int(end * 0.15)


def test_limits_keep_their_ratio_and_absent_ones_stay_absent() -> None:
    recommendation = recommended(Case(cpu=flat(500), requests={CPU: 300}, limits={CPU: 1000}))
    assert value(recommendation, CPU, Field.LIMIT).amount == 1000 * 587 // 300
    assert recommended(Case(cpu=flat(500), requests={CPU: 300})).value(CPU, Field.LIMIT) is None
    assert proportional_limit(1000, None, 587) == 587  # the API server sets a missing request to the limit
    assert proportional_limit(1000, 1000, 587) == 587
    assert proportional_limit(None, 1000, 587) is None
    assert proportional_limit(0, 1000, 587) is None


def test_the_estimate_cuts_at_every_step() -> None:
    batch = HistogramBatch.empty(1, CPU_BUCKETS, 86_400).add(np.array([[15.0]]), np.array([0]))
    bounds = estimate(batch, np.array([3.0]), np.array([0]), OWN)
    # bucket 1 ends at 20.5 -> 20; margin 3.0 -> 23; upper 23 * 4/3 = 30.67 -> 30; lower 23 * 0.99933 = 22.98 -> 22
    assert (bounds.target[0], bounds.upper[0], bounds.lower[0]) == (23, 30, 22)


def test_no_samples_give_no_recommendation_and_an_autoscaler_only_a_note() -> None:
    recommendation = recommended(Case(cpu=flat(500), hpa={CPU: 80}))
    assert "autoscaler" in str(value(recommendation, CPU).inputs["note"])
    assert (value(recommendation, MEMORY).action, value(recommendation, MEMORY).reason) == (
        Action.WITHHELD,
        Reason.NO_DATA,
    )


absurd = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.floats(0, 5000, width=32)


@settings(max_examples=80)
@given(
    st.lists(absurd, min_size=1, max_size=12),
    st.tuples(*[st.none() | st.integers(0, 2**62)] * 4),
    st.lists(st.integers(0, END), max_size=2),
)
def test_whatever_comes_in_amounts_are_whole_and_bounds_are_ordered(
    pattern: list[float], now: tuple[int | None, ...], kills: list[int]
) -> None:
    rows = np.resize(np.array(pattern, dtype=np.float32), (2, 2 * DAY))
    requests = {r: a for r, a in zip(Resource, now[:2], strict=True) if a is not None}
    limits = {r: a for r, a in zip(Resource, now[2:], strict=True) if a is not None}
    case = Case(cpu=rows, memory=rows, requests=requests, limits=limits, kills=[(ago, None) for ago in kills])
    for v in recommended(case).values:
        assert (v.amount is None) == (v.action is Action.WITHHELD)
        assert v.amount is None or 0 <= v.amount < 2**63
        if v.action is Action.SET:
            assert 0 <= v.inputs["lower_bound"] <= v.inputs["upper_bound"] <= 10**14  # type: ignore[operator]
            assert v.field is Field.LIMIT or v.inputs["lower_bound"] <= v.amount <= v.inputs["upper_bound"]  # type: ignore[operator]


def test_a_value_on_the_border_of_two_buckets_belongs_to_the_upper_one() -> None:
    # 10 m is the start of bucket 1, whose end is 20.5 m: 20 + 3 = 23 m, as VPA itself answers
    assert CPU_BUCKETS.find(np.array([9.99, 10.0, 10.01])).tolist() == [0, 1, 1]
    assert value(recommended(Case(cpu=flat(10), containers=2)), CPU).amount == 23
