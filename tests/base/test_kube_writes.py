"""What we write arrives once, as decided, or is refused in the server's words: against a real API server."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterConflict,
    ClusterForbidden,
    ClusterInvalid,
    ClusterUnreachable,
    NotLeader,
)
from cotenant.base.kube import KubeClient, Writer, send_all
from cotenant.base.kube.connection import _readable
from cotenant.base.kube.writes import request_of
from cotenant.base.kubernetes.intent import Address, Apply, Create, Delete, Patch
from cotenant.base.kubernetes.protocol import MANAGER
from tests.cluster import faults
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for
from tests.support import api_server

pytestmark = pytest.mark.server


def address(namespace: str, name: str = "one") -> Address:
    return Address("v1", "configmaps", name, namespace)


def config_map(where: Address, data: dict[str, str], **meta: str) -> Apply:
    metadata = {"name": where.name, "namespace": where.namespace, **meta}
    return Apply(where, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


@pytest.fixture
def client(control_plane: ControlPlane) -> KubeClient:
    return control_plane.admin_client()


@pytest.fixture
def through(control_plane: ControlPlane, fault_proxy: FaultProxy) -> KubeClient:
    return control_plane.client(fault_proxy.kubeconfig)


def test_an_apply_creates_then_changes_its_own_fields_and_leaves_foreign_ones(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    where, writer = address(namespace), Writer(client, MANAGER)
    assert writer.send(config_map(where, {"a": "1", "b": "1"}))["data"] == {"a": "1", "b": "1"}
    control_plane.api().patch(where.path, {"data": {"theirs": "x"}})
    # b is left out, so it is given back; the foreign key stays
    assert writer.send(config_map(where, {"a": "2"}))["data"] == {"a": "2", "theirs": "x"}


def test_a_dry_run_changes_nothing(control_plane: ControlPlane, client: KubeClient, namespace: str) -> None:
    where = address(namespace)
    assert Writer(client, MANAGER).send(config_map(where, {"a": "1"}), dry_run=True)["data"] == {"a": "1"}
    assert not control_plane.api().exists(where.path)


def test_an_eviction_counts_as_done_and_an_older_version_is_not_deleted(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    pods, api = f"/api/v1/namespaces/{namespace}/pods", control_plane.api()
    pod = api.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    where, meta = Address("v1", "pods", "p", namespace), pod["metadata"]
    api.patch(where.path, {"metadata": {"labels": {"a": "1"}}})
    with pytest.raises(ClusterConflict):
        Writer(client, MANAGER).send(Delete(where, meta["uid"], version=meta["resourceVersion"]))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    (outcome,) = send_all(client, [Create(where, body, "eviction")], MANAGER)
    assert outcome.error is None
    wait_for("the pod is gone", lambda: not api.exists(where.path))


def test_an_unknown_field_is_refused_at_once_in_the_servers_words(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    intent = config_map(address(namespace), {})
    # the server says 500 for an apply that does not fit its schema, which is no reason to try again
    with pytest.raises(ClusterInvalid, match=r"patch configmaps/.*/one: the API server answered \d+: .*datta"):
        Writer(through, MANAGER).send(Apply(intent.address, {**intent.body, "datta": {}}))
    assert len(fault_proxy.requests) == 1


def test_an_apply_bound_to_an_old_version_is_a_conflict(client: KubeClient, namespace: str) -> None:
    where, writer = address(namespace), Writer(client, MANAGER)
    version = writer.send(config_map(where, {"a": "1"}))["metadata"]["resourceVersion"]
    writer.send(config_map(where, {"a": "2"}))
    with pytest.raises(ClusterConflict, match="409"):
        writer.send(config_map(where, {"a": "3"}, resourceVersion=version))


def test_without_force_another_managers_field_is_a_conflict(client: KubeClient, namespace: str) -> None:
    intent = config_map(address(namespace), {"a": "1"})
    Writer(client, "somebody").send(intent)
    other = config_map(address(namespace), {"a": "2"})
    with pytest.raises(ClusterConflict, match="somebody"):
        Writer(client, MANAGER).send(Apply(other.address, other.body, force=False))


def test_a_patch_whose_test_fails_is_invalid_and_changes_nothing(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    where, writer = address(namespace), Writer(client, MANAGER)
    writer.send(config_map(where, {"a": "1"}))
    wrong = ({"op": "test", "path": "/data/a", "value": "9"}, {"op": "replace", "path": "/data/a", "value": "2"})
    with pytest.raises(ClusterInvalid, match="test"):
        writer.send(Patch(where, wrong))
    right = ({"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"})
    assert writer.send(Patch(where, right))["data"] == {"a": "2"}
    assert control_plane.api().get(where.path)["data"] == {"a": "2"}


def test_a_delete_is_bound_to_its_uid_and_content_with_nothing_to_delete(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    where, writer = address(namespace), Writer(client, MANAGER)
    uid = writer.send(config_map(where, {}))["metadata"]["uid"]
    with pytest.raises(ClusterConflict, match="409"):
        writer.send(Delete(where, uid="another"))
    assert control_plane.api().exists(where.path)
    assert writer.send(Delete(where, uid=uid)) == {}
    assert not control_plane.api().exists(where.path)
    assert writer.send(Delete(where, uid=uid)) == {}


def test_the_status_is_written_through_its_subresource(
    control_plane: ControlPlane, client: KubeClient, fake_nodes: Any
) -> None:
    (name,) = fake_nodes(1)
    where = Address("v1", "nodes", name)
    amounts = {"kubernetes.io/batch-cpu": "1500"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}
    Writer(client, MANAGER).send(Apply(where, body, "status"))
    status = control_plane.api().get(where.path)["status"]
    assert status["allocatable"]["kubernetes.io/batch-cpu"] == "1500"
    assert status["allocatable"]["cpu"] == "16"


def test_a_missing_right_is_named(control_plane: ControlPlane, namespace: str) -> None:
    stranger = control_plane.client(control_plane.user("stranger"))
    with pytest.raises(ClusterForbidden, match=r"cannot patch configmaps.*stranger") as caught:
        Writer(stranger, MANAGER).send(config_map(address(namespace), {}))
    assert f"Role of namespace {namespace}:" in caught.value.fix
    assert 'resources: ["configmaps"], resourceNames: ["one"], verbs: ["patch"]' in caught.value.fix


def test_a_missing_namespace_or_kind_is_absent(client: KubeClient) -> None:
    with pytest.raises(ClusterAbsent, match="404"):
        Writer(client, MANAGER).send(config_map(address("no-such-namespace"), {}))
    strange = Address("nosuch.example/v1", "things", "one")
    with pytest.raises(ClusterAbsent) as caught:
        Writer(client, MANAGER).send(Apply(strange, {"apiVersion": "nosuch.example/v1", "kind": "Thing"}))
    assert "CRD" in caught.value.fix


def test_what_is_too_large_is_refused_by_us(through: KubeClient, fault_proxy: FaultProxy, namespace: str) -> None:
    intent = config_map(address(namespace), {"a": "x" * 65_536})
    with pytest.raises(ClusterInvalid, match="65536"):
        Writer(through, MANAGER).send(intent)
    assert fault_proxy.requests == []
    assert Writer(through, MANAGER, cap_bytes=1 << 20).send(intent)["metadata"]["name"] == "one"


# --- bad days ---------------------------------------------------------------------------------------------------------
def test_a_busy_server_is_left_alone_as_long_as_it_says_then_served_once(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fault = faults.first(2, faults.TOO_MANY)  # Retry-After: 1
    start = time.monotonic()
    Writer(through, MANAGER).send(config_map(address(namespace), {"a": "1"}))
    assert time.monotonic() - start >= 2.0
    assert len(fault_proxy.requests) == 3


def test_workers_share_the_pause_that_a_busy_server_asks_for(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    intents = [config_map(address(namespace, f"m{i}"), {}) for i in range(8)]
    answered: list[float] = []

    def busy_once(request: faults.Request) -> faults.Fault | None:
        answered.append(time.monotonic())
        return faults.TOO_MANY if len(answered) == 1 else None

    fault_proxy.fault = busy_once
    assert all(o.ok for o in send_all(through, intents, MANAGER, workers=1))
    # nothing was asked within the second that the first answer asked for
    assert answered[1] - answered[0] >= 1.0
    assert len(answered) == 9


def test_an_object_at_which_the_server_fails_keeps_no_other_request_waiting(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    """As where a namespace's webhook does not answer: the API server says 500, for this object alone."""
    fault_proxy.fault = faults.always(faults.BROKEN, lambda request: "/configmaps/bad" in request.path)
    outcomes: list[Any] = []
    bad = [config_map(address(namespace, "bad"), {"a": "1"})]
    thread = threading.Thread(target=lambda: outcomes.extend(send_all(through, bad, MANAGER)))
    thread.start()
    # Tries after 0.5 + 1 + 2 + 4 s: for seven seconds it is all pauses.
    wait_for("the third try", lambda: sum("/configmaps/bad" in r.path for r in fault_proxy.requests) >= 3)
    start = time.monotonic()
    Writer(through.sibling(), MANAGER).send(config_map(address(namespace, "good"), {"a": "1"}))
    assert time.monotonic() - start < 1.0  # the pause after the third try is of two seconds
    thread.join()
    assert [o.error.status for o in outcomes] == [500]


