"""Changes that are no longer in force: somebody set the values back, or the workload or its namespace is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.errors import ClusterForbidden
from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.live_context import who
from cotenant.changes.model.change import ChangeState, change_savings
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import settle, verify
from tests.changes.conftest import Make
from tests.changes.test_watching import Watched, settled
from tests.changes.world import Kubelet, created, deployed, live, recommended
from tests.cluster.accounts import applier
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

TERMS = AcceptanceTerms(overridden=("cool-down", "webhook", "node-fit", "rollout"))
HOUR = 3600.0
LATER = ShiftedClock(10.0)
"""Past the time in which a request of the dead may still be on its way."""
Way = Callable[[Api, str, dict[str, Any]], None]
REQUEST = "/spec/template/spec/containers/0/resources/requests/cpu"


def set_back(api: Api, path: str, _body: dict[str, Any]) -> None:
    """As `kubectl rollout undo` does."""
    api.patch(path, [{"op": "replace", "path": REQUEST, "value": "1"}], kind="json", fieldManager="kubectl-rollout")


def applied_again(api: Api, path: str, body: dict[str, Any]) -> None:
    """As a GitOps tool does from its repository."""
    manifest = {key: body[key] for key in ("apiVersion", "kind", "spec")}
    manifest["metadata"] = {"name": body["metadata"]["name"]}
    api.patch(path, manifest, kind="apply", fieldManager="argocd-controller", force="true")


def deleted(api: Api, path: str, _body: dict[str, Any]) -> None:
    api.delete(path)
    wait_for("the workload is gone", lambda: not api.exists(path))


def created_again(api: Api, path: str, body: dict[str, Any]) -> None:
    deleted(api, path, body)
    meta = {"name": body["metadata"]["name"]}
    api.create(path.rpartition("/")[0], {"metadata": meta, "spec": body["spec"]})


WAYS: dict[str, tuple[Way, str]] = {
    "undo": (set_back, "kubectl-rollout changed deployments/{0}: app requests.cpu is now 1, but 800m was written"),
    "gitops": (
        applied_again,
        "argocd-controller changed deployments/{0}: app requests.cpu is now 1, but 800m was written",
    ),
    "deletion": (deleted, "deployments/{0} was deleted"),
    "another": (created_again, "deployments/{0} was deleted and created again under the same name"),
}


def spec_and_marks(plane: ControlPlane, workload: WorkloadRef) -> Any:
    """What people write and our marks; the status and the revision are the controllers' own."""
    body = live(plane, workload)
    marks = [body["metadata"].get(kind) or {} for kind in ("annotations", "labels")]
    return body["spec"], [{key: value for key, value in fields.items() if "cotenant" in key} for fields in marks]


def accept(actions: Actions, workload: WorkloadRef) -> Any:
    (status,) = actions.accept(actions.review([recommended(workload)]), TERMS)
    assert status.state is ChangeState.APPLIED
    return status


@pytest.mark.cluster
@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_there_any_more_is_no_saving_and_says_who_changed_it(
    control_plane: ControlPlane, namespace: str, make: Make, way: str
) -> None:
    workload, actions = created(control_plane, namespace, "web", 0), make(LATER)
    before = live(control_plane, workload)
    status = accept(actions, workload)
    act, sentence = WAYS[way]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    act(control_plane.api(), path, {**before, "apiVersion": "apps/v1", "kind": "Deployment"})
    gone_status = verify(actions, status)
    assert gone_status.state is ChangeState.GONE
    assert gone_status.words.startswith(sentence.format(f"{namespace}/web"))
    savings = change_savings(list(actions.journal.statuses().values()))
    assert savings.in_force == savings.verified == change_savings([]).verified


@pytest.mark.cluster
def test_a_verified_change_that_is_set_back_a_week_later_is_found_and_nothing_is_written(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make
) -> None:
    workload = deployed(control_plane, namespace, "web", 1, nodeSelector={"test/own": kubelet.node})
    watched = Watched(make)
    accept(watched.actions(), workload)
    settled(control_plane, workload)
    assert watched.step(HOUR) == [("web", ChangeState.VERIFIED)] == watched.step(25 * HOUR)
    assert watched.step(200 * HOUR) == [] and watched.news == []
    set_back(control_plane.api(), f"/apis/apps/v1/namespaces/{namespace}/deployments/web", {})
    settled(control_plane, workload)
    before = spec_and_marks(control_plane, workload)
    assert watched.step(201 * HOUR) == [("web", ChangeState.GONE)] and watched.step(300 * HOUR) == []
    assert spec_and_marks(control_plane, workload) == before
    (news,) = watched.news
    assert news.title.endswith("is no longer in force") and "kubectl-rollout changed" in news.words and not news.bad


@pytest.mark.cluster
@pytest.mark.parametrize("looks", [True, False])
def test_a_deleted_namespace_ends_every_change_in_it_with_a_reason(
    control_plane: ControlPlane, tmp_path: Path, looks: bool
) -> None:
    """The person's rights are bound in the namespace, and are gone with it."""
    api, namespace = control_plane.api(), unique_name("ends")
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    name = unique_name("bea")
    client = control_plane.client(applier(control_plane, namespace, name, heads_in="default"))
    ledger = Ledger(tmp_path / "ledger.db")
    journal = ChangeLedger(ledger, LATER, name)
    actions = Actions(client, journal, ActionSettings(soak_minutes=0.0), who(client))
    done, sent = created(control_plane, namespace, "done", 0), created(control_plane, namespace, "sent", 0)
    applied = accept(actions, done)
    # What a process leaves that ended between the ledger's row and the request.
    (review,) = actions.review([recommended(sent)])
    actions.events.accept(actions._changes([review], TERMS))
    if not looks:
        role = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cotenant-applier-looks-{name}"
        api.delete(role)
        wait_for("the right is gone", lambda: _is_forbidden(actions, f"/api/v1/namespaces/{namespace}"))
    rows = len(list(ledger.entries()))
    api.delete(f"/api/v1/namespaces/{namespace}")
    wait_for("the namespace is gone", lambda: not api.exists(f"/api/v1/namespaces/{namespace}"))
    wait_for("the right is gone", lambda: _is_forbidden(actions, f"/api/v1/namespaces/{namespace}/pods"))
    settled = {status.change.name: status for status in settle(actions)}
    if looks:
        assert settled["sent"].state is ChangeState.GONE
        assert settled["sent"].words.startswith(f"deployments/{namespace}/sent was deleted before it was known")
        assert verify(actions, applied).state is ChangeState.GONE
        assert {status.state for status in journal.statuses().values()} == {ChangeState.GONE}
        assert len(list(ledger.entries())) == rows + 2
    else:
        # Nobody who may read neither the namespace nor what was in it can say that it is gone.
        assert settled["sent"].state is ChangeState.UNKNOWN and "cannot get deployments.apps" in settled["sent"].words
        with pytest.raises(ClusterForbidden):
            verify(actions, applied)
        assert len(list(ledger.entries())) == rows
    ledger.close()
    client.close()


def _is_forbidden(actions: Actions, path: str) -> bool:
    try:
        actions.client.get(path)
    except ClusterForbidden:
        return True
    return False
