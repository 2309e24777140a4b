"""A mirror shows what the API server has, through cuts, silence, compaction, refusals and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, QuantityError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.observed import node_of
from tests.base.config_maps import QUICK, ConfigMap, data_of
from tests.cluster import faults
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def mirror(namespace: str) -> Iterator[Callable[..., Mirror[Any]]]:
    """Start a mirror of the test's config maps, without the one that the cluster puts there."""
    started: list[Mirror[Any]] = []

    def start(client: KubeClient, path: str = "", **query: Any) -> Mirror[Any]:
        query = query or {"labelSelector": "test=yes"}
        maps_mirror: Mirror[Any] = Mirror(client, path or maps(namespace), ConfigMap, data_of, **query)
        maps_mirror.start()
        started.append(maps_mirror)
        return maps_mirror

    yield start
    for running_mirror in started:
        running_mirror.stop()


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    client = control_plane.api()
    yield client
    client.close()


@pytest.fixture
def through(control_plane: ControlPlane, fault_proxy: FaultProxy) -> KubeClient:
    return control_plane.client(fault_proxy.kubeconfig, **QUICK)


def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def write(api: Api, namespace: str, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": "yes"}}}
    api.patch(f"{maps(namespace)}/{name}", {**body, "data": data}, "apply", fieldManager="test", force="true")


def shows(mirror: Mirror[Any], namespace: str, **contents: str) -> None:
    """Wait until the mirror has exactly these objects, each with {"v": value}."""
    expected = {(namespace, name): {"v": value} for name, value in contents.items()}
    wait_for("the mirror", lambda: mirror.snapshot() == expected)


def watches(proxy: FaultProxy) -> int:
    return sum(r.watch for r in proxy.requests)


def test_it_lists_then_follows_and_reports_each_change(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    write(api, namespace, "b", v="1")
    maps_mirror = mirror(control_plane.admin_client())
    assert maps_mirror.wait_synced(60)
    assert maps_mirror.snapshot() == {(namespace, "a"): {"v": "1"}, (namespace, "b"): {"v": "1"}}
    assert maps_mirror.changes() == {(namespace, "a"), (namespace, "b")}
    write(api, namespace, "a", v="2")
    api.delete(f"{maps(namespace)}/b")
    write(api, namespace, "c", v="3")
    shows(maps_mirror, namespace, a="2", c="3")
    assert maps_mirror.changes() == {(namespace, "a"), (namespace, "b"), (namespace, "c")}
    assert maps_mirror.changes() == set()
    api.delete(f"{maps(namespace)}/a")
    write(api, namespace, "c", v="4")
    shows(maps_mirror, namespace, c="4")
    assert maps_mirror.changed() == {(namespace, "a"): None, (namespace, "c"): {"v": "4"}}
    assert maps_mirror.changed() == {}
    assert (maps_mirror.lists, maps_mirror.error) == (1, None)
    assert maps_mirror.age_seconds() < 60


def test_a_change_of_what_is_not_kept_is_no_change(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    maps_mirror = mirror(control_plane.admin_client())
    assert maps_mirror.wait_synced(60)
    maps_mirror.changes()
    before = maps_mirror.snapshot()
    api.patch(f"{maps(namespace)}/a", {"metadata": {"labels": {"more": "x"}}})
    write(api, namespace, "z", v="1")  # arrives after it
    shows(maps_mirror, namespace, a="1", z="1")
    assert maps_mirror.changes() == {(namespace, "z")}
    assert before == {(namespace, "a"): {"v": "1"}}, "a snapshot does not change under its reader"


def test_who_waits_is_woken_by_a_change(control_plane: ControlPlane, api: Api, namespace: str) -> None:
    wake = threading.Event()
    maps_mirror: Mirror[Any] = Mirror(control_plane.admin_client(), maps(namespace), ConfigMap, data_of, wake)
    maps_mirror.start()
    try:
        assert maps_mirror.wait_synced(60)
        wake.clear()
        maps_mirror.changes()
        write(api, namespace, "a", v="1")
        assert wake.wait(60)
        assert (namespace, "a") in maps_mirror.changes()
    finally:
        maps_mirror.stop()


def test_an_object_that_leaves_the_selector_is_gone_and_may_come_back(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    maps_mirror = mirror(control_plane.admin_client())
    assert maps_mirror.wait_synced(60)
    for label, contents in (("no", {}), ("yes", {"a": "1"})):
        api.patch(f"{maps(namespace)}/a", {"metadata": {"labels": {"test": label}}})
        shows(maps_mirror, namespace, **contents)
    assert maps_mirror.lists == 1


def test_a_stopped_mirror_ends_at_once(control_plane: ControlPlane, namespace: str, mirror: Any) -> None:
    maps_mirror = mirror(control_plane.admin_client())
    assert maps_mirror.wait_synced(60)
    wait_for("the watch", lambda: maps_mirror._stream)
    start = time.monotonic()
    maps_mirror.stop()
    assert time.monotonic() - start < 40  # its watch would be silent for a minute
    assert not maps_mirror._thread.is_alive()


# --- bad days ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault", [faults.cut_watch(1), faults.truncated_watch(1)], ids=["cut", "truncated"])
def test_a_watch_that_is_cut_goes_on_where_it_was(
    fault: faults.Choice, through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    fault_proxy.fault = fault
    maps_mirror = mirror(through)
    assert maps_mirror.wait_synced(60)
    for value in "123":
        write(api, namespace, "a", v=value)
    shows(maps_mirror, namespace, a="3")
    wait_for("the watch to be taken up", lambda: watches(fault_proxy) == 2 and maps_mirror.error is None)
    assert maps_mirror.lists == 1


def test_a_silent_watch_is_noticed_and_taken_up(
    control_plane: ControlPlane, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    fault_proxy.fault = faults.silent_watch(0)
    maps_mirror = mirror(control_plane.client(fault_proxy.kubeconfig, **QUICK, watch_idle_seconds=1.0))
    assert maps_mirror.wait_synced(60)
    write(api, namespace, "a", v="1")
    shows(maps_mirror, namespace, a="1")
    assert watches(fault_proxy) >= 2


def test_etcd_compaction_during_a_cut_watch_is_made_good_by_a_list_without_false_changes(
    control_plane: ControlPlane,
    through: KubeClient,
    fault_proxy: FaultProxy,
    api: Api,
    namespace: str,
    mirror: Any,
) -> None:
    for name in "abc":
        write(api, namespace, name, v="1")
    maps_mirror = mirror(through)
    assert maps_mirror.wait_synced(60)
    wait_for("the watch", lambda: maps_mirror._stream)
    maps_mirror.changes()
    fault_proxy.refuse()
    write(api, namespace, "a", v="2")
    api.delete(f"{maps(namespace)}/b")
    control_plane.compact()
    control_plane.restart_apiserver()  # its cache of events is gone as well
    fault_proxy.accept()
    shows(maps_mirror, namespace, a="2", c="1")
    assert maps_mirror.changes() == {(namespace, "a"), (namespace, "b")}
    assert maps_mirror.lists >= 2


def test_an_expired_version_is_listed_anew(
    through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    expired = faults.Fault(status=410, message="too old resource version")
    fault_proxy.fault = faults.first(1, expired, lambda request: request.watch)
    maps_mirror = mirror(through)
    write(api, namespace, "a", v="1")
    shows(maps_mirror, namespace, a="1")
    wait_for("a second list and a watch", lambda: maps_mirror.lists == 2 and watches(fault_proxy) == 2)
    assert (namespace, "a") in maps_mirror.changes()


def test_a_burst_of_errors_is_sat_out_and_the_past_is_shown_with_its_age(
    through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    maps_mirror = mirror(through)
    assert maps_mirror.wait_synced(60)
    fault_proxy.fault = faults.always(faults.Fault(status=500))
    fault_proxy.sever()
    wait_for("the error", lambda: maps_mirror.error is not None)
    assert maps_mirror.snapshot() == {(namespace, "a"): {"v": "1"}}
    age = maps_mirror.age_seconds()
    wait_for("the age to grow", lambda: maps_mirror.age_seconds() > age)
    write(api, namespace, "a", v="2")
    fault_proxy.fault = faults.none
    shows(maps_mirror, namespace, a="2")
    wait_for("the error to go", lambda: maps_mirror.error is None)


def test_a_missing_right_is_asked_for_slowly_until_it_is_there(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    maps_mirror = mirror(control_plane.client(control_plane.user(f"reader-{namespace}"), **QUICK))
    wait_for("the refusal", lambda: isinstance(maps_mirror.error, ClusterForbidden))
    assert not maps_mirror.wait_synced(0)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    api.create(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}}
    subject = {"kind": "User", "name": f"reader-{namespace}", "apiGroup": "rbac.authorization.k8s.io"}
    api.create(f"{rbac}/rolebindings", {"metadata": {"name": "reader"}, **bound, "subjects": [subject]})
    write(api, namespace, "a", v="1")
    shows(maps_mirror, namespace, a="1")
    # it may list and not watch: the error stands, and lists go on slowly
    wait_for(
        "the refused watch",
        lambda: isinstance(maps_mirror.error, ClusterForbidden) and "watch" in maps_mirror.error.message,
    )
    rules[0]["verbs"].append("watch")
    api.patch(f"{rbac}/roles/reader", {"rules": rules})
    wait_for("the error to go", lambda: maps_mirror.error is None)
    api.patch(f"{rbac}/roles/reader", {"rules": []})


def test_a_kind_that_is_not_installed_is_said_and_waited_for(control_plane: ControlPlane, mirror: Any) -> None:
    maps_mirror = mirror(
        control_plane.client(control_plane.admin_kubeconfig, **QUICK), "/apis/nosuch.example/v1/things"
    )
    wait_for("the error", lambda: isinstance(maps_mirror.error, ClusterAbsent))
    assert "does not serve" in maps_mirror.error.message


def test_an_api_server_that_is_killed_and_comes_back_is_followed_again(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    maps_mirror = mirror(control_plane.client(control_plane.admin_kubeconfig, **QUICK))
    assert maps_mirror.wait_synced(60)
    control_plane.restart_apiserver()
    api.close()
    write(api, namespace, "a", v="2")
    shows(maps_mirror, namespace, a="2")


def test_an_object_that_cannot_be_read_is_left_out_and_named(control_plane: ControlPlane, fake_nodes: Any) -> None:
    good, bad = fake_nodes(2)

    def strict(node: NodeWire) -> object:
        if node.metadata.name == bad:
            raise QuantityError(f"node {bad}: '1e999999' has an exponent beyond +-30")
        return node_of(node)

    nodes_mirror: Mirror[Any] = Mirror(control_plane.admin_client(), "/api/v1/nodes", NodeWire, strict)
    nodes_mirror.start()
    try:
        assert nodes_mirror.wait_synced(60)
        assert ("", good) in nodes_mirror.snapshot()
        assert ("", bad) not in nodes_mirror.snapshot()
        assert nodes_mirror.refusals == {("", bad): f"node {bad}: '1e999999' has an exponent beyond +-30"}
    finally:
        nodes_mirror.stop()
