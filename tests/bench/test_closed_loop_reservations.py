"""The reservations' experiment: its world, its plan, and a small form of the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reservations.closed_loop_reservations import rows, usage_of
from bench.reservations.peak_world import CLUSTER, POD_CORES, demand_of, size_of
from cotenant.scheduler_ext.reservations.model.plan import Proposal, Span
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans.proposals import Size
from cotenant.settings import Settings
from cotenant_lab.simulation.peaks.peak_cluster import DAY_SLOTS, PeakNodes, autoscaled_peak_pods
from cotenant_lab.simulation.peaks.peak_play import (
    FILLING_SLOTS,
    HOUR_SLOTS,
    PeakOutcome,
    PeakPods,
    PeakService,
    play_peaks,
)
from cotenant_lab.simulation.peaks.peak_replay import PeakReplay, analyse_services, service_proposals

START = 1_803_513_600.0
"""A midnight, UTC."""
PEAK_SLOT, PEAK_PODS = 8 * HOUR_SLOTS, 6
OWN = PlanSettings()
SERVICE: Size = size_of(demand_of(1, 2), 1)


def one_peak() -> np.ndarray:
    """A day without a need, then six pods at once from 08:00 to 10:00 of the next."""
    pods = np.zeros(FILLING_SLOTS + 12 * HOUR_SLOTS, dtype=np.int64)
    pods[FILLING_SLOTS + PEAK_SLOT : FILLING_SLOTS + PEAK_SLOT + 2 * HOUR_SLOTS] = PEAK_PODS
    return pods


def foreseen(hour: int) -> Proposal:
    """What an analysis that knows the peak proposes at an hour of the day."""
    slot_pods = np.zeros(48, dtype=np.int64)
    first = 2 * (8 - hour)
    slot_pods[max(first, 0) : max(first + 4, 0)] = PEAK_PODS
    ahead = hour < 8
    return Proposal(
        SERVICE.workload, "ok" if ahead else "no-window", count=PEAK_PODS if ahead else 0, skill=0.5,
        window=Span(START + 8 * 3600, START + 10 * 3600) if ahead else None, per_pod={"cpu": "2"},
        start_seconds=int(START) + hour * 3600, wanted=tuple(slot_pods.tolist()), median=tuple(slot_pods.tolist()),
    )  # fmt: skip


def outcome(proposals: tuple[Proposal, ...] = ()) -> PeakOutcome:
    return play_peaks(one_peak(), PeakService(CLUSTER, 15, POD_CORES), 1, START, OWN, proposals)


def test_pods_of_a_foreseen_peak_find_their_room_at_once_and_others_wait_for_jobs_to_end() -> None:
    with_plan, without = outcome(tuple(foreseen(hour) for hour in range(12))), outcome()
    # every pod takes a reservation in the control period in which it comes: it waits for the scheduler alone
    assert with_plan.pending_seconds == (OWN.scheduler_seconds,) * PEAK_PODS
    assert (with_plan.handed_over, with_plan.unplanned) == (PEAK_PODS, 0)
    assert without.p95_seconds > OWN.scheduler_seconds + OWN.interval_seconds
    # room comes as jobs end within the lead of 1180 s: at most six pods' two cores stand idle for so long
    assert 0 < with_plan.idle <= PEAK_PODS * POD_CORES * 1180 / 3600
    assert without.idle == 0


def test_the_analysis_proposes_capacity_for_the_evening_that_28_days_show() -> None:
    demand = demand_of(1, 28)
    size = size_of(demand, 1)
    (proposal,) = service_proposals(analyse_services([size], usage_of([size], demand[None]), Settings()), Settings())
    assert proposal.ready and proposal.window
    # the bump's middle is 18:30, give or take half an hour, and it is more than an hour wide on either side
    assert proposal.window.start_seconds % 86_400 < 18 * 3600 < proposal.window.end_seconds % 86_400


def test_the_same_seed_gives_the_same_outcome() -> None:
    assert outcome() == outcome()


@given(seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_an_autoscaler_asks_for_the_need_of_now_and_keeps_that_of_the_slot_before(seed: int) -> None:
    demand = demand_of(seed, 2)
    pods = autoscaled_peak_pods(demand, SERVICE)
    carried = (pods + SERVICE.base / SERVICE.capacity) * SERVICE.capacity
    assert (carried >= demand - 1e-6).all() and (carried[1:] >= demand[:-1] - 1e-6).all()
    assert demand.shape == (2 * DAY_SLOTS,)


@given(counts=st.lists(st.integers(0, 400), max_size=8))
def test_whatever_is_asked_for_no_core_is_given_twice_and_none_is_lost(counts: list[int]) -> None:
    nodes, pods = PeakNodes.empty(CLUSTER), PeakPods(POD_CORES)
    for now, count in enumerate(counts):
        pods.scale(count, now, nodes)
        pods.place(now, nodes, None)
        assert len(pods.running) + len(pods.waiting) == count
        assert nodes.free.min() >= 0
        assert nodes.free.sum() == CLUSTER.cores - POD_CORES * len(pods.running)


def test_rows_divide_what_reservations_cost_by_the_peak_pods_and_by_the_cluster() -> None:
    without = PeakOutcome((100.0, 100.0), 0, 0, 0.0, 40.0, 50.0, 1000.0)
    run = PeakReplay(
        SERVICE.workload,
        without,
        replace(without, pending_seconds=(10.0, 10.0), handed_over=1, unplanned=1, idle=4.0, jobs=45.0),
    )
    values = {row.metric: (round(row.value, 6), row.met) for row in rows({19.0: [run]})}
    # 10 s / 100 s; 4 / 40 core-hours is above 0.05, 4 / 1000 below; 45 / 50; one pod of two each
    assert list(values.values()) == [(0.1, True), (0.1, False), (0.004, True), (0.9, None), (0.5, None), (0.5, None)]
