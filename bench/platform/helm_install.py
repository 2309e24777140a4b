"""`helm install` with everything on, on a real node, until a batch pod of our own image is suppressed.

.venv/bin/python -m bench.platform.helm_install      (as root; the images by `make images`)

A control plane of real Kubernetes programs, one node of a real kubelet and containerd. The cluster has what clusters
have: a volume, and the images on its node. There is no cluster network, so pods are on the host's, with the API
server's address in their environment, and of each process runs one. One `helm install` follows, and two acts of
users: a colocation profile, and a pod that burns CPU in a namespace of its label. Counted from the start of `helm
install`:

- until the node offers batch-cpu (node agent -> NodeMetric -> manager -> status of the node);
- until the batch pod runs and the kernel throttles it, by the quota that the node agent wrote.

Then `helm uninstall`, until its hook has ended: the node lends nothing and nothing of ours is found.

Every process acts under the account that the chart gives it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.record import Row, below, record
from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from tests.cli.charts import EVERYTHING, chart, release, values_of
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, SCHEDULER, ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.node.containerd import Containerd, impossible
from tests.node.kubelet import Kubelet, running

IMAGES: Final = Path.home() / ".cache" / "cotenant" / "images"
ARCHIVES: Final = ("cotenant-node.oci.tar", "cotenant.oci.tar")
NODE: Final = "n1"
GOAL_SECONDS: Final = 180.0
LIMIT_SECONDS: Final = 600.0
PROCESSES: Final = ("dashboard", "manager", "extender", "enforcer", "webhook", "test", "uninstall")
CONFIG: Final = {
    "colocation-config": {"enable": True},
    "resource-threshold-config": {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 40, "cpuSuppressPolicy": "cfsQuota"}
    },
}
Json = dict[str, Any]


def values(plane: ControlPlane, node: Kubelet) -> Json:
    """Everything on; what a test node without a network and with folders of its own needs besides."""
    address = urlsplit(plane.server)
    env = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": address.hostname},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(address.port)},
    ]
    processes: dict[str, Json] = {name: {"env": env, "pod": {"hostNetwork": True}} for name in PROCESSES}
    for name in ("extender", "webhook"):
        processes[name]["replicas"] = 1
    folders = {
        "cgroup": ("/sys/fs/cgroup", "Directory"),
        "proc": ("/proc", "Directory"),
        "kubelet-config": (str(node.config_file), "File"),
        "pod-resources": (str(node.pod_resources.parent), "DirectoryOrCreate"),
        "state": (str(node.folder / "agent"), "DirectoryOrCreate"),
    }
    processes["enforcer"]["pod"]["volumes"] = [
        {"name": name, "hostPath": {"path": path, "type": kind}} for name, (path, kind) in folders.items()
    ]
    more = values_of(EVERYTHING, processes=processes, settings={"enforcer": {"dry_run": False}})
    more["colocation"]["config"] = CONFIG
    return more


@contextmanager
def cluster(archives: Iterable[Path]) -> Iterator[tuple[ControlPlane, Kubelet]]:
    """A control plane that calls webhooks at their pods, and one real node that has these images."""
    parts = frozenset({CONTROLLER_MANAGER, SCHEDULER})
    routed = {APISERVER: ("--enable-aggregator-routing=true",)}
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", Options(parts, routed)) as plane,
        Containerd() as runtime,
    ):
        for archive in archives:
            runtime.import_images(archive)
        with Kubelet(plane, runtime, runtime.socket, NODE, maxPods=30) as node:
            store = node.folder / "store"
            store.mkdir()
            store.chmod(0o777)
            plane.api().create("/api/v1/persistentvolumes", volume(store))
            yield plane, node


def volume(folder: Path) -> Json:
    """A volume of the node for the store."""
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}}
    return {"metadata": {"name": "store"}, "spec": spec}


def share(plane: ControlPlane) -> None:
    """What a user does: a profile, and a batch pod in a namespace of its label."""
    api = plane.api()
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "bench"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"cotenant.dev/workload": "bench"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
        },
    }
    api.create("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", profile)
    create_namespace(api, "batch", {"cotenant.dev/workload": "bench"})


def batch_pod(plane: ControlPlane) -> Json | None:
    """The pod, burning CPU in our own image, as the API server took it; None while the webhook is not asked yet."""
    amounts = {"memory": "128Mi"}  # no CPU: where others keep the machine busy, none is offered, and it waits
    container = {
        "name": "main",
        "image": "cotenant/cotenant-node:0.1.0",
        "command": ["python", "-c", "while True: pass"],
        "resources": {"requests": amounts, "limits": amounts},
    }
    spec = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    path, query = "/api/v1/namespaces/batch/pods", {"metadata": {"name": "burn"}, "spec": spec}
    api = plane.api()
    pod: Json = api.create(path, query)
    if "kubernetes.io/batch-memory" in pod["spec"]["containers"][0]["resources"]["requests"]:
        return pod
    api.delete(f"{path}/burn")
    return None


def offered(plane: ControlPlane) -> str:
    """batch-cpu of the node, in millicores; empty while the manager has not decided. 0 is right on a busy machine."""
    status = plane.api().get(f"/api/v1/nodes/{NODE}")["status"]
    return str(status["allocatable"].get("kubernetes.io/batch-cpu", ""))


def throttled_periods(node: Kubelet) -> int:
    """Periods in which the kernel held best effort back by the agent's quota; 0 where there is none."""
    group = f"{node.runtime.base}/kubepods/besteffort"
    if int(node.runtime.read("cpu", group, "cpu.cfs_quota_us")) <= 0:
        return 0
    counts = dict(line.split() for line in node.runtime.read("cpu", group, "cpu.stat").splitlines())
    return int(counts["nr_throttled"])


