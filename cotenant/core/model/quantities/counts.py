"""Quantities of counts by state: rows, plans, changes, findings."""

from __future__ import annotations

from typing import Final

from cotenant.core.model.quantities.quantity import Quantity

QUANTITIES: Final[tuple[Quantity, ...]] = ()
