"""Settings of how best effort gives way on a node: protection, suppression, eviction, interference."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.base.settings.base import Section, setting


class BestEffortSettings(Section, frozen=True):
    """The settings of best-effort strategies; none acts unless the node's policy (NodeSLO) enables its thresholds."""

    protect: Annotated[
        Literal["shares", "idle", "none"],
        setting(
            "How best effort as a whole yields the CPU: shares (the smallest weight, which is also what the kubelet "
            "gives it), idle (cpu.idle=1, where the kernel has it), none. A quota alone does not protect latency. "
            "idle protects no better, and while it stands the kubelet cannot update its QoS cgroups (it writes "
            "cpu.shares or cpu.weight, which an idle group refuses) nor start again: only for nodes without a kubelet."
        ),
    ] = "shares"
    suppress: Annotated[
        bool, setting("Hold best effort at a target that follows everybody else's use, and at the smallest weight.")
    ] = True
    evict: Annotated[bool, setting("Evict pods for want of CPU or memory, within what the policy allows.")] = True
    suppress_target: Annotated[
        Literal["reactive", "forecast-ahead"],
        setting(
            "reactive follows the use of now; forecast-ahead also leaves capacity for the rise that the node's "
            "UsageForecast expects. It never gives best effort more than reactive."
        ),
    ] = "reactive"
    ahead_seconds: Annotated[float, setting("How far forecast-ahead looks.", unit="seconds", ge=1, le=86_400)] = 600.0
    starve_seconds: Annotated[
        float,
        setting(
            "Best effort that wants to run and got less than cpuSuppressMinPercent for so long is lifted from the "
            "smallest weight to one that yields that share, until the node has had idle CPU for as long.",
            unit="seconds",
            ge=1,
            le=3600,
        ),
    ] = 30.0

    # Evictions.
    only_evict_by_api: Annotated[
        bool,
        setting("Leave an evicted pod its own time to end; otherwise best-effort pods get one second."),
    ] = False
    cpu_cooldown_seconds: Annotated[
        float, setting("After an eviction for CPU, none for so long.", unit="seconds", ge=0, le=3600)
    ] = 20.0
    memory_cooldown_seconds: Annotated[
        float, setting("After an eviction for memory, none for so long.", unit="seconds", ge=0, le=3600)
    ] = 4.0
    pending_seconds: Annotated[
        float,
        setting(
            "A pod that was told to leave counts as leaving for so long; one that is still there then is passed over "
            "for as long again.",
            unit="seconds",
            ge=1,
            le=3600,
        ),
    ] = 60.0
    memory_emergency_percent: Annotated[
        int,
        setting(
            "With less memory than this available, or with all of it gone within the cool-down at the present speed, "
            "best effort is evicted without waiting for the cool-down: the kernel would choose worse.",
            unit="%",
            ge=0,
            le=50,
        ),
    ] = 5

    # Interference.
    interference: Annotated[
        Literal["off", "observe", "suppress", "evict"],
        setting(
            "What is done for a pod that suffers against its own baseline: nothing, only told, best effort suppressed "
            "further, and, where that does not help, the best-effort pod evicted that moves with the suffering."
        ),
    ] = "evict"
    interference_factor: Annotated[
        float, setting("A pod suffers above so many times its baseline.", ge=1.1, le=100)
    ] = 2.0
    interference_confirm_seconds: Annotated[
        float,
        setting(
            "A pod must suffer for so long beside best effort that runs before anything is done.",
            unit="seconds",
            ge=0,
            le=600,
        ),
    ] = 3.0
    interference_patience_seconds: Annotated[
        float,
        setting(
            "Each tightening is given so long to help before the next step. Pressure is a mean over 10 s.",
            unit="seconds",
            ge=1,
            le=3600,
        ),
    ] = 20.0
    interference_quiet_percent: Annotated[
        int,
        setting("Baselines are learned while best effort uses no more of the node than this.", unit="%", ge=0, le=100),
    ] = 5
    interference_samples: Annotated[
        int, setting("Quiet ticks of a workload before its baseline counts.", unit="ticks", ge=5, le=10_000)
    ] = 300
