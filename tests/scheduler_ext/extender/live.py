"""A real kube-scheduler with our extender, for tests and benches, configured as `--print-config` has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cotenant.base.http.http_connection import Application, Request, Response
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, extenders
from cotenant.scheduler_ext.extender.serve.server import ExtenderService
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.cluster.accounts import account
from tests.cluster.binaries import find
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for

EXTENDER = "cotenant-extender"
"""The account's name."""
CRDS = (
    "nodemetrics.slo.koordinator.sh",
    "usageforecasts.cotenant.dev",
    "reservations.scheduling.koordinator.sh",
    "swapguards.cotenant.dev",
    "nodeallocations.cotenant.dev",
    "devices.scheduling.koordinator.sh",
)
FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "crds"


def install_crds(plane: ControlPlane) -> None:
    """What the extender watches."""
    for name in CRDS:
        if (FOLDER / f"{name}.yaml").exists():
            install_crd(plane.api(), name)


@contextmanager
def service(plane: ControlPlane, settings: ExtenderSettings) -> Iterator[ExtenderService]:
    """A running extender with a complete view, with the rights of the documented account."""
    client = plane.client(account(plane, EXTENDER))
    with ExtenderService(client, settings, SystemClock(), Metrics("test", "3")) as running:
        wait_for("a complete view", lambda: bool(running.view.snapshot.sources) and not running.view.snapshot.problem())
        yield running


UNLIMITED_CLIENT = {"qps": 5000, "burst": 10_000}


@contextmanager
def scheduler(plane: ControlPlane, folder: Path, fields: dict[str, Any]) -> Iterator[Server]:
    """A kube-scheduler with these fields in its configuration."""
    kubeconfig = str(plane.user(f"system:{SCHEDULER}"))
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **fields,
        "clientConnection": {"kubeconfig": kubeconfig, **fields.get("clientConnection", UNLIMITED_CLIENT)},
    }
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    flags = [
        f"--config={path}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
    server = Server(SCHEDULER, [str(find(SCHEDULER)), *flags, f"--secure-port={free_port()}"], folder / "scheduler.log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


def configured(url: str, settings: ExtenderSettings, **more: Any) -> dict[str, Any]:
    """Fields of a KubeSchedulerConfiguration for `Options.scheduler`; a machine full of tests gets more time."""
    return {"extenders": extenders(Reach(url), msgspec.structs.replace(settings, http_timeout_seconds=1.0)), **more}


class Recorder:
    """An application that notes every exchange with the one behind it."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.seen: list[tuple[str, bytes, int, bytes]] = []
        """(path, question, status, answer)."""
        self.replace: dict[str, tuple[int, bytes]] = {}
        """Path -> (status, body) that is answered instead."""
        self.delay: dict[str, float] = {}
        """Path -> seconds before an answer."""
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Response:
        response = self.app.answer(request)
        if request.path in self.replace:
            response = Response(*self.replace[request.path], "application/json")
        time.sleep(self.delay.get(request.path, 0.0))
        with self._lock:
            self.seen.append((request.path, request.body, response.status, response.body))
        return response

    def asks_elsewhere(self, path: str) -> bool:
        return path in self.delay or self.app.asks_elsewhere(path)

    def refused(self, path: str) -> None:
        self.app.refused(path)

    def of(self, path: str) -> list[tuple[bytes, int, bytes]]:
        """(question, status, answer) of one path so far."""
        with self._lock:
            return [(q, s, a) for p, q, s, a in self.seen if p == path]

    def asked_about(self, namespace: str) -> set[str]:
        """Paths that were asked about a namespace's pods: an answer that was delayed may be of an earlier test's."""
        with self._lock:
            return {path for path, question, *_ in self.seen if f'"{namespace}"'.encode() in question}
