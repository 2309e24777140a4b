"""What every REST endpoint says and takes on the wire: JSON answers and errors, bodies, and their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Body, Response

from cotenant.core.model.errors import CotenantError, UsageError

BodyT = TypeVar("BodyT")
JsonBody = Annotated[dict[str, Any], Body()]


class ErrorAnswer(msgspec.Struct):
    """What went wrong and what helps."""

    error: str
    message: str
    fix: str

    @classmethod
    def of(cls, error: CotenantError) -> ErrorAnswer:
        """The error with the words that the command line prints; `error` is the name of its class."""
        return cls(type(error).__name__, error.message, error.fix)


def json_answer(document: object, status: int = 200) -> Response:
    """The document as JSON."""
    return Response(msgspec.json.encode(document), media_type="application/json", status_code=status)


def read_body(raw: Any, kind: type[BodyT]) -> BodyT:
    """A body as one of ours; UsageError names the field that is wrong."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the body is not what is expected: {error}", fix="See /docs for its fields.") from error


def body_doc(kind: Any) -> dict[str, Any]:
    """What an endpoint takes, as the description of the API says it."""
    content = {"application/json": {"schema": schema_of(kind)}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON schema of a type, with what it refers to in its place."""
    schema = msgspec.json.schema(kind)
    inlined: dict[str, Any] = _inlined(schema, schema.get("$defs", {}))
    return inlined


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        if "$ref" in part:
            return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in part.items() if key != "$defs"}
    return [_inlined(value, definitions) for value in part] if isinstance(part, list) else part
