"""The sections of the settings that several packages use."""

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
            when="the kubeconfig is not at its usual place",
        ),
    ] = ""
    context: Annotated[
        str,
        setting(
            "Context of the kubeconfig; empty means the kubeconfig's current context.",
            when="the current context is of another cluster",
        ),
    ] = ""
    timeout_seconds: Annotated[
        float,
        setting(
            "Longest wait for a response of the API server before a request fails.",
            when="the API server is far away or slow",
            unit="seconds",
            gt=0,
            le=300,
        ),
    ] = 10.0
    deadline_seconds: float = 60.0
    """Longest that a whole answer may take, however it trickles in: the API server's own limit (--request-timeout)."""
    retries: int = 4
    """Retries after a broken connection or a busy server (429, 503); its Retry-After, if any, sets the pause."""
    body_cap_bytes: int = 65_536
    """Larger objects are not written: ours have kilobytes, etcd refuses 1.5 MiB, a large one slows every watcher."""
    watch_idle_seconds: float = 90.0
    """A watch without an event or bookmark for this time is restarted: servers send a bookmark about once a minute."""
    watch_backoff_seconds: float = 30.0
    """Longest pause between two tries to list or watch, as of client-go's reflector."""


class ManagerSettings(Section, frozen=True):
    """The manager's namespace, its permission to write, its disabled features, and the timing of its Lease and runs."""

    namespace: Annotated[
        str,
        setting(
            "Namespace of the Lease and of the ConfigMap slo-controller-config.",
            when="Koordinator is installed in another namespace",
            min_length=1,
        ),
    ] = SYSTEM_NAMESPACE
    lease_seconds: Annotated[
        float,
        setting(
            "Time without a renewed Lease after which the leader is replaced; it stops writing after 2/3 of this time.",
            when="another replica should take over sooner, or the API server pauses for longer",
            unit="seconds",
            ge=2,
            le=600,
        ),
    ] = 15.0

    write: Annotated[
        bool,
        setting(
            "Write to the cluster. If false, the manager only reports what it would write (dry run).",
            when="the dry run has shown what you expect",
        ),
    ] = False
    features_off: Annotated[
        list[str],
        setting(
            "Controllers to turn off, of: colocation, node-slo, node-metric, recommendations, forecasts, "
            "reservations, plans, queues, migrations, descheduler, autopilot, ladders, load-taints. "
            "Values already written remain; to withdraw batch and mid set `enable: false` in colocation-config.",
            when="another program does a controller's work",
        ),
    ] = msgspec.field(default_factory=list)
    take_over: Annotated[
        list[str],
        setting(
            "Field managers of programs that no longer run, such as koordinator-manager: cotenant replaces their batch "
            "and mid amounts on nodes and their values in NodeSLOs. "
            "It leaves the values of all other field managers alone.",
            when="Koordinator's manager is gone for good",
        ),
    ] = msgspec.field(default_factory=list)
    coalesce_seconds: float = 0.5
    """Changes that arrive within this time, such as those of one rollout step, are decided together."""
    resync_seconds: float = 60.0
    """Everything is decided again after this time, changed or not: a safety net, for all changes arrive by watches."""
    stale_seconds: float = 120.0
    """A watch is stale after this time without an event, a bookmark or a successful restart: values that depend on it
    are not changed. A quiet watch is restarted after three quarters of this time. Longer than a missed bookmark,
    shorter than the interval of any decision that depends on the watch.
    """
    feature_retry_seconds: float = 60.0
    """Longest pause before a feature tries again after a refused right."""
    enforcement_days: Annotated[
        float,
        setting(
            "How long the store keeps the actions of node agents.",
            when="reviews need older actions",
            unit="days",
            ge=0.1,
            le=90,
        ),
    ] = 7.0
    pipeline_interval_seconds: Annotated[
        float,
        setting(
            "Time from one computation of forecasts and recommendations to the next.",
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
        """Seconds after which a leader that cannot renew its Lease stops writing; 2/3 of the Lease, as in client-go."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """Seconds between two tries to acquire or renew the Lease; 2/15 of the Lease, as in client-go."""
        return self.lease_seconds * 2 / 15


class NotifySettings(Section, frozen=True):
    """The receiver of a scan's summary, its format, and the severity from which it is sent."""

    url_file: Annotated[
        str,
        setting(
            "File with the receiver's URL, which is a secret; empty sends nothing.",
            when="summaries should go to a chat or a receiver of yours",
        ),
    ] = ""
    format: Annotated[
        Literal["slack", "json"],
        setting("slack: a message for Slack's incoming webhooks; json: plain JSON.", when="the receiver is not Slack"),
    ] = "slack"
    minimum_severity: Annotated[
        Literal["good", "ok", "warning", "critical"],
        setting(
            "Send a summary only if a recommendation or finding is at least this severe.",
            when="messages are too many, or too few",
        ),
    ] = "warning"
    rows: int = 5
    """Most severe recommendations named in the summary. Five lines are what a chat message shows without folding."""
    notes_per_hour: int = 12
    """Most messages of the autopilot, one in five minutes; what is waiting is sent with the next message."""
    timeout_seconds: float = 10.0
    """Timeout for the connection, and for the response; a message that was not sent is reported in the log."""
    ca_file: Annotated[
        str,
        setting(
            "PEM file of the certificate authorities that may sign the receiver's certificate.",
            when="the receiver's certificate is signed by an authority of your own",
        ),
    ] = ""


class PipelineSettings(Section, frozen=True):
    """The workers that compute an analysis's shards: this process, processes of this machine, or a Dask cluster."""

    workers: Annotated[
        int,
        setting(
            "Number of processes on this machine that compute; 1 computes in the started process.",
            when="scans of a large cluster take too long and the machine has several cores",
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
        str, setting("PEM file of a tls:// Dask scheduler's authority (CA).", when="the scheduler is reached by tls://")
    ] = ""
    client_cert_file: Annotated[
        str, setting("PEM file of the Dask client's certificate.", when="the scheduler is reached by tls://")
    ] = ""
    client_key_file: Annotated[
        str, setting("PEM file of the Dask client's private key.", when="the scheduler is reached by tls://")
    ] = ""


class StoreSettings(Section, frozen=True):
    """The location of history and results, with one folder for each cluster."""

    url: Annotated[
        str,
        setting(
            "fsspec URL of the store; empty means the folder cotenant in $XDG_DATA_HOME or ~/.local/share.",
            when="the results are on a volume or in a bucket",
        ),
    ] = ""


def store_url(settings: StoreSettings, environ: Mapping[str, str]) -> str:
    """Return the store's URL: the setting, else the `file://` URL of the user's data folder (XDG base directories)."""
    if settings.url:
        return settings.url
    base = Path(environ.get("XDG_DATA_HOME") or "")
    home = Path(environ.get("HOME") or Path.home())
    folder = base if base.is_absolute() else home / ".local" / "share"
    return folder_url(folder / "cotenant")


def folder_url(folder: Path) -> str:
    """Return the `file://` URL of a local folder, in which no character is escaped, because fsspec decodes none."""
    return f"file://{folder.absolute()}"


MANAGER_PORT: Final = 9464
EXTENDER_PORT: Final = 9465
ENFORCER_PORT: Final = 9466
RECORDER_PORT: Final = 9467
"""Default of `health_port` in each program that serves it."""


class TelemetrySettings(Section, frozen=True):
    """The format and level of log lines on stderr, and the address of the small server for probes and metrics."""

    log_format: Annotated[
        Literal["console", "json"],
        setting("Log format: one line of text per event, or one JSON object.", when="a collector reads the log"),
    ] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("Log events below this level are not written.", when="you investigate a problem"),
    ] = "info"
    health_host: Annotated[
        str,
        setting(
            "Address on which probes and metrics are served; inside a pod '::' is every IPv6 and IPv4 address.",
            when="probes come from outside the machine",
        ),
    ] = "127.0.0.1"
    health_port: Annotated[
        Port | None,
        setting(
            "Port of /livez, /readyz and /metrics; 0 takes a free port. If unset, each program has its own (manager "
            f"{MANAGER_PORT}, extender {EXTENDER_PORT}, enforcer {ENFORCER_PORT}, recorder {RECORDER_PORT}), so that "
            "all can run on one machine.",
            when="the port is taken",
        ),
    ] = None
