"""What a pure function wants done to the Kubernetes API: the four kinds of write the product knows.

Decisions return intents, `base.kube.Writer` sends them. Server-side apply is for what we own, a JSON patch
with `test` operations for what a person accepted (it fails when the object is no longer what was looked at), delete
for what we created, create for what must not exist yet: a pod, a binding, an eviction. There is no other write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Name of an object, RFC 1123: no option, no path, no shell character."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The address of an object: `resource` is the plural, `namespace` is empty for cluster-scoped kinds.

    api_version: "v1" or "group/version".
    """

    api_version: str
    resource: str
    name: str
    namespace: str = ""

    @property
    def collection(self) -> str:
        """Path of all objects beside this one."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{inside}/{self.resource}"

    @property
    def path(self) -> str:
        """Path of the object itself."""
        return f"{self.collection}/{self.name}"

    def manifest(self, kind: str, metadata: Mapping[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
        """The object here as JSON: apiVersion, kind, metadata with this name and namespace, and `parts` like `spec`.

        metadata: what it has beside name and namespace, such as labels.
        """
        where = {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})
        return {"apiVersion": self.api_version, "kind": kind, "metadata": where | dict(metadata or {}), **parts}

    def __str__(self) -> str:
        """Return the address in short notation: nodes/n1, recommendations/shop/web."""
        return "/".join(part for part in (self.resource, self.namespace, self.name) if part)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of exactly the fields that we own; a field left out is given back.

    body: the whole object with apiVersion, kind and metadata.name; a metadata.resourceVersion makes it conditional.
    force: take fields over from other managers; without it they refuse with a conflict. asker: as of a Create.
    """

    address: Address
    body: Mapping[str, Any]
    subresource: str = ""
    force: bool = True
    why: str = ""
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """RFC 6902 operations, applied all or not at all."""

    address: Address
    operations: tuple[Mapping[str, Any], ...]
    subresource: str = ""
    why: str = ""
    routine: bool = False
    """A heartbeat: logged at debug level."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object, only while it still is the one with this uid, and of this resourceVersion, where given.

    grace_seconds: how long its containers may take to end; None leaves it to the object.
    """

    address: Address
    uid: str = ""
    why: str = ""
    grace_seconds: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object that must not exist yet, or with `subresource` act on one: pods/binding, pods/eviction.

    asker: for which object it is made, as `Address` has it in text; where it cannot be made, that one is told.
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
    """Ask the API server, which honours disruption budgets, for the end of the very pod with this uid.

    options: DeleteOptions as JSON; of their preconditions the uid is always this one. component: manager or
    enforcer, whose policies go by our labels and refuse evictions without.
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
    """The outcome of an intent: the object afterwards, or the error that the server returned."""

    intent: Intent
    body: Mapping[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """True if the server accepted the intent."""
        return self.error is None
