"""krr-simple and krr-simple-limit give KRR's numbers where KRR is right, and better ones where it is not."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.identity import ContainerRef, PodContainerRef
from cotenant.base.kubernetes.quantity import format_bytes, format_millicores
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.severity import Severity
from cotenant.base.usage.server_quantiles import PodAnswer, ServerQuantiles
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.krr import KrrSimple, KrrSimpleLimit
from cotenant.recommender.strategies.settings import KrrSettings
from tests.support.evidence import Case, evidence_of, series

CPU, MEMORY = Resource.CPU, Resource.MEMORY
REQUEST, LIMIT = Field.REQUEST, Field.LIMIT


def recommended(case: Case, krr: KrrSettings | None = None, server: ServerQuantiles | None = None) -> Recommendation:
    chosen = RecommenderSettings(krr=krr or KrrSettings())
    (recommendation,) = KrrSimple().recommend(evidence_of(case, server=server), chosen)
    return recommendation


def amounts(recommendation: Recommendation, resource: Resource) -> tuple[int | None, int | None]:
    request, limit = recommendation.value(resource, REQUEST), recommendation.value(resource, LIMIT)
    assert request is not None
    assert limit is not None
    return request.amount, limit.amount


# --- an independent re-statement of KRR's published rules, in plain loops over raw points --------------------------


def quantile(points: Sequence[float], q: float) -> float:
    """Linear interpolation between the sorted points around rank q * (n - 1)."""
    ordered = sorted(points)
    rank = q * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def restated(
    pods_cpu: Sequence[Sequence[float]], pods_memory: Sequence[Sequence[float]], pooled: bool
) -> tuple[int, int | None, int]:
    """(CPU request in millicores, CPU limit or None, memory in bytes) by recommenders.md: cores and bytes in."""
    if pooled:
        every = [p for pod in pods_cpu for p in pod]
        cpu, limit = quantile(every, 0.66), quantile(every, 0.96)
    else:
        cpu, limit = max(quantile(pod, 0.95) for pod in pods_cpu), None
    memory = max(max(pod) for pod in pods_memory) * 1.15

    def millicores(cores: float) -> int:
        return max(math.ceil(cores * 1000), 10)

    mebibytes = max(math.ceil(memory / 1048576), 100)
    return millicores(cpu), None if limit is None else millicores(limit), mebibytes * 1048576


def server_answers(case: Case, cpu: Sequence[Sequence[float]], memory: Sequence[Sequence[float]]) -> ServerQuantiles:
    """What a server answers to the strategies' questions about raw points (cores, bytes) at 75 s."""
    answers = {
        series(case, i): PodAnswer(float(np.quantile(c, 0.95)) * 1000, len(c), float(max(m)), len(m))
        for i, (c, m) in enumerate(zip(cpu, memory, strict=True))
    }
    every = np.concatenate([np.asarray(c) for c in cpu])
    pooled = {ContainerRef(case.ref, "c0"): {q: float(np.quantile(every, q)) * 1000 for q in (0.66, 0.96)}}
    return ServerQuantiles(0.95, 75, answers, pooled)


def coarse(points: Sequence[float], factor: int, how: str) -> list[float]:
    """75 s points joined into 5-minute slots."""
    blocks = [points[i : i + factor] for i in range(0, len(points) - factor + 1, factor)]
    return [max(b) if how == "max" else sum(b) / len(b) for b in blocks]


@pytest.mark.parametrize("seed", range(25))
def test_full_resolution_numbers_are_those_of_the_restatement(seed: int) -> None:
    rng = random.Random(seed)
    pods = rng.randint(1, 6)
    lengths = [rng.choice([400, 1152, 1600]) for _ in range(pods)]
    cpu = [[rng.lognormvariate(rng.uniform(-5, 1), 0.8) for _ in range(n)] for n in lengths]
    memory = [[rng.lognormvariate(20, 0.3) for _ in range(n)] for n in lengths]
    longest = max(lengths) // 4

    def stored(points: list[list[float]], how: str, unit: float) -> list[list[float]]:
        rows = [[v * unit for v in coarse(p, 4, how)] for p in points]
        return [[math.nan] * (longest - len(r)) + r for r in rows]

    case = Case(cpu=stored(cpu, "mean", 1000), memory=stored(memory, "max", 1))
    evidence = evidence_of(case, server=server_answers(case, cpu, memory))
    for strategy, pooled in ((KrrSimple(), False), (KrrSimpleLimit(), True)):
        (recommendation,) = strategy.recommend(evidence, RecommenderSettings())
        cpu_request, cpu_limit, bytes_both = restated(cpu, memory, pooled)
        found_request, found_limit = amounts(recommendation, CPU)
        assert found_request == pytest.approx(cpu_request, abs=1)
        assert found_limit == (None if cpu_limit is None else pytest.approx(cpu_limit, abs=1))
        assert amounts(recommendation, MEMORY) == pytest.approx((bytes_both, bytes_both), abs=MIB)
        inputs = recommendation.value(CPU, REQUEST)
        assert inputs is not None
        assert inputs.inputs["resolution_seconds"] == 75


