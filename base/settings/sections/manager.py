"""Settings of the manager: its Lease and how often each of its controllers looks."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.settings.base import Section, setting


class ManagerSettings(Section, frozen=True):
    """The source of the manager's configuration, and the times after which another replica may take over."""

    namespace: Annotated[
        str,
        setting(
            "Namespace of the Lease and of the ConfigMap slo-controller-config.",
            when="Koordinator is installed elsewhere",
            min_length=1,
        ),
    ] = SYSTEM_NAMESPACE
    lease_seconds: Annotated[
        float,
        setting(
            "A leader that has not renewed its Lease for so long is replaced; it stops writing after two thirds of it.",
            when="another replica should take over sooner, or the API server pauses for longer",
            unit="seconds",
            ge=2,
            le=600,
        ),
    ] = 15.0

    write: Annotated[
        bool,
        setting(
            "Write to the cluster. Without it the manager only says what it would write (dry run).",
            when="the dry run has shown what you expect",
        ),
    ] = False
    features_off: Annotated[
        list[str],
        setting(
            "Controllers that do not run: colocation, node-slo, node-metric, recommendations, forecasts, "
            "reservations, plans, queues, migrations, descheduler, autopilot, ladders, load-taints. "
            "What they wrote before stays; to withdraw batch and mid use `enable: false` in colocation-config.",
            when="another program does a controller's work",
        ),
    ] = msgspec.field(default_factory=list)
    take_over: Annotated[
        list[str],
        setting(
            "Field managers whose batch and mid amounts on nodes, and whose later values in NodeSLOs, are replaced, "
            "because their program no longer runs; koordinator-manager is Koordinator's. "
            "What another program publishes is left to it.",
            when="Koordinator's manager is gone for good",
        ),
    ] = msgspec.field(default_factory=list)
    coalesce_seconds: float = 0.5
    """Changes that arrive within this time are decided together. Joins the changes of one rollout step; nobody notices
    half a second.
    """
    resync_seconds: float = 60.0
    """Everything is decided again after this time, changed or not. A safety net; all changes arrive by watches."""
    stale_seconds: float = 120.0
    """A watch without a sign of life for so long is stale: what rests on it is left as it is. An event, a bookmark, and
    that the API server takes up the watch anew are signs; a quiet watch is taken up anew after three quarters of this
    time. Longer than a missed bookmark, shorter than any decision that rests on the watch.
    """
    feature_retry_seconds: float = 60.0
    """Longest pause before a feature retries after a refused right. Pacing of further tries after a refused
    right.
    """
    enforcement_days: Annotated[
        float,
        setting(
            "How long what node agents did is kept in the store.",
            when="reviews need older actions",
            unit="days",
            ge=0.1,
            le=90,
        ),
    ] = 7.0
    pipeline_interval_seconds: Annotated[
        float,
        setting(
            "Between two runs of forecasts and recommendations over the store.",
            when="forecasts should be fresher, or runs are too expensive",
            unit="seconds",
            ge=60,
            le=86_400,
        ),
    ] = 3600.0
    forecast_interval_seconds: float = 3600.0
    """Shortest time between two UsageForecasts of a node. Forecasts are made by the hour."""

    @property
    def renew_deadline_seconds(self) -> float:
        """A leader that cannot renew for so long stops writing: client-go's 10 of 15 seconds."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """Pause between two tries to take or renew the Lease: client-go's 2 of 15 seconds."""
        return self.lease_seconds * 2 / 15
