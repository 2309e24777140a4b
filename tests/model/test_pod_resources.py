"""What counts of a pod while a resize is on its way: kube-scheduler's rule, by the pod's state."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.core.model.kubernetes.pod_resources import (
    ContainerKind,
    ContainerResources,
    PodResources,
    ResizeState,
    counted_limits,
    counted_requests,
)
from cotenant.core.model.kubernetes.pod_wire import PodSpecWire, PodStatusWire, pod_resources


def resized(asked: int, allocated: int, actual: int, kind: ContainerKind = ContainerKind.MAIN) -> ContainerResources:
    return ContainerResources(
        "main", kind, {"cpu": asked}, {"cpu": 2 * asked}, {"cpu": actual}, {"cpu": 2 * actual}, {"cpu": allocated}
    )


@pytest.mark.parametrize(
    ("state", "container", "requests", "limits"),
    [
        # asked, allocated, actual: the largest of the three; limits: of asked and actual
        (ResizeState.DEFERRED, resized(1, 20, 20), 20, 40),
        (ResizeState.DEFERRED, resized(40, 20, 20), 40, 80),
        (ResizeState.IN_PROGRESS, resized(1, 1, 20), 20, 40),
        (ResizeState.IN_PROGRESS, resized(30, 30, 20), 30, 60),
        (ResizeState.NONE, resized(20, 20, 20), 20, 40),
        # infeasible: what is asked for does not count
        (ResizeState.INFEASIBLE, resized(100_000, 20, 20), 20, 40),
        (ResizeState.INFEASIBLE, resized(1, 20, 15), 20, 30),
        # not reported: the spec
        (ResizeState.INFEASIBLE, ContainerResources("main", ContainerKind.MAIN, {"cpu": 7}, {"cpu": 9}), 7, 9),
    ],
)
def test_a_pod_counts_with_the_largest_of_what_it_may_hold(
    state: ResizeState, container: ContainerResources, requests: int, limits: int
) -> None:
    pod = PodResources((container,), overhead={"cpu": 5}, resize=state)
    assert counted_requests(pod) == {"cpu": requests + 5}
    assert counted_limits(pod) == {"cpu": limits + 5}


def test_a_sidecar_counts_beside_and_an_init_container_before() -> None:
    sidecar = resized(10, 10, 30, ContainerKind.SIDECAR)
    init = ContainerResources("init", ContainerKind.INIT, {"cpu": 100})
    pod = PodResources((resized(20, 20, 20), sidecar, init), resize=ResizeState.IN_PROGRESS)
    # the larger of 20 + 30 and 30 + 100
    assert counted_requests(pod) == {"cpu": 130}


def test_the_pods_own_requests_stand_in_for_its_containers() -> None:
    pod = PodResources((resized(20, 20, 20),), own_requests={"cpu": 70}, own_limits={"cpu": 90, "memory": 8})
    assert counted_requests(pod) == {"cpu": 70, "memory": 8}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ResizeState.NONE),
        ([("PodResizePending", "Infeasible")], ResizeState.INFEASIBLE),
        ([("PodResizePending", "Deferred")], ResizeState.DEFERRED),
        ([("PodResizeInProgress", "")], ResizeState.IN_PROGRESS),
        ([("PodResizeInProgress", ""), ("PodResizePending", "Deferred")], ResizeState.DEFERRED),
        ([("Ready", "")], ResizeState.NONE),
    ],
)
def test_the_state_of_a_resize_is_in_the_conditions(conditions: list[tuple[str, str]], state: ResizeState) -> None:
    said = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    status = msgspec.convert({"conditions": said}, PodStatusWire)
    assert pod_resources(PodSpecWire(), status, "pod a/b").resize is state
