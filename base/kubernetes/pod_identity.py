"""Parts that several kinds of Kubernetes objects share: pod identities, references, taints, conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.protocol import PLACEHOLDER_LABEL, PLACEHOLDER_NAMESPACE

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a pod or its owner; `controlling` if the owner manages the pod; an empty field matches all."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    controlling: bool = False

    @classmethod
    def parse(cls, body: Json, namespace: str = "") -> Reference:
        """Parse an object reference or owner reference; `namespace` is its default namespace."""
        return cls(
            str(body.get("kind") or ""),
            str(body.get("name") or ""),
            str(body.get("namespace") or namespace),
            str(body.get("uid") or ""),
            str(body.get("apiVersion") or ""),
            bool(body.get("controller")),
        )


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The properties by which rules select pods: name, labels, annotations and `controllers` (its ownerReferences)."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    controllers: tuple[Reference, ...] = ()

    @classmethod
    def parse(cls, pod: Json, namespace: str = "") -> PodIdentity:
        """Parse a pod from JSON; `namespace` is used if the object has none."""
        meta = pod.get("metadata") or {}
        inside = str(meta.get("namespace") or namespace)
        return cls(
            inside,
            str(meta.get("name") or meta.get("generateName") or ""),
            str(meta.get("uid") or ""),
            meta.get("labels") or {},
            meta.get("annotations") or {},
            tuple(Reference.parse(reference, inside) for reference in meta.get("ownerReferences") or ()),
        )


def is_placeholder(namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod is a placeholder: it has the label, and is in the namespace of placeholders."""
    return namespace == PLACEHOLDER_NAMESPACE and PLACEHOLDER_LABEL in labels


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration of taints; an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node or a Reservation, which pods must tolerate."""

    key: str
    value: str = ""
    effect: str = ""

    def tolerated(self, tolerations: Sequence[Toleration]) -> bool:
        """Return whether one of the tolerations tolerates the taint; PreferNoSchedule needs no toleration."""
        return self.effect == "PreferNoSchedule" or any(_tolerates(toleration, self) for toleration in tolerations)

    @classmethod
    def parse(cls, body: Json) -> Taint:
        """Parse one entry of `taints`; raise UsageError if it is not an object."""
        body = object_of(body, "an entry of taints")
        return cls(str(body.get("key") or ""), str(body.get("value") or ""), str(body.get("effect") or ""))


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an object's status; `since` is its lastTransitionTime as written."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""

    @classmethod
    def parse(cls, body: Json) -> Condition:
        """Parse one entry of a status's conditions; raise UsageError if it is not an object."""
        body = object_of(body, "an entry of status.conditions")
        names = ("type", "status", "reason", "message", "lastTransitionTime")
        return cls(*(str(body.get(name) or "") for name in names))

    def body(self) -> dict[str, str]:
        """Return the condition as a JSON object for an object's status."""
        texts = {"type": self.type, "status": self.status, "reason": self.reason, "message": self.message}
        return {**texts, "lastTransitionTime": self.since}


def toleration(body: Json) -> Toleration:
    """Parse one entry of a pod's `tolerations`; raise UsageError if it is not an object."""
    body = object_of(body, "an entry of tolerations")
    return Toleration(
        str(body.get("key") or ""),
        str(body.get("operator") or "Equal"),
        str(body.get("value") or ""),
        str(body.get("effect") or ""),
    )


def object_of(value: Any, what: str) -> Json:
    """Return a value as a JSON object, {} for None; raise UsageError, which names `what`, for another type."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} is {type(value).__name__}, not an object", fix="Check its indentation.")
    return value


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value)
