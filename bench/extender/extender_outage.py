"""The extender is killed while pods are scheduled: how long until they are bound, by both kinds of configuration.

.venv/bin/python -m bench.extender.extender_outage [--rounds 5]

Ignorable (as shipped): kill -9, then pods are created; from the kill to the last of them bound. Meanwhile nodes that
are full of placeholders must stay theirs. Not ignorable: killed, pods are created and wait, the extender comes back;
from the moment its view is complete again to the last pod bound.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.extender.extender_throughput import emptied
from bench.record import Row, below, record
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, extenders
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.cluster.api import Api
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import install_crds, scheduler

PODS = 10
NODES = 20
LABELS = {"koordinator.sh/qosClass": "LS"}


class Extender:
    """`cotenant serve extender` as a process that is killed and started again on its port."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.port, health = free_port(), free_port()
        url = f"https://127.0.0.1:{self.port}"
        issue(folder / "pki", url)
        files = [str(folder / "pki" / "scheduler" / name) for name in ("ca.crt", "tls.crt", "tls.key")]
        self.entries = extenders(Reach(url, *files), ExtenderSettings())
        self._command = [
            *(sys.executable, "-c", "from cotenant.cli.main import run; run()"),
            *("serve", "extender", "--kubeconfig", str(plane.admin_kubeconfig), "--port", str(self.port)),
            *("--cert-dir", str(folder / "pki" / "server"), "--set", f"telemetry.health_port={health}"),
        ]
        self._health = f"http://127.0.0.1:{health}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serving, with a complete view."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        wait_for("a complete view", self.ready, 120, 0.02)

    def ready(self) -> bool:
        probe = Api(self._health, None, timeout=5)
        try:
            return "check passed" in probe.text("/readyz?verbose")
        except OSError:
            return False
        finally:
            probe.close()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/app:1", "resources": {"requests": {"cpu": cpu}}}
    labels = {**LABELS, **spec.pop("labels", {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], **spec}}


def hold(api: Api, nodes: list[str]) -> None:
    """Half of the nodes is full of placeholders."""
    labels = {"cotenant.dev/placeholder": "true", "cotenant.dev/reservation": "bench"}
    for node in nodes:
        api.create(
            f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods", pod(f"h-{node}", "15900m", labels=labels, nodeName=node)
        )


def create(api: Api, round_number: int) -> None:
    for number in range(PODS):
        api.create("/api/v1/namespaces/bench/pods", pod(f"p-{round_number}-{number}", "1"))


def all_bound(api: Api) -> None:
    path = "/api/v1/namespaces/bench/pods"
    wait_for("all are bound", lambda: not api.items(path, fieldSelector="spec.nodeName=", limit="1"), 120, 0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        components = Options(components=frozenset({CONTROLLER_MANAGER, "kwok"}))
        with ControlPlane(folder / "cluster", components) as plane:
            install_crds(plane)
            for namespace in ("bench", PLACEHOLDER_NAMESPACE):
                create_namespace(plane.api(), namespace)
            names = create_nodes(plane, NODES, NodeShape(prefix="node", cpu="16"))
            hold(plane.api(), names[: NODES // 2])
            extender = Extender(plane, folder)
            try:
                ignorable, intruders = killed(plane, folder, extender, options.rounds, names)
                strict = returned(plane, folder, extender, options.rounds)
            finally:
                extender.kill()
    report(ignorable, intruders, strict)


def killed(
    plane: ControlPlane, folder: Path, extender: Extender, rounds: int, names: list[str]
) -> tuple[list[float], int]:
    """(seconds from each kill to the last pod bound, pods that got onto held room)."""
    took, intruders, api = [], 0, plane.api()
    with scheduler(plane, folder, {"extenders": extender.entries}):
        for number in range(rounds):
            extender.start()
            create(api, number)
            all_bound(api)
            began = time.monotonic()
            extender.kill()
            create(api, number + 1000)
            all_bound(api)
            took.append(time.monotonic() - began)
            held_nodes = set(names[: NODES // 2])
            intruders += sum(p["spec"]["nodeName"] in held_nodes for p in api.items("/api/v1/namespaces/bench/pods"))
            emptied(plane, "bench")
    return took, intruders


def returned(plane: ControlPlane, folder: Path, extender: Extender, rounds: int) -> list[float]:
    """Seconds from each return to the last pod bound, where pods wait for the extender."""
    took, api = [], plane.api()
    entries = [{**entry, "ignorable": False} for entry in extender.entries]
    with scheduler(plane, folder, {"extenders": entries}):
        for number in range(rounds):
            extender.kill()
            create(api, number)
            time.sleep(2)  # an outage lasts; nobody may be bound in it
            assert not api.items("/api/v1/namespaces/bench/pods", fieldSelector="spec.nodeName!=", limit="1")
            extender.start()
            began = time.monotonic()
            all_bound(api)
            took.append(time.monotonic() - began)
            emptied(plane, "bench")
    return took


def report(ignorable: list[float], intruders: int, strict: list[float]) -> None:
    record(
        "extender_outage",
        " ".join([".venv/bin/python -m bench.extender.extender_outage", *sys.argv[1:]]),
        [
            below("killed, ignorable: until pods are bound again", round(max(ignorable), 2), "s", 5, f"{PODS} pods"),
            below("pods on room that placeholders hold meanwhile", intruders, "pods", 0),
            below("not ignorable: bound after its return", round(max(strict), 2), "s", 15, "slowest round"),
            Row("rounds of each", len(ignorable), ""),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


if __name__ == "__main__":
    main()
