"""The demo's quotas and gang: the manager of the demo lets go what fits, and the rest waits with its reason."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cotenant.base.people import Person
from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.queues.model.report import GangState
from cotenant.scheduler_ext.queues.service.cluster_queue_service import queue_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.simulation.feature_objects import JOB_CORES, JOBS, MOST_CORES
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.server
LONGEST_SECONDS = 120.0


def test_the_demo_shows_a_borrower_waiting_pods_and_an_incomplete_gang(tmp_path: Path) -> None:
    inventory = generate(SyntheticSpec(nodes=4, workloads=10, days=1)).inventory
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), NOTHING)
    with capture_logs() as logs, DemoCluster(story, Settings(), tmp_path) as cluster:
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            report = queue_service_of(cluster.settings, clock=cluster.clock).report(Person("ada"))
            (research,) = [row for row in report.quotas if (row.quota, row.resource) == ("research", "cpu")]
            if research.used == 1000 * MOST_CORES or time.monotonic() > deadline:
                break
    assert (research.used, research.maximum, research.depth) == (1000 * MOST_CORES, 1000 * MOST_CORES, 1)
    assert research.borrowed > 0
    waiting = [row for row in report.waiting if row.pod.startswith("render-")]
    assert [row.pod for row in waiting] == [f"render-{k}" for k in range(MOST_CORES // JOB_CORES, JOBS)], "docs/demo.md"
    assert all(row.quota == "research" and row.resource == "cpu" and row.reason for row in waiting)
    assert [(gang.gang, gang.state) for gang in report.gangs] == [("train", GangState.INCOMPLETE)]
    assert report.problems == ()
    assert [entry for entry in logs if entry["log_level"] not in ("debug", "info")] == [], "shown at the demo's end"
