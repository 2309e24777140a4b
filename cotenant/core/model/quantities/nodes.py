"""Quantities of nodes: allocatable, moves, fullness."""

from __future__ import annotations

from typing import Final

from cotenant.core.model.quantities.quantity import Quantity

QUANTITIES: Final[tuple[Quantity, ...]] = ()
