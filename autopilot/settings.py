"""Settings of the autopilot: whether the manager runs it, and the ceiling that no policy can exceed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from cotenant.base.resource import Resource
from cotenant.base.settings.base import Section, setting


class Direction(StrEnum):
    """A direction in which requests and limits may move."""

    DOWN = "Down"
    UP = "Up"
    UP_AFTER_OOM_KILL = "UpAfterOOMKill"
    """Raise memory at once after an OOM kill, also outside of change windows."""
    UP_AFTER_THROTTLING = "UpAfterThrottling"
    """Raise CPU at once if its limit throttles a container too often, also outside of the policy's windows."""


class Way(StrEnum):
    """A way in which a change can reach the pods."""

    IN_PLACE = "InPlace"
    ROLL_OUT = "RollOut"
    NEXT_RESTART = "NextRestart"


class Untouched(StrEnum):
    """A kind of workload that the autopilot never changes."""

    LSE = "LSE"
    LSR = "LSR"
    SINGLE_REPLICA = "SingleReplica"
    AUTOSCALED = "Autoscaled"
    """An autoscaler scales by a resource that would change, and its target does not change with it."""


class CeilingSettings(Section, frozen=True):
    """The most that any AutopilotPolicy may do; a field that a policy leaves out has the ceiling's value."""

    resources: Annotated[
        list[Resource],
        setting("Resources whose requests and limits may change.", when="a resource must not change", min_length=1),
    ] = msgspec.field(default_factory=lambda: [*Resource])
    directions: Annotated[
        list[Direction],
        setting(
            "Allowed directions. UpAfterOOMKill raises memory and UpAfterThrottling CPU, even outside change windows.",
            when="a direction must never be taken",
            min_length=1,
        ),
    ] = msgspec.field(default_factory=lambda: [*Direction])
    start_up_factor: Annotated[
        float,
        setting(
            "How many times its CPU request a container may get, in place, until its pod is ready; 1 disables this. "
            "It never gets more than the highest usage of its earlier starts.",
            when="slow starts should get more CPU",
            ge=1,
            le=20,
        ),
    ] = 1.0
    replica_floor_factor: Annotated[
        float,
        setting(
            "Factor by which an autoscaler's minReplicas may be raised before a forecast peak; 1 disables this. "
            "maxReplicas is never exceeded.",
            when="autoscalers should scale before forecast peaks",
            ge=1,
            le=20,
        ),
    ] = 1.0
    throttled_share: float = 0.03
    """UpAfterThrottling raises a container's CPU from this share of its pods' time with CPU demand above the limit, in
    the back-test. Recommendations call throttling a risk at three percent too, but of demand instead of time.
    """
    largest_cut: Annotated[
        dict[Resource, float],
        setting(
            "Largest cut in a day, as a share of the request; guardrails cpu-step and memory-step apply too.",
            when="steps should be smaller, or larger",
        ),
    ] = msgspec.field(default_factory=lambda: {Resource.CPU: 0.3, Resource.MEMORY: 0.2})
    windows: Annotated[
        list[str],
        setting(
            "When the autopilot may make changes, in the form of actions.windows, which apply too; empty: always.",
            when="the autopilot may work at certain hours only",
        ),
    ] = msgspec.field(default_factory=list)
    ways: Annotated[
        list[Way],
        setting(
            "Ways in which a change may reach the pods; the first possible way is used.",
            when="a way must never be used, such as roll-outs",
            min_length=1,
        ),
    ] = msgspec.field(default_factory=lambda: [Way.IN_PLACE, Way.NEXT_RESTART, Way.ROLL_OUT])
    canary_share: Annotated[
        float,
        setting(
            "Largest share of a workload's pods that is resized first, as a canary.",
            when="canaries should be smaller, or larger",
            ge=0.01,
            le=1,
        ),
    ] = 0.25
    soak_minutes: Annotated[
        float,
        setting(
            "Least time after a change before it is verified.",
            when="harm shows later in your workloads",
            unit="minutes",
            ge=5,
            le=10_080,
        ),
    ] = 60.0
    at_once: Annotated[
        int,
        setting(
            "Most workloads in the cluster whose changes soak at the same time.",
            when="the autopilot should be slower, or faster",
            ge=1,
            le=1000,
        ),
    ] = 5
    restarts_per_week: Annotated[
        int,
        setting(
            "No roll-out begins once earlier ones restarted a pod this many times in seven days; 0 allows no roll-out. "
            "A rollback restarts the pod once more.",
            when="pods may be restarted more often, or never",
            ge=0,
            le=50,
        ),
    ] = 1
    minimum_confidence: Annotated[
        float,
        setting("Least confidence that a recommendation needs.", when="more, or less, risk is accepted", ge=0, le=1),
    ] = 0.75
    never_touch: Annotated[
        list[Untouched],
        setting(
            "Workloads left alone. Autoscaled: an autoscaler scales by a resource that changes while its target stays.",
            when="such workloads may be changed after all",
        ),
    ] = msgspec.field(default_factory=lambda: [*Untouched])


class AutopilotSettings(Section, frozen=True):
    """Automatic right-sizing under AutopilotPolicies. Nothing changes unless an approver switches a policy to Act."""

    enabled: Annotated[
        bool,
        setting(
            "The manager carries out AutopilotPolicies; false: it ignores them.",
            when="policies should be carried out",
        ),
    ] = False
    ceiling: Annotated[CeilingSettings, setting("Upper limits of every AutopilotPolicy.")] = CeilingSettings()
    interval_seconds: float = 60.0
    """Time between two rounds. Soak times are many times as long, and the pause switch is read more often."""
    back_off_hours: float = 48.0
    """Back-off of a workload whose change did harm: two whole daily patterns. It is four times as long after the second
    such change; after the third the workload is given up.
    """
    stop_share: float = 0.05
    """Share of the last changes that did harm at which everything stops until a person resumes it. One change in twenty
    is more than chance.
    """
    stop_changes: int = 40
    """Number of the last verified changes for `stop_share`. Forty changes resolve a share of one in twenty."""
    trouble_query: Annotated[
        str,
        setting(
            "Your own PromQL query for trouble in the cluster: nothing is changed while a value is above 0, or while "
            "profiler.prometheus does not answer the query. Empty: no query.",
            when="your own alerts should stop the autopilot",
        ),
    ] = ""
