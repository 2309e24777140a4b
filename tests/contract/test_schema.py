"""The embedded server's table of built-in fields says the same as the real server's published schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cotenant_lab.simulation.api_server.kinds import ApiKind, built_in
from cotenant_lab.simulation.api_server.schema import FieldSchema
from tests.cluster.control_plane import ControlPlane
from tests.contract.conftest import REAL

pytestmark = REAL
SCALARS = ("Quantity", "IntOrString", "Time", "MicroTime")
LEFT_OPEN = ("CustomResourceDefinition",)
KINDS = [kind for kind in built_in() if kind.name not in LEFT_OPEN]


def test_every_built_in_field_is_that_of_the_real_server(control_plane: ControlPlane) -> None:
    api, documents = control_plane.api(), {}
    for kind in KINDS:
        root = f"apis/{kind.api_version}" if kind.group else "api/v1"
        if root not in documents:
            documents[root] = api.get(f"/openapi/v3/{root}")["components"]["schemas"]
        assert list(differing(kind.schema, real_type(kind, documents[root]), documents[root], kind.name)) == []


def real_type(kind: ApiKind, types: dict[str, Any]) -> dict[str, Any]:
    type_kind = {"group": kind.group, "version": kind.version, "kind": kind.name}
    return next(t for t in types.values() if type_kind in t.get("x-kubernetes-group-version-kind", ()))


def differing(mine: FieldSchema, real: dict[str, Any], types: dict[str, Any], at: str) -> Iterator[str]:
    """Where the table and the real schema differ; below what the table leaves open nothing is compared."""
    if mine.shape == "any":
        return
    name, real = resolved(real, types)
    if mine.shape == "scalar":
        if name not in SCALARS and real.get("type") != mine.scalar:
            yield f"{at}: {mine.scalar}, really {real.get('type')}"
    elif mine.shape == "list":
        keys = real.get("x-kubernetes-list-map-keys", []) if real.get("x-kubernetes-list-type") == "map" else []
        if [key for key, _ in mine.keys] != keys or mine.is_set != (real.get("x-kubernetes-list-type") == "set"):
            yield f"{at}: keys {mine.keys}, really {keys}"
        yield from differing(mine.items or FieldSchema(), real["items"], types, f"{at}[]")
    elif mine.values is not None:
        yield from differing(mine.values, real["additionalProperties"], types, f"{at}{{}}")
    else:
        theirs = real.get("properties", {})
        yield from (f"{at}.{field}: only on one side" for field in mine.fields.keys() ^ theirs.keys())
        if mine.atomic != (real.get("x-kubernetes-map-type") == "atomic"):
            yield f"{at}: atomic here {mine.atomic}"
        for field in mine.fields.keys() & theirs.keys():
            is_kept = theirs[field].get("default") == {} and mine.fields[field].shape != "any"
            if field != "metadata" and mine.fields[field].is_kept != is_kept:
                yield f"{at}.{field}: kept when it is empty, really {is_kept}"
            yield from differing(mine.fields[field], theirs[field], types, f"{at}.{field}")


def resolved(real: dict[str, Any], types: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(short name, type) behind a reference."""
    for part in [real, *real.get("allOf", ())]:
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            return name.rpartition(".")[2], types[name]
    return "", real


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
def test_each_built_in_kind_is_discovered_alike(control_plane: ControlPlane, kind: ApiKind) -> None:
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    listed = {resource["name"]: resource for resource in control_plane.api().get(root)["resources"]}
    discovered = listed[kind.plural]
    assert (discovered["kind"], discovered["namespaced"]) == (kind.name, kind.namespaced)
    assert set(discovered.get("shortNames", ())) == set(kind.short_names)
    assert {f"{kind.plural}/{name}" for name in kind.subresources} <= listed.keys()
