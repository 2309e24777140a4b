"""Settings of the manager: its Lease and how often each of its controllers looks."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.settings.base import Section, setting


class ManagerSettings(Section, frozen=True):
    """The source of the manager's configuration, and the times after which another replica may take over."""

    namespace: Annotated[
        str, setting("Namespace of the Lease and of the ConfigMap slo-controller-config.", min_length=1)
    ] = SYSTEM_NAMESPACE
    lease_seconds: Annotated[
        float, setting("A leader that has not renewed its Lease for so long is replaced.", unit="seconds", ge=2, le=600)
    ] = 15.0
    renew_deadline_seconds: Annotated[
        float, setting("A leader that cannot renew for so long stops writing.", unit="seconds", ge=1, le=600)
    ] = 10.0
    retry_seconds: Annotated[
        float, setting("Pause between two tries to take or renew the Lease.", unit="seconds", gt=0, le=60)
    ] = 2.0

    write: Annotated[
        bool, setting("Write to the cluster. Without it the manager only says what it would write (dry run).")
    ] = False
    features_off: Annotated[
        list[str],
        setting(
            "Controllers that do not run: colocation, node-slo, node-metric, recommendations, forecasts, "
            "reservations, plans, queues, migrations, descheduler, autopilot. "
            "What they wrote before stays; to withdraw batch and mid use `enable: false` in colocation-config."
        ),
    ] = msgspec.field(default_factory=list)
    take_over: Annotated[
        list[str],
        setting(
            "Field managers whose batch and mid amounts on nodes, and whose later values in NodeSLOs, are replaced, "
            "because their program no longer runs; koordinator-manager is Koordinator's. "
            "What another program publishes is left to it."
        ),
    ] = msgspec.field(default_factory=list)
    coalesce_seconds: Annotated[
        float, setting("Changes that arrive within this time are decided together.", unit="seconds", ge=0.05, le=60)
    ] = 0.5
    resync_seconds: Annotated[
        float, setting("Everything is looked at again after this time, changed or not.", unit="seconds", ge=1, le=3600)
    ] = 60.0
    stale_seconds: Annotated[
        float,
        setting(
            "A watch without a sign of life for so long is stale: what rests on it is left as it is. An event, a "
            "bookmark, and that the API server takes up the watch anew are signs; a quiet watch is taken up anew after "
            "three quarters of this time.",
            unit="seconds",
            ge=90,
            le=3600,
        ),
    ] = 120.0
    feature_retry_seconds: Annotated[
        float,
        setting("Longest pause before a feature that was refused a right asks again.", unit="seconds", ge=1, le=3600),
    ] = 60.0
    enforcement_interval_seconds: Annotated[
        float,
        setting(
            "Between two looks at what node agents told in Events, for the dashboard. An API server keeps Events for "
            "an hour.",
            unit="seconds",
            ge=10,
            le=3600,
        ),
    ] = 60.0
    enforcement_days: Annotated[
        float, setting("How long what node agents did is kept in the store.", unit="days", ge=0.1, le=90)
    ] = 7.0
    node_metric_interval_seconds: Annotated[
        float, setting("Between two NodeMetrics made from Prometheus.", unit="seconds", ge=15, le=3600)
    ] = 60.0
    pipeline_interval_seconds: Annotated[
        float,
        setting("Between two runs of forecasts and recommendations over the store.", unit="seconds", ge=60, le=86_400),
    ] = 3600.0
    recommendation_dead_band_fraction: Annotated[
        float, setting("A published amount that moves by no more than this share is not written again.", ge=0, le=1)
    ] = 0.1
    recommendation_fall_hours: Annotated[
        float,
        setting("Lower amounts are published at most so often; higher ones at once.", unit="hours", ge=0, le=2160),
    ] = 24.0
    recommendation_stale_hours: Annotated[
        float, setting("A recommendation whose history ended so long ago is marked stale.", unit="hours", ge=1, le=2160)
    ] = 24.0
    forecast_interval_seconds: Annotated[
        float, setting("Shortest time between two UsageForecasts of a node.", unit="seconds", ge=600, le=86_400)
    ] = 3600.0
    forecast_dead_band_fraction: Annotated[
        float,
        setting("A forecast that moves by no more than this share of its peak is not written again.", ge=0, le=1),
    ] = 0.1
    forecast_refresh_hours: Annotated[
        float,
        setting("A UsageForecast that reaches less far ahead is written again, moved or not.", unit="hours", ge=0),
    ] = 12.0
