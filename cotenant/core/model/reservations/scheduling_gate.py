"""Our scheduling gate on a pod that waits for a Reservation: the test for it, and the patch that removes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.core.model.kubernetes.protocol import RESERVATION_GATE

Json = Mapping[str, Any]


def gates_of(pod: Json) -> tuple[str, ...]:
    """Names of the scheduling gates of a pod as JSON."""
    return tuple(str(gate.get("name") or "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def without_gate(gates: Sequence[str], version: str) -> list[Json]:
    """JSON patch that ends our gate and leaves others; refused when the pod is not of this resourceVersion any more."""
    remaining = [{"name": name} for name in gates if name != RESERVATION_GATE]
    ours = [{"op": "replace", "path": "/spec/schedulingGates", "value": remaining}] if RESERVATION_GATE in gates else []
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *ours]
