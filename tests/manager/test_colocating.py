"""Colocation resources on a real API server: who gets them, how often they are written, what the scheduler does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.controllers.loop import NoElection
from cotenant.base.kube import Mirror
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import ManagerSettings
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.features import mirrors_of
from cotenant.manager.pipeline import Pipeline
from cotenant.manager.run import Manager
from cotenant.recommender.colocation.controller import ColocationController
from cotenant.recommender.colocation.model.prod_peaks import PlacedPods, ProdPeak, StoredCensus
from cotenant.scheduler_ext.extender.load import load_aware
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.cluster_reader import read_cluster
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, BATCH_MEMORY, SLO, Scene

CPU = Resource.CPU
Start = Callable[..., Manager]
Nodes = Callable[..., list[str]]


@contextmanager
def watching(
    cluster: Scene, results: Callable[[], RunResults]
) -> Iterator[tuple[ColocationController, dict[str, Mirror[Any]]]]:
    """The controller alone before its mirrors, which have listed everything."""
    settings = Settings(manager=ManagerSettings(namespace=cluster.namespace))
    mirrors = mirrors_of(cluster.plane.client(cluster.account), settings, ["colocation"], threading.Event())
    for mirror in mirrors.values():
        mirror.start()
    try:
        wait_for("the lists", lambda: all(m.wait_synced(0) for n, m in mirrors.items() if n != "topologies"), 60)
        yield ColocationController(mirrors, results, 60.0), mirrors
    finally:
        for mirror in mirrors.values():
            mirror.stop()


def batch_pod(name: str, node: str, milli: int) -> dict[str, Any]:
    amounts = {BATCH_CPU: str(milli), BATCH_MEMORY: "1Gi"}
    return {
        "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [
                {"name": "main", "image": "example.invalid/a:1", "resources": {"requests": amounts, "limits": amounts}}
            ],
        },
    }


def test_enabling_colocation_writes_each_node_once_and_then_nothing(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    nodes = fake_nodes(5, cpu="16", memory="64Gi")
    manager = started()
    cluster.report(nodes)
    wait_for("a decision", lambda: "colocation" in manager.board.states)
    applied = cluster.plane.requests("APPLY", "nodes")
    cluster.configure(colocation_config={"enable": True})
    wait_for("batch resources on each node", lambda: cluster.lent(nodes))
    # batch-cpu: 16 cores, 40 % margin, 1 core for the system, nothing used by pods: 16000 - 6400 - 1000 = 8600.
    assert {a[BATCH_CPU] for a in cluster.allocatable(nodes).values()} == {"8600"}
    times = cluster.writes_of([f"/api/v1/nodes/{n}" for n in nodes])
    rounds = manager.rounds("colocation")
    wait_for("two more rounds", lambda: manager.rounds("colocation") >= rounds + 2)
    assert cluster.writes_of([f"/api/v1/nodes/{n}" for n in nodes]) == times
    assert cluster.plane.requests("APPLY", "nodes") - applied == len(nodes)


def test_a_node_that_goes_between_look_and_write_is_no_fault_of_the_others(cluster: Scene, fake_nodes: Nodes) -> None:
    (remaining,), deleted = fake_nodes(1, cpu="16", memory="64Gi"), unique_name("gone")
    size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    cluster.api.create(
        "/api/v1/nodes", {"metadata": {"name": deleted}, "status": {"capacity": size, "allocatable": size}}
    )
    cluster.report([deleted, remaining])
    with watching(cluster, Pipeline(Settings(), "test", NoElection()).results) as (feature, mirrors):
        assert feature.decide({n: m.changes() for n, m in mirrors.items()}, time.time()).intents == ()
        cluster.configure(colocation_config={"enable": True, "cpuReclaimTresholdPercent": 50})
        wait_for("the configuration", mirrors["config"].snapshot)
        cluster.api.delete(f"/api/v1/nodes/{deleted}")
        wait_for("the node to go", lambda: ("", deleted) not in mirrors["nodes"].snapshot())
        decision = feature.decide({}, time.time())  # it has not been told yet
        assert {deleted, remaining} <= {intent.address.name for intent in decision.intents}
        (note,) = [n for n in decision.notes if n.warning]
        assert (
            "$.cpuReclaimTresholdPercent: 50 is not a known field; do you mean cpuReclaimThresholdPercent?"
            in note.message
        )


def prod_pod(name: str, node: str, cpu: str) -> dict[str, Any]:
    requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    containers = [{"name": "main", "image": "example.invalid/a:1", "resources": requests}]
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}}


def test_a_pod_that_came_after_the_analysis_lowers_batch_cpu_at_once_and_one_that_replaced_another_does_not(
    cluster: Scene, fake_nodes: Nodes
) -> None:
    (node,), now = fake_nodes(1, cpu="16", memory="64Gi"), int(time.time())
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    census = StoredCensus(now - 1800, (PlacedPods(node, cluster.namespace, "Pod", "web", 1),))
    results = RunResults(now, prod_peaks={CPU: {node: ProdPeak(2000.0, 0.0, 9, 0.0)}}, prod_census=census)
    cluster.configure(colocation_config={"enable": True, "cpuCalculatePolicy": "forecast"})

    def report(*names: str) -> None:
        usage = {"podUsage": {"resources": {"cpu": "100m", "memory": "1Gi"}}}
        cluster.report([node], pods=[{"namespace": cluster.namespace, "name": n, **usage} for n in names])
        wait_for("the report", lambda: [p.name for p in mirrors["nodemetrics"].snapshot()["", node].pods] == [*names])

    def lent() -> int:
        intents = feature.decide({n: m.changes() for n, m in mirrors.items()}, time.time()).intents
        (body,) = [intent.body for intent in intents if isinstance(intent, Apply) and intent.address.name == node]
        return int(body["status"]["allocatable"][BATCH_CPU])

    def present(name: str) -> bool:
        return (cluster.namespace, name) in mirrors["pods"].snapshot()

    def come(name: str, cpu: str) -> None:
        def is_mirrored() -> bool:
            # kwok ends pods by their names: on a busy machine also the new one of a name that it has just ended
            if not cluster.api.exists(f"{pods}/{name}"):
                cluster.api.create(pods, prod_pod(name, node, cpu))
            return present(name)

        wait_for(f"{name} in the mirror", is_mirrored)

    cluster.report([node])
    with watching(cluster, lambda: results) as (feature, mirrors):
        wait_for("the configuration", mirrors["config"].snapshot)
        come("web", "4")
        report("web")
        # 16,000 m less 1,000 m of the system and the peak of 2,000 m, which knows one pod of web
        assert lent() == 13_000
        come("surge", "3")
        report("surge", "web")
        assert lent() == 10_000
        cluster.api.delete(f"{pods}/web")
        wait_for("web to go", lambda: not present("web"))
        come("web", "4")
        report("surge")
        assert lent() == 10_000


def test_disabling_colocation_takes_the_resources_off_the_nodes(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    nodes = fake_nodes(2)
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    started()
    wait_for("batch resources", lambda: cluster.lent(nodes))
    cluster.configure(colocation_config={"enable": False})
    wait_for("bare nodes", lambda: not any(cluster.allocatable(nodes).values()))
    assert not cluster.lent(nodes)


def test_a_batch_pod_is_scheduled_and_refused_when_less_can_be_lent(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    (node,) = fake_nodes(1, cpu="16", memory="64Gi")
    cluster.report([node], system_cpu="1")
    cluster.configure(colocation_config={"enable": True})
    started()
    wait_for("batch resources", lambda: cluster.lent([node]))
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    cluster.api.create(pods, batch_pod("first", node, 5000))
    wait_for("a bound pod", lambda: cluster.api.get(f"{pods}/first")["spec"].get("nodeName") == node)
    # 16000 - 6400 - 5000 = 4600 are left to lend, and the first pod holds 5000 of them.
    cluster.report([node], system_cpu="5")
    wait_for("a smaller amount", lambda: cluster.allocatable([node])[node][BATCH_CPU] == "4600")

    def verdict(name: str) -> str:
        """What the scheduler said of a pod: why not, or on which node; empty before it has."""
        pod = cluster.api.get(f"{pods}/{name}")
        conditions = [c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]
        return pod["spec"].get("nodeName") or next((c.get("reason", "") for c in conditions), "")

    def refused() -> bool:
        """Of a new pod: the scheduler's own view of the node may be older than what we just read."""
        name = unique_name("later")
        cluster.api.create(pods, batch_pod(name, node, 1000))
        wait_for("the scheduler's verdict", lambda: verdict(name))
        return verdict(name) == "Unschedulable"

    wait_for("an unschedulable pod", refused)
    assert verdict("first") == node


