"""The manager's controller of ladders on a real API server, with the rights of its own account and under its Lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.autopilot.ladder_controller import LadderController, ladder_controller
from cotenant.base.controllers.loop import AlwaysLeads, NoElection
from cotenant.base.errors import NotLeader
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.reasons import Reason
from cotenant.base.store import Store
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.live_context import who
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.ladder import LadderState, LadderStatus
from cotenant.changes.soak.ladder_acts import go_back, stop_ladder
from cotenant.recommender import stored_recommendations
from cotenant.settings import Settings
from tests.changes.test_watching import settled
from tests.changes.world import Kubelet, deployed, own_node, recommended, template
from tests.cluster.accounts import account, applier
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
HOUR, DAY = 3600.0, 86_400.0
ANN = Person("ann", grants=(Grant(Role.OWNER),))


@pytest.fixture(scope="module")
def kubelet(control_plane: ControlPlane) -> Iterator[Kubelet]:
    with own_node(control_plane, unique_name("ladder")) as node:
        yield node


class Managed:
    """A ladder that a person accepted, and the manager's controller on the same ledger and results."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, kubelet: Kubelet) -> None:
        self.plane, self.namespace = plane, namespace
        self.workload = deployed(plane, namespace, "web", 1, nodeSelector={"test/own": kubelet.node})
        self.person = plane.client(applier(plane, namespace))
        self.manager = plane.client(account(plane, "cotenant-manager"))
        document = {
            "actions": {"ledger": str(folder / "ledger.db"), "soak_minutes": 30.0, "anchor": False},
            "store": {"url": folder.as_uri()},
        }
        self.settings = msgspec.convert(document, Settings)
        self.store = Store(folder.as_uri(), "c")
        self.ledger = Ledger(folder / "ledger.db")

    def actions(self, client: KubeClient, ahead_seconds: float = 0.0) -> Actions:
        person = who(client)
        journal = ChangeLedger(self.ledger, ShiftedClock(ahead_seconds), person.name)
        return Actions(client, journal, self.settings.actions, person)

    def accept(self) -> None:
        actions = self.actions(self.person)
        actions.accept(actions.review([recommended(self.workload, 500)]), AcceptanceTerms(ladder=True))

    def bind(self) -> None:
        """Let the manager change workloads of the namespace, as docs/autopilot.md says."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/rolebindings"
        subject = {"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"}
        reference = {"kind": "ClusterRole", "name": "cotenant-applier", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "cotenant-autopilot"}, "subjects": [subject], "roleRef": reference}
        self.plane.api().create(path, body)

    def controller(self, ahead_seconds: float, leads: bool = True) -> LadderController:
        now = SystemClock().now_seconds() + ahead_seconds
        fresh = replace(recommended(self.workload, 500), end_seconds=int(now))
        stored_recommendations.write(self.store, [fresh])
        leadership: Any = AlwaysLeads() if leads else NoElection()
        return ladder_controller(self.manager, self.settings, "c", leadership, ShiftedClock(ahead_seconds))

    def round(self, ahead_seconds: float) -> None:
        settled(self.plane, self.workload)
        self.controller(ahead_seconds).sent(())

    def status(self) -> LadderStatus:
        (ladder_status,) = self.actions(self.person).journal.ladders().values()
        return ladder_status

    def cpu(self) -> str:
        text: str = template(self.plane, self.workload)["requests"]["cpu"]
        return text

    def close(self) -> None:
        self.ledger.close()
        self.person.close()
        self.manager.close()


@pytest.fixture
def managed(control_plane: ControlPlane, namespace: str, tmp_path: Path, kubelet: Kubelet) -> Iterator[Managed]:
    managed_cluster = Managed(control_plane, namespace, tmp_path, kubelet)
    yield managed_cluster
    managed_cluster.close()


def test_the_manager_judges_a_persons_first_step_and_takes_the_others(managed: Managed) -> None:
    managed.bind()
    managed.accept()  # 1000 -> 700 -> 500: of 30 % at most
    assert managed.cpu() == "700m"
    managed.round(HOUR)
    assert managed.cpu() == "700m"
    managed.round(DAY + HOUR)
    assert managed.cpu() == "500m"
    managed.round(DAY + 2 * HOUR)
    managed.round(2 * DAY + 3 * HOUR)
    assert managed.status().state is LadderState.DONE
    first, second = managed.actions(managed.person).journal.statuses().values()
    # The person accepted the whole; the second step was written by the manager's account, and the ledger says so.
    assert managed.status().ladder.actor == first.change.actor
    assert second.change.actor == "system:serviceaccount:cotenant:cotenant-manager"
    assert [change_status.state for change_status in (first, second)] == [ChangeState.VERIFIED] * 2


def test_without_the_right_in_the_namespace_it_waits_and_names_the_right(managed: Managed) -> None:
    managed.accept()
    # The first step is judged by somebody who may: a person's watcher.
    from cotenant.changes.soak.reconcile import verify

    settled(managed.plane, managed.workload)
    for ahead in (HOUR, DAY + HOUR):
        actions = managed.actions(managed.person, ahead)
        (status,) = actions.journal.statuses().values()
        verify(actions, status)
    managed.round(DAY + 2 * HOUR)
    ladder_status = managed.status()
    assert (ladder_status.state, ladder_status.reason) == (LadderState.UNDER_WAY, Reason.LADDER_REFUSED)
    assert "cotenant-manager" in ladder_status.words and managed.cpu() == "700m"
    managed.bind()
    managed.round(DAY + 3 * HOUR)
    assert managed.cpu() == "500m"


def test_a_manager_without_the_lease_writes_nothing(managed: Managed) -> None:
    managed.bind()
    managed.accept()
    managed.round(HOUR)
    settled(managed.plane, managed.workload)
    with pytest.raises(NotLeader):
        managed.controller(DAY + HOUR, leads=False).sent(())
    assert managed.cpu() == "700m"


def test_a_person_stops_it_or_goes_back_and_the_manager_takes_no_further_step(managed: Managed) -> None:
    managed.bind()
    managed.accept()
    managed.round(HOUR)
    managed.round(DAY + HOUR)
    assert managed.cpu() == "500m"
    settled(managed.plane, managed.workload)
    actions = managed.actions(managed.person)
    (back,) = go_back(actions, ANN, managed.status().ladder.id, 1)
    assert (back.state, managed.cpu()) == (ChangeState.ROLLED_BACK, "700m")
    settled(managed.plane, managed.workload)
    (first,) = go_back(managed.actions(managed.person), ANN, managed.status().ladder.id, 0)
    assert (first.state, managed.cpu()) == (ChangeState.ROLLED_BACK, "1")
    managed.round(2 * DAY)
    ladder_status = managed.status()
    assert (ladder_status.state, ladder_status.reason, managed.cpu()) == (
        LadderState.STOPPED,
        Reason.LADDER_PERSON,
        "1",
    )


def test_a_stopped_ladder_keeps_what_was_taken(managed: Managed) -> None:
    managed.bind()
    managed.accept()
    stop_ladder(managed.actions(managed.person), ANN, managed.status().ladder.id[:6], "enough")
    managed.round(HOUR)
    managed.round(DAY + HOUR)
    assert managed.cpu() == "700m" and managed.status().words.endswith(": enough")
