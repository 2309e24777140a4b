"""The demo's cluster as time goes on: a plan that somebody approves is reserved, used, scored, and compared."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Inventory
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer, connect
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import Approval, DecisionScope, Plan, PlanDecision, Span
from cotenant.scheduler_ext.reservations.service import plans
from cotenant.settings import Settings
from cotenant_lab.simulation import shortage
from cotenant_lab.simulation.api_server.state import ObjectState
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario, evening_of
from cotenant_lab.simulation.controllers.autoscaler import NOTHING, CpuDemand
from cotenant_lab.simulation.shortage import ShortageCount, compared_words
from cotenant_lab.synthetic import SyntheticSpec, generate

MINUTE = 60.0
HOUR = 60 * MINUTE
CEILING_SECONDS = 180.0
RANK = WorkloadRef("feed", "Deployment", "rank")


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return generate(SyntheticSpec(nodes=12, workloads=60, days=1, rush=True)).inventory


def rising(inventory: Inventory, pods: int = 2) -> CpuDemand:
    """Demand that is flat, and after 18:00 so many pods' worth higher for an hour."""
    rank = next(w for w in inventory.workloads if w.ref == RANK)
    scaler = rank.autoscaler
    assert scaler is not None
    per_pod = sum(c.requests.get(Resource.CPU, 0) for c in rank.staying) * 0.65  # the autoscaler's target
    begin = inventory.time_seconds  # 12:00
    level = np.full((1, 72), (scaler.min_replicas - 0.5) * per_pod)
    level[0, 37:43] += pods * per_pod  # slots of ten minutes: from 18:10 to 19:00, rising from 18:00 on
    return CpuDemand({RANK: 0}, TimeGrid(begin, 600, 72), level)


@pytest.fixture
def cluster(inventory: Inventory, tmp_path: Path) -> Iterator[DemoCluster]:
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), rising(inventory))
    with DemoCluster(story, Settings(), tmp_path) as demo_cluster:
        yield demo_cluster


@pytest.fixture
def client(cluster: DemoCluster) -> Iterator[KubeClient]:
    kube_client = connect(cluster.settings.kube)
    yield kube_client
    kube_client.close()


def until(what: str, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + CEILING_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def go(cluster: DemoCluster, to_seconds: float) -> None:
    cluster.course.forward(to_seconds)
    until("the clock", lambda: cluster.course.going_to is None)


def planned(client: KubeClient, cluster: DemoCluster, begin: float, end: float, pods: int = 2) -> Plan:
    """A plan for so many pods of feed/rank, approved."""
    new_plan = plans.new_plan(RANK, "evening", pods, Span(begin, end))
    writer = Writer(client, "tests")
    writer.send(plans.plan_creation(client, new_plan))
    plan = plans.plan(client, "feed", "evening")
    approval = Approval(PlanDecision.APPROVED, DecisionScope.ONCE, "tests", cluster.clock.now_seconds())
    writer.send(plans.decide_plan(plan, approval))
    return plan


def test_nothing_is_left_outside_its_folder_and_nobody_else_may_read_the_kubeconfig(
    cluster: DemoCluster, tmp_path: Path
) -> None:
    assert {path.name for path in tmp_path.iterdir()} == {"kubeconfig"}
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0
    assert cluster.settings.actions.ledger == str(tmp_path / "ledger.db")


@pytest.mark.slow
def test_an_approved_plan_is_available_before_its_window_used_in_it_and_scored_after(
    cluster: DemoCluster, client: KubeClient
) -> None:
    # Halted between its moves, so that the evening's batch work ends at the same moments however busy the machine is.
    cluster.course.halt(True)
    noon = cluster.clock.now_seconds() // HOUR * HOUR
    begin, end = noon + 6 * HOUR, noon + 7 * HOUR

    def plan() -> Plan:
        return plans.plan(client, "feed", "evening")

    planned(client, cluster, begin, end)
    until("the plan to be taken up", lambda: plan().status.phase is PlanPhase.APPROVED)
    stops = [stop.at_seconds for stop in cluster.course.stops()]
    assert stops == [begin - 5 * MINUTE, end + 15 * MINUTE]
    # Not before start - lead: an hour earlier nothing is held.
    go(cluster, begin - HOUR)
    assert (plan().status.phase, plan().status.units) == (PlanPhase.APPROVED, ())
    assert begin - 30 * MINUTE < plan().status.reserve_at_seconds < begin - 15 * MINUTE
    go(cluster, stops[0])
    until("room", lambda: [unit.phase for unit in plan().status.units] == ["Available"] * 2)
    go(cluster, begin - MINUTE)
    assert {unit.phase for unit in plan().status.units} == {"Available"}
    assert all(unit.node for unit in plan().status.units)
    go(cluster, stops[1])
    until("the score", lambda: plan().status.score is not None)
    score = plan().status.score
    assert score is not None
    assert score.reserved == 2
    assert score.used >= 1
    assert score.hit_ratio > 0
    until("the comparison", cluster.course.told)
    (entry,) = cluster.course.told()
    assert entry.startswith("feed/rank, played with and without its reservation: ")
    # The sentence names two lengths of time: without the reservation first, then with it.
    lengths = [int(text) for text in re.findall(r"(\d+) minutes?", entry)]
    assert lengths[0] > lengths[1]


RUSH_PODS = 4
QUARTER = 4.0
"""At a quarter of its speed a machine takes four times as long for everything."""


def evening_at(inventory: Inventory, folder: Path, slowness: float) -> tuple[str, tuple[object, ...]]:
    """What the page tells of an evening that was planned for, and its score; slowness: of the machine.

    The clock is not halted: it runs with the machine whenever nothing is moved ahead.
    """
    folder.mkdir()
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), rising(inventory, RUSH_PODS))
    with DemoCluster(story, Settings(), folder, lambda: slowness * time.monotonic()) as cluster:
        client = connect(cluster.settings.kube)
        try:
            noon = cluster.clock.now_seconds() // HOUR * HOUR
            planned(client, cluster, noon + 6 * HOUR, noon + 7 * HOUR, RUSH_PODS)

            def plan() -> Plan:
                return plans.plan(client, "feed", "evening")

            until("the plan to be taken up", lambda: plan().status.phase is PlanPhase.APPROVED)
            for stop in [stop.at_seconds for stop in cluster.course.stops()]:
                go(cluster, stop)
            until("the comparison", cluster.course.told)
            score = plan().status.score
            assert score is not None
            (text,) = cluster.course.told()
            lead_minutes = None if score.lead_seconds is None else round(score.lead_seconds / 60)
            return text, (score.reserved, score.used, score.missed, round(score.coverage, 2), lead_minutes)
        finally:
            client.close()


