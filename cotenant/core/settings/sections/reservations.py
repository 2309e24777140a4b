"""Settings of Reservations: how capacity is held and handed over on a scheduler that knows nothing of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.core.settings.base import Section, setting


class ReservationSettings(Section, frozen=True):
    """Placeholders, hand-overs, and who deals with the objects."""

    mode: Annotated[
        Literal["pinned", "last-resort"],
        setting(
            "How owners get the capacity unless the annotation cotenant.dev/reservation-mode says otherwise: "
            "pinned puts them there, last-resort lets them take it when nothing else is free."
        ),
    ] = "pinned"
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "koordinator: its own scheduler is installed and deals with Reservations; the manager leaves them alone."
        ),
    ] = "cotenant"
    operating_mode: Annotated[
        bool,
        setting(
            "Running pods with the label scheduling.koordinator.sh/operating-mode: Reservation are Reservations, whose "
            "owner takes their place; the manager needs the right to delete them."
        ),
    ] = False
    image: Annotated[str, setting("Image of placeholders: a program that sleeps until it is ended.", min_length=1)] = (
        "registry.k8s.io/pause:3.10"
    )
    scheduler_name: Annotated[
        str, setting("Scheduler that places placeholders, whatever the template says.", min_length=1)
    ] = "default-scheduler"
    placeholders_per_node: Annotated[
        int, setting("Further placeholders avoid a node that has so many.", unit="pods", ge=1, le=1000)
    ] = 10
    swaps_at_once: Annotated[
        int, setting("Hand-overs that may be under way at the same time, each on a node of its own.", ge=1, le=500)
    ] = 64
    swap_timeout_seconds: Annotated[
        float,
        setting(
            "A hand-over that takes longer is undone: the capacity is reserved again.", unit="seconds", ge=2, le=300
        ),
    ] = 15.0
    swap_settle_seconds: Annotated[
        float,
        setting(
            "Between the guard's entry and the end of the placeholder: every API server must have seen the entry.",
            unit="seconds",
            ge=0,
            le=10,
        ),
    ] = 0.05
    api_servers: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^https://")]],
        setting(
            "URLs of all API servers of a control plane with several, as https://10.0.0.5:6443: no capacity is handed "
            "over before each of them knows the guard's entry."
        ),
    ] = msgspec.field(default_factory=list)
    swap_linger_seconds: Annotated[
        float,
        setting(
            "The node stays guarded for so long after its new pod was bound: another scheduler may not know of it yet.",
            unit="seconds",
            ge=0,
            le=30,
        ),
    ] = 0.5
    gate_seconds: Annotated[
        float, setting("Longest that a new pod waits for the capacity it matches.", unit="seconds", ge=5, le=3600)
    ] = 60.0
    served_seconds: Annotated[
        float,
        setting(
            "The webhook holds pods back for so long after the manager's last sign of life, and no longer.",
            unit="seconds",
            ge=10,
            le=600,
        ),
    ] = 30.0
    keep_ended_seconds: Annotated[
        float, setting("Reservations that have ended are deleted after this time.", unit="seconds", ge=0)
    ] = 86_400.0
