"""Koordinator's node agent on a real node under our manager: it acts by our NodeSLO, and we lend by its NodeMetric.

koordlet is built from its module (`make koordinator-binaries`). It finds the cgroups of the test's kubelet where it
looks for the machine's, and only there can it write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cotenant.base.logs.metrics import Metrics
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.profiler.settings import PrometheusSettings
from tests.cluster import koordinator, needing
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane
from tests.cluster.control_plane import Options as Parts
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.manager.scene import SLO, Scene
from tests.node.containerd import CGROUPS, Containerd
from tests.node.kubelet import CONTROLLERS, Kubelet, pod_body, running
from tests.support.exporter import exporter_server

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

NODE = "localhost"
"""Its name is the address at which koordlet asks the kubelet."""
SUPPRESS = {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}


@pytest.fixture
def kubelet_port() -> int:
    return free_port()


@pytest.fixture
def node(tmp_path: Path, kubelet_port: int, kubelet_binary: None) -> Iterator[Kubelet]:
    """A real kubelet on a cluster with Koordinator's definitions and accounts."""
    needing.kubernetes()
    needing.koordlet()
    parts = Parts(frozenset({CONTROLLER_MANAGER}))
    with ControlPlane(tmp_path / "plane", parts) as plane, Containerd() as runtime:
        koordinator.install(plane)
        with Kubelet(plane, runtime, runtime.socket, NODE, readOnlyPort=kubelet_port) as node:
            yield node


def below(node: Kubelet) -> Path:
    """A folder that looks like /sys/fs/cgroup and holds the kubelet's own tree alone."""
    folder = node.runtime.folder / "cgroups"
    folder.mkdir()
    for controller in CONTROLLERS:
        if (CGROUPS / controller).is_dir():
            (folder / controller).symlink_to(CGROUPS / controller / node.runtime.base)
    return folder


def quota(node: Kubelet) -> int:
    """CPU quota of best effort in microseconds; negative: none."""
    return int(node.runtime.read("cpu", f"{node.runtime.base}/kubepods/besteffort", "cpu.cfs_quota_us"))


def lending(cluster: Scene, prometheus: str) -> Manager:
    """Our manager with the features that koordlet needs; Prometheus has no samples of the node."""
    off = [name for name in NAMES if name not in ("colocation", "node-slo", "node-metric")]
    settings = cluster.settings(features_off=off)
    profiler = msgspec.structs.replace(settings.profiler, prometheus=PrometheusSettings(url=prometheus))
    settings = msgspec.structs.replace(settings, profiler=profiler)
    return Manager(cluster.plane.client(cluster.account), settings, Metrics("test", "3"), Options("test", elect=False))


def test_koordlet_suppresses_by_our_node_slo_and_we_lend_by_its_report(
    node: Kubelet, kubelet_port: int, tmp_path: Path
) -> None:
    cluster = Scene(node.plane, koordinator.NAMESPACE, tmp_path)
    cluster.configure(colocation_config={"enable": True}, resource_threshold_config=SUPPRESS)
    pod = pod_body("idle", NODE, {})
    pod["spec"]["nodeName"] = NODE
    cluster.api.create("/api/v1/namespaces/default/pods", pod)
    running(node.plane, "default", "idle")
    (tmp_path / "prometheus").mkdir()
    folder = node.runtime.folder / "koordlet"
    folder.mkdir()
    arguments = [
        f"-cgroup-root-dir={below(node)}/",
        f"-var-lib-kubelet-dir={node.folder / 'root'}/",
        f"-containerd-endpoint={node.runtime.socket}",
        "-kubelet-preferred-address-type=Hostname",
        "-kubelet-insecure-tls=true",
        "-disable-query-kubelet-config=true",
        f"-kubelet-read-only-port={kubelet_port}",
    ]
    with exporter_server(tmp_path / "prometheus") as prometheus, lending(cluster, prometheus.url):
        wait_for("our NodeSLO", lambda: cluster.api.exists(f"{SLO}/nodeslos/{NODE}"))
        wait_for("our NodeMetric", lambda: cluster.api.exists(f"{SLO}/nodemetrics/{NODE}"))
        assert quota(node) < 0 and not cluster.lent([NODE])
        with koordinator.agent(node.plane, NODE, folder, arguments) as koordlet:
            try:
                wait_for("a quota by our NodeSLO", lambda: quota(node) > 0)
                wait_for("amounts by its NodeMetric", lambda: cluster.lent([NODE]), 240)
            except AssertionError:
                print(koordlet.written()[-20_000:])
                raise
            status = cluster.api.get(f"{SLO}/nodemetrics/{NODE}")["status"]
            assert [pod["name"] for pod in status["podsMetric"]] == ["idle"]
            cluster.configure(colocation_config={"enable": True})
            wait_for("no quota any more", lambda: quota(node) < 0)