def test_without_a_server_the_stored_series_answer_and_the_value_says_so() -> None:
    # pod 0: 0..99 m, rank 0.95 * 99 = 94.05 -> 94.05 m; pod 1 constant 50 m: max over pods 94.05 -> 95 m
    case = Case(cpu=[list(range(100)), [50] * 100], memory=[[200 * MIB] * 100, [240 * MIB] * 100])
    recommendation = recommended(case)
    assert amounts(recommendation, CPU) == (95, None)
    assert amounts(recommendation, MEMORY) == (
        276 * MIB,
        276 * MIB,
    )  # 240 x 1.15 = 276 exactly: no step up by float noise
    value = recommendation.value(CPU, REQUEST)
    assert value is not None
    assert value.inputs["resolution_seconds"] == 300
    assert value.inputs["pods_seen"] == 2
    assert value.reason is Reason.OK


def test_simple_limit_pools_the_points_of_all_pods() -> None:
    # points 0..99 and 100 x 1000 m: sorted rank 0.66 * 199 = 131.34 -> 1000; one pod alone would give 65.34
    case = Case(cpu=[list(range(100)), [1000] * 100], memory=[[1], [1]])
    (recommendation,) = KrrSimpleLimit().recommend(evidence_of(case), RecommenderSettings())
    assert amounts(recommendation, CPU) == (1000, 1000)
    (alone,) = KrrSimpleLimit().recommend(evidence_of(Case(cpu=[list(range(100))])), RecommenderSettings())
    assert amounts(alone, CPU) == (66, 96)  # 65.34 up, 0.96 * 99 = 95.04 up


def test_floors_hold_and_are_named() -> None:
    recommendation = recommended(Case(cpu=[[1.0] * 30], memory=[[5 * MIB] * 30]))
    assert amounts(recommendation, CPU) == (10, None)
    assert amounts(recommendation, MEMORY) == (100 * MIB, 100 * MIB)
    assert {v.reason for v in recommendation.values if v.field is REQUEST} == {Reason.FLOOR}


def test_an_autoscaled_resource_is_withheld_alone() -> None:
    case = Case(cpu=[[100] * 30], memory=[[200 * MIB] * 30], hpa={CPU: 80}, limits={CPU: 500})
    recommendation = recommended(case)
    for which in Field:
        value = recommendation.value(CPU, which)
        assert value is not None
        assert (value.amount, value.action, value.reason) == (None, Action.WITHHELD, Reason.HPA_ON_RESOURCE)
        assert value.severity is Severity.UNKNOWN
    assert amounts(recommendation, MEMORY)[0] == 230 * MIB
    assert amounts(recommended(case, KrrSettings(allow_hpa=True)), CPU) == (100, None)


def test_an_autoscaler_without_a_utilisation_target_on_the_resource_withholds_nothing() -> None:
    assert amounts(recommended(Case(cpu=[[100] * 30], hpa={})), CPU) == (100, None)


def test_oom_kills_count_only_when_asked_and_only_upwards() -> None:
    case = Case(memory=[[200 * MIB] * 30], kills=[(600, 400 * MIB), (300, None)], limits={MEMORY: 100 * MIB})
    assert amounts(recommended(case), MEMORY)[0] == 230 * MIB
    used = recommended(case, KrrSettings(use_oom_kills=True))
    assert amounts(used, MEMORY)[0] == 500 * MIB  # the higher of 400 and the template's 100, x 1.25; 230 is less
    low = Case(memory=[[200 * MIB] * 30], kills=[(600, 100 * MIB)])
    assert amounts(recommended(low, KrrSettings(use_oom_kills=True)), MEMORY)[0] == 230 * MIB


def test_no_data_is_said_as_such() -> None:
    recommendation = recommended(Case(cpu=[[math.nan] * 30]))
    assert {(v.action, v.reason) for v in recommendation.values} == {(Action.WITHHELD, Reason.NO_DATA)}


