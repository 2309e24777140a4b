"""The agent and a real API server: what it may do and may not, what it hears, reports and asks."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.colocation.nodemetric import CollectPolicy, NodeMetric
from cotenant.base.errors import ClusterDenied, ClusterInvalid
from cotenant.base.kube import KubeClient, Writer, access_review
from cotenant.base.kube.incluster import service_account
from cotenant.base.kubernetes.intent import Address, Apply, Intent
from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.protocol import SUPPRESSED_FRACTION_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.apply.eviction_worker import EvictionAnswer, Evictor
from cotenant.enforcer.contract import CpuUse, Evict, MemoryUse
from cotenant.enforcer.decide.evictions import request_of
from cotenant.enforcer.report.node_metric_writer import NOTE_SECONDS, PATH, Reporter, Whose
from cotenant.enforcer.report.suppressed import SuppressionHistory, note, withdrawal
from cotenant.enforcer.report.usage import UsageHistory, node_metric, own_object
from cotenant.enforcer.sources.documents import inventory_of, policy_of
from cotenant.enforcer.sources.sources import ApiSources
from cotenant.profiler.node_metric.status import ProdOutlook, Report
from cotenant.profiler.node_metric.turn import ReportContext, ReportDecision, outlooks, turn_of
from cotenant.scheduler_ext.extender.metric import node_of
from tests.cluster import needing
from tests.cluster.accounts import account
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.enforcer import readings
from tests.enforcer.agents import BATCH, KNOBS, SUPPRESS, Running
from tests.enforcer.tokens import ACCOUNT, NAMESPACE, ROOT, agent_access, agent_files, installed, manifests
from tests.support import kubepods
from tests.support.kubepods import Kubepods

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("agent-cluster")]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of its own with the nodes a-0 and b-0, the agent's rights and its guards."""
    needing.kubernetes()
    options = Options(frozenset({CONTROLLER_MANAGER}), heartbeats=False)
    with ControlPlane(tmp_path_factory.mktemp("agents"), options) as plane:
        installed(plane)
        for prefix in "ab":
            create_nodes(plane, 1, NodeShape(prefix=prefix))
        yield plane


