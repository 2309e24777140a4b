"""The accounts that `cotenant install` makes, with the rights of deploy/rbac and no more, for tests that act.

    account(plane, "cotenant-manager")             # kubeconfig with a token of that ServiceAccount
    account(plane, "cotenant-manager", namespace)  # what it may do in koordinator-system it may do in `namespace` too
    token_of(plane, "cotenant-manager", file)      # another token of it, which an audit log tells apart
    certified(plane, "cotenant-manager")           # the same account by a certificate, for a FaultProxy
    applier(plane, namespace)                      # somebody who may accept recommendations in `namespace`
    planner(plane)                                 # somebody who may plan and approve reservations

An administrator hides a right that is missing, and the policies of deploy/ that hold an account to what it needs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from cotenant.base.errors import ClusterForbidden
from cotenant.base.kube import KubeClient, Writer, access_review
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.process.shipped_manifests import deploy
from cotenant.cli.cluster.installation.manifests import Manifest, address_of, bodies, manifests
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for

RIGHTS = (
    "rbac",
    "reservations",
    "queues",
    "descheduler",
    "tainting",
    "autopilot",
    "extender",
    "enforcer",
    "devices",
    "applier",
    "reader",
    "recorder",
)
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
ELSEWHERE = frozenset({"monitoring"})
"""Namespaces of others, which a test cluster does not have."""
SWAP_GUARDS = "swapguards.cotenant.dev"
"""The definition that policies refer to; of one that comes after them the API server learns within 30 s only."""
CONFIG_NAMESPACE = "koordinator-system"
TOKEN_SECONDS = 7200


@cache
def _shipped() -> Sequence[Manifest]:
    hook = ("rbac/uninstall.yaml", "uninstall-guard.yaml")  # of the chart alone
    texts = [(deploy() / path).read_text("utf-8") for path in hook]
    return [
        *manifests(RIGHTS),
        *(Manifest("hook", address_of(body), body) for text in texts for body in bodies(text)),
    ]


def install_rights(plane: ControlPlane) -> None:
    """Accounts, rights and policies as `cotenant install` makes them, once a control plane."""
    done = plane.folder / "rights-installed"
    if done.exists():
        return
    install_crd(plane.api(), SWAP_GUARDS)
    writer = Writer(plane.admin_client(), "cotenant-install", cap_bytes=1 << 20)
    for manifest in _shipped():
        if manifest.kind in KINDS and manifest.address.namespace not in ELSEWHERE:
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
        _write_token(plane, name, file)
        await_right(plane, file, ("list", "pods"))
    if name == "cotenant-manager" and namespace:
        client = plane.client(file)
        path = f"/api/v1/namespaces/{namespace}/configmaps/cotenant-status"
        wait_for(f"the manager's rights in {namespace}", lambda: _may_get(client, path))
        client.close()
    return file


def token_of(plane: ControlPlane, name: str, file: Path) -> str:
    """Write a kubeconfig with another token of an account; the token's id, as audit logs have it (`user.extra`)."""
    token = _write_token(plane, name, file)
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


def _write_token(plane: ControlPlane, name: str, file: Path) -> str:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = plane.api().create(f"/api/v1/namespaces/cotenant/serviceaccounts/{name}/token", body)["status"]["token"]
    document = yaml.safe_load(plane.admin_kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    file.write_text(yaml.safe_dump(document))
    return str(token)


def certified(plane: ControlPlane, name: str, namespace: str = "") -> Path:
    """The same account proven by a client certificate, which a FaultProxy shows to the API server on its behalf."""
    account(plane, name, namespace)
    return plane.user(f"system:serviceaccount:cotenant:{name}", ["system:serviceaccounts"])


def applier(plane: ControlPlane, namespace: str, name: str = "ann", heads_in: str = "") -> Path:
    """Kubeconfig of a person bound to the roles of deploy/applier.yaml in a namespace.

    heads_in: the namespace that keeps the heads of ledgers, the same one unless given.
    """
    install_rights(plane)
    group, looks = "rbac.authorization.k8s.io", "cotenant-applier-looks"
    api, subjects = plane.api(), [{"apiGroup": group, "kind": "User", "name": name}]
    roles = {looks: "", "cotenant-ledger-anchor": heads_in or namespace, "cotenant-applier": namespace}
    for role, inside in roles.items():
        plural = f"namespaces/{inside}/rolebindings" if inside else "clusterrolebindings"
        path, bound = f"/apis/{group}/v1/{plural}", f"{role}-{name}"
        if not api.exists(f"{path}/{bound}"):
            reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
            api.create(path, {"metadata": {"name": bound}, "roleRef": reference, "subjects": subjects})
    file = plane.user(name)
    await_right(plane, file, ("list", "nodes"))
    await_right(plane, file, ("patch", "deployments", "apps", namespace))
    return file


def planner(plane: ControlPlane, name: str = "paul", role: str = "cotenant-planner", approves: bool = True) -> Path:
    """Kubeconfig of a person bound to a role of deploy/planner.yaml that lists pods, in the whole cluster.

    approves: and to the role that approves plans.
    """
    install_rights(plane)
    group = "rbac.authorization.k8s.io"
    api, path = plane.api(), f"/apis/{group}/v1/clusterrolebindings"
    subjects = [{"apiGroup": group, "kind": "User", "name": name}]
    for text in (role, *(["cotenant-plan-approver"] if approves and role == "cotenant-planner" else [])):
        if not api.exists(f"{path}/{text}-{name}"):
            reference = {"apiGroup": group, "kind": "ClusterRole", "name": text}
            api.create(path, {"metadata": {"name": f"{text}-{name}"}, "roleRef": reference, "subjects": subjects})
    file = plane.user(name)
    await_right(plane, file, ("list", "pods"))
    return file


def await_right(plane: ControlPlane, file: Path, right: tuple[str, ...]) -> None:
    """The API server learns of a new role a moment after it was written."""
    client = plane.client(file)
    try:
        wait_for(f"the right to {' '.join(right)}", lambda: access_review(client, *right))
    finally:
        client.close()


def _may_get(client: KubeClient, path: str) -> bool:
    try:
        client.get(path)
    except ClusterForbidden:
        return False
    return True


def _also_in(plane: ControlPlane, namespace: str) -> None:
    """Grant in a namespace what is granted in koordinator-system."""
    writer = Writer(plane.admin_client(), "cotenant-install", cap_bytes=1 << 20)
    for manifest in _shipped():
        address = manifest.address
        if address.namespace == CONFIG_NAMESPACE and manifest.kind in ("Role", "RoleBinding"):
            body = {**manifest.body, "metadata": {**manifest.body["metadata"], "namespace": namespace}}
            writer.send(Apply(Address(address.api_version, address.resource, address.name, namespace), body))
