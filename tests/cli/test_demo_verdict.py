"""The demo verifies what was accepted by itself, when its clock has passed the soak time, and rolls harm back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.decide.regression_check import Measure
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.model.settings import ActionSettings
from cotenant.manager.decisions.results import RunResults
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.settings import Settings
from cotenant_lab.demo.live_cluster import run_demo_verification
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.simulation.objects import workload_label
from cotenant_lab.simulation.usage_now import Curves
from tests.cluster.waiting import wait_for
from tests.support import acting

pytestmark = pytest.mark.server
SETTINGS = Settings(actions=ActionSettings(guardrails=acting.LENIENT))
ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))


def test_changes_are_verified_by_the_demos_measures_and_the_harmful_one_is_rolled_back(tmp_path: Path) -> None:
    prepared = acting.prepared(tmp_path)
    rows = prepared.store.read_table(RECOMMENDATIONS).rows()
    cuts = [row for row in rows if row["kind"] in ("Deployment", "StatefulSet") and (row["cpu_delta_total"] or 0) < 0]
    refs = (WorkloadRef(row["namespace"], row["kind"], row["workload"]) for row in cuts)
    harmful, harmless, *_ = dict.fromkeys(refs)
    rows_of = {(ref.namespace, workload_label(ref)): i for i, ref in enumerate((harmful, harmless))}
    # Both use next to nothing in the history: only bursts that it does not show can be cut off.
    shape = Curves(rows_of, TimeGrid(0, 300, 288), {resource: np.ones((2, 288)) for resource in Resource})
    story = DemoScenario(
        prepared.inventory, RunResults(prepared.inventory.time_seconds), NOTHING, curves=shape,
        bursting=(harmful.namespace, harmful.name),
    )  # fmt: skip
    (tmp_path / "cluster").mkdir()
    with DemoCluster(story, SETTINGS, tmp_path / "cluster") as cluster, run_demo_verification(cluster, prepared.store):
        service = change_service_of(
            cluster.settings, prepared.store, clock=cluster.clock, comparison=cluster.comparison
        )
        accepted = service.accept(ADMIN, ChangeRequest((harmful, harmless), key="k1"))
        assert {change.state for change in accepted} == {ChangeState.APPLIED}
        cluster.course.forward(cluster.clock.now_seconds() + 3600)

        def states() -> dict[str, ChangeState]:
            return {change_status.change.name: change_status.state for change_status in service.changes(ADMIN)}

        expected = {harmful.name: ChangeState.ROLLED_BACK, harmless.name: ChangeState.VERIFIED}
        wait_for("both verdicts", lambda: states() == expected, 120)
        # It is said once the step that rolled it back has ended, a moment after the ledger has it.
        wait_for("the news", lambda: [harmful.name in text for text in cluster.course.told()] == [True])
        change_words = {change_status.change.name: change_status.words for change_status in service.changes(ADMIN)}
        with closing(Ledger(Path(cluster.settings.actions.ledger), reading=True)) as ledger:
            regressed = [row.body for row in ledger.entries() if row.event == "regressed"]
    assert len(regressed) == 1 and Measure.LATENCY in regressed[0]
    # The demo has no query of failed requests.
    measured = [measure for measure in Measure if measure is not Measure.ERRORS]
    assert all(measure in change_words[harmless.name] for measure in measured)
