"""Refusals of the server, as the Status object that it sends."""

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
    """An answer other than 2xx, about the object `name`; `causes` has (reason, field, message) of each invalid field.

    `reason` is the code for programs, such as NotFound; by default that of the HTTP status `code`.
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
        """Return the Status object."""
        listed = [{"reason": r, "message": m, "field": f} for r, f, m in self.causes]
        details = {**({"name": self.name} if self.name else {}), **({"causes": listed} if listed else {})}
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        return {**head, "reason": self.reason, "code": self.code, **({"details": details} if details else {})}


def not_found(what: str, name: str) -> Refusal:
    """Return the 404 for an object that does not exist."""
    return Refusal(404, f'{what} "{name}" not found', name=name)


def expired_refusal(since: int, oldest: int) -> Refusal:
    """Return the 410 for a version that the history no longer has."""
    return Refusal(410, f"too old resource version: {since} ({oldest})")


def conflict(what: str, name: str, why: str) -> Refusal:
    """Return the 409 for a write that is not based on the object's present version."""
    return Refusal(409, f'Operation cannot be fulfilled on {what} "{name}": {why}', name=name)


def invalid(kind: str, name: str, causes: Iterable[tuple[str, str]]) -> Refusal:
    """Return the 422 for an invalid object; `causes` has (field, what is wrong)."""
    listed = [("FieldValueInvalid", field, message) for field, message in causes]
    detail = ", ".join(f"{field}: {message}" for _, field, message in listed)
    return Refusal(422, f'{kind} "{name}" is invalid: {detail}', causes=listed, name=name)