def test_severity_is_krrs_absolute_one() -> None:
    cases = {
        500: Severity.CRITICAL,
        499: Severity.WARNING,
        250: Severity.WARNING,
        249: Severity.OK,
        100: Severity.OK,
        99: Severity.GOOD,
    }
    for difference, level in cases.items():
        value = recommended(Case(cpu=[[1000] * 30], requests={CPU: 1000 + difference})).value(CPU, REQUEST)
        assert value is not None
        assert value.severity is level
    unset = recommended(Case(cpu=[[1000] * 30], limits={CPU: 2000}))
    request, limit = unset.value(CPU, REQUEST), unset.value(CPU, LIMIT)
    assert request is not None
    assert limit is not None
    assert request.severity is Severity.WARNING  # not set now
    assert (limit.action, limit.severity) == (Action.UNSET, Severity.WARNING)


# --- where KRR is wrong by its own defects --------------------------------------------------------------------------


def test_a_percentile_of_99_5_is_neither_99_nor_the_maximum() -> None:
    # 0..200 m: p99.5 has rank 0.995 * 200 = 199 exactly; p99 would be 198, the maximum 200
    assert amounts(recommended(Case(cpu=[list(range(201))]), KrrSettings(cpu_percentile=99.5)), CPU) == (199, None)
    # p99.9: rank 199.8
    assert recommended(Case(cpu=[list(range(201))]), KrrSettings(cpu_percentile=99.9)).value(CPU, REQUEST).inputs[  # type: ignore[union-attr]
        "measured"
    ] == pytest.approx(199.8)


def test_a_server_that_was_asked_for_another_percentile_is_not_quoted() -> None:
    case = Case(cpu=[list(range(201))])
    server = ServerQuantiles(0.95, 75, {series(case, 0): PodAnswer(190.0, 1000, 1.0, 1000)})
    recommendation = recommended(case, KrrSettings(cpu_percentile=99.5), server)
    assert amounts(recommendation, CPU) == (199, None)
    assert amounts(recommended(case, None, server), CPU) == (190, None)


def test_a_scrape_every_five_minutes_leaves_the_servers_75_s_rate_empty_and_the_stored_series_answer() -> None:
    case = Case(cpu=[[100] * 60], memory=[[200 * MIB] * 60])
    server = ServerQuantiles(0.95, 75, {series(case, 0): PodAnswer(math.nan, 0, 210.0 * MIB, 240)})
    recommendation = recommended(case, None, server)
    assert amounts(recommendation, CPU) == (100, None)
    assert amounts(recommendation, MEMORY)[0] == 242 * MIB  # the server's 210 x 1.15 = 241.5
    steps = {r: recommendation.value(r, REQUEST).inputs["resolution_seconds"] for r in Resource}  # type: ignore[union-attr]
    assert steps == {CPU: 300, MEMORY: 75}


def test_a_pod_of_which_the_server_says_nothing_counts_by_its_stored_series() -> None:
    # The server knows the calm pod alone; the busy one (900 m, 500 MiB) is among the pods that are counted.
    case = Case(cpu=[[100] * 60, [900] * 60], memory=[[200 * MIB] * 60, [500 * MIB] * 60])
    for server in (
        ServerQuantiles(0.95, 75, {series(case, 0): PodAnswer(110.0, 240, 210.0 * MIB, 240)}),
        ServerQuantiles(0.95, 75, {series(case, 0): PodAnswer(110.0, 240, 210.0 * MIB, 240),
                                   series(case, 1): PodAnswer()}),
    ):  # fmt: skip
        recommendation = recommended(case, None, server)
        assert amounts(recommendation, CPU) == (900, None)
        assert amounts(recommendation, MEMORY)[0] == 575 * MIB  # 500 x 1.15
        steps = {r: recommendation.value(r, REQUEST).inputs["resolution_seconds"] for r in Resource}  # type: ignore[union-attr]
        assert steps == {CPU: 300, MEMORY: 300}
    busy = ServerQuantiles(0.95, 75, {series(case, 1): PodAnswer(950.0, 240, 510.0 * MIB, 240)})
    value = recommended(case, None, busy).value(CPU, REQUEST)
    assert value is not None and (value.amount, value.inputs["resolution_seconds"]) == (950, 75)


