"""What LimitRanges and ResourceQuotas make of pods, and who the server takes somebody for: alike on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import ApiError, Json
from tests.cluster.waiting import wait_for
from tests.contract.target import Target


def pod(name: str, **resources: Json) -> Json:
    container = {"name": "x", "image": "example.invalid/x:1", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [container]}}


def created_pod(target: Target, body: Json, **query: str) -> Json:
    """The pod; the real server wants its namespace's service account first."""

    def tried() -> Json | None:
        try:
            return target.admin.create(target.path("pods"), body, **query)
        except ApiError as error:
            if "serviceaccount" in str(error):
                return None
            raise

    wait = wait_for("a pod", tried)
    assert wait is not None
    return wait


def bounded(target: Target, **item: Json) -> None:
    body = {"metadata": {"name": "bounds"}, "spec": {"limits": [{"type": "Container", **item}]}}
    target.admin.create(target.path("limitranges"), body)


def quota(target: Target, **hard: str) -> None:
    amounts = {name.replace("_", "."): amount for name, amount in hard.items()}
    target.admin.create(target.path("resourcequotas"), {"metadata": {"name": "team"}, "spec": {"hard": amounts}})
    if target.name == "real":  # its controller counts first, and the admission plugin waits for that
        path = target.path("resourcequotas", "team")
        wait_for("the quota to be counted", lambda: (target.admin.get(path).get("status") or {}).get("hard") == amounts)


def refused(target: Target, body: Json, **query: str) -> ApiError:
    with pytest.raises(ApiError) as error:
        created_pod(target, body, **query)
    return error.value


def test_a_pod_requests_what_it_only_limits_and_a_template_is_left_alone(target: Target) -> None:
    sides = {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"memory": "1Gi"}}
    resources = created_pod(target, pod("p", **sides))["spec"]["containers"][0]["resources"]
    assert resources == {**sides, "requests": {"cpu": "1", "memory": "1Gi"}}
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": pod("p", **sides)["spec"]["containers"]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = target.admin.create(target.path("apps/v1/deployments"), {"metadata": {"name": "x"}, "spec": spec})
    assert body["spec"]["template"]["spec"]["containers"][0]["resources"] == sides


def test_a_limit_range_gives_a_container_what_it_does_not_name(target: Target) -> None:
    bounded(target, default={"cpu": "500m"}, defaultRequest={"cpu": "200m"})
    bare = created_pod(target, pod("p"))["spec"]["containers"][0]["resources"]
    assert (bare["requests"]["cpu"], bare["limits"]["cpu"]) == ("200m", "500m")
    defaulted = created_pod(target, pod("q", limits={"cpu": "300m"}))["spec"]["containers"][0]["resources"]
    assert (defaulted["requests"]["cpu"], defaulted["limits"]["cpu"]) == ("300m", "300m")


def test_a_dry_run_shows_the_defaults_and_keeps_nothing(target: Target) -> None:
    bounded(target, default={"cpu": "500m"})
    shown = created_pod(target, pod("p"), dryRun="All")
    assert shown["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "500m"
    assert not target.admin.exists(target.path("pods", "p"))


def test_what_a_limit_range_does_not_allow_is_refused_in_its_words(target: Target) -> None:
    bounded(target, min={"cpu": "100m"}, max={"cpu": "1"})
    small = refused(target, pod("p", requests={"cpu": "50m"}, limits={"cpu": "1"}))
    assert small.status == 403
    text = 'pods "p" is forbidden: minimum cpu usage per Container is 100m, but request is 50m'
    assert small.body["message"] == text
    large = refused(target, pod("p", requests={"cpu": "1"}, limits={"cpu": "2"}))
    assert large.body["message"] == 'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2'


def test_a_pod_beyond_the_quota_is_refused_with_what_is_used_and_left(target: Target) -> None:
    quota(target, requests_cpu="1")
    created_pod(target, pod("p", requests={"cpu": "600m"}))
    error = refused(target, pod("q", requests={"cpu": "500m"}))
    assert (error.status, error.body["reason"]) == (403, "Forbidden")
    text = "exceeded quota: team, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    assert error.body["message"] == f'pods "q" is forbidden: {text}'
    # What fits goes in: 600m + 400m = 1
    assert created_pod(target, pod("r", requests={"cpu": "400m"}))["metadata"]["uid"]
    used = wait_for("the quota to say it", lambda: counted(target) == "1")
    assert used


def counted(target: Target) -> Any:
    status = target.admin.get(target.path("resourcequotas", "team")).get("status") or {}
    return (status.get("used") or {}).get("requests.cpu", "0")


def test_a_dry_run_beyond_the_quota_is_refused_and_counts_nothing(target: Target) -> None:
    quota(target, requests_cpu="1")
    assert refused(target, pod("p", requests={"cpu": "2"}), dryRun="All").status == 403
    created_pod(target, pod("p", requests={"cpu": "1"}), dryRun="All")
    assert counted(target) == "0"


def test_who_says_nothing_where_a_quota_counts_is_refused(target: Target) -> None:
    quota(target, requests_cpu="1")
    error = refused(target, pod("p"))
    text = 'pods "p" is forbidden: failed quota: team: must specify requests.cpu'
    assert error.body["message"].startswith(text)


def test_a_resize_beyond_the_quota_changes_nothing(target: Target) -> None:
    quota(target, requests_cpu="1")
    created_pod(target, pod("p", requests={"cpu": "600m"}))
    step = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "1200m"}]
    with pytest.raises(ApiError) as error:
        target.admin.patch(target.path("pods", "p", "resize"), step, "json", fieldManager="t")
    assert error.value.status == 403
    assert "exceeded quota: team, requested: requests.cpu=600m, used: requests.cpu=600m" in str(error.value)
    requests = target.admin.get(target.path("pods", "p"))["spec"]["containers"][0]["resources"]["requests"]
    assert requests["cpu"] == "600m"


def test_a_resize_may_not_change_the_quality_of_service(target: Target) -> None:
    same = {"cpu": "1", "memory": "1Gi"}
    created_pod(target, pod("p", requests=same, limits=same))
    step = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "500m"}]
    with pytest.raises(ApiError) as error:
        target.admin.patch(target.path("pods", "p", "resize"), step, "json", fieldManager="t")
    assert error.value.status == 422
    assert "Pod QOS Class may not change as a result of resizing" in str(error.value)


@pytest.mark.server
def test_everybody_may_ask_who_they_are(target: Target) -> None:
    jane = target.user("jane-asks", [])
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply: Any = jane.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    assert reply["status"]["userInfo"]["username"] == "jane-asks"
    assert "system:authenticated" in reply["status"]["userInfo"]["groups"]


def review(user: str, verb: str, resource: str) -> Json:
    attributes = {"verb": verb, "resource": resource, "group": ""}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }


@pytest.mark.server
def test_an_administrator_may_ask_what_another_may_do_and_others_may_not(target: Target) -> None:
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
    target.user("jack", rules)
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    def may(user: str, verb: str) -> bool:
        reply: Any = target.admin.create(path, review(user, verb, "configmaps"))
        return bool(reply["status"]["allowed"])

    wait_for("jack's right", lambda: may("jack", "get"))
    assert not may("jack", "patch")
    assert not may("nobody-at-all", "get")
    with pytest.raises(ApiError) as error:
        target.user("jack", rules).create(path, review("jack", "get", "configmaps"))
    assert error.value.status == 403
