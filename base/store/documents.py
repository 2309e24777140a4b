"""JSON documents of any dataclass or struct of the vocabulary, with NaN kept.

JSON has no NaN: a float that is not finite is written as null, and a null where the type says `float` is read as NaN (a
`float | None` stays None). The type decides, so nothing in the file needs a marker. An envelope carries the version.

Fields of a document without any float are decoded into their types at once: of an inventory of 100,000 pods no
dictionaries are made, which take six times the memory of its pods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import inspect

from cotenant.base.store.version import SCHEMA_VERSION, check

DocumentT = TypeVar("DocumentT")
Restore = Callable[[Any], Any]


class _Written(msgspec.Struct):
    version: int
    document: object


class _Envelope(msgspec.Struct):
    version: int
    document: msgspec.Raw


def encode(document: object) -> bytes:
    """The document's file."""
    return msgspec.json.encode(_Written(SCHEMA_VERSION, document))


def decode(content: bytes, kind: type[DocumentT]) -> DocumentT:
    """Inverse of `encode`; NewerVersionError for a later version, msgspec.MsgspecError for anything else."""
    envelope = msgspec.json.decode(content, type=_Envelope)
    check(envelope.version)
    info = inspect.type_info(kind)
    restore = _restorer(info)
    if restore is None:
        return msgspec.json.decode(envelope.document, type=kind)
    try:
        if isinstance(info, inspect.DataclassType | inspect.StructType):
            restored: Any = _restored_fields(envelope.document, info)
        else:
            restored = restore(msgspec.json.decode(envelope.document))
    except (AttributeError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(f"the document has another shape: {error}") from error
    return msgspec.convert(restored, type=kind, str_keys=True)


def _restored_fields(document: msgspec.Raw, info: inspect.DataclassType | inspect.StructType) -> dict[str, Any]:
    """The fields that the document has, by name; where a field needs no NaN, already of its type."""
    stored = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    types = get_type_hints(info.cls)
    fields: dict[str, Any] = {}
    for field in info.fields:
        if (raw := stored.get(field.encode_name)) is None:
            continue
        restore = _restorer(field.type)
        if restore is None:
            fields[field.encode_name] = msgspec.json.decode(raw, type=types[field.name])
        else:
            fields[field.encode_name] = restore(msgspec.json.decode(raw))
    return fields


def _restorer(info: inspect.Type) -> Restore | None:
    """A function that puts NaN where the type wants a float and the JSON says null; None when there is no such place.

    Types must be trees: a type that contains itself would never end.
    """
    restore: Restore | None = None
    match info:
        case inspect.FloatType():
            restore = _nan_for_null
        case inspect.UnionType():
            restore = _optional(info)
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            restore = _each(_restorer(info.item_type))
        case inspect.TupleType():
            restore = _positions([_restorer(item) for item in info.item_types])
        case inspect.DictType():
            restore = _values(_restorer(info.value_type))
        case inspect.DataclassType() | inspect.StructType():
            inner = {field.encode_name: _restorer(field.type) for field in info.fields}
            restore = _fields({name: restorer for name, restorer in inner.items() if restorer})
    return restore


def _nan_for_null(value: Any) -> Any:
    return math.nan if value is None else value


def _optional(info: inspect.UnionType) -> Restore | None:
    """None stays None; the one other member decides. A union of several is left as it is."""
    members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
    inner = _restorer(members[0]) if len(members) == 1 and info.includes_none else None
    return None if inner is None else lambda value: None if value is None else inner(value)


def _each(inner: Restore | None) -> Restore | None:
    return None if inner is None else lambda items: [inner(item) for item in items]


def _positions(inner: list[Restore | None]) -> Restore | None:
    if not any(inner):
        return None
    return lambda items: [restore(item) if restore else item for restore, item in zip(inner, items, strict=True)]


def _values(inner: Restore | None) -> Restore | None:
    return None if inner is None else lambda items: {key: inner(item) for key, item in items.items()}


def _fields(inner: dict[str, Restore]) -> Restore | None:
    if not inner:
        return None
    return lambda fields: {k: inner[k](v) if k in inner else v for k, v in fields.items()}