def test_an_answer_of_next_to_no_points_is_no_quantile_of_hours() -> None:
    # 60 slots of 300 s are 18,000 s: 3 points of 75 s cover 1 % of them, 120 points half.
    case = Case(cpu=[[100] * 60], memory=[[200 * MIB] * 60])
    for points, want in ((3, 100), (99, 100), (120, 40), (240, 40)):
        server = ServerQuantiles(0.95, 75, {series(case, 0): PodAnswer(40.0, points, 200.0 * MIB, 240)})
        assert amounts(recommended(case, None, server), CPU) == (want, None), points


def test_percentiles_over_all_pods_are_of_all_pods_or_of_the_stored_points() -> None:
    case = Case(cpu=[[100] * 60, [900] * 60], memory=[[200 * MIB] * 60] * 2)
    pooled = {ContainerRef(case.ref, "c0"): {0.66: 100.0, 0.96: 100.0}}
    for busy, want in ((PodAnswer(), (900, 900)), (PodAnswer(900.0, 240, 200.0 * MIB, 240), (100, 100))):
        server = ServerQuantiles(
            0.95, 75, {series(case, 0): PodAnswer(100.0, 240, 200.0 * MIB, 240), series(case, 1): busy}, pooled
        )
        (recommendation,) = KrrSimpleLimit().recommend(evidence_of(case, server=server), RecommenderSettings())
        assert amounts(recommendation, CPU) == want  # half of the stored points are 900 m: p66 and p96 are 900 m


def test_a_window_of_seven_days_and_one_hour_is_not_cut_to_seven_days() -> None:
    per_hour = 12
    spike_then_calm = [[900.0] * per_hour + [100.0] * (7 * 24 * per_hour)]
    case = Case(cpu=spike_then_calm, memory=[[900 * MIB] * per_hour + [100 * MIB] * (7 * 24 * per_hour)])
    assert amounts(recommended(case, KrrSettings(history_hours=169)), MEMORY)[0] == 1035 * MIB
    assert amounts(recommended(case, KrrSettings(history_hours=168)), MEMORY)[0] == 115 * MIB


def test_many_pods_do_not_make_a_short_history_long() -> None:
    # 25 minutes of five pods are 100 points of 75 s to KRR; they are still 25 minutes
    five = Case(cpu=[[100] * 5] * 5, memory=[[200 * MIB] * 5] * 5)
    server = ServerQuantiles(0.95, 75, {series(five, i): PodAnswer(100.0, 20, 200.0 * MIB, 20) for i in range(5)})
    for recommendation in (recommended(five), recommended(five, None, server)):
        assert {v.reason for v in recommendation.values} == {Reason.NOT_ENOUGH_HISTORY}
    # 125 minutes of one pod are enough, and so are five pods of 25 minutes one after the other
    assert amounts(recommended(Case(cpu=[[100] * 25])), CPU) == (100, None)
    relay = [[100 if k // 5 == pod else math.nan for k in range(25)] for pod in range(5)]
    assert amounts(recommended(Case(cpu=relay)), CPU) == (100, None)


def test_half_millicores_and_bytes_are_written_without_loss() -> None:
    value = recommended(Case(cpu=[[12.5] * 30], memory=[[150.25 * MIB] * 30]))
    assert format_millicores(amounts(value, CPU)[0] or 0) == "13m"
    assert format_bytes(amounts(value, MEMORY)[0] or 0) == "173Mi"  # 150.25 x 1.15 = 172.79


absurd = st.floats(width=32, allow_nan=True, allow_infinity=True)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.lists(absurd, min_size=30, max_size=30), min_size=1, max_size=3), absurd, st.integers(0, 10**6))
def test_absurd_samples_give_whole_amounts_that_are_not_negative_or_a_reason(
    rows: list[list[float]], quantile: float, points: int
) -> None:
    case = Case(cpu=rows, memory=rows)
    pod = PodContainerRef("shop", "web-0", "c0")
    pooled = {ContainerRef(case.ref, "c0"): {0.66: quantile, 0.96: quantile}}
    server = ServerQuantiles(0.95, 75, {pod: PodAnswer(quantile, points, quantile, points)}, pooled)
    for strategy in (KrrSimple(), KrrSimpleLimit()):
        for evidence in (evidence_of(case), evidence_of(case, server=server)):
            (recommendation,) = strategy.recommend(evidence, RecommenderSettings())
            for value in recommendation.values:
                assert (value.amount is None) == (value.action is not Action.SET)
                assert value.amount is None or 0 <= value.amount < 2**63
                assert all(isinstance(i, str) or math.isfinite(i) for i in value.inputs.values())
