"""What a pod and its containers were granted: by the kubelet's report, and by its rule of adding up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.kubernetes.pod_resources import ContainerKind, ResizeState
from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.granted import container_limit, container_request, pod_limit, pod_request, total

MAIN = ContainerSpec("main", requests={"cpu": 1000}, limits={"cpu": 2000})


def init(name: str, limit: int, stays: bool = False) -> ContainerSpec:
    kind = ContainerKind.SIDECAR if stays else ContainerKind.INIT
    return ContainerSpec(name, requests={"cpu": limit}, limits={"cpu": limit} if limit else {}, kind=kind)


def pod(*containers: ContainerSpec, inits: tuple[ContainerSpec, ...] = (), **more: object) -> PodSpec:
    return PodSpec("ns", "p", "u", containers=containers or (MAIN,), init_containers=inits, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("resize", list(ResizeState))
def test_what_the_kubelet_reports_counts_whatever_the_spec_asks_for(resize: ResizeState) -> None:
    asks = ContainerSpec("main", requests={"cpu": 100_000}, limits={"cpu": 100_000}, actual_requests={"cpu": 1000})
    reported = replace(asks, actual_limits={"cpu": 2000})
    spec = pod(reported, resize=resize)
    assert (container_request(spec, reported, "cpu"), container_limit(spec, reported, "cpu")) == (1000, 2000)
    assert (pod_request(spec, "cpu"), pod_limit(spec, "cpu")) == (1000, 2000)


def test_an_empty_report_of_a_container_that_asks_for_something_grants_and_takes_nothing() -> None:
    silent = replace(MAIN, actual_requests={}, actual_limits={})
    spec = pod(silent)
    assert (container_request(spec, silent, "cpu"), container_limit(spec, silent, "memory")) == (None, None)
    assert (pod_request(spec, "cpu"), pod_limit(spec, "cpu")) == (None, None)
    # of one that asks for nothing it is the truth
    free = ContainerSpec("free", actual_requests={}, actual_limits={})
    assert (container_limit(pod(free), free, "cpu"), pod_limit(pod(free), "cpu")) == (0, 0)


@pytest.mark.parametrize("resize", [state for state in ResizeState if state is not ResizeState.NONE])
def test_without_a_report_a_resize_makes_everything_unknown(resize: ResizeState) -> None:
    spec = pod(resize=resize)
    assert (container_request(spec, MAIN, "cpu"), container_limit(spec, MAIN, "cpu")) == (None, None)
    assert (pod_request(spec, "cpu"), pod_limit(spec, "cpu")) == (None, None)


@pytest.mark.parametrize(
    ("allocated", "granted"),
    # without a condition and without a report, as of kubelets before 1.33 on a runtime that reports no resources
    [(None, (1000, 2000)), ({"cpu": 1000}, (1000, 2000)), ({"memory": 5}, (1000, 2000)), ({"cpu": 200}, (None, None))],
)
def test_without_a_resize_the_spec_was_granted_unless_something_else_was_allocated(
    allocated: dict[str, int] | None, granted: tuple[int | None, int | None]
) -> None:
    main = replace(MAIN, allocated=allocated)
    spec = pod(main)
    assert (container_request(spec, main, "cpu"), container_limit(spec, main, "cpu")) == granted
    assert (pod_request(spec, "cpu"), pod_limit(spec, "cpu")) == granted


@pytest.mark.parametrize(
    ("inits", "pod_cpu"),
    [
        ((), 2000),
        ((init("s", 500, stays=True),), 2500),  # 2000 + 500
        ((init("i", 4000),), 4000),  # max(2000, 4000)
        ((init("s", 500, stays=True), init("i", 4000)), 4500),  # max(2000 + 500, 500 + 4000)
        ((init("i", 4000), init("s", 500, stays=True)), 4000),  # the sidecar starts after it
        ((init("i", 0),), 0),  # no limit: none for the pod
        ((init("s", 0, stays=True),), 0),
        ((init("s", 500, stays=True), init("i", 0)), 2500),  # the kubelet asks the sum with the sidecars before it
    ],
)
def test_a_pods_limit_is_that_of_its_largest_moment(inits: tuple[ContainerSpec, ...], pod_cpu: int) -> None:
    assert pod_limit(pod(inits=inits), "cpu") == pod_cpu


def test_ephemeral_containers_neither_add_to_the_pods_limit_nor_take_it_away() -> None:
    debug = ContainerSpec("debug", kind=ContainerKind.EPHEMERAL)
    assert pod_limit(pod(ephemeral_containers=(debug,)), "cpu") == 2000


def test_the_pods_own_limit_stands_in_for_containers_without_one() -> None:
    free = ContainerSpec("free")
    spec = pod(MAIN, free, own_limits={"cpu": 700}, own_requests={"cpu": 100}, overhead={"cpu": 50})
    assert pod_limit(spec, "cpu") == 750
    assert (container_limit(spec, MAIN, "cpu"), container_limit(spec, free, "cpu")) == (2000, 700)
    assert pod_request(spec, "cpu") == 100
    assert pod_limit(pod(MAIN, free), "cpu") == 0


def test_overhead_is_added_to_a_limit_and_makes_none() -> None:
    assert pod_limit(pod(overhead={"cpu": 250}), "cpu") == 2250
    assert pod_limit(pod(overhead={"memory": 250}), "memory") == 0


def test_a_total_is_the_largest_moment_too() -> None:
    inits = (init("s", 500, stays=True), init("i", 4000))
    assert total(pod(inits=inits), lambda c: c.limits.get("cpu", 0)) == 4500
