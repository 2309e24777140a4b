"""EDGE: The objects by which the API server calls the webhooks, which the installation above this room ships."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cotenant.base.kubernetes.intent import Address


@dataclass(frozen=True, slots=True)
class ShippedRegistration:
    """The Service and webhook configurations that the package ships; `cotenant.cli.registry.PROVIDERS` makes one."""

    read: Callable[[], list[dict[str, Any]]]
    """Returns the objects as they are shipped, in the order of installation."""
    address_of: Callable[[dict[str, Any]], Address]
    """Returns the address of one of them."""
