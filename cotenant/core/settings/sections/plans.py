"""Settings of reservation plans: what is proposed, how much is held for how long, and what stops it."""

from __future__ import annotations

from typing import Annotated

from cotenant.core.settings.base import Section, setting


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
