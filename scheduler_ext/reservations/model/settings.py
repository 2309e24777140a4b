"""Settings of Reservations, and of the plans that create them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


class ReservationSettings(Section, frozen=True):
    """Settings of Reservations: placeholders, hand-overs, and whether cotenant or Koordinator handles them."""

    mode: Annotated[
        Literal["pinned", "last-resort"],
        setting(
            "How owner pods get reserved capacity: pinned places them on its node, last-resort gives it to them only "
            "when no other node has capacity. The annotation cotenant.dev/reservation-mode overrides it.",
            when="owner pods should use other nodes first",
        ),
    ] = "pinned"
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "Who handles Reservations: with koordinator, Koordinator's scheduler does and the manager ignores them.",
            when="Koordinator's scheduler stays in charge",
        ),
    ] = "cotenant"
    operating_mode: Annotated[
        bool,
        setting(
            "Treat running pods with the label scheduling.koordinator.sh/operating-mode: Reservation as Reservations: "
            "an owner pod replaces such a pod, which the manager must have the right to delete.",
            when="pods of yours use that label",
        ),
    ] = False
    image: Annotated[
        str,
        setting(
            "Image of placeholder pods: a program that sleeps until it is stopped.",
            when="nodes cannot pull from that registry",
            min_length=1,
        ),
    ] = "registry.k8s.io/pause:3.10"
    scheduler_name: Annotated[
        str,
        setting(
            "Scheduler that places placeholder pods, whatever scheduler the Reservation's template names.",
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
            "URLs of all API servers if the control plane has several, such as https://10.0.0.5:6443. Capacity "
            "is handed over only when each of them knows the hand-over.",
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
    """Settings of reservation plans, which reserve capacity before it is needed."""

    enabled: Annotated[
        bool,
        setting(
            "Reserve capacity for approved plans. false is the kill switch: all capacity of plans is released.",
            when="all capacity that plans reserve must be released at once",
        ),
    ] = True
    propose: Annotated[
        bool,
        setting(
            "Create unapproved plans (source Forecast) for workloads with a predictable peak.",
            when="only plans that people write should exist",
        ),
    ] = True
    miss_cost_ratio: Annotated[
        float,
        setting(
            "Cost of a missing core-hour, in idle core-hours; 19 reserves the quantile 0.95 of the demand.",
            when="a waiting pod costs you more, or less, than that",
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
            "Largest number of unexpected pods for which a proposed plan reserves capacity at all times; 0 reserves "
            "none.",
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
            "Largest share (0 to 1) of the cluster's allocatable CPU and memory that all plans reserve together.",
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
