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
            "How owner pods get reserved capacity: pinned puts them where it is; last-resort lets them take it only "
            "if no other node has capacity. The annotation cotenant.dev/reservation-mode overrides this setting.",
            when="owner pods should use other nodes first",
        ),
    ] = "pinned"
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "Who handles Reservations: with koordinator, Koordinator's scheduler does and the manager ignores them.",
            when="Koordinator's scheduler should handle Reservations",
        ),
    ] = "cotenant"
    operating_mode: Annotated[
        bool,
        setting(
            "Treat running pods with the label scheduling.koordinator.sh/operating-mode: Reservation as Reservations: "
            "an owner pod replaces such a pod, which the manager must have the right to delete.",
            when="your pods use the label operating-mode",
        ),
    ] = False
    image: Annotated[
        str,
        setting(
            "Image of placeholder pods: a program that sleeps until it is stopped.",
            when="nodes cannot pull the default image",
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
    """Number of placeholders beyond which a node gets no further one: below a tenth of the kubelet's 110 pods."""
    swap_settle_seconds: float = 0.05
    """Time from recording a hand-over to deleting its placeholder: until then the record reaches every API server's
    cache."""
    api_servers: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^https://")]],
        setting(
            "URLs of all API servers if the control plane has several, such as https://10.0.0.5:6443. Capacity "
            "is handed over only when every API server knows the hand-over.",
            when="the control plane has several API servers",
        ),
    ] = msgspec.field(default_factory=list)
    gate_seconds: float = 60.0
    """Longest time that a new pod waits for reserved capacity. After that the scheduler should place the pod without
    it."""
    served_seconds: float = 30.0
    """Time for which the webhook gates pods after the manager's last sign of life. Twice a leader election's lease, so
    that a change of leader does not count as an outage."""
    keep_ended_seconds: float = 86_400.0
    """Time after which ended Reservations are deleted. One day: they can still be read the next morning."""


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
            "Cost of a missed core-hour, in idle core-hours; with 19, plans reserve the quantile 0.95 of the demand.",
            when="a missed core-hour costs you more, or less, than the default says",
            gt=0,
            le=999,
        ),
    ] = 19.0
    minimum_coverage: float = 0.9
    """Least share (0 to 1) of the needed pod-time that had capacity in the back-test of a proposed plan."""
    backtest_days: int = 7
    """Days over which a proposed plan is back-tested. One week: each weekday is tried once."""
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
    """Largest share (0 to 1) of new pods that finds no capacity in the back-test, which determines the standby pods.
    One pod in twenty, as with plans.miss_cost_ratio's default."""
    minimum_window_minutes: int = 30
    """Shortest window for which a plan is proposed: a half hour, the step of the forecast."""
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
    """Least skill of a forecast plan: 1 - its cost / the cost of reserving as at the same time last week. At 0 both
    cost the same."""
    pod_start_seconds: float = 120.0
    """Time (p95) from a pod's creation to ready if the workload's starts were not measured; two minutes are slow if the
    image is on the node."""
    scheduler_seconds: float = 10.0
    """Time (p95) in which a busy kube-scheduler places a placeholder, including its queue."""
    interval_seconds: float = 30.0
    """Time between two runs over all plans: shorter than any window, longer than an API server's answer."""
