"""Settings of the strategies that reproduce Robusta KRR and the Vertical Pod Autoscaler, with the same defaults."""

from __future__ import annotations

from typing import Annotated

from cotenant.base.settings.base import Section, setting

MIB = 1024**2


class KrrSettings(Section, frozen=True):
    """Strategies `krr-simple` and `krr-simple-limit` (defaults of Robusta KRR's `simple` and `simple_limit`)."""

    history_hours: Annotated[
        float,
        setting(
            "Hours of history that the strategies use, not rounded to whole days.",
            when="your KRR runs with another --history-duration",
            unit="hours",
            gt=0,
            le=2160,
        ),
    ] = 336.0
    step_seconds: int = 75
    """Step and rate window of the queries. Default of Robusta KRR (--timeframe-duration 1.25 minutes), which its
    results depend on."""
    cpu_percentile: Annotated[
        float,
        setting(
            "krr-simple: percentile of each pod's CPU usage, not rounded.",
            when="your KRR runs with another --cpu-percentile",
            unit="percent",
            gt=0,
            le=100,
        ),
    ] = 95.0
    cpu_request_percentile: float = 66.0
    """krr-simple-limit: percentile over all pods' points for the request. Default of Robusta KRR's simple_limit
    (--cpu-request)."""
    cpu_limit_percentile: float = 96.0
    """krr-simple-limit: percentile over all pods' points for the limit. Default of Robusta KRR's simple_limit
    (--cpu-limit)."""
    memory_buffer_percent: Annotated[
        float,
        setting(
            "Percentage added to the highest working set.",
            when="your KRR runs with another --memory-buffer-percentage",
            unit="percent",
            ge=0,
            le=1000,
        ),
    ] = 15.0
    minimum_history_minutes: int = 125
    """Time with samples that a proposal needs: 100 steps of 75 s, however many pods. Default of Robusta KRR
    (--points-required 100) at its own step of 75 seconds."""
    allow_hpa: Annotated[
        bool,
        setting(
            "Propose also if a HorizontalPodAutoscaler scales on the resource.", when="your KRR runs with --allow-hpa"
        ),
    ] = False
    use_oom_kills: Annotated[
        bool,
        setting(
            "Raise memory above the limit at which a container was OOM-killed.",
            when="your KRR runs with --use-oomkill-data",
        ),
    ] = False


class VpaSettings(Section, frozen=True):
    """Strategy `vpa` (defaults of the Vertical Pod Autoscaler's recommender)."""

    target_fraction: Annotated[
        float, setting("Target quantile.", when="your VPA runs with another --target-cpu-percentile", gt=0, le=1)
    ] = 0.9
    margin_fraction: Annotated[
        float,
        setting(
            "Safety margin added to every estimate.",
            when="your VPA runs with another --recommendation-margin-fraction",
            ge=0,
            le=10,
        ),
    ] = 0.15
    half_life_hours: int = 24
    """Half life of a sample's weight. Default of the Vertical Pod Autoscaler (cpu-histogram-decay-half-life)."""
    pod_floor_millicores: int = 25
    """Lowest CPU of a pod, split evenly over its containers. Default of the Vertical Pod Autoscaler
    (pod-recommendation-min-cpu-millicores)."""
    pod_floor_bytes: int = 250 * MIB
    """Lowest memory of a pod, split evenly over its containers. Default of the Vertical Pod Autoscaler
    (pod-recommendation-min-memory-mb)."""
    oom_bump_ratio: float = 1.2
    """Memory after an OOM kill, as a multiple of usage. Default of the Vertical Pod Autoscaler (oom-bump-up-ratio)."""
    oom_bump_bytes: int = 100 * MIB
    """Minimum that an OOM kill adds. Default of the Vertical Pod Autoscaler (oom-min-bump-up-bytes)."""
