"""Write deploy/crds/*.yaml from the compact field trees in tools/crds/, so that no schema is typed twice.

    python -m tools.write_crds [FOLDER]

A tree is YAML: a key is a field, its value "TYPE flags | description" or a mapping of the fields below it.

    name        string ! | A required text.            key[]   a list       key{}   a map of text to the type
    TYPE        string int32 int64 number boolean time duration quantity promql object any, or $name of types.yaml
    flags       ! required   =VALUE default   (A, B) allowed values   >=N <=N bounds   /REGEX/ pattern
    .           "flags | description" of the mapping itself
    .rules      [[CEL rule, message], ...]          .keys   [field, ...]: the list is a map by these fields
    .items .most   fewest and most items of the list or entries of the map
    .open       fields that nobody declared are kept, here and below (else of the kind: `open: [spec, status]`)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tools" / "crds"
TARGET = ROOT / "deploy" / "crds"
HEADER = "# Written by `python -m tools.write_crds` from tools/crds/{name}: change it there.\n"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
DURATION = r"^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$"

OWN_GROUP = "cotenant.dev"
LONGEST_TEXT, LONGEST_OWN_TEXT = 32_768, 4_096
"""Characters of a text that no flag bounds: as of a condition's message; in a field of our own kinds that is no message
less, since Koordinator's programs write none of them."""
MOST_ITEMS = 10_000
"""Entries of a list or map that `.most` does not bound."""
LONG = {"message", "annotations"}
"""Fields of our own kinds whose texts others write."""

Schema = dict[str, Any]

SCALARS: dict[str, Schema] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "pattern": DURATION, "maxLength": 64},
    "quantity": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "maxLength": 64,
        "x-kubernetes-int-or-string": True,
    },
    "percent": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": 16,
        "x-kubernetes-int-or-string": True,
    },
    "promql": {"type": "string", "minLength": 1, "maxLength": 2000},
    "object": {"type": "object"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
FLAG = re.compile(r"!|=(?P<default>\S+)|\((?P<enum>[^)]*)\)|>=(?P<low>-?[\d.]+)|<=(?P<high>-?[\d.]+)|/(?P<regex>.+)/")


class Tree:
    """Turns one kind's tree into OpenAPI; `types` are the shared mappings that `$name` stands for."""

    def __init__(self, types: dict[str, Any]) -> None:
        self.types = types

    def field(self, key: str, value: Any, *, is_open: bool) -> tuple[str, Schema, bool]:
        """(name, schema, required) of one line of a tree."""
        name, wraps = re.match(r"([^\[{]+)((?:\[\]|\{\})*)$", key).groups()  # type: ignore[union-attr]
        options = value if isinstance(value, dict) else {}
        line = options.get(".", "") if options else value
        if any(not k.startswith(".") for k in options) and not line.startswith("$"):
            line = f"object {line}"
        schema, required = self.line(line)
        if line.startswith(("$", "object")):
            schema |= self.object({**self.named(line), **options}, is_open=is_open)
        for wrap in re.findall(r"\[\]|\{\}", wraps)[::-1]:
            schema = self.wrapped(wrap, schema, options)
        return name, schema, required

    def named(self, line: str) -> dict[str, Any]:
        """The shared mapping that a line refers to, or an empty one."""
        word = line.partition(" ")[0]
        return dict(self.types[word[1:]]) if word.startswith("$") else {}

    def line(self, line: str) -> tuple[Schema, bool]:
        """Schema and whether it is required of "TYPE flags | description"."""
        head, _, text = line.partition(" | ")
        word, _, flags = head.strip().partition(" ")
        schema: Schema = {} if word.startswith("$") else dict(SCALARS[word])
        required = False
        for flag in FLAG.finditer(flags):
            required = required or flag[0] == "!"
            schema |= self.flag(flag, schema)
        return ({"description": text.strip()} if text.strip() else {}) | schema, required

    @staticmethod
    def flag(flag: re.Match[str], schema: Schema) -> Schema:
        """What one flag adds to the schema."""
        number = float if schema.get("type") == "number" else int
        if flag["default"] is not None:
            return {"default": yaml.safe_load(flag["default"])}
        if flag["enum"] is not None:
            return {"enum": [word.strip().strip('"') for word in flag["enum"].split(",")]}
        if flag["low"] is not None:
            return {"minimum": number(flag["low"])}
        if flag["high"] is not None:
            return {"maximum": number(flag["high"])}
        return {"pattern": flag["regex"]} if flag["regex"] else {}

    def object(self, node: dict[str, Any], *, is_open: bool) -> Schema:
        """Properties, required names and rules of a mapping of fields."""
        is_open = node.get(".open", is_open)
        fields = [self.field(k, v, is_open=is_open) for k, v in node.items() if not k.startswith(".")]
        schema: Schema = {"type": "object"}
        if fields:
            schema["properties"] = {name: inner for name, inner, _ in sorted(fields, key=lambda f: f[0])}
        if required_names := sorted(name for name, _, required in fields if required):
            schema["required"] = required_names
        if is_open or node.get(".any"):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if rules := node.get(".rules"):
            schema["x-kubernetes-validations"] = [{"rule": r, "message": m} for r, m in rules]
        return schema

    @staticmethod
    def wrapped(wrap: str, inner: Schema, options: dict[str, Any]) -> Schema:
        """A list or map of the inner schema; the description moves outside."""
        about = {"description": inner.pop("description")} if "description" in inner else {}
        bounds = {"minItems": options.get(".items"), "maxItems": options.get(".most")}
        if wrap == "{}":
            bounds = {"minProperties": options.get(".items"), "maxProperties": options.get(".most")}
        limits = {key: bound for key, bound in bounds.items() if bound is not None}
        if wrap == "{}":
            return about | {"type": "object", "additionalProperties": inner} | limits
        if keys := options.get(".keys"):
            limits |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        else:
            limits["x-kubernetes-list-type"] = "atomic"
        return about | {"type": "array", "items": inner} | limits


def bounded(schema: Schema, longest: int, name: str = "") -> Schema:
    """The schema with a bound for each text, list and map that has none."""
    longest = LONGEST_TEXT if name in LONG else longest
    bounds: Schema = {}
    if schema.get("type") == "string" and not schema.keys() & {"enum", "format"}:
        bounds = {"maxLength": longest}
    if schema.get("type") == "array":
        bounds = {"maxItems": MOST_ITEMS, "items": bounded(schema["items"], longest, name)}
    if isinstance(schema.get("additionalProperties"), dict):
        bounds = {
            "maxProperties": MOST_ITEMS,
            "additionalProperties": bounded(schema["additionalProperties"], longest, name),
        }
    if "properties" in schema:
        bounds = {"properties": {key: bounded(inner, longest, key) for key, inner in schema["properties"].items()}}
    return schema | {key: bound for key, bound in bounds.items() if not key.startswith("max") or key not in schema}


def definition(source: dict[str, Any], types: dict[str, Any]) -> Schema:
    """The CustomResourceDefinition of one tree."""
    group, _, version = source["group"].partition("/")
    names = {"kind": source["kind"], "listKind": f"{source['kind']}List", "plural": source["plural"]}
    names["singular"] = source["kind"].lower()
    names |= {name: source[name] for name in ("shortNames", "categories") if name in source}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{source['plural']}.{group}",
            "labels": {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"},
            **({"annotations": source["annotations"]} if "annotations" in source else {}),
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": source["scope"],
            "versions": [_version(source, version, types)],
        },
    }


