from __future__ import annotations

from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import PodShape, create_pods, wait_running
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for


def deployment(replicas: int, label: str) -> dict:
    """Pods that may run only on nodes with the label `pool=LABEL`."""
    container = {"name": "main", "image": "example.invalid/app:1", "resources": {"requests": {"cpu": "500m"}}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeSelector": {"pool": label}, "containers": [container]},
            },
        },
    }


def test_fake_nodes_are_ready_and_keep_a_lease(control_plane: ControlPlane, fake_nodes: FakeNodes) -> None:
    names = fake_nodes(3, cpu="8", memory="32Gi")
    api = control_plane.api()
    for name in names:
        node = api.get(f"/api/v1/nodes/{name}")
        assert node["status"]["allocatable"]["cpu"] == "8"
        assert "taints" not in node["spec"]
        wait_for(
            "the lease",
            lambda name=name: api.exists(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"),
        )


def test_the_real_scheduler_places_a_deployment_and_its_pods_run(
    control_plane: ControlPlane, fake_nodes: FakeNodes, namespace: str
) -> None:
    names = fake_nodes(4, cpu="4", labels={"pool": namespace})
    api, pods = control_plane.api(), f"/api/v1/namespaces/{namespace}/pods"
    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(20, namespace))
    wait_for("20 pods", lambda: len(api.items(pods)) == 20)
    wait_running(control_plane, namespace)
    # 20 pods of 500 m on 4 nodes of 4 cores: at most 8 fit on one, so that three nodes at least are used.
    places = [pod["spec"]["nodeName"] for pod in api.items(pods)]
    assert set(places) <= set(names) and len(set(places)) >= 3
    assert max(places.count(name) for name in names) <= 8


def test_a_pod_that_fits_nowhere_waits_until_a_node_offers_what_it_asks(
    control_plane: ControlPlane, fake_nodes: FakeNodes, namespace: str
) -> None:
    [node] = fake_nodes(1, labels={"pool": namespace})
    api, path = control_plane.api(), f"/api/v1/namespaces/{namespace}/pods"
    batch = {"kubernetes.io/batch-cpu": "2000"}
    container = {"name": "main", "image": "x", "resources": {"requests": batch, "limits": batch}}
    spec = {"nodeSelector": {"pool": namespace}, "containers": [container]}
    api.create(path, {"metadata": {"name": "batch"}, "spec": spec})

    def unschedulable() -> bool:
        conditions = api.get(f"{path}/batch")["status"].get("conditions", ())
        return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

    wait_for("the scheduler's refusal", unschedulable)
    amount = {"kubernetes.io/batch-cpu": "4000"}
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amount, "allocatable": amount}})
    wait_running(control_plane, namespace)
    assert api.get(f"{path}/batch")["spec"]["nodeName"] == node


def test_a_pod_with_a_sidecar_is_ready_with_both_of_its_containers(
    control_plane: ControlPlane, fake_nodes: FakeNodes, namespace: str
) -> None:
    [_node] = fake_nodes(1, labels={"pool": namespace})
    proxy = {"name": "proxy", "image": "x", "restartPolicy": "Always"}
    inits = [{"name": "migrate", "image": "x"}, proxy]
    spec = {
        "nodeSelector": {"pool": namespace},
        "initContainers": inits,
        "containers": [{"name": "main", "image": "x"}],
    }
    api, path = control_plane.api(), f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    wait_running(control_plane, namespace)
    status = api.get(f"{path}/web")["status"]
    states = {c["name"]: (c["ready"], c["started"], next(iter(c["state"]))) for c in status["initContainerStatuses"]}
    assert states == {"migrate": (True, False, "terminated"), "proxy": (True, True, "running")}
    assert [c["name"] for c in status["containerStatuses"]] == ["main"]


def test_bound_pods_run_and_a_resize_is_acknowledged(
    control_plane: ControlPlane, fake_nodes: FakeNodes, namespace: str
) -> None:
    nodes = fake_nodes(2)
    names = create_pods(control_plane, namespace, 6, PodShape({"cpu": "100m"}, labels={"app": "x"}), nodes)
    api, path = control_plane.api(), f"/api/v1/namespaces/{namespace}/pods"
    pods = {pod["metadata"]["name"]: pod for pod in api.items(path, labelSelector="app=x")}
    assert set(pods) == set(names)
    assert [pods[name]["spec"]["nodeName"] for name in names] == nodes * 3
    resized = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "300m"}}}]}
    api.patch(f"{path}/{names[0]}/resize", {"spec": resized}, kind="strategic")

    def acknowledged() -> bool:
        [status] = api.get(f"{path}/{names[0]}")["status"]["containerStatuses"]
        return status.get("resources", {}).get("requests") == {"cpu": "300m"} == status.get("allocatedResources")

    wait_for("the resize in the pod's status", acknowledged)


def test_a_deleted_pod_goes(control_plane: ControlPlane, fake_nodes: FakeNodes, namespace: str) -> None:
    [name] = create_pods(control_plane, namespace, 1, PodShape(), fake_nodes(1))
    api, path = control_plane.api(), f"/api/v1/namespaces/{namespace}/pods/{name}"
    api.delete(path)
    wait_for("its end", lambda: not api.exists(path))
    assert api.items(f"/api/v1/namespaces/{namespace}/pods") == []
