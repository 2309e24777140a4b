"""All quantities by key. A subject has one module; docs/quantities.md is made from here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Final

from cotenant.quantities import (
    command_tables,
    costs,
    counts,
    generic,
    lendable,
    nodes,
    peaks,
    plans,
    quality,
    requests,
    savings,
    spoken,
    tables,
    usage,
    what_if,
)
from cotenant.quantities.quantity import Quantity

SUBJECTS: Final[Mapping[str, ModuleType]] = MappingProxyType(
    {
        "Savings": savings,
        "Money": costs,
        "Requests and limits": requests,
        "Lendable capacity": lendable,
        "Usage": usage,
        "Forecasts and peaks": peaks,
        "Reservation plans": plans,
        "Nodes": nodes,
        "Counts": counts,
        "Data quality": quality,
        "Try a risk": what_if,
        "In sentences": spoken,
        "In many sentences": generic,
    }
)
"""Title of a chapter -> its module."""


def of_subject(title: str) -> tuple[Quantity, ...]:
    """The quantities of one subject, in the order of its module."""
    quantities: tuple[Quantity, ...] = SUBJECTS[title].QUANTITIES
    return quantities


def by_chapter() -> Mapping[str, tuple[Quantity, ...]]:
    """All quantities by the title of their chapter: the subjects first, then the other columns of each table."""
    subjects = {title: of_subject(title) for title in SUBJECTS}
    claimed = {column for quantities in subjects.values() for quantity in quantities for column in quantity.columns}
    every_table = (*tables.SUBJECTS, *command_tables.SUBJECTS)
    return subjects | {f"Table: {subject.title}": tables.quantities(subject, claimed) for subject in every_table}


def every_quantity() -> tuple[Quantity, ...]:
    """Return the quantities of all chapters."""
    return tuple(quantity for quantities in by_chapter().values() for quantity in quantities)


QUANTITIES: Final[Mapping[str, Quantity]] = MappingProxyType({q.key: q for q in every_quantity()})
"""By key; a test refuses two of one key."""


def quantity(key: str) -> Quantity:
    """The quantity of a key; a KeyError names what is missing and where to declare it."""
    try:
        return QUANTITIES[key]
    except KeyError:
        raise KeyError(f"no quantity {key!r}: declare it in cotenant/quantities") from None
