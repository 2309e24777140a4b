"""kill -9 at every named gap of each method: settled by reading the cluster, nothing lost, nothing done twice."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import ShiftedClock
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.live_context import who
from cotenant.changes.model.annotated_resources import RESOURCES_ANNOTATION
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import Method
from cotenant.changes.soak.reconcile import settle
from tests.changes.conftest import Make
from tests.changes.dying import Where, acting, killed
from tests.changes.world import Kubelet, cpus, deployed, live, recommended
from tests.cluster.accounts import applier
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import create_namespace, unique_name

LATER = ShiftedClock(10.0)
"""Past the time in which a request of the dead may still be on its way."""
SETTINGS = {"soak_minutes": 0.0, "resize_seconds": 20.0}


@pytest.mark.parametrize(
    ("method", "gap", "becomes"),
    [
        (Method.IN_PLACE, "accepted", ChangeState.FAILED),
        # The first pod only: what was done by half is taken back.
        (Method.IN_PLACE, "sent", ChangeState.FAILED),
        (Method.IN_PLACE, "answered", ChangeState.APPLIED),
        (Method.IN_PLACE, "told", ChangeState.APPLIED),
        (Method.IN_PLACE, "judged", ChangeState.VERIFIED),
        (Method.IN_PLACE, "rollback-accepted", ChangeState.APPLIED),
        # One pod is back: the rest goes after it.
        (Method.IN_PLACE, "rollback-sent", ChangeState.ROLLED_BACK),
        (Method.ANNOTATE, "accepted", ChangeState.FAILED),
        (Method.ANNOTATE, "sent", ChangeState.APPLIED),
        (Method.ANNOTATE, "rollback-accepted", ChangeState.APPLIED),
        (Method.ANNOTATE, "rollback-sent", ChangeState.ROLLED_BACK),
    ],
)
def test_a_kill_in_a_gap_is_settled_by_what_the_cluster_holds(  # noqa: PLR0917
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make, person: Path, tmp_path: Path,
    method: Method, gap: str, becomes: ChangeState,
) -> None:  # fmt: skip
    workload = deployed(control_plane, namespace, nodeSelector={"test/own": kubelet.node})
    where = Where(str(person), tmp_path / "ledger.db", gap, SETTINGS)
    killed(acting, where, workload, method, 800)
    actions = make(LATER)
    settle(actions)
    (status,) = actions.journal.statuses().values()
    assert status.state is becomes
    noted = RESOURCES_ANNOTATION in (live(control_plane, workload)["metadata"].get("annotations") or {})
    resized = status.state.in_force and method is Method.IN_PLACE
    assert cpus(control_plane, workload) == (["800m", "800m"] if resized else ["1", "1"])
    assert noted is status.state.in_force and actions.journal.ledger.verify().wrong_seq is None


@pytest.mark.parametrize("gap", ["answered", "taken-back"])
def test_a_kill_after_a_node_has_refused_is_settled_as_refused(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make, person: Path, tmp_path: Path, gap: str
) -> None:
    workload = deployed(control_plane, namespace, nodeSelector={"test/own": kubelet.node})
    kubelet.says = "Infeasible"
    where = Where(str(person), tmp_path / "ledger.db", gap, SETTINGS)
    killed(acting, where, workload, Method.IN_PLACE, 3000)
    actions = make(LATER, resize_seconds=20.0)
    settle(actions)
    (status,) = actions.journal.statuses().values()
    assert status.state is ChangeState.FAILED
    assert cpus(control_plane, workload) == ["1", "1"]


def test_a_change_that_may_not_be_read_says_so_and_the_next_one_is_settled(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make
) -> None:
    own: dict[str, Any] = {"nodeSelector": {"test/own": kubelet.node}}
    other = create_namespace(control_plane.api(), unique_name("other"))
    first_actions = make()
    begin_and_stop(first_actions, deployed(control_plane, namespace, "web", **own))
    with closing(control_plane.client(applier(control_plane, other, "ben"))) as client:
        begin_and_stop(
            Actions(client, first_actions.journal, first_actions.settings, who(client)),
            deployed(control_plane, other, "web", **own),
        )
    begin_and_stop(first_actions, deployed(control_plane, namespace, "next", **own))
    before, hidden, after = settle(make(LATER))
    assert (
        hidden.state is ChangeState.UNKNOWN
        and f'User "ann" cannot get resource "deployments" in API group "apps" in the namespace "{other}"'
        in hidden.words
    )
    assert {(s.state, s.words) for s in (before, after)} == {(ChangeState.FAILED, "no write reached the cluster")}


def begin_and_stop(actions: Actions, workload: WorkloadRef) -> None:
    """Accept a recommendation for the workload, and end after the ledger's row, before the first write."""

    def stop(point: str) -> None:
        if point == "accepted":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        actions.having(reached=stop).accept(
            actions.review([recommended(workload)]), AcceptanceTerms(overridden=("cool-down",))
        )