def _version(source: dict[str, Any], name: str, types: dict[str, Any]) -> Schema:
    tree, opened = Tree(types), source.get("open", [])
    fields = source["fields"]
    schema = tree.object({k: v for k, v in fields.items() if k.startswith(".")}, is_open=False)
    schema["description"] = " ".join(source["about"].split())
    own = {
        "apiVersion": {"type": "string", "description": "Group and version of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        "metadata": {"type": "object"},
    }
    properties = [tree.field(k, v, is_open=k in opened) for k, v in fields.items() if not k.startswith(".")]
    longest = LONGEST_OWN_TEXT if source["group"].startswith(OWN_GROUP) else LONGEST_TEXT
    schema["properties"] = own | {field: bounded(inner, longest, field) for field, inner, _ in properties}
    if required_names := [field for field, _, required in properties if required]:
        schema["required"] = required_names
    version: Schema = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if columns := source.get("columns"):
        version["additionalPrinterColumns"] = [_column(line) for line in columns]
    if source.get("status"):
        version["subresources"] = {"status": {}}
    return version


def _column(line: str) -> Schema:
    """ "Name type path [wide] | description" """
    head, _, text = line.partition("|")
    name, kind, path, *wide = head.split()
    about = {"description": text.strip()} if text.strip() else {}
    return {"name": name, "type": kind, "jsonPath": path} | about | ({"priority": 1} if wide else {})


class _Plain(yaml.SafeDumper):
    """Without anchors: a reader of the file sees every schema written out."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class decides
        return True


def files() -> Iterator[tuple[str, str]]:
    """(file name, text) of every definition."""
    types = yaml.safe_load((SOURCES / "types.yaml").read_text())
    for path in sorted(SOURCES.glob("*.yaml")):
        if path.name == "types.yaml":
            continue
        crd = definition(yaml.safe_load(path.read_text()), types)
        text = yaml.dump(crd, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
        yield f"{crd['metadata']['name']}.yaml", HEADER.format(name=path.name) + text


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files():
        (target / name).write_text(text)
