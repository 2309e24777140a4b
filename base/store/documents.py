"""JSON documents of any dataclass or struct of the base types, with NaN preserved.

JSON has no NaN: a float that is not finite is written as null, and a null where the type says `float` is read as NaN (a
`float | None` stays None). The type decides, so the file needs no marker. An envelope has the layout's version.

Values without floats are decoded directly into their types: for an inventory of 100,000 pods no dictionaries are made,
which would take six times the memory of the pods. A reader may compact each item of a list as it is decoded (`shared`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import inspect

DocumentT = TypeVar("DocumentT")
Restore = Callable[[Any], Any]
NOTHING: Final[Mapping[Any, Restore]] = MappingProxyType({})

SCHEMA_VERSION: Final = 1
"""The format version in every stored file; it grows when older code would misread the new layout."""


class NewerVersionError(Exception):
    """The file was written by a newer cotenant; the argument is the version of its layout."""


def check(version: int) -> None:
    """Raise NewerVersionError for a layout newer than this code's; readers handle older layouts themselves."""
    if version > SCHEMA_VERSION:
        raise NewerVersionError(version)


FACTS: Final = "facts"
"""Name of the document of StoreFacts, which is outside of runs; a store without it is of a real cluster."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The facts about a cluster's store, written once by its creator, so that later writers need not know them.

    `demo` is true if the history is synthetic, so that nothing may be applied to a real cluster.
    """

    demo: bool = False


class _Written(msgspec.Struct):
    version: int
    document: object


class _Envelope(msgspec.Struct):
    version: int
    document: msgspec.Raw


def encode(document: object) -> bytes:
    """Return a document as the bytes of its file."""
    return msgspec.json.encode(_Written(SCHEMA_VERSION, document))


def decode(content: bytes, kind: type[DocumentT], shared: Mapping[Any, Restore] = NOTHING) -> DocumentT:
    """Decode a document; raise NewerVersionError for a later version, msgspec.MsgspecError for anything else.

    `shared` maps the type of a list's items in the document to a function that replaces each item.
    """
    envelope = msgspec.json.decode(content, type=_Envelope)
    check(envelope.version)
    try:
        document: DocumentT = _decode(envelope.document, kind, shared)
    except (AttributeError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(f"the document does not match its type: {error}") from error
    return document


def _decode(stored: msgspec.Raw, kind: Any, shared: Mapping[Any, Restore]) -> Any:
    """Decode a value; only types with floats are decoded by way of plain dictionaries, one list item at a time."""
    info = inspect.type_info(kind)
    restore = _restorer(info)
    plain: Any
    match info:
        case inspect.DataclassType() | inspect.StructType() if restore or shared:
            raws, types = msgspec.json.decode(stored, type=dict[str, msgspec.Raw]), get_type_hints(info.cls)
            present = (field for field in info.fields if field.encode_name in raws)
            plain = {
                field.encode_name: _decode(raws[field.encode_name], types[field.name], shared) for field in present
            }
        case inspect.ListType() | inspect.VarTupleType() if restore or get_args(kind)[0] in shared:
            decode_item = _item_decoder(get_args(kind)[0], info.item_type, shared)
            plain = [decode_item(raw) for raw in msgspec.json.decode(stored, type=list[msgspec.Raw])]
        case _ if restore:
            plain = restore(msgspec.json.decode(stored))
        case _:
            return msgspec.json.decode(stored, type=kind)
    return msgspec.convert(plain, type=kind, str_keys=True)


def _item_decoder(kind: Any, info: inspect.Type, shared: Mapping[Any, Restore]) -> Restore:
    """Return a function that decodes an item of a list."""
    restore, typed = _restorer(info), msgspec.json.Decoder(kind)
    if restore is not None:
        return lambda raw: msgspec.convert(restore(msgspec.json.decode(raw)), kind, str_keys=True)
    share = shared[kind]
    return lambda raw: share(typed.decode(raw))


def _restorer(info: inspect.Type) -> Restore | None:
    """Return a function that replaces null by NaN where the type is float; None if the type has no float.

    Types must be trees: a type that contains itself would never end.
    """
    restore: Restore | None = None
    match info:
        case inspect.FloatType():
            restore = _nan_for_null
        case inspect.UnionType():
            # None stays None; the one other member decides.
            members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
            optional_inner = _restorer(members[0]) if len(members) == 1 and info.includes_none else None
            restore = None if optional_inner is None else lambda value: None if value is None else optional_inner(value)
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            each = _restorer(info.item_type)
            restore = None if each is None else lambda items: [each(item) for item in items]
        case inspect.TupleType():
            at = [_restorer(item) for item in info.item_types]
            restore = (
                (lambda items: [r(item) if r else item for r, item in zip(at, items, strict=True)]) if any(at) else None
            )
        case inspect.DictType():
            values_inner = _restorer(info.value_type)
            restore = (
                None if values_inner is None else lambda items: {key: values_inner(item) for key, item in items.items()}
            )
        case inspect.DataclassType() | inspect.StructType():
            inner = {field.encode_name: r for field in info.fields if (r := _restorer(field.type))}
            restore = (
                (lambda fields: {k: inner[k](v) if k in inner else v for k, v in fields.items()}) if inner else None
            )
    return restore


def _nan_for_null(value: Any) -> Any:
    return math.nan if value is None else value
