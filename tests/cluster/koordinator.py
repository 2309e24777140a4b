"""Koordinator's own programs beside the test cluster, with the rights and the configuration of its sources.

    install(plane)                         # its definitions, accounts and roles; once a control plane
    with manager(plane, folder): ...
    with scheduler(plane, folder): ...

Definitions and priority classes that cotenant ships too are cotenant's. Each program has a certificate of its account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import CRDS, FOLDER, install_crd
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.waiting import wait_for

NAMESPACE = "koordinator-system"
SCHEDULER_NAME = "koord-scheduler"
ROLES = ("service_account", "role", "role_binding", "scheduler_role", "scheduler_role_binding", "koordlet")
WEBHOOKS_OFF = (
    "PodMutatingWebhook=false,PodValidatingWebhook=false,ElasticMutatingWebhook=false,"
    "ElasticValidatingWebhook=false,WebhookFramework=false"
)


def sources() -> Path:
    """Koordinator's files of configuration, of the version that its programs are built from."""
    return binaries.sources("koordinator", "github.com/koordinator-sh/koordinator") / "config"


def install(plane: ControlPlane) -> None:
    """As Koordinator's own chart does, but for definitions and classes that cotenant has installed before."""
    api, config = plane.api(), sources()
    create_namespace(api, NAMESPACE)
    for file in sorted(FOLDER.glob("*.yaml")):
        install_crd(api, file.stem)
    bodies = [body for file in sorted((config / "crd" / "bases").glob("*.yaml")) for body in _bodies(file) if body]
    names = [body["metadata"]["name"] for body in bodies]
    for body in bodies:
        if not api.exists(f"{CRDS}/{body['metadata']['name']}"):
            api.create(CRDS, body)
    roles = "\n---\n".join((config / "rbac" / f"{name}.yaml").read_text() for name in ROLES)
    plane.kubectl("apply", "-f", "-", text=roles.replace("namespace: system", f"namespace: {NAMESPACE}"))
    plane.kubectl("apply", "-f", str(FOLDER.parent / "priorityclasses.yaml"))
    wait_for("the definitions", lambda: all(_established(api.get(f"{CRDS}/{name}")) for name in names))


def _bodies(file: Path) -> Iterator[Any]:
    return iter(yaml.safe_load_all(file.read_text()))


def _established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def access(plane: ControlPlane, account: str) -> Path:
    """Kubeconfig of one of Koordinator's accounts."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    return plane.user(f"system:serviceaccount:{NAMESPACE}:{account}", groups)


@contextmanager
def program(name: str, arguments: Sequence[str], folder: Path, **environment: str) -> Iterator[Server]:
    """One of them until the end."""
    variables = [f"{key}={value}" for key, value in environment.items()]
    server = Server(name, ["/usr/bin/env", *variables, str(binaries.find(name)), *arguments], folder / f"{name}.log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def manager(plane: ControlPlane, folder: Path) -> Iterator[Server]:
    """koord-manager: amounts of nodes, NodeSLOs and NodeMetrics. Its webhooks stay off, as beside cotenant's."""
    arguments = [
        f"--kubeconfig={access(plane, 'manager')}",
        "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{free_port()}",
        f"--health-probe-addr=127.0.0.1:{free_port()}",
        "--enable-pprof=false",
        f"--config-namespace={NAMESPACE}",
        "--logtostderr=true",
        f"--feature-gates={WEBHOOKS_OFF}",
    ]
    serving = {"WEBHOOK_CERT_DIR": str(folder / "certificates"), "WEBHOOK_PORT": str(free_port())}
    with program(
        "koord-manager", arguments, folder, POD_NAMESPACE=NAMESPACE, WEBHOOK_HOST="127.0.0.1", **serving
    ) as server:
        server.wait_until(lambda: '"Starting workers" "controller"="noderesource"' in server.written())
        yield server


@contextmanager
def scheduler(plane: ControlPlane, folder: Path) -> Iterator[Server]:
    """koord-scheduler with the configuration of its sources; no other scheduler has its name.

    The sources leave the plugin Reservation out of `reserve`, where Koordinator's chart has it first: without it no pod
    is counted against the reservation that it got.
    """
    (shipped,) = _bodies(sources() / "manager" / "scheduler-config.yaml")
    document = yaml.safe_load(shipped["data"]["koord-scheduler-config"])
    (profile,) = document["profiles"]
    profile["plugins"]["reserve"]["enabled"].insert(0, {"name": "Reservation"})
    document["leaderElection"] = {"leaderElect": False}
    document["clientConnection"] = {"kubeconfig": str(access(plane, "scheduler")), "qps": 500, "burst": 1000}
    file = folder / "koord-scheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    arguments = [f"--config={file}", "--authentication-skip-lookup=true", "--bind-address=127.0.0.1", "--v=4"]
    arguments += [f"--secure-port={free_port()}", "--port=0"]
    with program("koord-scheduler", arguments, folder) as server:
        yield server


@contextmanager
def agent(plane: ControlPlane, node: str, folder: Path, arguments: Sequence[str]) -> Iterator[Server]:
    """koordlet, which suppresses best effort and does nothing else; its own files are in a folder.

    words: where the node's cgroups, its kubelet and its runtime are.
    """
    for name in ("metrics", "checkpoints", "audit", "hooks", "run"):
        (folder / name).mkdir()
    own = [
        f"-tsdb-path={folder / 'metrics'}",
        f"-prediction-checkpoint-filepath={folder / 'checkpoints'}",
        f"-audit-log-dir={folder / 'audit'}",
        f"-runtime-hooks-config-path={folder / 'hooks'}",
        f"-runtime-hooks-addr={folder / 'koordlet.sock'}",
        f"-var-run-root-dir={folder / 'run'}/",
        f"-run-root-dir={folder / 'run'}/",
        f"-kubeconfig={access(plane, 'koordlet')}",
        f"-addr=127.0.0.1:{free_port()}",
        "-feature-gates=AllAlpha=false,AllBeta=false,BECPUSuppress=true",
        "-enable-nri-runtime-hook=false",
        "-logtostderr=true",
        "-v=4",
    ]
    with program("koordlet", [*own, *arguments], folder, NODE_NAME=node, agent_mode="hostMode") as server:
        yield server
