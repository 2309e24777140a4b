"""Our scheduling gates on a pod that waits: the test for them, and the patch that removes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE

Json = Mapping[str, Any]

OUR_GATES: Final = (RESERVATION_GATE, QUOTA_GATE, GANG_GATE)
_PREFIX: Final = f"{QUOTA_GATE.partition('/')[0]}/"
MISSPELT: Final = f"cotenant has no such gate, so that nothing lifts it; its gates are {', '.join(OUR_GATES)}"


def misspelt(gates: Iterable[str]) -> tuple[str, ...]:
    """Gates with our prefix that are none of ours."""
    return tuple(gate for gate in gates if gate.startswith(_PREFIX) and gate not in OUR_GATES)


def gates_of(pod: Json) -> tuple[str, ...]:
    """Names of the scheduling gates of a pod as JSON."""
    return tuple(str(gate.get("name") or "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def without_gate(gates: Sequence[str], version: str, *ended: str) -> list[Json]:
    """JSON patch that ends the gate of Reservations, or the `ended` ones, and leaves others.

    Refused when the pod is not of this resourceVersion any more.
    """
    ended = ended or (RESERVATION_GATE,)
    remaining = [{"name": name} for name in gates if name not in ended]
    changed = len(remaining) < len(gates)
    ours = [{"op": "replace", "path": "/spec/schedulingGates", "value": remaining}] if changed else []
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *ours]
