"""Change values in the text of a YAML file without changing any other character. Pure.

The parser gives the start and end of each node; only that text is replaced, so that comments, order, quotes,
indentation and line ends stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from re import Match
from re import compile as pattern
from typing import Any, Final, TypeAlias

from cotenant.base.errors import UsageError

Node: TypeAlias = Any
"""A node of PyYAML (imported only when a file is read): ScalarNode, MappingNode or SequenceNode, by its `id`."""
NULL: Final = "null"
"""A value that removes what another file sets; never quoted."""
_BOM: Final = "\ufeff"
_PROPERTIES: Final = pattern(r"(?:[&!]\S*\s+)*")
_ALIAS: Final = pattern(r"\s*:\s*\*[^\s,\]}]+")
_COLON: Final = pattern(r"\s*:")
_MERGE: Final = "<<"
_PLAIN_DIGITS: Final = 6
"""Longest plain whole number: Helm reads longer ones as floating-point numbers."""

Wanted = Mapping[str, Any]
"""Key -> new text, None to remove the key, or a nested mapping of the same form."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters from index `start` to `end` (exclusive) by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Document:
    """One YAML document of a file: the text of the whole file, and the document's root node."""

    path: str
    text: str
    root: Node

    @cached_property
    def shared_ids(self) -> frozenset[int]:
        """Python ids of the nodes that an alias or a merge key uses in several places, and of the nodes below them."""
        visited, shared, waiting = set[int](), set[int](), [(self.root, False)]
        while waiting:
            node, is_shared = waiting.pop()
            is_shared |= id(node) in visited
            visited.add(id(node))
            if is_shared and id(node) in shared:
                continue
            shared.update([id(node)] if is_shared else [])
            waiting.extend((part, is_shared) for part in _parts_of(node))
        return frozenset(shared)

    @cached_property
    def step(self) -> int:
        """The file's indentation in columns: that of most nested mappings; 2 if there are none."""
        steps, waiting = Counter[int](), [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(part for part in _parts_of(node) if _is_block(part) and id(part) not in self.shared_ids)
            for key, value in node.value if node.id == "mapping" else ():
                if value.id == "mapping" and _is_block(value) and value.start_mark.column > key.start_mark.column:
                    steps[value.start_mark.column - key.start_mark.column] += 1
        return steps.most_common(1)[0][0] if steps else 2

    @cached_property
    def line_end(self) -> str:
        """The file's line separator."""
        return "\r\n" if "\r\n" in self.text[: self.text.find("\n") + 1] else "\n"

    def where(self, node: Node) -> str:
        """Return the node's place as "FILE:LINE"."""
        return f"{self.path}:{node.start_mark.line + (0 if self.text.startswith(_BOM) else 1)}"


def read_documents(path: str, text: str) -> list[Document]:
    """Return a file's documents that are mappings or lists; raise yaml.YAMLError if the text is not YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # A line end in the place of a byte order mark keeps every column and every index.
    plain = "\n" + text[1:] if text.startswith(_BOM) else text
    roots: Iterator[Node] = yaml.compose_all(plain, Loader=loader)
    return [Document(path, text, root) for root in roots if root is not None and root.id != "scalar"]


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text after the edits; edits at one index keep their order. Raise UsageError if edits overlap."""
    parts, at = list[str](), 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at:
            raise UsageError("two values would be written to one place of the file", fix="Change the value by hand.")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def child(document: Document, node: Node | None, key: str) -> Any:
    """Return the value of a mapping's key, None if there is none; raise UsageError if the key is ambiguous."""
    pair = _pair(document, node, key)
    return pair[1] if pair else None


def below(document: Document, node: Node | None, keys: Sequence[str]) -> Any:
    """Return the node at this path of keys (a number is a list index); None if there is none."""
    for key in keys:
        if node is not None and node.id == "sequence":
            node = node.value[int(key)] if key.isdigit() and int(key) < len(node.value) else None
        else:
            node = child(document, node, key)
    return node


def text_of(node: Node | None) -> str | None:
    """Return the text of a scalar node; None if there is no node, or if it is null, a mapping or a sequence."""
    if node is None or node.id != "scalar" or node.tag == "tag:yaml.org,2002:null":
        return None
    return str(node.value)


def edits_of(document: Document, node: Node, values: Wanted) -> list[Edit]:
    """Return the edits that give a mapping the wanted values; raise UsageError if other values would change too."""
    if node.id != "mapping":
        raise UsageError(f"{document.where(node)} is no mapping", fix="Change the value by hand.")
    _require_own(document, node)
    edits, missing, removed = list[Edit](), dict[str, Any](), set[str]()
    for key, value in values.items():
        pair = _pair(document, node, key)
        if pair is None:
            if filled := _without_none(value):
                missing[key] = filled
        elif value is None or (isinstance(value, Mapping) and _is_emptied(pair[1], value)):
            _require_own(document, pair[1])
            removed.add(key)
        else:
            edits += _replacement(document, node, pair, value)
    edits += _removal(document, node, removed)
    if missing:
        _require_lines(document, node)
        ends = (_end(document.text, key, value) for key, value in reversed(node.value))
        end = next((end for end in ends if end is not None), None)
        if end is None:
            fix = f"Write {next(iter(missing))} there."
            raise UsageError(f"{document.where(node)} has no line below which a key can be added", fix=fix)
        at = _line_end(document.text, end)
        lines = _block(missing, " " * node.value[0][0].start_mark.column, document.step)
        edits.append(Edit(at, at, "".join(f"{document.line_end}{line}" for line in lines)))
    return edits


def _parts_of(node: Node) -> Iterator[Node]:
    if node.id == "mapping":
        yield from (part for pair in node.value for part in pair)
    elif node.id == "sequence":
        yield from node.value


def _is_block(node: Node) -> bool:
    return node.id != "scalar" and not getattr(node, "flow_style", False)


def _require_own(document: Document, node: Node) -> None:
    if id(node) in document.shared_ids:
        raise UsageError(
            f"{document.where(node)} is used in several places by an alias or a merge key, which would all change",
            fix="Write the value itself where it is to change.",
        )


def _pair(document: Document, node: Node | None, key: str) -> tuple[Node, Node] | None:
    if node is None or node.id != "mapping":
        return None
    own: list[tuple[Node, Node]] = [pair for pair in node.value if pair[0].value == key]
    if len(own) > 1:
        raise UsageError(f"{document.where(own[1][0])}: the key {key} is there twice", fix="Keep one of the two keys.")
    if own:
        return own[0]
    for merged in (pair[1] for pair in node.value if pair[0].value == _MERGE):
        for source in [merged] if merged.id == "mapping" else merged.value:
            if _pair(document, source, key) is not None:
                raise UsageError(
                    f"{document.where(node)} takes {key} from elsewhere by a merge key", fix="Add the key at that line."
                )
    return None


def _without_none(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: filled for key, inner in value.items() if (filled := _without_none(inner))}


def _is_emptied(node: Node, values: Wanted) -> bool:
    """Return whether a mapping has no keys left with these values."""
    if node.id != "mapping" or not node.value or _without_none(values):
        return False
    return all(
        key.value in values and (values[key.value] is None or _is_emptied(value, values[key.value]))
        for key, value in node.value
    )


def _replacement(document: Document, node: Node, pair: tuple[Node, Node], value: Any) -> list[Edit]:
    key, old = pair
    if isinstance(value, Mapping):
        if old.id == "mapping" and old.value:
            return edits_of(document, old, value)
        filled = _without_none(value)
        if not filled:
            return []
        if text_of(old) is not None or old.id == "sequence":
            raise UsageError(f"{document.where(old)} is no mapping", fix="Change the value by hand.")
        _require_own(document, old)
        _require_lines(document, node)
        colon = _behind_colon(document, key)
        end = _line_end(document.text, old.end_mark.index)  # a comment stays beside its key
        lines = _block(filled, " " * (key.start_mark.column + document.step), document.step)
        text = "".join(f"{document.line_end}{line}" for line in lines)
        return [Edit(colon, old.end_mark.index, ""), Edit(end, end, text)]
    _require_own(document, old)
    if old.id != "scalar" or old.style in ("|", ">"):
        raise UsageError(f"{document.where(old)} is not a plain value", fix="Change the value by hand.")
    start, end = old.start_mark.index, old.end_mark.index
    match = _PROPERTIES.match(document.text, start, end)
    start = match.end() if match else start
    quote = old.style if old.style in ("'", '"') and value != NULL else ""
    new = f"{quote}{value}{quote}" if quote else _scalar(value)
    return [Edit(start, end, new if end > start else f" {new}")]


def _behind_colon(document: Document, key: Node) -> int:
    match = _COLON.match(document.text, key.end_mark.index)
    if match is None:
        raise UsageError(f"{document.where(key)} is a key without a colon", fix="Change the value by hand.")
    return match.end()


def _scalar(value: str) -> str:
    return f'"{value}"' if value.isdigit() and len(value) > _PLAIN_DIGITS else value


def _removal(document: Document, node: Node, keys: set[str]) -> list[Edit]:
    at = [place for place, (key, _) in enumerate(node.value) if key.value in keys]
    if not at:
        return []
    _require_lines(document, node)
    text, edits = document.text, list[Edit]()
    for place in at:
        key, value = node.value[place]
        end, begin = _end(text, key, value), text.rfind("\n", 0, key.start_mark.index) + 1
        if end is None:
            raise UsageError(f"{document.where(key)} cannot be removed line by line", fix="Remove the key by hand.")
        if text[begin : key.start_mark.index].strip() or begin == 0:  # the first key of a list's entry
            edits.append(Edit(_behind_colon(document, key), end, " {}"))
        else:
            edits.append(Edit(_line_end(text, begin - 1), _line_end(text, end), ""))
    return edits


def _require_lines(document: Document, node: Node) -> None:
    """Raise UsageError for a mapping in braces: lines cannot be added to it or removed from it."""
    if not _is_block(node):
        raise UsageError(
            f"{document.where(node)} is a mapping in braces, whose keys cannot be added or removed",
            fix="Write the mapping with one key per line first.",
        )


def _end(text: str, key: Node | None, value: Node) -> int | None:
    """Return the index after a value's last character; None if the parser does not give it."""
    before = key.end_mark.index if key is not None else 0
    if key is not None and value.start_mark.index < before:
        alias: Match[str] | None = _ALIAS.match(text, before)
        return alias.end() if alias else None
    if value.id == "scalar":
        return None if getattr(value, "style", None) in ("|", ">") else int(value.end_mark.index)
    if not _is_block(value) or not value.value:
        return int(value.end_mark.index)
    if value.id == "mapping":
        return _end(text, *value.value[-1])
    last = value.value[-1]
    return _end(text, None, last) if last.start_mark.index >= value.start_mark.index else None


def _line_end(text: str, at: int) -> int:
    """Return the index of the first line separator at or after an index."""
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end - 1 if end > 0 and text[end - 1] == "\r" else end


def _block(values: Wanted, indent: str, step: int) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _block(value, indent + " " * step, step)
        else:
            yield f"{indent}{key}: {_scalar(value)}"
