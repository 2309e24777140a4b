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
            "How owners get the capacity, unless the annotation cotenant.dev/reservation-mode overrides it: pinned "
            "places them there, last-resort gives it to them only when nothing else is free.",
            when="pods should start elsewhere while their capacity is free",
        ),
    ] = "pinned"
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "koordinator: its own scheduler is installed and handles Reservations; the manager ignores them.",
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
            "Scheduler that places placeholders, regardless of the template.",
            when="another scheduler places your pods",
            min_length=1,
        ),
    ] = "default-scheduler"
    placeholders_per_node: int = 10
    """Further placeholders avoid a node that has so many: below a tenth of the kubelet's 110 pods hold capacity."""
    swap_settle_seconds: float = 0.05
    """Between the guard's entry and the end of the placeholder: every API server must have seen the entry. Time that an
    entry of the guard takes to reach every API server's cache."""
    api_servers: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^https://")]],
        setting(
            "URLs of all API servers of a control plane with several, as https://10.0.0.5:6443: no capacity is handed "
            "over before each of them knows the guard's entry.",
            when="the control plane has several API servers",
        ),
    ] = msgspec.field(default_factory=list)
    gate_seconds: float = 60.0
    """Longest that a new pod waits for the capacity it matches. A pod that waits longer is better placed by the
    scheduler without the reservation."""
    served_seconds: float = 30.0
    """The webhook holds pods back for so long after the manager's last sign of life, and no longer. Twice a leader
    election's lease: a manager that is replaced is not taken for gone."""
    keep_ended_seconds: float = 86_400.0
    """Reservations that have ended are deleted after this time. One day: what ended can still be read the next morning.
    """


class PlanSettings(Section, frozen=True):
    """Capacity that is reserved before it is needed."""

    enabled: Annotated[
        bool,
        setting(
            "Realise approved plans. false is the kill switch: reserved capacity is released, and no more is reserved.",
            when="all capacity that plans reserve must be released at once",
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
            "Cost of a missing core-hour, in idle core-hours; 19 is the newsvendor quantile 0.95.",
            when="a pod that waits costs you more, or less, than that",
            gt=0,
            le=999,
        ),
    ] = 19.0
    minimum_coverage: float = 0.9
    """Share of the needed pod-time that a proposal has to have covered in its back-test. Nine tenths of the needed
    pod-time: less is no plan to rely on."""
    backtest_days: int = 7
    """Days behind the quantile of a proposal and its expected figures. One week: each weekday is tried once."""
    standby_pods: Annotated[
        int,
        setting(
            "Largest number of pods for which a proposal reserves capacity at all times, for pods that no forecast "
            "expects; 0 is none.",
            when="pods that no forecast expects must start at once",
            unit="pods",
            ge=0,
            le=20,
        ),
    ] = 1
    waiting_fraction: float = 0.05
    """Share of the new pods that may find no capacity in the back-test: standby is sized by it. One pod in twenty, as
    the newsvendor quantile of plans.miss_cost_ratio's default."""
    minimum_window_minutes: int = 30
    """Shortest window that a plan is proposed for. One half hour is the grid of the forecast."""
    cluster_budget_fraction: Annotated[
        float,
        setting(
            "Largest share of the cluster's allocatable CPU and memory that plans reserve together.",
            when="plans may reserve more, or less, of the cluster",
            ge=0,
            le=1,
        ),
    ] = 0.1
    minimum_skill: float = 0.0
    """Least skill against the same time last week (1 - cost / its cost) that a forecast plan needs. Zero: not worse
    than the same time last week."""
    pod_start_seconds: float = 120.0
    """Time from a pod's creation to ready (p95) where none was measured. Used only where no start was measured; two
    minutes are slow for an image that is there."""
    scheduler_seconds: float = 10.0
    """Time (p95) that the scheduler takes to place a placeholder: one pod on a busy kube-scheduler, with its queue."""
    interval_seconds: float = 30.0
    """All plans are looked at again after this time: shorter than any window, longer than an API server's answer."""
