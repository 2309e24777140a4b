"""Settings of the autopilot: whether the manager runs it, and the ceiling that no policy of a namespace can pass."""

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
    """Memory at once after an OOM kill, outside of windows too."""
    UP_AFTER_THROTTLING = "UpAfterThrottling"
    """CPU at once where its limit throttles a container too often, outside of the policy's windows too."""


class Way(StrEnum):
    """A way in which a change reaches the pods."""

    IN_PLACE = "InPlace"
    ROLL_OUT = "RollOut"
    NEXT_RESTART = "NextRestart"


class Untouched(StrEnum):
    """Workloads that are left alone."""

    LSE = "LSE"
    LSR = "LSR"
    SINGLE_REPLICA = "SingleReplica"
    AUTOSCALED = "Autoscaled"
    """An autoscaler follows a resource that would move, and its target does not move along."""


class CeilingSettings(Section, frozen=True):
    """The most that any AutopilotPolicy may do; a field that a policy leaves out has the value here."""

    resources: Annotated[
        list[Resource],
        setting("Resources whose requests and limits may move.", when="one of them must never be moved", min_length=1),
    ] = msgspec.field(default_factory=lambda: [*Resource])
    directions: Annotated[
        list[Direction],
        setting(
            "Their directions; UpAfterOOMKill raises memory, UpAfterThrottling CPU, both also outside of windows.",
            when="one of them must never be taken",
            min_length=1,
        ),
    ] = msgspec.field(default_factory=lambda: [*Direction])
    start_up_factor: Annotated[
        float,
        setting(
            "A container may get up to this many times its CPU request, in place, until its pod is ready; 1: no "
            "start gets more. The highest usage of its earlier starts, as in its portrait, is never exceeded.",
            when="slow starts should get more CPU",
            ge=1,
            le=20,
        ),
    ] = 1.0
    replica_floor_factor: Annotated[
        float,
        setting(
            "minReplicas of an autoscaler may be raised to this many times its own value before a forecast peak; 1: "
            "never. Its maxReplicas is never exceeded.",
            when="autoscalers should scale before forecast peaks",
            ge=1,
            le=20,
        ),
    ] = 1.0
    throttled_share: float = 0.03
    """Share of its pods' time with CPU demand above the limit, in the back-test, from which UpAfterThrottling raises a
    container's CPU. Three percent, as where recommendations call throttling a risk, there of demand and here of time.
    """
    largest_cut: Annotated[
        dict[Resource, float],
        setting(
            "Largest share of a request that may be cut in a day; guardrails cpu-step and memory-step apply too.",
            when="steps should be smaller, or larger",
        ),
    ] = msgspec.field(default_factory=lambda: {Resource.CPU: 0.3, Resource.MEMORY: 0.2})
    windows: Annotated[
        list[str],
        setting(
            "When the autopilot may change something, written as actions.windows; none: at any time that those allow.",
            when="it may work at certain hours only",
        ),
    ] = msgspec.field(default_factory=list)
    ways: Annotated[
        list[Way],
        setting(
            "How a change may reach the pods, the first that is possible.",
            when="a way must never be used, such as roll-outs",
            min_length=1,
        ),
    ] = msgspec.field(default_factory=lambda: [Way.IN_PLACE, Way.NEXT_RESTART, Way.ROLL_OUT])
    canary_share: Annotated[
        float,
        setting(
            "Largest share of a workload's pods that is resized first.",
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
            "Workloads of the whole cluster whose changes soak at the same time.",
            when="it should go slower, or faster",
            ge=1,
            le=1000,
        ),
    ] = 5
    restarts_per_week: Annotated[
        int,
        setting(
            "No roll-out begins once a pod has this many restarts in seven days; rolling one back restarts it once "
            "more. 0: no roll-out.",
            when="pods may be restarted more often, or never",
            ge=0,
            le=50,
        ),
    ] = 1
    minimum_confidence: Annotated[
        float, setting("Least confidence of a recommendation.", when="it should be bolder, or more careful", ge=0, le=1)
    ] = 0.75
    never_touch: Annotated[
        list[Untouched],
        setting(
            "Workloads that are left alone; Autoscaled: their autoscaler follows the resource, and its target stays.",
            when="one of them may be touched after all",
        ),
    ] = msgspec.field(default_factory=lambda: [*Untouched])


class AutopilotSettings(Section, frozen=True):
    """Automatic right-sizing under AutopilotPolicies. Nothing is changed without an approver's mode Act."""

    enabled: Annotated[
        bool,
        setting(
            "The manager reads AutopilotPolicies; false: it leaves them alone, whatever they say.",
            when="policies should be carried out",
        ),
    ] = False
    ceiling: Annotated[CeilingSettings, setting("The most that any policy may do.")] = CeilingSettings()
    interval_seconds: float = 60.0
    """Between two rounds; the switch is read more often. Period of the rounds; soaks last many times as long, and the
    switch is read more often.
    """
    back_off_hours: float = 48.0
    """Rest of a workload whose change did harm, four times as long after the second one; after the third it is given
    up. Two whole daily patterns before a workload is tried again.
    """
    stop_share: float = 0.05
    """Share of the last changes that did harm from which on everything stops until a person resumes. One change in
    twenty that did harm is more than chance; people decide then.
    """
    stop_changes: int = 40
    """The last so many verified changes, over which that share is taken. Forty changes resolve a share of one in
    twenty.
    """
    trouble_query: Annotated[
        str,
        setting(
            "PromQL of your own that says that the cluster is in trouble: nothing is changed while its value is "
            "above 0, or while profiler.prometheus does not answer it. Empty: no query.",
            when="your own alerts should stop it",
        ),
    ] = ""
