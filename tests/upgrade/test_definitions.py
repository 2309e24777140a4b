"""Definitions of an older version, of this one, and of the older one again: objects stay equal, nothing is dropped."""

from __future__ import annotations

import copy
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.cli.cluster.installation.gaps import gaps
from tests.cli.test_install_on_cluster import CRDS, DEFINITIONS, EXAMPLES, collection, store
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

Json = dict[str, Any]
BOUNDS = {"minimum": 1, "minLength": 1, "minItems": 1, "maximum": -1, "maxLength": -1, "maxItems": -1}
OLDER: dict[str, Json] = {
    body["spec"]["names"]["kind"]: body
    for body in json.loads(lzma.decompress((Path(__file__).parent / "crds_of_59c1ff9.json.xz").read_bytes()))
}


def tightened(older: Json, newer: Json, path: str = "") -> Iterator[str]:
    """Where a schema refuses what the older one allowed: another type, a required field, a missing value, a bound."""
    if "type" in older and newer.get("type") != older["type"]:
        yield f"{path}: type {newer.get('type')}, was {older['type']}"
    yield from (
        f"{path}.{name} is required" for name in set(newer.get("required", ())) - set(older.get("required", ()))
    )
    if "enum" in newer and not set(map(str, older.get("enum", ("?",)))) <= set(map(str, newer["enum"])):
        yield f"{path}: fewer values {newer['enum']}"
    for bound, sign in BOUNDS.items():
        if bound in newer and (bound not in older or (newer[bound] - older[bound]) * sign > 0):
            yield f"{path}: {bound} {newer[bound]}, was {older.get(bound)}"
    if older.get("x-kubernetes-preserve-unknown-fields") and not newer.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path} drops unknown fields"
    for name, inner in older.get("properties", {}).items():
        if name in newer.get("properties", {}):
            yield from tightened(inner, newer["properties"][name], f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(older.get(key), dict) and isinstance(newer.get(key), dict):
            yield from tightened(older[key], newer[key], f"{path}[]")


@pytest.mark.parametrize("kind", sorted(OLDER))
def test_an_upgrade_drops_no_version_or_field_and_refuses_nothing_new(kind: str) -> None:
    older, newer = OLDER[kind], DEFINITIONS[kind]
    assert gaps(newer, older) == []
    assert newer["spec"]["names"] == older["spec"]["names"]
    stored = {v["name"] for v in older["spec"]["versions"]}
    assert stored <= {v["name"] for v in newer["spec"]["versions"] if v["served"]}
    for before in older["spec"]["versions"]:
        [after] = [v for v in newer["spec"]["versions"] if v["name"] == before["name"]]
        assert list(tightened(before["schema"]["openAPIV3Schema"], after["schema"]["openAPIV3Schema"])) == []


def test_a_tightened_schema_is_noticed() -> None:
    older = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "integer"}}}
    newer = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string", "maximum": 3}},
    }
    assert sorted(tightened(older, newer)) == [
        ".a is required",
        ".a: fewer values ['x']",
        ".b: maximum 3, was None",
        ".b: type string, was integer",
    ]


def install(api: Api, definitions: dict[str, Json]) -> None:
    """As `cotenant install` of that version does."""
    for body in definitions.values():
        path = f"{CRDS}/{body['metadata']['name']}"
        api.patch(path, body, "apply", fieldManager="cotenant-install", force="true")


MARK = "copy-of"
"""First part of the name of a column that is there for the test alone."""


def apply(api: Api, definitions: dict[str, Json]) -> None:
    """The same, and wait until the schemas are in force.

    The API server takes a changed definition over some time after it has stored it, says nowhere when, and answers by
    the old schema or not at all meanwhile. Whatever it prints objects with comes from the same copy of the definition
    as the schema: a column of a new name in every version says that the copy is the new one.
    """
    column = {"name": unique_name(MARK), "type": "string", "jsonPath": ".metadata.uid", "priority": 1}
    marked = copy.deepcopy(definitions)
    for body in marked.values():
        for version in body["spec"]["versions"]:
            version["additionalPrinterColumns"] = [*version.get("additionalPrinterColumns", ()), column]
    install(api, marked)
    for kind in definitions:
        wait_for(f"the schema of {kind} is in force", lambda kind=kind: column["name"] in columns(api, kind))


def columns(api: Api, kind: str) -> set[str]:
    """Names of the columns with which objects are printed; none while the kind is not served."""
    try:
        return {one["name"] for one in api.table(collection(kind))["columnDefinitions"]}
    except ApiError as error:
        assert error.status in (404, 429, 503), error
        return set()


def stored_objects(api: Api) -> dict[str, Json]:
    """Every object of our kinds, by kind and name."""
    return {
        f"{kind}/{item['metadata']['name']}": item
        for kind in DEFINITIONS
        for item in api.items(collection(kind, EXAMPLES[kind]["metadata"].get("namespace", "default")))
    }


@pytest.fixture
def api(bare_plane: ControlPlane) -> Iterator[Api]:
    """The API of a cluster in which no objects of ours are left behind, nor changed definitions."""
    api = bare_plane.api()
    apply(api, DEFINITIONS)  # kinds that the older version did not have are there too
    yield api
    for key, item in stored_objects(api).items():
        kind, _, name = key.partition("/")
        api.delete(f"{collection(kind, item['metadata'].get('namespace', ''))}/{name}")
    install(api, DEFINITIONS)
    for kind in DEFINITIONS:
        wait_for(f"{kind} without the test's column", lambda kind=kind: unmarked(columns(api, kind)))


def unmarked(names: set[str]) -> bool:
    """Whether they are known, and none is the test's."""
    return bool(names) and not any(name.startswith(MARK) for name in names)


@pytest.mark.soak
def test_objects_stay_equal_under_older_newer_and_older_definitions(api: Api) -> None:
    apply(api, OLDER)
    for body in EXAMPLES.values():
        store(api, body)
    before = stored_objects(api)
    assert {key.partition("/")[0] for key in before} == set(DEFINITIONS)
    apply(api, DEFINITIONS)
    assert stored_objects(api) == before
    plan = EXAMPLES["ReservationPlan"]
    score = {"lentCoreSeconds": 7.0}  # a field that the older definition does not declare
    path = f"{collection('ReservationPlan')}/{plan['metadata']['name']}/status"
    api.patch(path, {"status": {"score": score}})
    newer = stored_objects(api)
    apply(api, OLDER)
    assert stored_objects(api) == newer
    apply(api, DEFINITIONS)
    assert stored_objects(api) == newer
