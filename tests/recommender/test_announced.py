"""What came to a node after the forecast's history: it lowers what is lent at once, and counts once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import NodeMetric, PodMetric
from cotenant.base.colocation.reclaim_policies import TERMS, Band, Reclaimable
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation import formulas
from cotenant.recommender.colocation.columns import PeakForecast
from cotenant.recommender.colocation.formulas import Parameters
from cotenant.recommender.colocation.model.prod_peaks import PodCensus, unreplaced_requests
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import ColocationConfig

CPU, MEMORY = Resource.CPU, Resource.MEMORY
CENSUS_TIME = 1_700_000_000
NOW = CENSUS_TIME + 600
WEB = WorkloadRef("ns", "Deployment", "web")
PEAK = 2000
BEFORE = CENSUS_TIME - 3600


def pod(name: str, start: int = NOW - 60, cpu: int = 1000, **more: Any) -> Pod:
    requests = {CPU: cpu, MEMORY: GIB}
    return Pod(
        "ns", name, more.pop("workload", WEB), "a", start, priority=PriorityClass.PROD, requests=requests, **more
    )


def placeholder(name: str, workload: WorkloadRef = WEB) -> Pod:
    return pod(name, BEFORE, end_seconds=0, placeholder=True, workload=workload)


def state(*pods: Pod, measured: tuple[str, ...] = (), census_pods: int = 0, usual: float = 0.0) -> ColocationState:
    """A node of 10 cores whose proven peak is 2; `known` pods of web in the census, `measured` ones use 100 m each."""
    base = ColocationStrategy(
        enable=True, cpu_policy="forecast", memory_policy="forecast",
        cpu_reclaim_percent=100, memory_reclaim_percent=100,
    )  # fmt: skip
    colocation = ColocationState(ColocationConfig(base=base))
    colocation.upsert_nodes([Node("a", {CPU: 10_000, MEMORY: 64 * GIB}, {CPU: 10_000, MEMORY: 64 * GIB})])
    colocation.upsert_pods(pods)
    usage = tuple(PodMetric("ns", name, {CPU: 100, MEMORY: GIB}, PriorityClass.PROD) for name in measured)
    colocation.report([NodeMetric("a", NOW, {CPU: 500, MEMORY: GIB}, {CPU: 0, MEMORY: 0}, usage)])
    census = PodCensus(CENSUS_TIME, {("a", WEB): census_pods}, {CPU: {"a": usual}})
    colocation.set_forecasts(
        {CPU: {"a": PeakForecast(PEAK, 0.0, 9)}, MEMORY: {"a": PeakForecast(4 * GIB, 0.0, 9)}}, census
    )
    return colocation


def lent(colocation: ColocationState, resource: Resource = CPU) -> Reclaimable:
    return colocation.compute(NOW)[Band.BATCH, resource].message(0)


OLD = pod("old", BEFORE)


@pytest.mark.parametrize(
    ("colocation", "announced"),
    [
        (state(OLD, measured=("old",), census_pods=1), 0),
        (state(OLD, pod("new"), measured=("old", "new"), census_pods=1), 1000),
        (state(OLD, pod("new"), measured=("old",), census_pods=1), 1000),
        (state(pod("new"), measured=("new",), census_pods=1), 0),
        (state(pod("new"), census_pods=1), 0),
        (state(pod("new"), census_pods=2), 0),
        (state(pod("a"), pod("b"), pod("c"), census_pods=2), 1000),
        (state(pod("new"), census_pods=1, measured=("new",), usual=400.0), 0),
        (state(OLD, pod("new"), measured=("old",), census_pods=1, usual=400.0), 600),
        (state(OLD, pod("new", workload=WorkloadRef("ns", "Job", "j")), census_pods=2, measured=("old", "new")), 1000),
        (state(OLD, pod("new", end_seconds=NOW), census_pods=1, measured=("old",)), 0),
        (state(OLD, placeholder("held"), census_pods=1, measured=("old",)), 1000),
        (state(OLD, placeholder("held"), census_pods=2, measured=("old",)), 0),
        (state(OLD, pod("owner"), census_pods=1, measured=("old", "owner")), 1000),
    ],
    ids=[
        "nothing came", "surge", "surge, not yet measured", "replaced", "replaced, not yet measured", "scaled down",
        "three for two", "replaced on a lively node", "less than usual is beyond", "a job's pod", "ended",
        "reserved", "reserved for a pod of the last day", "the owner came",
    ],
)  # fmt: skip
def test_what_came_counts_with_its_request_once(colocation: ColocationState, announced: int) -> None:
    message = lent(colocation)
    assert message.amount == 10_000 - PEAK - announced
    assert message.terms.get("announced", 0) == announced
    assert sum(v for k, v in message.terms.items() if k != "capacity") == 10_000 - message.amount


def test_of_memory_nothing_is_usual() -> None:
    message = lent(state(OLD, pod("new"), measured=("old", "new"), census_pods=1, usual=float(GIB)), MEMORY)
    assert (message.terms["hp_peak"], message.terms["announced"]) == (4 * GIB, GIB)


def test_exclusive_cpus_are_kept_whole_and_once() -> None:
    for measured in ((), ("pinned",)):
        colocation = state(pod("pinned", qos=QosClass.LSE), measured=measured)
        assert lent(colocation).amount == 10_000 - PEAK - 1000
    # its forerunner's use lies in the peak, but whether all of its CPUs do is not known
    assert (
        lent(state(pod("pinned", qos=QosClass.LSE), measured=("pinned",), census_pods=1)).amount == 10_000 - PEAK - 900
    )


def test_the_next_analysis_knows_the_pod_and_a_lost_forecast_knows_none() -> None:
    colocation = state(OLD, pod("new"), measured=("old", "new"), census_pods=1)
    assert "announced" in lent(colocation).terms
    colocation.set_forecasts({CPU: {"a": PeakForecast(PEAK, 0.0, 9)}}, PodCensus(NOW, {("a", WEB): 2}))
    assert lent(colocation).amount == 10_000 - PEAK
    colocation.set_forecasts({})
    assert lent(colocation).amount == 10_000 - 200  # present use


def test_protocol_policies_do_not_know_the_term() -> None:
    colocation = state(pod("new"), measured=("new",))
    colocation.configure(ColocationConfig(base=ColocationStrategy(enable=True, cpu_reclaim_percent=100)))
    assert lent(colocation).amount == 10_000 - 100
    assert TERMS["announced"].sign == "-"


names = st.sampled_from(["p0", "p1", "p2", "p3", "p4", "p5"])
some_pods = st.lists(
    st.builds(
        pod,
        names,
        st.sampled_from([BEFORE, CENSUS_TIME, CENSUS_TIME + 1, NOW]),
        st.integers(0, 4000),
        workload=st.sampled_from([WEB, WorkloadRef("ns", "Job", "j")]),
        qos=st.sampled_from([QosClass.NONE, QosClass.LS, QosClass.LSE, QosClass.BE]),
    )
    | st.builds(placeholder, names),
    unique_by=lambda p: p.name,
    max_size=6,
)


@given(some_pods, st.sets(names), st.integers(0, 4), st.floats(0, 3000))
@settings(max_examples=80, deadline=None)
def test_an_announced_pod_only_lowers_and_never_by_more_than_pods_request(
    pods: list[Pod], measured: set[str], census_pods: int, usual: float
) -> None:
    colocation = state(*pods, measured=tuple(sorted(measured)), census_pods=census_pods, usual=usual)
    columns = colocation.columns(CPU)
    new = [p for p in pods if p.placeholder or p.start_seconds > CENSUS_TIME]
    assert 0 <= columns.announced[0] <= sum(p.requests[CPU] for p in new)
    assert columns.prod_used[0] <= columns.hp_used[0] + sum(100 for p in measured)
    parameters = Parameters.of(colocation.strategies, CPU)
    quiet = formulas.batch(replace(columns, announced=columns.announced * 0), parameters, NOW)
    announced = formulas.batch(columns, parameters, NOW)
    assert 0 <= announced.amounts[0] <= quiet.amounts[0]
    assert announced.amounts[0] >= min(quiet.amounts[0], max(quiet.amounts[0] - columns.announced[0], 0))


@given(some_pods, some_pods, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_the_order_in_which_pods_and_forecasts_come_is_no_matter(
    earlier: list[Pod], pods: list[Pod], census_pods: int
) -> None:
    fresh, lived = state(*pods, census_pods=census_pods), state(*earlier, census_pods=3)
    for earlier_pod in earlier:
        lived.remove_pod(earlier_pod.namespace, earlier_pod.name)
    lived.upsert_pods(pods[:2])
    lived.set_forecasts({CPU: {"a": PeakForecast(PEAK, 0.0, 9)}}, PodCensus(CENSUS_TIME, {("a", WEB): census_pods}))
    lived.upsert_pods(pods[2:])
    assert lived.columns(CPU).announced.tolist() == fresh.columns(CPU).announced.tolist()


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0, 1e6))
@example(3, 0, 699051.2474187037)  # three times a sum and a third of it is more than the sum
def test_departures_are_taken_off_by_number_and_never_more_than_came(came: int, went: int, requested: float) -> None:
    (beyond,) = unreplaced_requests(np.array([came]), np.array([went]), np.array([requested if came else 0.0]))
    assert 0 <= beyond <= requested
    assert (beyond == 0) or came > went
    assert went or beyond == pytest.approx(requested if came else 0.0)
