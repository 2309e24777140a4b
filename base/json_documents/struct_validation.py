"""Check plain JSON values against a struct: yields each deviation with its path, value and allowed range. Pure.

msgspec stops at the first deviation and does not show the value; a person who edits a ConfigMap wants all of them. Used
before `msgspec.convert`. A null counts as "not set", as in the Kubernetes API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from msgspec import inspect

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.quantity import parse_bytes
from cotenant.base.text import closest_name, format_value

INT64: Final = (-(2**63), 2**63 - 1)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value that does not match its type; unless the deviation is `fatal`, the value is only ignored."""

    path: str
    value: Any
    expected: str
    fatal: bool = True
    fix: str = ""
    """The advice, if the path alone does not say what to do."""

    def __str__(self) -> str:
        return f"{self.path}: {format_value(self.value)} {self.expected}"


def deviations(value: Any, kind: Any, path: str = "$") -> Iterator[Deviation]:
    """Yield each deviation of the JSON `value` from the type; the caller has removed nulls; fields may be missing."""
    yield from _deviations(value, type_of(kind), path)


@cache
def type_of(kind: Any) -> inspect.Type:
    """Return msgspec's description of a type."""
    return inspect.type_info(kind)


def field_names(kind: Any) -> frozenset[str]:
    """Return the names that a struct's fields have in JSON; empty for other types."""
    description = type_of(kind)
    fields = description.fields if isinstance(description, inspect.StructType) else ()
    return frozenset(field.encode_name for field in fields)


def without_nulls(value: Any, untouched: frozenset[str] = frozenset()) -> Any:
    """Return the JSON value without object members that are null; nulls in lists and in `untouched` members remain."""
    if isinstance(value, dict):
        return {
            key: child if key in untouched else without_nulls(child, untouched)
            for key, child in value.items()
            if child is not None
        }
    return [without_nulls(child, untouched) for child in value] if isinstance(value, list) else value


def merge_objects(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects field by field: `above` overrides, nested objects are merged, lists are replaced."""
    out = dict(below)
    for key, value in above.items():
        own = out.get(key)
        out[key] = merge_objects(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return out


def below(path: str, key: str) -> str:
    """Return the path of an object's member: $.a, or $['a.b'] for a key that is not a plain word."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{format_value(key)}]"


def _deviations(value: Any, kind: inspect.Type, path: str) -> Iterator[Deviation]:
    """Yield deviations by the check for the type; raise TypeError for a type that no configuration uses (a bug)."""
    for shape, check in _CHECKS:
        if isinstance(kind, shape):
            yield from check(value, kind, path)
            return
    if not isinstance(kind, inspect.AnyType):
        raise TypeError(f"{path}: a configuration's field cannot have type {kind}")


def _struct(value: Any, kind: inspect.StructType, path: str) -> Iterator[Deviation]:
    if not isinstance(value, dict):
        yield Deviation(path, value, "is not an object")
        return
    fields = {field.encode_name: field.type for field in kind.fields}
    for key, child in value.items():
        if key in fields:
            yield from _deviations(child, fields[key], below(path, key))
        else:
            yield Deviation(below(path, key), child, f"is not a known field{meant(key, fields)}", fatal=False)


def meant(key: str, candidates: Any) -> str:
    """Return a question that suggests the closest known word, or "" if none is close."""
    near = closest_name(key, candidates)
    return f"; do you mean {near}?" if near else ""


def _integer(value: Any, kind: inspect.IntType, path: str) -> Iterator[Deviation]:
    low = INT64[0] if kind.ge is None else kind.ge
    high = INT64[1] if kind.le is None else kind.le
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        yield Deviation(path, value, f"is not a whole number{_format_bounds(kind.ge, kind.le)}")


def _number(value: Any, kind: inspect.FloatType, path: str) -> Iterator[Deviation]:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    good = good and (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)
    if not good or (kind.gt is not None and value <= kind.gt):
        above = "" if kind.gt is None else f" above {kind.gt:g}"
        yield Deviation(path, value, f"is not a number{above}{_format_bounds(kind.ge, kind.le)}")


def _format_bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f" up to {high}"
    return f" from {low}" if high is None else f" from {low} to {high}"


def _boolean(value: Any, _: inspect.BoolType, path: str) -> Iterator[Deviation]:
    if not isinstance(value, bool):
        yield Deviation(path, value, "is not true or false")


def _text(value: Any, kind: inspect.StrType, path: str) -> Iterator[Deviation]:
    if not isinstance(value, str):
        yield Deviation(path, value, "is not a text")
    elif kind.pattern is not None and not re.search(kind.pattern, value):
        yield Deviation(path, value, f"does not match {kind.pattern}")


def _literal(value: Any, kind: inspect.LiteralType | inspect.EnumType, path: str) -> Iterator[Deviation]:
    values = kind.values if isinstance(kind, inspect.LiteralType) else sorted(word.value for word in kind.cls)
    if not isinstance(value, str) or value not in values:
        choices = ", ".join(str(v) or '""' for v in values)
        yield Deviation(path, value, f"is not one of {choices}{meant(str(value), values)}")


def _union(value: Any, kind: inspect.UnionType, path: str) -> Iterator[Deviation]:
    """Check the union's member that is not None; for a quantity (whole number or text) the one that matches."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    texts = [member for member in members if isinstance(member, inspect.StrType)]
    if texts and isinstance(value, str):
        yield from _quantity(value, path) if len(members) > 1 else _deviations(value, texts[0], path)
    else:
        yield from _deviations(value, members[0], path)


def _quantity(value: str, path: str) -> Iterator[Deviation]:
    try:
        parse_bytes(value)
    except QuantityError:
        yield Deviation(path, value, "is not a Kubernetes quantity")


def _list(value: Any, kind: inspect.ListType | inspect.VarTupleType, path: str) -> Iterator[Deviation]:
    if not isinstance(value, list):
        yield Deviation(path, value, "is not a list")
        return
    for index, child in enumerate(value):
        yield from _deviations(child, kind.item_type, f"{path}[{index}]")


def _mapping_deviations(value: Any, kind: inspect.DictType, path: str) -> Iterator[Deviation]:
    if not isinstance(value, dict):
        yield Deviation(path, value, "is not an object")
        return
    for key, child in value.items():
        yield from _deviations(child, kind.value_type, below(path, key))


def _metadata(value: Any, kind: inspect.Metadata, path: str) -> Iterator[Deviation]:
    yield from _deviations(value, kind.type, path)


_Check: TypeAlias = Callable[[Any, Any, str], Iterator[Deviation]]
_CHECKS: Final[tuple[tuple[Any, _Check], ...]] = (
    (inspect.StructType, _struct),
    (inspect.IntType, _integer),
    (inspect.FloatType, _number),
    (inspect.BoolType, _boolean),
    (inspect.StrType, _text),
    (inspect.LiteralType | inspect.EnumType, _literal),
    (inspect.UnionType, _union),
    (inspect.ListType | inspect.VarTupleType, _list),
    (inspect.DictType, _mapping_deviations),
    (inspect.Metadata, _metadata),
)
