"""Parse the text of a settings file to entries (path, value, line). Pure.

Scalars stay text: the setting's declared type decides what "14" or "off" means, as for an environment variable, so that
YAML's guesses ("no" is false, 1:30 is ninety) cannot change a value. Before anything is built, these are refused: more
than 256 KiB or 5,000 values, nesting deeper than 20, aliases, tags, several documents, duplicate keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.errors import SettingsError

SIZE_CAP_BYTES: Final = 256 * 1024
DEPTH_CAP: Final = 20
VALUE_CAP: Final = 5_000
"""Words and numbers of a text: each takes some 50 microseconds, twice, while the process answers nobody else."""
API_VERSION: Final = "cotenant.dev/v1alpha1"
KIND: Final = "Settings"
_HEADER: Final = {"apiVersion": API_VERSION, "kind": KIND}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Tree:
    """A mapping of a settings file: each key's value (text, None, list or Tree) and its line (counted from 1)."""

    file: str
    children: Mapping[str, Any]
    lines: Mapping[str, int]


def parse(text: str, name: str) -> Tree:
    """Return a settings file's sections without its apiVersion/kind header; raise SettingsError with file and line."""
    node = parse_single_document(text, name, nodes=True)
    tree = None if node is None else _value(node, name)
    if tree is None:
        return Tree(name, {}, {})
    if not isinstance(tree, Tree):
        raise SettingsError(f"{name} is not a mapping of sections", fix="Write `section:` and, indented, `key: value`.")
    for key, expected in _HEADER.items():
        if key in tree.children and tree.children[key] != expected:
            raise SettingsError(
                f"{name} line {tree.lines[key]}: {key} is {tree.children[key]!r}, this version reads {expected!r}"
            )
    return Tree(name, {k: v for k, v in tree.children.items() if k not in _HEADER}, tree.lines)


def parse_single_document(text: str, name: str, *, nodes: bool = False) -> Any:
    """Return the one YAML document of a text, None if it is empty; with `nodes`, as PyYAML nodes, not plain objects.

    Raise SettingsError, with the line, for invalid YAML and for constructs that the module's docstring lists as
    refused.
    """
    if len(text.encode("utf-8", "surrogatepass")) > SIZE_CAP_BYTES:
        raise SettingsError(f"{name} is larger than {SIZE_CAP_BYTES} bytes", fix="Shorten the file to a few kilobytes.")
    try:
        import yaml
    except ImportError as error:
        raise SettingsError(f"{name} cannot be read: PyYAML is not installed", fix="Run pip install PyYAML.") from error
    try:
        _guard(yaml.parse(text, Loader=yaml.SafeLoader), name)
        return yaml.compose(text, Loader=yaml.SafeLoader) if nodes else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(f"{name} line {line} is not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # an escape beyond Unicode, the 31st of February
        raise SettingsError(f"{name} is not YAML: {str(error).splitlines()[0]}") from error


def plain(value: Any) -> Any:
    """Return the value as plain objects without line numbers: a Tree becomes a dict."""
    if isinstance(value, Tree):
        return {key: plain(child) for key, child in value.children.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def _guard(events: Iterator[Any], name: str) -> None:
    """Refuse oversized or ambiguous YAML while it is still a flat stream of events."""
    depth = documents = values = 0
    for event in events:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        depth += kind.endswith(("MappingStartEvent", "SequenceStartEvent")) - kind.endswith(
            ("MappingEndEvent", "SequenceEndEvent")
        )
        documents += kind == "DocumentStartEvent"
        values += kind == "ScalarEvent"
        if values > VALUE_CAP:
            raise SettingsError(f"{name} has more than {VALUE_CAP:,} values", fix="Keep fewer values in the file.")
        if depth > DEPTH_CAP:
            raise SettingsError(f"{name} line {line} is nested deeper than {DEPTH_CAP} levels")
        if kind == "AliasEvent" or getattr(event, "anchor", None):
            raise SettingsError(f"{name} line {line} uses an anchor or alias", fix="Repeat the value in full.")
        if getattr(event, "tag", None):
            raise SettingsError(f"{name} line {line} uses the tag {event.tag}", fix="Write the value without a tag.")
        if documents > 1:
            raise SettingsError(f"{name} line {line} begins a second document", fix="Keep one document in the file.")


def _value(node: Any, name: str) -> Any:
    """Return a composed YAML node as text, None, list or Tree."""
    if node.id == "scalar":
        return None if node.style is None and node.value in _NULLS else node.value
    if node.id == "sequence":
        return [_value(child, name) for child in node.value]
    children: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise SettingsError(f"{name} line {line} has a list or mapping as a key")
        if key in children:
            raise SettingsError(f"{name} line {line} sets {key!r} again (first in line {lines[key]})")
        children[key], lines[key] = _value(value_node, name), line
    return Tree(name, children, lines)
