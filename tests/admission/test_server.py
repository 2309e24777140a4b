"""The webhook server over real HTTPS: reviews, limits, probes, a certificate replaced while serving."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.admission.view import ClusterView
from cotenant.admission.webhook_server.authority import renew_material
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from tests.admission.serving import POLICY, Serving, patch_of, review_of, serving
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.server

BATCH = Profile(name="batch", qos_class="BE", priority_class="koord-batch")
VIEW = ClusterView((BATCH,), {"shop": {}}, {"koord-batch": PriorityClassEntry(5000)})
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "shop"},
    "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
}


def wrapped(server: Serving) -> ssl.SSLSocket:
    """A connection on which a test says what it likes."""
    plain = socket.create_connection(("127.0.0.1", server.server.port), 30)
    return server.context().wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(VIEW) as webhook:
        yield webhook


@pytest.fixture(scope="module")
def impatient() -> Iterator[Serving]:
    with serving(VIEW, read_seconds=2.0) as webhook:
        yield webhook


def test_a_pod_is_patched_by_a_profile(server: Serving) -> None:
    review = server.post("/mutate-pod", review_of("pods", POD))
    assert review["response"]["uid"] == "u-1" and review["response"]["allowed"]
    assert review["response"]["patchType"] == "JSONPatch"
    after = jsonpatch.apply_patch(POD, patch_of(review))
    assert after["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}
    assert after["spec"]["priority"] == 5000


def test_a_bad_pod_is_refused_in_words(server: Serving) -> None:
    bad = {**POD, "metadata": {**POD["metadata"], "labels": {"koordinator.sh/qosClass": "BE"}}}
    response = server.post("/validate-pod", review_of("pods", bad))["response"]
    assert not response["allowed"] and response["status"]["code"] == 403
    assert "no Koordinator priority class" in response["status"]["message"]


@pytest.mark.parametrize(
    "more", [{"subResource": "status"}, {"resource": {"group": "", "version": "v1", "resource": "nodes"}}]
)
def test_other_kinds_and_subresources_are_let_through_untouched(server: Serving, more: dict[str, Any]) -> None:
    for path in ("/mutate-pod", "/validate-pod", "/mutate-quota", "/validate-quota", "/validate-config"):
        response = server.post(path, review_of("pods", POD, **more))["response"]
        assert response == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    ("body", "phrase"),
    [
        (b"", "not an AdmissionReview"),
        (b"\xff\xfe{", "not an AdmissionReview"),
        (b"[" * 100_000, "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', 'admissionReviewVersions to ["v1"]'),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "no request with a uid"),
    ],
    ids=["empty", "not text", "deep", "old version", "no request"],
)
def test_what_is_no_review_is_answered_400_with_words(server: Serving, body: bytes, phrase: str) -> None:
    status, data = server.ask("POST", "/mutate-pod", body)
    assert status == 400 and phrase in data.decode()


@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_an_object_nested_deeply_is_answered_like_others(server: Serving, depth: int) -> None:
    """As deep as any decoder goes, and deeper: what we do not look at does not matter to us."""
    body = json.dumps(review_of("pods", {**POD, "status": "DEEP"})).replace('"DEEP"', "[" * depth + "]" * depth)
    status, data = server.ask("POST", "/mutate-pod", body.encode())
    if depth < 1000:
        assert status == 200 and patch_of(json.loads(data))
    else:
        assert status == 400 and b"recursion" in data


def test_a_body_over_the_cap_is_refused_unread(server: Serving) -> None:
    connection = server.connect()
    connection.putrequest("POST", "/mutate-pod")
    connection.putheader("Content-Length", str(3_000_001))
    connection.endheaders()  # not a byte of the body is sent
    response = connection.getresponse()
    assert response.status == 413 and b"larger than 3000000 bytes" in response.read()
    connection.close()


@pytest.mark.parametrize("size", [20_000, 70_000, 300_000, 2_900_000])
def test_a_large_pod_is_answered_however_it_arrives(server: Serving, size: int) -> None:
    large = {**POD, "metadata": {**POD["metadata"], "annotations": {"note": "x" * size}}}
    body = json.dumps(review_of("pods", large)).encode()
    connection = server.connect()
    for step in (len(body), 10_007):  # in one piece, then in many, over the same connection
        connection.putrequest("POST", "/mutate-pod")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        for start in range(0, len(body), step):
            connection.send(body[start : start + step])
        response = connection.getresponse()
        assert response.status == 200 and patch_of(json.loads(response.read()))
    connection.close()


def test_a_body_without_a_length_is_cut_at_the_cap() -> None:
    with serving(VIEW, max_body_bytes=10_000) as small:
        connection = small.connect()
        connection.request("POST", "/mutate-pod", iter([b" " * 6000, b" " * 6000]), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.slow
def test_a_body_that_trickles_is_given_up(impatient: Serving) -> None:
    connection = impatient.connect()
    connection.putrequest("POST", "/mutate-pod")
    connection.putheader("Content-Length", "100")
    connection.endheaders()
    connection.send(b"{")
    assert connection.getresponse().status == 408
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"", b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a head"])
def test_a_caller_that_does_not_finish_its_head_is_cut_off(impatient: Serving, head: bytes) -> None:
    with wrapped(impatient) as caller:
        caller.sendall(head)
        assert caller.recv(100) == b""


def test_a_huge_head_is_cut_off(server: Serving) -> None:
    with wrapped(server) as caller:
        try:
            caller.sendall(b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 100_000)
            received = caller.recv(100)
        except (ConnectionError, ssl.SSLError):
            received = b""
        assert received == b""


def test_requests_in_one_packet_are_answered_in_order(server: Serving) -> None:
    """A quota is judged in a thread; what was asked behind it waits."""
    quota = json.dumps(review_of("elasticquotas", {"metadata": {"name": "q"}, "spec": {}}, uid="first")).encode()
    second = json.dumps(review_of("pods", POD, uid="second")).encode()
    with wrapped(server) as caller:
        parts = ((b"/validate-quota", quota, b""), (b"/mutate-pod?timeout=2s", second, b"Connection: close\r\n"))
        head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b"
        caller.sendall(b"".join(head % (path, len(body), more, body) for path, body, more in parts))
        text = b"".join(iter(lambda: caller.recv(65_536), b"")).decode()
    assert text.count("HTTP/1.1 200 OK") == 2 and text.count("connection: close") == 1
    assert text.index('"first"') < text.index('"second"')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"what\r\n\r\n", b"400"),
        (b"GET /mutate-pod HTTP/1.1\r\n\r\n", b"405"),
        (b"PUT /healthz HTTP/1.1\r\n\r\n", b"404"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /mutate-pod HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /mutate-pod HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n", b"415"),
        (b"POST /mutate-pod HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", b"100"),
        (b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", b"200"),
    ],
)
def test_what_other_callers_say_is_answered_as_http_has_it(server: Serving, sent: bytes, status: bytes) -> None:
    with wrapped(server) as caller:
        caller.sendall(sent)
        assert caller.recv(65_536).startswith(b"HTTP/1.1 " + status)


def test_callers_beyond_the_most_are_told_so_at_once() -> None:
    with serving(VIEW, max_connections=1) as small, wrapped(small) as first, wrapped(small) as second:
        ask = b"GET /healthz HTTP/1.1\r\n\r\n"
        wait_for("both are known", lambda: len(small.server.connections) == 2)
        second.sendall(ask)
        assert second.recv(65_536).startswith(b"HTTP/1.1 503")
        wait_for("the second is gone", lambda: len(small.server.connections) == 1)
        first.sendall(ask)
        assert first.recv(65_536).startswith(b"HTTP/1.1 200")


def test_when_it_ends_what_was_asked_is_answered_and_idle_callers_are_let_go() -> None:
    body = json.dumps(review_of("pods", POD)).encode()
    with serving(VIEW) as webhook, wrapped(webhook) as asking, wrapped(webhook) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"200 OK" in idle.recv(65_536)
        asking.sendall(b"POST /mutate-pod HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:100])
        wait_for("both are known", lambda: len(webhook.server.connections) == 2)
        ending = threading.Thread(target=webhook.server.stop)
        ending.start()
        wait_for("the end has begun", lambda: webhook.app.checks.draining)
        asking.sendall(body[100:])
        data = asking.recv(65_536)
        assert data.startswith(b"HTTP/1.1 200 OK") and b"connection: close" in data and b'"patch"' in data
        assert idle.recv(100) == b""
        ending.join(30)
        assert not ending.is_alive() and not webhook.server.connections


def test_before_the_cluster_is_known_pods_pass_untouched_and_are_counted() -> None:
    with serving(replace(VIEW, synced=False, quotas_synced=False)) as young:
        young.app.checks.ready["cluster"] = lambda: "profiles: not read yet"
        assert young.post("/mutate-pod", review_of("pods", POD))["response"] == {"uid": "u-1", "allowed": True}
        refused = young.post("/validate-quota", review_of("elasticquotas", {"metadata": {"name": "q"}, "spec": {}}))
        assert "not been read yet" in refused["response"]["status"]["message"]
        status, data = young.ask("GET", "/readyz")
        assert status == 503 and b"profiles: not read yet" in data
        assert young.ask("GET", "/healthz")[0] == 200
        metrics = young.ask("GET", "/metrics")[1].decode()
        assert 'cotenant_webhook_reviews_total{outcome="not-ready",webhook="/mutate-pod"} 1.0' in metrics


def test_a_fault_of_our_own_lets_pods_pass_and_holds_quotas_back() -> None:
    broken = replace(VIEW, profiles=(None,), quotas=None)  # type: ignore[arg-type]
    with serving(broken) as ill:
        response = ill.post("/mutate-pod", review_of("pods", POD))["response"]
        assert response == {"uid": "u-1", "allowed": True, "warnings": ["the webhook failed; its log says why"]}
        quota = {"metadata": {"name": "q"}, "spec": {}}
        status, _ = ill.ask("POST", "/validate-quota", json.dumps(review_of("elasticquotas", quota)).encode())
        assert status == 500


def test_quotas_are_defaulted_judged_and_kept_while_in_use() -> None:
    tree = QuotaTree(
        {"top": QuotaNode("top", is_parent=True, tree_id="t", minimum={"cpu": 1000}, maximum={"cpu": 1000})}
    )
    leaf = {
        "metadata": {"name": "leaf", "labels": {"quota.scheduling.koordinator.sh/parent": "top"}},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
    }
    with serving(replace(VIEW, quotas=tree), pods=2) as webhook:
        patch = patch_of(webhook.post("/mutate-quota", review_of("elasticquotas", leaf)))
        defaulted = jsonpatch.apply_patch(leaf, patch)
        assert defaulted["metadata"]["labels"]["quota.scheduling.koordinator.sh/tree-id"] == "t"
        assert webhook.post("/validate-quota", review_of("elasticquotas", defaulted))["response"]["allowed"]
        refusal = webhook.post("/validate-quota", review_of("elasticquotas", None, defaulted, "DELETE"))["response"]
        assert "used by 2 pods" in refusal["status"]["message"]


def test_the_configuration_is_judged_key_by_key_where_it_changed(server: Serving) -> None:
    place = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    old = {"metadata": place, "data": {"colocation-config": "{broken"}}
    new = {"metadata": place, "data": {"colocation-config": "{broken", "cpu-burst-config": "{broken"}}
    message = server.post("/validate-config", review_of("configmaps", new, old, "UPDATE"))["response"]["status"][
        "message"
    ]
    assert "data[cpu-burst-config]" in message and "colocation-config" not in message
    elsewhere = {**new, "metadata": {**place, "namespace": "shop"}}
    assert server.post("/validate-config", review_of("configmaps", elsewhere))["response"]["allowed"]


def test_the_certificate_is_replaced_while_others_are_calling() -> None:
    with serving(VIEW) as webhook:
        failures: list[Exception] = []
        done = threading.Event()
        former = webhook.material.bundle
        later = renew_material(None, POLICY, time.time())
        both = former + later.bundle

        def call() -> None:
            while not done.is_set():
                connection = webhook.connect(both)
                try:
                    connection.request("GET", "/healthz")
                    assert connection.getresponse().read()
                except Exception as error:  # noqa: BLE001 - every failure counts
                    failures.append(error)
                finally:
                    connection.close()

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for turn in range(6):
            webhook.server.show((later if turn % 2 == 0 else webhook.material).serving)
        webhook.server.show(later.serving)
        done.set()
        for caller in callers:
            caller.join(30)
        assert failures == []
        with pytest.raises(ssl.SSLCertVerificationError):
            webhook.connect(former).request("GET", "/healthz")
