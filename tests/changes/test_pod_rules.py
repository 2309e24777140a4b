"""The pods' side of a verdict, of every kind that a change writes: stuck and slow rollouts, pods without the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.models.pod import KilledPodWire
from cotenant.base.kubernetes.moments import moment
from cotenant.changes.decide.checks.rollout import rollout_of
from cotenant.changes.decide.field_changes import ANNOTATED, address_of
from cotenant.changes.decide.in_place import RESIZE, workload_pods
from cotenant.changes.decide.patches import TEMPLATE_PATHS
from cotenant.changes.live_context import selector_of_pods
from cotenant.changes.model.annotated_resources import Amounts, ResourceSwap, encode_swaps
from cotenant.changes.model.change import Change, Write
from cotenant.changes.model.judgement import RuleResult, RuleVerdict
from cotenant.changes.soak.pod_rules import KILLS, MISSING, RESTARTS, pod_results

SINCE = 1_800_000_000.0
NOW = SINCE + 1800
"""The default soak time later."""
OLD: Amounts = {"requests": {"cpu": "1"}}
NEW: Amounts = {"requests": {"cpu": "800m"}}
KEPT, WORSE, NO_DATA = RuleVerdict.KEPT, RuleVerdict.WORSE, RuleVerdict.NO_DATA
EXCEEDED = {
    "type": "Progressing",
    "status": "False",
    "reason": "ProgressDeadlineExceeded",
    "message": 'ReplicaSet "web-2" has timed out progressing.',
}


def change(kind: str, *writes: Write) -> Change:
    return Change("c1", "b1", "shop", kind, "web", "ann", (), "template", "d@0", writes)


def in_template(kind: str) -> Change:
    pointer = f"/{'/'.join(TEMPLATE_PATHS[kind])}/containers/0/resources"
    return change(kind, Write(address_of(WorkloadRef("shop", kind, "web")), "u", (), {pointer: OLD}, {pointer: NEW}))


def annotated(kind: str = "Deployment") -> Change:
    text = encode_swaps({"app": ResourceSwap(OLD, NEW)})
    return change(
        kind, Write(address_of(WorkloadRef("shop", kind, "web")), "u", (), {ANNOTATED: None}, {ANNOTATED: text})
    )


def resize(name: str) -> Write:
    pointer = "/spec/containers/0/resources"
    return Write(Address("v1", "pods", name, "shop"), name, (), {pointer: OLD}, {pointer: NEW}, RESIZE)


def pod(name: str = "web-a", created: float = SINCE + 60, resources: Any = NEW, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": name, "creationTimestamp": moment(created)}
    reported = [{"name": "app", "resources": resources}]
    containers = [{"name": "app", "resources": resources}]
    return {"metadata": meta, "spec": {"containers": containers}, "status": {"containerStatuses": reported, **status}}


def live(spec: dict[str, Any], observed: int | None = 2, **status: Any) -> dict[str, Any]:
    generation = {} if observed is None else {"observedGeneration": observed}
    return {"metadata": {"generation": 2, "uid": "u"}, "spec": spec, "status": {**generation, **status}}


def replicas(of: Change, workload: dict[str, Any], pods: Sequence[dict[str, Any]] = (), now: float = NOW) -> RuleResult:
    (result,) = [rule for rule in pod_results(of, workload, pods, SINCE, now) if rule.rule == MISSING]
    return result


DEPLOYMENT, DAEMONS, SET = (in_template(kind) for kind in ("Deployment", "DaemonSet", "StatefulSet"))
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
THREE = {"replicas": 3}


def partitioned(partition: int) -> dict[str, Any]:
    return {**THREE, "updateStrategy": {"rollingUpdate": {"partition": partition}}}


STARTED = [pod()]
"""A pod that the rollout has made long ago: it does not go on."""


@pytest.mark.parametrize(
    ("of", "workload", "verdict", "phrase"),
    [
        (DEPLOYMENT, live(THREE, readyReplicas=3, updatedReplicas=3), KEPT, "3 of 3 replicas ready"),
        # 25 % surge, 25 % unavailable: one new pod that fits no node, and all old ones stay ready.
        (
            DEPLOYMENT,
            live(THREE, readyReplicas=3, updatedReplicas=1, conditions=[EXCEEDED]),
            WORSE,
            EXCEEDED["message"],
        ),
        # Its quota refuses every new pod: the controller leaves a count of zero out.
        (DEPLOYMENT, live(THREE, readyReplicas=3, conditions=[EXCEEDED]), WORSE, "0 of 3 replicas have the present"),
        (DEPLOYMENT, live(THREE, readyReplicas=3, updatedReplicas=1), WORSE, "no pod was created lately"),
        (DEPLOYMENT, live(THREE, updatedReplicas=3), WORSE, "0 of 3 replicas are ready"),
        (DEPLOYMENT, live(THREE, None), NO_DATA, "the workload's controller has not observed the present template yet"),
        (
            DEPLOYMENT,
            live(THREE, 1, readyReplicas=3, updatedReplicas=3),
            NO_DATA,
            "has not observed the present template",
        ),
        (
            DEPLOYMENT,
            live({**THREE, "paused": True}, readyReplicas=3),
            NO_DATA,
            "no pod has the new values yet: the Deployment is paused",
        ),
        (DEPLOYMENT, live({"replicas": 0}), NO_DATA, "no pod has the new values yet: the workload has no replicas"),
        # Kubernetes' own default of replicas is one.
        (DEPLOYMENT, live({}, updatedReplicas=1), WORSE, "0 of 1 replicas are ready"),
        (SET, live(THREE, readyReplicas=3, updatedReplicas=3), KEPT, "3 of 3 replicas ready"),
        (SET, live(THREE, readyReplicas=3, updatedReplicas=1), WORSE, "1 of 3 replicas have the present template"),
        (SET, live({**THREE, **ON_DELETE}, readyReplicas=3), NO_DATA, "the workload's update strategy is OnDelete"),
        (SET, live(partitioned(3), readyReplicas=3), NO_DATA, "the partition of the workload's update strategy is 3"),
        (SET, live(partitioned(2), readyReplicas=3), WORSE, "0 of 1 replicas have the present template"),
        (
            SET,
            live(partitioned(2), readyReplicas=3, updatedReplicas=1),
            KEPT,
            "3 of 3 replicas ready, 1 with the new values: the partition of the workload's update strategy is 2",
        ),
        (DAEMONS, live({}, desiredNumberScheduled=10, updatedNumberScheduled=10, numberReady=10), KEPT, "10 of 10"),
        (
            DAEMONS,
            live({}, desiredNumberScheduled=10, updatedNumberScheduled=10, numberReady=1),
            WORSE,
            "1 of 10 replicas is ready",
        ),
        (DAEMONS, live({}, desiredNumberScheduled=10, updatedNumberScheduled=1, numberReady=9), WORSE, "1 of 10"),
        (DAEMONS, live({}), NO_DATA, "the workload's controller has not reported pods yet"),
        (
            DAEMONS,
            live(ON_DELETE, desiredNumberScheduled=10, numberReady=10),
            NO_DATA,
            "the workload's update strategy is OnDelete",
        ),
        (
            DAEMONS,
            live(ON_DELETE, desiredNumberScheduled=10, updatedNumberScheduled=2, numberReady=10),
            KEPT,
            "10 of 10 replicas ready, 2 with the new values: the workload's update strategy is OnDelete",
        ),
        (
            DAEMONS,
            live(ON_DELETE, desiredNumberScheduled=10, updatedNumberScheduled=2, numberReady=9),
            WORSE,
            "9 of 10",
        ),
    ],
)
def test_a_rollout_is_verified_by_what_its_controller_counts(
    of: Change, workload: dict[str, Any], verdict: RuleVerdict, phrase: str
) -> None:
    result = replicas(of, workload, STARTED if of is not DAEMONS else ())
    assert (result.verdict, phrase in result.words) == (verdict, True), result.words


@pytest.mark.parametrize(("age", "verdict"), [(599, NO_DATA), (600, WORSE)])
def test_a_rollout_that_made_a_pod_lately_goes_on_and_is_neither_good_nor_bad(age: int, verdict: RuleVerdict) -> None:
    workload = live({"replicas": 200}, readyReplicas=199, updatedReplicas=150)
    result = replicas(DEPLOYMENT, workload, [pod(created=SINCE - 9e6), pod(created=NOW - age)])
    assert result.verdict is verdict and "150 of 200 replicas have the present template" in result.words


def test_a_pod_that_dies_while_the_rollout_goes_on_is_harm_all_the_same() -> None:
    dead = pod(created=NOW - 60, containerStatuses=[killed("app")])
    workload = live(THREE, readyReplicas=3, updatedReplicas=1)
    verdicts = {rule.rule: rule.verdict for rule in pod_results(DEPLOYMENT, workload, [dead], SINCE, NOW)}
    assert verdicts == {KILLS: WORSE, RESTARTS: WORSE, MISSING: NO_DATA}


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
@pytest.mark.parametrize(("created", "verdict"), [(SINCE - 60, NO_DATA), (SINCE + 60, KEPT)])
def test_a_kind_that_replaces_no_pod_is_verified_once_a_pod_was_created(
    kind: str, created: float, verdict: RuleVerdict
) -> None:
    workload = live({"replicas": 1}, readyReplicas=1)
    assert replicas(in_template(kind), workload, [pod(created=created)]).verdict is verdict


@pytest.mark.parametrize(("created", "verdict"), [(SINCE - 60, NO_DATA), (SINCE + 60, KEPT)])
def test_a_cron_job_is_verified_by_a_run_that_began_after_the_change(created: float, verdict: RuleVerdict) -> None:
    assert replicas(in_template("CronJob"), live({"jobTemplate": {}}), [pod(created=created)]).verdict is verdict


def test_the_run_of_a_cron_job_that_was_killed_and_never_restarts_is_harm() -> None:
    end = {"terminated": {"reason": "OOMKilled", "finishedAt": moment(SINCE + 90)}}
    failed = pod(phase="Failed", containerStatuses=[{"name": "app", "restartCount": 0, "state": end}])
    verdicts = {r.rule: r.verdict for r in pod_results(in_template("CronJob"), live({}), [failed], SINCE, NOW)}
    assert verdicts[KILLS] is WORSE


@pytest.mark.parametrize(("resources", "verdict"), [(OLD, NO_DATA), (NEW, KEPT)])
def test_an_annotation_is_verified_once_a_pod_has_its_values(resources: Any, verdict: RuleVerdict) -> None:
    workload = live({"replicas": 1}, readyReplicas=1, updatedReplicas=1)
    assert replicas(annotated(), workload, [pod(resources=resources)]).verdict is verdict


@pytest.mark.parametrize(("reported", "verdict"), [(OLD, NO_DATA), (NEW, KEPT)])
def test_resized_pods_have_the_values_when_their_nodes_say_so(reported: Any, verdict: RuleVerdict) -> None:
    workload = live({"replicas": 1}, readyReplicas=1, updatedReplicas=1)
    resized = pod(created=SINCE - 60, containerStatuses=[{"name": "app", "resources": reported}])
    assert replicas(change("Deployment", resize("web-a")), workload, [resized]).verdict is verdict


def killed(name: str) -> dict[str, Any]:
    end = {"terminated": {"reason": "OOMKilled", "finishedAt": moment(SINCE + 90)}}
    return {"name": name, "restartCount": 7, "lastState": end, "resources": NEW}


@pytest.mark.parametrize("part", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_dies_is_harm_wherever_its_status_stands(part: str) -> None:
    workload = live({"replicas": 1}, readyReplicas=1, updatedReplicas=1)
    hurt = pod()
    hurt["status"][part] = [killed("proxy")]
    rules = {rule.rule: rule for rule in pod_results(DEPLOYMENT, workload, [hurt], SINCE, NOW)}
    assert rules[KILLS].words == "1 container was OOM-killed after the change" and rules[RESTARTS].verdict is WORSE
    wire = msgspec.convert({**hurt, "spec": {}}, KilledPodWire)
    assert wire.oom_kills() == {"proxy": SINCE + 90}


def owned(name: str, kind: str, owner: str, uid: str = "", **labels: str) -> dict[str, Any]:
    reference = {"kind": kind, "name": owner, "uid": uid, "controller": True}
    return {"metadata": {"name": name, "labels": {"app": "web", **labels}, "ownerReferences": [reference]}}


def test_pods_of_others_with_the_same_labels_are_not_the_workloads_own() -> None:
    pods = [
        owned("web-1", "ReplicaSet", "web-5d4f", **{"pod-template-hash": "5d4f"}),
        owned("web-canary-1", "ReplicaSet", "web-canary-5d4f", **{"pod-template-hash": "5d4f"}),
        owned("web-2", "Job", "web-29330000"),
        owned("batch-2", "Job", "batch-29330000"),
        owned("web-3", "StatefulSet", "web", uid="u1"),
    ]

    def names(kind: str, uid: str = "") -> list[str]:
        return [
            workload_pod["metadata"]["name"]
            for workload_pod in workload_pods(pods, WorkloadRef("shop", kind, "web"), uid)
        ]

    # A CronJob's template has no labels more often than not, so that every pod of the namespace is listed.
    assert (names("Deployment"), names("CronJob")) == (["web-1"], ["web-2"])
    assert (names("StatefulSet", "u1"), names("StatefulSet", "u2")) == (["web-3"], [])


def test_a_kind_without_replicas_has_no_rollout() -> None:
    assert rollout_of(live({}), "CronJob") is None


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        ({"matchLabels": {"app": "web", "tier": "front"}}, "app in (web),tier in (front)"),
        # The template's labels name the version of now; pods of the one before have another.
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "old"]}]}, "app in (old,web)"),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "v", "operator": "Exists"}]}, "app in (web),v"),
        (None, "app in (web),version in (2)"),  # a CronJob
        ({"app": "web"}, "app in (web),version in (2)"),  # a ReplicationController
    ],
)
def test_pods_are_asked_for_by_all_of_a_selector_and_by_the_templates_labels_without_one(
    selector: dict[str, Any] | None, query: str
) -> None:
    template = {"metadata": {"labels": {"app": "web", "version": "2"}}}
    live = {"spec": {"template": template, **({"selector": selector} if selector else {})}}
    assert selector_of_pods(live).query == query
