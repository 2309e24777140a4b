"""The descheduler's metrics follow jobs, evictions and the last round."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from cotenant.scheduler_ext.rebalance.controllers.metrics import DeschedulerMetrics, MigrationMetrics
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.emptying.decide import decide_emptying
from cotenant.scheduler_ext.rebalance.migration.job import JobPhase, JobStatus
from tests.scheduler_ext.rebalance.migration.moves import job, running
from tests.scheduler_ext.rebalance.small_cluster import arguments, inputs, node, pod
from tests.scheduler_ext.rebalance.test_emptying import MARK, settings


def test_jobs_count_by_phase_and_their_ends_by_outcome() -> None:
    registry = CollectorRegistry()
    metrics = MigrationMetrics(registry)
    jobs = [job("a"), job("b", status=running()), job("c", status=running())]
    failed = JobStatus(JobPhase.FAILED, reason="Timeout")
    metrics.show(jobs, [(jobs[1], JobStatus(JobPhase.SUCCEEDED)), (jobs[2], failed), (jobs[0], failed)])
    metrics.evicted(True)
    phases = {phase: registry.get_sample_value("cotenant_migration_jobs", {"phase": phase}) for phase in JobPhase}
    assert phases == {"Pending": 1, "Running": 2, "Succeeded": 0, "Failed": 0, "Aborted": 0}
    ends = [registry.get_sample_value("cotenant_migrations_total", {"outcome": o}) for o in ("Succeeded", "Timeout")]
    assert ends == [1, 2]
    answers = ("accepted", "refused")
    assert [registry.get_sample_value("cotenant_migration_evictions_total", {"answer": a}) for a in answers] == [1, 0]


def test_marked_nodes_count_with_the_pods_that_have_yet_to_leave() -> None:
    registry = CollectorRegistry()
    metrics = DeschedulerMetrics(registry)
    marked = node("low", pod("a-1", 5), pod("b-1", 5), taints=MARK)
    metrics.show_marks(decide_emptying(inputs(marked, node("full", pod("f-1", 50))), settings(), with_forecast=False))
    assert registry.get_sample_value("cotenant_descheduler_marked_nodes") == 1
    assert registry.get_sample_value("cotenant_descheduler_emptying_pods") == 2
    metrics.mark_changed(away=True)
    changes = [registry.get_sample_value("cotenant_descheduler_marks_total", {"change": c}) for c in ("set", "taken")]
    assert changes == [0, 1]


def test_a_round_shows_its_nodes_moves_and_refusals_and_forgets_the_last_one_s() -> None:
    registry = CollectorRegistry()
    metrics = DeschedulerMetrics(registry)
    hot = node("hot", pod("a-1", 12), pod("b-1", 12, static=True), system=60)
    metrics.show(decide(inputs(hot, node("cold")), arguments(), with_forecast=False))
    assert registry.get_sample_value("cotenant_descheduler_nodes", {"load": "high"}) == 1
    assert registry.get_sample_value("cotenant_descheduler_moves") == 1
    # 84 % - 12 % is still above 70 %, so that the second pod is asked, too
    reason = {"reason": "static-pod"}
    assert registry.get_sample_value("cotenant_descheduler_refusals", reason) == 1
    metrics.show(decide(inputs(node("hot"), node("cold")), arguments(), with_forecast=False))
    assert registry.get_sample_value("cotenant_descheduler_moves") == 0
    assert registry.get_sample_value("cotenant_descheduler_refusals", reason) is None
