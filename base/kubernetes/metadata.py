"""The metadata of any Kubernetes object, as far as most readers need it. Pure.

A reader declares the smallest of these that has its fields, since each declared field of a large list costs time.
"""

from __future__ import annotations

import msgspec


class ObjectName(msgspec.Struct):
    """Namespace, "" for a kind of the whole cluster, and name."""

    name: str = ""
    namespace: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class ObjectIdentity(ObjectName, rename="camel"):
    """The name, and which object of that name it is, in which version."""

    uid: str = ""
    resource_version: str = ""


class ObjectLabels(ObjectName):
    """The name and what the object carries; None where the object has none."""

    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
