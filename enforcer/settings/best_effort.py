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
            "idle protects no better, and while it is set the kubelet cannot update its QoS cgroups (it writes "
            "cpu.shares or cpu.weight, which an idle group refuses) nor start again: only for nodes without a kubelet.",
            when="there is no kubelet on the node",
        ),
    ] = "shares"
    suppress: Annotated[
        bool,
        setting(
            "Limit best effort to a target that follows the usage of all others, at the smallest weight.",
            when="best effort may use all that is free",
        ),
    ] = True
    evict: Annotated[
        bool, setting("Evict pods when CPU or memory is short, within the policy.", when="nobody may be evicted")
    ] = True
    suppress_target: Annotated[
        Literal["reactive", "forecast-ahead"],
        setting(
            "reactive follows the present usage; forecast-ahead also leaves capacity for the rise in the node's "
            "UsageForecast. It never gives best effort more than reactive.",
            when="prod's rises come faster than suppression",
        ),
    ] = "reactive"
    ahead_seconds: float = 600.0
    """How far forecast-ahead looks. One step of the forecast's grid behind the present one."""
    starve_seconds: float = 30.0
    """Best effort that wants to run and got less than cpuSuppressMinPercent for so long is lifted from the smallest
    weight to one that yields that share, until the node has had idle CPU for as long. Longer than a burst of prod,
    shorter than any liveness probe's patience.
    """

    # Evictions.
    only_evict_by_api: Annotated[
        bool,
        setting(
            "Give an evicted pod its own grace period; otherwise best-effort pods get one second.",
            when="best-effort pods need their grace period",
        ),
    ] = False
    pending_seconds: float = 60.0
    """A pod that was told to leave counts as leaving for so long; one that is still there then is passed over for as
    long again. Twice the default grace period of a pod.
    """
    memory_emergency_percent: Annotated[
        int,
        setting(
            "With less memory than this available, or with all of it gone within the cool-down at the present speed, "
            "best effort is evicted without waiting for the cool-down: the kernel would choose worse.",
            when="the kernel's OOM killer is faster",
            unit="%",
            ge=0,
            le=50,
        ),
    ] = 5

    # Interference.
    interference: Annotated[
        Literal["off", "observe", "suppress", "evict"],
        setting(
            "Action for a pod that suffers against its own baseline: none, a report, further suppression of best "
            "effort, and, if that does not help, eviction of the best-effort pod whose usage correlates with it.",
            when="the detector is too strict, or should only report",
        ),
    ] = "evict"
    interference_confirm_seconds: float = 3.0
    """A pod must suffer for so long beside best effort that runs before anything is done. Three ticks: one alone may be
    chance.
    """
    interference_patience_seconds: float = 20.0
    """Each tightening is given so long to help before the next step. Pressure is a mean over 10 s. Two windows of the
    pressure's ten-second mean.
    """
    interference_samples: int = 300
    """Quiet ticks of a workload before its baseline counts. Five minutes of quiet ticks."""
