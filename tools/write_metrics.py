"""Print docs/metrics.md from the metrics that each program declares, so that page and code cannot part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector, CollectorRegistry

from cotenant.admission.webhook_server.app import WebhookMetrics
from cotenant.autopilot.metrics import AutopilotMetrics
from cotenant.base.controllers.audit import Audit
from cotenant.base.logs.telemetry import Metrics
from cotenant.dashboard.server.health import Health
from cotenant.enforcer.device_driver import DraMetrics
from cotenant.enforcer.nri_hooks import NriMetrics
from cotenant.enforcer.report.action_log import AgentMetrics
from cotenant.enforcer.report.device_writer import DeviceMetrics, DiscoveryState
from cotenant.enforcer.runtime.nri.plugin import Counters
from cotenant.scheduler_ext.extender.serve.counts import Counts
from cotenant.scheduler_ext.load_taints.metrics import LoadTaintMetrics
from cotenant.scheduler_ext.queues.metrics import QueueMetrics
from cotenant.scheduler_ext.rebalance.controllers.metrics import DeschedulerMetrics, MigrationMetrics
from cotenant.scheduler_ext.reservations.metrics import ReservationMetrics

HEAD: Final = """# Metrics

Written by `python -m tools.write_metrics > docs/metrics.md`. Every program answers `GET /metrics` in Prometheus' text
format. [Monitoring](monitoring.md) says how to scrape them, and which alerts and panels there are. A histogram has the
series `_bucket`, `_sum` and `_count`.
"""
SUFFIXES: Final = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
    "gauge": ("",),
}
"""Type of a metric -> what its series add to its name."""


def declared() -> dict[str, list[tuple[str, str, list[str], str]]]:
    """Program and port -> (name of the metric, type, names of its labels, meaning)."""
    everywhere, webhook = Metrics("", ""), Metrics("", "")
    manager, extender, agent = Metrics("", ""), Metrics("", ""), Metrics("", "")
    Audit(manager)
    ReservationMetrics(manager.registry)
    QueueMetrics(manager.registry)
    MigrationMetrics(manager.registry)
    DeschedulerMetrics(manager.registry)
    AutopilotMetrics(manager.registry)
    LoadTaintMetrics(manager.registry)
    WebhookMetrics(webhook)
    Counts(extender)
    AgentMetrics(agent)
    agent.registry.register(NriMetrics(lambda: (False, Counters())))
    agent.registry.register(DraMetrics(lambda: (False, False, 0)))
    agent.registry.register(DeviceMetrics(lambda: (DiscoveryState.NOT_LOOKED, 0, 0)))
    common = _families(everywhere.registry)
    own = {
        "Manager (port 9464)": manager.registry,
        "Webhooks (port 9443, HTTPS)": webhook.registry,
        "Scheduler extender (port 9465)": extender.registry,
        "Node agent (port 9466)": agent.registry,
        "Dashboard (its own port)": _registry_of(Health(cast("Any", None))),
    }
    programs = {"Every program but the dashboard": common}
    return programs | {name: [f for f in _families(at) if f not in common] for name, at in own.items()}


def series(metrics: Mapping[str, list[tuple[str, str, list[str], str]]]) -> dict[str, set[str]]:
    """Name of each series that can be asked for -> names of its labels."""
    return {
        name.removesuffix("_total") + suffix: {*labels, *(["le"] if suffix == "_bucket" else [])}
        for families in metrics.values()
        for name, kind, labels, _ in families
        for suffix in SUFFIXES[kind]
    }


def page() -> str:
    lines = [HEAD]
    for program, families in declared().items():
        lines += [f"## {program}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for name, kind, labels, meaning in families:
            shown = ", ".join(f"`{label}`" for label in labels)
            lines.append(f"| `{name}{'_info' if kind == 'info' else ''}` | {kind} | {shown} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _registry_of(health: Health) -> CollectorRegistry:
    return health._registry


def _families(registry: CollectorRegistry) -> list[tuple[str, str, list[str], str]]:
    """What a registry's collectors declare, by name."""
    collectors = dict.fromkeys(registry._collector_to_names)
    return sorted(family for collector in collectors for family in _declared_by(collector))


def _declared_by(collector: Collector) -> list[tuple[str, str, list[str], str]]:
    families = []
    for metric in collector.collect() if not isinstance(collector, MetricWrapperBase) else collector.describe():
        labels = (
            list(collector._labelnames)
            if isinstance(collector, MetricWrapperBase)
            else sorted({label for sample in metric.samples for label in sample.labels})
        )
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = ["version", "python"] if metric.type == "info" else labels
        families.append((name, metric.type, labels, metric.documentation))
    return families


if __name__ == "__main__":
    print(page(), end="")
