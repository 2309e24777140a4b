"""The accounts that `cotenant install` makes, with the rights of deploy/rbac and no more, for tests that act.

    account(plane, "cotenant-manager")             # kubeconfig with a token of that ServiceAccount
    account(plane, "cotenant-manager", namespace)  # what it may do in koordinator-system it may do in `namespace` too

An administrator hides a right that is missing, and the policies of deploy/ that hold an account to what it needs.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from cotenant.cli.installation.manifests import manifests
from cotenant.edges.kube import Writer
from cotenant.model.intent import Address, Apply
from tests.cluster.control_plane import ControlPlane

RIGHTS = ("rbac", "reservations", "extender", "enforcer")
KINDS = frozenset(
    {
        "Namespace",
        "ServiceAccount",
        "PriorityClass",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
"""Of what is installed: accounts, rights and policies; no pod of ours is started."""
CONFIG_NAMESPACE = "koordinator-system"
TOKEN_SECONDS = 7200


def install_rights(plane: ControlPlane) -> None:
    """Accounts, rights and policies as `cotenant install` makes them, once a control plane."""
    done = plane.folder / "rights-installed"
    if done.exists():
        return
    writer = Writer(plane.client(), "cotenant-install", cap_bytes=1 << 20)
    for manifest in manifests(RIGHTS):
        if manifest.kind in KINDS:
            writer.send(Apply(manifest.address, manifest.body))
    done.touch()


def account(plane: ControlPlane, name: str, namespace: str = "") -> Path:
    """Kubeconfig of one of our ServiceAccounts, by a token.

    namespace: where the manager keeps its Lease and finds its ConfigMap, when it is not koordinator-system.
    """
    install_rights(plane)
    if namespace not in ("", CONFIG_NAMESPACE):
        _also_in(plane, namespace)
    file = plane.folder / f"{name}.kubeconfig"
    if not file.exists():
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = plane.api().create(f"/api/v1/namespaces/cotenant/serviceaccounts/{name}/token", body)
        document = yaml.safe_load(plane.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token["status"]["token"]}
        file.write_text(yaml.safe_dump(document))
    return file


def _also_in(plane: ControlPlane, namespace: str) -> None:
    """Grant in a namespace what is granted in koordinator-system."""
    writer = Writer(plane.client(), "cotenant-install", cap_bytes=1 << 20)
    for manifest in manifests(RIGHTS):
        address = manifest.address
        if address.namespace == CONFIG_NAMESPACE and manifest.kind in ("Role", "RoleBinding"):
            body = {**manifest.body, "metadata": {**manifest.body["metadata"], "namespace": namespace}}
            writer.send(Apply(Address(address.api_version, address.resource, address.name, namespace), body))
