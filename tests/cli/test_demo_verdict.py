"""The demo verifies what was accepted by itself, when its clock has passed the soak time."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.apps.cli.changes.change_service import desk_of
from cotenant.apps.cli.demo.live_cluster import verified
from cotenant.apps.manager.decisions.results import RunResults
from cotenant.apps.simulation.cluster import DemoCluster, DemoScenario
from cotenant.apps.simulation.controllers.autoscaler import NOTHING
from cotenant.core.model.changes.change import ChangeState
from cotenant.core.model.changes.people import Grant, Role, Someone
from cotenant.core.model.changes.service import ChangeRequest
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.actions import ActionSettings
from tests.cluster.waiting import wait_for
from tests.support import acting

pytestmark = [pytest.mark.slow, pytest.mark.server]
SETTINGS = Settings(actions=ActionSettings(guardrails=acting.LENIENT))
ADMIN = Someone("jane", grants=(Grant(Role.ADMIN),))


def test_a_change_is_verified_when_the_clock_has_passed_its_soak_time(tmp_path: Path) -> None:
    prepared = acting.prepared(tmp_path)
    story = DemoScenario(prepared.inventory, RunResults(prepared.inventory.time_seconds), NOTHING)
    (tmp_path / "cluster").mkdir()
    with DemoCluster(story, SETTINGS, tmp_path / "cluster") as cluster, verified(cluster, prepared.store):
        desk = desk_of(cluster.settings, prepared.store, clock=cluster.clock)
        assert desk is not None
        reviews = desk.review(ADMIN, ChangeRequest(acting.Scene(prepared, cluster.settings).workloads))
        acceptable = tuple(review.workload for review in reviews if not review.error and not review.blocked(()))
        change, *_ = desk.accept(ADMIN, ChangeRequest(acceptable[:1], key="k1"))
        assert change.state is ChangeState.APPLIED
        cluster.course.forward(cluster.clock.now_seconds() + 3600)
        settled = (ChangeState.VERIFIED, ChangeState.REGRESSED, ChangeState.ROLLED_BACK)
        wait_for("a verdict", lambda: desk.changes(ADMIN)[0].state in settled, 120)
