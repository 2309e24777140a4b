"""Quantities of lendable capacity: batch and mid amounts of a node and of the cluster, now and over time."""

from __future__ import annotations

from typing import Final

from cotenant.core.model.quantities.quantity import Quantity

QUANTITIES: Final[tuple[Quantity, ...]] = ()
