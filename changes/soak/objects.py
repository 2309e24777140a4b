"""EDGE: reads the present objects to which changes have written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from cotenant.base.errors import ClusterForbidden
from cotenant.base.kubernetes.intent import Address
from cotenant.changes.accept import Actions
from cotenant.changes.decide.in_force import object_writes
from cotenant.changes.model.change import Change

Json = Mapping[str, Any]


def read_objects(actions: Actions, changes: Iterable[Change]) -> dict[str, Json | None]:
    """Return the objects that changes have written, by API path, without pods; None for a deleted one."""
    addresses = {write.address for write in object_writes(changes)}
    return {address.path: read_object(actions, address) for address in addresses}


def read_object(actions: Actions, address: Address) -> Json | None:
    """Return one object; None if the object or its whole namespace was deleted.

    Raise ClusterForbidden if it may not be read and its namespace is not known to be gone.
    """
    try:
        return actions.client.get(address.path)
    except ClusterForbidden:
        with suppress(ClusterForbidden):
            if address.namespace and actions.client.get(f"/api/v1/namespaces/{address.namespace}") is None:
                return None
        raise
