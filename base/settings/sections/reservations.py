"""Settings of Reservations and of the plans that make them: how capacity is held and handed over, and what for."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, constant, setting


class ReservationSettings(Section, frozen=True):
    """Placeholders, hand-overs, and who deals with the objects."""

    mode: Annotated[
        Literal["pinned", "last-resort"],
        setting(
            "How owners get the capacity unless the annotation cotenant.dev/reservation-mode says otherwise: "
            "pinned puts them there, last-resort lets them take it when nothing else is free.",
            when="pods should start elsewhere while their capacity is free",
        ),
    ] = "pinned"
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "koordinator: its own scheduler is installed and deals with Reservations; the manager leaves them alone.",
            when="Koordinator's scheduler stays in charge",
        ),
    ] = "cotenant"
    operating_mode: Annotated[
        bool,
        setting(
            "Running pods with the label scheduling.koordinator.sh/operating-mode: Reservation are Reservations, whose "
            "owner takes their place; the manager needs the right to delete them.",
            when="pods of yours use that label",
        ),
    ] = False
    image: Annotated[
        str,
        setting(
            "Image of placeholders: a program that sleeps until it is ended.",
            when="nodes cannot pull from that registry",
            min_length=1,
        ),
    ] = "registry.k8s.io/pause:3.10"
    scheduler_name: Annotated[
        str,
        setting(
            "Scheduler that places placeholders, whatever the template says.",
            when="another scheduler places your pods",
            min_length=1,
        ),
    ] = "default-scheduler"
    placeholders_per_node: Annotated[
        int, constant("Further placeholders avoid a node that has so many.", unit="pods")
    ] = 10
    swap_settle_seconds: Annotated[
        float,
        constant(
            "Between the guard's entry and the end of the placeholder: every API server must have seen the entry.",
            unit="seconds",
        ),
    ] = 0.05
    api_servers: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^https://")]],
        setting(
            "URLs of all API servers of a control plane with several, as https://10.0.0.5:6443: no capacity is handed "
            "over before each of them knows the guard's entry.",
            when="the control plane has several API servers",
        ),
    ] = msgspec.field(default_factory=list)
    gate_seconds: Annotated[
        float, constant("Longest that a new pod waits for the capacity it matches.", unit="seconds")
    ] = 60.0
    served_seconds: Annotated[
        float,
        constant(
            "The webhook holds pods back for so long after the manager's last sign of life, and no longer.",
            unit="seconds",
        ),
    ] = 30.0
    keep_ended_seconds: Annotated[
        float, constant("Reservations that have ended are deleted after this time.", unit="seconds")
    ] = 86_400.0


class PlanSettings(Section, frozen=True):
    """Capacity that is reserved before it is needed."""

    enabled: Annotated[
        bool,
        setting(
            "Realise approved plans. Off is the kill switch: what is held is given back, nothing is reserved.",
            when="everything that plans hold must be given back at once",
        ),
    ] = True
    propose: Annotated[
        bool,
        setting(
            "Write proposed plans (source Forecast, not approved) for workloads with a predictable peak.",
            when="only plans that people write should exist",
        ),
    ] = True
    miss_cost_ratio: Annotated[
        float,
        setting(
            "What a missing core-hour costs, in core-hours that stand idle; 19 is the newsvendor quantile 0.95.",
            when="a pod that waits costs you more, or less, than that",
            gt=0,
            le=999,
        ),
    ] = 19.0
    minimum_coverage: Annotated[
        float,
        constant("Share of the needed pod-time that a proposal has to have covered in its back-test."),
    ] = 0.9
    backtest_days: Annotated[
        int, constant("Days behind the quantile of a proposal and its expected figures.", unit="days")
    ] = 7
    standby_pods: Annotated[
        int,
        setting(
            "Most pods that a proposal keeps capacity ready for at any time, for those that no forecast announces; "
            "0 is none.",
            when="pods that no forecast announces must start at once",
            unit="pods",
            ge=0,
            le=20,
        ),
    ] = 1
    waiting_fraction: Annotated[
        float,
        constant("Share of the new pods that may find no capacity in the back-test: standby is sized by it."),
    ] = 0.05
    minimum_window_minutes: Annotated[int, constant("Shortest window that a plan is proposed for.", unit="minutes")] = (
        30
    )
    cluster_budget_fraction: Annotated[
        float,
        setting(
            "Largest share of the cluster's allocatable CPU and memory that plans hold together.",
            when="plans may hold more, or less, of the cluster",
            ge=0,
            le=1,
        ),
    ] = 0.1
    minimum_skill: Annotated[
        float,
        constant("Least skill against the same time last week (1 - cost / its cost) that a forecast plan needs."),
    ] = 0.0
    pod_start_seconds: Annotated[
        float,
        constant("Time from a pod's creation to ready (p95) where none was measured.", unit="seconds"),
    ] = 120.0
    scheduler_seconds: Annotated[
        float, constant("Time (p95) that the scheduler takes to place a placeholder.", unit="seconds")
    ] = 10.0
    interval_seconds: Annotated[
        float, constant("Control period: all plans are looked at again after this time.", unit="seconds")
    ] = 30.0
