"""A kubelet's cgroup tree on this machine's real cgroups (v1), below a folder of its own: pods, containers, processes.

    with Kubepods() as node:
        web = node.pod("web", qos="LS", cpu_limit=500)
        node.run(web, ["sleep", "100"])
        node.write_pods(path)                    # the file that `cotenant node enforcer --pods` reads
        node.read(web.path, "cpu", "cpu.shares")

Processes that end with the tree; nothing outside of the folder is touched. `missing()` says why it cannot be had here.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path("/sys/fs/cgroup")
HIERARCHIES: Final = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids")
TIERS: Final = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}


def missing() -> str:
    """Why no tree can be made on this machine; empty when it can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in HIERARCHIES if not (ROOT / name / "cgroup.procs").exists()]
    return f"needs cgroup v1 at {ROOT}: no {', '.join(absent)}" if absent else ""


@dataclass(slots=True)
class Pod:
    """A pod of the tree, and its objects as Kubernetes would show it. path: below the base."""

    body: dict[str, Any]
    path: str
    container: str
    """Path of its one container."""

    @property
    def key(self) -> str:
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])


@dataclass(slots=True)
class Kubepods:
    """Entered: the tree exists. Left: its processes are killed and it is gone."""

    base: str = field(default_factory=lambda: f"cotenant-{os.getpid()}-{secrets.token_hex(3)}")
    outer_shares: int = 0
    """Weight of the whole tree among the machine's other groups; 0 leaves the kernel's."""
    tiers: bool = True
    """Whether the kubelet has made its own cgroups already."""
    pods: dict[str, Pod] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._make("")
        if self.outer_shares:
            self.write("", "cpu", "cpu.shares", self.outer_shares)
        if self.tiers:
            self.make_tiers()
        return self

    def make_tiers(self) -> None:
        """What a kubelet makes when it starts: kubepods and the QoS classes' cgroups."""
        for tier in ("", *TIERS.values()):
            self._make(f"kubepods/{tier}".rstrip("/"))
        self.write("kubepods/besteffort", "cpu", "cpu.shares", 2)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        for name in HIERARCHIES:
            folder = ROOT / name / self.base
            for inner, _, _ in os.walk(folder, topdown=False):
                _removed(Path(inner))

    # --- pods --------------------------------------------------------------------------------------------------------
    def pod(
        self,
        name: str,
        *,
        qos: str = "",
        kube: str = "BestEffort",
        priority: int = 0,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        annotations: Mapping[str, str] | None = None,
        uid: str = "",
    ) -> Pod:
        """A new pod with one running container; its values are those a kubelet leaves for its class and resources."""
        uid, container_id = uid or f"{secrets.token_hex(4)}-{name}", secrets.token_hex(32)
        labels = {"koordinator.sh/qosClass": qos} if qos else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "bench",
                "uid": uid,
                "labels": labels,
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "nodeName": "n1",
                "priority": priority,
                "containers": [{"name": "main", "resources": dict(resources or {})}],
            },
            "status": {
                "phase": "Running",
                "qosClass": kube,
                "containerStatuses": [
                    {"name": "main", "containerID": f"containerd://{container_id}", "state": {"running": {}}}
                ],
            },
        }
        tier = TIERS[kube]
        path = "/".join(part for part in ("kubepods", tier, f"pod{uid}") if part)
        kubelet_pod = Pod(body, path, f"{path}/{container_id}")
        for group in (kubelet_pod.path, kubelet_pod.container):
            self._make(group)
            self.write(group, "cpu", "cpu.shares", 2 if kube == "BestEffort" else 1024)
        self.pods[uid] = kubelet_pod
        return kubelet_pod

    def second_container(self, pod: Pod) -> str:
        """One more running container with the resources of the first; its path."""
        container_id = secrets.token_hex(32)
        first = pod.body["spec"]["containers"][0]
        pod.body["spec"]["containers"].append(first | {"name": "side"})
        status = {"name": "side", "containerID": f"containerd://{container_id}", "state": {"running": {}}}
        pod.body["status"]["containerStatuses"].append(status)
        self._make(f"{pod.path}/{container_id}")
        return f"{pod.path}/{container_id}"

    def early_container(self, pod: Pod, name: str, kind: str, resources: Mapping[str, Any] | None = None) -> str:
        """One more running container: "sidecar", "init" or "ephemeral"; its path."""
        container_id = secrets.token_hex(32)
        body: dict[str, Any] = {"name": name, "resources": dict(resources or {})}
        if kind == "sidecar":
            body["restartPolicy"] = "Always"
        group = "ephemeral" if kind == "ephemeral" else "init"
        status = {"name": name, "containerID": f"containerd://{container_id}", "state": {"running": {}}}
        pod.body["spec"].setdefault(f"{group}Containers", []).append(body)
        pod.body["status"].setdefault(f"{group}ContainerStatuses", []).append(status)
        self._make(f"{pod.path}/{container_id}")
        if pod.body["status"]["qosClass"] == "BestEffort":
            self.write(f"{pod.path}/{container_id}", "cpu", "cpu.shares", 2)
        return f"{pod.path}/{container_id}"

    def remove(self, pod: Pod) -> None:
        """The pod and its processes go."""
        del self.pods[pod.uid]
        self.kill(pod)
        for name in HIERARCHIES:
            for folder, _, _ in os.walk(self.folder(name, pod.path), topdown=False):
                _removed(Path(folder))

    def run(self, pod: Pod, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process in the pod's container."""
        return self.enter(pod.container, command, **options)

    def enter(self, path: str, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process in a group of the tree, which is made if it is not there."""
        self._make(path)
        places = [str(self.folder(name, path) / "cgroup.procs") for name in HIERARCHIES]
        enter = " ".join(f"echo $$ > {place};" for place in places)
        process = subprocess.Popen(["/bin/sh", "-c", f'{enter} exec "$@"', "sh", *command], **options)
        self.processes.append(process)
        return process

    def kill(self, pod: Pod | None = None) -> None:
        """Every process of the pod, or of the whole tree, with all that they started."""
        for process in self.processes if pod is None else ():
            process.kill()  # one that has not entered its group yet would be found in none, and waited for to its end
        inside = self.folder("cpu", pod.container if pod else "")
        for folder, _, _ in os.walk(inside):
            for word in _lines(Path(folder) / "cgroup.procs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
        for process in [p for p in self.processes if pod is None or p.poll() is not None]:
            process.wait()
            self.processes.remove(process)

    def write_pods(self, path: Path, node: Mapping[str, Any] | None = None) -> None:
        """All pods as the file that the agent reads, replaced as a whole."""
        items = [pod.body for pod in self.pods.values()]
        if node is not None:
            items.append({"kind": "Node", "metadata": {"name": "n1"}, "status": dict(node)})
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(json.dumps({"kind": "List", "items": items}))
        fresh.replace(path)

    # --- files -------------------------------------------------------------------------------------------------------
    def folder(self, hierarchy: str, path: str) -> Path:
        """Where a group is."""
        return ROOT / hierarchy / self.base / path

    def read(self, path: str, hierarchy: str, name: str) -> str:
        """A file of a group, without its last line's end."""
        return (self.folder(hierarchy, path) / name).read_text().strip()

    def write(self, path: str, hierarchy: str, name: str, value: object) -> None:
        """Set a file of a group."""
        (self.folder(hierarchy, path) / name).write_text(str(value))

    def values(self, names: Mapping[str, str]) -> dict[tuple[str, str], str]:
        """(path, file) -> value, of every group; names: file -> hierarchy."""
        values_by_file = {}
        for folder in self.groups():
            for name, hierarchy in names.items():
                with contextlib.suppress(OSError):
                    values_by_file[folder, name] = self.read(folder, hierarchy, name)
        return values_by_file

    def groups(self) -> Iterator[str]:
        """Every group below the base."""
        top = ROOT / "cpu" / self.base
        return (str(Path(folder).relative_to(top)) for folder, _, _ in os.walk(top))

    def _make(self, path: str) -> None:
        """A group in every hierarchy; a new cpuset has no CPUs, a kubelet gives it its parent's."""
        for name in HIERARCHIES:
            self.folder(name, path).mkdir(parents=True, exist_ok=True)
        parts = path.split("/")
        for depth in range(len(parts) + 1):
            folder = self.folder("cpuset", "/".join(parts[:depth]))
            for file in ("cpuset.cpus", "cpuset.mems"):
                if not (folder / file).read_text().strip():
                    (folder / file).write_text((folder.parent / file).read_text())


def _removed(folder: Path) -> None:
    """The empty group goes; its last process may still be on its way out."""
    until = time.monotonic() + 30
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            for word in _lines(folder / "cgroup.procs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
            time.sleep(0.01)
        else:
            return


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return file.read_text().split()
    return []
