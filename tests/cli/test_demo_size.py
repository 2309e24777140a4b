"""The demo asks by itself which nodes of its cluster could leave."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.cluster_size.report import REPORT, SizeReport
from cotenant.settings import Settings
from cotenant_lab.demo.live_cluster import run_size_question, write_config
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from tests.cluster.waiting import wait_for
from tests.support import acting

pytestmark = [pytest.mark.slow, pytest.mark.server]


def test_the_answer_is_stored_while_the_pages_are_up(tmp_path: Path) -> None:
    prepared = acting.prepared(tmp_path)
    story = DemoScenario(prepared.inventory, RunResults(prepared.inventory.time_seconds), NOTHING)
    (tmp_path / "cluster").mkdir()
    settings = msgspec.structs.replace(
        Settings(), store=msgspec.structs.replace(Settings().store, url=prepared.store.url)
    )
    with DemoCluster(story, settings, tmp_path / "cluster") as cluster:
        written = write_config(cluster, prepared.store, tmp_path)
        with run_size_question({"COTENANT_CONFIG": str(written)}) as computes:
            assert computes()
            wait_for("an answer", lambda: prepared.store.read_document(REPORT, SizeReport), 120)
            wait_for("its end", lambda: not computes(), 60)
    report = prepared.store.read_document(REPORT, SizeReport)
    assert report is not None and report.gaps == (), "every kind that the question reads is served"
    nodes = len(prepared.inventory.nodes)
    assert all(sized.size is not None and sized.size.nodes_now == nodes for sized in report.levels)
