"""All quantities by key: one module per subject, a feature's in its room; docs/quantities.md is made from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Final

from cotenant.base.tables.quantity import Quantity, Surface
from cotenant.scheduler_ext.reservations.model import quantities as plans
from cotenant_lab.quantities import (
    command_tables,
    costs,
    counts,
    generic,
    lendable,
    nodes,
    peaks,
    quality,
    requests,
    savings,
    spoken,
    tables,
    usage,
    what_if,
)

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


TABLES: Final = (*tables.SUBJECTS, *command_tables.SUBJECTS)
"""Every table that the dictionary explains."""


def surfaces_of_columns() -> Mapping[str, tuple[Surface, ...]]:
    """The surfaces that show the cells of each column: "workloads.cpu_request" -> REST and others."""
    return {
        f"{subject.schema.name}.{column.name}": subject.surfaces_of(column.name)
        for subject in TABLES
        for column in subject.schema.columns
    }


def of_subject(title: str) -> tuple[Quantity, ...]:
    """The quantities of one subject, in the order of its module; one with columns is shown where their tables are."""
    shown = surfaces_of_columns()
    return tuple(
        replace(found, surfaces=tuple(dict.fromkeys((*found.surfaces, *(s for c in found.columns for s in shown[c])))))
        for found in SUBJECTS[title].QUANTITIES
    )


def by_chapter() -> Mapping[str, tuple[Quantity, ...]]:
    """All quantities by the title of their chapter: the subjects first, then the other columns of each table."""
    subjects = {title: of_subject(title) for title in SUBJECTS}
    claimed = {column for quantities in subjects.values() for quantity in quantities for column in quantity.columns}
    return subjects | {f"Table: {subject.title}": tables.quantities(subject, claimed) for subject in TABLES}


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
        raise KeyError(f"no quantity {key!r}: declare it in lab/cotenant_lab/quantities") from None