def test_an_apply_survives_errors_and_lost_answers(
    control_plane: ControlPlane, through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    where = address(namespace)
    for number, fault in enumerate((faults.CUT, faults.LOST_ANSWER, faults.BROKEN, faults.UNAVAILABLE)):
        fault_proxy.fault = faults.first(1, fault)
        Writer(through, MANAGER).send(config_map(where, {"a": str(number)}))
        assert control_plane.api().get(where.path)["data"] == {"a": str(number)}


def test_a_patch_whose_answer_was_lost_is_not_sent_twice(
    control_plane: ControlPlane, through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    where, writer = address(namespace), Writer(through, MANAGER)
    writer.send(config_map(where, {"a": "1"}))
    fault_proxy.fault = faults.first(1, faults.LOST_ANSWER)
    right = ({"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"})
    before = len(fault_proxy.requests)
    with pytest.raises(ClusterUnreachable):
        writer.send(Patch(where, right))
    assert len(fault_proxy.requests) == before + 1
    assert control_plane.api().get(where.path)["data"] == {"a": "2"}


def test_a_patch_on_a_connection_that_was_closed_meanwhile_is_sent_on_a_new_one(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    where, writer = address(namespace), Writer(through, MANAGER)
    writer.send(config_map(where, {"a": "1"}))
    fault_proxy.sever()
    wait_for("the end of the connection", lambda: _readable(through._connection._connection.sock))
    assert writer.send(Patch(where, ({"op": "add", "path": "/data/b", "value": "2"},)))["data"] == {"a": "1", "b": "2"}


def test_nobody_hangs_on_a_server_that_hangs(
    control_plane: ControlPlane, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fault = faults.always(faults.HANG)
    client = control_plane.client(fault_proxy.kubeconfig, timeout_seconds=0.5)
    intents = [config_map(address(namespace, f"m{i}"), {}) for i in range(50)]
    start = time.monotonic()
    outcomes = send_all(client, intents, MANAGER, workers=4)
    assert [type(o.error) for o in outcomes] == [ClusterUnreachable] * 50
    # four tries of half a second side by side, not fifty one after the other
    assert time.monotonic() - start < 20
    assert len(fault_proxy.requests) <= 8


def test_an_api_server_killed_during_five_hundred_writes_loses_none_that_was_reported(
    control_plane: ControlPlane, namespace: str
) -> None:
    client, todo = control_plane.admin_client(), {f"m{i}" for i in range(500)}
    reported: set[str] = set()
    under_way, deadline = threading.Event(), time.monotonic() + 120

    def reconcile() -> None:
        while todo and time.monotonic() < deadline:
            intents = [config_map(address(namespace, name), {"of": name}) for name in sorted(todo)]
            done = {o.intent.address.name for o in send_all(client, intents, MANAGER, under_way.set) if o.ok}
            reported.update(done)
            todo.difference_update(done)

    writer = threading.Thread(target=reconcile)
    writer.start()
    assert under_way.wait(60)
    control_plane.restart_apiserver()
    writer.join()
    stored = {m["metadata"]["name"]: m["data"] for m in control_plane.api().items(address(namespace).collection)}
    assert {name: stored.get(name) for name in reported} == {f"m{i}": {"of": f"m{i}"} for i in range(500)}


# --- many -------------------------------------------------------------------------------------------------------------
def test_many_writes_give_their_outcomes_in_order_and_one_refusal_stops_nothing(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    intents = [config_map(address(namespace, f"m{i}"), {"i": str(i)}) for i in range(60)]
    intents[7] = config_map(address(namespace, "Not-A-Name"), {})
    outcomes = send_all(client, intents, MANAGER, workers=6)
    assert [o.intent for o in outcomes] == intents
    assert [i for i, o in enumerate(outcomes) if not o.ok] == [7]
    assert isinstance(outcomes[7].error, ClusterInvalid)
    assert [o.body["metadata"]["name"] for o in outcomes if o.ok] == [f"m{i}" for i in range(60) if i != 7]
    stored = {m["metadata"]["name"]: m for m in control_plane.api().items(address(namespace).collection)}
    assert [stored[f"m{i}"]["data"]["i"] for i in range(60) if i != 7] == [str(i) for i in range(60) if i != 7]
    versions = [o.body["metadata"]["resourceVersion"] for o in outcomes if o.ok]
    assert versions == [stored[f"m{i}"]["metadata"]["resourceVersion"] for i in range(60) if i != 7]
    assert "managedFields" not in outcomes[0].body["metadata"], "thousands of outcomes stay small"


def test_a_lost_lease_stops_the_rest_and_nothing_of_it_is_sent(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    allowed, lock = [20], threading.Lock()

    def guard() -> None:
        with lock:
            if not allowed[0]:
                raise NotLeader("another one leads")
            allowed[0] -= 1

    intents = [config_map(address(namespace, f"m{i}"), {}) for i in range(100)]
    outcomes = send_all(through, intents, MANAGER, guard, workers=4)
    assert sum(o.ok for o in outcomes) == 20 == len(fault_proxy.requests)
    assert {type(o.error) for o in outcomes if not o.ok} == {NotLeader}


def test_the_guard_is_asked_again_before_a_second_try(
    through: KubeClient, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fault = faults.first(1, faults.UNAVAILABLE)
    guard_calls = []

    def guard() -> None:
        guard_calls.append(1)
        if len(guard_calls) == 2:
            raise NotLeader("lost while waiting")

    with pytest.raises(NotLeader):
        Writer(through, MANAGER, guard).send(config_map(address(namespace), {}))
    assert len(fault_proxy.requests) == 1


def test_nothing_to_send_is_no_work(client: KubeClient) -> None:
    assert send_all(client, [], MANAGER) == []


# --- the wire ---------------------------------------------------------------------------------------------------------
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@settings(max_examples=50)
@given(name=names, namespace=names, force=st.booleans(), dry=st.booleans(), sub=st.sampled_from(["", "status"]))
def test_every_apply_names_manager_force_and_strictness(
    name: str, namespace: str, force: bool, dry: bool, sub: str
) -> None:
    where = Address("slo.koordinator.sh/v1alpha1", "nodemetrics", name, namespace)
    request = request_of(Apply(where, {"a": [1]}, sub, force), "me & you", dry)
    path, _, query = request.path.partition("?")
    assert path == f"/apis/slo.koordinator.sh/v1alpha1/namespaces/{namespace}/nodemetrics/{name}" + (sub and "/status")
    assert set(query.split("&")) - {"dryRun=All"} == {
        "fieldManager=me+%26+you",
        "fieldValidation=Strict",
        f"force={'true' if force else 'false'}",
    }
    assert ("dryRun=All" in query) is dry
    assert (request.method, msgspec.json.decode(request.body)) == ("PATCH", {"a": [1]})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("web?dryRun=All", "/api/v1/namespaces/shop/pods/web%3FdryRun%3DAll"),  # as a person may type it
        ("system:node", "/api/v1/namespaces/shop/pods/system:node"),
    ],
)
def test_a_name_adds_no_query_to_the_path(name: str, path: str) -> None:
    assert Address("v1", "pods", name, "shop").path == path


def test_head_and_body_leave_in_one_piece(api: Any, kubeconfig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cotenant.base.kube import connect
    from cotenant.base.settings.sections import KubeSettings

    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url)))
    bodies: list[bytes] = []

    def take(handler: api_server.Handler) -> None:
        bodies.append(handler.body)
        handler.answer(200, {"done": True})

    monkeypatch.setattr(api_server.Handler, "do_PATCH", api_server.Handler.do_GET, raising=False)
    api.once = [take]
    where = Address("v1", "nodes", "n1")
    assert Writer(client, MANAGER).send(Apply(where, {"x": "y" * 40_000})) == {"done": True}
    assert msgspec.json.decode(bodies[0]) == {"x": "y" * 40_000}
