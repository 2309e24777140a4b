"""The SwapGuard: hand-overs under way, as the API server's policy, the extender and a restarted manager read it.

Intent and guard are one object, so that one write makes both or neither. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import micro_moment, moment_of
from cotenant.base.kubernetes.pod_identity import Reference
from cotenant.base.kubernetes.pod_request import format_quantities, parse_quantities
from cotenant.base.kubernetes.protocol import (
    GANG_GATE,
    OWN_GROUP,
    PLACEHOLDER_NAMESPACE,
    QUOTA_GATE,
    RESERVATION_GATE,
    SWAP_GUARD,
)

Json = Mapping[str, Any]

ADDRESS: Final = Address(OWN_GROUP, "swapguards", SWAP_GUARD)
MANAGED: Final = {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"}


@dataclass(frozen=True, slots=True)
class SwapPlaceholder:
    """A placeholder: where it is, and the capacity that it takes up; uid is empty before it exists."""

    namespace: str
    name: str
    uid: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)

    @property
    def standby(self) -> bool:
        """True if it is a user's running pod that gives up its capacity, not a placeholder of ours."""
        return self.namespace != PLACEHOLDER_NAMESPACE


@dataclass(frozen=True, slots=True)
class ReservationSwap:
    """One hand-over, with everything that finishes or undoes it.

    owner: who gets the capacity, None while it is being undone. rest: the placeholder that keeps what the owner leaves,
    or that takes the capacity back. started_seconds, expires_seconds: Unix time.
    """

    id: str
    reservation: str
    reservation_uid: str
    node: str
    owner: Reference | None = None
    placeholders: tuple[SwapPlaceholder, ...] = ()
    rest: SwapPlaceholder | None = None
    started_seconds: float = 0.0
    expires_seconds: float = 0.0

    @property
    def allowed(self) -> list[str]:
        """namespace/name of the pods that may be bound to the node meanwhile."""
        owner = [f"{self.owner.namespace}/{self.owner.name}"] if self.owner else []
        return owner + ([f"{self.rest.namespace}/{self.rest.name}"] if self.rest else [])


@dataclass(frozen=True, slots=True)
class Guard:
    """The object as a whole; version: resourceVersion, "" while it does not exist.

    queues_served_until_seconds: the promise of the queue controller, which alone writes it.
    """

    swaps: tuple[ReservationSwap, ...] = ()
    served_until_seconds: float = 0.0
    version: str = ""
    queues_served_until_seconds: float = 0.0

    @classmethod
    def parse(cls, manifest: Json) -> Guard:
        """Parse the object; an unreadable part is an error, because a guess could reserve the same capacity twice."""
        spec = manifest.get("spec") or {}
        return cls(
            tuple(_swap(swap) for swap in spec.get("swaps") or ()),
            moment_of(spec.get("servedUntil"), "swapguard") or 0.0,
            str((manifest.get("metadata") or {}).get("resourceVersion") or ""),
            moment_of(spec.get("queuesServedUntil"), "swapguard") or 0.0,
        )

    @property
    def nodes(self) -> dict[str, list[str]]:
        """Pods that may be bound, by node."""
        pods_by_node: dict[str, list[str]] = {}
        for swap in self.swaps:
            pods_by_node.setdefault(swap.node, []).extend(swap.allowed)
        return pods_by_node

    def intent(self, why: str) -> Apply:
        """Write it; refused with a conflict when somebody else has written meanwhile."""
        meta = {"labels": MANAGED} | ({"resourceVersion": self.version} if self.version else {})
        # An apply that empties a map leaves null behind, which the definition refuses: what is empty is left out.
        maybe = {"nodes": self.nodes, "swaps": [_body(swap) for swap in self.swaps]}
        spec = {"servedUntil": micro_moment(self.served_until_seconds)} | {
            name: value for name, value in maybe.items() if value
        }
        return Apply(ADDRESS, ADDRESS.manifest("SwapGuard", meta, spec=spec), why=why)


def _swap(entry: Json) -> ReservationSwap:
    owner, rest = entry.get("owner"), entry.get("rest")
    what = f"swap of reservation {entry.get('reservation')}"
    return ReservationSwap(
        str(entry["id"]),
        str(entry["reservation"]),
        str(entry["reservationUid"]),
        str(entry["node"]),
        Reference("Pod", owner["name"], owner["namespace"], owner["uid"]) if owner else None,
        tuple(_swap_placeholder(placeholder, what) for placeholder in entry.get("placeholders") or ()),
        _swap_placeholder(rest, what) if rest else None,
        moment_of(entry.get("started"), what) or 0.0,
        moment_of(entry.get("expires"), what) or 0.0,
    )


def _swap_placeholder(entry: Json, what: str) -> SwapPlaceholder:
    return SwapPlaceholder(
        str(entry.get("namespace") or PLACEHOLDER_NAMESPACE),
        str(entry["name"]),
        str(entry.get("uid") or ""),
        parse_quantities(entry.get("room") or {}, what),
    )


def _body(swap: ReservationSwap) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": swap.id,
        "reservation": swap.reservation,
        "reservationUid": swap.reservation_uid,
        "node": swap.node,
        "placeholders": [
            {"namespace": p.namespace, "name": p.name, "uid": p.uid, "room": format_quantities(p.amounts)}
            for p in swap.placeholders
        ],
        "started": micro_moment(swap.started_seconds),
        "expires": micro_moment(swap.expires_seconds),
    }
    if swap.owner:
        body["owner"] = {"namespace": swap.owner.namespace, "name": swap.owner.name, "uid": swap.owner.uid}
    if swap.rest:
        body["rest"] = {"name": swap.rest.name, "room": format_quantities(swap.rest.amounts)}
    return body


LONGEST_PROMISE_SECONDS: Final = 1800.0
"""No hand-over lasts longer, by the admission policy, and a manager promises less: what ends later is no promise."""


def is_promised(until_seconds: float, now_seconds: float) -> bool:
    """Return whether a manager that says "until then" (Unix time) is to be waited for now. Pure.

    An end further ahead than LONGEST_PROMISE_SECONDS comes of a wrong clock or a stolen token, and holds nothing up.
    """
    return now_seconds < until_seconds <= now_seconds + LONGEST_PROMISE_SECONDS


def served_until(guard: Mapping[str, Any] | None) -> dict[str, float]:
    """Until when (Unix time) a manager promises to end each of our gates; 0 when none ever did. Pure."""
    spec = (guard or {}).get("spec") or {}
    reservations = moment_of(spec.get("servedUntil"), SWAP_GUARD) or 0.0
    queues = moment_of(spec.get("queuesServedUntil"), SWAP_GUARD) or 0.0
    return {RESERVATION_GATE: reservations, QUOTA_GATE: queues, GANG_GATE: queues}
