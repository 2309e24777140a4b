"""The back-test follows its written rules, and a larger amount never does more harm in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import Signal, Usage
from cotenant.recommender.backtest import (
    Amounts,
    BacktestColumns,
    Recorded,
    amounts_once_applied,
    backtest,
    present,
    record,
    share_above,
)
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from tests.support.evidence import Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
DAY = 288
WEEK = 7 * DAY


def flat(amount: float, slots: int = WEEK, pods: int = 1) -> np.ndarray:
    return np.full((pods, slots), float(amount))


def amounts(evidence: Evidence, **replaced: float) -> Amounts:
    """The present amounts of every container with some replaced, such as cpu_limit=400."""
    present_amounts = present(evidence)
    for name, amount in replaced.items():
        resource, which = name.split("_")
        column = (present_amounts.requests if which == "request" else present_amounts.limits)[Resource(resource)]
        column[:] = amount
    return present_amounts


def outcome(case: Case, **replaced: float) -> BacktestColumns:
    evidence = evidence_of(case)
    return backtest(record(evidence, 7), present(evidence), amounts(evidence, **replaced))


def with_peaks(evidence: Evidence, peaks: Any) -> Evidence:
    """The evidence with the highest CPU usage of each slot, rows as those of the mean."""
    base = evidence.usage[Signal.CPU_USAGE_MEAN]
    spec = Signal.CPU_USAGE_MAX.spec
    usage = Usage(base.refs, base.grid, np.asarray(peaks, dtype=np.float32), spec.resource, spec.statistic)
    rows = evidence.usage_rows[Signal.CPU_USAGE_MEAN]
    return replace(
        evidence,
        usage={**evidence.usage, Signal.CPU_USAGE_MAX: usage},
        usage_rows={**evidence.usage_rows, Signal.CPU_USAGE_MAX: rows},
    )


def plain_share(mean: float, peak: float, amount: float) -> float:
    """The module's rule for one slot, word by word."""
    low = max(2 * mean - peak, 0.0)
    if peak <= amount or peak <= 0:
        return 0.0
    busy = 2 * mean / (peak + low)
    if amount <= low:
        return busy
    return busy * (peak - amount) / (peak - low)


def test_demand_above_the_limit_all_the_time_is_throttled_all_the_time() -> None:
    columns = outcome(Case(cpu=flat(500), limits={CPU: 1000}), cpu_limit=400)
    assert columns.now_throttled_minutes.tolist() == [0]
    assert columns.throttled_minutes.tolist() == [7 * 1440]


def test_throttled_time_counts_as_demand_under_the_present_limit_too() -> None:
    # usage 300 at a limit of 300, 200 more refused: demand 500. Under 600 nothing would have been refused.
    columns = outcome(Case(cpu=flat(300), throttled=flat(200), limits={CPU: 300}), cpu_limit=600)
    assert columns.now_throttled_minutes.tolist() == [7 * 1440]
    assert columns.throttled_minutes.tolist() == [0]


def test_a_peak_above_the_limit_costs_its_share_of_the_slot() -> None:
    # mean 400, peak 600: even between 200 and 600; a quarter lies above 500: 1.25 of 5 minutes in each of 288 slots
    evidence = with_peaks(evidence_of(Case(cpu=flat(400, DAY), limits={CPU: 1000})), flat(600, DAY))
    columns = backtest(record(evidence, 7), present(evidence), amounts(evidence, cpu_limit=500))
    assert columns.throttled_minutes[0] == pytest.approx(288 * 1.25, rel=1e-5)


def test_a_short_burst_is_busy_only_as_long_as_its_mean_allows() -> None:
    # mean 50, peak 1000: even between 0 and 1000 for a tenth of the slot; half of that is above 500: 0.25 minutes
    evidence = with_peaks(evidence_of(Case(cpu=flat(50, DAY), limits={CPU: 1000})), flat(1000, DAY))
    columns = backtest(record(evidence, 7), present(evidence), amounts(evidence, cpu_limit=500))
    assert columns.throttled_minutes[0] == pytest.approx(288 * 0.25, rel=1e-5)


def test_nothing_is_throttled_without_a_limit() -> None:
    columns = outcome(Case(cpu=flat(500), limits={CPU: 400}), cpu_limit=np.nan)
    assert columns.throttled_minutes.tolist() == [0]
    assert columns.now_throttled_minutes.tolist() == [7 * 1440]


def test_an_excursion_of_an_hour_is_one_kill_and_one_on_another_day_a_second() -> None:
    memory = flat(100 * MIB)
    memory[0, 10:22] = 300 * MIB
    memory[0, 3 * DAY + 5] = 300 * MIB
    columns = outcome(Case(memory=memory, limits={MEMORY: 400 * MIB}), memory_limit=200 * MIB)
    assert columns.oom_kills.tolist() == [2]
    assert columns.now_oom_kills.tolist() == [0]


