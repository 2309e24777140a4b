"""Real nodes: the kubelet on Debian's containerd through the CRI proxy, and on a current one with the NRI plugin.

The node agent runs beside them with its own rights, and the real scheduler places the pods by batch-cpu.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.enforcer.runtime.bounded import Bounded
from cotenant.enforcer.runtime.nri.plugin import NriPlugin
from cotenant.enforcer.settings import RuntimeSettings
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import CpuAllocationSettings, ExtenderSettings
from tests.cluster import needing, topologies
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.kubelet import pod_body, pods_gone, running
from tests.node.real_node import RealNode, agent, offer_batch, plugged, proxied, publish
from tests.support.extent import full

BATCH_RESOURCES = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
LIMITED = {"cpu": "500m", "memory": "64Mi"}
BURN = ("/bin/sh", "-c", "while :; do :; done")


@contextlib.contextmanager
def hook_alone(node: RealNode) -> Iterator[None]:
    """The plugin without the agent that it usually lives in; the proxy needs none."""
    if not node.plugged:
        yield
        return
    plugin = NriPlugin(RuntimeSettings(nri_socket=str(node.runtime.nri_socket)), pods.decide_as_a_node)
    plugin.bounded = Bounded(60.0)
    plugin.start()
    wait_for("the registration", lambda: plugin.registered)
    yield
    plugin.stop()


WAYS = {"proxied": (proxied, "_debian_containerd"), "plugged": (plugged, "_built_containerd")}


@pytest.fixture(scope="module", params=["plugged", *full("proxied")])
def node(request: pytest.FixtureRequest, control_plane: ControlPlane, kubelet_binary: None) -> Iterator[RealNode]:
    begin, runtime = WAYS[request.param]
    with begin(control_plane, request.getfixturevalue(runtime)) as real_node:
        offer_batch(control_plane, real_node.name)
        yield real_node


def create(plane: ControlPlane, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)
    return running(plane, namespace, body["metadata"]["name"])


def batch_body(name: str, node: RealNode, command: tuple[str, ...] = ()) -> dict[str, Any]:
    resources = {"requests": BATCH_RESOURCES, "limits": BATCH_RESOURCES}
    body = pod_body(name, node.name, resources, labels=pods.labels("BE"), annotations=pods.batch())
    return with_command(body, command)


def service_body(name: str, node: RealNode, command: tuple[str, ...] = ()) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m"}, "limits": LIMITED}
    return with_command(pod_body(name, node.name, resources, labels=pods.labels("LS")), command)


def with_command(body: dict[str, Any], command: tuple[str, ...]) -> dict[str, Any]:
    if command:
        body["spec"]["containers"][0]["command"] = list(command)
    return body


def test_batch_pods_start_limited_and_stay_so_while_services_are_the_kubelets(
    control_plane: ControlPlane, namespace: str, node: RealNode
) -> None:
    with hook_alone(node), pods_gone(control_plane, namespace):
        batch = create(control_plane, namespace, batch_body("batch", node))
        service = create(control_plane, namespace, service_body("web", node))
        batch_group = node.kubelet.cgroup(batch, "besteffort")
        service_group = node.kubelet.cgroup(service, "burstable")
        assert node.cpu(batch_group) == (pods.SHARES, pods.QUOTA)
        limit = node.runtime.read("memory", batch_group, "memory.limit_in_bytes")
        assert int(limit) == pods.BATCH_BYTES
        # 250 millicores x 1024 / 1000 = 256; 500 millicores = 50,000 us of 100,000
        assert node.cpu(service_group) == (256, 50_000)

        resized = [{"name": "main", "resources": {"requests": {"cpu": "250m"}, "limits": {**LIMITED, "cpu": "700m"}}}]
        path = f"/api/v1/namespaces/{namespace}/pods/web/resize"
        control_plane.api().patch(path, {"spec": {"containers": resized}}, "strategic")
        wait_for("the resize", lambda: node.cpu(service_group) == (256, 70_000))

        node.kubelet.server.kill()
        node.kubelet.start()
        late = create(control_plane, namespace, pod_body("late", node.name, {}, labels=pods.labels("LS")))
        assert node.cpu(node.kubelet.cgroup(late, "besteffort")) == (2, -1)
        assert node.cpu(batch_group) == (pods.SHARES, pods.QUOTA)
        assert node.cpu(service_group) == (256, 70_000)
        # What `bench node_neighbours` calls a stock node: no quota above pods, weights by requests, the smallest for
        # best effort as a whole. No hook reaches the batch pod's own group: it has the kubelet's values.
        kubepods = f"{node.runtime.base}/kubepods"
        cores = int(control_plane.api().get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]["cpu"])
        assert node.cpu(kubepods) == (1024 * cores, -1)
        wait_for("the kubelet's sum of requests", lambda: node.cpu(f"{kubepods}/burstable") == (256, -1))
        assert node.cpu(node.best_effort) == (2, -1)
        assert node.cpu(batch_group.rpartition("/")[0]) == (2, -1)


def test_a_batch_pod_is_held_back_under_load_and_leaves_when_memory_is_short(
    control_plane: ControlPlane, namespace: str, node: RealNode, tmp_path: Path
) -> None:
    prepared = agent(control_plane, node, tmp_path)
    publish(control_plane, node)
    with pods_gone(control_plane, namespace), prepared as acting:
        wait_for("ready", lambda: acting.ask("/readyz")[0] == 200)
        hooked = f"cotenant_enforcer_nri_registered {1.0 if node.plugged else ''}".strip()
        wait_for("the hook", lambda: (hooked in acting.ask("/metrics")[1]) is node.plugged)
        create(control_plane, namespace, service_body("web", node, BURN))
        create(control_plane, namespace, batch_body("batch", node, BURN))
        # 65 % of two cores less what the service and the machine use: surely less than two cores
        wait_for("best effort to be held back", lambda: 0 < node.cpu(node.best_effort)[1] < 200_000)

        publish(control_plane, node, memoryEvictThresholdPercent=1, memoryEvictLowerPercent=0)
        path = f"/api/v1/namespaces/{namespace}/pods"
        wait_for("the batch pod to leave", lambda: not control_plane.api().exists(f"{path}/batch"))
        web = control_plane.api().get(f"{path}/web")
        assert "deletionTimestamp" not in web["metadata"]
        assert web["status"]["phase"] == "Running"
        assert acting.end() == 0, acting.log()
        assert node.cpu(node.best_effort) == (2, -1)


def exclusive_body(name: str, node: RealNode, qos: str) -> dict[str, Any]:
    """A pod of one CPU that writes down where its first instruction ran, and asks to be bound by us."""
    amounts = {"cpu": "1", "memory": "64Mi", "cotenant.dev/bind": "1"}
    resources = {"requests": amounts, "limits": amounts}
    body = pod_body(name, node.name, resources, labels=pods.labels(qos))
    first = ("/bin/sh", "-c", "/bin/cat /proc/self/status > /first; exec /bin/sleep 100000")
    body["spec"]["schedulerName"] = "nobody"
    return with_command(body, first)


def first_cpus(node: RealNode, cgroup: str) -> str:
    """What the container wrote at its start, "" before it did."""
    pid = node.runtime.read("cpuset", cgroup, "cgroup.procs").split()[0]
    with contextlib.suppress(OSError):
        text = Path("/proc", pid, "root", "first").read_text()
        return text.partition("Cpus_allowed_list:")[2].split("\n")[0].strip()
    return ""


@pytest.mark.parametrize("qos", ["LSR", *full("LSE")])
def test_a_pod_starts_on_its_cpu_others_are_kept_off_it_and_all_is_given_back(
    control_plane: ControlPlane, namespace: str, node: RealNode, tmp_path: Path, qos: str
) -> None:
    """The whole way: the agent publishes, the bind verb chooses, NRI sets it at creation, ticks keep the others off.

    Services are kept off it in both classes. Batch is off an LSE pod's CPU; an LSR pod lends it what it leaves idle.
    """
    needing.two_cpus()
    api = control_plane.api()
    install_crd(api, "nodeallocations.cotenant.dev")
    topologies.install_topologies(api)
    prepared = agent(control_plane, node, tmp_path)
    prepared.settings = {**prepared.settings, "enforcer.report_topology": True, "enforcer.report_interval_seconds": 10}
    publish(control_plane, node, enable=False)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: topologies.remove_topologies(control_plane.api()))
        stack.enter_context(pods_gone(control_plane, namespace))
        acting = stack.enter_context(prepared)
        wait_for("ready", lambda: acting.ask("/readyz")[0] == 200)
        hooked = f"cotenant_enforcer_nri_registered {1.0 if node.plugged else ''}".strip()
        wait_for("the hook", lambda: (hooked in acting.ask("/metrics")[1]) is node.plugged)
        batch = create(control_plane, namespace, batch_body("batch", node))
        service = create(control_plane, namespace, service_body("web", node))
        wait_for("the CPUs to be published", lambda: api.exists(f"{topologies.PATH}/{node.name}"), 60)
        uid = api.create(f"/api/v1/namespaces/{namespace}/pods", exclusive_body("alone", node, qos))["metadata"]["uid"]
        settings = ExtenderSettings(cpus=CpuAllocationSettings(on=True))
        extender = control_plane.client(account(control_plane, "cotenant-extender"))
        binder = Binder(extender.sibling, HardwareAllocation(allocators(settings)))
        assert binder.bind(BindArgs("alone", namespace, uid, node.name)) == ""
        alone = running(control_plane, namespace, "alone")
        own = json.loads(alone["metadata"]["annotations"]["scheduling.koordinator.sh/resource-status"])["cpuset"]
        cgroup = node.kubelet.cgroup(alone, "guaranteed").replace("/guaranteed/", "/")
        batch_group, service_group = (
            node.kubelet.cgroup(pod, tier) for pod, tier in ((batch, "besteffort"), (service, "burstable"))
        )
        kept_off = [service_group] if qos == "LSR" else [service_group, batch_group]
        everywhere = node.runtime.read("cpuset", f"{node.runtime.base}/kubepods", "cpuset.cpus").strip()

        def cpus_of(group: str) -> str:
            return node.runtime.read("cpuset", group, "cpuset.cpus").strip()

        def are_kept_off() -> bool:
            return not any(parse_cpus(own) & parse_cpus(cpus_of(group)) for group in kept_off)

        wait_for("the container's first instruction", lambda: first_cpus(node, cgroup))
        assert first_cpus(node, cgroup) == own == cpus_of(cgroup)
        wait_for("the others to be kept off", are_kept_off)
        assert (cpus_of(batch_group) == everywhere) is (qos == "LSR")
        assert node.cpu(node.best_effort)[0] == 2  # shares: beside the pod's 1024 batch has 1/512 of its CPU
        acting.end(signal.SIGKILL)
        assert cpus_of(cgroup) == own
        acting.start()  # the journal knows what stood there before
        wait_for("ready again", lambda: acting.ask("/readyz")[0] == 200)
        assert cpus_of(cgroup) == own
        api.delete(f"/api/v1/namespaces/{namespace}/pods/alone", gracePeriodSeconds="0")
        wait_for("the CPU to be given back", lambda: [cpus_of(g) for g in kept_off] == [everywhere] * len(kept_off), 60)
        assert acting.end() == 0, acting.log()
        assert [cpus_of(group) for group in (service_group, batch_group)] == [everywhere] * 2
