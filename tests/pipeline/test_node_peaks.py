"""Cold pods, roll-outs and the way of a calibrated peak into the colocation formulas."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.backtesting.reclaim import ReclaimTrial, calibrated_peaks
from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, RefT, Signal, Statistic, TimeGrid, Usage
from cotenant.forecasting.node_peaks.node_peak import FALLBACK, NodeLimits, NodePeaks, mid_peaks, node_peaks
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.pipeline.analysis import History, PodTotals
from cotenant.pipeline.nodes.node_peaks import cold_requests, prod_census, unusually_cold
from cotenant.pipeline.nodes.reclaimable import _prod_reclaimable, peak_forecasts, pod_totals, system_peaks
from cotenant.recommender.colocation.model.prod_peaks import StoredCensus

NOW = 100 * DAY_SECONDS
WEB = WorkloadRef("shop", "Deployment", "web")


def pod(
    name: str,
    age_days: float,
    ended_days: float | None = None,
    node: str = "a",
    workload: WorkloadRef = WEB,
    **more: Any,
) -> Pod:
    end = None if ended_days is None else int(NOW - ended_days * DAY_SECONDS)
    return Pod("shop", name, workload, node, int(NOW - age_days * DAY_SECONDS), end, **more)


def cold(*pods: Pod) -> dict[str, float]:
    requesting = [replace(p, requests={Resource.CPU: 500}) for p in pods]
    return cold_requests(Inventory("c", int(NOW), (), (), tuple(requesting), ()), Resource.CPU, NOW)


def test_a_pod_without_a_past_counts_with_its_request() -> None:
    assert cold(pod("old", 5), pod("young", 0.5)) == {"a": 500.0}


def test_a_rollout_changes_nothing_and_a_scale_out_counts() -> None:
    ended = [pod(f"old-{i}", 9, ended_days=0.2) for i in range(2)]
    fresh = [pod(f"new-{i}", 0.2) for i in range(3)]
    # Three came, two left the same node: one more than the node's total knows.
    assert cold(*ended, *fresh) == {"a": 500.0}
    assert cold(*ended, *fresh[:2]) == {}


def test_a_pod_that_left_another_node_or_long_ago_makes_no_room() -> None:
    assert cold(pod("x", 9, ended_days=0.2, node="b"), pod("y", 0.2)) == {"a": 500.0}
    assert cold(pod("x", 9, ended_days=3), pod("y", 0.2)) == {"a": 500.0}


def test_batch_pods_are_not_prods_concern() -> None:
    assert cold(pod("b", 0.2, priority=PriorityClass.BATCH)) == {}


def series(refs: tuple[RefT, ...], level: float) -> Usage[RefT]:
    """Two days of 5-minute CPU usage, one constant row for each ref."""
    grid = TimeGrid(0, 300, 576)
    values = np.full((len(refs), grid.size), level, dtype=np.float32)
    return Usage(refs, grid, values, Resource.CPU, Statistic.MEAN)


@pytest.mark.parametrize(
    ("model", "node_level", "lent"),
    [("linear", 500.0, 1600.0), (FALLBACK, 500.0, 1270.0), (FALLBACK, np.nan, 0.0)],
    ids=["long record", "young", "young, and its system was not measured"],
)
def test_of_a_young_node_the_systems_peak_is_not_lent_either(model: str, node_level: float, lent: float) -> None:
    # requested 2000, prod's peak 400; the node uses 500 and its pod 200, so its system's peak is 1.1 x 300 = 330
    node = Node("a", {Resource.CPU: 8000}, {Resource.CPU: 8000})
    inventory = Inventory("c", 0, (node,), (), (pod("p", 1, requests={Resource.CPU: 2000}),))
    usage = {Signal.CPU_USAGE_MEAN: series((PodContainerRef("shop", "p", "main"),), 200.0)}
    nodes = {Signal.NODE_CPU_USAGE_MEAN: series((NodeRef("a"),), node_level)}
    history = History(inventory, TimeGrid(0, 300, 576), usage, nodes, None)
    short = NodePeaks(
        (NodeRef("a"),), Resource.CPU, (0.05,), np.array([[400.0]]), np.array([[np.nan]]), np.zeros(1, dtype=np.intp),
        (model,), (Reason.OK,),
    )  # fmt: skip
    forecasts = peak_forecasts(history, Resource.CPU, short, pod_totals(history, Resource.CPU))
    assert _prod_reclaimable(inventory, Resource.CPU, short, forecasts) == {"a": pytest.approx(lent)}


@pytest.mark.parametrize(
    ("pods", "lent"),
    [
        # Two days at 200: the class peaks at 1.1 x 200 = 220 and the system at 1.1 x 300 = 330. Of the 2000 that prod
        # requested, the class predictor leaves 2000 - 220 - 330 = 1450, and the pod predictor 2000 - the pods' sum:
        # the smaller one counts
        (100.0, 1450.0),
        (220.0, 1450.0),
        (500.0, 1450.0),
        (600.0, 1400.0),
        (1900.0, 100.0),
        (2500.0, 0.0),
    ],
)
def test_the_systems_peak_is_taken_off_what_the_class_predictor_leaves_and_not_off_the_pods(
    pods: float, lent: float
) -> None:
    node = Node("a", {Resource.CPU: 8000}, {Resource.CPU: 8000})
    inventory = Inventory("c", 0, (node,), (), (pod("p", 1, requests={Resource.CPU: 2000}),))
    usage = {Signal.CPU_USAGE_MEAN: series((PodContainerRef("shop", "p", "main"),), 200.0)}
    nodes = {Signal.NODE_CPU_USAGE_MEAN: series((NodeRef("a"),), 500.0)}
    history = History(inventory, TimeGrid(0, 300, 576), usage, nodes, None)
    totals = pod_totals(history, Resource.CPU)
    young = node_peaks(totals.prod, NodeLimits.of([8000.0]), (0.05,), NodePeakSettings(), np.array([pods]))
    assert young.model == (FALLBACK,)
    forecasts = peak_forecasts(history, Resource.CPU, young, totals)
    assert _prod_reclaimable(inventory, Resource.CPU, young, forecasts) == {"a": pytest.approx(lent, abs=0.01)}


def test_pods_above_batch_that_are_not_prods_count_with_their_highest_use_of_the_last_two_weeks() -> None:
    # 300 of mid pods in one slot of node a, beside 200 of prod throughout; nobody measured pods of node b
    refs = (NodeRef("a"), NodeRef("b"))
    prod, high = series(refs, 200.0), series(refs, 200.0)
    high.values[0, 7] = 500.0
    prod.values[1], high.values[1] = np.nan, np.nan
    assert mid_peaks(high.values, prod.values, prod.grid.slots_per_day).tolist() == [300.0, 0.0]


def test_hours_without_a_sample_of_the_pods_say_nothing_of_the_system() -> None:
    # The node uses 500 all the time and its pod 200; in the last three hours nobody measured pods.
    node, ref = Node("a", {Resource.CPU: 8000}, {Resource.CPU: 8000}), PodContainerRef("shop", "p", "main")
    inventory = Inventory("c", 0, (node,), (), (pod("p", 1),))
    nodes = {Signal.NODE_CPU_USAGE_MEAN: series((NodeRef("a"),), 500.0)}
    pods = series((NodeRef("a"),), 200.0)
    pods.values[:, -36:] = np.nan
    history = History(inventory, TimeGrid(0, 300, 576), {Signal.CPU_USAGE_MEAN: series((ref,), 200.0)}, nodes, None)
    assert system_peaks(history, Resource.CPU, pods) == {"a": pytest.approx(330.0)}
    # A node that never had a pod: all of its use is the system's.
    pods.values[:] = np.nan
    assert system_peaks(history, Resource.CPU, pods) == {"a": pytest.approx(550.0)}


def unusual(*pods: Pod, days: int = 14) -> dict[str, float]:
    requesting = [replace(p, requests={Resource.CPU: 500}) for p in pods]
    return unusually_cold(
        Inventory("c", int(NOW), (), (), tuple(requesting), ()), Resource.CPU, NOW, NOW - days * DAY_SECONDS
    )


def alone(number: int, age_days: float, **more: Any) -> Pod:
    return pod(f"p-{number}", age_days, workload=WorkloadRef("shop", "Deployment", f"w-{number}"), **more)


def test_what_comes_every_day_as_it_always_came_is_not_cold() -> None:
    # Each day one pod of a workload of its own, each for two days: one young pod at any moment, today as ever.
    daily = [alone(k, k + 0.55, ended_days=k - 1.45 if k > 1 else None) for k in range(15)]
    assert unusual(*daily) == {}
    # Three more today: they are all beyond the usual one.
    assert unusual(*daily, *(alone(20 + k, 0.1) for k in range(3))) == {"a": pytest.approx(1500.0)}


def test_a_census_counts_what_runs_and_who_left_without_a_successor() -> None:
    pods = [
        pod("old", 9), pod("new", 0.2),
        # two left within the day before and one came: one of them is missing still
        pod("gone-1", 9, ended_days=0.3), pod("gone-2", 9, ended_days=0.1), pod("long-gone", 9, ended_days=2),
        pod("elsewhere", 9, node="b"), pod("batch", 9, priority=PriorityClass.BATCH),
    ]  # fmt: skip
    census = prod_census(Inventory("c", int(NOW), (), (), tuple(pods), ()), NOW, NOW - 14 * DAY_SECONDS)
    assert (census.time_seconds, census.pods) == (NOW, {("a", WEB): 3, ("b", WEB): 1})
    # what is sent to the manager says the same
    sent = msgspec.json.decode(msgspec.json.encode(StoredCensus.of(census)), type=StoredCensus)
    assert sent.census == census


def test_what_usually_comes_and_is_not_there_is_left_for_those_who_will() -> None:
    # Each second day one pod of 500 m for a day of its own, none today: half of it is cold at the mean.
    daily = [alone(k, 2 * k + 1.5, ended_days=2 * k + 0.5, requests={Resource.CPU: 500}) for k in range(8)]
    inventory = Inventory("c", int(NOW), (), (), tuple(daily), ())
    usual = prod_census(inventory, NOW, NOW - 14 * DAY_SECONDS).usual
    assert usual[Resource.CPU]["a"] == pytest.approx(250, abs=60)
    assert Resource.MEMORY not in usual
    # pods that hold reserved capacity are no part of a node's totals
    placeholder = replace(pod("hold", 0.2, requests={Resource.CPU: 700}), namespace="cotenant-reservations")
    assert cold_requests(Inventory("c", int(NOW), (), (), (placeholder,), ()), Resource.CPU, NOW) == {}


def test_without_a_day_of_history_every_young_pod_is_cold() -> None:
    assert unusual(alone(1, 0.2), alone(2, 0.3), days=1) == {"a": 1000.0}


def test_formulas_get_the_measured_violation_rate() -> None:
    peaks = NodePeaks(
        refs=(NodeRef("a"), NodeRef("b")),
        resource=Resource.CPU,
        risks=(0.01,),
        peaks=np.array([[1500.0], [np.nan]]),
        violation=np.array([[0.02], [np.nan]]),
        days=np.array([6, 0]),
        model=("record", "koordinator"),
        reason=(Reason.OK, Reason.NO_DATA),
    )
    # The node uses 300 and its pods 200, so the system's peak is 1.1 x 100; of the pods' 200, prod uses 170.
    refs = (NodeRef("a"),)
    nodes = {Signal.NODE_CPU_USAGE_MEAN: series(refs, 300.0)}
    history = History(Inventory("c", 0, (), (), ()), TimeGrid(0, 300, 576), {}, nodes, None)
    totals = PodTotals(series(refs, 170.0), series(refs, 200.0), series(refs, 200.0))
    forecasts = peak_forecasts(history, Resource.CPU, peaks, totals)
    assert forecasts["a"].system_peak == pytest.approx(110.0) and forecasts["a"].mid_peak == 30.0
    assert set(forecasts) == {"a"}
    assert forecasts["a"].violation == pytest.approx(0.02) and (forecasts["a"].peak, forecasts["a"].origins) == (
        1500.0,
        6,
    )


def test_the_peak_holds_when_pods_arrive_because_cold_ones_count_with_their_request() -> None:
    rng = np.random.default_rng(5)
    nodes, days_, slots = 30, 40, 8
    base = np.clip(rng.uniform(100, 200, (nodes, 1)) + rng.normal(0, 10, (nodes, days_ * slots)), 0, None)
    # One pod more a node, from a random border of six hours (two slots) after day 20 on: it uses 80, requests 150.
    start = rng.integers(20 * 4, 38 * 4, nodes) * 2
    running_slots = np.arange(days_ * slots) >= start[:, None]
    trial = ReclaimTrial(base + 80.0 * running_slots, np.full(nodes, 1000.0), slots)
    values = calibrated_peaks(trial, (0.01,), NodePeakSettings())[0.01]
    covered, blind, judged = 0, 0, 0
    for index, end in enumerate(trial.decisions.tolist()):
        now = end * 2
        # What comes from pods that run at the decision: later arrivals cannot be foreseen and do not count.
        running = base[:, now : now + slots] + 80.0 * (start <= now)[:, None]
        cold = 150.0 * ((start <= now) & (now < start + slots))
        fresh = cold > 0
        judged += int(fresh.sum())
        blind += int((values[fresh, index] < running[fresh].max(axis=1)).sum())
        covered += int((values[fresh, index] + cold[fresh] >= running[fresh].max(axis=1)).sum())
    assert judged > 100
    # With the request of the cold pod every one of these decisions holds; without it many of the first ones do not: the
    # public tail, some per cent of the limit for a calm fortnight, covers those whose pod is small beside it.
    assert covered == judged
    assert blind > 0.1 * judged
