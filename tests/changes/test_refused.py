"""What stands against a change: said in words with the next step, nothing is applied, and the ledger has a row."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.changes.accept import AcceptanceTerms, Actions, dry_run_review, to_workload_review
from cotenant.changes.api_advice import MOVED
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import FieldMove, Method
from tests.changes.conftest import Make
from tests.changes.world import Kubelet, cpus, deployed, live, ready, recommended, template
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

OVER = ("cool-down", "webhook", "quota", "limit-range", "cpu-step")


@pytest.fixture
def web(control_plane: ControlPlane, namespace: str, kubelet: Kubelet) -> WorkloadRef:
    return deployed(control_plane, namespace, "web", 2, nodeSelector={"test/own": kubelet.node})


def events(actions: Actions) -> list[str]:
    return [entry.event for entry in actions.journal.ledger.entries()]


def stopped(actions: Actions, workload: WorkloadRef, amount: int = 800) -> str:
    """The words with which accepting stops before anything is asked of the cluster."""
    reviews = actions.review([recommended(workload, amount)])
    with pytest.raises(UsageError) as refused:
        actions.accept(reviews, AcceptanceTerms(overridden=("cool-down",)))
    (row,) = actions.journal.ledger.entries()
    assert row.event == "stopped" and str(workload) in row.body and refused.value.fix in row.body
    return str(refused.value)


def test_a_disruption_budget_that_lets_no_pod_go(control_plane: ControlPlane, web: WorkloadRef, make: Make) -> None:
    api, path = control_plane.api(), f"/apis/policy/v1/namespaces/{web.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    wait_for("the budget counts", lambda: api.get(f"{path}/web").get("status", {}).get("currentHealthy") == 2)
    sentence = stopped(make(), web)
    assert "disruption-budget: the workload's PodDisruptionBudget permits 0 evictions now" in sentence
    assert template(control_plane, web)["requests"]["cpu"] == "1"
    # In place nothing is disrupted.
    (other,) = make().review([recommended(web)], method=Method.IN_PLACE)
    assert "disruption-budget" not in [rule.rule for rule in other.blocked(())]


def test_an_autoscaler_whose_target_would_stay(control_plane: ControlPlane, web: WorkloadRef, make: Make) -> None:
    path = f"/apis/autoscaling/v2/namespaces/{web.namespace}/horizontalpodautoscalers"
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 2, "metrics": [metric]}
    control_plane.api().create(path, {"metadata": {"name": "web-hpa"}, "spec": spec})
    sentence = stopped(make(), web)
    assert "web-hpa scales by cpu in percent of the request" in sentence and "scan again" in sentence
    assert template(control_plane, web)["requests"]["cpu"] == "1"


def limited(plane: ControlPlane, workload: WorkloadRef) -> None:
    item = {"type": "Container", "min": {"cpu": "900m"}}
    path = f"/api/v1/namespaces/{workload.namespace}/limitranges"
    plane.api().create(path, {"metadata": {"name": "small"}, "spec": {"limits": [item]}})


def quoted(plane: ControlPlane, workload: WorkloadRef) -> None:
    path = f"/api/v1/namespaces/{workload.namespace}/resourcequotas"
    plane.api().create(path, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "2500m"}}})
    used = lambda: plane.api().get(f"{path}/team").get("status", {}).get("used", {}).get("requests.cpu")  # noqa: E731
    wait_for("the quota counts two pods of a core", lambda: used() == "2")


@pytest.mark.parametrize(
    ("against", "amount", "rule", "phrase", "step"),
    [
        (limited, 750, "limit-range: a LimitRange would refuse new pods: app requests 750m of cpu",
         "minimum cpu usage per Container is 900m", "Have the LimitRange changed"),
        (quoted, 2000, "quota: ResourceQuota team: requests.cpu has 500m left, but this change needs 2",
         "exceeded quota: team", "Have the ResourceQuota raised"),
    ],
)  # fmt: skip
def test_a_namespace_that_does_not_allow_it(
    control_plane: ControlPlane,
    web: WorkloadRef,
    make: Make,
    against: Any,
    amount: int,
    rule: str,
    phrase: str,
    step: str,
) -> None:
    against(control_plane, web)
    actions = make()
    assert rule in stopped(actions, web, amount)
    # Who passes over the guardrail hears it from the server, before and after.
    (review,) = actions.review([recommended(web, amount)], method=Method.IN_PLACE)
    dry = dry_run_review(actions, review)
    assert not dry.accepted and phrase in dry.words and dry.fix.startswith(step)
    (done,) = actions.accept([review], AcceptanceTerms(overridden=OVER))
    assert done.state is ChangeState.FAILED and phrase in done.words and step in done.words
    assert cpus(control_plane, web) == ["1", "1"] and events(actions) == ["stopped", "accepted", "refused"]


def test_two_workloads_share_what_a_quota_has_left(
    control_plane: ControlPlane, web: WorkloadRef, kubelet: Kubelet, make: Make
) -> None:
    api, actions = control_plane.api(), make()
    other = deployed(control_plane, web.namespace, "api", 2, nodeSelector={"test/own": kubelet.node})
    path = f"/api/v1/namespaces/{web.namespace}/resourcequotas"
    api.create(path, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "7"}}})
    used = lambda: api.get(f"{path}/team").get("status", {}).get("used", {}).get("requests.cpu")  # noqa: E731
    wait_for("the quota counts four pods of a core", lambda: used() == "4")

    # Two pods of 800m more each are 1600m, and 3 cores are left: of both workloads the first one alone fits.
    first, second = actions.review([recommended(web, 1800), recommended(other, 1800)])
    assert first.blocked(("cool-down",)) == []
    (rule,) = second.blocked(("cool-down",))
    assert (
        rule.rule == "quota"
        and f"has 1400m left after the 1600m that changes of {web} need, but this change needs 1600m" in rule.why
    )

    # Who asks for the other one right after the first was accepted, while its pods are still the old ones, as well.
    actions.accept([first], AcceptanceTerms(overridden=("cool-down",)))
    (later,) = actions.review([recommended(other, 1800)])
    assert [rule.rule for rule in later.blocked(("cool-down",))] == ["quota"]
    ready(control_plane, web)
    wait_for("the quota counts the new pods", lambda: used() == "5600m")
    (rule,) = actions.review([recommended(other, 1800)])[0].blocked(("cool-down",))
    assert "has 1400m left, but this change needs 1600m" in rule.why


def test_somebody_else_s_change_in_between(control_plane: ControlPlane, web: WorkloadRef, make: Make) -> None:
    actions = make()
    (review,) = actions.review([recommended(web)])
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "3"}}}]}}}}
    control_plane.api().patch(f"/apis/apps/v1/namespaces/{web.namespace}/deployments/web", patch, kind="strategic")
    dry = dry_run_review(actions, review)
    assert (dry.accepted, dry.fix) == (False, MOVED), dry.words
    (done,) = actions.accept([review], AcceptanceTerms(overridden=OVER))
    assert done.state is ChangeState.FAILED and done.words.endswith(MOVED)
    assert template(control_plane, web)["requests"]["cpu"] == "3" and events(actions) == ["accepted", "refused"]


class Meddler(BaseHTTPRequestHandler):
    """A mutating webhook of somebody else: halves what is asked for, and adds an annotation."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operations = [
            {"op": "add", "path": "/spec/template/metadata/annotations", "value": {"policy/team": "a"}},
            {"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "400m"},
        ]
        response = {"uid": body["request"]["uid"], "allowed": True, "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(operations).encode()).decode()}  # fmt: skip
        review_body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(review_body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def meddled(control_plane: ControlPlane, web: WorkloadRef) -> Iterator[WorkloadRef]:
    """The workload in a namespace where somebody's admission changes every Deployment that is updated."""
    certificate, key = control_plane.authority.issue("meddler", "meddler", hosts=["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Meddler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    authority = base64.b64encode(control_plane.authority.certificate.read_bytes()).decode()
    hook = {
        "name": "meddler.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": authority},
        "rules": [
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["UPDATE"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": web.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    api = control_plane.api()
    api.create(path, {"metadata": {"name": f"meddler-{web.namespace}"}, "webhooks": [hook]})
    try:
        yield web
    finally:
        api.delete(f"{path}/meddler-{web.namespace}")
        server.shutdown()
        server.server_close()


def test_what_admission_adds_is_shown_before_it_is_kept(
    control_plane: ControlPlane, meddled: WorkloadRef, make: Make
) -> None:
    actions = make()
    (review,) = actions.review([recommended(meddled)])
    dry = wait_for(
        "the API server calls it",
        lambda: reviewed_dry_run if (reviewed_dry_run := dry_run_review(actions, review)).added else None,
    )
    assert dry.accepted
    base, target = "/spec/template", f"deployments/{meddled.namespace}/web"
    resources = '{"limits":{"memory":"2Gi"},"requests":{"cpu":"%s","memory":"1Gi"}}'
    assert dry.added == (
        FieldMove(target, f"{base}/metadata/annotations", "", '{"policy/team":"a"}'),
        FieldMove(target, f"{base}/spec/containers/0/resources", resources % "800m", resources % "400m"),
    )
    assert template(control_plane, meddled)["requests"]["cpu"] == "1"
    assert "policy/team" not in str(live(control_plane, meddled)["spec"])


def test_a_review_says_what_it_costs_and_what_else_could_be_had(
    control_plane: ControlPlane, web: WorkloadRef, make: Make
) -> None:
    assert template(control_plane, web)
    (review,) = make().review([recommended(web)])
    workload_review = to_workload_review(review)
    assert (workload_review.restart, workload_review.error) == ("rollout", "") and set(
        workload_review.impossible
    ) == set()
    (other,) = make().review([recommended(web)], method=Method.ANNOTATE)
    assert to_workload_review(other).restart == "none"
