"""Former settings of the dashboard, the manager, changes, the autopilot and the webhook."""

from __future__ import annotations

from typing import Final

from cotenant.base.settings.former.group import FormerGroup

SERVICES: Final = (
    FormerGroup(
        "dashboard",
        "cotenant.dashboard.frame.shell",
        {
            "amber_after_seconds": (
                900,
                "A quarter of dashboard.red_after_seconds's default: an early sign, without effect.",
            ),
        },
    ),
    FormerGroup(
        "dashboard",
        "cotenant.base.settings.sections.dashboard.DashboardSettings",
        {
            "reload_seconds": (3.0, "Bounds the reads of the store, however many pages are open."),
            "poll_seconds": (15, "An open page asks a small question; results come by the hour."),
            "body_cap_bytes": (8388608, "A settings file of a page has kilobytes; more is no use but an attack's."),
            "read_seconds": (30.0, "Ends requests that come in slowly on purpose; no browser needs so long."),
        },
    ),
    FormerGroup(
        "dashboard",
        "cotenant.dashboard.tables.list_page",
        {
            "page_rows": (100, "Rows fetched at once by scrolling; it changes no result."),
        },
    ),
    FormerGroup(
        "dashboard",
        "cotenant.dashboard.home.overview",
        {
            "waste_bars": (10, "What fits a screen; the table has all namespaces."),
        },
    ),
    FormerGroup(
        "access",
        "cotenant.dashboard.access.gate",
        {
            "most_sessions": (2000, "Bounds the process's memory; one more login ends the oldest session."),
        },
    ),
    FormerGroup(
        "kube",
        "cotenant.base.settings.sections.kube.KubeSettings",
        {
            "deadline_seconds": (60.0, "The API server's own limit of a request is 60 seconds (--request-timeout)."),
            "retries": (4, "Pacing of further tries, with the server's own Retry-After before it."),
            "body_cap_bytes": (
                65536,
                "Our objects have kilobytes; etcd refuses 1.5 MiB, and a large one slows every watcher.",
            ),
            "watch_idle_seconds": (
                90.0,
                "API servers send a bookmark about once a minute: after one and a half the connection is dead.",
            ),
            "watch_backoff_seconds": (30.0, "client-go's reflector waits up to 30 seconds, too."),
        },
    ),
    FormerGroup(
        "kube",
        "cotenant.base.kube.client",
        {
            "page_size": (500, "The page of client-go's pager (500)."),
        },
    ),
    FormerGroup(
        "kube",
        "cotenant.base.kube.writes",
        {
            "write_connections": (
                8,
                "Below what one caller gets by API Priority and Fairness, so that others are not delayed.",
            ),
        },
    ),
    FormerGroup(
        "kube",
        "cotenant.base.kube.watch",
        {
            "relist_seconds": (3600.0, "A safety net against a lost event; the cost is one list in an hour."),
        },
    ),
    FormerGroup(
        "manager",
        "cotenant.base.settings.sections.manager.ManagerSettings",
        {
            "retry_seconds": (
                2.0,
                "Two fifteenths of manager.lease_seconds, as client-go's leader election has (2 of 15 s).",
            ),
            "renew_deadline_seconds": (
                10.0,
                "Two thirds of manager.lease_seconds, as client-go's leader election has (10 of 15 s).",
            ),
            "coalesce_seconds": (0.5, "Joins the changes of one rollout step; nobody notices half a second."),
            "resync_seconds": (60.0, "A safety net; all changes arrive by watches."),
            "stale_seconds": (
                120.0,
                "Longer than a missed bookmark, shorter than any decision that rests on the watch.",
            ),
            "feature_retry_seconds": (60.0, "Pacing of further tries after a refused right."),
            "forecast_interval_seconds": (3600.0, "Forecasts are made by the hour."),
        },
    ),
    FormerGroup(
        "manager",
        "cotenant.profiler.enforcement.collector",
        {
            "enforcement_interval_seconds": (60.0, "An API server keeps Events for an hour; once a minute loses none."),
        },
    ),
    FormerGroup(
        "manager",
        "cotenant.manager.features",
        {
            "node_metric_interval_seconds": (60.0, "Koordinator's own report interval (60 s)."),
        },
    ),
    FormerGroup(
        "manager",
        "cotenant.manager.decisions.recommendations",
        {
            "recommendation_dead_band_fraction": (0.1, "The dead band of proposals themselves: less is noise."),
            "recommendation_fall_hours": (24.0, "One whole day, so that a quiet night lowers nothing."),
            "recommendation_stale_hours": (24.0, "One whole daily pattern that was not seen."),
        },
    ),
    FormerGroup(
        "manager",
        "cotenant.manager.decisions.forecasts",
        {
            "forecast_dead_band_fraction": (0.1, "Within a forecast's own error."),
            "forecast_refresh_hours": (
                12.0,
                "Half of the forecast's 24 hours, so that consumers always look half a day ahead.",
            ),
        },
    ),
    FormerGroup(
        "actions",
        "cotenant.changes.soak.reconcile",
        {
            "verify_hours": (24.0, "One whole daily pattern after the change."),
        },
    ),
    FormerGroup(
        "actions",
        "cotenant.base.settings.sections.actions.ActionSettings",
        {
            "resize_seconds": (
                30.0,
                "The kubelet answers a resize within its sync period; after it the change is told as pending, "
                "not undone.",
            ),
            "watch_seconds": (60.0, "Period of the watcher; soaks last many times as long."),
        },
    ),
    FormerGroup(
        "actions",
        "cotenant.changes.decide.regression_check",
        {
            "most_throttled_rise": (0.1, "Ten percentage points more periods throttled are felt as latency."),
            "most_pressure_rise": (0.1, "Ten percentage points more time waiting for a CPU are felt as latency."),
            "most_restarts": (0, "Zero: a restart after a change counts against the change."),
        },
    ),
    FormerGroup(
        "actions.guardrails",
        "cotenant.base.settings.sections.actions.GuardrailSettings",
        {
            "minimum_coverage": (
                0.9,
                "Below nine samples in ten a peak may have been missed: no change rests on that.",
            ),
        },
    ),
    FormerGroup(
        "actions.guardrails",
        "cotenant.changes.decide.guardrails",
        {
            "memory_above_maximum": (
                1.1,
                "Ten percent above all that was seen: less would be an OOM kill by our own hand.",
            ),
        },
    ),
    FormerGroup(
        "autopilot.ceiling",
        "cotenant.base.settings.sections.autopilot.CeilingSettings",
        {
            "throttled_share": (
                0.03,
                "Three percent, as where recommendations call throttling a risk, there of demand and here of time.",
            ),
        },
    ),
    FormerGroup(
        "autopilot",
        "cotenant.base.settings.sections.autopilot.AutopilotSettings",
        {
            "interval_seconds": (
                60.0,
                "Period of the rounds; soaks last many times as long, and the switch is read more often.",
            ),
            "back_off_hours": (48.0, "Two whole daily patterns before a workload is tried again."),
            "stop_share": (0.05, "One change in twenty that did harm is more than chance; people decide then."),
            "stop_changes": (40, "Forty changes resolve a share of one in twenty."),
        },
    ),
    FormerGroup(
        "autopilot",
        "cotenant.autopilot.configured_controller",
        {
            "start_up_seconds": (5.0, "A start takes tens of seconds; five are soon enough to help it."),
        },
    ),
    FormerGroup(
        "autopilot",
        "cotenant.autopilot.decide.halt",
        {
            "most_nodes_not_ready": (0.05, "One node in twenty not ready is an outage, not maintenance."),
        },
    ),
    FormerGroup(
        "admission",
        "cotenant.base.settings.sections.admission.AdmissionSettings",
        {
            "max_body_bytes": (3000000, "An API server sends no larger object (etcd's 1.5 MiB, old and new)."),
            "read_seconds": (5.0, "Below the webhook's own timeout: a slower caller got no answer anyway."),
            "max_connections": (512, "Bounds the process's memory; API servers keep a few connections each."),
            "service": (
                "cotenant-webhook",
                "The name in the webhook configurations that `cotenant print-manifests` and the chart make.",
            ),
            "configuration": (
                "cotenant-webhook",
                "The name that `cotenant print-manifests` and the chart make and grant rights for.",
            ),
            "authority_days": (365, "Renewed by itself; no one has to know."),
            "certificate_days": (90, "Renewed by itself; no one has to know."),
            "overlap_seconds": (600.0, "Longer than the API server takes to see a changed webhook configuration."),
        },
    ),
    FormerGroup(
        "admission",
        "cotenant.admission.webhook_server.certificates",
        {
            "certificate_secret_name": (
                "cotenant-webhook-certificate",
                "The name that `cotenant print-manifests` and the chart make and grant rights for.",
            ),
        },
    ),
)
