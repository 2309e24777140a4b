from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.base.errors import ClusterAbsent, ClusterDenied, ClusterError, ClusterForbidden
from cotenant.base.kube import KubeClient, Writer, connect
from cotenant.base.kube.definitions import shipped_definitions
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.settings.sections import KubeSettings
from tests.support import api_server

pytestmark = [pytest.mark.slow, pytest.mark.server]

PODS = "/api/v1/pods"


class Named(msgspec.Struct):
    metadata: dict[str, Any]


@pytest.fixture
def client(api: Any, kubeconfig: Any) -> KubeClient:
    return connect(KubeSettings(kubeconfig=kubeconfig(api.url), timeout_seconds=30.0, deadline_seconds=60.0))


def pods(count: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"pod-{i}", "namespace": "shop"}, "spec": {}} for i in range(count)]


def test_a_long_list_is_fetched_page_by_page_in_order_over_one_connection(api: Any, client: KubeClient) -> None:
    api.objects[PODS] = pods(1203)
    listed = client.list(PODS, Named)
    assert [pod.metadata["name"] for pod in listed] == [f"pod-{i}" for i in range(1203)]
    # 1,203 objects at 500 a page
    assert [path for path, *_ in api.requests] == [
        f"{PODS}?limit=500",
        f"{PODS}?limit=500&continue=500",
        f"{PODS}?limit=500&continue=1000",
    ]
    assert len(api.connections) == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 23), limit=st.integers(0, 9))
def test_any_page_size_gives_every_object_once(api: Any, client: KubeClient, count: int, limit: int) -> None:
    api.objects[PODS] = pods(count)
    assert client.list(PODS, limit=limit) == pods(count)


def test_selectors_are_sent_with_every_page(api: Any, client: KubeClient) -> None:
    api.objects[PODS] = pods(3)
    client.list(PODS, limit=2, labelSelector="app in (a,b)")
    assert [path for path, *_ in api.requests] == [
        f"{PODS}?labelSelector=app+in+%28a%2Cb%29&limit=2",
        f"{PODS}?labelSelector=app+in+%28a%2Cb%29&limit=2&continue=2",
    ]


def test_a_list_that_the_server_forgot_between_pages_is_asked_again_whole(api: Any, client: KubeClient) -> None:
    api.objects[PODS] = pods(5)
    api.forget = 1
    assert client.list(PODS, limit=2) == pods(5)
    assert [path for path, *_ in api.requests] == [f"{PODS}?limit=2", f"{PODS}?limit=2&continue=2", PODS]


def test_an_expired_answer_to_the_first_page_is_an_error_and_not_a_loop(api: Any, client: KubeClient) -> None:
    api.once = [lambda handler: handler.status(410, "too old resource version")]
    with pytest.raises(ClusterError, match="410: too old resource version"):
        client.list(PODS)


def test_one_object_is_raw_json_and_an_unknown_one_is_none(api: Any, client: KubeClient) -> None:
    api.objects["/api/v1/nodes/n1"] = {"metadata": {"name": "n1"}, "extra": [1]}
    assert client.get("/api/v1/nodes/n1") == {"metadata": {"name": "n1"}, "extra": [1]}
    assert client.get("/api/v1/nodes/n1", Named) == Named({"name": "n1"})
    assert client.get("/api/v1/nodes/n2") is None


def test_a_collection_that_the_server_does_not_serve_is_an_error(client: KubeClient) -> None:
    with pytest.raises(ClusterError, match="does not serve /apis/nosuch/v1/things") as caught:
        client.list("/apis/nosuch/v1/things")
    assert caught.value.fix == "Check the API group and version."


def test_a_kind_of_ours_that_is_not_installed_is_said_with_the_command_that_installs_it(client: KubeClient) -> None:
    for definition in shipped_definitions():
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        with pytest.raises(ClusterAbsent) as caught:
            client.list(path)
        assert "cotenant install --apply" in caught.value.fix and "helm upgrade" in caught.value.fix, path


def test_a_busy_server_is_asked_again_when_it_says(api: Any, client: KubeClient) -> None:
    api.objects[PODS] = pods(2)
    api.once = [api_server.busy("0"), api_server.busy("1")]
    start = time.monotonic()
    assert client.list(PODS) == pods(2)
    assert time.monotonic() - start >= 1.0
    assert len(api.requests) == 3


def test_a_server_that_stays_busy_is_an_error(api: Any, kubeconfig: Any) -> None:
    api.once = [api_server.busy("0")] * 3
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url), retries=2))
    with pytest.raises(ClusterError, match="429: too many requests"):
        client.list(PODS)
    assert len(api.requests) == 3


