"""Floors of replicas from forecasts: what the peak needs, in time, within what the autoscaler may do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, Forecasts, MeasuredError
from cotenant.base.usage.usage import TimeGrid
from cotenant.recommender.replicas import ReplicaFloor, replica_floors
from cotenant.recommender.settings import ReplicaSettings

REF = WorkloadRef("shop", "Deployment", "web")
START = 1_700_000_000 // 1800 * 1800
DEFAULTS = ReplicaSettings()


def forecasts(
    path: np.ndarray, resource: Resource = Resource.CPU, reason: Reason = Reason.OK
) -> Forecasts[WorkloadRef]:
    quantiles = np.repeat(path[None, :, None], len(LEVELS), axis=2).astype(np.float32)
    unknown = MeasuredError(float("nan"), float("nan"), 0)
    peak = quantiles.max(axis=1)
    grid = TimeGrid(START, 1800, 48)
    return Forecasts((REF,), resource, grid, quantiles, peak, ((),), ("m",), (unknown,), (reason,))


def workload(
    scaler: Autoscaler | None, replicas: int = 4, millicores: int | None = 500, kind: str = "Deployment"
) -> Workload:
    requests = {Resource.CPU: millicores, Resource.MEMORY: 1 << 30} if millicores else {}
    return Workload(WorkloadRef("shop", kind, "web"), replicas, (Container("app", requests),), autoscaler=scaler)


def of(workload: Workload, path: np.ndarray, settings: ReplicaSettings = DEFAULTS) -> ReplicaFloor | None:
    return next(iter(replica_floors([workload], {Resource.CPU: forecasts(path)}, settings)), None)


def scaler(least: int = 2, most: int = 20, percent: int = 80) -> Autoscaler:
    return Autoscaler("web", least, most, {Resource.CPU: percent})


def test_the_floor_holds_the_peak_at_the_target_and_stands_before_it() -> None:
    path = np.full(48, 600.0)
    path[20:24] = 3900.0
    floor = of(workload(scaler()), path)
    assert floor is not None and floor.reason is Reason.OK
    # A pod of 500 m at 80 % holds 400 m: 600 needs 1.5 -> 2 pods, 3,900 needs 9.75 -> 10.
    # With a lead of 15 minutes, within one half hour, slot 19 already has it.
    assert floor.floor == (2,) * 19 + (10,) * 5 + (2,) * 24
    assert (floor.peak, floor.peak_seconds, floor.by) == (10, START + 19 * 1800, Resource.CPU)
    assert not floor.cut


def test_a_request_that_is_not_set_is_the_limit() -> None:
    path = np.full(48, 3900.0)
    for scaled in (workload(scaler()), workload(None, replicas=50)):
        (container,) = scaled.containers
        unset = replace(scaled, containers=(replace(container, requests={}, limits=container.requests),))
        assert of(unset, path) == of(scaled, path) is not None


def test_the_floor_stays_within_what_the_autoscaler_may_do_and_says_when_that_is_too_little() -> None:
    path = np.linspace(100, 9000, 48)
    floor = of(workload(scaler(least=3, most=12)), path)
    assert floor is not None
    assert min(floor.floor) == 3 and max(floor.floor) == 12
    # 9,000 / 400 = 22.5
    assert floor.needed == 23 and floor.cut


def test_the_resource_that_asks_for_most_decides() -> None:
    both = Autoscaler("web", 1, 50, {Resource.CPU: 80, Resource.MEMORY: 50})
    memory = forecasts(np.full(48, 8.0 * (1 << 30)), Resource.MEMORY)
    (floor,) = replica_floors(
        [workload(both)], {Resource.CPU: forecasts(np.full(48, 800.0)), Resource.MEMORY: memory}, DEFAULTS
    )
    # CPU asks for 2 pods; 8 GiB over 1 GiB at 50 % for 16.
    assert (floor.peak, floor.by) == (16, Resource.MEMORY)


def test_many_replicas_without_an_autoscaler_are_held_at_the_settings_target() -> None:
    floor = of(workload(None, replicas=10), np.full(48, 3500.0))
    # 3,500 / (500 x 0.7) = 10
    assert floor is not None and (floor.peak, floor.most) == (10, None)
    assert of(workload(None, replicas=5), np.full(48, 3500.0)) is None
    assert of(workload(None, replicas=10, kind="DaemonSet"), np.full(48, 3500.0)) is None
    assert of(workload(None, replicas=10, millicores=None), np.full(48, 3500.0)) is None


def test_a_floor_that_rests_on_nothing_is_withheld_with_its_reason() -> None:
    blind = of(workload(scaler(), millicores=None), np.full(48, 100.0))
    assert blind is not None and (blind.reason, blind.floor, blind.peak_seconds) == (Reason.HPA_UNSOLVED, (), None)
    young = {Resource.CPU: forecasts(np.full(48, 100.0), reason=Reason.FROM_PORTRAIT)}
    assert replica_floors([workload(scaler())], young, DEFAULTS)[0].reason is Reason.FROM_PORTRAIT
    other = Workload(WorkloadRef("shop", "Deployment", "new"), 1, workload(None).containers, autoscaler=scaler())
    assert replica_floors([other], young, DEFAULTS)[0].reason is Reason.NO_DATA


@pytest.mark.parametrize("targets", [{}, {Resource.CPU: 80}])
def test_no_floor_is_computed_where_not_every_target_is_one_of_the_whole_pod(targets: dict[Resource, int]) -> None:
    # 500 m at 60 % of one container may be less of the pod's use than of the pod's request.
    by_container = Autoscaler("web", 2, 20, targets, (Resource.MEMORY if targets else Resource.CPU,))
    floor = of(workload(by_container, replicas=30), np.full(48, 3900.0))
    assert floor is not None and (floor.reason, floor.floor) == (Reason.HPA_UNSOLVED, ())


@pytest.mark.slow
@given(
    path=st.lists(st.floats(0, 1e6), min_size=48, max_size=48),
    least=st.integers(1, 10),
    room=st.integers(0, 500),
    lead=st.integers(0, 21_600),
    percent=st.integers(1, 100),
)
def test_pods_are_there_when_they_are_needed(path: list[float], least: int, room: int, lead: int, percent: int) -> None:
    floor = of(workload(scaler(least, least + room, percent)), np.array(path), ReplicaSettings(lead_seconds=lead))
    assert floor is not None and len(floor.floor) == 48
    pod = 500 * percent / 100
    for slot, count in enumerate(floor.floor):
        assert least <= count <= least + room
        # Enough for its own demand, unless the autoscaler may not go that far.
        assert count == least + room or count * pod >= float(np.float32(path[slot])) * (1 - 1e-6) - pod * 1e-5
    assert floor.needed >= floor.peak or floor.peak == least


@pytest.mark.parametrize("lead", [0, 1800, 3600])
def test_the_lead_is_whole_half_hours_up(lead: int) -> None:
    path = np.zeros(48)
    path[30] = 4000.0
    floor = of(workload(scaler(least=1)), path, ReplicaSettings(lead_seconds=lead))
    assert floor is not None
    assert floor.floor.index(10) == 30 - lead // 1800
