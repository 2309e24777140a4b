"""An agent's own credentials on a test cluster: a token bound to a pod of its DaemonSet's account on one node."""

from __future__ import annotations

from pathlib import Path

import yaml

from cotenant.base.kube import Access
from cotenant.base.kube.incluster import AccountFiles, service_account
from cotenant.base.kubernetes.protocol import NODE_AGENT
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "cotenant"
ACCOUNT = NODE_AGENT
CRDS = ("nodemetrics.slo.koordinator.sh", "nodeslos.slo.koordinator.sh", "usageforecasts.cotenant.dev")
FILES = ("rbac/enforcer.yaml", "enforcer-guard.yaml", "rbac/devices.yaml", "devices-guard.yaml", "deviceclasses.yaml")


def installed(plane: ControlPlane) -> None:
    """What the agent reads and writes, its rights and its guards, as they are shipped; its account is there."""
    for name in CRDS:
        install_crd(plane.api(), name)
    for name in FILES:
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / name))
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
    wait_for("the agent's account", lambda: plane.api().exists(account))


def manifests() -> list[dict[str, object]]:
    """Every object that we ship for the agent."""
    files = (*FILES, "enforcer.yaml")
    return [d for name in files for d in yaml.safe_load_all((ROOT / "deploy" / name).read_text())]


def agent_files(plane: ControlPlane, node: str, folder: Path) -> AccountFiles:
    """Token and authority of the agent on a node, as the kubelet lays them into its pod."""
    api, name = plane.api(), unique_name("agent")
    container = {"name": "enforcer", "image": "none"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"serviceAccountName": ACCOUNT, "nodeName": node, "containers": [container]},
    }
    live = api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": live["metadata"]["uid"]}
    token_request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": bound},
    }
    response = api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", token_request)
    token = folder / f"{name}.token"
    token.write_text(response["status"]["token"])
    return AccountFiles(str(token), str(plane.authority.certificate), plane.server)


def agent_access(plane: ControlPlane, node: str, folder: Path) -> Access:
    """Who the agent of a node is."""
    return service_account(agent_files(plane, node, folder), {})
