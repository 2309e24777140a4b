"""The configuration as shipped, on the real kube-scheduler: one question a pod, and load still decides.

Two zones of two nodes; zone a is idler than zone b, and b-1 is the busiest of all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.cluster import needing
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import Recorder, configured, install_crds, service
from tests.scheduler_ext.extender.worlds import metric_json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]
CPU = {"a-0": "1", "a-1": "1", "b-0": "4", "b-1": "9"}
"""Of 16 cores: 94, 94, 75 and 44 % are free; memory is alike, so that the points are 17, 9 and 25 apart at least."""


class Cluster(NamedTuple):
    """A control plane whose scheduler asks us as shipped, and what it asked."""

    plane: ControlPlane
    recorder: Recorder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needing.kubernetes()
    settings = ExtenderSettings(port=free_port())
    options = Options(scheduler=configured(f"http://127.0.0.1:{settings.port}", settings))
    with ControlPlane(tmp_path_factory.mktemp("once"), options) as plane:
        install_crds(plane)
        for zone in ("a", "b"):
            create_nodes(plane, 2, NodeShape(prefix=zone, labels={"topology.kubernetes.io/zone": zone}))
        for node, cpu in CPU.items():
            body = metric_json(node, cpu=cpu, memory="8Gi", updated=time.time())
            status, path = body.pop("status"), "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
            plane.api().create(path, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
            plane.api().patch(f"{path}/{node}/status", {"status": status})
        with service(plane, settings) as running:
            view = running.view
            wait_for("reports are seen", lambda: view.snapshot.column(SnapshotColumn.MEASURED).sum() == len(CPU))
            running.server.stop()
            recorded_cluster = Cluster(plane, Recorder(running.app))
            server = ExtenderServer(recorded_cluster.recorder, settings)
            server.start()
            yield recorded_cluster
            server.stop()


def placed(cluster: Cluster, pods: int, **spec: Any) -> Counter[str]:
    """Nodes of so many Jobs' or (replicas: true) one ReplicaSet's pods."""
    api, place = cluster.plane.api(), create_namespace(cluster.plane.api(), unique_name("once"))
    replicas = spec.pop("replicas", False)
    requests = {"cpu": "100m", "memory": "64Mi"}
    pod = {"containers": [{"name": "main", "image": "example.invalid/app:1", "resources": {"requests": requests}}]}
    labels = {"app": place, "koordinator.sh/qosClass": "LS"}
    template = {"metadata": {"labels": labels}, "spec": {**pod, **spec}}
    if replicas:
        body = {"metadata": {"name": "web"}, "spec": {"replicas": pods, "template": template}}
        body["spec"]["selector"] = {"matchLabels": {"app": place}}  # type: ignore[index]
        api.create(f"/apis/apps/v1/namespaces/{place}/replicasets", body)
    for number in range(0 if replicas else pods):
        api.create(f"/api/v1/namespaces/{place}/pods", {"metadata": {"name": f"p-{number}", "labels": labels},
                                                        "spec": template["spec"]})  # fmt: skip
    path = f"/api/v1/namespaces/{place}/pods"

    def nodes() -> list[str]:
        node_names = [pod["spec"].get("nodeName", "") for pod in api.items(path)]
        return node_names if len(node_names) == pods and all(node_names) else []

    return Counter(wait_for(f"{pods} pods are bound", nodes))


def test_single_pods_go_where_it_is_idlest(cluster: Cluster) -> None:
    counter = placed(cluster, 6)
    assert set(counter) == {"a-0", "a-1"}
    assert cluster.recorder.of("/prioritize") == []


def test_replicas_are_spread_over_zones_and_keep_off_the_busiest_node(cluster: Cluster) -> None:
    counter = placed(cluster, 8, replicas=True)
    # a zone of two idle nodes and one with a single node within reach: the scheduler's own spread weighs both
    assert counter["b-0"] >= 2
    assert counter["b-1"] == 0


def test_a_pods_own_preference_is_the_schedulers_to_weigh(cluster: Cluster) -> None:
    node_term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b-1"]}]}
    preferred = [{"weight": 100, "preference": node_term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert set(placed(cluster, 2, affinity=affinity)) == {"b-1"}
