"""The SwapGuard object: hand-overs under way, for the API server's policy, the extender and a restarted manager.

Records of hand-overs and guarded nodes are in one object, so that one write stores both or neither. Pure.
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
    """A pod that holds capacity (`amounts`, by resource) for a Reservation's owners; its `uid` is "" until created."""

    namespace: str
    name: str
    uid: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)

    @property
    def standby(self) -> bool:
        """True if this is a running pod of a user that gives up its capacity, not a placeholder of cotenant."""
        return self.namespace != PLACEHOLDER_NAMESPACE


@dataclass(frozen=True, slots=True)
class ReservationSwap:
    """The record of one hand-over of a Reservation's capacity to an owner pod: all that finishing or undoing it needs.

    `owner` is the pod that gets the capacity, None while the hand-over is undone. `rest` is the placeholder for what
    the owner does not use, or the one that reserves the capacity again.
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
        """Pods (namespace/name) that may be bound to the node during the hand-over."""
        owner = [f"{self.owner.namespace}/{self.owner.name}"] if self.owner else []
        return owner + ([f"{self.rest.namespace}/{self.rest.name}"] if self.rest else [])


@dataclass(frozen=True, slots=True)
class Guard:
    """The SwapGuard object: the hand-overs under way, and until when (Unix time) the manager promises to remove gates.

    `queues_served_until_seconds` is written by the queue controller only. `version` is "" if the object does not exist.
    """

    swaps: tuple[ReservationSwap, ...] = ()
    served_until_seconds: float = 0.0
    version: str = ""
    queues_served_until_seconds: float = 0.0

    @classmethod
    def parse(cls, manifest: Json) -> Guard:
        """Parse the object; an unreadable part raises an error: a guess could assign the same capacity twice."""
        spec = manifest.get("spec") or {}
        return cls(
            tuple(_swap(swap) for swap in spec.get("swaps") or ()),
            moment_of(spec.get("servedUntil"), "swapguard") or 0.0,
            str((manifest.get("metadata") or {}).get("resourceVersion") or ""),
            moment_of(spec.get("queuesServedUntil"), "swapguard") or 0.0,
        )

    @property
    def nodes(self) -> dict[str, list[str]]:
        """Pods (namespace/name) that may be bound to each guarded node."""
        pods_by_node: dict[str, list[str]] = {}
        for swap in self.swaps:
            pods_by_node.setdefault(swap.node, []).extend(swap.allowed)
        return pods_by_node

    def intent(self, why: str) -> Apply:
        """Return the write of the SwapGuard; the API server refuses it if somebody else has changed the object."""
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
"""Longest valid promise, as in the admission policy; managers promise less, so that a later time is ignored."""


def is_promised(until_seconds: float, now_seconds: float) -> bool:
    """Return whether a manager has promised to remove gates until after now (both times in Unix seconds). Pure.

    A time more than LONGEST_PROMISE_SECONDS ahead comes from a wrong clock or a stolen token, and is ignored.
    """
    return now_seconds < until_seconds <= now_seconds + LONGEST_PROMISE_SECONDS


def served_until(guard: Mapping[str, Any] | None) -> dict[str, float]:
    """Return, by gate, the Unix time until which a manager promises to remove the gate; 0 if none ever did. Pure."""
    spec = (guard or {}).get("spec") or {}
    reservations = moment_of(spec.get("servedUntil"), SWAP_GUARD) or 0.0
    queues = moment_of(spec.get("queuesServedUntil"), SWAP_GUARD) or 0.0
    return {RESERVATION_GATE: reservations, QUOTA_GATE: queues, GANG_GATE: queues}
