"""Whether an API server could hold an object: it refuses others, so that no reader ever meets them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]
import msgspec
import yaml

from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.models.pod import NodePodWire, ObservedPodWire, PodWire, TolerationWire

Admits = Callable[[Any], bool]
CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"


class _Owner(msgspec.Struct):
    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    """What every object has."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


def _fits(document: Any, *kinds: Any) -> bool:
    try:
        for kind in kinds:
            msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeError, RecursionError):
        return False
    return True


class _Named(msgspec.Struct):
    name: str


class _PodSpec(msgspec.Struct, rename="camel"):
    tolerations: list[TolerationWire] | None = None
    scheduling_gates: list[_Named] | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec | None = None


class _Scope(msgspec.Struct, rename="camel"):
    scope_name: str
    operator: str
    values: list[str] | None = None


class _ScopeSelector(msgspec.Struct, rename="camel"):
    match_expressions: list[_Scope] | None = None


class _QuotaSpec(msgspec.Struct, rename="camel"):
    hard: dict[str, str | int] | None = None
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class _Quota(msgspec.Struct):
    spec: _QuotaSpec | None = None


class _Zone(msgspec.Struct):
    name: str
    type: str
    resources: list[dict[str, str | int]] | None = None


class _Topology(msgspec.Struct):
    metadata: _Metadata
    zones: list[_Zone]


def resource_quota(document: Any) -> bool:
    """A ResourceQuota of Kubernetes itself."""
    return _fits(document, _Object, _Quota)


def topology(document: Any) -> bool:
    """A NodeResourceTopology, by its definition."""
    return _fits(document, _Topology)


def pod(document: Any) -> bool:
    """A pod has the types of Kubernetes' own API."""
    return _fits(document, _Object, _Pod) and _fits(document, NodePodWire, ObservedPodWire, PodWire)


def node(document: Any) -> bool:
    """A node too."""
    return _fits(document, _Object, ManagedNodeWire)


class _Condition(msgspec.Struct):
    type: str
    status: str
    message: str = ""


class _Gang(msgspec.Struct):
    min_count: int = msgspec.field(name="minCount")


class _Policy(msgspec.Struct):
    gang: _Gang | None = None


class _NativeSpec(msgspec.Struct):
    policy: _Policy | None = msgspec.field(name="schedulingPolicy", default=None)


class _NativeStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _NativeGroup(msgspec.Struct):
    spec: _NativeSpec | None = None
    status: _NativeStatus | None = None


def native_group(document: Any) -> bool:
    """A PodGroup of Kubernetes itself."""
    return _fits(document, _Object, _NativeGroup)


def any_object(document: Any) -> bool:
    """An object of a kind whose definition is another's: metadata alone is known to be checked."""
    return _fits(document, _Object)


def by_definition(plural: str) -> Admits:
    """Admits what the schema of a definition that the product ships admits."""

    def admits(document: Any) -> bool:
        return _fits(document, _Object) and _validator(plural).is_valid(document)

    return admits


@cache
def _validator(plural: str) -> Any:
    (file,) = CRDS.glob(f"{plural}.*")
    versions = yaml.safe_load(file.read_text())["spec"]["versions"]
    return jsonschema.Draft7Validator(_nullable(versions[0]["schema"]["openAPIV3Schema"]))


def _nullable(schema: Any) -> Any:
    """The schema as JSON Schema has it: Kubernetes' own marks as types; a null of a field is a field left out."""
    if isinstance(schema, list):
        return [_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _nullable(part) for key, part in schema.items() if key not in ("format", "description")}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string", "null"]}
    if isinstance(schema.get("type"), str):
        out["type"] = [schema["type"], "null"]
    return out
