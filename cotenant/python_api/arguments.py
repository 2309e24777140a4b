"""Arguments beside a DataFrame: one that is no text, sequence or number, as it should be, is a UsageError. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from cotenant.base.errors import UsageError
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.tables.queries import Relation, matching


def resource_of(name: str) -> Resource:
    """The resource that a caller named; UsageError for anything else."""
    try:
        return Resource(name)
    except ValueError as error:
        raise UsageError(f"resource={name!r} is none", fix="Write 'cpu' or 'memory'.") from error


def require_integer(name: str, value: Any, fix: str, *, least: int = 1) -> None:
    """UsageError for an argument that is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or int(value) < least:
        raise UsageError(f"{name}={value!r} is not a whole number of at least {least}", fix=fix)


def require_text(name: str, value: Any, fix: str) -> None:
    """UsageError for an argument that is no text."""
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} is no text", fix=fix)


def require_sequence(name: str, values: Any, what: str, fix: str) -> list[Any]:
    """Return the items of an argument; UsageError for what is no sequence of `what`, as a single text is none."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{name}={values!r} is not a sequence of {what}", fix=fix)
    return list(values)


def matching_rows(relation: Relation | Table, where: str) -> Table:
    """Return the rows that a filter shows; UsageError for a filter that is no text or names what is not there."""
    require_text("where", where, "Write a filter such as 'namespace=shop&severity=critical', or '' for all rows.")
    return matching(relation, where)
