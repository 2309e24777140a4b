"""The closed loop keeps to what holds in any cluster: no work without capacity, no promise beyond a node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import NoData
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.experiment.interference import Interference
from cotenant.experiment.lenders import ByFormula, highest_ahead, lender
from cotenant.experiment.loop import run_all_settings
from cotenant.experiment.outcome import Incident, Sharing, SharingOutcome, SharingScenario
from cotenant.experiment.world import World, world_of
from cotenant_lab.experiment.comparison import batch_at, installed_outcomes, interval, of
from tests.pipeline.experiment.small_worlds import CORES, daily, small_world

ALL = {
    Sharing.NONE: (0.0,),
    Sharing.STATIC: (0.4,),
    Sharing.KOORDINATOR: (60.0,),
    Sharing.COTENANT: (1.0,),
    Sharing.ORACLE: (0.0,),
}


def outcomes(cluster: World, *ways: Sharing) -> dict[Sharing, SharingOutcome]:
    """Of these ways, all of them by default."""
    knobs = {way: ALL[way] for way in ways or ALL}
    return {o.sharing: o for o in run_all_settings(cluster, knobs, Interference(), Silent())}


def of_one(cluster: World, way: Sharing) -> SharingOutcome:
    return outcomes(cluster, way)[way]


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 99), level=st.floats(0.1, 0.6), memory=st.floats(0.2, 0.8))
def test_no_way_of_sharing_uses_or_lends_more_than_the_nodes_have(seed: int, level: float, memory: float) -> None:
    for outcome in outcomes(small_world(seed=seed, level=level, memory=memory)).values():
        line = outcome.timeline
        assert (line.online_cores + line.batch_cores <= line.capacity_cores + 1e-6).all()
        assert (line.offered_cores <= line.capacity_cores + 1e-6).all()
        assert (line.batch_cores <= line.bound_cores + 1e-6).all()
        assert outcome.utilisation_ratio <= 1
        assert 0 <= outcome.violation_ratio <= 1
        # work that is lost with an evicted pod was done, and does not count
        assert outcome.batch_core_hours <= line.batch_cores.sum() * 300 / 3600 + 1e-6
        assert outcome.latency_ratio >= 1 - 1e-9


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 99))
def test_the_same_seed_gives_the_same_outcome(seed: int) -> None:
    first, second = (of_one(small_world(seed=seed), Sharing.COTENANT) for _ in range(2))
    assert repr(first.row()) == repr(second.row())  # NaN is not equal to itself
    for name, column in first.timeline.columns().items():
        assert np.array_equal(column, second.timeline.columns()[name])


def test_without_colocation_batch_does_nothing_and_nobody_is_slowed_down() -> None:
    alone = of_one(small_world(), Sharing.NONE)
    assert (alone.batch_core_hours, alone.violation_ratio, alone.latency_ratio) == (0.0, 0.0, 1.0)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 99), level=st.floats(0.15, 0.5))
def test_an_oracle_does_as_much_as_a_forecast_that_never_violates(seed: int, level: float) -> None:
    done = outcomes(small_world(seed=seed, level=level), Sharing.ORACLE, Sharing.COTENANT)
    oracle, ours = done[Sharing.ORACLE], done[Sharing.COTENANT]
    assert oracle.violation_ratio == 0
    # 5 %: the oracle keeps back for a job of a day also where a job of minutes would come
    assert ours.violation_ratio > 0 or oracle.batch_core_hours >= 0.95 * ours.batch_core_hours


def test_koordinators_formula_lends_what_it_says() -> None:
    cluster = small_world(nodes=1, level=0.25)
    lending = lender(cluster, Sharing.KOORDINATOR, 60.0, {})
    slot = cluster.first_slot + 10
    used = cluster.past[Resource.CPU].high[0, slot - 1]
    # 32,000 m - 40 % - what was used in the step before, which is rounded up
    assert lending.offered(Resource.CPU, np.array([slot]))[0, 0] == 32_000 - 12_800 - np.ceil(used)


def test_an_absent_manager_leaves_what_it_last_wrote() -> None:
    cluster = small_world(nodes=1, days=2, incident=Incident.MANAGER_DEAD)
    lending = lender(cluster, Sharing.KOORDINATOR, 60.0, {})
    assert isinstance(lending, ByFormula)
    slots = np.arange(cluster.effect.first, cluster.effect.last)
    assert len(set(lending.offered(Resource.CPU, slots)[0])) == 1
    assert len(set(lending.offered(Resource.CPU, slots - len(slots))[0])) > 1


@pytest.mark.parametrize("incident", Incident)
def test_an_incident_without_a_second_day_is_refused(incident: Incident) -> None:
    with pytest.raises(NoData, match=f"{incident} happens on the second evaluated day; only 1 day follows 14"):
        small_world(nodes=1, days=1, incident=incident)


def test_memory_cannot_leak_where_the_pods_say_nothing_of_memory() -> None:
    scenario = SharingScenario("hand-made", 1, 1, 2, 1, Incident.MEMORY_LEAK)
    with pytest.raises(NoData, match="memory-leak needs the memory of pods"):
        world_of(scenario, {Resource.CPU: daily(1, 2, seed=1)[Resource.CPU]})


def test_a_leak_of_memory_makes_batch_pods_leave_and_no_others() -> None:
    cluster = small_world(nodes=1, days=2, incident=Incident.MEMORY_LEAK, memory=0.5)
    assert of_one(cluster, Sharing.STATIC).evictions > 0
    quiet = small_world(nodes=2, days=1, memory=0.2)
    assert of_one(quiet, Sharing.STATIC).evictions == 0


def test_failed_nodes_hold_nothing_and_their_services_run_on_the_others() -> None:
    cluster = small_world(nodes=4, days=2, incident=Incident.NODE_FAILURE)
    spared = small_world(nodes=4, days=2)
    effect = cluster.effect
    # a tenth of four nodes is less than one, and one fails at least
    (failed,) = effect.failed
    part = slice(effect.first, effect.last)
    assert (cluster.need(Resource.CPU)[failed, part] == 0).all()
    assert np.allclose(cluster.need(Resource.CPU)[:, part].sum(axis=0), spared.need(Resource.CPU)[:, part].sum(axis=0))
    outcome = of_one(cluster, Sharing.STATIC)
    first, last = (slot - cluster.first_slot for slot in (effect.first, effect.last))
    # 40 % of 32 cores of each node are lent, and only while it is there
    assert np.allclose(outcome.timeline.offered_cores[first:last], 3 * 0.4 * CORES)
    assert np.allclose(outcome.timeline.offered_cores[last], 4 * 0.4 * CORES)
    assert outcome.batch_core_hours < of_one(spared, Sharing.STATIC).batch_core_hours


def test_a_flash_crowd_takes_its_cpu_from_batch() -> None:
    crowded = small_world(nodes=1, days=2, level=0.2, incident=Incident.FLASH_CROWD)
    line = of_one(crowded, Sharing.COTENANT).timeline
    first = crowded.effect.first - crowded.first_slot
    assert line.online_cores[first] > 1.5 * line.online_cores[first - 1]
    # 95 % of the nodes are the target of suppression
    assert line.online_cores[first] + line.batch_cores[first] <= 0.95 * CORES + 1e-6


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(0, 12))
def test_the_oracle_looks_exactly_as_far_ahead_as_asked(values: list[int], steps: int) -> None:
    ahead = highest_ahead(np.array([values], dtype=np.float64), steps)[0]
    assert ahead.tolist() == [max(values[i : i + steps + 1]) for i in range(len(values))]


def test_the_knob_of_an_install_is_read_for_every_seed_and_the_first_knob_where_it_was_not_run() -> None:
    done = of_one(small_world(nodes=1), Sharing.NONE)

    def at(knob: float, seed: int) -> SharingOutcome:
        return replace(done, sharing=Sharing.COTENANT, knob=knob, scenario=replace(done.scenario, seed=seed))

    curve = [at(knob, seed) for seed in (1, 2) for knob in (0.5, 1.0, 5.0)]
    # the risk of an install is 1 %
    assert [(o.knob, o.scenario.seed) for o in installed_outcomes(curve, Sharing.COTENANT)] == [(1.0, 1), (1.0, 2)]
    without = [o for o in curve if o.knob != 1.0]
    assert [(o.knob, o.scenario.seed) for o in installed_outcomes(without, Sharing.COTENANT)] == [(0.5, 1), (0.5, 2)]
    assert installed_outcomes(curve, Sharing.KOORDINATOR) == []


def test_a_curve_is_read_between_its_settings_and_not_below_them() -> None:
    done = of_one(small_world(nodes=1), Sharing.NONE)

    def point(violation: float, hours: float) -> SharingOutcome:
        return replace(done, violation_ratio=violation, batch_core_hours=hours)

    curve = [point(0.002, 100.0), point(0.006, 140.0), point(0.014, 180.0)]
    # half way from 0.006 to 0.014
    assert batch_at(curve, 0.01) == pytest.approx(160.0)
    assert batch_at(curve, 0.05) == 180.0
    assert np.isnan(batch_at(curve, 0.001))
    assert of(curve, Sharing.COTENANT) == []


def test_the_interval_of_equal_values_is_a_point() -> None:
    assert (interval([2.0] * 10).low, interval([2.0] * 10).mean, interval([2.0] * 10).high) == (2.0, 2.0, 2.0)
