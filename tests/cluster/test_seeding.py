from __future__ import annotations

from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, PodShape, delete_nodes
from tests.cluster.seeding import seed_nodes, seed_pods


def test_copies_in_etcd_are_objects_like_any_other(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api()
    nodes = seed_nodes(control_plane, 30, NodeShape(cpu="8", prefix=namespace, labels={"pool": namespace}))
    try:
        shape = PodShape({"cpu": "200m"})
        label = "number"
        pods = seed_pods(
            control_plane, namespace, 300, shape, nodes, lambda i, pod: pod["metadata"].update(labels={label: str(i)})
        )
        stored_nodes = api.items("/api/v1/nodes", labelSelector=f"pool={namespace}", resourceVersion="0")
        assert {node["metadata"]["name"] for node in stored_nodes} == set(nodes)
        assert {node["status"]["allocatable"]["cpu"] for node in stored_nodes} == {"8"}
        path = f"/api/v1/namespaces/{namespace}/pods"
        stored_pods = {pod["metadata"]["name"]: pod for pod in api.items(path)}
        assert set(stored_pods) == set(pods)
        assert len({pod["metadata"]["uid"] for pod in stored_pods.values()}) == 300
        assert [stored_pods[name]["spec"]["nodeName"] for name in pods] == nodes * 10
        assert {pod["status"]["phase"] for pod in stored_pods.values()} == {"Running"}
        assert stored_pods["pod-7"]["metadata"]["labels"] == {label: "7"}
        # They are written and deleted as any other: the API server knows the revision they were stored at.
        version = stored_pods["pod-7"]["metadata"]["resourceVersion"]
        patched = api.patch(f"{path}/pod-7", {"metadata": {"resourceVersion": version, "labels": {"x": "y"}}})
        assert patched["metadata"]["labels"] == {label: "7", "x": "y"}
        assert api.delete(f"{path}/pod-7")
    finally:
        delete_nodes(control_plane, nodes)
