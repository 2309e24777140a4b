"""Each way in which a change reaches the pods, on a real API server with the real webhook."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.admission.webhook_server.service import WebhookService
from cotenant.autopilot.decide.starts import ready_since
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.moments import moment
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.decide.field_changes import CHANGE_ANNOTATION
from cotenant.changes.decide.review import Review
from cotenant.changes.model.annotated_resources import RESOURCES_ANNOTATION
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import Method
from cotenant.changes.objectives.declared import read_surroundings
from cotenant.changes.soak.reconcile import settle, verify
from cotenant.changes.soak.watcher import news_of
from tests.changes.conftest import Make
from tests.changes.world import RESOURCES, Kubelet, cpus, deployed, live, pods, recommended, template
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

TERMS = AcceptanceTerms(overridden=("cool-down",))


def on(kubelet: Kubelet, plane: ControlPlane, namespace: str, **more: Any) -> WorkloadRef:
    return deployed(plane, namespace, nodeSelector={"test/own": kubelet.node}, **more)


def reviewed(actions: Actions, workload: WorkloadRef, method: Method, **more: Any) -> Review:
    (review,) = actions.review([recommended(workload, **more)], method=method)
    return review


def uids(plane: ControlPlane, workload: WorkloadRef) -> list[str]:
    return sorted(pod["metadata"]["uid"] for pod in pods(plane, workload))


def events(plane: ControlPlane, workload: WorkloadRef) -> list[str]:
    items = plane.api().items(f"/apis/events.k8s.io/v1/namespaces/{workload.namespace}/events")
    return sorted(
        e["reason"] for e in items if e["regarding"].get("name") == workload.name and e["reason"].startswith("Change")
    )


def replaced(plane: ControlPlane, workload: WorkloadRef) -> dict[str, Any]:
    """Delete a pod; the one that comes for it."""
    before = {pod["metadata"]["uid"] for pod in pods(plane, workload)}
    old = pods(plane, workload)[0]["metadata"]["name"]
    plane.api().delete(f"/api/v1/namespaces/{workload.namespace}/pods/{old}")
    (new,) = wait_for(
        "a new pod", lambda: [pod for pod in pods(plane, workload) if pod["metadata"]["uid"] not in before]
    )
    return new


def test_in_place_no_pod_is_replaced_and_new_ones_have_the_values_too(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    workload = on(kubelet, control_plane, namespace)
    before = uids(control_plane, workload)
    actions = make()
    review = reviewed(actions, workload, Method.IN_PLACE)
    assert review.error == "" and review.suggested is Method.IN_PLACE and len(review.writes) == 3
    assert [len(dry_object["spec"]["containers"]) for dry_object in actions.dry_run(review)[:2]] == [1, 1]
    assert cpus(control_plane, workload) == ["1", "1"]
    (done,) = actions.accept([review], TERMS)
    assert (done.state, done.words) == (ChangeState.APPLIED, "2 pods resized in place")
    assert cpus(control_plane, workload) == ["800m", "800m"] and uids(control_plane, workload) == before
    assert template(control_plane, workload) == RESOURCES
    sets = control_plane.api().items(f"/apis/apps/v1/namespaces/{namespace}/replicasets")
    assert [replica_set["status"]["replicas"] for replica_set in sets] == [2]
    key = ("Deployment", namespace, "web")
    wait_for("the webhook knows", lambda: key in webhook.state.view().annotated)
    new = replaced(control_plane, workload)
    assert new["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "800m", "memory": "1Gi"}
    assert new["metadata"]["annotations"][CHANGE_ANNOTATION] == done.change.id
    # the Deployment's count alone may still be that of before the deletion
    wait_for("the new pod is ready", lambda: None not in map(ready_since, pods(control_plane, workload)))
    wait_for("the new pod runs", lambda: live(control_plane, workload)["status"].get("readyReplicas") == 2)
    judged = verify(actions, done)
    assert judged.state is ChangeState.VERIFIED and "no OOM kill, 0 restarts, 2 of 2 replicas ready" in judged.words
    # Asked again it says that there is nothing left to do.
    assert "already has all proposed values" in reviewed(actions, workload, Method.IN_PLACE).error
    back = actions.roll_back(judged)
    assert (back.state, back.words) == (ChangeState.ROLLED_BACK, "")
    # Also the pod that came later and was created with the values.
    assert cpus(control_plane, workload) == ["1", "1"]
    assert RESOURCES_ANNOTATION not in live(control_plane, workload)["metadata"]["annotations"]
    wait_for("Events", lambda: events(control_plane, workload) == ["ChangeApplied", "ChangeRolledBack"])


def with_older_pods(kubelet: Kubelet, plane: ControlPlane, namespace: str) -> WorkloadRef:
    """A paused Deployment whose template has another version label, as charts set them, than its pods."""
    workload = on(kubelet, plane, namespace)
    patch = {"spec": {"paused": True, "template": {"metadata": {"labels": {"version": "2"}}}}}
    plane.api().patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/web", patch)
    return workload


def test_pods_of_the_template_before_are_not_another_workloads(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make
) -> None:
    workload = with_older_pods(kubelet, control_plane, namespace)
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    control_plane.api().create(f"/api/v1/namespaces/{namespace}/services", service)
    near = read_surroundings(make().client, live(control_plane, workload), workload)
    assert near.others == () and near.services == {"web": True}


def test_pods_of_a_template_with_other_labels_are_resized_and_judged_too(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload, actions = with_older_pods(kubelet, control_plane, namespace), make()
    old = {pod["metadata"]["name"] for pod in pods(control_plane, workload)}
    review = reviewed(actions, workload, Method.IN_PLACE)
    assert review.error == "" and {write.address.name for write in review.writes} == {*old, "web"}
    (done,) = actions.accept([review], AcceptanceTerms(overridden=("cool-down", "rollout")))
    assert (done.state, done.words) == (ChangeState.APPLIED, "2 pods resized in place")
    first = min(old)
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": moment(done.changed_seconds + 1)}
    path = f"/api/v1/namespaces/{namespace}/pods/{first}/status"
    killed = [
        {**container_status, "lastState": {"terminated": ended}}
        for container_status in control_plane.api().get(path)["status"]["containerStatuses"]
    ]
    control_plane.api().patch(path, {"status": {"containerStatuses": killed}})
    judged = verify(actions, done)
    assert judged.state is ChangeState.REGRESSED and judged.words == "1 container was OOM-killed after the change"


def test_what_a_guard_stops_between_two_pods_is_taken_back_and_before_the_first_nothing_is_written_down(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    workload, actions = on(kubelet, control_plane, namespace), make()
    stops_at = 1

    def guard(_workload: str, done: int) -> None:
        if done == stops_at:
            raise UsageError("paused by ann")

    actions = actions.having(guard=guard)
    (stopped,) = actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    assert stopped.state is ChangeState.FAILED and "paused by ann" in stopped.words
    assert cpus(control_plane, workload) == ["1", "1"]
    stops_at, rows = 0, actions.journal.ledger.head().seq
    with pytest.raises(UsageError, match="paused by ann"):
        actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    assert actions.journal.ledger.head().seq == rows


def test_what_a_node_cannot_give_is_said_in_its_words_and_taken_back(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    workload = on(kubelet, control_plane, namespace)
    kubelet.says, kubelet.only = "Infeasible", pods(control_plane, workload)[1]["metadata"]["name"]
    actions = make(resize_seconds=3.0)
    (done,) = actions.accept([reviewed(actions, workload, Method.IN_PLACE, amount=3000)], TERMS)
    assert done.state is ChangeState.FAILED
    assert "its node can never provide the new amounts: Node didn't have enough capacity" in done.words
    assert "or choose the method Roll out (template): the scheduler then finds a place for new pods" in done.words
    assert cpus(control_plane, workload) == ["1", "1"]
    assert RESOURCES_ANNOTATION not in live(control_plane, workload)["metadata"]["annotations"]
    assert [(e.event, "infeasible" in e.body) for e in actions.journal.ledger.entries()][-1] == ("refused", True)
    assert webhook.state.view().annotated.get(("Deployment", namespace, "web")) is None


def test_what_a_node_puts_off_is_waited_for_and_taken_back_where_it_is_still_put_off_later(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload = on(kubelet, control_plane, namespace)
    kubelet.says = "Deferred"
    actions = make(resize_seconds=3.0)
    (done,) = actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    assert done.state is ChangeState.APPLIED
    assert done.words.startswith("2 of 2 pods are not resized yet (deferred: Node didn't have enough capacity")
    assert cpus(control_plane, workload) == ["800m", "800m"]
    judged = verify(actions, done)
    assert judged.state is ChangeState.REGRESSED and "its node is too full for the resize now" in judged.words


def test_a_node_that_says_nothing_is_named_and_looked_at_again(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload = on(kubelet, control_plane, namespace)
    kubelet.says = "nothing"
    actions = make(resize_seconds=0.5)
    (done,) = actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    assert done.state is ChangeState.APPLIED
    assert done.words == "2 of 2 pods are not resized yet: `cotenant recs verify` checks again"
    kubelet.says = "Infeasible"
    wait_for("the node speaks", lambda: all(len(p["status"]["conditions"]) > 3 for p in pods(control_plane, workload)))
    judged = verify(actions, done)
    assert judged.state is ChangeState.REGRESSED and "its node can never provide the new amounts" in judged.words


def test_pods_that_may_not_be_resized_are_said_before(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    workload = on(kubelet, control_plane, namespace, container={"resizePolicy": policy}, replicas=1)
    review = reviewed(make(), workload, Method.IN_PLACE)
    assert "asks to be restarted when its cpu is resized" in review.error and review.writes == ()
    assert review.suggested is Method.TEMPLATE
    same = {"cpu": "1", "memory": "1Gi"}
    alike = {"resources": {"requests": same, "limits": same}}
    other = on(kubelet, control_plane, namespace, name="db", container=alike, replicas=1)
    assert "QoS class would change from Guaranteed to Burstable" in reviewed(make(), other, Method.IN_PLACE).error


def test_annotated_nothing_happens_until_a_pod_is_created(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    workload = on(kubelet, control_plane, namespace)
    before, actions = uids(control_plane, workload), make()
    review = reviewed(actions, workload, Method.ANNOTATE)
    (done,) = actions.accept([review], TERMS)
    assert done.state is ChangeState.APPLIED and uids(control_plane, workload) == before
    assert cpus(control_plane, workload) == ["1", "1"] and template(control_plane, workload) == RESOURCES
    wait_for("the webhook knows", lambda: ("Deployment", namespace, "web") in webhook.state.view().annotated)
    new = replaced(control_plane, workload)
    assert new["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "800m"
    # A new template is newer than the annotation: its pods are what it says.
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}}}
    control_plane.api().patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/web", patch, kind="strategic")
    wait_for("the rollout", lambda: cpus(control_plane, workload) == ["2", "2"])


LIMITED: dict[str, Any] = {"requests": {"memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}


@pytest.mark.parametrize(
    ("stated", "added"), [(LIMITED, {}), (RESOURCES, {"cpu": "4"})], ids=["the API", "a LimitRange"]
)
def test_annotated_values_reach_pods_that_have_more_than_their_template_states(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make,
    stated: dict[str, Any], added: dict[str, str],
) -> None:  # fmt: skip
    api = control_plane.api()
    if added:
        body = {"metadata": {"name": "bounds"}, "spec": {"limits": [{"type": "Container", "default": added}]}}
        api.create(f"/api/v1/namespaces/{namespace}/limitranges", body)
        wait_for("the limit is given", lambda: _tried_limits(control_plane, namespace) == added)
    workload = on(kubelet, control_plane, namespace, container={"resources": stated})
    limits = {**stated["limits"], **added}
    # What the template states is not all that its pods have: a request of the limit, or a limit.
    (before, _) = (pod["spec"]["containers"][0]["resources"] for pod in pods(control_plane, workload))
    assert before == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": limits} != stated
    actions = make()
    (done,) = actions.accept([reviewed(actions, workload, Method.ANNOTATE)], TERMS)
    assert done.state is ChangeState.APPLIED and template(control_plane, workload) == stated
    wait_for("the webhook knows", lambda: ("Deployment", namespace, "web") in webhook.state.view().annotated)
    new = replaced(control_plane, workload)
    after = {"requests": {"cpu": "800m", "memory": "1Gi"}, "limits": limits}
    assert new["spec"]["containers"][0]["resources"] == after
    wait_for("the new pod is ready", lambda: None not in map(ready_since, pods(control_plane, workload)))
    wait_for("the new pod runs", lambda: live(control_plane, workload)["status"].get("readyReplicas") == 2)
    judged = verify(actions, done)
    assert judged.state is ChangeState.VERIFIED
    assert actions.roll_back(judged).state is ChangeState.ROLLED_BACK
    assert cpus(control_plane, workload) == ["1", "1"]


def _tried_limits(plane: ControlPlane, namespace: str) -> Any:
    """Limits of a pod that names none; the API server's view of LimitRanges is a moment late."""
    body = {"metadata": {"name": "try"}, "spec": {"containers": [{"name": "a", "image": "example.invalid/a:1"}]}}
    dry_pod = plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
    return dry_pod["spec"]["containers"][0]["resources"].get("limits")


