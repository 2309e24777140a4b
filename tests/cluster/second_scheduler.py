"""A stock kube-scheduler beside the cluster's own, with our extender, set up by the commands of docs/extender.md.

The extender has the rights of its documented account, the scheduler those that the page grants.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.binaries import find
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.process import Server, free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extender.md"
STEP = re.compile(r"^<!-- step: (\S+) -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTED_URL = "https://cotenant-extender.cotenant.svc:9445"
NAME = "cotenant"
"""What pods write as their schedulerName."""
USER = "system:serviceaccount:kube-system:cotenant-scheduler"
KINDS = ("deployments", "statefulsets", "daemonsets")
GRANTED = (
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cotenant-kube-scheduler",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cotenant-volume-scheduler",
)
"""What the page's commands leave outside of namespaces of Kubernetes' own."""


@contextmanager
def second_scheduler(
    plane: ControlPlane,
    environment: Mapping[str, str],
    folder: Path,
    fields: str = "",
    parts: dict[str, Server] | None = None,
) -> Iterator[str]:
    """Both run until the end, the extender with a complete view; gives the URL of the extender's health server.

    fields: YAML of further fields of the scheduler's configuration; parts: where both servers are put, by name.
    """
    port, health_port = free_port(), free_port()
    url, pki = f"https://127.0.0.1:{port}", folder / "pki"
    steps = {name: text.replace(DOCUMENTED_URL, url).replace("./pki", str(pki)) for name, text in _steps().items()}
    _type(steps["certificates"], environment)
    _type(steps["second-scheduler-rights"], environment)
    own = f"--scheduler-certs {pki}/scheduler --scheduler-kubeconfig {plane.user(USER, _GROUPS)}"
    file = folder / "second-scheduler.yaml"
    file.write_text(_type(f"{steps['second-scheduler'].rstrip()} {own}", environment) + fields)
    arguments = ["--set", f"telemetry.health_port={health_port}", "serve", "extender", "--port", str(port)]
    arguments += ["--cert-dir", str(pki / "server"), "--kubeconfig", str(account(plane, "cotenant-extender"))]
    extender = Server(
        "extender", [str(Path(sys.executable).with_name("cotenant")), *arguments], folder / "extender.log"
    )
    serving = [f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
    scheduler = Server(NAME, [str(find(SCHEDULER)), f"--config={file}", *serving], folder / "second-scheduler.log")
    health = f"http://127.0.0.1:{health_port}"
    if parts is not None:
        parts.update(extender=extender, scheduler=scheduler)
    try:
        extender.start()
        extender.wait_until(lambda: "check passed" in _text_of(health, "/readyz?verbose"))
        scheduler.start()
        yield health
    finally:
        scheduler.kill()
        extender.kill()
        for path in GRANTED:
            plane.api().delete(path)


_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")


def _steps() -> dict[str, str]:
    """Commands of the page by name."""
    return dict(STEP.findall(PAGE.read_text()))


def _type(command: str, environment: Mapping[str, str]) -> str:
    """What a command prints; the test fails when it fails."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def _text_of(url: str, path: str) -> str:
    """What a server says; empty while there is none."""
    api = Api(url, None, timeout=5)
    try:
        return api.text(path)
    except OSError:
        return ""
    finally:
        api.close()


def answers(health: str) -> float:
    """Questions that the extender has answered so far."""
    lines = [
        line
        for line in _text_of(health, "/metrics").splitlines()
        if line.startswith("cotenant_extender_answers_total{")
    ]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def controllers(api: Api, prefix: str) -> list[dict[str, Any]]:
    """Deployments, StatefulSets and DaemonSets of the namespaces that begin like that."""
    bodies = []
    for kind in KINDS:
        items = api.items(f"/apis/apps/v1/{kind}")
        bodies += [{**body, "kind": kind} for body in items if body["metadata"]["namespace"].startswith(prefix)]
    return bodies


def choose_scheduler(api: Api, prefix: str) -> None:
    """Let every controller's pods ask for the second scheduler; they are rolled out anew by that."""
    for body in controllers(api, prefix):
        meta = body["metadata"]
        path = f"/apis/apps/v1/namespaces/{meta['namespace']}/{body['kind']}/{meta['name']}"
        api.patch(path, {"spec": {"template": {"spec": {"schedulerName": NAME}}}})


def rolled_out(api: Api, prefix: str) -> bool:
    """Whether every controller has all its pods of the newest template, ready, and no others."""
    return all(_whole(body) for body in controllers(api, prefix))


def _whole(body: dict[str, Any]) -> bool:
    status, count = body.get("status") or {}, (body["spec"] or {}).get("replicas")
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return False
    if body["kind"] == "daemonsets":
        count, ready = status["desiredNumberScheduled"], status.get("numberReady", 0)
        updated, all_ = status.get("updatedNumberScheduled", 0), status["currentNumberScheduled"]
    else:
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
        all_ = status.get("replicas", 0)
    return bool(updated == ready == all_ == count)


def refusals(api: Api, prefix: str) -> dict[str, str]:
    """Pods without a node and what the scheduler says of each."""
    pods = [pod for pod in api.items("/api/v1/pods") if pod["metadata"]["namespace"].startswith(prefix)]
    waiting = {pod["metadata"]["name"]: pod["status"] for pod in pods if not pod["spec"].get("nodeName")}
    return {name: json.dumps(status.get("conditions")) for name, status in waiting.items()}
