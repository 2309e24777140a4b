"""EDGE: the objects of an installation, which the package ships in `deploy/`.

A component is a set of those files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.webhook_server.registration import ShippedRegistration
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.kubernetes.intent import Address
from cotenant.base.process.shipped_manifests import deploy

_SHIPPED: Final = json.loads((deploy() / "components.json").read_text("utf-8"))
COMPONENTS: Final[dict[str, list[str]]] = _SHIPPED["components"]
"""Component -> its files or folders below deploy/, from a file that the Helm chart reads too; see DEFAULT."""
FEATURES: Final[dict[str, list[str]]] = _SHIPPED["features"]
"""Component -> the manager's features that need it; a manager that is installed with it runs no others."""

SWITCHED_ON: Final[dict[str, str]] = {
    "queues": "    queues:\n      enabled: true\n      keep_gates_at_end: true\n",
    "descheduler": "    descheduler:\n      enabled: true\n",
    "load-taints": "    load_taints:\n      enabled: true\n",
    "autopilot": "    autopilot:\n      enabled: true\n    actions:\n      ledger: /var/lib/cotenant/ledger.db\n",
}
"""Feature -> settings that an installation with this feature enables; they are disabled by default."""

RIGHTS: Final = ("crds", "priority-classes", "rbac", "reservations")
"""Components that are installed by default if a Prometheus is configured; they start no process."""
MEASURING: Final = ("recorder", "scan")
"""Components that measure usage without a Prometheus and show it."""
DEFAULT: Final = (*RIGHTS, *MEASURING)
MANAGER_FILE: Final = "manager.yaml"

PLURALS: Final[dict[str, str]] = {
    "Namespace": "namespaces",
    "CustomResourceDefinition": "customresourcedefinitions",
    "PriorityClass": "priorityclasses",
    "DeviceClass": "deviceclasses",
    "ResourceQuota": "resourcequotas",
    "ServiceAccount": "serviceaccounts",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
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
    "CronJob": "cronjobs",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "NetworkPolicy": "networkpolicies",
}
"""Kind -> plural of every kind that we ship, in the order in which they are installed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One shipped object with its component and its API address."""

    component: str
    address: Address
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return str(self.body["kind"])


@dataclass(frozen=True, slots=True)
class InstalledParts:
    """The parts of an installation that the cluster already has: the settings, the recorder and the manager."""

    settings: bool = False
    recorder: bool = False
    manager: bool = False


def parse_components(text: str, default: tuple[str, ...] = DEFAULT) -> tuple[str, ...]:
    """Return the component names of a text such as "crds,rbac", or the default if empty; UsageError if unknown."""
    names = tuple(word.strip() for word in text.split(",") if word.strip()) or default
    for name in names:
        if name not in COMPONENTS:
            raise UsageError(f"--components {name!r} is not a component", fix=f"Choose from {', '.join(COMPONENTS)}.")
    return names


def texts(components: Sequence[str]) -> list[tuple[str, str]]:
    """Return (component, YAML text) of every file of the components, each file once."""
    root = deploy()
    paths: dict[str, str] = {}
    for component in components:
        for path in COMPONENTS[component]:
            paths.setdefault(path, component)
    if MANAGER_FILE in paths:
        paths.pop("scan.yaml", None)  # the manager pulls history itself, and a store has one writer
    off = features_off(components)
    on = "".join(text for feature, text in SWITCHED_ON.items() if feature not in off)
    shipped = []
    for path, component in paths.items():
        place = root / path
        if place.is_dir():
            files = sorted((f for f in place.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
        elif place.is_file():
            files = [place]
        else:
            raise CotenantError(f"the cotenant package lacks the file {place.name}", fix="Reinstall cotenant.")
        for file in files:
            text = file.read_text("utf-8")
            if path == "settings.yaml":  # they turn off what the installation is not there for, and SWITCHED_ON on
                line = "    manager:\n"
                text = text.replace(line, f"{on}{line}" + (f"      features_off: [{', '.join(off)}]\n" if off else ""))
            shipped.append((component, text))
    return shipped


def features_off(components: Sequence[str]) -> list[str]:
    """Return the features of the manager that none of these components needs."""
    on = {feature for component in components for feature in FEATURES.get(component, ())}
    return sorted({feature for features in FEATURES.values() for feature in features} - on)


def manifests(components: Sequence[str]) -> list[Manifest]:
    """Return every object of the components once, in the order of installation."""
    by_address: dict[Address, Manifest] = {}
    for component, text in texts(components):
        for body in bodies(text):
            manifest = Manifest(component, address_of(body), body)
            by_address.setdefault(manifest.address, manifest)
    order = list(PLURALS)
    return sorted(by_address.values(), key=lambda m: order.index(m.kind))


def manifests_beside(components: Sequence[str], installed: InstalledParts, *, is_default: bool) -> list[Manifest]:
    """Return the objects of the components, except those that would disable a part of the present installation.

    If nobody chose the components (`is_default`), and the cluster has settings but no recorder, an earlier choice
    excluded it: no component that measures usage is added. If the cluster has a manager and the components include
    none, its settings are left unchanged and no scan job is added, because a store has one writer.
    """
    if is_default and installed.settings and not installed.recorder:
        components = [name for name in components if name not in MEASURING]
    shipped = manifests(components)
    if not installed.manager or any(MANAGER_FILE in COMPONENTS[name] for name in components):
        return shipped
    left_out = {("ConfigMap", "cotenant-settings"), ("CronJob", "cotenant-scan")}
    return [manifest for manifest in shipped if (manifest.kind, manifest.address.name) not in left_out]


def bodies(text: str) -> Iterator[dict[str, Any]]:
    """Return the objects of a YAML stream, unchanged."""
    import yaml

    return (body for body in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if body)


def address_of(body: Mapping[str, Any]) -> Address:
    """Return the API address of a shipped object."""
    meta = body["metadata"]
    return Address(body["apiVersion"], PLURALS[body["kind"]], meta["name"], meta.get("namespace", ""))


def shipped_registration() -> ShippedRegistration:
    """Return the shipped objects with which `cotenant serve webhook --install` registers the webhooks."""
    return ShippedRegistration(lambda: [dict(manifest.body) for manifest in manifests(("registration",))], address_of)