@pytest.fixture(scope="module")
def agent(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> KubeClient:
    """The agent of node a-0."""
    return KubeClient(agent_access(plane, "a-0", tmp_path_factory.mktemp("token")), KubeSettings(retries=1))


@pytest.fixture
def space(plane: ControlPlane) -> str:
    return create_namespace(plane.api(), unique_name("agent"))


def pod(plane: ControlPlane, space: str, node: str, **metadata: Any) -> dict[str, Any]:
    body = {
        "metadata": {"name": unique_name("p"), **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none", "resources": BATCH}]},
    }
    created: dict[str, Any] = plane.api().create(f"/api/v1/namespaces/{space}/pods", body)
    return created


def leaving(plane: ControlPlane, pod_body: dict[str, Any]) -> bool:
    """Whether it was told to go; without a kubelet it never does."""
    path = f"/api/v1/namespaces/{pod_body['metadata']['namespace']}/pods/{pod_body['metadata']['name']}"
    return "deletionTimestamp" in plane.api().get(path)["metadata"]


def evict_of(pod_body: dict[str, Any], uid: str = "") -> Evict:
    meta = pod_body["metadata"]
    return Evict(meta["namespace"], meta["name"], uid or meta["uid"], "memory-evict", "memory is short")


def refused(agent: KubeClient, intent: Intent) -> bool:
    """Whether the guards refuse a write; of a pod that they have not heard of yet they may know no answer."""
    try:
        Writer(agent, "t").send(intent, dry_run=True)
    except ClusterInvalid as error:
        return isinstance(error, ClusterDenied)
    return False


def guarded(plane: ControlPlane, agent: KubeClient) -> None:
    """The guards are in force a moment after they are made."""
    wait_for("the guards", lambda: refused(agent, own_object("b-0", "u", CollectPolicy())))


def test_an_agent_writes_the_metric_of_its_own_node_and_of_no_other(plane: ControlPlane, agent: KubeClient) -> None:
    guarded(plane, agent)
    writer = Writer(agent, "cotenant-enforcer")
    # An owner that is not there would have the garbage collector delete the object while the test runs.
    own, foreign = (node_of_name(plane, name)["metadata"]["uid"] for name in ("a-0", "b-0"))
    assert writer.send(own_object("a-0", own, CollectPolicy()))["metadata"]["name"] == "a-0"
    Writer(plane.admin_client(), "admin").send(own_object("b-0", foreign, CollectPolicy()))
    with pytest.raises(ClusterDenied, match="its own node alone"):
        writer.send(status_of("b-0"))
    writer.send(status_of("a-0"))
    assert "status" in plane.api().get(f"{PATH}/a-0") and "status" not in plane.api().get(f"{PATH}/b-0")


def node_of_name(plane: ControlPlane, name: str) -> dict[str, Any]:
    node_body: dict[str, Any] = plane.api().get(f"/api/v1/nodes/{name}")
    return node_body


def test_an_agent_says_on_its_node_how_much_best_effort_was_held_back_and_nothing_else(
    plane: ControlPlane, agent: KubeClient
) -> None:
    guarded(plane, agent)
    suppression = SuppressionHistory(((int(time.time() // 60), 90.0, 360.0),))  # 90 of 360 s
    node_note, foreign = note("a-0", suppression, {}), note("b-0", suppression, {})
    assert node_note is not None and foreign is not None
    wait_for("the guard of nodes", lambda: refused(agent, foreign))
    before = node_of_name(plane, "a-0")
    reporter = Reporter(agent, Whose("a-0", lambda: ""), lambda _: None, 60.0, lambda: node_note)
    assert reporter.annotate(1000.0)
    assert not reporter.annotate(1000.0 + NOTE_SECONDS - 1)  # Nodes are written seldom
    assert reporter.annotate(1000.0 + NOTE_SECONDS)
    after = node_of_name(plane, "a-0")
    assert after["metadata"]["annotations"][SUPPRESSED_FRACTION_ANNOTATION] == "0.25"
    assert node_of(msgspec.convert(after, SchedulableNode)).suppressed == 0.25  # as the extender reads it
    assert after["metadata"].get("labels") == before["metadata"].get("labels")
    assert note("a-0", suppression, after["metadata"]["annotations"]) is None
    assert SUPPRESSED_FRACTION_ANNOTATION not in node_of_name(plane, "b-0")["metadata"].get("annotations", {})
    # ends, and no other agent takes over: a schedulers' reader would take a former share for the present one
    reporter.stop(withdrawal("a-0", after["metadata"]["annotations"]))
    ended = node_of_name(plane, "a-0")
    assert math.isnan(node_of(msgspec.convert(ended, SchedulableNode)).suppressed)
    assert ended["metadata"].get("annotations") == before["metadata"].get("annotations")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"stolen": "yes"}}},
        {"metadata": {"annotations": {"node.koordinator.sh/raw-allocatable": "{}"}}},
        {"metadata": {"finalizers": ["cotenant.dev/stays"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
    ],
    ids=["label", "annotation", "finalizer", "cordon", "taint"],
)
def test_everything_else_of_its_node_is_closed_to_an_agent(
    plane: ControlPlane, agent: KubeClient, change: dict[str, Any]
) -> None:
    guarded(plane, agent)
    node_note = note("b-0", SuppressionHistory(((0, 1.0, 360.0),)), {})
    assert node_note is not None
    wait_for("the guard of nodes", lambda: refused(agent, node_note))
    metadata = {"name": "a-0", **change.get("metadata", {})}
    body = {"apiVersion": "v1", "kind": "Node", **change, "metadata": metadata}
    with pytest.raises(ClusterDenied, match="alone"):
        Writer(agent, "t").send(Apply(Address("v1", "nodes", "a-0"), body))
    taken = {**body, "metadata": {"name": "a-0", "annotations": {SUPPRESSED_FRACTION_ANNOTATION: "0.5"}}, "spec": {}}
    assert not refused(agent, Apply(Address("v1", "nodes", "a-0"), taken))


def test_an_agent_evicts_from_its_own_node_and_from_no_other(
    plane: ControlPlane, agent: KubeClient, space: str
) -> None:
    guarded(plane, agent)
    labels = {"koordinator.sh/qosClass": "BE"}
    mine, theirs, web = (
        pod(plane, space, node, labels=own) for node, own in (("a-0", labels), ("b-0", labels), ("a-0", {}))
    )
    writer = Writer(agent, "cotenant-enforcer")
    wait_for("the guard to hear of the pod", lambda: refused(agent, request_of(evict_of(theirs), -1)))
    with pytest.raises(ClusterDenied, match="its own node alone"):
        writer.send(request_of(evict_of(theirs), -1))
    assert not leaving(plane, theirs)
    with pytest.raises(ClusterDenied, match="best effort"):
        writer.send(request_of(evict_of(web), -1))
    assert not leaving(plane, web)
    writer.send(request_of(evict_of(mine), 0))
    path = f"/api/v1/namespaces/{space}/pods/{mine['metadata']['name']}"
    assert not plane.api().exists(path)


def test_a_token_that_names_no_node_may_write_nothing(plane: ControlPlane, space: str, tmp_path: Path) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token_response = plane.api().create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", body)
    files = agent_files(plane, "a-0", tmp_path)
    Path(files.token).write_text(token_response["status"]["token"])
    stranger = KubeClient(service_account(files, {}), KubeSettings(retries=0))
    guarded(plane, stranger)
    with pytest.raises(ClusterDenied):
        Writer(stranger, "t").send(own_object("a-0", "u", CollectPolicy()), dry_run=True)
    pod_body = pod(plane, space, "a-0")
    wait_for("the guard to hear of the pod", lambda: refused(stranger, request_of(evict_of(pod_body), -1)))
    with pytest.raises(ClusterDenied):
        Writer(stranger, "t").send(request_of(evict_of(pod_body), -1))
    assert not leaving(plane, pod_body)


@pytest.mark.parametrize(
    ("verb", "resource", "group", "subresource", "may"),
    [
        ("list", "pods", "", "", True),
        ("create", "pods", "", "eviction", True),
        ("delete", "pods", "", "", False),
        ("create", "pods", "", "", False),
        ("patch", "nodes", "", "", True),  # one annotation: the guard
        ("patch", "nodes", "", "status", False),
        ("create", "nodes", "", "", False),
        ("get", "nodes", "", "proxy", False),
        ("get", "secrets", "", "", False),
        ("patch", "nodeslos", "slo.koordinator.sh", "", False),
        ("delete", "nodemetrics", "slo.koordinator.sh", "", False),
    ],
)
def test_its_rights_are_those_it_uses(
    agent: KubeClient, verb: str, resource: str, group: str, subresource: str, may: bool
) -> None:
    assert access_review(agent, verb, resource, group, subresource=subresource) is may


def test_it_hears_of_its_own_nodes_pods_policy_and_changes(plane: ControlPlane, agent: KubeClient, space: str) -> None:
    mine = pod(plane, space, "a-0", labels={"koordinator.sh/qosClass": "BE"})
    theirs = pod(plane, space, "b-0")
    sources = ApiSources(agent, "a-0")
    sources.start()
    try:
        assert sources.wait(60)
        inputs = sources.read()
        uids = {p.uid for p in inputs.pods}
        assert mine["metadata"]["uid"] in uids and theirs["metadata"]["uid"] not in uids
        assert (inputs.node.name, inputs.policy_origin) == ("a-0", "no NodeSLO: all strategies are off")
        assert inputs.policy is not None and not inputs.policy.thresholds.enable
        assert inputs.pods_age_seconds < 60 and inputs.policy_age_seconds < 60 and inputs.notes == ()
        slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "a-0"}}
        enabled = {"spec": {"resourceUsedThresholdWithBE": {"enable": True}}}
        plane.api().create("/apis/slo.koordinator.sh/v1alpha1/nodeslos", slo | enabled)
        wait_for("the policy", lambda: (p := sources.read().policy) is not None and p.thresholds.enable)
        plane.api().delete("/apis/slo.koordinator.sh/v1alpha1/nodeslos/a-0")
        wait_for("no policy", lambda: (p := sources.read().policy) is not None and not p.thresholds.enable)
        late = pod(plane, space, "a-0")
        wait_for("the new pod", lambda: late["metadata"]["uid"] in {p.uid for p in sources.read().pods})
    finally:
        sources.stop()
    assert sources.read().policy is not None


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_kubectl_prints_is_what_the_agent_takes_as_files(plane: ControlPlane, space: str, form: str) -> None:
    pod_body = pod(plane, space, "a-0", labels={"koordinator.sh/qosClass": "BE"})
    inventory = inventory_of(plane.kubectl("get", "pods", "-A", "-o", form), "pods")
    (mine,) = [p for p in inventory.pods if p.uid == pod_body["metadata"]["uid"]]
    assert (mine.qos_class, mine.containers[0].requests["kubernetes.io/batch-cpu"]) == (QosClass.BE, 1000)
    node = inventory_of(plane.kubectl("get", "node", "a-0", "-o", form), "node").node
    assert node is not None and node.capacity["cpu"] == 16_000
    slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": f"of-{form}"}}
    enabled = {"spec": {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 61}}}
    plane.api().create("/apis/slo.koordinator.sh/v1alpha1/nodeslos", slo | enabled)
    read = policy_of(plane.kubectl("get", "nodeslo", f"of-{form}", "-o", form), "policy")
    assert read.thresholds.cpu_suppress_threshold_percent == 61


def test_while_the_api_server_is_away_the_last_policy_holds_and_grows_old(
    plane: ControlPlane, agent: KubeClient, space: str
) -> None:
    slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "a-0"}}
    enabled = {"spec": {"resourceUsedThresholdWithBE": {"enable": True}}}
    plane.api().create("/apis/slo.koordinator.sh/v1alpha1/nodeslos", slo | enabled)
    sources = ApiSources(agent, "a-0")
    sources.start()
    server = plane.servers[APISERVER]
    try:
        wait_for("the policy", lambda: (p := sources.read().policy) is not None and p.thresholds.enable)
        server.kill()
        wait_for("an error", lambda: sources.read().notes)
        wait_for("a second of silence", lambda: sources.read().policy_age_seconds > 1)
        inputs = sources.read()
        assert inputs.policy is not None and inputs.policy.thresholds.enable
        server.start()
        server.wait_until(plane.ready)
        late = pod(plane, space, "a-0")
        wait_for("the new pod", lambda: late["metadata"]["uid"] in {p.uid for p in sources.read().pods})
        wait_for("no error", lambda: not sources.read().notes)
    finally:
        sources.stop()
        if not server.running:
            plane.restart_apiserver()
        plane.api().delete("/apis/slo.koordinator.sh/v1alpha1/nodeslos/a-0")
    assert sources.read().policy is not None


