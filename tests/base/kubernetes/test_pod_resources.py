"""What counts of a pod while a resize is on its way: kube-scheduler's rule, by the pod's state."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.base.kubernetes.models.pod import PodSpecWire, PodStatusWire
from cotenant.base.kubernetes.pod_resources import (
    ContainerKind,
    ContainerResources,
    PodResources,
    ResizeState,
    counted_limits,
    counted_requests,
    is_resizing,
    present_amounts,
)
from cotenant.base.kubernetes.pod_wire import pod_resources


def resized(
    requested: int, allocated: int, actual: int, kind: ContainerKind = ContainerKind.MAIN
) -> ContainerResources:
    return ContainerResources(
        "main", kind=kind, requests={"cpu": requested}, limits={"cpu": 2 * requested}, actual_requests={"cpu": actual},
        actual_limits={"cpu": 2 * actual}, allocated={"cpu": allocated},
    )  # fmt: skip


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
        (ResizeState.INFEASIBLE, ContainerResources("main", requests={"cpu": 7}, limits={"cpu": 9}), 7, 9),
    ],
)
def test_a_pod_counts_with_the_largest_of_what_it_may_hold(
    state: ResizeState, container: ContainerResources, requests: int, limits: int
) -> None:
    pod = PodResources((container,), overhead={"cpu": 5}, resize=state)
    assert counted_requests(pod) == {"cpu": requests + 5}
    assert counted_limits(pod) == {"cpu": limits + 5}


@pytest.mark.parametrize(
    ("state", "counted", "in_force"),
    [
        # refused: neither counts with the added memory nor runs with it; put off: it counts, but is not applied yet
        (ResizeState.INFEASIBLE, {"cpu": 500}, {"cpu": 500}),
        (ResizeState.DEFERRED, {"cpu": 500, "memory": 9}, {"cpu": 500}),
    ],
)
def test_a_resource_that_a_pending_resize_adds_is_present_only_as_far_as_it_counts(
    state: ResizeState, counted: dict[str, int], in_force: dict[str, int]
) -> None:
    in_spec, has = {"cpu": 500, "memory": 9}, {"cpu": 500}
    main = ContainerResources(
        "main", requests=in_spec, limits=in_spec, actual_requests=has, actual_limits=has, allocated=has
    )
    # an init container cannot be resized: its spec counts
    init = ContainerResources("init", kind=ContainerKind.INIT, requests={"cpu": 7}, actual_requests={})
    pod = PodResources((main, init), resize=state)
    assert counted_requests(pod) == counted_limits(pod) == counted
    assert present_amounts(pod) == {"main": (counted, counted, in_force), "init": ({"cpu": 7}, {}, {"cpu": 7})}


def test_a_sidecar_counts_beside_and_an_init_container_before() -> None:
    sidecar = resized(10, 10, 30, ContainerKind.SIDECAR)
    init = ContainerResources("init", kind=ContainerKind.INIT, requests={"cpu": 100})
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
    reports = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    status = msgspec.convert({"conditions": reports}, PodStatusWire)
    assert pod_resources(PodSpecWire(), status, "pod a/b").resize is state


def amounts(requested: int, allocated: int | None, actual: int | None) -> ContainerResources:
    actual_amounts = {"cpu": actual} if actual is not None else None
    admitted = {"cpu": allocated} if allocated is not None else None
    of_spec = {"cpu": requested}
    return ContainerResources(
        "main", kind=ContainerKind.SIDECAR, requests=of_spec, limits=of_spec, actual_requests=actual_amounts,
        actual_limits=actual_amounts, allocated=admitted,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "container", "resizing"),
    [
        (ResizeState.NONE, amounts(20, 20, 20), False),
        (ResizeState.NONE, amounts(10, 20, 20), True),  # asked for, not answered yet
        (ResizeState.NONE, amounts(10, 10, 20), True),  # admitted, not carried out yet
        (ResizeState.IN_PROGRESS, amounts(20, 20, 20), True),
        (ResizeState.DEFERRED, amounts(10, 20, 20), False),
        (ResizeState.INFEASIBLE, amounts(10, 20, 20), False),
        (ResizeState.DEFERRED, amounts(10, 15, 20), True),  # an earlier one is carried out
        (ResizeState.INFEASIBLE, amounts(10, 15, 20), True),
        (ResizeState.NONE, amounts(10, None, None), False),  # nothing is reported: nothing is known of a resize
    ],
)
def test_a_pod_is_resized_while_other_amounts_than_those_in_force_are_about_to_come(
    state: ResizeState, container: ContainerResources, resizing: bool
) -> None:
    assert is_resizing(PodResources((container,), resize=state), "cpu") is resizing
    assert not is_resizing(PodResources((container,), resize=ResizeState.DEFERRED), "memory")


@pytest.mark.parametrize(
    ("of_limits", "resizing"),
    # a limit alone is asked for; the spec's, then the one in force
    [((20, 20), False), ((10, 20), True), ((0, 20), False)],
)
def test_a_limit_that_is_not_in_force_yet_is_a_resize_too(of_limits: tuple[int, int], resizing: bool) -> None:
    limits, actual = ({"cpu": amount} if amount else {} for amount in of_limits)
    container = ContainerResources("main", limits=limits, actual_limits=actual)
    assert is_resizing(PodResources((container,)), "cpu") is resizing


def test_an_earlier_resize_is_carried_out_while_a_later_one_is_put_off() -> None:
    conditions = [{"type": "PodResizeInProgress"}, {"type": "PodResizePending", "reason": "Deferred"}]
    pod = pod_resources(PodSpecWire(), msgspec.convert({"conditions": conditions}, PodStatusWire), "pod a/b")
    assert pod.resize is ResizeState.DEFERRED and is_resizing(pod, "cpu")
