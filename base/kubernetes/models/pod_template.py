"""A template of Pods as controllers write it, for consumers that read no more than one of its parts. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class _TolerantSpec(msgspec.Struct):
    tolerations: list[Json] | None = None


class TolerantTemplate(msgspec.Struct):
    """A template of Pods of which only the tolerations are read."""

    spec: _TolerantSpec = msgspec.field(default_factory=_TolerantSpec)


class _NamedContainer(msgspec.Struct):
    name: str


class _NamedContainers(msgspec.Struct, rename="camel"):
    containers: list[_NamedContainer] | None = None
    init_containers: list[_NamedContainer] | None = None


class NamedTemplate(msgspec.Struct):
    """A template of Pods of which only the names of the containers are read."""

    spec: _NamedContainers = msgspec.field(default_factory=_NamedContainers)


class _SizedContainer(msgspec.Struct):
    name: str = ""
    resources: Json | None = None


class _SizedContainers(msgspec.Struct, rename="camel"):
    containers: list[_SizedContainer] | None = None
    init_containers: list[_SizedContainer] | None = None


class SizedTemplate(msgspec.Struct):
    """A template of Pods of which only the containers' names and resources are read."""

    spec: _SizedContainers = msgspec.field(default_factory=_SizedContainers)

    def resources(self) -> dict[str, Json | None]:
        """Return the `resources` of each container, sidecars and init containers included, by name."""
        every = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        return {container.name: container.resources for container in every}
