"""A mirror shows what the API server has, through cuts, silence, compaction, refusals and restarts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from cotenant.core.adapters.kube import KubeClient, Mirror, connect
from cotenant.core.adapters.kube.observed import NodeWire, node_of
from cotenant.core.model.errors import ClusterAbsent, ClusterForbidden, QuantityError
from cotenant.core.settings.sections.kube import KubeSettings
from tests.cluster import faults
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for
from tests.support import api_server

pytestmark = pytest.mark.server

STALE_SECONDS = 4.0
QUICK = {"watch_backoff_seconds": 0.3, "timeout_seconds": 5.0}


class Meta(msgspec.Struct):
    name: str


class ConfigMap(msgspec.Struct):
    metadata: Meta
    data: dict[str, str] | None = None


def data_of(thing: ConfigMap) -> dict[str, str]:
    return thing.data or {}


@pytest.fixture
def mirror(namespace: str) -> Iterator[Callable[..., Mirror[Any]]]:
    """Start a mirror of the test's config maps, without the one that the cluster puts there."""
    started: list[Mirror[Any]] = []

    def start(client: KubeClient, path: str = "", **query: str) -> Mirror[Any]:
        query = query or {"labelSelector": "test=yes"}
        found: Mirror[Any] = Mirror(client, path or maps(namespace), ConfigMap, data_of, **query)
        found.start()
        started.append(found)
        return found

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    found = control_plane.api()
    yield found
    found.close()


@pytest.fixture
def through(control_plane: ControlPlane, fault_proxy: FaultProxy) -> KubeClient:
    return control_plane.client(fault_proxy.kubeconfig, **QUICK)


