"""The demo as Kubernetes objects, on the embedded server and from the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.cluster import ContainerRole, Inventory
from cotenant.base.kube import connect, send_all
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.base.usage.usage import Signal
from cotenant_lab.simulation import objects
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.cluster_population import PREFIX, fake_nodes, resident
from cotenant_lab.synthetic import SyntheticSpec
from tests.cluster.api import Api
from tests.contract.target import embedded_api
from tests.support.command_line import LEAN, cotenant

SPEC = SyntheticSpec(4, 20, 1, 7)
WITH_SIDECARS = SyntheticSpec(5, 60, 1, 7)
SIZE = {"cpu": "32", "memory": "128Gi", "pods": "110"}
NODE = {"metadata": {"name": "precious"}, "status": {"capacity": SIZE, "allocatable": SIZE}}


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def api(server: EmbeddedServer) -> Api:
    return embedded_api(server)


@pytest.fixture
def kubeconfig(server: EmbeddedServer, tmp_path: Path) -> str:
    return str(server.write_kubeconfig(tmp_path / "kubeconfig"))


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return cotenant("demo", "--nodes", "4", "--workloads", "20", "--days", "1", "--once", *arguments, variables=LEAN)


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo's history goes."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def object_counts(api: Api) -> dict[str, int]:
    paths = {"deployments": "apis/apps/v1", "statefulsets": "apis/apps/v1", "daemonsets": "apis/apps/v1"}
    paths |= {"cronjobs": "apis/batch/v1", "jobs": "apis/batch/v1", "pods": "api/v1", "nodes": "api/v1"}
    return {
        name: len(api.items(f"/{root}/{name}", labelSelector="cotenant.dev/demo=true")) for name, root in paths.items()
    }


def test_the_whole_inventory_is_accepted_with_its_pods_on_their_nodes(api: Api, kubeconfig: str) -> None:
    inventory = resident(SPEC, fake_nodes(SPEC)).inventory
    client = connect(KubeSettings(kubeconfig=kubeconfig))
    for part in (objects.namespaces, objects.workloads, objects.pods):  # a status after its object
        refused = [
            outcome.error for outcome in send_all(client, list(part(inventory)), "demo", workers=1) if not outcome.ok
        ]
        assert refused == []
    refused = [
        o.error
        for o in send_all(client, list(objects.nodes(inventory.nodes, fake=True)), "demo", workers=1)
        if not o.ok
    ]
    assert refused == []
    running = [pod for pod in inventory.pods if pod.running]
    assert object_counts(api)["pods"] == len(running)
    node = running[0].node
    on_node = api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node},status.phase=Running")
    controlled = [pod for pod in running if pod.node == node and pod.workload.kind != "Pod"]
    assert len(on_node) == len(controlled)


def test_a_sidecar_of_the_history_is_one_on_the_cluster_so_that_its_workload_can_be_changed() -> None:
    inventory = resident(WITH_SIDECARS, fake_nodes(WITH_SIDECARS)).inventory
    expected = {
        (f"{PREFIX}{w.ref.namespace}", w.ref.name): [c.name for c in w.containers if c.role is ContainerRole.SIDECAR]
        for w in inventory.workloads
        if w.ref.kind == "Deployment"
    }
    assert any(expected.values())
    bodies = [it.body for it in objects.workloads(inventory) if it.address.resource == "deployments"]
    specs = {(b["metadata"]["namespace"], b["metadata"]["name"]): b["spec"]["template"]["spec"] for b in bodies}
    always = {
        key: [c["name"] for c in spec.get("initContainers", []) if c["restartPolicy"] == "Always"]
        for key, spec in specs.items()
    }
    assert always == expected


def test_showing_writes_nothing(api: Api, kubeconfig: str) -> None:
    shown = demo("--cluster", kubeconfig, "--fake-nodes")
    assert shown.returncode == 0, shown.stderr
    assert "4 nodes" in shown.stdout
    assert set(object_counts(api).values()) == {0}


@pytest.mark.slow
def test_applying_creates_every_workload_and_removing_takes_all_out(api: Api, kubeconfig: str) -> None:
    done = demo("--cluster", kubeconfig, "--fake-nodes", "--apply")
    assert done.returncode == 0, done.stderr
    counts = object_counts(api)
    assert (counts["nodes"], sum(counts.values()) - counts["nodes"]) == (4, 20)
    assert (
        demo("--cluster", kubeconfig, "--apply").returncode == 0
    )  # again: its own nodes are a test's, what is there stays
    assert object_counts(api) == counts
    api.create("/api/v1/namespaces", {"metadata": {"name": "mine", "labels": {"cotenant.dev/demo": "true"}}})
    removed = demo("--cluster", kubeconfig, "--remove", "--apply")
    assert removed.returncode == 0, removed.stderr
    assert set(object_counts(api).values()) == {0}
    assert api.exists("/api/v1/namespaces/mine")


def test_a_cluster_with_real_nodes_is_refused_unless_one_insists(api: Api, kubeconfig: str) -> None:
    api.create("/api/v1/nodes", NODE)
    refused = demo("--cluster", kubeconfig, "--apply")
    assert refused.returncode == 2
    assert set(object_counts(api).values()) == {0}
    insisted = demo("--cluster", kubeconfig, "--apply", "--yes")
    assert (insisted.returncode, "No node is fake" in insisted.stderr) == (0, True)
    assert sum(object_counts(api).values()) == 20


@pytest.mark.soak
def test_a_node_labelled_as_a_tests_is_no_obstacle(api: Api, kubeconfig: str) -> None:
    api.create("/api/v1/nodes", {**NODE, "metadata": {"name": "mine", "labels": {"cotenant.dev/test": "true"}}})
    assert demo("--cluster", kubeconfig, "--apply").returncode == 0


@pytest.mark.slow
def test_the_history_lies_under_the_clusters_name_with_the_names_of_the_objects(
    api: Api, kubeconfig: str, data_home: Path
) -> None:
    assert demo("--cluster", kubeconfig, "--fake-nodes", "--apply").returncode == 0
    store = Store((data_home / "cotenant").as_uri(), connect(KubeSettings(kubeconfig=kubeconfig)).access.cluster)
    inventory = store.read_inventory()
    assert inventory
    stored = {(w.ref.namespace, w.ref.name) for w in inventory.workloads if w.ref.kind == "Deployment"}
    deployments = api.items("/apis/apps/v1/deployments", labelSelector="cotenant.dev/demo=true")
    assert stored == {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in deployments} != set()
    nodes = api.items("/api/v1/nodes", labelSelector="cotenant.dev/demo=true")
    assert {node.name for node in inventory.nodes} == {n["metadata"]["name"] for n in nodes}
    assert store.span(Signal.CPU_USAGE_MEAN)
    demo("--cluster", kubeconfig, "--remove", "--apply")
    assert store.read_inventory() == inventory
    assert demo("--cluster", kubeconfig, "--remove", "--apply", "--remove-store").returncode == 0
    assert store.read_inventory() is None


def test_history_that_no_demo_made_is_never_replaced(api: Api, kubeconfig: str, data_home: Path) -> None:
    store = Store((data_home / "cotenant").as_uri(), connect(KubeSettings(kubeconfig=kubeconfig)).access.cluster)
    mine = Inventory(store.cluster, 0, (), (), ())
    store.write_inventory(mine)
    for arguments in (("--fake-nodes",), ("--remove", "--remove-store")):
        refused = demo("--cluster", kubeconfig, *arguments, "--apply")
        assert (refused.returncode, "that no demo wrote" in refused.stderr) == (2, True)
    assert store.read_inventory() == mine
    assert set(object_counts(api).values()) == {0}


@pytest.mark.soak
def test_without_the_kind_nobody_is_told_and_the_workloads_are_there(kubeconfig: str) -> None:
    done = demo("--cluster", kubeconfig, "--fake-nodes", "--apply")
    assert (done.returncode, "NodeMetric is not installed" in done.stderr) == (0, True)


def test_a_cluster_without_nodes_says_what_to_do(kubeconfig: str) -> None:
    refused = demo("--cluster", kubeconfig)
    assert (refused.returncode, "--fake-nodes" in refused.stderr) == (2, True)


def test_somebody_elses_namespace_of_that_name_is_left_alone(api: Api, kubeconfig: str) -> None:
    name = next(objects.namespaces(resident(SPEC, fake_nodes(SPEC)).inventory)).address.name
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert demo("--cluster", kubeconfig, "--fake-nodes", "--apply").returncode == 2
    assert set(object_counts(api).values()) == {0}


@pytest.mark.slow
def test_the_words_of_a_cluster_need_a_cluster() -> None:
    assert demo("--apply").returncode == 2
