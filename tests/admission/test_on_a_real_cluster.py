"""The webhooks as a real API server calls them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cotenant.admission.webhook_server.service import WebhookService
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from tests.admission.bodies import PODS, QUOTAS, P, pod, quota
from tests.cluster.api import Api, ApiError
from tests.cluster.waiting import wait_for

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"


@pytest.fixture
def profile(api: Api, webhook: WebhookService, namespace: str) -> Iterator[Any]:
    """`profile(name, **spec)` makes one for the test's namespace and waits until the webhook knows it."""
    texts: list[str] = []

    def make(name: str, **spec: Any) -> str:
        here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        full = f"{name}-{namespace}"[:60].rstrip("-")
        body = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": full},
            "spec": {"namespaceSelector": here, **spec},
        }
        api.create(PROFILES, body)
        texts.append(full)
        wait_for("the profile is known", lambda: full in {p.name for p in webhook.state.view().profiles})
        wait_for("the namespace is known", lambda: namespace in webhook.state.view().namespaces)
        return full

    yield make
    for name in texts:
        api.delete(f"{PROFILES}/{name}")


def test_the_founding_profile_takes_effect_when_a_namespace_is_labelled(
    api: Api, webhook: WebhookService, namespace: str
) -> None:
    founding = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "colocation-profile-example"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
            "selector": {"matchLabels": {"sparkoperator.k8s.io/launched-by-spark-operator": "true"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "koordinatorPriority": 1000,
            "schedulerName": "koord-scheduler",
            "labels": {"koordinator.sh/mutated": "true"},
            "annotations": {"koordinator.sh/intercepted": "true"},
            "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
        },
    }
    api.create(PROFILES, founding)
    try:
        spark = {"sparkoperator.k8s.io/launched-by-spark-operator": "true"}
        amounts = {"cpu": "1", "memory": "3456Mi"}
        before = api.create(PODS.format(namespace), pod("before", spark, requests=amounts, limits=amounts))
        assert "koordinator.sh/qosClass" not in before["metadata"]["labels"]
        labels = {"metadata": {"labels": {"koordinator.sh/enable-colocation": "true"}}}
        api.patch(f"/api/v1/namespaces/{namespace}", labels)
        wait_for(
            "the label is known",
            lambda: webhook.state.view().namespaces[namespace].get("koordinator.sh/enable-colocation"),
        )
        live = api.create(PODS.format(namespace), pod("driver", spark, requests=amounts, limits=amounts))
        assert live["metadata"]["labels"] == {
            **spark,
            "koordinator.sh/mutated": "true",
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority": "1000",
        }
        assert live["metadata"]["annotations"]["koordinator.sh/intercepted"] == "true"
        batch = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "3456Mi"}
        assert live["spec"]["containers"][0]["resources"] == {"requests": batch, "limits": batch}
        spec = json.loads(live["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"])
        assert spec == {"containers": {"main": {"requests": batch, "limits": batch}}}
        assert (live["spec"]["priorityClassName"], live["spec"]["priority"]) == ("koord-batch", 5000)
        assert (live["spec"]["schedulerName"], live["spec"]["terminationGracePeriodSeconds"]) == (
            "koord-scheduler",
            30,
        )
        assert live["status"]["qosClass"] == "BestEffort"
    finally:
        api.delete(f"{PROFILES}/colocation-profile-example")


def test_old_resource_names_are_translated_without_any_profile(
    api: Api, webhook: WebhookService, namespace: str
) -> None:
    old = {"koordinator.sh/batch-cpu": "1000", "koordinator.sh/batch-memory": "3456Mi"}
    labels = {"koordinator.sh/qosClass": "BE"}
    body = pod("old", labels, {"priorityClassName": "koord-batch"}, requests=old, limits=old)
    live = api.create(PODS.format(namespace), body)
    new = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "3456Mi"}
    assert live["spec"]["containers"][0]["resources"] == {"requests": new, "limits": new}
    talk = pod("talk")
    talk["metadata"]["annotations"] = {"koordinator.sh/resource-limit": '{"cpu": "5k"}'}
    annotations = api.create(PODS.format(namespace), talk)["metadata"]["annotations"]
    assert list(annotations) == ["node.koordinator.sh/extended-resource-spec"]
    assert json.loads(next(iter(annotations.values()))) == {
        "containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "5k"}}}
    }


REFUSED = {("LSR", c) for c in ("", "koord-mid", "koord-batch", "koord-free")} | {("BE", "koord-prod"), ("BE", "")}


