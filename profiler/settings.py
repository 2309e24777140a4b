"""Settings of the profiler: how much history, from which source and at what cost, and what portraits remember."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cotenant.base.settings.base import Section, setting


class PrometheusSettings(Section, frozen=True):
    """The access to a Prometheus server, and the limits on queries to it."""

    url: Annotated[
        str,
        setting(
            "Prometheus' address with path prefix, such as https://prometheus.example/prom.",
            when="always: usage is read from Prometheus",
        ),
    ] = ""
    username: Annotated[
        str, setting("User for basic authentication; empty for none.", when="the server asks for basic authentication")
    ] = ""
    password_file: Annotated[
        str,
        setting("File with the password for basic authentication.", when="the server asks for basic authentication"),
    ] = ""
    bearer_token_file: Annotated[
        str,
        setting(
            "File with a bearer token; read again for every query, because such tokens are rotated.",
            when="the server or its gateway asks for a token",
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        setting("Further HTTP headers of every query.", when="a gateway before the server asks for further headers"),
    ] = msgspec.field(default_factory=dict)
    tenant: Annotated[
        str,
        setting(
            "Tenant, sent as X-Scope-OrgID (Mimir, Cortex); empty for none.", when="the server has several tenants"
        ),
    ] = ""
    ca_file: Annotated[
        str,
        setting(
            "PEM file of the authorities that may sign the server's certificate.",
            when="the server's certificate is signed by an authority of your own",
        ),
    ] = ""
    client_cert_file: Annotated[
        str,
        setting("PEM file of a client certificate; empty for none.", when="the server asks for a client certificate"),
    ] = ""
    client_key_file: Annotated[
        str, setting("PEM file of the client certificate's key.", when="the server asks for a client certificate")
    ] = ""
    insecure: Annotated[
        bool,
        setting(
            "Do not verify the server's certificate; every scan warns about it.",
            when="trying out a server whose certificate cannot be verified",
        ),
    ] = False
    server_name: str = ""
    """Name that the server's certificate must carry if it is not the host's, as a kubeconfig has it of its API server.
    """
    proxy: str = ""
    """HTTP proxy before the server, as a kubeconfig has it; empty for that of the environment."""
    labels: Annotated[
        dict[str, str],
        setting(
            "Labels that every series must carry, such as cluster: prod (one server, many clusters).",
            when="one server holds several clusters",
        ),
    ] = msgspec.field(default_factory=dict)
    in_flight: Annotated[
        int,
        setting(
            "Number of queries sent at the same time; more need more memory in the server.",
            when="a scan is slow and the server has memory to spare",
            ge=1,
            le=32,
        ),
    ] = 1
    connect_timeout_seconds: float = 5.0
    """Timeout for a connection. A connection within a data centre takes milliseconds; five seconds tell slow from
    gone.
    """
    timeout_seconds: Annotated[
        float,
        setting(
            "Timeout of a query; a query that takes longer is split and sent again.",
            when="the server is slow, or a gateway ends queries earlier",
            unit="seconds",
            gt=0,
        ),
    ] = 60.0
    retries: int = 2
    """Minimum number of retries after a broken connection or an overloaded server. Pacing of retries; the outage's
    length decides, not their number.
    """
    outage_seconds: Annotated[
        float,
        setting(
            "How long a scan repeats a query while the server is unavailable or overloaded.",
            when="a job should fail at once, or the server restarts slowly",
            unit="seconds",
            ge=0,
            le=3600,
        ),
    ] = 90.0
    backoff_seconds: float = 0.5
    """Pause before the first retry; it doubles up to 10 s. Pacing of retries, doubled each time, so that a
    server that comes back is not flooded.
    """
    max_points_per_query: int = 200_000
    """Maximum of values expected in one answer; fewer if that does not need many queries. Size of one query:
    large enough to be few, small enough for a server's --query.max-samples.
    """
    max_answer_bytes: Annotated[
        int,
        setting(
            "Size above which an answer is dropped and its query split.",
            when="a scan says that even the smallest answer is too large",
            unit="bytes",
            ge=100_000,
        ),
    ] = 64 * 1024**2
    scrape_interval_seconds: Annotated[
        int,
        setting(
            "Scrape interval of the containers' metrics; 0 detects it.",
            when="the detected value is wrong, as with several scrape jobs",
            unit="seconds",
            ge=0,
            le=3600,
        ),
    ] = 0


class ProfilerSettings(Section, frozen=True):
    """The usage history of a cluster: how much is read and kept, and from where."""

    window_days: Annotated[
        int,
        setting(
            "Length of the history that a first scan reads, that results are computed from, and for which deleted "
            "pods are kept. Only node peaks use a longer history.",
            when="usage has cycles longer than a week, or the server keeps less history",
            unit="days",
            ge=1,
            le=90,
        ),
    ] = 14
    keep_days: Annotated[
        int,
        setting(
            "Days of usage to keep; the next scan removes older ones. Each node's highest prod usage is kept longer.",
            when="the store's disk is short, or reviews need older usage",
            unit="days",
            ge=1,
            le=3650,
        ),
    ] = 100
    overlap_seconds: int = 600
    """How far a later scan reads back before the newest stored slot, for late samples. Twice the default lookback of a
    Prometheus server (5 minutes): late samples come within it.
    """
    prometheus: Annotated[PrometheusSettings, setting("The metric source.")] = msgspec.field(
        default_factory=PrometheusSettings
    )

    def __post_init__(self) -> None:
        """History that a scan asks for must be kept."""
        if self.keep_days < self.window_days:
            raise ValueError(f"keep_days {self.keep_days} is less than window_days {self.window_days}: raise keep_days")


class PortraitSettings(Section, frozen=True):
    """The settings by which portraits summarize usage history in a fixed size."""

    half_life_hours: int = 24
    """Time after which a sample weighs half in the percentiles. Default of the Vertical Pod Autoscaler
    (cpu-histogram-decay-half-life).
    """
    days_kept: int = 35
    """Daily maxima and means kept; the maximum forgets older days. Five whole weeks: a weekly pattern needs four, and a
    missing day must not cost one.
    """
    startup_minutes: Annotated[
        int,
        setting(
            "First minutes of a pod's life, excluded from steady usage.",
            when="workloads take longer than these minutes to warm up",
            unit="minutes",
            ge=0,
            le=240,
        ),
    ] = 10