def status_of(node: str, at: float | None = None) -> Any:
    """The status of a node after half a minute, as the agent makes it."""
    web = readings.pod("web", cpu=CpuUse(300.0), memory=MemoryUse(1 << 30, 1 << 30))
    usage, last = UsageHistory(), readings.observation_of()
    for second in range(30):
        machine = replace(readings.node(4, 1000.0), name=node)
        last = replace(readings.observation_of(web, machine=machine, at=float(second)), wall_seconds=at or time.time())
        usage.take(last)
    status_request = node_metric(last, usage, CollectPolicy())
    assert status_request is not None
    return status_request


def test_its_report_is_taken_by_the_api_server_and_the_manager_leaves_the_node_to_it(
    plane: ControlPlane, agent: KubeClient
) -> None:
    guarded(plane, agent)
    uid = plane.api().get("/api/v1/nodes/a-0")["metadata"]["uid"]
    reporter = Reporter(agent, Whose("a-0", lambda: uid), lambda _: status_of("a-0"), 60.0)
    assert reporter.report()
    metric = NodeMetric.parse(plane.api().get(f"{PATH}/a-0"))
    assert metric.reporter == "cotenant-enforcer" and metric.node_usage[Resource.CPU] == 1000
    assert {p.name for p in metric.pods} == {"web"}
    now = time.time()
    ours = Report("a-0", int(now), {}, {Resource.CPU: 999_999}, {})
    view = ReportContext({"a-0": uid}, "cotenant-manager", CollectPolicy(), now)
    assert turn_of(ours, metric, view) is ReportDecision.AGENT
    assert turn_of(ours, metric, replace(view, now_seconds=now + 3600)) is ReportDecision.WRITE
    manager = Writer(plane.client(account(plane, "cotenant-manager")), "cotenant-manager")
    outlook = {"a-0": ProdOutlook(reclaimable={Resource.CPU: 700})}
    for prod, reclaimable in ((outlook, {Resource.CPU: 700}), ({}, {})):
        (apply,) = outlooks(prod, {"a-0": NodeMetric.parse(plane.api().get(f"{PATH}/a-0"))}, view)
        manager.send(apply)
        metric = NodeMetric.parse(plane.api().get(f"{PATH}/a-0"))
        assert metric.prod_reclaimable == reclaimable
        assert metric.reporter == "cotenant-enforcer" and metric.node_usage[Resource.CPU] == 1000