@pytest.mark.parametrize("qos", [q.value for q in QosClass])
def test_every_cell_of_the_table(api: Api, webhook: WebhookService, namespace: str, qos: str) -> None:
    for number, priority in enumerate(c.value for c in PriorityClass):
        spec = {"priorityClassName": priority} if priority else {}
        labels = {"koordinator.sh/qosClass": qos} if qos else {}
        body = pod(f"p{number}", labels, spec, requests={"cpu": "2"})
        if (qos, priority) in REFUSED:
            with pytest.raises(ApiError, match="cannot be combined with") as refused:
                api.create(PODS.format(namespace), body)
            assert refused.value.status == 403
        else:
            api.create(PODS.format(namespace), body)


def test_whole_cpus_and_labels_for_life(api: Api, webhook: WebhookService, namespace: str) -> None:
    prod = {"priorityClassName": "koord-prod"}
    with pytest.raises(ApiError, match="'1500m' is not a whole number of CPUs"):
        api.create(
            PODS.format(namespace), pod("half", {"koordinator.sh/qosClass": "LSR"}, prod, requests={"cpu": "1.5"})
        )
    api.create(PODS.format(namespace), pod("whole", {"koordinator.sh/qosClass": "LSR"}, prod, requests={"cpu": "2"}))
    with pytest.raises(ApiError, match="may not be changed"):
        api.patch(f"{PODS.format(namespace)}/whole", {"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}})
    patched_pod = api.patch(f"{PODS.format(namespace)}/whole", {"metadata": {"labels": {"note": "x"}}})
    assert patched_pod["metadata"]["labels"]["note"] == "x"


BATCH = {"kubernetes.io/batch-cpu": "1k"}


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("side", ["requests", "limits"])
@pytest.mark.parametrize("qos", ["", "LS", "LSE", "SYSTEM", "what"])
def test_batch_resources_wherever_they_stand_need_be(
    api: Api, webhook: WebhookService, namespace: str, group: str, side: str, qos: str
) -> None:
    resources = {"limits": BATCH} if side == "limits" else {"requests": BATCH, "limits": BATCH}
    odd = {"name": "odd", "image": "x", "resources": resources}
    body = pod("p", {"koordinator.sh/qosClass": qos} if qos else {}, requests={"cpu": "1"})
    body["spec"][group] = [*body["spec"].get(group, []), odd]
    with pytest.raises(ApiError, match="are only for QoS BE"):
        api.create(PODS.format(namespace), body)


def test_a_pod_of_which_the_api_server_sees_that_it_is_sound_is_not_sent_to_the_judge(
    api: Api, webhook: WebhookService, namespace: str
) -> None:
    be = {"koordinator.sh/qosClass": "BE"}
    sound = [
        pod("plain", requests={"cpu": "1"}),
        pod("ls", {"koordinator.sh/qosClass": "LS"}, {"priorityClassName": "koord-prod"}),
        *(pod(c, be, {"priorityClassName": c}, requests=BATCH, limits=BATCH) for c in RECLAIMED),
    ]
    before = judged(webhook)
    for body in sound:
        api.create(PODS.format(namespace), body)
    assert judged(webhook) == before
    api.create(PODS.format(namespace), pod("lse", {"koordinator.sh/qosClass": "LSE"}, requests={"cpu": "1"}))
    assert judged(webhook) == before + 1


RECLAIMED = ("koord-mid", "koord-batch", "koord-free")


def judged(webhook: WebhookService) -> float:
    """Pods that were judged so far."""
    labels = [{"webhook": "/validate-pod", "outcome": outcome} for outcome in ("allowed", "refused")]
    registry = webhook.app.metrics.registry
    return sum(registry.get_sample_value("cotenant_webhook_reviews_total", label) or 0 for label in labels)


def test_a_pod_of_a_namespace_that_is_bound_to_a_parent_quota_is_refused_without_any_label(
    api: Api, webhook: WebhookService, namespace: str
) -> None:
    path, name = QUOTAS.format("default"), f"{namespace}-all"[-60:].lstrip("-")
    bound = quota(name, is_parent="true", tree_id="t2")
    bound["metadata"]["annotations"] = {P + "namespaces": json.dumps([namespace])}
    api.create(path, bound)
    try:
        wait_for("it is known", lambda: name in webhook.state.view().quotas.quotas)
        with pytest.raises(ApiError, match="is a parent quota"):
            api.create(PODS.format(namespace), pod())
    finally:
        api.delete(f"{path}/{name}")


def test_a_suffix_is_appended_once_under_reinvocation(
    api: Api, webhook: WebhookService, profile: Any, namespace: str
) -> None:
    """The API server asks again when a later webhook changed the pod: here a second configuration that is ours too."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    profile("suffix", labelSuffixes={"app": "-batch"})
    hook = api.get(f"{path}/cotenant-webhook")["webhooks"][0]
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    hook = {**hook, "name": "again.webhook.cotenant.dev", "namespaceSelector": here}
    api.create(path, {"metadata": {"name": "aa-before-ours"}, "webhooks": [hook]})
    try:
        wait_for("both are asked", lambda: calls_of_one_pod(api, webhook, namespace) >= 2)
        live = api.create(PODS.format(namespace), pod("p", {"app": "web"}))
        assert live["metadata"]["labels"]["app"] == "web-batch"
    finally:
        api.delete(f"{path}/aa-before-ours")


def calls_of_one_pod(api: Api, webhook: WebhookService, namespace: str) -> float:
    """How often we are asked to mutate while one pod is tried."""

    def review_count() -> float:
        registry = webhook.app.metrics.registry
        labels = [{"webhook": "/mutate-pod", "outcome": outcome} for outcome in ("patched", "untouched")]
        return sum(registry.get_sample_value("cotenant_webhook_reviews_total", label) or 0 for label in labels)

    before = review_count()
    live = api.create(PODS.format(namespace), pod("try", {"app": "web"}), dryRun="All")
    assert live["metadata"]["labels"]["app"] == "web-batch"
    return review_count() - before


def test_profiles_that_conflict_run_in_name_order(api: Api, profile: Any, namespace: str) -> None:
    profile("a", labels={"who": "a"}, qosClass="LS")
    profile("b", labels={"who": "b"})
    live = api.create(PODS.format(namespace), pod())
    assert live["metadata"]["labels"] == {"who": "b", "koordinator.sh/qosClass": "LS"}


def test_a_dry_run_is_answered_as_the_real_call(api: Api, profile: Any, namespace: str) -> None:
    profile("a", qosClass="BE", priorityClassName="koord-batch")
    tried = api.create(PODS.format(namespace), pod("p", requests={"cpu": "1"}), dryRun="All")
    live = api.create(PODS.format(namespace), pod("p", requests={"cpu": "1"}))
    assert tried["spec"]["containers"][0]["resources"] == live["spec"]["containers"][0]["resources"]
    assert tried["metadata"]["labels"] == live["metadata"]["labels"]


def test_overhead_stays_as_the_runtime_class_says(api: Api, profile: Any, namespace: str) -> None:
    name = f"kata-{namespace}"[:50].rstrip("-")
    overhead = {"podFixed": {"cpu": "100m"}}
    api.create(
        "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": name}, "handler": "x", "overhead": overhead}
    )
    try:
        profile("a", qosClass="BE", priorityClassName="koord-batch")
        wait_for_runtime_class(api, namespace, name)
        live = api.create(PODS.format(namespace), pod("p", None, {"runtimeClassName": name}, requests={"cpu": "1"}))
        assert live["spec"]["overhead"] == {"cpu": "100m"}
        assert live["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}
    finally:
        api.delete(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")


def wait_for_runtime_class(api: Api, namespace: str, name: str) -> None:
    def is_admitted() -> bool:
        try:
            api.create(PODS.format(namespace), pod("try", None, {"runtimeClassName": name}), dryRun="All")
        except ApiError:
            return False
        return True

    wait_for("the API server's own plugin knows the RuntimeClass", is_admitted)


def test_the_quota_rules(api: Api, webhook: WebhookService, namespace: str) -> None:
    path = QUOTAS.format(namespace)
    top, a, b = (f"{namespace}-{x}"[-60:].lstrip("-") for x in ("top", "a", "b"))

    def wait_for_quota(name: str) -> None:
        wait_for(f"{name} is known", lambda: name in webhook.state.view().quotas.quotas)

    live = api.create(path, quota(top, "2", is_parent="true", tree_id="t1"))
    assert live["metadata"]["labels"][P + "parent"] == "koordinator-root-quota"
    assert json.loads(live["metadata"]["annotations"][P + "shared-weight"]) == {"cpu": "4"}
    wait_for_quota(top)
    first = api.create(path, quota(a, "1", "400", parent=top))  # rule 2: a larger max than the parent's
    assert first["metadata"]["labels"][P + "tree-id"] == "t1"
    wait_for_quota(a)
    refusals = [
        (quota(b, "1500m", parent=top), "is the sum of"),  # rule 1
        (quota(b, parent=a, tree_id="t1"), "is no parent quota"),  # rule 4
        (quota(b, parent="gone"), "does not exist"),
        (quota(b, "5", parent=top), "min must not exceed max"),  # by the CRD itself, also while we are away
        (quota(b, parent=b, is_parent="true"), "its own ancestor"),
    ]
    for body, phrase in refusals:
        with pytest.raises(ApiError, match=phrase):
            api.create(path, body)
    with pytest.raises(ApiError, match="may not be changed"):  # rule 5
        api.patch(f"{path}/{a}", {"metadata": {"labels": {P + "is-parent": "true"}}})
    with pytest.raises(ApiError, match="is a parent quota"):  # rule 3
        api.create(PODS.format(namespace), pod("p", {P + "name": top}))
    api.create(PODS.format(namespace), pod("p", {P + "name": a}))
    with pytest.raises(ApiError, match="child quotas"):
        api.delete(f"{path}/{top}")
    with pytest.raises(ApiError, match="used by 1 pod "):
        api.delete(f"{path}/{a}")
    api.delete(f"{PODS.format(namespace)}/p", gracePeriodSeconds="0")
    api.delete(f"{path}/{a}")


def test_a_living_pod_keeps_its_quota_and_grows_within_it(api: Api, webhook: WebhookService, namespace: str) -> None:
    path, name = PODS.format(namespace), f"{namespace}-team"[-60:].lstrip("-")
    live = api.create(QUOTAS.format(namespace), quota(name, "2", "4"))
    api.patch(f"{QUOTAS.format(namespace)}/{name}", {"status": {"used": {"cpu": "1"}}})
    used = live["metadata"]["name"]
    wait_for("use is known", lambda: webhook.state.view().quotas.quotas.get(used) is not None)
    wait_for("use is known", lambda: webhook.state.view().quotas.quotas[used].used == {"cpu": 1000})
    gang = {"gang.scheduling.koordinator.sh/name": "g"}
    api.create(path, pod("p", {P + "name": name}, requests={"cpu": "1"}))
    with pytest.raises(ApiError, match="may not be changed"):
        api.patch(f"{path}/p", {"metadata": {"labels": {P + "name": "other"}}})
    with pytest.raises(ApiError, match="may not be changed"):
        api.patch(f"{path}/p", {"metadata": {"labels": {P + "preemptible": "false"}}})
    with pytest.raises(ApiError, match="may not be changed"):
        api.patch(f"{path}/p", {"metadata": {"annotations": gang}})
    api.patch(f"{path}/p", {"metadata": {"annotations": {"note": "mine"}, "labels": {"note": "mine"}}})

    def resize(cpu: str) -> None:
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        api.patch(f"{path}/p/resize", {"spec": {"containers": [container]}}, kind="strategic")

    with pytest.raises(ApiError, match="above max 4 of quota"):  # 1 used + 19 more
        resize("20")
    resize("4")  # 1 used + 3 more
    api.delete(f"{path}/p", gracePeriodSeconds="0")
    api.delete(f"{QUOTAS.format(namespace)}/{name}")


def test_the_configuration_is_refused_by_key(api: Api, webhook: WebhookService) -> None:
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    body = {
        "metadata": {"name": "slo-controller-config"},
        "data": {"resource-threshold-config": '{"clusterStrategy": 3}'},
    }
    with pytest.raises(ApiError, match="resource-threshold-config"):
        api.create(path, body)
    good = {**body, "data": {"resource-threshold-config": '{"clusterStrategy": {"enable": true}}'}}
    api.create(path, good)
    api.delete(f"{path}/slo-controller-config")


@pytest.mark.parametrize("binding", ["label", "annotation", "own-namespace"])
def test_a_quota_goes_only_when_no_living_pod_uses_it(
    api: Api, webhook: WebhookService, namespace: str, binding: str
) -> None:
    path, name = QUOTAS.format("default"), f"{namespace}-use"[-60:].lstrip("-")
    body = quota(name)
    if binding == "annotation":
        body["metadata"]["annotations"] = {P + "namespaces": json.dumps([namespace])}
    if binding == "own-namespace":
        path, name = QUOTAS.format(namespace), namespace
        body = quota(name)
    api.create(path, body)
    wait_for("it is known", lambda: name in webhook.state.view().quotas.quotas)
    labels = {P + "name": name} if binding == "label" else {}
    for pod_name in ("lives", "ended", "failed"):
        api.create(PODS.format(namespace), pod(pod_name, labels))
    for pod_name, phase in (("ended", "Succeeded"), ("failed", "Failed")):
        status = {"status": {"phase": phase}}
        api.patch(f"{PODS.format(namespace)}/{pod_name}/status", status)
    with pytest.raises(ApiError, match="is still used by 1 pod"):
        api.delete(f"{path}/{name}")
    api.delete(f"{PODS.format(namespace)}/lives", gracePeriodSeconds="0")
    api.delete(f"{path}/{name}")
    assert not api.exists(f"{path}/{name}")
