"""Which ways a change can take, what each writes, what nodes say of it, and how it is taken back."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.changes.decide.admission_diff import admission_additions
from cotenant.changes.decide.field_changes import annotated, carries, inverse, planned, swaps_of
from cotenant.changes.decide.gitops.bundle import COMMANDS, PULL_REQUEST, bundle
from cotenant.changes.decide.guardrails import Guardrail, GuardrailOutcome, operator_of
from cotenant.changes.decide.in_place import (
    Resized,
    ResizeOutcome,
    answer,
    live_workload_pods,
    pod_writes,
    summarize_resize_answers,
)
from cotenant.changes.decide.methods import MethodContext, first_of, impossible, suggest_method, waves, writes
from cotenant.changes.decide.review import Review
from cotenant.changes.decide.steps import rebase_on_live
from cotenant.changes.model.annotated_resources import (
    RESOURCES_ANNOTATION,
    RESOURCES_LABEL,
    ResourceSwap,
    decode_swaps,
    encode_swaps,
)
from cotenant.changes.model.service import BundleForm, FieldMove, Method
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import PatchSettings
from tests.support.stored import patched

WEB = WorkloadRef("shop", "Deployment", "web")
OLD: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
NEW = {"requests": {"cpu": "800m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}


def suggested(subject: MethodContext) -> Method:
    return suggest_method(subject, impossible(subject))


def recommendation(amount: int | None = 800, now: int | None = 1000, **more: Any) -> Recommendation:
    action = Action.UNSET if amount is None else Action.SET
    value = Value(
        Resource.CPU, Field.REQUEST, now, amount, action, Reason.OK, inputs={"days": 14.0, "observed_max": 640.0}
    )
    return Recommendation(ContainerRef(more.pop("workload", WEB), "app"), "cotenant", 2, (value,), 0, "d", 0, **more)


def live(labels: Any = None, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "web", "uid": "u-1", **({"labels": labels} if labels else {})}
    meta |= {"annotations": annotations} if annotations else {}
    containers = [{"name": "proxy"}, {"name": "app", "resources": copy.deepcopy(OLD)}]
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}, **spec}}


def pod(name: str = "web-1-a", status: Any = None, **more: Any) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-1", "controller": True, "uid": "r-1"}
    meta = {
        "name": name,
        "namespace": "shop",
        "uid": name,
        "labels": {"pod-template-hash": "1"},
        "ownerReferences": [owner],
    }
    container = {"name": "app", "resources": copy.deepcopy(OLD), **more.pop("container", {})}
    spec = {"nodeName": "n", "containers": [container]}
    return {"metadata": {**meta, **more}, "spec": spec, "status": {"phase": "Running", **(status or {})}}


SUBJECT = MethodContext(live(), (recommendation(),), [pod(), pod("web-1-b")])


def only(recommendation: Recommendation) -> MethodContext:
    return replace(SUBJECT, recommendations=(recommendation,))


def test_in_place_pods_come_first_and_the_annotation_last() -> None:
    in_place_writes = writes(SUBJECT, Method.IN_PLACE, "c1")
    assert [(w.address.resource, w.address.name, w.subresource) for w in in_place_writes] == [
        ("pods", "web-1-a", "resize"), ("pods", "web-1-b", "resize"), ("deployments", "web", ""),
    ]  # fmt: skip
    patched_pod = patched(pod(), in_place_writes[0].operations)
    assert patched_pod["spec"]["containers"][0]["resources"] == NEW
    assert carries(patched_pod, in_place_writes[0], "c1") and not carries(pod(), in_place_writes[0], "c1")
    # Where a change of the template replaces nothing, it needs no annotation.
    quiet = replace(SUBJECT, live=live(updateStrategy={"type": "OnDelete"}))
    assert "/spec/template/spec/containers/1/resources" in writes(quiet, Method.IN_PLACE, "c1")[-1].after


@pytest.mark.parametrize(
    ("subject", "method", "why"),
    [
        (replace(SUBJECT, resizes=False), Method.IN_PLACE, "needs Kubernetes 1.33"),
        (replace(SUBJECT, pods=[]), Method.IN_PLACE, "no pod of the workload runs"),
        (only(recommendation(None)), Method.IN_PLACE, "would be added or removed"),
        (only(recommendation(now=None)), Method.IN_PLACE, "would be added or removed"),
        (only(recommendation(role=ContainerRole.INIT)), Method.IN_PLACE, "init container"),
        (replace(SUBJECT, live=live(updateStrategy={"type": "OnDelete"})), Method.ANNOTATE, "Roll out (template)"),
        (only(recommendation(workload=WorkloadRef("shop", "CronJob", "c"))), Method.IN_PLACE, "of a CronJob end on"),
    ],
)  # fmt: skip
def test_a_way_that_is_not_there_says_why(subject: MethodContext, method: Method, why: str) -> None:
    assert why in impossible(subject)[method]


def test_the_way_that_is_suggested_hurts_least_and_lasts() -> None:
    assert suggested(SUBJECT) is Method.IN_PLACE and impossible(SUBJECT) == {}
    assert suggested(replace(SUBJECT, webhook="not installed")) is Method.TEMPLATE
    assert suggested(replace(SUBJECT, gitops="argocd.argoproj.io/tracking-id")) is Method.BUNDLE
    assert suggested(replace(SUBJECT, pods=[])) is Method.TEMPLATE


def test_pods_are_told_by_their_owner_and_only_those_that_run() -> None:
    ended = pod("web-1-c", {"phase": "Succeeded"})
    leaving = pod("web-1-d", deletionTimestamp="2026-01-01T00:00:00Z")
    other = pod("web-1-e", ownerReferences=[{"kind": "ReplicaSet", "name": "web-api-1", "controller": True}])
    waits = pod("web-1-f")
    del waits["spec"]["nodeName"]
    assert [p["metadata"]["name"] for p in live_workload_pods([pod(), ended, leaving, other, waits], WEB, "u-1")] == [
        "web-1-a"
    ]


def condition(kind: str, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "cpu: 3 of 2", **more}]}


def test_what_a_node_answers_is_read_from_conditions_and_amounts() -> None:
    (write,) = pod_writes([pod()], [recommendation()])
    done = {
        "containerStatuses": [{"name": "app", "resources": {**NEW, "requests": {"cpu": "0.8", "memory": "1024Mi"}}}]
    }
    cases = [
        ({}, ResizeOutcome.SILENT), (done, ResizeOutcome.DONE), (condition("PodResizeInProgress"), ResizeOutcome.GOING),
        ({**done, **condition("PodResizePending", "Deferred")}, ResizeOutcome.DEFERRED),
        (condition("PodResizePending", "Infeasible"), ResizeOutcome.INFEASIBLE),
        ({**done, **condition("PodResizePending", "Infeasible", observedGeneration=1)}, ResizeOutcome.DONE),
    ]  # fmt: skip
    for status, expected in cases:
        assert answer({**pod(status=status, generation=2), "spec": pod()["spec"]}, write).answer is expected
    why, _ = summarize_resize_answers(
        [Resized("a", ResizeOutcome.DONE), Resized("b", ResizeOutcome.INFEASIBLE, "cpu: 3 of 2")]
    )
    assert why.startswith("resize infeasible: b: its node can never provide the new amounts: cpu: 3 of 2; request less")
    assert summarize_resize_answers([Resized("a", ResizeOutcome.DONE)] * 2) == ("", "2 pods resized in place")


def test_pods_with_cpus_of_their_own_are_not_resized() -> None:
    bound = pod()
    bound["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    reasons = impossible(replace(SUBJECT, pods=(bound,)))
    assert reasons[Method.IN_PLACE] == "web-1-a has exclusive CPUs and keeps these CPUs until the pod ends"
    assert Method.IN_PLACE not in impossible(replace(SUBJECT, pods=(pod(),)))


def test_what_a_node_puts_off_is_not_refused_before_nobody_looks_again() -> None:
    resized = [Resized("a", ResizeOutcome.DONE), Resized("b", ResizeOutcome.DEFERRED, "cpu: 3 of 2")]
    why, note = summarize_resize_answers(resized)
    assert why == ""
    assert note == "1 of 2 pods is not resized yet (deferred: cpu: 3 of 2): `cotenant recs verify` checks again"
    why, _ = summarize_resize_answers(resized, final=True)
    assert why.startswith("resize deferred: b: its node is too full for the resize now: cpu: 3 of 2; try again")


def test_a_canary_is_at_least_one_and_never_all() -> None:
    in_place_writes = writes(SUBJECT, Method.IN_PLACE, "c1")
    first, rest = waves(in_place_writes, 0.01)
    assert [w.address.name for w in first] == ["web-1-a"] and [w.address.name for w in rest] == ["web-1-b", "web"]
    assert (
        waves(in_place_writes, 1.0)[0] == first
        and waves(in_place_writes, 0.0) == ([], in_place_writes)
        and waves(in_place_writes[1:], 0.5)[0] == []
    )
    # 10 % of 25 is 2.5: three go first.
    assert [first_of(25, 0.1), first_of(25, 0.0), first_of(1, 0.5), first_of(2, 1.0)] == [3, 25, 1, 1]


@given(
    st.one_of(st.none(), st.just({"team": "a"})), st.one_of(st.none(), st.just({"note": "b"})),
    st.integers(100, 5000), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_an_annotation_leaves_the_template_alone_and_comes_off_again(
    labels: Any, annotations: Any, amount: int, again: bool
) -> None:
    body = live(labels, annotations)
    if again:  # an earlier change stands there
        first = annotated(body, [recommendation(700)], "c0")
        assert first is not None
        body = patched(body, first.operations)
    now = 700 if again else 1000
    write = annotated(body, [recommendation(amount, now)], "c1")
    if write is None:
        assert amount == now
        return
    annotated_body = patched(body, write.operations)
    assert annotated_body["spec"] == body["spec"]
    swap = decode_swaps(annotated_body["metadata"]["annotations"][RESOURCES_ANNOTATION])["app"]
    assert swap == ResourceSwap(OLD, {**OLD, "requests": {"cpu": swap.after["requests"]["cpu"], "memory": "1Gi"}})
    back = patched(annotated_body, inverse(write, annotated_body, "c1-undone"))
    for key in (RESOURCES_ANNOTATION, RESOURCES_LABEL):
        for where in ("labels", "annotations"):
            was = (body["metadata"].get(where) or {}).get(key)
            assert (back["metadata"].get(where) or {}).get(key) == was
    # Taken into the template afterwards, the annotation goes.
    template_write = planned(annotated_body, [recommendation(amount, now)], "c2")
    if template_write is not None:
        assert RESOURCES_ANNOTATION not in patched(annotated_body, template_write.operations)["metadata"]["annotations"]


def annotated_to(cpu: str, memory: str, body: dict[str, Any], containers: Sequence[str] = ("app",)) -> dict[str, Any]:
    """The workload after an earlier change set these requests on new pods of the containers."""
    swaps = {}
    for container in body["spec"]["template"]["spec"]["containers"]:
        if container["name"] in containers:
            old = container.get("resources") or {}
            swaps[container["name"]] = ResourceSwap(old, {**old, "requests": {"cpu": cpu, "memory": memory}})
    marks = {RESOURCES_ANNOTATION: encode_swaps(swaps)}
    return {**body, "metadata": {**body["metadata"], "annotations": marks, "labels": {RESOURCES_LABEL: "annotated"}}}


def test_a_template_takes_over_what_an_earlier_step_set_on_new_pods() -> None:
    # The first step, by annotation: 10 cores to 7, 1000 MiB to 800. The second lowers memory alone, in the template.
    body = live()
    body["spec"]["template"]["spec"]["containers"][1]["resources"] = {"requests": {"cpu": "10", "memory": "1000Mi"}}
    body = annotated_to("7", "800Mi", body, ("app", "proxy"))
    values = (
        Value(Resource.CPU, Field.REQUEST, 10_000, 7_000, Action.SET, Reason.OK),
        Value(Resource.MEMORY, Field.REQUEST, 1000 * MIB, 700 * MIB, Action.SET, Reason.OK),
    )
    second = rebase_on_live(body, {}, [replace(recommendation(), values=values)])
    write = planned(body, second, "c2")
    assert write is not None
    patched_body = patched(body, write.operations)
    proxy, app = patched_body["spec"]["template"]["spec"]["containers"]
    assert app["resources"] == {"requests": {"cpu": "7", "memory": "700Mi"}}
    # The proxy's own step is in the annotation alone, which goes.
    assert proxy["resources"] == {"requests": {"cpu": "7", "memory": "800Mi"}}
    assert RESOURCES_ANNOTATION not in patched_body["metadata"]["annotations"]
    assert write.before["/spec/template/spec/containers/1/resources"]["requests"]["cpu"] == "10"
    back = patched(patched_body, inverse(write, patched_body, "c2-undone"))
    assert [c.get("resources") or {} for c in back["spec"]["template"]["spec"]["containers"]] == [
        {}, {"requests": {"cpu": "10", "memory": "1000Mi"}},
    ]  # fmt: skip
    assert swaps_of(back) == swaps_of(body)


def test_an_annotation_that_is_older_than_its_template_is_neither_taken_over_nor_a_present_value() -> None:
    body = annotated_to("7", "800Mi", live())
    body["spec"]["template"]["spec"]["containers"][1]["resources"]["requests"]["cpu"] = "2"
    (over,) = rebase_on_live(body, {}, [recommendation(800)])
    assert over.values[0].now == 2_000
    write = planned(body, [over], "c2")
    assert write is not None
    after = patched(body, write.operations)["spec"]["template"]["spec"]["containers"][1]["resources"]
    assert after == {**OLD, "requests": {"cpu": "800m", "memory": "1Gi"}}


def test_what_admission_adds_is_told_from_what_was_sent() -> None:
    write = planned(live(), [recommendation()], "c1")
    assert write is not None
    sent = patched(live(), write.operations)
    assert admission_additions(live(), {**sent, "status": {"x": 1}}, write) == []
    met = copy.deepcopy(sent)
    met["spec"]["template"]["spec"]["containers"].append({"name": "side"})
    met["metadata"]["labels"] = {"policy": "a"}
    target = "deployments/shop/web"
    assert admission_additions(live(), met, write) == [
        FieldMove(target, "/spec/template/spec/containers/2", "", '{"name":"side"}'),
        FieldMove(target, "/metadata/labels", "", '{"policy":"a"}'),
    ]


@pytest.mark.parametrize("form", list(BundleForm))
def test_a_bundle_has_the_numbers_and_the_rules_of_each_workload(form: BundleForm) -> None:
    rules = (Guardrail("cool-down", GuardrailOutcome.FAIL, "changed 2 hours ago | <b>x</b>"),)
    files = bundle(
        [Review(WEB, "", recommendations=(recommendation(monthly_saving=12.5),), guardrails=rules)],
        form,
        PatchSettings(),
        "EUR",
    )
    text = files[PULL_REQUEST]
    # Two replicas request 200m less each.
    assert "frees 400 m, 12.50 EUR a month" in text
    assert "| app | cpu request | 1 cores | 0.8 cores | 0.64 cores |" in text and "(14 days of history)" in text
    assert "- fail: cool-down: changed 2 hours ago \\| \\<b\\>x\\</b\\>" in text
    assert len(files) >= 2 and (COMMANDS in files) is (form is BundleForm.KUBECTL)


def test_what_cannot_be_written_is_named_in_the_text() -> None:
    odd = recommendation(role=ContainerRole.INJECTED)
    files = bundle(
        [Review(WEB, "", recommendations=(odd,), error="the cluster is silent")], BundleForm.SSA, PatchSettings()
    )
    assert set(files) == {PULL_REQUEST} and "Not in the files: app" in files[PULL_REQUEST]
    assert "Not checked against the cluster: the cluster is silent" in files[PULL_REQUEST]


GRAFANA = {"apiVersion": "grafana.integreatly.org/v1beta1", "kind": "Grafana", "name": "main", "controller": True}


def owned(reference: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = live()
    return {**body, "metadata": {**body["metadata"], "namespace": "shop", "ownerReferences": [reference]}}


def test_the_template_of_a_workload_that_an_operator_owns_is_not_written_and_its_object_is_named() -> None:
    body = owned(GRAFANA)
    subject = replace(SUBJECT, live=body, operator=operator_of(body))
    why = impossible(subject)
    path = "spec.deployment.spec.template.spec.containers[].resources"
    assert f"change Grafana shop/main, {path}" in why[Method.TEMPLATE] and Method.BUNDLE in why
    assert Method.IN_PLACE not in why and Method.ANNOTATE not in why
    assert suggested(subject) is Method.IN_PLACE
    assert suggested(replace(subject, resizes=False)) is Method.ANNOTATE


@pytest.mark.parametrize(
    ("reference", "operator"),
    [
        ({"apiVersion": "example.com/v1", "kind": "Database", "name": "d", "controller": True}, "Database shop/d"),
        ({**GRAFANA, "controller": False}, ""),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "controller": True}, ""),
    ],
)
def test_an_operators_object_is_named_also_where_its_fields_are_not_known(
    reference: dict[str, Any], operator: str
) -> None:
    assert operator_of(owned(reference)) == operator