def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def write(api: Api, namespace: str, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": "yes"}}}
    api.patch(f"{maps(namespace)}/{name}", {**body, "data": data}, "apply", fieldManager="test", force="true")


def shows(mirror: Mirror[Any], namespace: str, **wanted: str) -> None:
    """Wait until the mirror has exactly these objects, each with {"v": value}."""
    expected = {(namespace, name): {"v": value} for name, value in wanted.items()}
    wait_for("the mirror", lambda: mirror.snapshot() == expected)


def watches(proxy: FaultProxy) -> int:
    return sum(r.watch for r in proxy.requests)


def test_it_lists_then_follows_and_reports_each_change(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    write(api, namespace, "b", v="1")
    found = mirror(control_plane.admin_client())
    assert found.wait_synced(60)
    assert found.snapshot() == {(namespace, "a"): {"v": "1"}, (namespace, "b"): {"v": "1"}}
    assert found.changes() == {(namespace, "a"), (namespace, "b")}
    write(api, namespace, "a", v="2")
    api.delete(f"{maps(namespace)}/b")
    write(api, namespace, "c", v="3")
    shows(found, namespace, a="2", c="3")
    assert found.changes() == {(namespace, "a"), (namespace, "b"), (namespace, "c")}
    assert found.changes() == set()
    api.delete(f"{maps(namespace)}/a")
    write(api, namespace, "c", v="4")
    shows(found, namespace, c="4")
    assert found.changed() == {(namespace, "a"): None, (namespace, "c"): {"v": "4"}}
    assert found.changed() == {}
    assert (found.lists, found.error) == (1, None)
    assert found.age_seconds() < 60


def test_a_change_of_what_is_not_kept_is_no_change(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    found = mirror(control_plane.admin_client())
    assert found.wait_synced(60)
    found.changes()
    before = found.snapshot()
    api.patch(f"{maps(namespace)}/a", {"metadata": {"labels": {"more": "x"}}})
    write(api, namespace, "z", v="1")  # arrives after it
    shows(found, namespace, a="1", z="1")
    assert found.changes() == {(namespace, "z")}
    assert before == {(namespace, "a"): {"v": "1"}}, "a snapshot does not change under its reader"


def test_who_waits_is_woken_by_a_change(control_plane: ControlPlane, api: Api, namespace: str) -> None:
    wake = threading.Event()
    found: Mirror[Any] = Mirror(control_plane.admin_client(), maps(namespace), ConfigMap, data_of, wake)
    found.start()
    try:
        assert found.wait_synced(60)
        wake.clear()
        found.changes()
        write(api, namespace, "a", v="1")
        assert wake.wait(60)
        assert (namespace, "a") in found.changes()
    finally:
        found.stop()


def test_an_object_that_leaves_the_selector_is_gone_and_may_come_back(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    found = mirror(control_plane.admin_client())
    assert found.wait_synced(60)
    for label, wanted in (("no", {}), ("yes", {"a": "1"})):
        api.patch(f"{maps(namespace)}/a", {"metadata": {"labels": {"test": label}}})
        shows(found, namespace, **wanted)
    assert found.lists == 1


def test_a_stopped_mirror_ends_at_once(control_plane: ControlPlane, namespace: str, mirror: Any) -> None:
    found = mirror(control_plane.admin_client())
    assert found.wait_synced(60)
    wait_for("the watch", lambda: found._stream)
    begun = time.monotonic()
    found.stop()
    assert time.monotonic() - begun < 40  # its watch would be silent for a minute
    assert not found._thread.is_alive()


# --- bad days ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault", [faults.cut_watch(1), faults.truncated_watch(1)], ids=["cut", "truncated"])
def test_a_watch_that_is_cut_goes_on_where_it_was(
    fault: faults.Choice, through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    fault_proxy.fault = fault
    found = mirror(through)
    assert found.wait_synced(60)
    for value in "123":
        write(api, namespace, "a", v=value)
    shows(found, namespace, a="3")
    wait_for("the watch to be taken up", lambda: watches(fault_proxy) == 2 and found.error is None)
    assert found.lists == 1


def test_a_silent_watch_is_noticed_and_taken_up(
    control_plane: ControlPlane, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    fault_proxy.fault = faults.silent_watch(0)
    found = mirror(control_plane.client(fault_proxy.kubeconfig, **QUICK, watch_idle_seconds=1.0))
    assert found.wait_synced(60)
    write(api, namespace, "a", v="1")
    shows(found, namespace, a="1")
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
    found = mirror(through)
    assert found.wait_synced(60)
    wait_for("the watch", lambda: found._stream)
    found.changes()
    fault_proxy.refuse()
    write(api, namespace, "a", v="2")
    api.delete(f"{maps(namespace)}/b")
    control_plane.compact()
    control_plane.restart_apiserver()  # its cache of events is gone as well
    fault_proxy.accept()
    shows(found, namespace, a="2", c="1")
    assert found.changes() == {(namespace, "a"), (namespace, "b")}
    assert found.lists >= 2


def test_an_expired_version_is_listed_anew(
    through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    expired = faults.Fault(status=410, message="too old resource version")
    fault_proxy.fault = faults.first(1, expired, lambda request: request.watch)
    found = mirror(through)
    write(api, namespace, "a", v="1")
    shows(found, namespace, a="1")
    wait_for("a second list and a watch", lambda: found.lists == 2 and watches(fault_proxy) == 2)
    assert (namespace, "a") in found.changes()


def test_a_burst_of_errors_is_sat_out_and_the_past_is_shown_with_its_age(
    through: KubeClient, fault_proxy: FaultProxy, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    found = mirror(through)
    assert found.wait_synced(60)
    fault_proxy.fault = faults.always(faults.Fault(status=500))
    fault_proxy.sever()
    wait_for("the error", lambda: found.error is not None)
    assert found.snapshot() == {(namespace, "a"): {"v": "1"}}
    age = found.age_seconds()
    wait_for("the age to grow", lambda: found.age_seconds() > age)
    write(api, namespace, "a", v="2")
    fault_proxy.fault = faults.none
    shows(found, namespace, a="2")
    wait_for("the error to go", lambda: found.error is None)


def test_a_missing_right_is_asked_for_slowly_until_it_is_there(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    found = mirror(control_plane.client(control_plane.user(f"reader-{namespace}"), **QUICK))
    wait_for("the refusal", lambda: isinstance(found.error, ClusterForbidden))
    assert not found.wait_synced(0)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    api.create(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}}
    subject = {"kind": "User", "name": f"reader-{namespace}", "apiGroup": "rbac.authorization.k8s.io"}
    api.create(f"{rbac}/rolebindings", {"metadata": {"name": "reader"}, **bound, "subjects": [subject]})
    write(api, namespace, "a", v="1")
    shows(found, namespace, a="1")
    # it may list and not watch: the error stands, and lists go on slowly
    wait_for("the refused watch", lambda: isinstance(found.error, ClusterForbidden) and "watch" in found.error.message)
    rules[0]["verbs"].append("watch")
    api.patch(f"{rbac}/roles/reader", {"rules": rules})
    wait_for("the error to go", lambda: found.error is None)
    api.patch(f"{rbac}/roles/reader", {"rules": []})


def test_a_kind_that_is_not_installed_is_said_and_waited_for(control_plane: ControlPlane, mirror: Any) -> None:
    found = mirror(control_plane.client(control_plane.admin_kubeconfig, **QUICK), "/apis/nosuch.example/v1/things")
    wait_for("the error", lambda: isinstance(found.error, ClusterAbsent))
    assert "does not serve" in found.error.message


def test_an_api_server_that_is_killed_and_comes_back_is_followed_again(
    control_plane: ControlPlane, api: Api, namespace: str, mirror: Any
) -> None:
    write(api, namespace, "a", v="1")
    found = mirror(control_plane.client(control_plane.admin_kubeconfig, **QUICK))
    assert found.wait_synced(60)
    control_plane.restart_apiserver()
    api.close()
    write(api, namespace, "a", v="2")
    shows(found, namespace, a="2")


def test_an_object_that_cannot_be_read_is_left_out_and_named(control_plane: ControlPlane, fake_nodes: Any) -> None:
    good, bad = fake_nodes(2)

    def strict(node: NodeWire) -> object:
        if node.metadata.name == bad:
            raise QuantityError(f"node {bad}: '1e999999' has an exponent beyond +-30")
        return node_of(node)

    found: Mirror[Any] = Mirror(control_plane.admin_client(), "/api/v1/nodes", NodeWire, strict)
    found.start()
    try:
        assert found.wait_synced(60)
        assert ("", good) in found.snapshot()
        assert ("", bad) not in found.snapshot()
        assert found.refused == {("", bad): f"node {bad}: '1e999999' has an exponent beyond +-30"}
    finally:
        found.stop()


# --- a server that lies ----------------------------------------------------------------------------------------------
def event(kind: str, name: str, version: int, value: str) -> bytes:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta, "data": {"v": value}}}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


def error_event(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def chunks(*parts: bytes) -> api_server.Reply:
    """A watch that sends these chunks and ends in an orderly way."""

    def reply(handler: api_server.Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    return reply


class Liar:
    """Lists what it is told and plays one script a watch; then watches are silent."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.items: list[Any] = []
        self.scripts: list[api_server.Reply] = []
        self.queries: list[str] = []
        self.silenced = threading.Event()
        server.once = self

    def __bool__(self) -> bool:
        return True

    def pop(self, _index: int) -> api_server.Reply:
        return self.serve

    def serve(self, handler: api_server.Handler) -> None:
        if "watch=true" not in handler.path:
            handler.answer(200, {"metadata": {"resourceVersion": "100"}, "items": self.items})
            return
        self.queries.append(handler.path)
        if self.scripts:
            self.scripts.pop(0)(handler)
        else:
            self.silenced.set()
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.connection.settimeout(30)
            handler.rfile.read(1)


@pytest.fixture
def lying(api_stub: Any, kubeconfig: Any) -> Iterator[tuple[Liar, Mirror[Any]]]:
    client = connect(KubeSettings(kubeconfig=kubeconfig(api_stub.url), **QUICK))
    found: Mirror[Any] = Mirror(client, "/api/v1/configmaps", ConfigMap, data_of)
    yield Liar(api_stub), found
    found.stop()


@pytest.fixture
def api_stub(certificates: Any) -> Iterator[api_server.ApiServer]:
    server = api_server.ApiServer(certificates / "server.pem", certificates / "authority.pem")
    yield server
    server.stop()


def values(found: Mirror[Any]) -> dict[str, str]:
    return {name: value["v"] for (_, name), value in found.snapshot().items()}


def test_a_quiet_watch_is_taken_up_before_it_counts_as_stale_and_without_an_error(
    lying: tuple[Liar, Mirror[Any]],
) -> None:
    """A healthy server of a kind that nobody changes, whose bookmarks come later than all of this lasts."""
    liar, found = lying
    found.renew_within(STALE_SECONDS)
    found.start()
    ages, errors = [0.0], []
    while len(liar.queries) < 8:  # the server's word ends the loop; what is seen on the way is held against the rule
        if found.wait_synced(0):
            ages.append(found.age_seconds())
            errors.append(found.error)
        time.sleep(0.02)
    assert set(errors) <= {None}
    # Taken up anew after three quarters of 4 s, each time at the version of the list; the rest is for the machine.
    assert max(ages) < STALE_SECONDS
    assert all("resourceVersion=100&" in query for query in liar.queries)
    # After three silent watches a list asks whether a proxy swallows the events: 7 silent ones are two more lists.
    assert found.lists == 3


def test_a_watch_that_is_accepted_and_fails_without_a_word_is_no_sign_of_life(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks(error_event(500)) for _ in range(4)]
    found.start()
    assert found.wait_synced(60)
    listed = time.monotonic() - found.age_seconds()
    wait_for("failed watches", lambda: len(liar.queries) >= 3)
    assert found.lists == 1
    # the server's last word is the list, whatever number of watches it took up since
    assert time.monotonic() - found.age_seconds() == pytest.approx(listed, abs=0.05)


def test_a_bookmark_moves_the_version_to_go_on_from(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), bookmark(150))]
    found.start()
    assert liar.silenced.wait(60)
    assert "resourceVersion=100&" in liar.queries[0]
    assert "resourceVersion=150&" in liar.queries[1]
    assert "allowWatchBookmarks=true" in liar.queries[0]
    assert (values(found), found.lists) == ({"a": "1"}, 1)


def test_an_error_event_of_an_old_version_means_a_new_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), error_event(410))]
    found.start()
    assert liar.silenced.wait(60)
    assert (values(found), found.lists) == ({}, 2)  # the list has no "a" any more
    assert "resourceVersion=100&" in liar.queries[1]


def test_another_error_event_is_no_reason_to_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks(event("ADDED", "a", 101, "1"), error_event(500))]
    found.start()
    assert liar.silenced.wait(60)
    assert (values(found), found.lists) == ({"a": "1"}, 1)
    assert "resourceVersion=101&" in liar.queries[1]


def test_a_version_from_a_future_that_an_older_snapshot_undid_is_given_up(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks(error_event(504)) for _ in range(6)]
    found.start()
    assert liar.silenced.wait(60)
    assert found.lists == 2


def test_replayed_events_are_settled_by_a_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    one, two = event("ADDED", "a", 101, "1"), event("MODIFIED", "a", 102, "2")
    liar.scripts = [chunks(one, two, two, one, two)]
    found.start()
    assert liar.silenced.wait(60)
    assert found.lists == 2


def test_garbage_and_events_without_an_end_are_broken_watches(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    whole = event("ADDED", "a", 101, "1")
    liar.scripts = [chunks(b"<html>\n"), chunks(whole[:40]), chunks(b"\xff\xfe\n"), chunks(b"[]\n"), chunks(whole)]
    found.start()
    assert liar.silenced.wait(60)
    assert (values(found), found.lists) == ({"a": "1"}, 1)


@pytest.mark.parametrize("size", [1, 7])
def test_events_in_tiny_chunks_are_put_together(lying: tuple[Liar, Mirror[Any]], size: int) -> None:
    liar, found = lying
    text = b"".join(event("ADDED", f"n{i}", 101 + i, "v") for i in range(20))
    liar.scripts = [chunks(*(text[i : i + size] for i in range(0, len(text), size)))]
    found.start()
    assert liar.silenced.wait(60)
    assert values(found) == {f"n{i}": "v" for i in range(20)}


def test_an_object_of_eight_megabytes_is_read(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    text = event("ADDED", "large", 101, "x" * (8 << 20))
    liar.scripts = [chunks(*(text[i : i + 10_000] for i in range(0, len(text), 10_000)))]
    found.start()
    assert liar.silenced.wait(60)
    assert len(values(found)["large"]) == 8 << 20


def test_watches_that_are_closed_at_once_are_failures_and_end_in_a_list(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.scripts = [chunks() for _ in range(12)]
    found.start()
    assert liar.silenced.wait(60)
    assert found.lists >= 2  # five in a row are one more list; a healthy watch would be taken up with none


def test_an_object_that_breaks_our_reading_hides_no_other(lying: tuple[Liar, Mirror[Any]]) -> None:
    liar, found = lying
    liar.items = [{"metadata": {"name": "bare"}}, {"metadata": {"name": "a"}, "data": {"v": "1"}}]
    found._project = lambda thing: {"v": thing.data["v"]}  # TypeError: "bare" has no data
    found.start()
    assert found.wait_synced(60)
    assert values(found) == {"a": "1"}
    assert found.refused == {("", "bare"): "TypeError: 'NoneType' object is not subscriptable"}