def test_recorded_kills_count_under_every_limit_up_to_the_one_they_happened_at() -> None:
    # two kills at 512 MiB within one day, and the working set was seen above 400 MiB on that day and on one other
    memory = flat(300 * MIB)
    memory[0, -20:] = memory[0, 100] = 450 * MIB
    case = Case(memory=memory, limits={MEMORY: 512 * MIB}, kills=[(600, 512 * MIB), (3000, 512 * MIB)])
    assert outcome(case).now_oom_kills.tolist() == [2]
    assert outcome(case, memory_limit=400 * MIB).oom_kills.tolist() == [3]  # the two, and the other day
    assert outcome(case, memory_limit=513 * MIB).oom_kills.tolist() == [0]
    assert outcome(case, memory_limit=np.nan).oom_kills.tolist() == [0]


def test_a_kill_of_a_pod_without_a_memory_series_counts() -> None:
    columns = outcome(Case(cpu=flat(10), limits={MEMORY: 64 * MIB}, kills=[(600, 64 * MIB)]))
    assert columns.now_oom_kills.tolist() == [1]


def test_kills_before_the_window_do_not_count() -> None:
    case = Case(memory=flat(MIB, 2 * WEEK), limits={MEMORY: 64 * MIB}, kills=[(8 * 86_400, 64 * MIB)])
    assert outcome(case).now_oom_kills.tolist() == [0]


def test_an_eviction_is_a_day_above_the_new_request_that_was_not_above_the_old() -> None:
    memory = flat(100 * MIB)
    memory[0, 10:22] = 300 * MIB  # above the new request only
    memory[0, 3 * DAY] = 700 * MIB  # above both
    case = Case(memory=memory, requests={MEMORY: 500 * MIB})
    assert outcome(case, memory_request=200 * MIB).evictions.tolist() == [1]


