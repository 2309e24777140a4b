"""What the server refuses, as the Status object that goes over the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


class Refusal(Exception):
    """An answer other than 2xx, of the object `name`; `causes`: (reason, field, message) of each invalid field.

    reason: the word for programs, such as NotFound; by the HTTP status `code` unless it is given.
    """

    def __init__(
        self, code: int, message: str, *, reason: str = "", causes: Iterable[tuple[str, str, str]] = (), name: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "InternalError")
        self.causes = tuple(causes)
        self.name = name

    def status(self) -> dict[str, Any]:
        """The Status object."""
        listed = [{"reason": r, "message": m, "field": f} for r, f, m in self.causes]
        details = {**({"name": self.name} if self.name else {}), **({"causes": listed} if listed else {})}
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        return {**head, "reason": self.reason, "code": self.code, **({"details": details} if details else {})}


def not_found(what: str, name: str) -> Refusal:
    """404 of one object."""
    return Refusal(404, f'{what} "{name}" not found', name=name)


def expired_refusal(since: int, oldest: int) -> Refusal:
    """410 of a version that is no longer remembered."""
    return Refusal(410, f"too old resource version: {since} ({oldest})")


def conflict(what: str, name: str, why: str) -> Refusal:
    """409 of a write that is not based on the object as it is."""
    return Refusal(409, f'Operation cannot be fulfilled on {what} "{name}": {why}', name=name)


def invalid(kind: str, name: str, causes: Iterable[tuple[str, str]]) -> Refusal:
    """422 with (field, what is wrong)."""
    listed = [("FieldValueInvalid", field, message) for field, message in causes]
    detail = ", ".join(f"{field}: {message}" for _, field, message in listed)
    return Refusal(422, f'{kind} "{name}" is invalid: {detail}', causes=listed, name=name)
