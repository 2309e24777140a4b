"""The sections of the settings that no room has to itself: frozen structs whose fields carry doc, range and unit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.settings.base import Port, Section, setting


class KubeSettings(Section, frozen=True):
    """The cluster to connect to, the identity to use, and the timeouts and retries."""

    kubeconfig: Annotated[
        str,
        setting(
            "Path of a kubeconfig; empty means $KUBECONFIG, then ~/.kube/config, or the pod's own account.",
            when="the file is not at its usual place",
        ),
    ] = ""
    context: Annotated[
        str,
        setting(
            "Context of the kubeconfig; empty means its current one.",
            when="another cluster than the current one is meant",
        ),
    ] = ""
    timeout_seconds: Annotated[
        float,
        setting(
            "Longest silence of the API server before a request is given up.",
            when="the API server is far away or slow",
            unit="seconds",
            gt=0,
            le=300,
        ),
    ] = 10.0
    deadline_seconds: float = 60.0
    """Longest that a whole answer may take, however it trickles in: the API server's own limit (--request-timeout)."""
    retries: int = 4
    """Further tries after a broken connection or a busy server (429, 503), whose own Retry-After goes first."""
    body_cap_bytes: int = 65_536
    """Larger objects are not written: ours have kilobytes, etcd refuses 1.5 MiB, a large one slows every watcher."""
    watch_idle_seconds: float = 90.0
    """A watch without an event or bookmark for so long is taken up anew: servers send one about once a minute."""
    watch_backoff_seconds: float = 30.0
    """Longest pause between two tries to list or watch, as of client-go's reflector."""


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
    """Changes that arrive within this time, such as those of one rollout step, are decided together."""
    resync_seconds: float = 60.0
    """Everything is decided again after this time, changed or not: a safety net, for all changes arrive by watches."""
    stale_seconds: float = 120.0
    """A watch without a sign of life for so long is stale: what rests on it is left as it is. An event, a bookmark, and
    that the API server takes up the watch anew are signs; a quiet watch is taken up anew after three quarters of this
    time. Longer than a missed bookmark, shorter than any decision that rests on the watch.
    """
    feature_retry_seconds: float = 60.0
    """Longest pause before a feature tries again after a refused right."""
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


class NotifySettings(Section, frozen=True):
    """The receiver of a scan's summary, its format, and the severity from which it is sent."""

    url_file: Annotated[
        str,
        setting(
            "File that holds the receiver's address, which is a secret; empty sends nothing.",
            when="summaries should go to a chat or a receiver of yours",
        ),
    ] = ""
    format: Annotated[
        Literal["slack", "json"],
        setting(
            "slack: a message for Slack's incoming webhooks; json: plain figures.", when="the receiver is no Slack"
        ),
    ] = "slack"
    minimum_severity: Annotated[
        Literal["good", "ok", "warning", "critical"],
        setting(
            "Nothing is sent when no recommendation or finding is this severe.",
            when="messages are too many, or too few",
        ),
    ] = "warning"
    rows: int = 5
    """Most severe recommendations named in the summary. Five lines are what a chat message shows without folding."""
    notes_per_hour: int = 12
    """Messages of the autopilot at most, one in five minutes; what waits is sent with the next one."""
    timeout_seconds: float = 10.0
    """Patience for a connection, and for the answer; what was not sent is told in the log."""
    ca_file: Annotated[
        str,
        setting(
            "PEM file of the authorities that may sign the receiver's certificate.",
            when="the receiver's certificate is signed by an authority of your own",
        ),
    ] = ""


class PipelineSettings(Section, frozen=True):
    """The executor of an analysis's shards: this process, processes of this machine, or a Dask cluster."""

    workers: Annotated[
        int,
        setting(
            "Processes on this machine; 1 computes in the process that was started.",
            when="scans of a large cluster take too long and the machine has cores",
            ge=1,
            le=256,
        ),
    ] = 1
    scheduler: Annotated[
        str,
        setting(
            "Address of a Dask scheduler, tcp://host:8786 or tls://host:8786; empty for none.",
            when="one machine is too small for the scan",
        ),
    ] = ""
    ca_file: Annotated[
        str, setting("PEM file of the authority of a tls:// scheduler.", when="the scheduler is reached by tls://")
    ] = ""
    client_cert_file: Annotated[
        str, setting("PEM file of the own certificate for it.", when="the scheduler is reached by tls://")
    ] = ""
    client_key_file: Annotated[
        str, setting("PEM file of that certificate's key.", when="the scheduler is reached by tls://")
    ] = ""


class StoreSettings(Section, frozen=True):
    """The location of history and results; one folder per cluster below it."""

    url: Annotated[
        str,
        setting(
            "fsspec URL of the store; empty means the user's data folder ($XDG_DATA_HOME or ~/.local/share)/cotenant.",
            when="the results lie on a volume or in a bucket",
        ),
    ] = ""


def store_url(settings: StoreSettings, environ: Mapping[str, str]) -> str:
    """URL in use: the setting, else `file://` of the data folder that the XDG base directory specification names."""
    if settings.url:
        return settings.url
    base = Path(environ.get("XDG_DATA_HOME") or "")
    home = Path(environ.get("HOME") or Path.home())
    folder = base if base.is_absolute() else home / ".local" / "share"
    return (folder / "cotenant").as_uri()


MANAGER_PORT: Final = 9464
EXTENDER_PORT: Final = 9465
ENFORCER_PORT: Final = 9466
RECORDER_PORT: Final = 9467
"""Default of `health_port` in each program that serves it."""


class TelemetrySettings(Section, frozen=True):
    """Log lines on stderr, and the small server for probes and metrics."""

    log_format: Annotated[
        Literal["console", "json"],
        setting(
            "One line of text per event for people, or one JSON object for machines.", when="a collector reads the log"
        ),
    ] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("Events below this level are not written.", when="you investigate a problem"),
    ] = "info"
    health_host: Annotated[
        str,
        setting(
            "Address that the probes' server listens on; '::' inside a pod: all of IPv6 and IPv4.",
            when="probes come from outside the machine",
        ),
    ] = "127.0.0.1"
    health_port: Annotated[
        Port | None,
        setting(
            "Port of /livez, /readyz and /metrics; 0 takes any free one. Unset: each program has its own (manager "
            f"{MANAGER_PORT}, extender {EXTENDER_PORT}, enforcer {ENFORCER_PORT}, recorder {RECORDER_PORT}), so that "
            "all run on one machine.",
            when="the port is taken",
        ),
    ] = None
