"""What a pod requests of mid resources: `kubernetes.io/mid-cpu` and `mid-memory` in place of cpu and memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.colocation.reclaimable import Band
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, RESOURCE_ALIASES
from cotenant.base.kubernetes.quantity import add
from cotenant.base.resource import Amounts, Resource

_RESOURCES: Final[Mapping[str, Resource]] = {EXTENDED_RESOURCES[Band.MID, resource]: resource for resource in Resource}
MID_NAMES: Final[Mapping[str, Resource]] = {
    **_RESOURCES,
    **{old: _RESOURCES[new] for old, new in RESOURCE_ALIASES.items() if new in _RESOURCES},
}
"""Names on the wire, old ones included; amounts are whole millicores and bytes."""


def mid_request_of(requests: Mapping[str, int]) -> Amounts:
    """CPU (millicores) and memory (bytes) of a pod's requests by name; a resource that is not requested has no key."""
    amounts: dict[Resource, int] = {}
    for name, resource in MID_NAMES.items():
        if name in requests:
            amounts[resource] = add((amounts.get(resource, 0), requests[name]))
    return amounts