def test_a_cut_answer_and_a_broken_connection_are_tried_again(api: Any, client: KubeClient) -> None:
    api.objects[PODS] = pods(2)
    api.once = [api_server.cut, api_server.hang_up]
    assert client.list(PODS) == pods(2)
    assert len(api.requests) == 3


def test_answers_that_are_always_cut_are_an_error_with_the_path(api: Any, kubeconfig: Any) -> None:
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url), retries=1))
    api.once = [api_server.cut] * 2
    with pytest.raises(ClusterError, match=r"/api/v1/pods\?limit=500: no complete answer"):
        client.list(PODS)


@pytest.mark.parametrize("body", [b"<html>login</html>", b"", b"[]", b'{"items": 5}', b"\xff\xfe"])
def test_an_answer_that_is_not_the_apis_json_is_an_error(api: Any, client: KubeClient, body: bytes) -> None:
    api.once = [lambda handler: handler.raw(200, body)]
    with pytest.raises(ClusterError, match="not the API's JSON"):
        client.list(PODS, Named)


@pytest.mark.parametrize("reply", ["silence", "trickle"])
def test_a_server_that_hangs_or_trickles_is_given_up(api: Any, kubeconfig: Any, reply: str) -> None:
    impatient = KubeSettings(kubeconfig=kubeconfig(api.url), timeout_seconds=1.0, deadline_seconds=1.5)
    api.once = [getattr(api_server, reply)]
    with pytest.raises(ClusterError, match="no complete answer"):
        connect(impatient).get(PODS)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/api/v1/pods", 'a ClusterRole: apiGroups: [""], resources: ["pods"]'),
        ("/api/v1/namespaces/shop/pods", 'a Role of namespace shop: apiGroups: [""], resources: ["pods"]'),
        ("/api/v1/namespaces/shop", 'a ClusterRole: apiGroups: [""], resources: ["namespaces"]'),
        (
            "/apis/autoscaling/v2/horizontalpodautoscalers",
            'a ClusterRole: apiGroups: ["autoscaling"], resources: ["horizontalpodautoscalers"]',
        ),
        (
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
            'a Role of namespace shop: apiGroups: ["apps"], resources: ["deployments/scale"]',
        ),
        (
            "/api/v1/namespaces/shop/configmaps/switch",
            'a Role of namespace shop: apiGroups: [""], resources: ["configmaps"], resourceNames: ["switch"]',
        ),
    ],
)
def test_a_refusal_names_the_narrowest_right_that_is_missing(
    api: Any, client: KubeClient, path: str, rule: str
) -> None:
    api.forbidden = {path}
    with pytest.raises(ClusterForbidden, match="jane") as caught:
        client.list(path)
    assert caught.value.fix == f'Grant the right in {rule}, verbs: ["list"].'


def test_a_refusal_by_admission_asks_for_no_right(api: Any, client: KubeClient) -> None:
    why = 'pods "etl" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "state")'
    api.once = [lambda handler: handler.status(403, why)]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etl"}}
    with pytest.raises(ClusterDenied, match=r"cannot create pods/shop/etl: .*violates PodSecurity") as caught:
        Writer(client, "t").send(Create(Address("v1", "pods", "etl", "shop"), body))
    assert (caught.value.status, caught.value.answer) == (403, why)
    assert caught.value.fix.startswith("The cluster's admission refuses this object")


def test_a_reader_that_is_refused_in_words_of_a_proxy_lacks_a_right_as_no_admission_judges_reading(
    api: Any, client: KubeClient
) -> None:
    api.once = [lambda handler: handler.status(403, "the gateway lets nobody in")]
    with pytest.raises(ClusterForbidden, match="the gateway lets nobody in") as caught:
        client.get("/api/v1/namespaces/shop/pods/etl")
    assert caught.value.fix.startswith("Grant the right in")


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_list_is_read_again_where_etcd_or_a_gateway_failed_for_a_moment(
    api: Any, client: KubeClient, status: int
) -> None:
    api.objects[PODS] = pods(2)
    api.once = [lambda handler: handler.status(status, "etcdserver: leader changed")]
    assert client.list(PODS) == pods(2)
    assert len(api.requests) == 2


def test_another_failure_carries_the_servers_own_words(api: Any, kubeconfig: Any) -> None:
    api.once = [lambda handler: handler.status(500, "etcdserver: no leader")] * 2
    client = connect(KubeSettings(kubeconfig=kubeconfig(api.url), retries=1))
    with pytest.raises(ClusterError, match="500: etcdserver: no leader"):
        client.get("/api/v1/nodes/n1")
