"""The autopilot on a real API server, under the rights that are documented."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.admission.webhook_server.service import WebhookService
from cotenant.autopilot.decide.floors import FloorForecast
from cotenant.autopilot.decide.starts import ready_since
from cotenant.autopilot.model import QueueVerdict
from cotenant.autopilot.rounds.reading import PolicyReading, RoundReading
from cotenant.base.errors import CotenantError
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import HALF_HOUR_SECONDS
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import BundleForm
from cotenant.changes.soak.stop_switch import SWITCH_CONFIG_MAP
from cotenant.recommender.model.recommendation import Action, Field, Value
from tests.autopilot.dying import DyingRound, dying_round
from tests.autopilot.scene import APPROVER, HOUR, AutopilotScene, shut_window
from tests.changes.dying import killed
from tests.changes.world import Kubelet, cpus, created, deployed, own_node, pods, ready, template
from tests.cluster.api import ApiError, Json
from tests.cluster.binaries import find
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.house.rooms import ROOT
from tests.support.extent import full

DOCUMENT = ROOT / "docs" / "autopilot.md"


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Any:
    with own_node(control_plane, unique_name("pilot")) as kubelet:
        yield kubelet


@pytest.fixture
def webhook(control_plane: ControlPlane) -> Iterator[WebhookService]:
    with running(control_plane) as service:
        yield service


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AutopilotScene:
    return AutopilotScene(control_plane, namespace, tmp_path)


@pytest.fixture
def web(cluster: AutopilotScene, node: Kubelet) -> WorkloadRef:
    """A Deployment of two pods whose CPU request should go from 1000m to 800m."""
    workload = deployed(cluster.plane, cluster.namespace, nodeSelector={"test/own": node.node})
    cluster.recommend(workload)
    return workload


def cpu(cluster: AutopilotScene, workload: WorkloadRef) -> str:
    return str(template(cluster.plane, workload)["requests"]["cpu"])


def acting(cluster: AutopilotScene, **spec: Any) -> None:
    """A policy that may act: bound, approved."""
    cluster.bind()
    cluster.policy(**{"mode": "Observe", "ways": ["RollOut"], **spec})
    cluster.service().act(APPROVER, f"{cluster.namespace}/nightly")


def own_policy(cluster: AutopilotScene, reading: RoundReading) -> PolicyReading:
    """The cluster's policy: a round reads those of namespaces that are being deleted as well."""
    (own,) = [policy for policy in reading.policies if policy.policy.namespace == cluster.namespace]
    return own


def is_rolled_out(cluster: AutopilotScene, workload: WorkloadRef) -> bool:
    body = cluster.plane.api().get(f"/apis/apps/v1/namespaces/{workload.namespace}/deployments/{workload.name}")
    status = body["status"]
    is_current = status.get("observedGeneration") == body["metadata"]["generation"]
    return is_current and status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == 2


@pytest.mark.parametrize(
    ("spec", "phrase"),
    [
        ({"mode": "Always"}, "Unsupported value"),
        ({"ways": ["RollOut"], "restartsPerWeek": 0}, "ways has RollOut alone"),
        ({"resources": ["cpu"], "directions": ["UpAfterOOMKill"]}, "raises memory, and resources leaves memory out"),
        ({"resources": ["memory"], "directions": ["UpAfterThrottling"]}, "raises CPU, and resources leaves cpu out"),
        ({"directions": ["Up"], "throttledShare": 0.1}, "throttledShare applies to UpAfterThrottling"),
        ({"resources": ["memory"], "largestCut": {"cpu": 0.2}}, "bounds a resource that resources leaves out"),
        ({"directions": ["Up"], "largestCut": {"cpu": 0.2}}, "directions has no Down"),
        ({"canaryShare": 1.5}, "should be less than or equal to 1"),
    ],
)
def test_the_server_refuses_a_policy_that_contradicts_itself(
    cluster: AutopilotScene, spec: dict[str, Any], phrase: str
) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.policy(**spec)
    assert phrase in str(refused.value)
    assert cluster.policy()["spec"] == {"mode": "Observe"}


