"""A real node: the kubelet on a private containerd, joined to the test cluster's API server.

    with Kubelet(plane, runtime, cri_socket, "n1") as node: ...

Its pods must be on the host's network with an image of `tests.node.image`; their cgroups are below the runtime's own.
The kubelet sets some of the machine's kernel settings when it starts: they are put back.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import yaml

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import CEILING_SECONDS, wait_for
from tests.node.containerd import CGROUPS, Containerd
from tests.node.image import IMAGE

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "systemd", "blkio", "devices", "freezer")
CONTAINER_LOGS = Path("/var/log/containers")
"""The kubelet links every container's log there, whatever its configuration says."""
ASKING: Mapping[str, Any] = {
    "address": "0.0.0.0",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
}
"""Configuration of a kubelet that others reach, and that asks the API server who they are and what they may."""
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class Kubelet:
    """Ready when entered; on exit its pods' containers are left to the runtime's own end."""

    def __init__(
        self, plane: ControlPlane, runtime: Containerd, cri_socket: Path, name: str, **configuration: Any
    ) -> None:
        """configuration: fields of KubeletConfiguration beside those that a test's kubelet has anyway."""
        self.plane, self.runtime, self.name, self._more = plane, runtime, name, configuration
        self.folder = runtime.folder / f"kubelet-{name}"
        self.folder.mkdir()
        self._cri_socket = cri_socket
        self._before = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
        self.server = Server("kubelet", self._command(), self.folder / "kubelet.log")

    def _command(self) -> list[str]:
        kubeconfig = self.plane.user(f"system:node:{self.name}", ["system:nodes"])
        self.config_file.write_text(yaml.safe_dump(self._config()))
        options = ["--config", str(self.config_file), "--kubeconfig", str(kubeconfig), "--hostname-override", self.name]
        return [str(binaries.find("kubelet")), *options, *self._folders()]

    def _folders(self) -> list[str]:
        return ["--root-dir", str(self.folder / "root"), "--cert-dir", str(self.folder / "certificates")]

    def _config(self) -> dict[str, Any]:
        authority = str(self.plane.authority.certificate)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.runtime.base}",
            "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": f"unix://{self._cri_socket}",
            "address": "127.0.0.1",
            "port": free_port(),
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "100Mi"},
            "podLogsDir": str(self.folder / "logs"),
            "volumePluginDir": str(self.folder / "plugins"),
            "syncFrequency": "2s",
            "nodeStatusUpdateFrequency": "2s",
            **self._more,
        }

    @property
    def config_file(self) -> Path:
        """Its configuration."""
        return self.folder / "kubelet.yaml"

    @property
    def pod_resources(self) -> Path:
        """Socket of its podresources service."""
        return self.folder / "root" / "pod-resources" / "kubelet.sock"

    def __enter__(self) -> Kubelet:
        for controller in CONTROLLERS:
            if (CGROUPS / controller).is_dir():
                (CGROUPS / controller / self.runtime.base).mkdir(exist_ok=True)
        try:
            self.start()
            wait_for(f"node {self.name} to be Ready", self.ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start it, also again."""
        self.server.start()

    def ready(self) -> bool:
        """Whether the API server knows it as Ready."""
        if not self.server.running:
            raise RuntimeError(f"the kubelet ended:\n{self.server.written()[-3000:]}")
        api = self.plane.api()
        with contextlib.closing(api):
            if not api.exists(f"/api/v1/nodes/{self.name}"):
                return False
            conditions = api.get(f"/api/v1/nodes/{self.name}")["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def cgroup(self, pod: dict[str, Any], tier: str, name: str = "main") -> str:
        """The cgroup of a running container of a pod."""
        status = next(c for c in pod["status"]["containerStatuses"] if c["name"] == name)
        container = status["containerID"].removeprefix("containerd://")
        return f"{self.runtime.base}/kubepods/{tier}/pod{pod['metadata']['uid']}/{container}"

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        with contextlib.suppress(grpc.RpcError):  # nobody ends the containers of a kubelet that is gone
            self.runtime.client().remove_all()
        api = self.plane.api()
        with contextlib.closing(api):
            api.delete(f"/api/v1/nodes/{self.name}")
        for link in CONTAINER_LOGS.glob("*"):
            if link.is_symlink() and str(link.readlink()).startswith(f"{self.folder}/"):
                link.unlink()
        for name, value in self._before.items():
            if Path("/proc/sys", name).read_text() != value:
                Path("/proc/sys", name).write_text(value)


def own_address() -> str:
    """The address of this machine by which a node is known; nothing is sent."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def pod_body(name: str, node: str, resources: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A pod that sleeps, for a real node."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sleep", "100000"],
        "resources": resources,
    }
    spec = {
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def running(plane: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    """The pod once its container runs."""
    api = plane.api()
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def look() -> dict[str, Any] | None:
        live = api.get(path)
        states = live["status"].get("containerStatuses", [])
        return live if states and all("running" in s["state"] for s in states) else None

    try:
        return wait_for(f"pod {name} to run", look)
    finally:
        api.close()


@contextlib.contextmanager
def pods_gone(plane: ControlPlane, namespace: str, seconds: float = CEILING_SECONDS) -> Iterator[None]:
    """At the end, delete the namespace's pods and wait until the kubelet has ended them."""
    try:
        yield
    finally:  # a pod that burns a core would slow everything that follows
        with contextlib.closing(plane.api()) as api:
            path = f"/api/v1/namespaces/{namespace}/pods"
            for pod in api.items(path):
                api.delete(f"{path}/{pod['metadata']['name']}")
            wait_for("the pods' end", lambda: not api.items(path), seconds)
