"""A kubelet that asks who comes, a Prometheus' job that scrapes it, and the truth of its containers: their cgroups."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cotenant.base.kube import connect
from cotenant.base.settings.sections import KubeSettings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.node.containerd import CGROUPS, Containerd
from tests.node.kubelet import ASKING, Kubelet, own_address, pod_body

BURN = ["/bin/sh", "-c", "while :; do :; done"]


class KubeletOfRuntime(Kubelet):
    """Its cAdvisor knows containers by name: it finds the runtime, whose socket is not at its usual place."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--containerd", str(self.runtime.socket)]


def measured_kubelet(plane: ControlPlane, runtime: Containerd, name: str) -> Kubelet:
    """A kubelet whose certificate the cluster's authority signed, and that asks it about who comes."""
    certificate, key = plane.authority.issue(name, f"system:node:{name}", hosts=(own_address(), "127.0.0.1"))
    own = {**ASKING, "tlsCertFile": str(certificate), "tlsPrivateKeyFile": str(key)}
    return KubeletOfRuntime(plane, runtime, runtime.socket, name, **own)


def pod_running(name: str, node: str, command: list[str], resources: dict[str, Any]) -> dict[str, Any]:
    """A pod of one container with a command of its own."""
    body = pod_body(name, node, resources)
    body["spec"]["containers"][0]["command"] = command
    return body


def scrape_job(plane: ControlPlane, node: str, path: str = "/metrics/resource", **more: Any) -> dict[str, Any]:
    """A job of Prometheus, named `NODE PATH`, that scrapes a kubelet with the token of the recorder's account."""
    kubeconfig = account(plane, "cotenant-recorder")
    with contextlib.closing(connect(KubeSettings(kubeconfig=str(kubeconfig)))) as client:
        body = client.get(f"/api/v1/nodes/{node}") or {}
        port = body["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        return {
            "job_name": f"{node} {path}",
            "scheme": "https",
            "metrics_path": path,
            "authorization": {"credentials": (client.access.authorization() or "").removeprefix("Bearer ")},
            "tls_config": {"ca_file": client.access.ca_file},
            "static_configs": [{"targets": [f"{own_address()}:{port}"]}],
            **more,
        }


class CgroupReader:
    """Reads CPU time, wait for the quota and working set of a container, from its cgroup, until either ends."""

    def __init__(self, cgroup: str, every_seconds: float = 0.1) -> None:
        self._file = CGROUPS / "cpuacct" / cgroup / "cpuacct.usage"
        self._quota = CGROUPS / "cpu" / cgroup / "cpu.stat"
        self._memory = CGROUPS / "memory" / cgroup
        self._every = every_seconds
        self._readings: list[tuple[float, float, float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):  # its cgroup is gone, or half gone
            while True:
                before = time.time()
                used = int(self._file.read_text()) / 1e9
                refused = int(self._quota.read_text().split("throttled_time ")[1].split()[0]) / 1e9
                taken = int(Path(self._memory, "memory.usage_in_bytes").read_text())
                idle = re.findall(r"^total_inactive_file (\d+)$", Path(self._memory, "memory.stat").read_text(), re.M)
                self._readings.append(((before + time.time()) / 2, used, refused, max(0, taken - int(idle[0]))))
                if self._ended.wait(self._every):
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def readings(self) -> npt.NDArray[np.float64]:
        """All so far, (number, 4): Unix time, CPU seconds, seconds that the quota refused, bytes of working set."""
        return np.array(self._readings).reshape(-1, 4)

    def mean_millicores(self, begin: float, end: float) -> tuple[float, float]:
        """Means between two Unix times: used, and refused by the quota."""
        times, *counters, _ = self.readings().T
        assert times[0] <= begin < end <= times[-1]
        growths = (np.diff(np.interp([begin, end], times, counter)) for counter in counters)
        used, refused = (float(growth[0]) / (end - begin) * 1000 for growth in growths)
        return used, refused