def answered(evictor: Evictor) -> EvictionAnswer:
    answers: list[EvictionAnswer] = []
    wait_for("an answer", lambda: answers.extend(evictor.answers()) or bool(answers))
    return answers[0]


def test_an_eviction_holds_for_the_very_pod_and_keeps_to_its_disruption_budget(
    plane: ControlPlane, agent: KubeClient, space: str
) -> None:
    guarded(plane, agent)
    pod_body = pod(plane, space, "a-0", labels={"app": "x", "koordinator.sh/qosClass": "BE"})
    evictor = Evictor(agent)
    evictor.start()
    try:
        stale = evict_of(pod_body, uid="00000000-0000-0000-0000-000000000000")
        evictor.put(stale, request_of(stale, -1))
        conflict = answered(evictor)
        assert conflict.outcome == "gone", conflict.message
        assert not leaving(plane, pod_body)
        budget = {"metadata": {"name": "x"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
        plane.api().create(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets", budget)
        path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/x"
        wait_for("the budget", lambda: plane.api().get(path).get("status", {}).get("observedGeneration") == 1)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        plane.api().patch(f"/api/v1/namespaces/{space}/pods/{pod_body['metadata']['name']}/status", status)
        evictor.put(evict_of(pod_body), request_of(evict_of(pod_body), -1))
        refused = answered(evictor)
        assert refused.outcome == "refused" and "disruption budget" in refused.message
        assert not leaving(plane, pod_body)
        plane.api().delete(path)
        wait_for("no budget", lambda: not plane.api().exists(path))
        evictor.put(evict_of(pod_body), request_of(evict_of(pod_body), -1))
        assert answered(evictor).outcome == "asked"
        assert leaving(plane, pod_body)
    finally:
        evictor.stop()


ON_REAL_CGROUPS = pytest.mark.skipif(bool(kubepods.missing()), reason=f"no real cgroups: {kubepods.missing()}")
SHORT_OF_MEMORY = SUPPRESS.replace(
    "enable: true", "enable: true, memoryEvictThresholdPercent: 1, memoryEvictLowerPercent: 0"
)
"""More than the machine's whole use would have to leave: only who may not is spared."""


def of_cluster(files: Any) -> dict[str, str]:
    """Settings of an agent of node a-0 that asks the API server."""
    access = {"api_server": files.server, "token_file": files.token, "ca_file": files.ca}
    return {"enforcer.pods_file": "", "enforcer.node_name": "a-0", **{f"enforcer.{k}": v for k, v in access.items()}}


@ON_REAL_CGROUPS
def test_the_whole_agent_on_real_cgroups_and_a_real_api_server(plane: ControlPlane, space: str, tmp_path: Path) -> None:
    pod_body = pod(plane, space, "a-0", labels={"koordinator.sh/qosClass": "BE"})
    meta = pod_body["metadata"]
    files = agent_files(plane, "a-0", tmp_path)
    with Kubepods() as tree:
        mine = tree.pod(meta["name"], qos="BE", resources=BATCH, uid=meta["uid"])
        plane.api().patch(f"/api/v1/namespaces/{space}/pods/{meta['name']}/status", {"status": mine.body["status"]})
        before = tree.values(KNOBS)
        with Running(tree, tmp_path / "a", policy=SUPPRESS, settings=of_cluster(files)) as running:
            wait_for("the pod's weight", lambda: tree.read(mine.container, "cpu", "cpu.shares") == "1024")
            wait_for("ready", lambda: running.ask("/readyz")[0] == 200)
            selector = f"regarding.name={meta['name']}"
            path = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
            events = wait_for("an Event", lambda: plane.api().items(path, fieldSelector=selector))
            assert events[0]["reason"] == "ValueSet" and "be-totals" in events[0]["note"]
            assert running.end() == 0, running.log()
        assert tree.values(KNOBS) == before


@ON_REAL_CGROUPS
def test_where_memory_is_short_best_effort_leaves_and_nobody_else(
    plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    labels = {"koordinator.sh/qosClass": "BE"}
    pod_bodies = {
        "job": pod(plane, space, "a-0", labels=labels),
        "kept": pod(plane, space, "a-0", labels={**labels, "koordinator.sh/eviction-enabled": "false"}),
        "web": pod(plane, space, "a-0", labels={"koordinator.sh/qosClass": "LS"}),
        "plain": pod(plane, space, "a-0"),
    }
    files = agent_files(plane, "a-0", tmp_path)
    hold = [sys.executable, "-c", "import time; held = b'x' * (16 << 20); time.sleep(600)"]
    with Kubepods() as tree:
        for body in pod_bodies.values():
            meta = body["metadata"]
            mine = tree.pod(
                meta["name"], qos=meta.get("labels", {}).get("koordinator.sh/qosClass", ""), uid=meta["uid"]
            )
            path = f"/api/v1/namespaces/{space}/pods/{meta['name']}/status"
            plane.api().patch(path, {"status": mine.body["status"]})
            tree.run(mine, hold)
        with Running(tree, tmp_path / "a", policy=SHORT_OF_MEMORY, settings=of_cluster(files)) as running:
            wait_for("the job's eviction", lambda: leaving(plane, pod_bodies["job"]))
            running.ticked(5)
            assert [name for name, body in pod_bodies.items() if leaving(plane, body)] == ["job"]
            assert running.end() == 0, running.log()


@ON_REAL_CGROUPS
def test_victims_whose_budgets_refuse_give_their_turn_to_the_next_at_once(
    plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    """One victim under a budget that permits nobody (429), one under two budgets (500), and one that may leave."""
    labels = {"koordinator.sh/qosClass": "BE"}
    pod_bodies = {app: pod(plane, space, "a-0", labels={**labels, "app": app}) for app in ("one", "two", "free")}
    files = agent_files(plane, "a-0", tmp_path)
    sizes = {"one": 64, "two": 48, "free": 16}  # the largest leaves first
    with Kubepods() as tree:
        for app, body in pod_bodies.items():
            meta = body["metadata"]
            mine = tree.pod(meta["name"], qos="BE", uid=meta["uid"])
            path = f"/api/v1/namespaces/{space}/pods/{meta['name']}/status"
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            plane.api().patch(path, {"status": {**mine.body["status"], **ready}})
            hold = f"import time; held = b'x' * ({sizes[app]} << 20); time.sleep(600)"
            tree.run(mine, [sys.executable, "-c", hold])
        budgets = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
        for name, app in (("one", "one"), ("two-a", "two"), ("two-b", "two")):
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
            plane.api().create(budgets, {"metadata": {"name": name}, "spec": spec})
        wait_for("the budgets", lambda: all("status" in item for item in plane.api().items(budgets)))
        settings = {**of_cluster(files), "enforcer.evictions_per_minute": "1", "enforcer.evictions_burst": "1"}
        with Running(tree, tmp_path / "a", policy=SHORT_OF_MEMORY, settings=settings) as running:
            # One eviction a minute is allowed; a refused one would have cost that minute, and 60 s of waiting besides.
            wait_for("the eviction of who may leave", lambda: leaving(plane, pod_bodies["free"]), 45)
            assert not leaving(plane, pod_bodies["one"]) and not leaving(plane, pod_bodies["two"])
            events = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
            refused = wait_for("both refusals", lambda: _refusals(plane, events, 2))
            assert any("violate the pod's disruption budget" in note for note in refused)
            assert any("more than one PodDisruptionBudget" in note for note in refused)
            assert running.end() == 0, running.log()


def _refusals(plane: ControlPlane, events: str, count: int) -> list[str]:
    messages = [item["note"] for item in plane.api().items(events) if item["reason"] == "EvictionRefused"]
    return messages if len(messages) >= count else []


def test_what_is_shipped_is_not_privileged_and_mounts_what_its_comment_lists() -> None:
    (daemon,) = [body for body in manifests() if body["kind"] == "DaemonSet"]
    spec: Any = daemon["spec"]
    inside = spec["template"]["spec"]
    container, watchdog = inside["containers"]
    for each in (container, watchdog):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["securityContext"]["privileged"] is False
    # The watchdog looks at the agent's own journal and cgroups, and restores its values within five minutes.
    assert {m["mountPath"] for m in watchdog["volumeMounts"]} <= {m["mountPath"] for m in container["volumeMounts"]}
    assert float(watchdog["command"][watchdog["command"].index("--ttl-seconds") + 1]) * 1.25 < 300
    assert not any(inside.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    text = (ROOT / "deploy" / "enforcer.yaml").read_text().partition("apiVersion")[0]
    assert all(volume["hostPath"]["path"] in text for volume in inside["volumes"])
    assert {"name": "COTENANT_ENFORCER__DRY_RUN", "value": "true"} in container["env"]
