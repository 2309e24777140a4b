"""Many hand-overs side by side while something goes wrong: killed processes of all kinds, a second scheduler."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.binaries import find
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import EXTENDER, configured
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, empty
from tests.support.settings_files import document

OTHER = "other-scheduler"
STRANGERS = 8


class ManagerProcess:
    """`cotenant serve manager` with Reservations alone; ended and begun anew at will."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.log = folder / f"manager-{len(list(folder.glob('manager-*.log')))}.log"
        file = self.log.with_suffix(".json")  # JSON is YAML
        config = {
            **document(settings, "manager", "reservations", "queues", "descheduler"),
            "kube": {"kubeconfig": settings.kube.kubeconfig},
            "telemetry": {"health_port": 0, "log_format": "json"},
        }
        file.write_text(json.dumps(config))
        self._command = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
        self._command += ["--config", str(file), "serve", "manager"]
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(self._command, stdout=out, stderr=out, env=dict(os.environ))

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def again(self) -> None:
        """SIGKILL, and a new one."""
        self.kill()
        self.start()


@contextmanager
def manager_process(cluster: Scene, folder: Path, **reservations: Any) -> Iterator[ManagerProcess]:
    """A manager of its own, whose Lease is taken over after two seconds."""
    settings = cluster.settings(**reservations)
    quick = {"lease_seconds": 2.0}
    own = msgspec.structs.replace(settings.manager, **quick)
    process = ManagerProcess(msgspec.structs.replace(settings, manager=own), folder)
    process.start()
    try:
        yield process
    finally:
        process.kill()


class ExtenderProcess:
    """`cotenant serve extender` on a port of its own, which is known before; ended and begun anew at will."""

    def __init__(self, folder: Path) -> None:
        self.port, self._health = free_port(), free_port()
        self._folder = folder
        self._command: list[str] = []
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What a scheduler's configuration says of it."""
        return configured(f"http://127.0.0.1:{self.port}", ExtenderSettings())

    def start(self, plane: ControlPlane) -> None:
        """Serving, with a complete view."""
        self._command = [sys.executable, "-c", "from cotenant.cli.main import run; run()", "serve", "extender"]
        self._command += ["--kubeconfig", str(account(plane, EXTENDER)), "--port", str(self.port)]
        self._command += ["--set", f"telemetry.health_port={self._health}"]
        self._begin()
        wait_for("the extender's view", self._ready, 120)

    def again(self) -> None:
        """SIGKILL, and a new one, which nobody waits for: meanwhile the scheduler goes without."""
        self.kill()
        self._begin()

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def _begin(self) -> None:
        with (self._folder / "extender.log").open("ab") as out:
            self.child = subprocess.Popen(self._command, stdout=out, stderr=out)

    def _ready(self) -> bool:
        probe = Api(f"http://127.0.0.1:{self._health}", None, timeout=5)
        try:
            return "check passed" in probe.text("/readyz?verbose")
        except OSError:
            return False
        finally:
            probe.close()


@contextmanager
def second_scheduler(plane: ControlPlane, folder: Path) -> Iterator[Server]:
    """Another kube-scheduler, for pods that name it; it knows nothing of us or of the first one's decisions."""
    kubeconfig = str(plane.user(f"system:{SCHEDULER}"))
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
        "profiles": [{"schedulerName": OTHER}],
    }
    path = folder / "other-scheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    flags = [f"--config={path}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
    flags += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
    server = Server(OTHER, [str(find(SCHEDULER)), *flags], folder / "other-scheduler.log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@dataclass
class Tally:
    """How hand-overs went: owners that landed where their room was, strangers that got it, seconds of each."""

    landed: int = 0
    elsewhere: int = 0
    robbed: int = 0
    overbooked: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return self.landed + self.elsewhere


def rounds(
    cluster: Scene,
    nodes: Sequence[str],
    tally: Tally,
    disturb: Callable[[], None] = lambda: None,
    **stranger: Any,
) -> None:
    """A hand-over on each node (four cores, three of them reserved) at the same time, under eight strangers each."""
    tag = f"{time.monotonic_ns() % 10**9}"
    pins: dict[str, Any] = {node: {"nodeSelector": {"kubernetes.io/hostname": node}} for node in nodes}
    names = {node: cluster.reservation("held", template=pins[node]) for node in nodes}
    for name in names.values():
        cluster.await_phase(name, "Available", 120)
    strangers = [s for node in nodes for s in cluster.strangers(STRANGERS, **pins[node], **stranger)]
    start = time.monotonic()
    for number, node in enumerate(nodes):
        cluster.pod(f"owner-{tag}-{number}", app=names[node], gate=True)
    noise = threading.Thread(target=disturb)
    noise.start()
    ends = _landing(cluster, [f"owner-{tag}-{n}" for n in range(len(nodes))], start)
    noise.join()
    for number, node in enumerate(nodes):
        where = cluster.node_of(f"owner-{tag}-{number}")
        tally.landed, tally.elsewhere = tally.landed + (where == node), tally.elsewhere + (where != node)
    tally.seconds += ends
    tally.robbed += sum(bool(cluster.node_of(s)) for s in strangers)
    tally.overbooked += sum(_cores(cluster, node) > 4 for node in nodes)
    empty(cluster)
    for name in names.values():
        cluster.api.delete(f"{RESERVATIONS}/{name}")
    wait_for("no placeholders", lambda: not any(cluster.placeholders(name) for name in names.values()))


def _landing(cluster: Scene, owners: Sequence[str], start: float) -> list[float]:
    """Seconds until each owner was bound; a minute for one that was not."""
    landing_seconds: dict[str, float] = {}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    while len(landing_seconds) < len(owners) and time.monotonic() - start < 60:
        for item in cluster.api.items(path, fieldSelector="spec.nodeName!="):
            name = item["metadata"]["name"]
            if name in owners:
                landing_seconds.setdefault(name, time.monotonic() - start)
        time.sleep(0.01)
    return [landing_seconds.get(name, 60.0) for name in owners]


def _cores(cluster: Scene, node: str) -> int:
    """Cores of all pods that are bound to a node and have not ended."""
    bound = cluster.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node},status.phase!=Failed")
    return sum(int(c["resources"]["requests"]["cpu"]) for pod in bound for c in pod["spec"]["containers"])


def killing(
    plane: ControlPlane, manager: ManagerProcess, seed: random.Random, *others: Callable[[], None]
) -> Callable[[], None]:
    """Kill some of manager, scheduler and others at a random moment of the next second, and start them again."""

    def scheduler() -> None:
        server = plane.servers[SCHEDULER]
        server.kill()
        server.start()

    def disturb() -> None:
        parts = [manager.again, scheduler, *others]
        chosen = seed.sample(parts, seed.randint(1, len(parts)))
        time.sleep(seed.uniform(0.0, 0.6))
        for again in chosen:
            again()

    return disturb
