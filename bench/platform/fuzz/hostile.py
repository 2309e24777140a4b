"""Every field of a document at its worst: longest, deepest, most digits, largest, most negative, many, and attacks."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.platform.fuzz import seeds

LONGEST: Final = 250_000
"""Characters of a text: all annotations of an object may have 262,144 together."""
NUMBERS: Final = {"largest": 2**63 - 1, "beyond": 2**64, "most negative": -(2**63), "float": 1e308, "text": "9" * 400}
BOMB: Final = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
"""A text of YAML that is 9^9 words when its aliases are written out."""
Path_ = tuple[str | int, ...]
ROOT: Final = Path(__file__).parents[3]


@cache
def texts(longest: int) -> dict[str, str]:
    """What a tenant may write into a text, by its name. longest: characters."""
    return {
        "longest": "a" * longest,
        "most digits": "9" * longest,
        "most digits with a unit": "1" * longest + "s",
        "dashes": "-" * longest,
        "blanks": " " * longest + "x",
        "largest exponent": "1e999999999",
        "largest amount": "8E",
        "largest integer": str(2**63),
        "most negative": str(-(2**63) - 1),
        "sum": str(2**64),
        "no number": "nan",
        "endings of names": "x" + "-22222" * (longest // 6) + "-a-b",
        "durations": "1h" * (longest // 2) + "!",
        "quotes": '"' + '\\"' * (longest // 2),
        "brackets": "[{(<" * (longest // 4),
        "paths": "/a" * (longest // 2),
        "deep JSON": "[" * longest,
        "deep objects": '{"a":' * (longest // 5),
        "wide JSON": "[" + "0," * (longest // 2 - 2) + "0]",
        "JSON of digits": '{"cpu": ' + "9" * longest + "}",
        "CPUs": "0-999999," * (longest // 9),
        "a day that never comes": "0 0 30 2 *",
        "no UTF-8": "\ud800" * 100,
        "aliases": BOMB,
        "controls": "\x1b[2J\u202e\x00" * 1000,
    }


def worst(document: Any, longest: int) -> Iterator[tuple[str, Any]]:
    """(what, the document with it) of each field with each value. longest: characters of a text."""
    for path, value in leaves(document):
        kinds: dict[str, Any] = texts(longest) if isinstance(value, str) or value is None else NUMBERS
        for name, nasty in kinds.items():
            yield f"{'.'.join(map(str, path))}: {name}", replaced(document, path, nasty)
    for path, value in inner(document):
        for what, changed in crowds(value, longest):
            yield f"{'.'.join(map(str, path))}: {what}", replaced(document, path, changed)


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The places of all values that hold no others."""
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path, value


def inner(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The places of all lists and objects that hold something."""
    if isinstance(value, dict | list) and value:
        yield path, value
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from inner(child, (*path, key))


def crowds(value: Any, longest: int) -> Iterator[tuple[str, Any]]:
    """The same list or object with thousands of members, and with amounts whose sum exceeds 64 bits."""
    if isinstance(value, list):
        yield "many", value * (longest // 25 // len(value))
        yield "largest sum", largest(value) * 50
    elif all(isinstance(child, str) for child in value.values()):
        yield "many", {**value, **{f"k{number}": "1" for number in range(longest // 25)}}
        yield "long key", {**value, "k" * longest: "1"}


def largest(value: Any) -> Any:
    """The same with 8E in place of every amount."""
    if isinstance(value, dict):
        sides = ("requests", "limits", "allocatable", "capacity", "usage", "min", "max")
        return {
            k: dict.fromkeys(child, "8E") if k in sides and isinstance(child, dict) else largest(child)
            for k, child in value.items()
        }
    return [largest(child) for child in value] if isinstance(value, list) else value


def replaced(document: Any, path: Path_, value: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


@cache
def annotated_pod() -> dict[str, Any]:
    """The pod of the seeds, with every annotation and label whose name a module of the product has as a constant."""
    metadata = seeds.POD["metadata"]
    by_kind = {kind: dict.fromkeys(names_of(kind), "1") for kind in ("ANNOTATION", "LABEL")}
    more = {
        "annotations": by_kind["ANNOTATION"] | metadata["annotations"],
        "labels": by_kind["LABEL"] | metadata["labels"],
    }
    return {**seeds.POD, "metadata": {**metadata, **more}}


def names_of(kind: str) -> Iterator[str]:
    """Texts of the constants whose names end so."""
    for room in ("admission", "autopilot", "base", "changes", "enforcer", "profiler", "recommender", "scheduler_ext"):
        for file in sorted((ROOT / room).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            if f"_{kind}: Final" not in source:
                continue
            module = importlib.import_module("cotenant." + ".".join(file.relative_to(ROOT).with_suffix("").parts))
            for node in ast.parse(source).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    value = getattr(module, node.target.id, None)
                    if node.target.id.endswith(f"_{kind}") and isinstance(value, str):
                        yield value
