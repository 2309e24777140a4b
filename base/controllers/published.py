"""The objects that the manager publishes, as it reads them back: only the fields that a decision compares. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL
from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.models.metadata import ObjectMeta, ObjectReference
from cotenant.base.kubernetes.moments import moment_of

NO_PUBLISHERS: Final = ("cotenant-", "kubectl", "kubelet", "before-first-apply")
"""Beginnings of the field managers that do not count as publishers: cotenant itself, a person with kubectl, the
kubelet, which resets amounts at its start, and the API server's entry for writers it had not recorded."""


class PublishedMeta(ObjectMeta, rename="camel"):
    """The metadata that shows whether cotenant made an object, and whether an ownerReference is already set."""

    owner_references: list[ObjectReference] | None = None

    @property
    def ours(self) -> bool:
        """True if the label shows that cotenant made the object."""
        return is_ours(self)


def is_ours(metadata: ObjectMeta) -> bool:
    """Return whether the label of an object shows that cotenant made it."""
    return (metadata.labels or {}).get(MANAGED_BY_LABEL) == MANAGED_BY


def is_other_program(field_manager: str) -> bool:
    """Return whether a field manager is another program that publishes: none of those in `NO_PUBLISHERS`."""
    return not field_manager.startswith(NO_PUBLISHERS)


class PublishedCondition(msgspec.Struct, rename="camel"):
    """One condition of an object's status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ExistingObject(msgspec.Struct, frozen=True):
    """An existing workload or node, with the fields that an ownerReference needs."""

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> dict[str, str]:
        """Return the object as an entry of metadata.ownerReferences."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}


def seconds_of(text: str) -> int | None:
    """Return the whole Unix seconds of a time that `moment_of` parses; None for any other text."""
    try:
        seconds = moment_of(text, "a published time")
    except UsageError:
        return None
    return None if seconds is None else int(seconds)