def test_without_our_webhook_new_pods_would_revert_and_the_guardrail_says_so(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cotenant-webhook"
    workload = on(kubelet, control_plane, namespace, replicas=1)
    api = control_plane.api()
    configuration = api.get(path) if api.exists(path) else None
    if configuration:
        api.delete(path)
    try:
        review = reviewed(make(), workload, Method.IN_PLACE)
    finally:
        if configuration:
            api.create(path.rpartition("/")[0], {**configuration, "metadata": {"name": "cotenant-webhook"}})
    (failed,) = review.blocked(())
    assert failed.rule == "webhook" and "cotenant install --components webhooks" in failed.why
    assert review.suggested is Method.TEMPLATE


def test_a_resize_that_was_killed_halfway_is_finished_or_taken_back(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload, sent = on(kubelet, control_plane, namespace), []
    actions = make()

    def killed(point: str) -> None:
        sent.append(point)
        if point == "sent":
            raise KeyboardInterrupt  # after the first of two pods

    actions = actions.having(reached=killed)
    with pytest.raises(KeyboardInterrupt):
        actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    assert sent == ["accepted", "sent"] and cpus(control_plane, workload) == ["1", "800m"]
    (settled,) = settle(make())
    assert (settled.state, settled.words) == (ChangeState.FAILED, "the change was partly applied")
    assert cpus(control_plane, workload) == ["1", "1"]


def test_a_rollback_that_a_quota_stops_halfway_is_told_and_ends_with_the_next_one(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload, actions, api = on(kubelet, control_plane, namespace), make(), control_plane.api()
    (done,) = actions.accept([reviewed(actions, workload, Method.IN_PLACE)], TERMS)
    # Two pods of 800m and 200m more: one of them has room to be given its core back, and the other one has not.
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    api.create(quotas, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "1800m"}}})
    used = lambda: api.get(f"{quotas}/team").get("status", {}).get("used", {}).get("requests.cpu")  # noqa: E731
    wait_for("the quota counts both pods", lambda: used() == "1600m")
    refused = actions.roll_back(done)
    assert refused.state is ChangeState.APPLIED and cpus(control_plane, workload) == ["1", "800m"]
    assert refused.words.startswith("only some values were rolled back") and "exceeded quota: team" in refused.words
    news = news_of(refused)
    assert news is not None and news.bad and news.title.endswith("could not be rolled back")
    api.patch(f"{quotas}/team", {"spec": {"hard": {"requests.cpu": "4"}}}, kind="merge")
    wait_for("the quota is raised", lambda: api.get(f"{quotas}/team")["status"]["hard"]["requests.cpu"] == "4")
    assert actions.roll_back(refused).state is ChangeState.ROLLED_BACK
    assert cpus(control_plane, workload) == ["1", "1"]
