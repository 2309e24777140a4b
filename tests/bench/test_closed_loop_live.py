"""The live closed loop beside the simulated one: what is compared, and a few steps on a real control plane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.closed_loop.closed_loop_live import WITHIN, WallPace, decided, lending_of, measures, rows, simulated
from bench.closed_loop.live_cluster import LiveWorld, live_cluster, live_world, moved
from bench.closed_loop.live_play import PODS, LivePlay, LoopRecord
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.experiment.batch_jobs import BatchJobs, sample_batch_jobs
from cotenant.experiment.install import FORECAST, USAGE
from cotenant.experiment.lenders import ByFormula
from cotenant.experiment.outcome import SharingScenario
from cotenant_lab.experiment.worlds import SYNTHETIC
from tests.cluster import needing
from tests.cluster.waiting import wait_for
from tests.support.invariants import auditing, recording, violations

STEPS = 4
MANY_MILLICORES = 3_000_000.0
"""Of batch work, several times what three nodes lend: the first step fills them."""


@pytest.fixture(scope="module")
def live() -> LiveWorld:
    return live_world(SharingScenario(SYNTHETIC, 3, 45, 1, 1))


@pytest.fixture(scope="module")
def jobs(live: LiveWorld) -> BatchJobs:
    return sample_batch_jobs(MANY_MILLICORES, len(live.cluster.steps), 1)


def test_a_run_that_equals_the_simulated_one_meets_every_goal(live: LiveWorld, jobs: BatchJobs) -> None:
    draw = simulated(live.cluster, jobs, 24, USAGE, 0)
    assert draw.used.sum() > 0
    compared = [row for row in rows(draw, [draw, draw], "") if row.met is not None]
    assert {row.value for row in compared} == {0.0}
    assert all(row.met for row in compared)


def test_a_cluster_whose_largest_node_lends_more_than_half_as_much_again_misses(
    live: LiveWorld, jobs: BatchJobs
) -> None:
    draw = simulated(live.cluster, jobs, 24, USAGE, 0)
    lent = draw.lent.copy()
    lent[lent.sum(axis=1).argmax()] *= 1.6
    by_node, total, *others = rows(replace(draw, lent=lent), [draw], "")
    # of three nodes the largest lends a third of all at least, and six tenths of that are two tenths of all
    assert by_node.value == total.value >= 0.2
    assert (by_node.met, total.met) == (False, False)
    assert all(row.met is not False for row in others)


def test_a_simulation_that_lends_and_ends_nothing_is_compared_all_the_same() -> None:
    nothing, something = LoopRecord.empty(2, 3), LoopRecord.empty(2, 3)
    something.lent[:] = 500.0
    something.ended = 1
    assert all(row.met for row in rows(nothing, [nothing], "") if row.met is not None)
    by_node, total, _, _, ended, _ = [row for row in rows(something, [nothing], "") if row.met is not None]
    assert [row.value for row in (by_node, total, ended)] == [1.0] * 3
    assert not any(row.met for row in (by_node, total, ended))


def test_what_is_lent_does_not_depend_on_the_schedulers_draws_and_batch_pods_get_no_more(
    live: LiveWorld, jobs: BatchJobs
) -> None:
    first, second = (simulated(live.cluster, jobs, 24, USAGE, draw) for draw in (0, 1))
    assert (first.lent == second.lent).all()
    assert measures(first)["batch jobs done"][0] > 0
    assert (first.bound[:, 0] <= first.lent[:, 0]).all()  # nobody ran before
    assert (first.used <= first.bound).all()


def test_under_policy_forecast_the_day_has_one_decision_on_peaks(live: LiveWorld) -> None:
    lending = lending_of(live.cluster, FORECAST)
    assert isinstance(lending, ByFormula) and lending.forecasts is not None
    for columns in lending.forecasts.values():
        for values in columns.values():
            # a day has four decisions, six hours apart
            assert values.shape == (3, 4)
            assert np.array_equal(values, np.repeat(values[:, :1], 4, axis=1), equal_nan=True)


def test_history_moves_by_whole_hours_with_all_its_moments(live: LiveWorld) -> None:
    later = moved(live.past, 5 * HOUR_SECONDS)
    assert later.inventory.time_seconds - live.past.inventory.time_seconds == 5 * HOUR_SECONDS
    lives = zip(later.inventory.pods, live.past.inventory.pods, strict=True)
    assert {(new.start_seconds - old.start_seconds) for new, old in lives} == {5 * HOUR_SECONDS}
    starts = {later.usage[s].grid.start_seconds - of.grid.start_seconds for s, of in live.past.usage.items()}
    assert starts == {5 * HOUR_SECONDS}
    assert moved(later, -5 * HOUR_SECONDS).inventory == live.past.inventory


def test_a_step_that_began_too_late_is_counted() -> None:
    record, pace = LoopRecord.empty(1, 2), WallPace(step_seconds=0.0)
    pace(0, record)
    pace(1, record)
    # steps of no time are over before they are waited for
    assert record.late == 2


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("policy", [USAGE, FORECAST])
def test_a_live_cluster_lends_what_the_simulated_one_does_and_runs_the_jobs_as_batch_pods(
    live: LiveWorld, jobs: BatchJobs, policy: str, tmp_path: Path
) -> None:
    needing.kubernetes()
    expected = simulated(live.cluster, jobs, STEPS, policy, 0)
    log, audit_flags = auditing(tmp_path)
    with live_cluster(live, tmp_path, policy, 60.0, audit_flags) as plane:
        api = plane.api()
        play = LivePlay(live, jobs, api)
        play.begin(lambda: decided(api, live, policy))

        def settled(step: int) -> bool:
            """Whether nodes lend what they do in the simulated loop, but for the manager's dead band, and jobs run."""
            lends = np.allclose(play.lent(), expected.lent[:, step], rtol=WITHIN, atol=1.0)
            return lends and any(pod["spec"].get("nodeName") for pod in api.items(PODS))

        def pace(step: int, _: LoopRecord) -> None:
            wait_for(f"the amounts of step {step}", lambda: settled(step), 120.0)

        record = play.run(STEPS, pace, lambda *_: None)
        placed = [pod for pod in api.items(PODS) if pod["spec"].get("nodeName")]
    assert record.used.sum() > 0
    assert {pod["metadata"]["labels"]["koordinator.sh/qosClass"] for pod in placed} == {"BE"}
    requested = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in placed]
    assert all("cpu" not in amounts and "kubernetes.io/batch-cpu" in amounts for amounts in requested)
    assert violations(recording(log)) == ()
