"""The SwapGuard (cotenant.dev/v1alpha1) as the API writes it, for those who only read it. Pure."""

from __future__ import annotations

import msgspec


class _SwapGuardSpec(msgspec.Struct, rename="camel"):
    served_until: str = ""
    queues_served_until: str = ""
    nodes: dict[str, list[str]] | None = None


class SwapGuardWire(msgspec.Struct):
    """Until when Reservations and queues are served (moments, "" for none), and the pods that may be bound, by node."""

    spec: _SwapGuardSpec = msgspec.field(default_factory=_SwapGuardSpec)
