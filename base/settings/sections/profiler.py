"""Settings of the profiler: how much history, from which source at what cost to it, and what portraits remember."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cotenant.base.settings.base import Section, setting


class PrometheusSettings(Section, frozen=True):
    """The access to a Prometheus server, and the limits on queries."""

    url: Annotated[
        str, setting("Address with path prefix, http or https, such as https://prometheus.example/prom.")
    ] = ""
    username: Annotated[str, setting("User for basic authentication; empty for none.")] = ""
    password_file: Annotated[str, setting("File with the password for basic authentication.")] = ""
    bearer_token_file: Annotated[
        str, setting("File with a bearer token; read again for every query, because such tokens are rotated.")
    ] = ""
    headers: Annotated[dict[str, str], setting("Further HTTP headers of every query.")] = msgspec.field(
        default_factory=dict
    )
    tenant: Annotated[str, setting("Tenant, sent as X-Scope-OrgID (Mimir, Cortex); empty for none.")] = ""
    ca_file: Annotated[str, setting("PEM file of the authorities that may sign the server's certificate.")] = ""
    client_cert_file: Annotated[str, setting("PEM file of a client certificate; empty for none.")] = ""
    client_key_file: Annotated[str, setting("PEM file of that certificate's key.")] = ""
    insecure: Annotated[bool, setting("Do not verify the server's certificate; every scan warns about it.")] = False
    labels: Annotated[
        dict[str, str],
        setting("Labels that every series must carry, such as cluster: prod (one server, many clusters)."),
    ] = msgspec.field(default_factory=dict)
    in_flight: Annotated[
        int, setting("Queries in flight at the same time; more cost the server memory.", ge=1, le=32)
    ] = 1
    connect_timeout_seconds: Annotated[float, setting("Patience for a connection.", unit="seconds", gt=0)] = 5.0
    timeout_seconds: Annotated[
        float,
        setting("Patience for an answer; a query that takes longer is split and asked again.", unit="seconds", gt=0),
    ] = 60.0
    retries: Annotated[
        int, setting("Least further tries after a broken connection or an overloaded server.", ge=0, le=10)
    ] = 2
    outage_seconds: Annotated[
        float,
        setting(
            "How long a scan asks a question again while a server that was there is away or overloaded.",
            unit="seconds",
            ge=0,
            le=3600,
        ),
    ] = 90.0
    backoff_seconds: Annotated[
        float, setting("Pause before the first further try; it doubles up to 10 s.", unit="seconds", ge=0)
    ] = 0.5
    max_points_per_query: Annotated[
        int,
        setting("Values expected in one answer, at most; fewer where that does not make the queries many.", ge=1_000),
    ] = 200_000
    max_answer_bytes: Annotated[
        int, setting("Size above which an answer is dropped and its query split.", unit="bytes", ge=100_000)
    ] = 64 * 1024**2
    scrape_interval_seconds: Annotated[
        int, setting("Scrape interval of the containers' metrics; 0 finds it out.", unit="seconds", ge=0, le=3600)
    ] = 0
    recording_rules: Annotated[
        bool,
        setting("Read kubernetes-mixin's recorded CPU rate instead of computing it, where the rule covers the window."),
    ] = True


class ProfilerSettings(Section, frozen=True):
    """The history that is kept of a cluster."""

    window_days: Annotated[
        int,
        setting(
            "History that a first scan asks for, that results are computed from, and that gone pods are kept for. "
            "Only peaks of nodes learn from more (node_peak.calibration_days).",
            unit="days",
            ge=1,
            le=90,
        ),
    ] = 14
    keep_days: Annotated[
        int,
        setting(
            "Usage that is kept; older days are removed by the next scan. The highest totals of nodes stay longer.",
            unit="days",
            ge=1,
            le=3650,
        ),
    ] = 100
    overlap_seconds: Annotated[
        int,
        setting(
            "How far a later scan looks back behind the newest stored slot, for late samples.",
            unit="seconds",
            ge=0,
            le=86_400,
        ),
    ] = 600
    prometheus: Annotated[PrometheusSettings, setting("The metric source.")] = msgspec.field(
        default_factory=PrometheusSettings
    )

    def __post_init__(self) -> None:
        """History that a scan asks for must be kept."""
        if self.keep_days < self.window_days:
            raise ValueError(
                f"keep_days {self.keep_days} is less than window_days {self.window_days}: keep at least that"
            )


class PortraitSettings(Section, frozen=True):
    """The settings for reducing usage history to the fixed-size memory of a series."""

    half_life_hours: Annotated[
        int, setting("Time after which a sample weighs half in the percentiles.", unit="hours", ge=1, le=8760)
    ] = 24
    days_kept: Annotated[
        int, setting("Daily maxima and means kept; the maximum forgets older days.", unit="days", ge=7, le=366)
    ] = 35
    startup_minutes: Annotated[
        int,
        setting("First minutes of a pod's life, kept apart from its steady usage.", unit="minutes", ge=0, le=240),
    ] = 10
    pattern_days: Annotated[float, setting("History below which the pattern is unknown.", unit="days", ge=1, le=28)] = (
        2.0
    )
    idle_millicores: Annotated[
        float, setting("CPU usage whose 95th percentile stays at or below this is idle.", unit="millicores", ge=0)
    ] = 10.0
    flat_amplitude: Annotated[
        float, setting("Usage with (p95 - p5) / mean at or below this is flat.", unit="ratio", gt=0, le=2)
    ] = 0.3
    trend_rise: Annotated[
        float,
        setting("Change of the daily mean over the kept days, relative to the mean, that makes a trend.", gt=0, le=10),
    ] = 0.3
    trend_fit: Annotated[
        float, setting("Share of the daily means' variance that a straight line must explain.", gt=0, le=1)
    ] = 0.7
    season_share: Annotated[
        float, setting("Share of variance that the time of day must explain to be daily.", gt=0, le=1)
    ] = 0.3
    week_share: Annotated[
        float, setting("Further share of variance that the weekend must explain to be weekly.", gt=0, le=1)
    ] = 0.1
