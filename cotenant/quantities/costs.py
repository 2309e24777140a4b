"""Quantities of money."""

from __future__ import annotations

from typing import Final

from cotenant.quantities.quantity import Quantity

QUANTITIES: Final[tuple[Quantity, ...]] = ()
