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
