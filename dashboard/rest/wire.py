"""The wire format of every REST endpoint: JSON answers and errors, request bodies, and their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Body, Response

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.table import Kind, Schema

BodyT = TypeVar("BodyT")
MOST_LISTED: Final = 1_000
"""Most members of one list of a request: workloads, pods, nodes, namespaces."""
_CELLS: Final[Mapping[Kind, str]] = {Kind.TEXT: "string", Kind.LIST: "array", Kind.INTEGER: "integer"}
JsonBody = Annotated[dict[str, Any], Body()]


class ErrorAnswer(msgspec.Struct):
    """The JSON answer to a failed request: the error's class, what happened, and what helps."""

    error: str
    message: str
    fix: str

    @classmethod
    def of(cls, error: CotenantError) -> ErrorAnswer:
        """Return the answer for an error: its class name, and the message and fix that the command line prints."""
        return cls(type(error).__name__, error.message, error.fix)


def json_answer(document: object, status: int = 200) -> Response:
    """Return the document as a JSON response."""
    return Response(msgspec.json.encode(document), media_type="application/json", status_code=status)


def read_body(raw: Any, kind: type[BodyT]) -> BodyT:
    """Parse a body as `kind`, dropping repeated strings in its lists; raise UsageError that names an invalid field."""
    # Lists of texts of a body without repetitions: what is named twice is done once.
    body = raw
    if isinstance(raw, dict):
        lists = {key: value for key, value in raw.items() if isinstance(value, list)}
        texts = {key: value for key, value in lists.items() if all(isinstance(v, str) for v in value)}
        body = raw | {key: list(dict.fromkeys(value)) for key, value in texts.items()}
    require_short_lists(body, MOST_LISTED)
    try:
        msgspec.json.encode(body)  # half of a surrogate pair is no text for a file, a ledger or a cluster
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise UsageError(f"the body is not valid: {error}", fix="See /docs for the body's fields.") from error


def require_short_lists(body: Any, most: int) -> None:
    """Raise UsageError that names a list of more than `most` members, at any depth of a JSON body."""
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, list) and len(value) > most:
            raise UsageError(
                f"{place or 'the body'} has {len(value):,} members, at most {most:,}", fix="Send them in several parts."
            )
        if isinstance(value, list):
            waiting.extend((f"{place}[{number}]", item) for number, item in enumerate(value))
        elif isinstance(value, dict):
            waiting.extend((f"{place}.{key}".lstrip("."), item) for key, item in value.items())


def error_doc() -> dict[int | str, Any]:
    """Return the OpenAPI response of an endpoint that refuses or fails, which `create_app` gives to all of them."""
    what = "Refused or failed: the kind of error, what happened, and what helps."
    return {"default": {"description": what, "content": {"application/json": {"schema": schema_of(ErrorAnswer)}}}}


def row_schema(schema: Schema) -> dict[str, Any]:
    """Return the JSON schema of a table's row; `columns` and missing values can leave out any of its cells."""
    cells = {c.name: {"type": [_CELLS.get(c.kind, "number"), "null"], "description": c.doc} for c in schema.columns}
    return {"type": "object", "properties": cells}


def body_doc(kind: Any) -> dict[str, Any]:
    """Return the keyword arguments of a route decorator that describe a body of type `kind` in OpenAPI."""
    content = {"application/json": {"schema": schema_of(kind)}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with every `$ref` replaced by what it refers to."""
    schema = msgspec.json.schema(kind)
    inlined: dict[str, Any] = _inline_references(schema, schema.get("$defs", {}))
    return inlined


def _inline_references(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        if "$ref" in part:
            return _inline_references(definitions[part["$ref"].rpartition("/")[2]], definitions)
        return {key: _inline_references(value, definitions) for key, value in part.items() if key != "$defs"}
    return [_inline_references(value, definitions) for value in part] if isinstance(part, list) else part