@pytest.mark.slow
def test_at_a_quarter_of_the_machines_speed_the_evening_ends_alike_and_the_plan_makes_a_third_of_the_shortage(
    inventory: Inventory, tmp_path: Path
) -> None:
    full = evening_at(inventory, tmp_path / "full", 1.0)
    quarter = evening_at(inventory, tmp_path / "quarter", QUARTER)
    assert quarter == full
    entry, (held_pods, used, *_) = full
    assert (held_pods, used) == (RUSH_PODS, RUSH_PODS)
    # The sentence says of both runs how many pods were missing for how long: the one without the reservation first.
    without, reserved = (int(text) for text in re.findall(r"(\d+) pod-minutes", entry))
    assert without >= 3 * reserved > 0, entry


def test_a_difference_of_one_sample_is_none_and_a_loss_is_said() -> None:
    window = Span(0.0, HOUR)

    def sentence(with_plan: float, without_plan: float) -> str:
        count = [ShortageCount(RANK, window, 60 * minutes, 2, 90 * minutes) for minutes in (with_plan, without_plan)]
        return compared_words(*count)

    # 90 pod-seconds a minute are 1.5 pods on average
    assert sentence(4, 20) == (
        "feed/rank, played with and without its reservation: 20 minutes with fewer pods ready than needed "
        "(30 pod-minutes, at most 2 pods missing) without it, "
        "4 minutes with fewer pods ready than needed (6 pod-minutes, at most 2 pods missing) with it."
    )
    assert sentence(0, 20).endswith("0 minutes with fewer pods ready than needed with it.")
    for with_plan, without_plan in ((33, 32), (32, 33), (0, 0), (235, 234)):
        assert sentence(with_plan, without_plan).startswith("feed/rank: no difference tonight: ")
    assert sentence(8, 6).endswith(" The reservation did not help tonight.")


@given(st.lists(st.floats(0.5, 400.0), min_size=1, max_size=60), st.integers(0, 90), st.integers(1, 120))
def test_however_one_looks_each_minute_of_a_window_counts_once(strides: list[float], start: int, length: int) -> None:
    window = Span(60.0 * start, 60.0 * (start + length))
    count, at = ShortageCount(RANK, window), 0.0
    always = partial(count.observe, ObjectState(), NOTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortage, "missing_pods", lambda *_: 1)  # a pod is missing at every look
        for stride in strides:
            always(at)
            at += stride
        always(at)
    # the whole minutes of the window that ended by the last look; the first look counts none
    ended = min(int(at // 60), start + length) - start
    assert count.short_seconds == 60.0 * max(0, ended)


def test_the_clock_halts_goes_on_and_never_goes_back(cluster: DemoCluster) -> None:
    course = cluster.course
    course.halt(True)
    stands = course.now_seconds()
    assert course.halted
    with pytest.raises(UsageError):
        course.forward(stands - 1)
    with pytest.raises(UsageError):
        course.forward(stands + 48 * HOUR)
    go(cluster, stands + 15 * MINUTE)
    assert course.now_seconds() >= stands + 15 * MINUTE
    course.halt(False)
    until("time to pass", lambda: course.now_seconds() > stands + 15 * MINUTE)


def test_a_halt_ends_a_move_ahead(cluster: DemoCluster) -> None:
    course, start = cluster.course, cluster.course.now_seconds()
    assert course.progress is None
    course.forward(start + 20 * HOUR)

    def moved() -> bool:
        move = course.progress
        assert move is not None and (move.to_seconds, move.left_seconds is None) == (
            start + 20 * HOUR,
            not move.done_ratio,
        )
        return move.done_ratio > 0

    until("a stride", moved)
    course.halt(True)
    until("the move to end", lambda: course.going_to is None)
    assert course.progress is None
    assert course.now_seconds() < cluster.clock.now_seconds() + 20 * HOUR


def test_the_evening_is_that_of_the_day_and_a_batch_pod_ends_every_four_minutes(inventory: Inventory) -> None:
    noon = 1_795_089_600  # 2026-11-19 12:00 UTC
    evening = evening_of(replace(inventory, time_seconds=noon))
    # Twelve nodes with a pod each that takes 18 to 72 minutes, 45 on average: one ends every 3.75 minutes.
    assert (len(inventory.nodes), evening.shortest_minutes, evening.longest_minutes) == (12, 18, 72)
    assert evening.begin_seconds == noon + 3 * HOUR
    assert evening.now(noon + 6 * HOUR)
    assert not evening.now(noon)
    assert not evening.now(noon + 11 * HOUR)
