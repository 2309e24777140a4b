"""Settings of Reservations and of the plans that make them: how capacity is held and handed over, and what for."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


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


class PlanSettings(Section, frozen=True):
    """Capacity that is reserved before it is needed."""

    enabled: Annotated[
        bool,
        setting("Realise approved plans. Off is the kill switch: what is held is given back, nothing is reserved."),
    ] = True
    propose: Annotated[
        bool, setting("Write proposed plans (source Forecast, not approved) for workloads with a predictable peak.")
    ] = True
    most_proposals: Annotated[int, setting("Most plans that are proposed at a time, the largest first.", ge=0)] = 50
    miss_cost_ratio: Annotated[
        float,
        setting(
            "What a missing core-hour costs, in core-hours that stand idle; 19 is the newsvendor quantile 0.95.",
            gt=0,
            le=999,
        ),
    ] = 19.0
    minimum_coverage: Annotated[
        float,
        setting("Share of the needed pod-time that a proposal has to have covered in its back-test.", ge=0, lt=1),
    ] = 0.9
    backtest_days: Annotated[
        int, setting("Days behind the quantile of a proposal and its expected figures.", unit="days", ge=2, le=28)
    ] = 7
    standby_pods: Annotated[
        int,
        setting(
            "Most pods that a proposal keeps capacity ready for at any time, for those that no forecast announces; "
            "0 is none.",
            unit="pods",
            ge=0,
            le=20,
        ),
    ] = 1
    waiting_fraction: Annotated[
        float,
        setting(
            "Share of the new pods that may find no capacity in the back-test: standby is sized by it.", ge=0, le=1
        ),
    ] = 0.05
    headroom_ratio: Annotated[
        float, setting("Capacity kept above the quantile of the demand, as a share of it.", ge=0, le=1)
    ] = 0.0
    minimum_window_minutes: Annotated[
        int, setting("Shortest window that a plan is proposed for.", unit="minutes", ge=5, le=720)
    ] = 30
    join_gap_minutes: Annotated[
        int, setting("Windows with a shorter pause between them are one.", unit="minutes", ge=0, le=720)
    ] = 60
    ttl_margin_minutes: Annotated[
        int,
        setting("How long Reservations outlive their window if nobody releases them.", unit="minutes", ge=1, le=720),
    ] = 15
    cluster_budget_fraction: Annotated[
        float,
        setting("Largest share of the cluster's allocatable CPU and memory that plans hold together.", ge=0, le=1),
    ] = 0.1
    minimum_skill: Annotated[
        float,
        setting("Least skill against the same time last week (1 - cost / its cost) that a forecast plan needs.", le=1),
    ] = 0.0
    hysteresis_fraction: Annotated[
        float,
        setting("Capacity is released only when so much less of it is wanted; more is reserved at once.", ge=0, lt=1),
    ] = 0.2
    change_interval_seconds: Annotated[
        float, setting("Shortest time between two changes of the reserved capacity.", unit="seconds", ge=0, le=86_400)
    ] = 600.0
    pod_start_seconds: Annotated[
        float,
        setting("Time from a pod's creation to ready (p95) where none was measured.", unit="seconds", ge=0, le=7200),
    ] = 120.0
    room_free_seconds: Annotated[
        float,
        setting(
            "Time (p95) that batch pods take to leave when their memory is needed. CPU is given back at once.",
            unit="seconds",
            ge=0,
            le=7200,
        ),
    ] = 120.0
    scheduler_seconds: Annotated[
        float, setting("Time (p95) that the scheduler takes to place a placeholder.", unit="seconds", ge=0, le=600)
    ] = 10.0
    interval_seconds: Annotated[
        float, setting("Control period: all plans are looked at again after this time.", unit="seconds", ge=1, le=600)
    ] = 30.0