def test_observing_changes_nothing_and_writes_its_report_once(cluster: AutopilotScene, web: WorkloadRef) -> None:
    cluster.policy(mode="Act")  # asked for, and approved by nobody; the manager may not write here either
    before = cluster.plane.api().get(f"/apis/apps/v1/namespaces/{web.namespace}/deployments/web")["metadata"]
    for _ in range(2):
        reading, moved, acts = cluster.round()
        assert [e.verdict for e in reading.queue] == [QueueVerdict.PROPOSE] and moved == [] and acts == []
        assert "nobody has approved the policy" in own_policy(cluster, reading).reason
    after = cluster.plane.api().get(f"/apis/apps/v1/namespaces/{web.namespace}/deployments/web")["metadata"]
    assert (after["resourceVersion"], cluster.events()) == (before["resourceVersion"], ["autopilot-proposed"])
    (row,) = cluster.service().report(APPROVER, 7).rows()
    # two replicas, 200m less each
    assert (row["proposed"], row["cpu_proposed"], row["changed"]) == (1, 400, 0)


def test_an_approved_policy_acts_once_by_the_path_of_a_click_and_its_change_is_judged(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    acting(cluster)
    _, _, (act,) = cluster.round()
    (status,) = act.changes
    assert status.state is ChangeState.APPLIED and cpu(cluster, web) == "800m"
    assert status.change.actor == "system:serviceaccount:cotenant:cotenant-manager"
    assert cluster.events() == ["autopilot-act", "accepted", "applied"]
    reading, moved, acts = cluster.round()
    # what it should be is what it is: the change soaks, and nothing is left to do
    assert moved == [] and acts == [] and [e.verdict for e in reading.queue] == [QueueVerdict.WAIT]
    wait_for("the roll-out", lambda: is_rolled_out(cluster, web))
    cluster.ahead_seconds = 2 * HOUR
    _, (verified,), acts = cluster.round()
    assert (verified.state, acts) == (ChangeState.VERIFIED, [])
    (row,) = cluster.service().report(APPROVER, 7).rows()
    assert (row["changed"], row["held"], row["cpu_freed"]) == (1, 1, 400)


def test_a_policy_that_is_changed_after_its_approval_observes_again(cluster: AutopilotScene, web: WorkloadRef) -> None:
    acting(cluster)
    cluster.plane.api().patch(f"{cluster.policies}/nightly", {"spec": {"atOnce": 4}})
    reading, _, acts = cluster.round()
    assert "the policy was changed after its approval" in own_policy(cluster, reading).reason
    assert acts == [] and cpu(cluster, web) == "1"


def test_the_switch_stops_what_a_round_has_decided_already(cluster: AutopilotScene, web: WorkloadRef) -> None:
    acting(cluster)
    rounds = cluster.rounds()
    reading = rounds.read(SystemClock().now_seconds())
    assert [e.verdict for e in reading.queue] == [QueueVerdict.ACT]
    cluster.service().pause(APPROVER, "incident")
    _, (stopped,) = rounds.carry_out(reading)
    assert stopped.paused and "incident" in stopped.words and cpu(cluster, web) == "1"
    halted, _, acts = cluster.round()
    assert halted.halt is not None and halted.halt.reason is Reason.AUTOPILOT_PAUSED and acts == []
    # any other value of the key pauses as well, as a person writes it with kubectl
    switch = f"/api/v1/namespaces/{cluster.namespace}/configmaps/{SWITCH_CONFIG_MAP}"
    cluster.service().resume(APPROVER)
    cluster.plane.api().patch(switch, {"data": {"paused": "no"}})
    assert cluster.round()[0].halt is not None
    cluster.service().resume(APPROVER)
    # the emergency stop of docs/autopilot.md, by an approver, where the switch has been used before
    (stop,) = [x for x in DOCUMENT.read_text().splitlines() if x.startswith("kubectl") and "paused=yes" in x]
    path = f"{find('kubectl').parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.approver()), "PATH": path}
    command = stop.replace("koordinator-system", cluster.namespace)
    subprocess.run(["bash", "-o", "pipefail", "-c", command], env=environment, check=True, timeout=120)
    assert cluster.round()[0].halt is not None
    cluster.service().resume(APPROVER)
    assert cluster.round()[2][0].changes and cpu(cluster, web) == "800m"


def test_nothing_is_written_by_who_does_not_lead_and_the_next_leader_finds_nothing_half_done(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    acting(cluster)
    cluster.leads = False
    with pytest.raises(CotenantError):
        cluster.round()
    assert cpu(cluster, web) == "1"
    cluster.leads = True
    moved = [status.state for _ in range(2) for status in cluster.round()[1]]
    assert moved in ([], [ChangeState.FAILED])
    assert cluster.events().count("applied") <= 1


def test_a_fought_field_is_left_alone_until_a_person_resumes_the_workload(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    acting(cluster)
    assert cluster.round()[2][0].changes
    wait_for("the roll-out", lambda: is_rolled_out(cluster, web))
    path = f"/apis/apps/v1/namespaces/{web.namespace}/deployments/{web.name}"
    containers = [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]
    cluster.plane.api().patch(path, {"spec": {"template": {"spec": {"containers": containers}}}}, kind="strategic")
    for _ in range(3):
        cluster.ahead_seconds += 100 * HOUR
        reading, _, acts = cluster.round()
        assert acts == [] and [e.reason for e in reading.queue] == [Reason.AUTOPILOT_OTHER_WRITER]
    assert cluster.events().count("autopilot-left-alone") == 1 and cpu(cluster, web) == "1"
    cluster.service().resume(APPROVER, web, "it was me")
    # the person knows what was there: it begins anew
    assert cluster.round()[2][0].changes and cpu(cluster, web) == "800m"


def test_what_others_keep_is_never_touched(cluster: AutopilotScene) -> None:
    api = cluster.plane.api()
    kinds = {
        "argo": Reason.AUTOPILOT_KEPT_BY_GITOPS,
        "lsr": Reason.AUTOPILOT_NEVER_TOUCHED,
        "hpa": Reason.AUTOPILOT_NEVER_TOUCHED,
    }
    for name in kinds:
        cluster.recommend(created(cluster.plane, cluster.namespace, name, 0))
    deployments = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"
    api.patch(f"{deployments}/argo", {"metadata": {"labels": {"argocd.argoproj.io/instance": "shop"}}})
    labels = {"spec": {"template": {"metadata": {"labels": {"koordinator.sh/qosClass": "LSR"}}}}}
    api.patch(f"{deployments}/lsr", labels)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hpa"}, "maxReplicas": 3}
    body = {"metadata": {"name": "hpa"}, "spec": {**spec, "metrics": [metric]}}
    api.create(f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers", body)
    cluster.policy(neverTouch=["Autoscaled"], ways=["RollOut"])
    reading, _, _ = cluster.round()
    assert {e.candidate.workload.name: e.reason for e in reading.queue} == kinds
    before = api.get(f"{deployments}/argo")
    files = cluster.service().bundle(APPROVER, BundleForm.KUSTOMIZE, [cluster.namespace])
    # one step of the recommendation, from 1000m to 800m, for the repository alone
    assert sorted(files) == [
        "PULL_REQUEST.md",
        f"{cluster.namespace}/deployment-argo.yaml",
        f"{cluster.namespace}/kustomization.yaml",
    ]
    assert 'cpu: "800m"' in files[f"{cluster.namespace}/deployment-argo.yaml"]
    assert api.get(f"{deployments}/argo") == before and cluster.events()[-1] == "bundled"


def test_pods_that_are_lsr_by_their_own_labels_alone_are_never_touched(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    # as the webhook makes them under a ClusterColocationProfile: the template says nothing
    path = f"/apis/apps/v1/namespaces/{web.namespace}/deployments/{web.name}"
    label = "koordinator.sh/qosClass"
    cluster.plane.api().patch(path, {"spec": {"template": {"metadata": {"labels": {label: "LSR"}}}}})
    wait_for("the roll-out", lambda: is_rolled_out(cluster, web))
    without = {"spec": {"paused": True, "template": {"metadata": {"labels": {label: None}}}}}
    cluster.plane.api().patch(path, without)
    assert {pod["metadata"]["labels"].get(label) for pod in pods(cluster.plane, web)} == {"LSR"}
    cluster.policy()
    (entry,) = cluster.round()[0].queue
    assert (entry.reason, entry.words) == (Reason.AUTOPILOT_NEVER_TOUCHED, "its pods have QoS class LSR")


@pytest.mark.parametrize("end", [(2, False), (2, True), *full((1, False), (1, True), (3, False), (3, True))])
def test_a_kill_in_the_middle_of_acts_does_nothing_twice_and_loses_nothing(
    cluster: AutopilotScene, node: Kubelet, end: tuple[int, bool]
) -> None:
    write, after = end
    workloads = [
        created(cluster.plane, cluster.namespace, name, 2, nodeSelector={"test/own": node.node}) for name in "abc"
    ]
    for workload in workloads:
        ready(cluster.plane, workload)
        cluster.recommend(workload)
    acting(cluster)
    ledger = cluster.folder / "ledger.db"
    terms = DyingRound(str(cluster.kubeconfig), ledger, cluster.settings, tuple(cluster.recommendations), write, after)
    killed(dying_round, terms)
    # those before it are done, and the one whose write had left is done as well
    assert [cpu(cluster, workload) for workload in workloads].count("800m") == write - 1 + after
    for _ in range(4):  # settled, the rest acts
        cluster.round()
    # what never reached the cluster is written down as failed, and rests for an hour
    assert [cpu(cluster, workload) for workload in workloads].count("800m") == 3 - (not after)
    states = [status.state for status in cluster.statuses()]
    assert len(states) == 3 and states.count(ChangeState.APPLIED) == 3 - (not after)
    assert cluster.events().count("accepted") == 3
    cluster.ahead_seconds = 2 * HOUR
    for _ in range(2):
        cluster.round()
    assert [cpu(cluster, workload) for workload in workloads].count("800m") == 3


def test_the_rest_of_a_canary_waits_while_it_is_paused_and_is_resized_in_place_afterwards(
    cluster: AutopilotScene, web: WorkloadRef, webhook: WebhookService
) -> None:
    acting(cluster, ways=["InPlace"], canaryShare=0.5)
    (act,) = cluster.round()[2]
    assert {status.state for status in act.changes} == {ChangeState.APPLIED, ChangeState.WAITING}
    assert cpus(cluster.plane, web) == ["1", "800m"]
    cluster.service().pause(APPROVER, "incident")
    cluster.ahead_seconds = 2 * HOUR
    for _ in range(2):
        cluster.round()
    # the first pod is verified, and the other one is left as it is
    assert sorted(s.state for s in cluster.statuses()) == [ChangeState.VERIFIED, ChangeState.WAITING]
    assert cpus(cluster.plane, web) == ["1", "800m"]
    cluster.service().resume(APPROVER)
    cluster.round()
    assert cpus(cluster.plane, web) == ["800m", "800m"]
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in pods(cluster.plane, web))


def test_memory_rises_in_the_round_after_a_kill_that_no_scan_has_seen(
    cluster: AutopilotScene, web: WorkloadRef, webhook: WebhookService
) -> None:
    inputs = {"days": 14.0, "coverage": 1.0}
    stays = [
        Value(Resource.MEMORY, which, now, now, Action.SET, Reason.OK, inputs=inputs)
        for which, now in ((Field.REQUEST, GIB), (Field.LIMIT, 2 * GIB))
    ]
    cluster.recommendations = [replace(cluster.recommendations[0], values=tuple(stays))]
    shut = shut_window(SystemClock().now_seconds())
    acting(cluster, ways=["InPlace"], windows=[shut], canaryShare=0.5)
    assert cluster.round()[2] == []
    name = pods(cluster.plane, web)[0]["metadata"]["name"]
    end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": datetime.now(UTC).isoformat()}
    patch = [{"op": "add", "path": "/status/containerStatuses/0/lastState", "value": {"terminated": end}}]
    cluster.plane.api().patch(f"/api/v1/namespaces/{web.namespace}/pods/{name}/status", patch, "json")
    (act,) = cluster.round()[2]  # it waits neither for the window nor for a canary
    assert [status.state for status in act.changes] == [ChangeState.APPLIED], act.words
    # killed at 2 GiB: 1.2 times that, in whole MiB, in both pods
    resources = [pod["spec"]["containers"][0]["resources"] for pod in pods(cluster.plane, web)]
    amounts = [(r["requests"]["memory"], r["limits"]["memory"]) for r in resources]
    assert amounts == [("2458Mi", "2458Mi")] * 2
    cluster.ahead_seconds = 2 * HOUR
    (after,) = cluster.round()[0].queue
    assert after.candidate.urgent is None  # the same kill raises it once


def test_what_a_gitops_tool_keeps_is_resized_in_place_and_its_next_reconciliation_takes_nothing_back(
    cluster: AutopilotScene, web: WorkloadRef, webhook: WebhookService
) -> None:
    api, path = cluster.plane.api(), f"/apis/apps/v1/namespaces/{web.namespace}/deployments/web"
    spec = api.get(path)["spec"]
    meta = {"name": "web", "labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}

    def reconcile() -> Json:
        return api.patch(path, manifest, "apply", fieldManager="kustomize-controller", force="true")

    reconcile()
    ready(cluster.plane, web)
    acting(cluster, ways=["RollOut", "InPlace"])
    (act,) = cluster.round()[2]
    assert {status.state for status in act.changes} == {ChangeState.APPLIED, ChangeState.WAITING}
    for hours in (2, 4):  # the first pod is verified and the rest done; then that is verified too
        reconcile()
        ready(cluster.plane, web)
        cluster.ahead_seconds = hours * HOUR
        cluster.round()
    assert (cpu(cluster, web), cpus(cluster.plane, web)) == ("1", ["800m", "800m"])
    assert "cotenant.dev/resources" in reconcile()["metadata"]["annotations"]
    cluster.round()
    assert {status.state for status in cluster.statuses()} == {ChangeState.VERIFIED}
    assert "autopilot-left-alone" not in cluster.events()


def test_the_rest_of_a_canary_is_never_done_once_the_approval_is_taken_back(
    cluster: AutopilotScene, web: WorkloadRef, webhook: WebhookService
) -> None:
    acting(cluster, ways=["InPlace"], canaryShare=0.5)
    (act,) = cluster.round()[2]
    assert {status.state for status in act.changes} == {ChangeState.APPLIED, ChangeState.WAITING}
    cluster.service().observe(APPROVER, f"{cluster.namespace}/nightly")
    cluster.ahead_seconds = 2 * HOUR
    moved = [status for _ in range(2) for status in cluster.round()[1]]
    # the first pod is still judged; the other one keeps what it has
    assert sorted(s.state for s in moved) == [ChangeState.CANCELLED, ChangeState.VERIFIED]
    assert cpus(cluster.plane, web) == ["1", "800m"]


def test_what_was_decided_in_a_window_is_not_begun_after_it(cluster: AutopilotScene, web: WorkloadRef) -> None:
    now_seconds = SystemClock().now_seconds()
    acting(cluster, windows=[shut_window(now_seconds)])
    rounds = cluster.rounds()
    reading = rounds.read(now_seconds - 12 * HOUR)  # half a day ago it was open
    assert [e.verdict for e in reading.queue] == [QueueVerdict.ACT]
    _, (late,) = rounds.carry_out(reading)
    assert late.paused and "window has closed" in late.words
    assert cluster.events() == ["autopilot-act"] and cpu(cluster, web) == "1"


def test_what_was_decided_under_a_policy_is_not_begun_once_that_is_edited(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    acting(cluster)
    rounds = cluster.rounds()
    reading = rounds.read(SystemClock().now_seconds())
    assert [e.verdict for e in reading.queue] == [QueueVerdict.ACT]
    cluster.plane.api().patch(f"{cluster.policies}/nightly", {"spec": {"atOnce": 4}})
    _, (paused_act,) = rounds.carry_out(reading)
    assert paused_act.paused and "was changed after the round was decided" in paused_act.words
    assert cluster.events() == ["autopilot-act"] and cpu(cluster, web) == "1"


def test_an_autoscaler_is_lent_replicas_with_the_rights_of_an_install_and_gives_them_back(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    ceiling = msgspec.structs.replace(cluster.settings.autopilot.ceiling, replica_floor_factor=3.0)
    autopilot = msgspec.structs.replace(cluster.settings.autopilot, ceiling=ceiling)
    cluster.settings = msgspec.structs.replace(cluster.settings, autopilot=autopilot)
    path, api = f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers", cluster.plane.api()
    target = {"apiVersion": "apps/v1", "kind": web.kind, "name": web.name}
    meta = {"name": "web", "annotations": {"team": "shop"}}
    api.create(path, {"metadata": meta, "spec": {"minReplicas": 1, "maxReplicas": 2, "scaleTargetRef": target}})
    acting(cluster)
    start = int(SystemClock().now_seconds()) // HALF_HOUR_SECONDS * HALF_HOUR_SECONDS
    cluster.forecasts = {web: FloorForecast(start, (5, 5))}

    def look() -> tuple[list[tuple[str, str]], int, set[str]]:
        rounds = cluster.rounds()
        steps = rounds.hold_floors(rounds.read(ShiftedClock(cluster.ahead_seconds).now_seconds()))
        body = api.get(f"{path}/web")
        return [(s.event, s.refused) for s in steps], body["spec"]["minReplicas"], set(body["metadata"]["annotations"])

    # 3 x 1 of the 5 that are asked for; the autoscaler may have 2
    assert look() == ([("autopilot-floor-raised", "")], 2, {"team", "cotenant.dev/lent-floor"})
    cluster.ahead_seconds = HOUR
    assert look() == ([("autopilot-floor-ended", "")], 1, {"team"})


def test_a_right_that_is_missing_is_shown_and_rests_until_a_person_resumes(
    cluster: AutopilotScene, web: WorkloadRef
) -> None:
    cluster.policy(mode="Observe", ways=["RollOut"])
    cluster.service().act(APPROVER, f"{cluster.namespace}/nightly")  # nobody has bound cotenant-applier to the manager
    rounds = cluster.rounds()
    (refused,) = rounds.carry_out(rounds.read(SystemClock().now_seconds()))[1]
    assert refused.is_forbidden and refused.changes == ()
    reading = rounds.read(SystemClock().now_seconds())
    assert [e.reason for e in reading.queue] == [Reason.AUTOPILOT_REFUSED]
    assert own_policy(cluster, reading).gap == refused.words and "forbidden" in refused.words
    cluster.bind()
    cluster.service().resume(APPROVER, web, "bound")
    _, (act,) = rounds.carry_out(rounds.read(SystemClock().now_seconds()))
    assert act.changes and own_policy(cluster, rounds.read(SystemClock().now_seconds())).gap == ""


def test_harm_is_rolled_back_and_the_same_is_not_tried_again(cluster: AutopilotScene, web: WorkloadRef) -> None:
    acting(cluster)
    assert cluster.round()[2][0].changes
    wait_for("the roll-out", lambda: is_rolled_out(cluster, web))
    cluster.compared = (Compared(Measure.THROTTLED, 0.01, 0.5),)
    cluster.ahead_seconds = 2 * HOUR
    moved = [status.state for status in cluster.round()[1]]
    assert moved == [ChangeState.ROLLED_BACK] and cpu(cluster, web) == "1"
    reading, _, acts = cluster.round()
    (entry,) = reading.queue
    assert acts == [] and entry.reason is Reason.AUTOPILOT_GUARDRAIL and entry.words.startswith("tried-before: ")


def test_a_starting_pod_gets_cpu_in_place_and_gives_it_back_when_it_is_ready(
    cluster: AutopilotScene, node: Kubelet
) -> None:
    ceiling = msgspec.structs.replace(cluster.settings.autopilot.ceiling, start_up_factor=3.0)
    autopilot = msgspec.structs.replace(cluster.settings.autopilot, ceiling=ceiling)
    cluster.settings = msgspec.structs.replace(cluster.settings, autopilot=autopilot)
    workload = deployed(cluster.plane, cluster.namespace, nodeSelector={"test/own": node.node})
    cluster.recommend(workload, amount=1000)  # nothing is to change but the starts
    (advice,) = cluster.recommendations
    starts = [replace(value, inputs={**value.inputs, "startup_max": 2500}) for value in advice.values]
    cluster.recommendations = [replace(advice, values=tuple(starts))]
    acting(cluster, ways=["InPlace"])
    rounds = cluster.rounds()
    reading = rounds.read(ShiftedClock(0.0).now_seconds())
    assert rounds.help_starts(reading) == []  # its pods are ready
    node.starting = True
    try:
        wait_for("its pods start", lambda: all(ready_since(pod) is None for pod in pods(cluster.plane, workload)))
        assert [step.event for step in rounds.help_starts(reading)] == ["autopilot-boosted"] * 2
        # what its starts used, 2500m, is less than 3 x 1000m
        assert cpus(cluster.plane, workload) == ["2500m", "2500m"] and cpu(cluster, workload) == "1"
        again = cluster.rounds()  # a process that has just started
        assert again.help_starts(again.read(ShiftedClock(0.0).now_seconds())) == []
    finally:
        node.starting = False
    wait_for("its pods are ready", lambda: all(ready_since(pod) is not None for pod in pods(cluster.plane, workload)))
    assert {step.words for step in again.help_starts(reading)} == {"the pod is ready"}
    assert cpus(cluster.plane, workload) == ["1", "1"] and again.help_starts(reading) == []
    assert cluster.events()[-4:] == ["autopilot-boosted"] * 2 + ["autopilot-boost-ended"] * 2
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods(cluster.plane, workload)] == [0, 0]
