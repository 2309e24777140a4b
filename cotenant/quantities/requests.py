"""Quantities of requests and limits, as they are and as they are proposed."""

from __future__ import annotations

from typing import Final

from cotenant.quantities.quantity import Quantity

QUANTITIES: Final[tuple[Quantity, ...]] = ()
