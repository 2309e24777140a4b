"""The metadata of any Kubernetes object, as far as most readers need it. Pure.

A reader declares the smallest of these that has its fields, since each declared field of a large list costs time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec


class ObjectName(msgspec.Struct):
    """The name and namespace of an object; the namespace of a cluster-scoped kind is ""."""

    name: str = ""
    namespace: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The pair (namespace, name)."""
        return sys.intern(self.namespace), self.name


class ObjectIdentity(ObjectName, rename="camel"):
    """The name of an object with its uid and resource version."""

    uid: str = ""
    resource_version: str = ""


class ObjectLabels(ObjectName):
    """The name of an object with its uid, labels and annotations, which are None if it has none."""

    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ObjectOwner(msgspec.Struct, gc=False):
    """An owner reference: kind and name of the owner, and whether it manages the object."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectReference(ObjectOwner, rename="camel", gc=False):
    """An owner reference with the owner's uid and the API version of its kind."""

    uid: str = ""
    api_version: str = ""


class ObjectMeta(msgspec.Struct, rename="camel"):
    """The metadata of an object that the API server keeps, which always has a name."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: Sequence[ObjectOwner] | None = None

    @property
    def controller(self) -> ObjectOwner | None:
        """The owner that manages the object, or None if none does."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class DatedMeta(ObjectMeta, rename="camel"):
    """The metadata of an object and the time of its creation."""

    creation_timestamp: datetime | None = None


class EndingMeta(ObjectMeta, rename="camel"):
    """The metadata of an object and, if it is being deleted, the end of its grace period."""

    deletion_timestamp: datetime | None = None


class FieldWriter(msgspec.Struct):
    """One entry of managedFields: a field manager and, as JSON, the fields that it owns."""

    manager: str = ""
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class OwnedObject(msgspec.Struct):
    """An object of any kind of which only the metadata with its owners is read."""

    metadata: ObjectMeta


class NamedObject(msgspec.Struct):
    """An object of any kind of which only the name is read."""

    metadata: ObjectName = msgspec.field(default_factory=ObjectName)


class LabelledObject(msgspec.Struct):
    """An object of any kind of which only name, uid, labels and annotations are read."""

    metadata: ObjectLabels = msgspec.field(default_factory=ObjectLabels)


class ConfigMapObject(msgspec.Struct):
    """A ConfigMap of which only the `data` is read."""

    data: dict[str, str] | None = None