def test_freed_counts_every_pod_for_as_long_as_it_ran() -> None:
    cpu = flat(10, pods=2)
    cpu[1, : WEEK // 2] = np.nan  # ran half the week
    cpu[1, WEEK // 2 + 50] = np.nan  # a gap in its life is no end
    columns = outcome(Case(cpu=cpu, requests={CPU: 1000}), cpu_request=600)
    assert columns.freed[CPU].tolist() == [400 * 1.5]


def test_pod_minutes_are_those_in_which_pods_were_measured() -> None:
    cpu = flat(10, pods=2).reshape(2, 7, DAY)
    cpu[1, :, DAY // 4 :] = np.nan  # one pod name that is back for six hours of each day
    # 7 days of 1440 minutes, and 7 x 360
    assert outcome(Case(cpu=cpu.reshape(2, WEEK))).pod_minutes.tolist() == [7 * 1440 + 7 * 360]
    assert outcome(Case(memory=flat(MIB))).pod_minutes.tolist() == [7 * 1440]


def test_a_request_that_is_not_set_counts_as_the_limit() -> None:
    case = Case(cpu=flat(10), limits={CPU: 800})
    assert outcome(case, cpu_request=300).freed[CPU].tolist() == [500]
    assert outcome(Case(cpu=flat(10)), cpu_request=300).freed[CPU].tolist() == [-300]


def test_only_the_last_days_count() -> None:
    cpu = flat(100, 2 * WEEK)
    cpu[0, :WEEK] = 900
    columns = outcome(Case(cpu=cpu, limits={CPU: 1000}), cpu_limit=500)
    assert (columns.days, columns.throttled_minutes.tolist()) == (7.0, [0])


def test_a_history_of_a_day_and_a_half_is_judged_as_such() -> None:
    memory = flat(300 * MIB, DAY + DAY // 2)
    columns = outcome(Case(memory=memory, limits={MEMORY: 400 * MIB}), memory_limit=200 * MIB)
    assert columns.days == 1.5
    assert columns.oom_kills.tolist() == [2]  # the half day before and the whole day


def test_containers_do_not_mix_and_one_without_series_has_no_back_test() -> None:
    cases = [Case("a", cpu=flat(500), limits={CPU: 1000}), Case("b"), Case("c", cpu=flat(300), limits={CPU: 1000})]
    evidence = evidence_of(*cases)
    columns = backtest(record(evidence, 7), present(evidence), amounts(evidence, cpu_limit=400))
    assert columns.throttled_minutes.tolist() == [7 * 1440, 0, 0]
    assert columns.of(1) is None
    first = columns.of(0)
    assert first is not None
    assert (first.days, first.throttled_minutes, first.freed_bytes) == (7.0, 7 * 1440.0, 0)


def test_proposed_writes_set_and_unset_and_leaves_what_is_withheld() -> None:
    evidence = evidence_of(Case(cpu=flat(1), requests={CPU: 100, MEMORY: 5}, limits={CPU: 200, MEMORY: 6}))
    values = (
        Value(CPU, Field.REQUEST, 100, 50, Action.SET, Reason.OK),
        Value(CPU, Field.LIMIT, 200, None, Action.UNSET, Reason.OK),
        Value(MEMORY, Field.REQUEST, 5, None, Action.WITHHELD, Reason.NO_DATA),
    )
    applied_amounts = amounts_once_applied(evidence, [Recommendation(evidence.containers[0], "x", 1, values, 0, "", 0)])
    assert (
        applied_amounts.requests[CPU][0],
        applied_amounts.requests[MEMORY][0],
        applied_amounts.limits[MEMORY][0],
    ) == (50, 5, 6)
    assert np.isnan(applied_amounts.limits[CPU][0])
    assert present(evidence).requests[CPU][0] == 100


usages = arrays(np.float64, (2, 60), elements=st.floats(0, 4000) | st.just(float("nan")))
peaks_over = arrays(np.float64, (2, 60), elements=st.floats(1, 5))
limits = st.floats(1, 6000)


def recorded(
    means: np.ndarray, ratio: np.ndarray, refused: np.ndarray, kills: Sequence[float]
) -> tuple[Evidence, Recorded]:
    """Two pods with CPU by these matrices, and memory of as many MiB; kills at these MiB in the last hour."""
    events = [(60 * (i + 1), int(k * MIB)) for i, k in enumerate(kills)]
    case = Case(
        cpu=means,
        throttled=refused,
        memory=means * MIB,
        limits={CPU: 900, MEMORY: 900 * MIB},
        requests={CPU: 600, MEMORY: 600 * MIB},
        kills=events,
    )
    evidence = with_peaks(evidence_of(case), means * ratio)
    return evidence, record(evidence, 7)


@pytest.mark.slow
@given(usages, peaks_over, usages, st.lists(limits, max_size=3), limits, limits)
def test_a_larger_amount_never_does_more_harm(
    means: np.ndarray, ratio: np.ndarray, refused: np.ndarray, kills: list[float], first: float, other: float
) -> None:
    evidence, back_record = recorded(means, ratio, refused, kills)
    small, large = (np.array([amount]) for amount in sorted((first, other)))
    assert back_record.minutes_above(small)[0] >= back_record.minutes_above(large)[0]
    assert back_record.oom_kills(small * MIB)[0] >= back_record.oom_kills(large * MIB)[0]
    now = present(evidence).requests[MEMORY]
    assert back_record.evictions(now, small * MIB)[0] >= back_record.evictions(now, large * MIB)[0]
    assert back_record.minutes_above(np.array([np.inf]))[0] == 0


@pytest.mark.slow
@given(usages, peaks_over, usages, st.lists(limits, max_size=3))
def test_the_present_amounts_do_exactly_what_they_did(
    means: np.ndarray, ratio: np.ndarray, refused: np.ndarray, kills: list[float]
) -> None:
    evidence, back_record = recorded(means, ratio, refused, kills)
    same = backtest(back_record, present(evidence), present(evidence))
    assert same.throttled_minutes.tolist() == same.now_throttled_minutes.tolist()
    assert same.oom_kills.tolist() == same.now_oom_kills.tolist()
    assert same.evictions.tolist() == [0]
    assert all(freed.tolist() == [0] for freed in same.freed.values())


@pytest.mark.slow
@given(usages, st.integers(1, 5000), st.integers(1, 5000))
def test_what_is_freed_adds_up(means: np.ndarray, first: int, second: int) -> None:
    evidence, back_record = recorded(means, np.ones_like(means), np.zeros_like(means), [])
    now, half = present(evidence), amounts(evidence, cpu_request=first, memory_request=first * MIB)
    double = amounts(evidence, cpu_request=second, memory_request=second * MIB)
    for resource in Resource:
        steps = backtest(back_record, now, half).freed[resource] + backtest(back_record, half, double).freed[resource]
        assert steps == pytest.approx(backtest(back_record, now, double).freed[resource], rel=1e-9)


@pytest.mark.slow
@given(usages, peaks_over, usages, limits)
def test_throttled_minutes_agree_with_the_rule_slot_by_slot(
    means: np.ndarray, ratio: np.ndarray, refused: np.ndarray, limit: float
) -> None:
    _, back_record = recorded(means, ratio, refused, [])
    expected, amount = 0.0, float(np.float32(limit))
    for mean, peak, extra in zip(*(np.float32(m).ravel() for m in (means, means * ratio, refused)), strict=True):
        more = 0.0 if np.isnan(extra) else float(extra)
        if not np.isnan(mean):
            highest = max(float(peak), float(mean)) + more
            assume(abs(highest - amount) > 1e-4 * amount)  # single precision may see it on the other side
            expected += 5 * plain_share(float(mean) + more, highest, amount)
    assert back_record.minutes_above(np.array([limit]))[0] == pytest.approx(expected, rel=1e-3, abs=0.05)


@given(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0.1, 1e5))
def test_a_share_lies_between_none_and_all(mean: float, more: float, amount: float) -> None:
    m, p, a = (np.array([[x]], dtype=np.float32) for x in (mean, mean + more, amount))
    assert 0 <= share_above(m, p, a)[0, 0] <= 1
