"""Sets of an object's fields, as `metadata.managedFields` records them, and the differences of two objects.

A path is a tuple of elements: ("f", name) a field, ("k", keys as JSON) an item of a list with keys, ("v", JSON) a
member of a set. Terms and semantics: Kubernetes' documentation of server-side apply and the FieldsV1 format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cotenant_lab.simulation.api_server.schema import ANY, FieldSchema, Json, canonical

Element: TypeAlias = tuple[str, str]
Path: TypeAlias = tuple[Element, ...]
FieldSet: TypeAlias = frozenset[Path]
EMPTY: Final[FieldSet] = frozenset()
_MISSING: Final = object()


def fields_of(schema: FieldSchema, value: Any) -> FieldSet:
    """Return the paths of all fields that an applied configuration has."""
    return frozenset(_fields(schema, value, ()))


def _fields(schema: FieldSchema, value: Any, at: Path) -> Iterator[Path]:
    """Yield the path of each field that a value sets, as managedFields lists them; at: the path of the value."""
    if schema.merges_map(value):
        for name, child in value.items():
            here = (*at, ("f", name))
            yield from _fields(schema.child(name), child, here)
            if child is None or child == {} or name not in schema.fields:
                yield here
    elif schema.merges_list(value):
        for item in value:
            here = (*at, schema.element(item))
            yield from _fields(schema.items or ANY, item, here)
            yield here
    else:
        yield at


@dataclass(slots=True)
class Difference:
    """The fields that were added, removed, or changed their value between two versions of an object."""

    added: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)


def difference(schema: FieldSchema, old: Any, new: Any) -> Difference:
    """Return the difference between `old` and `new`; added or removed containers count beside their content."""
    changes = Difference()
    _compare(schema, old, new, (), changes)
    return changes


def _compare(schema: FieldSchema, old: Any, new: Any, at: Path, changes: Difference) -> None:
    before_parts, after_parts = _parts(schema, old, new), _parts(schema, new, old)
    atomic = before_parts is None or after_parts is None
    if atomic and (_MISSING in (old, new) or old != new or isinstance(old, bool) != isinstance(new, bool)):
        _note(old, new, at, changes)
    before, after = dict(before_parts or ()), dict(after_parts or ())
    for element in before | after:
        child = schema.child(element[1]) if element[0] == "f" else schema.items or ANY
        _compare(child, before.get(element, _MISSING), after.get(element, _MISSING), (*at, element), changes)
    if not atomic and (old is _MISSING or new is _MISSING):
        _note(old, new, at, changes)


def _parts(schema: FieldSchema, value: Any, other: Any) -> list[tuple[Element, Any]] | None:
    """Return the parts like `_mergeable_children`; a missing value is empty when its counterpart is a container."""
    if value is _MISSING or value is None:
        return None if _mergeable_children(schema, other) is None else []
    return _mergeable_children(schema, value)


def _note(old: Any, new: Any, at: Path, changes: Difference) -> None:
    (changes.added if old is _MISSING else changes.removed if new is _MISSING else changes.modified).add(at)


def _mergeable_children(schema: FieldSchema, value: Any) -> list[tuple[Element, Any]] | None:
    """A mergeable value's parts; None for a value that is merged whole."""
    if schema.merges_map(value):
        return [(("f", name), child) for name, child in value.items()]
    if schema.merges_list(value):
        return [(schema.element(item), item) for item in value]
    return None


def without(schema: FieldSchema, value: Any, paths: Iterable[Path]) -> Any:
    """Return the value without the given fields; a container that becomes empty becomes null."""
    return _without_trie(schema, value, _trie(paths))


def _without_trie(schema: FieldSchema, value: Any, trie: Trie) -> Any:
    children = _mergeable_children(schema, value)
    if not children:
        return value
    remaining = []
    for element, child in children:
        below = trie.get(element)
        if below is None:
            remaining.append((element, child))
        elif () not in below:
            inner = schema.child(element[1]) if element[0] == "f" else schema.items or ANY
            remaining.append((element, _without_trie(inner, child, below)))
    if not remaining:
        return None
    return (
        {element[1]: child for element, child in remaining}
        if isinstance(value, dict)
        else [child for _, child in remaining]
    )


def with_parents(schema: FieldSchema, paths: Iterable[Path]) -> FieldSet:
    """Return the paths together with every declared field above them."""
    field_set = set()
    for path in paths:
        at = schema
        field_set.add(path)
        for depth, (kind, name) in enumerate(path[:-1], 1):
            if kind == "f" and name in at.fields:
                field_set.add(path[:depth])
            at = at.child(name) if kind == "f" else at.items or ANY
    return frozenset(field_set)


Trie: TypeAlias = dict[Any, Any]
"""Element -> Trie; the key () marks a member."""


def _trie(paths: Iterable[Path]) -> Trie:
    root: Trie = {}
    for path in paths:
        at = root
        for element in path:
            at = at.setdefault(element, {})
        at[()] = {}
    return root


def to_fields_v1(paths: FieldSet) -> Json:
    """Return the paths in the format of managedFields: {"f:data": {"f:a": {}}}."""
    return _encode_trie(_trie(paths))


def _encode_trie(at: Trie) -> Json:
    elements = sorted((element, below) for element, below in at.items() if element)
    inside = {f"{kind}:{name}": _encode_trie(below) for (kind, name), below in elements}
    return {".": {}, **inside} if () in at and inside else inside


def format_path(path: Path) -> str:
    """Return a path as written in messages: `.spec.template.spec.containers[name="app"].image`."""
    text = ""
    for kind, name in path:
        pairs = (pair.split(":", 1) for pair in name[1:-1].split(",")) if kind == "k" else ()
        keys = ",".join(f"{key.strip(chr(34))}={value}" for key, value in pairs)
        text += f".{name}" if kind == "f" else f"[={name}]" if kind == "v" else f"[{keys}]"
    return text


def from_fields_v1(tree: Json) -> FieldSet:
    """Return the paths of one entry of managedFields, parsed from the format of `to_fields_v1`."""
    return frozenset(_read(tree, ()))


def _read(tree: Json, at: Path) -> Iterator[Path]:
    for text, below in tree.items():
        if text == ".":
            yield at
            continue
        kind, _, name = text.partition(":")
        here = (*at, (kind, canonical(json.loads(name)) if kind in "kv" else name))
        if not below:
            yield here
        yield from _read(below, here)
