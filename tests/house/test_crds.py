"""The definitions that we ship: written by their generator, every field explained, every object with our label."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.write_crds import LONG, LONGEST_OWN_TEXT, LONGEST_TEXT, MOST_ITEMS, OWN_GROUP, files

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DEFINITIONS = sorted((DEPLOY / "crds").glob("*.yaml"))
OBJECTS = [p for p in sorted(DEPLOY.rglob("*.yaml")) if p.relative_to(DEPLOY).parts[0] in ("crds", "rbac")]
KINDS = {
    "AutopilotPolicy", "ClusterColocationProfile", "Device", "ElasticQuota", "ElasticQuotaProfile", "NodeAllocation",
    "NodeMetric", "NodeSLO", "PodGroup", "PodMigrationJob", "Recommendation", "Reservation", "ReservationPlan",
    "SwapGuard", "UsageForecast",
}  # fmt: skip


def loaded(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], path + "[]")


def test_the_shipped_definitions_are_what_the_generator_writes() -> None:
    assert {p.name: p.read_text() for p in DEFINITIONS} == dict(files()), "run python -m tools.write_crds"


def test_every_kind_has_a_definition_and_an_example() -> None:
    assert {loaded(p)["spec"]["names"]["kind"] for p in DEFINITIONS} == KINDS
    assert {loaded(p)["kind"] for p in (DEPLOY / "examples").glob("*.yaml")} >= KINDS


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda p: p.stem)
def test_every_field_is_explained_and_every_list_says_how_it_merges(path: Path) -> None:
    schema = loaded(path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields_by_path = dict(fields(schema))
    assert len(fields_by_path) > 5
    assert [p for p, s in fields_by_path.items() if p != ".metadata" and len(s.get("description", "")) < 3] == []
    assert [
        p for p, s in fields_by_path.items() if s.get("type") == "array" and "x-kubernetes-list-type" not in s
    ] == []
    conditions = fields_by_path.get(".status.conditions")
    assert conditions is None or conditions["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda p: p.stem)
def test_every_text_list_and_map_has_a_bound(path: Path) -> None:
    definition = loaded(path)["spec"]
    schema = definition["versions"][0]["schema"]["openAPIV3Schema"]
    own = definition["group"] == OWN_GROUP
    for place, field in _with_elements(schema):
        if place in (".apiVersion", ".kind", ".metadata") or field.keys() & {"enum", "format"}:
            continue
        if field.get("type") == "string" or field.get("x-kubernetes-int-or-string"):
            most = LONGEST_OWN_TEXT if own and not LONG & set(re.split(r"[.\[]", place)) else LONGEST_TEXT
            assert field["maxLength"] <= most, place
        if field.get("type") == "array":
            assert field["maxItems"] <= MOST_ITEMS, place
        if "additionalProperties" in field:
            assert field["maxProperties"] <= MOST_ITEMS, place


def _with_elements(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas of fields, and of what lists and maps have in them."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from _with_elements(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield f"{path}[]", schema[key]
            yield from _with_elements(schema[key], f"{path}[]")


def undeclared(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of an object that a definition without any preserved field would drop."""
    if isinstance(value, list):
        for item in value:
            yield from undeclared(item, schema["items"], f"{path}[]")
    elif isinstance(value, dict) and "additionalProperties" not in schema and "properties" in schema:
        for name, inner in value.items():
            if name in schema["properties"]:
                yield from undeclared(inner, schema["properties"][name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(value, dict):
        for name, inner in value.items() if "additionalProperties" in schema else ():
            yield from undeclared(inner, schema["additionalProperties"], f"{path}.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda p: p.stem)
def test_no_example_rests_on_fields_that_only_our_definition_keeps(path: Path) -> None:
    """Koordinator's own definitions drop what they do not declare."""
    definition = loaded(path)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    kind = definition["spec"]["names"]["kind"]
    example = next(e for e in map(loaded, (DEPLOY / "examples").glob("*.yaml")) if e["kind"] == kind)
    parts = {name: example[name] for name in ("spec", "status") if name in example}
    assert list(undeclared(parts, schema)) == []
    assert list(undeclared({**parts, "more": 1}, schema)) == [".more"]


@pytest.mark.slow
@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: str(p.relative_to(DEPLOY)))
def test_every_object_that_an_installation_makes_carries_our_label(path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        assert body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "cotenant", body["metadata"]["name"]


@pytest.mark.slow
def test_no_pattern_repeats_more_often_than_the_api_server_compiles() -> None:
    """Its expressions are RE2's, whose repeats end at 1,000; a longer text has a greatest length instead."""
    schemas = [loaded(path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for path in DEFINITIONS]
    patterns = {schema["pattern"] for root in schemas for _, schema in fields(root) if "pattern" in schema}
    repeats = {pattern: re.findall(r"\{(\d+)(?:,(\d*))?\}", pattern) for pattern in patterns}
    assert any(repeats.values())
    assert {p for p, counts in repeats.items() if any(int(n) > 1000 for pair in counts for n in pair if n)} == set()
