"""The gauges of queues follow the report: amounts in base units, a quota that is gone has no series any more."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from cotenant.base.resource import GIB
from cotenant.scheduler_ext.queues.controller import QueueMetrics
from cotenant.scheduler_ext.queues.view import QueueView
from tests.support.queues import NOW, REPORT


def test_a_quota_has_its_amounts_and_waiting_pods_as_long_as_it_exists() -> None:
    registry = CollectorRegistry()
    metrics, view = QueueMetrics(registry), QueueView(NOW)
    metrics.show(REPORT, view)
    cpu = {"quota": "research", "resource": "cpu"}
    assert registry.get_sample_value("cotenant_quota_runtime", cpu) == 34
    assert registry.get_sample_value("cotenant_quota_used", cpu | {"resource": "memory"}) == 8 * GIB
    assert registry.get_sample_value("cotenant_quota_waiting_pods", {"quota": "company"}) == 1
    metrics.show(replace(REPORT, quotas=REPORT.quotas[:1]), view)
    assert registry.get_sample_value("cotenant_quota_request", cpu) is None
    assert registry.get_sample_value("cotenant_quota_waiting_pods", {"quota": "research"}) is None
    assert registry.get_sample_value("cotenant_quota_waiting_pods", {"quota": "company"}) == 1