def state(plane: ControlPlane) -> str:
    """What the pods of the release are at, for who looks for a mistake."""
    text = plane.kubectl("get", "pods", "-A", "-o", "wide")
    events = plane.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
    return f"{text}\n{events[-4000:]}"


def restarts(plane: ControlPlane) -> list[str]:
    """Each container of the release that was started again, how often, and how it ended before."""
    pods = json.loads(plane.kubectl("get", "pods", "-n", "cotenant", "-o", "json"))["items"]
    return [
        f"{container['name']} {container['restartCount']} times, {json.dumps(container.get('lastState'))}"
        for pod in pods
        for container in pod["status"].get("containerStatuses", ())
        if container["restartCount"]
    ]


def leftovers(plane: ControlPlane) -> list[str]:
    """What acts after `helm uninstall`: amounts of the node, and objects of ours but definitions and namespaces."""
    lent = [
        f"node {key}" for key in plane.api().get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"] if "batch" in key
    ]
    kinds = "all,leases,cm,sa,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,priorityclasses"
    admission = "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies"
    arguments = ("get", f"{kinds},{admission}", "-A", "-l", "app.kubernetes.io/part-of=cotenant", "-o", "name")
    return [*lent, *plane.kubectl(*arguments).split()]


def measure() -> list[Row]:
    """One installation, and its end."""
    with cluster(IMAGES / name for name in ARCHIVES) as (plane, node):
        start = time.monotonic()
        try:
            release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values(plane, node))
            sent = time.monotonic() - start
            millicores = wait_for("batch-cpu", lambda: offered(plane), LIMIT_SECONDS, 0.5)
            batch = time.monotonic() - start
            share(plane)
            wait_for("the webhook", lambda: batch_pod(plane), LIMIT_SECONDS, 1.0)
            running(plane, "batch", "burn")
            before = throttled_periods(node)
            wait_for("a suppressed batch pod", lambda: throttled_periods(node) > before, LIMIT_SECONDS, 0.5)
            suppressed = time.monotonic() - start
            release(plane, "test", "cotenant")
            ready = time.monotonic() - start
        except BaseException:
            print(state(plane), file=sys.stderr)
            raise
        again = restarts(plane)
        status = plane.kubectl("get", "configmap", "-n", SYSTEM_NAMESPACE, "cotenant-status", "-o", "json")
        start = time.monotonic()
        release(plane, "uninstall", "cotenant")
        ended, rest = time.monotonic() - start, leftovers(plane)
    forbidden = [name for name, text in json.loads(status)["data"].items() if "Forbidden" in text]
    return [
        below("helm install returns", sent, "s", 60),
        below("helm install until batch-cpu on the node", batch, "s", GOAL_SECONDS, f"{millicores} m"),
        below("helm install until a suppressed batch pod in our own image", suppressed, "s", GOAL_SECONDS),
        below("helm install until helm test passes", ready, "s", 2 * GOAL_SECONDS),
        below("features of the manager that lack a right", len(forbidden), "features", 0, ", ".join(forbidden)),
        below("containers that were started again", len(again), "containers", 0, "; ".join(again)),
        below("helm uninstall until its hook has ended", ended, "s", 120),
        below("what acts after helm uninstall", len(rest), "objects", 0, ", ".join(rest)),
    ]


def main() -> int:
    """Record, unless something that it needs is not here."""
    missing = [name for name in ARCHIVES if not (IMAGES / name).is_file()]
    reason = impossible() or (f"no images: {', '.join(missing)} (make images)" if missing else "")
    if reason:
        print(f"nothing was measured: {reason}")
        return 0
    record("helm_install", ".venv/bin/python -m bench.platform.helm_install", measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
