"""Plans replayed on a service's own past: who is replayed, on which cluster, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.reservations.peak_world import demand_of
from cotenant.base.cluster import Autoscaler, Container, Inventory, Node, Workload
from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.settings import Settings
from cotenant_lab.simulation.peaks.peak_replay import HISTORY_DAYS, MOST_NODES, replay_services, shape_of

CPU = Resource.CPU
MONDAY_SECONDS = 345_600 + 2_900 * 604_800
WEB, FLAT = (WorkloadRef("shop", "Deployment", name) for name in ("web", "flat"))
SLOTS_A_DAY = 288


def node(number: int, millicores: int = 16_000) -> Node:
    return Node(f"n{number}", {CPU: millicores}, {CPU: millicores})


def inventory(nodes: int = 40) -> Inventory:
    """Each service is autoscaled to 70 % of pods of two cores, ten of them at least."""
    containers = (Container("main", {CPU: 2000}),)
    scaler = Autoscaler("any", 10, 60, {CPU: 70})
    services = tuple(Workload(ref, 10, containers, autoscaler=scaler) for ref in (WEB, FLAT))
    return Inventory("own", MONDAY_SECONDS, tuple(node(number) for number in range(nodes)), services, ())


def usage(days: int) -> Usage[WorkloadRef]:
    """One with the evening peak of the reservations' bench, one that uses ten cores at all times."""
    values = np.stack([demand_of(1, days), np.full(days * SLOTS_A_DAY, 10_000.0)]).astype(np.float32)
    grid = TimeGrid(MONDAY_SECONDS, 300, days * SLOTS_A_DAY)
    return Usage((WEB, FLAT), grid, values, CPU, Statistic.MEAN)


@pytest.mark.slow
def test_a_service_with_a_daily_peak_is_replayed_and_its_pods_wait_less_with_a_plan() -> None:
    (replay,) = replay_services(inventory(), usage(HISTORY_DAYS + 1), 1, 1, Settings(), Silent())
    assert replay.workload == WEB
    # as many pods come either way; with a plan most find their Reservation, and something stands idle for it
    assert len(replay.reserved.pending_seconds) == len(replay.without.pending_seconds) > 0
    assert replay.reserved_share > 0.5
    assert replay.pending_ratio < 1
    assert replay.reserved.idle > 0 == replay.without.idle
    # a day of 40 nodes of 16 cores
    assert replay.reserved.cluster == 40 * 16 * 24


@pytest.mark.slow
def test_as_many_days_are_judged_as_there_are_after_the_history() -> None:
    (replay,) = replay_services(inventory(10), usage(HISTORY_DAYS + 1), 7, 2, Settings(), Silent())
    assert replay.reserved.cluster == 10 * 16 * 24
    with pytest.raises(NoData, match=f"{HISTORY_DAYS} days of history and a day after it, but only 9.0 days of usage"):
        replay_services(inventory(), usage(HISTORY_DAYS), 7, 1, Settings(), Silent())


def test_where_no_service_has_a_peak_ahead_nothing_is_replayed() -> None:
    calm = usage(HISTORY_DAYS + 1).select(np.array([1]))
    with pytest.raises(NoData, match="no forecast needed more pods"):
        replay_services(inventory(), calm, 1, 1, Settings(), Silent())


def test_a_service_whose_usual_pods_do_not_fit_the_replayed_cluster_is_left_out() -> None:
    # ten pods of two cores run at least; one node has sixteen
    with pytest.raises(NoData, match="no forecast needed more pods"):
        replay_services(inventory(1), usage(HISTORY_DAYS + 1), 1, 1, Settings(), Silent())


@pytest.mark.slow
def test_a_replayed_cluster_has_the_nodes_of_the_inventory_at_their_median_size() -> None:
    sizes = (8_000, 16_000, 64_000)
    mixed = Inventory("own", 0, tuple(node(i, size) for i, size in enumerate(sizes)), (), ())
    assert (shape_of(mixed).nodes, shape_of(mixed).node_cores) == (3, 16.0)
    assert shape_of(inventory(MOST_NODES + 1)).nodes == MOST_NODES
    with pytest.raises(NoData, match="no node is stored"):
        shape_of(Inventory("own", 0, (), (), ()))
