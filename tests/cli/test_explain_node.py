"""`cotenant explain node`: the same numbers from a store, from a real API server, and in what is written there."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cotenant.base.errors import NoData
from cotenant.base.kube import Writer
from cotenant.base.kube.live import NodeInputs, node_inputs
from cotenant.base.kubernetes.intent import Apply, Intent, Patch
from cotenant.base.kubernetes.protocol import ORIGIN_ALLOCATABLE_ANNOTATION, THIRD_PARTY_ALLOCATIONS_ANNOTATION
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.cli.analysis.explain.explain_node import describe
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.nodes import node_explanations
from cotenant.recommender.colocation.publish import publish
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import ColocationConfig
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fixtures import FakeNodes
from tests.support.command_line import cotenant

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
BATCH_CPU = "kubernetes.io/batch-cpu"
CONFIG = '{"enable": true, "cpuReclaimThresholdPercent": 65}'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    cluster = fill(store, SyntheticSpec(nodes=3, workloads=12, days=3, seed=5), Silent())
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(cluster.inventory.time_seconds), Silent())
    daily_analysis.publish(analysis, store, Settings())
    return store


def test_a_stored_node_is_explained_in_lines_that_end_in_its_number(store: Store) -> None:
    inventory = store.read_inventory()
    assert inventory is not None
    for node in inventory.nodes:
        explained = node_explanations.of_node(store, node.name)
        text = "\n".join(describe(explained))
        assert len(explained.amounts) == 4
        for amount in explained.amounts:
            assert amount.formula in text and amount.formula.endswith(f"= {amount.amount}")
    with pytest.raises(NoData, match="no-such-node"):
        node_explanations.of_node(store, "no-such-node")


@pytest.mark.slow
def test_the_command_prints_lines_json_and_yaml(store: Store) -> None:
    inventory = store.read_inventory()
    assert inventory is not None
    name = inventory.nodes[0].name
    text = cotenant("explain", "node", name, "--store", store.url)
    assert text.returncode == 0, text.stderr
    document = json.loads(cotenant("explain", "node", name, "--store", store.url, "-o", "json").stdout)
    assert document["node"] == name
    assert all(amount["formula"] in text.stdout for amount in document["amounts"])
    missing = cotenant("explain", "node", "no-such-node", "--store", store.url)
    assert (missing.returncode, missing.stdout) == (1, "")
    wrong = cotenant("explain", "ns/workload", "more", "--store", store.url)
    assert wrong.returncode == 2 and "more" in wrong.stderr


def usage(cpu: str) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": "1Gi"}}


@pytest.fixture
def node(control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes) -> str:
    """The worked example: 100 cores, reclaim 65 %, the system uses 7, two prod pods use 11 and 22."""
    api = control_plane.api()
    install_crd(api, "nodemetrics.slo.koordinator.sh")
    (name,) = fake_nodes(1, cpu="100", memory="100Gi")
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "25", "memory": "1Gi"}}}
    for pod in ("one", "two"):
        body = {"metadata": {"name": pod}, "spec": {"nodeName": name, "containers": [container]}}
        api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    meta = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    api.create(METRICS, meta)
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    pods = [{"namespace": namespace, "name": n, "podUsage": usage(c)} for n, c in (("one", "11"), ("two", "22"))]
    status = {
        "updateTime": moment, "podsMetric": pods, "nodeMetric": {"nodeUsage": usage("40"), "systemUsage": usage("7")},
    }  # fmt: skip
    api.patch(f"{METRICS}/{name}/status", {"status": status})
    config = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": CONFIG}}
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", config)
    return name


def test_a_live_node_is_explained_from_its_objects(control_plane: ControlPlane, namespace: str, node: str) -> None:
    options = ("--set", f"manager.namespace={namespace}", "--set", f"kube.kubeconfig={control_plane.admin_kubeconfig}")
    done = cotenant(*options, "explain", "node", node, "--from-cluster")
    assert done.returncode == 0, done.stderr
    assert "max(100000 - 35000 - 7000 - 33000, 0) = 25000 millicores" in done.stdout
    assert "cpuReclaimThresholdPercent = 65, from ConfigMap colocation-config" in done.stdout
    elsewhere = ("--set", "manager.namespace=default", "--set", f"kube.kubeconfig={control_plane.admin_kubeconfig}")
    off = json.loads(cotenant(*elsewhere, "explain", "node", node, "--from-cluster", "-o", "json").stdout)
    assert {a["reason"] for a in off["amounts"]} == {"colocation-off"}
    missing = cotenant(*options, "explain", "node", "no-such-node", "--from-cluster")
    assert missing.returncode == 1 and "no node is named no-such-node" in missing.stderr


def intents(inputs: NodeInputs, *, later: float = 0.0) -> list[Intent]:
    """What the manager would write for one node."""
    state = ColocationState(ColocationConfig.parse((inputs.config_map or {})["colocation-config"]))
    state.upsert_nodes([inputs.node])
    state.upsert_pods(inputs.pods)
    state.report([inputs.metric] if inputs.metric else [])
    now = time.time() + later
    return publish(state.facts, state.strategies, state.compute(now), {}, now)


def test_amounts_are_written_once_and_withdrawn_on_a_real_server(
    control_plane: ControlPlane, namespace: str, node: str
) -> None:
    api, client = control_plane.api(), control_plane.client(account(control_plane, "cotenant-manager", namespace))
    third = {"allocations": [{"name": "y", "priority": "koord-batch", "resources": {BATCH_CPU: "1000"}}]}
    api.patch(
        f"/api/v1/nodes/{node}", {"metadata": {"annotations": {THIRD_PARTY_ALLOCATIONS_ANNOTATION: json.dumps(third)}}}
    )
    writer = Writer(client, "cotenant-manager")
    (write,) = intents(node_inputs(client, node, namespace))
    assert isinstance(write, Apply)
    writer.send(write)
    live = api.get(f"/api/v1/nodes/{node}")
    # 25,000 less the other scheduler's 1,000; what stood there before is untouched
    assert live["status"]["allocatable"][BATCH_CPU] == live["status"]["capacity"][BATCH_CPU] == "24k"
    assert live["status"]["capacity"]["cpu"] == "100"
    origin = json.loads(live["metadata"]["annotations"][ORIGIN_ALLOCATABLE_ANNOTATION])
    assert origin["resources"][BATCH_CPU] == "25000"
    assert intents(node_inputs(client, node, namespace)) == []
    # 16 minutes without a report: the keys go, and stay gone
    (removal,) = intents(node_inputs(client, node, namespace), later=960)
    assert isinstance(removal, Patch)
    writer.send(removal)
    status = api.get(f"/api/v1/nodes/{node}")["status"]
    assert not any("batch" in name or "mid" in name for side in ("capacity", "allocatable") for name in status[side])
    assert intents(node_inputs(client, node, namespace), later=960) == []
