"""The demo verifies what was accepted by itself, when its clock has passed the soak time, and rolls harm back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from changes.decide.regression_check import Measure
from cotenant.apps.cli.changes.change_service import change_service_of
from cotenant.apps.cli.demo.live_cluster import verified
from cotenant.apps.manager.decisions.results import RunResults
from cotenant.apps.simulation.cluster import DemoCluster, DemoScenario
from cotenant.apps.simulation.controllers.autoscaler import NOTHING
from cotenant.apps.simulation.objects import workload_label
from cotenant.apps.simulation.usage_now import Curves
from cotenant.core.adapters.ledger import Ledger
from cotenant.core.model.changes.change import ChangeState
from cotenant.core.model.changes.people import Grant, Person, Role
from cotenant.core.model.changes.service import ChangeRequest
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.usage import TimeGrid
from cotenant.core.model.views import RECOMMENDATIONS
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.actions import ActionSettings
from tests.cluster.waiting import wait_for
from tests.support import acting

pytestmark = [pytest.mark.slow, pytest.mark.server]
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
    with DemoCluster(story, SETTINGS, tmp_path / "cluster") as cluster, verified(cluster, prepared.store):
        service = change_service_of(
            cluster.settings, prepared.store, clock=cluster.clock, comparison=cluster.comparison
        )
        accepted = service.accept(ADMIN, ChangeRequest((harmful, harmless), key="k1"))
        assert {change.state for change in accepted} == {ChangeState.APPLIED}
        cluster.course.forward(cluster.clock.now_seconds() + 3600)

        def states() -> dict[str, ChangeState]:
            return {one.change.name: one.state for one in service.changes(ADMIN)}

        expected = {harmful.name: ChangeState.ROLLED_BACK, harmless.name: ChangeState.VERIFIED}
        wait_for("both verdicts", lambda: states() == expected, 120)
        # It is said once the step that rolled it back has ended, a moment after the ledger has it.
        wait_for("the news", lambda: [harmful.name in text for text in cluster.course.told()] == [True])
        words = {one.change.name: one.words for one in service.changes(ADMIN)}
        with closing(Ledger(Path(cluster.settings.actions.ledger), reading=True)) as ledger:
            regressed = [row.body for row in ledger.entries() if row.event == "regressed"]
    assert len(regressed) == 1 and Measure.LATENCY in regressed[0]
    assert all(measure in words[harmless.name] for measure in Measure)
