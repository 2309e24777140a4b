from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster import faults
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for

BROKEN_CONNECTION = (OSError, http.client.HTTPException)


@pytest.fixture
def through(control_plane: ControlPlane, fault_proxy: FaultProxy) -> Iterator[Api]:
    api = control_plane.api(fault_proxy.kubeconfig)
    yield api
    api.close()


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def create(api: Api, namespace: str, count: int) -> None:
    for number in range(count):
        api.create(config_maps(namespace), {"metadata": {"generateName": f"item-{number}-"}})


def version(api: Api, namespace: str) -> str:
    return api.get(config_maps(namespace))["metadata"]["resourceVersion"]


def test_without_a_fault_it_passes_on_everything(through: Api, fault_proxy: FaultProxy, namespace: str) -> None:
    path = f"{config_maps(namespace)}/one"
    through.create(config_maps(namespace), {"metadata": {"name": "one"}})
    assert through.patch(path, {"data": {"a": "b"}})["data"] == {"a": "b"}
    assert through.delete(path)["status"] == "Success"
    assert not through.exists(path)
    assert [r.method for r in fault_proxy.requests] == ["POST", "PATCH", "DELETE", "GET"]


def test_the_products_client_goes_through_it(
    control_plane: ControlPlane, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fault = faults.first(1, faults.Fault(status=429, headers={"Retry-After": "0"}))
    client = control_plane.client(fault_proxy.kubeconfig)
    assert [m["metadata"]["name"] for m in client.list(config_maps(namespace))] == ["kube-root-ca.crt"]
    assert len(fault_proxy.requests) == 2


@pytest.mark.parametrize("fault", [faults.TOO_MANY, faults.BROKEN, faults.UNAVAILABLE])
def test_a_refusal_is_an_answer_of_the_kubernetes_api(
    through: Api, fault_proxy: FaultProxy, fault: faults.Fault
) -> None:
    fault_proxy.fault = faults.first(1, fault)
    with pytest.raises(ApiError) as refused:
        through.get("/api/v1/namespaces/default")
    assert refused.value.status == fault.status
    assert refused.value.body["message"] == fault.message
    assert through.get("/api/v1/namespaces/default")


def test_a_delay_comes_before_the_answer(through: Api, fault_proxy: FaultProxy) -> None:
    fault_proxy.fault = faults.delayed(0.3)
    start = time.monotonic()
    through.get("/api/v1/namespaces/default")
    assert time.monotonic() - start >= 0.3


def test_a_cut_request_never_reaches_the_server_and_a_lost_answer_does(
    control_plane: ControlPlane, through: Api, fault_proxy: FaultProxy, namespace: str
) -> None:
    for name, fault in (("cut", faults.CUT), ("lost", faults.LOST_ANSWER)):
        fault_proxy.fault = faults.first(1, fault)
        with pytest.raises(BROKEN_CONNECTION):
            through.create(config_maps(namespace), {"metadata": {"name": name}})
    names = {item["metadata"]["name"] for item in control_plane.api().items(config_maps(namespace))}
    assert "lost" in names and "cut" not in names


def test_a_request_that_hangs_is_given_up_by_the_client(control_plane: ControlPlane, fault_proxy: FaultProxy) -> None:
    fault_proxy.fault = faults.first(1, faults.HANG)
    with pytest.raises(TimeoutError):
        control_plane.api(fault_proxy.kubeconfig, timeout=0.5).get("/api/v1/namespaces/default")


def test_a_watch_lives_through_it(through: Api, control_plane: ControlPlane, namespace: str) -> None:
    events = through.watch(config_maps(namespace), resourceVersion=version(through, namespace))
    create(control_plane.api(), namespace, 3)
    assert [event["type"] for event in itertools.islice(events, 3)] == ["ADDED"] * 3


def test_a_cut_watch_ends_after_whole_events(
    control_plane: ControlPlane, through: Api, fault_proxy: FaultProxy, namespace: str
) -> None:
    since = version(through, namespace)
    create(control_plane.api(), namespace, 3)
    fault_proxy.fault = faults.cut_watch(after_events=2)
    events = through.watch(config_maps(namespace), resourceVersion=since)
    assert [next(events)["type"] for _ in range(2)] == ["ADDED"] * 2
    with pytest.raises(BROKEN_CONNECTION):
        next(events)


def test_a_truncated_watch_ends_in_half_an_event(
    control_plane: ControlPlane, through: Api, fault_proxy: FaultProxy, namespace: str
) -> None:
    since = version(through, namespace)
    create(control_plane.api(), namespace, 3)
    fault_proxy.fault = faults.truncated_watch(after_events=2)
    events = through.watch(config_maps(namespace), resourceVersion=since)
    assert [next(events)["type"] for _ in range(2)] == ["ADDED"] * 2
    with pytest.raises(json.JSONDecodeError):
        next(events)


def test_a_silent_watch_says_nothing_more_and_is_not_closed(
    control_plane: ControlPlane, fault_proxy: FaultProxy, namespace: str
) -> None:
    api = control_plane.api()
    since = version(api, namespace)
    create(api, namespace, 3)
    fault_proxy.fault = faults.silent_watch(after_events=1)
    events = control_plane.api(fault_proxy.kubeconfig, timeout=1).watch(config_maps(namespace), resourceVersion=since)
    assert next(events)["type"] == "ADDED"
    with pytest.raises(TimeoutError):
        next(events)


def test_severed_connections_end_at_once_and_new_ones_work(
    control_plane: ControlPlane, through: Api, fault_proxy: FaultProxy, namespace: str
) -> None:
    events = through.watch(config_maps(namespace), resourceVersion="0")
    assert next(events)["type"] == "ADDED"
    ended = threading.Event()

    def read() -> None:
        try:
            for _ in events:
                pass
        except BROKEN_CONNECTION:
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    fault_proxy.sever()
    assert ended.wait(60)
    assert control_plane.api(fault_proxy.kubeconfig).get("/api/v1/namespaces/default")


def test_a_frozen_network_keeps_connections_and_goes_on(control_plane: ControlPlane, fault_proxy: FaultProxy) -> None:
    fault_proxy.freeze()
    with pytest.raises(TimeoutError):
        control_plane.api(fault_proxy.kubeconfig, timeout=0.5).get("/api/v1/namespaces/default")
    fault_proxy.thaw()
    assert control_plane.api(fault_proxy.kubeconfig).get("/api/v1/namespaces/default")


def test_a_refused_address_takes_connections_again(control_plane: ControlPlane, fault_proxy: FaultProxy) -> None:
    fault_proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        control_plane.api(fault_proxy.kubeconfig).get("/api/v1/namespaces/default")
    fault_proxy.accept()

    def answered() -> bool:
        return bool(control_plane.api(fault_proxy.kubeconfig).get("/api/v1/namespaces/default"))

    assert wait_for("an answer at the same address", answered)