def test_a_broken_key_keeps_its_last_good_value_and_tells_people(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    nodes = fake_nodes(2)
    cluster.report(nodes)
    thresholds = {"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70}}
    cluster.configure(colocation_config={"enable": True}, resource_threshold_config=thresholds)
    started()
    wait_for("batch resources", lambda: cluster.lent(nodes))

    def evicts_at() -> set[int]:
        slos = [s for s in cluster.api.items(f"{SLO}/nodeslos") if s["metadata"]["name"] in nodes]
        return {s["spec"]["resourceUsedThresholdWithBE"]["memoryEvictThresholdPercent"] for s in slos}

    wait_for("a NodeSLO", lambda: evicts_at() == {70})
    thresholds["clusterStrategy"]["memoryEvictThresholdPercent"] = 80
    cluster.configure(colocation_config='{"enable": fals', resource_threshold_config=thresholds)
    wait_for("the other key's new value", lambda: evicts_at() == {80})
    wait_for("an Event", lambda: cluster.events("InvalidConfig"))
    wait_for("a condition", lambda: cluster.state("colocation").get("reason") == "Degraded")
    assert cluster.lent(nodes)


def test_after_a_start_with_a_broken_key_nothing_is_withdrawn(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    nodes = fake_nodes(1)
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    first = cluster.manager()
    with first:
        wait_for("batch resources", lambda: cluster.lent(nodes))
    cluster.configure(colocation_config="{")
    before = cluster.allocatable(nodes)
    second = started()
    wait_for("two decisions", lambda: second.rounds("colocation") >= 2)
    assert second.board.states["colocation"].condition is ControllerCondition.DEGRADED
    assert cluster.allocatable(nodes) == before


def test_the_examples_of_the_founding_documents_have_their_effect(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    (node,) = fake_nodes(1, cpu="8", memory="31Gi")
    cluster.report([node], system_cpu="259m")
    cluster.configure(
        colocation_config={"enable": True},
        resource_threshold_config={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 70}},
    )
    started()
    # 8000 - 3200 (margin of 40 %) - 259 = 4541 milli-cores, the number in the example's node.
    wait_for("batch-cpu", lambda: cluster.allocatable([node])[node].get(BATCH_CPU) == "4541")
    assert "koordinator.sh/batch-cpu" not in cluster.allocatable([node])[node]

    def thresholds() -> Any:
        return cluster.api.get(f"{SLO}/nodeslos/{node}")["spec"]["resourceUsedThresholdWithBE"]

    wait_for("a NodeSLO", lambda: cluster.api.exists(f"{SLO}/nodeslos/{node}"))
    assert (thresholds()["enable"], thresholds()["memoryEvictThresholdPercent"]) == (True, 70)
    cluster.configure(
        colocation_config={"enable": True}, resource_threshold_config={"clusterStrategy": {"enable": False}}
    )
    wait_for("suppression off", lambda: thresholds()["enable"] is False)


def test_fields_of_others_survive(cluster: Scene, started: Start, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1)
    capacity = {"example.com/fpga": "4"}
    foreign = {"metadata": {"labels": {"team": "a"}}, "status": {"capacity": capacity, "allocatable": capacity}}
    cluster.api.patch(f"/api/v1/nodes/{node}/status", foreign, kind="strategic")
    cluster.report([node])
    cluster.configure(colocation_config={"enable": True})
    started()
    wait_for("batch resources", lambda: cluster.lent([node]))
    cluster.configure(colocation_config={"enable": False})
    wait_for("none", lambda: BATCH_CPU not in cluster.allocatable([node])[node])
    assert cluster.allocatable([node])[node] == {"example.com/fpga": "4"}


def test_switching_to_forecast_is_one_setting_for_agents_and_extender(
    cluster: Scene, started: Start, fake_nodes: Nodes
) -> None:
    (node,) = fake_nodes(1, cpu="4", memory="64Gi")
    cluster.report([node])  # 3 of 4 cores are used: 75 %
    cluster.configure(colocation_config={"enable": True})
    started()
    # The NodeSLO comes from another feature than the batch resources, in its own time.
    wait_for("agents and extender", lambda: (threshold(cluster, node), refused(cluster, node)) == (65, True))
    wait_for("batch resources", lambda: cluster.lent([node]))
    cluster.configure(colocation_config={"enable": True, "cpuCalculatePolicy": "forecast"})
    # 0.5 cores more would be 88 %
    wait_for("agents and extender to follow", lambda: (threshold(cluster, node), refused(cluster, node)) == (95, False))
    # without a forecast the amounts are the same under both policies: nothing but the policy's name is to be written
    cluster.configure(colocation_config={"enable": True})
    wait_for("and to follow back", lambda: (threshold(cluster, node), refused(cluster, node)) == (65, True))
    assert cluster.lent([node]), "a switch takes no capacity away"


def threshold(cluster: Scene, node: str) -> int:
    """Of CPU suppression, which the node's agent reads."""
    path = f"{SLO}/nodeslos/{node}"
    spec = cluster.api.get(path)["spec"] if cluster.api.exists(path) else {}
    return int(spec.get("resourceUsedThresholdWithBE", {}).get("cpuSuppressThresholdPercent", 0))


def refused(cluster: Scene, node: str) -> bool:
    """Whether the extender's load-aware rule keeps a batch pod of half a core off the node."""
    settings = ExtenderSettings()
    client = cluster.plane.client(account(cluster.plane, "cotenant-extender", cluster.namespace))
    snapshot = read_cluster(client, settings).snapshot
    pod = facts_of(msgspec.convert(batch_pod("new", node, 500), PodWire), settings.load_aware)
    rows = snapshot.rows_of([node])
    return bool(load_aware.check_usage(snapshot.columns[:, rows], pod, time.time(), settings.load_aware).codes[0])
