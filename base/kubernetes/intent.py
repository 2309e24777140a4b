"""The writes to the Kubernetes API that a pure decision requests: the product has these four kinds and no other.

Decisions return intents, `base.kube.Writer` sends them. Server-side apply is for fields that cotenant owns; a JSON
patch with `test` operations is for what a person accepted, and fails if the object has changed since; delete is for
objects that cotenant created; create is for what must not exist yet: a pod, a binding, an eviction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Name of an object, RFC 1123: no option, no path, no shell character."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The address of an object: `resource` is the kind's plural, `namespace` is empty for cluster-scoped kinds.

    `api_version` is "v1" or "group/version". In paths, name and namespace are escaped: a person may have typed them.
    """

    api_version: str
    resource: str
    name: str
    namespace: str = ""

    @property
    def collection(self) -> str:
        """URL path of the list of all objects of this kind in this namespace."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        inside = f"/namespaces/{quote(self.namespace, safe='')}" if self.namespace else ""
        return f"{root}{inside}/{self.resource}"

    @property
    def path(self) -> str:
        """URL path of the object."""
        return f"{self.collection}/{quote(self.name, safe=':')}"

    def manifest(self, kind: str, metadata: Mapping[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
        """Return a JSON object for this address: apiVersion, kind, metadata with its name and namespace, and `parts`.

        `parts` are fields like `spec`; `metadata` has further entries of the metadata, such as labels.
        """
        where = {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})
        return {"apiVersion": self.api_version, "kind": kind, "metadata": where | dict(metadata or {}), **parts}

    def __str__(self) -> str:
        """Return the address in short notation: nodes/n1, recommendations/shop/web."""
        return "/".join(part for part in (self.resource, self.namespace, self.name) if part)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of exactly the fields that cotenant owns; leaving a field out gives up its ownership.

    `body` has apiVersion, kind and metadata.name; a metadata.resourceVersion makes the write conditional. `force` takes
    fields over from other managers; without it they cause a conflict. `asker` is the object that gets an Event if the
    write fails, as text of its `Address`.
    """

    address: Address
    body: Mapping[str, Any]
    subresource: str = ""
    force: bool = True
    why: str = ""
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON patch (RFC 6902) of one object, of which all operations are applied or none."""

    address: Address
    operations: tuple[Mapping[str, Any], ...]
    subresource: str = ""
    why: str = ""
    routine: bool = False
    """True for a heartbeat, which is logged at debug level."""


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of an object, only if it still has the `uid` and the resourceVersion `version`; "" is not compared.

    `grace_seconds` is the time that a pod's containers have to terminate; None is the pod's own grace period.
    """

    address: Address
    uid: str = ""
    why: str = ""
    grace_seconds: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """The creation of an object that must not exist yet, or of a pod's `subresource`: binding, eviction.

    `asker` is the object that needs the new one, as text of its `Address`; if the creation fails, it gets an Event.
    """

    address: Address
    body: Mapping[str, Any]
    subresource: str = ""
    why: str = ""
    asker: str = ""


OURS: Final = {"app.kubernetes.io/managed-by": "cotenant"}
COMPONENT_LABEL: Final = "app.kubernetes.io/component"


def eviction_of(
    pod: Address, uid: str, why: str, options: Mapping[str, Any] | None = None, component: str = "manager"
) -> Create:
    """Return the eviction of the pod with this uid; the API server honours disruption budgets.

    `options` are DeleteOptions as JSON; their uid precondition is always this uid. `component` (manager or enforcer)
    becomes a label, without which the component's admission policy refuses the eviction.
    """
    preconditions = {**((options or {}).get("preconditions") or {}), "uid": uid}
    body = Address("policy/v1", "evictions", pod.name, pod.namespace).manifest(
        "Eviction",
        {"labels": {**OURS, COMPONENT_LABEL: component}},
        deleteOptions={**(options or {}), "preconditions": preconditions},
    )
    return Create(pod, body, "eviction", why)


Intent: TypeAlias = Apply | Patch | Delete | Create


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a write: the object afterwards, or the error for which it was refused or not sent."""

    intent: Intent
    body: Mapping[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """True if the server accepted the write."""
        return self.error is None
