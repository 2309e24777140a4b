"""The two compressible and incompressible resources, as values instead of twin classes.

Amounts of a resource are integers in its `unit` everywhere: millicores and bytes. Matrices hold the same unit as
float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Resource(StrEnum):
    """A resource that pods request; its unit is fixed."""

    CPU = "cpu"
    MEMORY = "memory"

    @property
    def unit(self) -> str:
        """Unit of every integer and float amount of this resource: "millicores" or "bytes"."""
        return "millicores" if self is Resource.CPU else "bytes"


Amounts = Mapping[Resource, int]
"""Amount per resource in its unit; a missing key means "not set", never zero."""

MILLICORES_PER_CORE: Final = 1000
KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
