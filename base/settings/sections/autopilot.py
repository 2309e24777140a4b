"""Settings of the autopilot: whether the manager runs it, and the ceiling that no policy of a namespace can pass."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cotenant.base.settings.base import Section, setting


class CeilingSettings(Section, frozen=True):
    """The most that any AutopilotPolicy may do; a field that a policy leaves out is as it is here."""

    resources: Annotated[
        list[Literal["cpu", "memory"]], setting("Resources whose requests and limits may move.", min_length=1)
    ] = msgspec.field(default_factory=lambda: ["cpu", "memory"])
    directions: Annotated[
        list[Literal["Down", "Up", "UpAfterOOMKill", "UpAfterThrottling"]],
        setting(
            "Which way they may move; UpAfterOOMKill raises memory, UpAfterThrottling CPU, outside of windows, too.",
            min_length=1,
        ),
    ] = msgspec.field(default_factory=lambda: ["Down", "Up", "UpAfterOOMKill", "UpAfterThrottling"])
    start_up_factor: Annotated[
        float,
        setting(
            "Times its CPU request that a container may be given, in place, until its pod is ready; 1: no start is "
            "helped. What its starts used, as its portrait knows it, is never passed.",
            ge=1,
            le=20,
        ),
    ] = 1.0
    replica_floor_factor: Annotated[
        float,
        setting(
            "Times its own minReplicas that an autoscaler may be lent ahead of a forecast peak; 1: none is. Its "
            "maxReplicas is never passed.",
            ge=1,
            le=20,
        ),
    ] = 1.0
    throttled_share: Annotated[
        float,
        setting(
            "Share of its pods' time with CPU demand above the limit, in the back-test, from which UpAfterThrottling "
            "raises a container's CPU.",
            ge=0.001,
            le=1,
        ),
    ] = 0.03
    largest_cut: Annotated[
        dict[Literal["cpu", "memory"], float],
        setting("Largest share of a request that may be cut in a day; beside the guardrails cpu-step and memory-step."),
    ] = msgspec.field(default_factory=lambda: {"cpu": 0.3, "memory": 0.2})
    windows: Annotated[
        list[str],
        setting("When the autopilot may change something, written as actions.windows; none: whenever those allow it."),
    ] = msgspec.field(default_factory=list)
    ways: Annotated[
        list[Literal["InPlace", "RollOut", "NextRestart"]],
        setting("How a change may reach the pods, the first that is possible.", min_length=1),
    ] = msgspec.field(default_factory=lambda: ["InPlace", "NextRestart", "RollOut"])
    canary_share: Annotated[
        float, setting("Largest share of a workload's pods that is resized first.", ge=0.01, le=1)
    ] = 0.25
    soak_minutes: Annotated[
        float, setting("Least time after a change before it is verified.", unit="minutes", ge=5, le=10_080)
    ] = 60.0
    at_once: Annotated[
        int, setting("Workloads of the whole cluster whose changes soak at the same time.", ge=1, le=1000)
    ] = 5
    restarts_per_week: Annotated[
        int,
        setting(
            "Restarts of a pod within seven days from which on no roll-out begins; rolling one back restarts it once "
            "more. 0: no roll-out.",
            ge=0,
            le=50,
        ),
    ] = 1
    minimum_confidence: Annotated[float, setting("Least confidence of a recommendation.", ge=0, le=1)] = 0.75
    never_touch: Annotated[
        list[Literal["LSE", "LSR", "SingleReplica", "Autoscaled"]],
        setting("What is left alone; Autoscaled: an autoscaler follows the resource and does not move along."),
    ] = msgspec.field(default_factory=lambda: ["LSE", "LSR", "SingleReplica", "Autoscaled"])


class AutopilotSettings(Section, frozen=True):
    """Right-sizing that goes on by itself under AutopilotPolicies. Nothing is changed where no approver said Act."""

    enabled: Annotated[
        bool, setting("The manager reads AutopilotPolicies; false: it leaves them alone, whatever they say.")
    ] = False
    ceiling: Annotated[CeilingSettings, setting("The most that any policy may do.")] = CeilingSettings()
    interval_seconds: Annotated[
        float, setting("Between two rounds; the switch is read more often.", unit="seconds", ge=1, le=3600)
    ] = 60.0
    start_up_seconds: Annotated[
        float, setting("Between two looks at starting pods, where a policy helps starts.", unit="seconds", ge=1, le=60)
    ] = 5.0
    back_off_hours: Annotated[
        float,
        setting(
            "A workload whose change did harm rests for so long, four times as long after the second one; after the "
            "third it is given up.",
            unit="hours",
            ge=1,
            le=720,
        ),
    ] = 48.0
    stop_share: Annotated[
        float,
        setting(
            "Share of the last changes that did harm from which on everything stops until a person resumes.", gt=0, le=1
        ),
    ] = 0.05
    stop_changes: Annotated[
        int, setting("The last so many verified changes, over which that share is taken.", ge=1, le=10_000)
    ] = 40
    most_nodes_not_ready: Annotated[
        float, setting("Share of nodes that are not ready above which nothing is changed.", ge=0, le=1)
    ] = 0.05
    trouble_query: Annotated[
        str,
        setting(
            "PromQL of your own that says that the cluster is in trouble: while it has a value above 0 nothing is "
            "changed, nor while profiler.prometheus does not answer it. Empty: not asked."
        ),
    ] = ""
