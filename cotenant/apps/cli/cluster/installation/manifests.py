"""EDGE: the objects that an installation consists of, as the package ships them in `deploy/`.

A component is a set of those files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, Final

from cotenant.core.adapters.shipped_manifests import deploy
from cotenant.core.model.errors import CotenantError, UsageError
from cotenant.core.model.kubernetes.intent import Address

COMPONENTS: Final[dict[str, tuple[str, ...]]] = {
    "crds": ("crds",),
    "priority-classes": ("priorityclasses.yaml",),
    "rbac": ("rbac/manager.yaml", "rbac/webhook.yaml", "webhook-guard.yaml"),
    "reservations": ("reservations.yaml", "reservation-guard.yaml", "rbac/reservations.yaml", "rbac/plans.yaml"),
    "webhooks": ("webhooks.yaml",),
    "extender": ("rbac/extender.yaml", "extender.yaml"),
    "enforcer": ("rbac/enforcer.yaml", "enforcer-guard.yaml", "enforcer.yaml"),
    "reader": ("rbac/reader.yaml",),
    "applier": ("applier.yaml", "planner.yaml"),
}
"""Name -> files or folders below deploy/. What is installed unless somebody chooses: DEFAULT."""

DEFAULT: Final = ("crds", "priority-classes", "rbac", "reservations")

PLURALS: Final[dict[str, str]] = {
    "Namespace": "namespaces",
    "CustomResourceDefinition": "customresourcedefinitions",
    "PriorityClass": "priorityclasses",
    "ServiceAccount": "serviceaccounts",
    "Secret": "secrets",
    "ClusterRole": "clusterroles",
    "Role": "roles",
    "ClusterRoleBinding": "clusterrolebindings",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "Service": "services",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "Deployment": "deployments",
    "DaemonSet": "daemonsets",
}
"""Kind -> plural of every kind that we ship, in the order in which they are installed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object that we ship: the component it belongs to, where it goes, and the object itself."""

    component: str
    address: Address
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.body["kind"])


def chosen(text: str) -> tuple[str, ...]:
    """Component names of "crds,rbac"; empty means the default. UsageError names an unknown one."""
    names = tuple(word.strip() for word in text.split(",") if word.strip()) or DEFAULT
    for name in names:
        if name not in COMPONENTS:
            raise UsageError(f"--components {name!r} is not a component", fix=f"Write some of {', '.join(COMPONENTS)}.")
    return names


def texts(components: Sequence[str]) -> list[tuple[str, str]]:
    """(component, YAML text) of every file of the components."""
    root = deploy()
    return [
        (component, file.read_text("utf-8"))
        for component in components
        for name in COMPONENTS[component]
        for file in _files(root / name)
    ]


def manifests(components: Sequence[str]) -> list[Manifest]:
    """Every object of the components once, in the order of installation."""
    import yaml

    by_address: dict[Address, Manifest] = {}
    for component, text in texts(components):
        for body in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if body:
                manifest = Manifest(component, address_of(body), body)
                by_address.setdefault(manifest.address, manifest)
    order = list(PLURALS)
    return sorted(by_address.values(), key=lambda m: order.index(m.kind))


def address_of(body: Mapping[str, Any]) -> Address:
    """Where a shipped object lives."""
    meta = body["metadata"]
    return Address(body["apiVersion"], PLURALS[body["kind"]], meta["name"], meta.get("namespace", ""))


def _files(place: Traversable) -> list[Traversable]:
    """A file itself, or the YAML files of a folder by name."""
    if place.is_dir():
        return sorted((f for f in place.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    if place.is_file():
        return [place]
    raise CotenantError(f"the package holds no {place.name}", fix="Install cotenant again from its wheel.")
