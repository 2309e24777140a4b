"""Accepting on a real API server: guarded, dry-run, exactly once or visibly unknown, reversible, audited."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import ClusterForbidden, ClusterInvalid, NoData, UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import FixedClock, SystemClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger, read_anchored_heads
from cotenant.changes.decide.field_changes import CHANGE_ANNOTATION
from cotenant.changes.decide.review import Review
from cotenant.changes.live_context import who
from cotenant.changes.model.change import ChangeEvent, ChangeState
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import settle, verify
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support.command_line import cotenant

SETTINGS = ActionSettings(soak_minutes=0.0)
TERMS = AcceptanceTerms(overridden=("rollout",), batch="b1")
"""Nothing runs here: no replica is ever ready, so the rule about rollouts is passed over."""
ROOT = Path(__file__).resolve().parents[2]


def deployed(plane: ControlPlane, namespace: str, name: str = "web", cpu: str = "1") -> WorkloadRef:
    """A Deployment whose pods no node takes."""
    labels = {"app": name}
    container = {
        "name": "app",
        "image": "example.invalid/a:1",
        "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "nodeSelector": {"nowhere": "1"}},
        },
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    plane.api().create(path, {"metadata": {"name": name}, "spec": spec})
    wait_for("the first ReplicaSet", lambda: live(plane, namespace, name)["status"].get("observedGeneration"))
    return WorkloadRef(namespace, "Deployment", name)


def live(plane: ControlPlane, namespace: str, name: str = "web") -> dict[str, Any]:
    deployment: dict[str, Any] = plane.api().get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    return deployment


def request_of(plane: ControlPlane, workload: WorkloadRef) -> str:
    body = live(plane, workload.namespace, workload.name)
    cpu: str = body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return cpu


def recommended(workload: WorkloadRef, amount: int = 800) -> Recommendation:
    inputs = {"days": 14.0, "coverage": 1.0}
    value = Value(Resource.CPU, Field.REQUEST, 1000, amount, Action.SET, Reason.OK, inputs=inputs)
    ref = ContainerRef(workload, "app")
    return Recommendation(ref, "cotenant", 1, (value,), 14 * 86_400, "digest", 0, role=ContainerRole.MAIN)


@pytest.fixture
def actions(control_plane: ControlPlane, person: Path, tmp_path: Path) -> Iterator[Actions]:
    client = control_plane.client(person)
    accepting = who(client)
    ledger = Ledger(tmp_path / "ledger.db")
    yield Actions(client, ChangeLedger(ledger, SystemClock(), accepting.name), SETTINGS, accepting)
    ledger.close()


def reviewed(actions: Actions, *recommendations: Recommendation) -> list[Review]:
    return actions.review(recommendations)


def test_accepting_writes_once_notes_it_and_can_be_taken_back(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    (review,) = reviewed(actions, recommended(workload))
    (dry_object,) = actions.dry_run(review)
    assert dry_object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "800m"
    assert request_of(control_plane, workload) == "1"
    (done,) = actions.accept([review], TERMS)
    assert (done.state, done.change.workload) == (ChangeState.APPLIED, str(workload))
    body = live(control_plane, namespace)
    assert request_of(control_plane, workload) == "800m"
    assert body["metadata"]["annotations"][CHANGE_ANNOTATION] == done.change.id
    # Asked again it says that there is nothing left to do.
    assert "already has all proposed values" in reviewed(actions, recommended(workload))[0].error
    back = actions.roll_back(done)
    assert back.state is ChangeState.ROLLED_BACK and request_of(control_plane, workload) == "1"
    events = [(e.event, e.actor) for e in actions.journal.ledger.entries()]
    names = [ChangeEvent.ACCEPTED, ChangeEvent.APPLIED, ChangeEvent.ROLLBACK_ACCEPTED, ChangeEvent.ROLLED_BACK]
    assert events == [(name.value, actions.journal.actor) for name in names] and actions.journal.actor
    assert actions.journal.ledger.verify().wrong_seq is None


def test_a_failed_guardrail_stops_everything_and_is_named(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    (review,) = actions.review([recommended(workload, 200)], overridden=("cpu-step",))
    with pytest.raises(UsageError, match="cpu-step: app is cut by 80 %"):
        actions.accept([review], TERMS)
    assert request_of(control_plane, workload) == "1"
    assert [e.event for e in actions.journal.ledger.entries()] == ["stopped"] and actions.journal.statuses() == {}
    (done,) = actions.accept([review], structs.replace(TERMS, overridden=("rollout", "cpu-step")))
    assert done.change.guardrails["cpu-step"].startswith("overridden: app is cut by 80 %")
    assert (request_of(control_plane, workload), done.change.next_steps) == ("200m", ())


def test_a_large_cut_is_accepted_as_its_first_step_and_the_rest_follows_after_the_cool_down(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    (review,) = reviewed(actions, recommended(workload, 400))
    (done,) = actions.accept([review], TERMS)
    # 1000 x 0.7 = 700 now, 700 x 0.7 = 490 after 24 hours, 400 (above 490 x 0.7 = 343) after 48.
    assert request_of(control_plane, workload) == "700m"
    steps = actions.journal.statuses()[done.change.id].change.next_steps
    assert [(step.now, step.amount) for step in steps] == [(700, 490), (490, 400)]
    hours = [(step.from_seconds - done.accepted_seconds) / 3600 for step in steps]
    assert hours == pytest.approx([24, 48], abs=0.1)
    # The same recommendation, which was scanned before, goes on from what is live; not before its time.
    (later,) = reviewed(actions, recommended(workload, 400))
    assert [(step.now, step.amount) for step in later.next_steps] == [(490, 400)]
    assert [rule.rule for rule in later.blocked(("rollout",))] == ["cool-down"]


def test_what_moved_since_the_review_is_not_overwritten(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    (review,) = reviewed(actions, recommended(workload))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "3"}}}]}}}}
    control_plane.api().patch(path, patch, kind="strategic")
    with pytest.raises(ClusterInvalid, match="test"):
        actions.dry_run(review)
    (done,) = actions.accept([review], TERMS)
    assert (done.state, request_of(control_plane, workload)) == (ChangeState.FAILED, "3")
    assert "test" in done.words


def test_without_the_right_nothing_changes_and_the_ledger_says_so(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    workload = deployed(control_plane, namespace)
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
             {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]}]  # fmt: skip
    role = {"metadata": {"name": "looker"}, "rules": rules}
    control_plane.api().create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles", role)
    binding = {
        "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looker"},
        "subjects": [{"kind": "User", "name": "looker", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    control_plane.api().create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    client = control_plane.client(control_plane.user("looker", []))
    mine = Actions(client, ChangeLedger(Ledger(tmp_path / "l.db"), SystemClock(), "looker"), SETTINGS, who(client))
    wait_for("the right to look", lambda: mine.review([recommended(workload)])[0].error == "")
    (review,) = mine.review([recommended(workload)])
    with pytest.raises(ClusterForbidden):
        mine.dry_run(review)
    (done,) = mine.accept([review], TERMS)
    assert done.state is ChangeState.FAILED and "looker" in done.words
    assert request_of(control_plane, workload) == "1"


@pytest.mark.parametrize("stale", [False, True], ids=["its only write", "behind a write that would fail"])
def test_a_batch_whose_later_wave_we_may_not_write_is_refused_before_anything_is_done(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, stale: bool
) -> None:
    mine, other = deployed(control_plane, namespace), deployed(control_plane, namespace, "other")
    name = f"owner-of-one-{stale}".lower()
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
             {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"], "verbs": ["patch"]},
             {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]}]  # fmt: skip
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.api().create(f"{path}/roles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    control_plane.api().create(f"{path}/rolebindings", binding)
    client = control_plane.client(control_plane.user(name, []))
    acts = Actions(client, ChangeLedger(Ledger(tmp_path / "l.db"), SystemClock(), name), SETTINGS, who(client))
    wait_for("the rights", lambda: acts.review([recommended(mine)])[0].error == "")
    wait_for("the right to write", lambda: acts.dry_run(acts.review([recommended(mine)])[0]))
    first, second = acts.review([recommended(mine), recommended(other)])
    if stale:  # what stands there now is found out when it is sent; the right to what follows is asked for all the same
        failing = replace(first.writes[0], operations=({"op": "test", "path": "/metadata/name", "value": "else"},))
        second = replace(second, writes=(failing, *second.writes))
    # Half of two workloads go first: the other one waits, and would be written by another account.
    with pytest.raises(ClusterForbidden, match="other"):
        acts.accept([first, second], structs.replace(TERMS, canary=0.5))
    assert [request_of(control_plane, ref) for ref in (mine, other)] == ["1", "1"]
    assert acts.journal.statuses() == {}


def test_a_workload_that_is_gone_stops_the_batch_in_words(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    absent = WorkloadRef(namespace, "Deployment", "nobody")
    reviews = reviewed(actions, recommended(workload), recommended(absent))
    assert [bool(r.error) for r in reviews] == [False, True] and "not in the cluster" in reviews[1].error
    with pytest.raises(UsageError, match="not in the cluster any more"):
        actions.accept(reviews, TERMS)
    assert request_of(control_plane, workload) == "1"


def rolled_out(deployment: dict[str, Any]) -> bool:
    """Whether the controller has counted a pod of the present template."""
    status = deployment.get("status", {})
    return (
        status.get("observedGeneration") == deployment["metadata"]["generation"] and status.get("updatedReplicas") == 1
    )


def test_harm_after_the_change_is_a_regression(control_plane: ControlPlane, namespace: str, actions: Actions) -> None:
    workload = deployed(control_plane, namespace)
    (done,) = actions.accept(reviewed(actions, recommended(workload)), TERMS)
    soaking = Actions(actions.client, actions.journal, ActionSettings(soak_minutes=30), who(actions.client))
    with pytest.raises(NoData, match=r"ends in (29|30) min"):
        verify(soaking, done)
    # Before the controller has made a pod of the new template there is no verdict.
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    wait_for("it rolls out", lambda: rolled_out(control_plane.api().get(path)))
    judged = verify(actions, done)
    # None of its replicas ever became ready.
    assert (judged.state, judged.words) == (ChangeState.REGRESSED, "0 of 1 replicas are ready")
    assert actions.roll_back(judged).state is ChangeState.ROLLED_BACK
    assert request_of(control_plane, workload) == "1"


def test_rolling_back_over_somebody_else_s_change_is_refused(
    control_plane: ControlPlane, namespace: str, actions: Actions
) -> None:
    workload = deployed(control_plane, namespace)
    (done,) = actions.accept(reviewed(actions, recommended(workload)), TERMS)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "5"}}}]}}}}
    control_plane.api().patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/web", patch, kind="strategic")
    back = actions.roll_back(done)
    assert back.state is ChangeState.APPLIED and "no longer has the value that was applied" in back.words
    assert request_of(control_plane, workload) == "5"


def test_the_head_kept_in_the_cluster_finds_a_cut_ledger(
    control_plane: ControlPlane, namespace: str, actions: Actions, tmp_path: Path
) -> None:
    workload = deployed(control_plane, namespace)
    actions = actions.having(anchor_namespace=namespace)
    actions.accept(reviewed(actions, recommended(workload)), TERMS)
    head = read_anchored_heads(actions.client, actions.journal.ledger, namespace).head
    assert head is not None and head.seq == 2
    assert actions.journal.ledger.verify(head).wrong_seq is None
    shutil.copy(Path(actions.journal.ledger.path).with_suffix(".key"), tmp_path / "cut.key")
    cut = Ledger(tmp_path / "cut.db")  # the same key, and none of the rows
    assert cut.verify(read_anchored_heads(actions.client, cut, namespace).head).why.startswith(
        "ledger rows 1 to 2 are missing"
    )


KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from cotenant.changes.accept import AcceptanceTerms, ActionParts, Actions
from cotenant.changes.live_context import who
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.base.process.clock import SystemClock
from cotenant.base.kube import connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.changes.model.settings import ActionSettings
from cotenant.base.settings.sections import KubeSettings

kubeconfig, ledger, point, back, found = sys.argv[1:]
client = connect(KubeSettings(kubeconfig=kubeconfig))
def reached(name):
    if name == point:
        os.kill(os.getpid(), signal.SIGKILL)
journal = ChangeLedger(Ledger(Path(ledger)), SystemClock(), "ann")
actions = Actions(client, journal, ActionSettings(soak_minutes=0), who(client), ActionParts(reached=reached))
reviews = actions.review([msgspec.json.decode(found, type=Recommendation)])
done = actions.accept(reviews, AcceptanceTerms(overridden=("rollout",)))
if back == "yes":
    actions.roll_back(done[0])
"""


@pytest.mark.parametrize(
    ("point", "back", "becomes", "cpu"),
    [
        ("accepted", "no", ChangeState.FAILED, "1"),
        ("sent", "no", ChangeState.APPLIED, "800m"),
        ("told", "no", ChangeState.APPLIED, "800m"),
        ("rollback-accepted", "yes", ChangeState.APPLIED, "800m"),
        ("rollback-sent", "yes", ChangeState.ROLLED_BACK, "1"),
    ],
)
def test_a_kill_at_each_named_point_loses_and_doubles_nothing(
    control_plane: ControlPlane, namespace: str, person: Path, tmp_path: Path, point: str, back: str,
    becomes: ChangeState, cpu: str,
) -> None:  # fmt: skip
    workload = deployed(control_plane, namespace)
    text = msgspec.json.encode(recommended(workload)).decode()
    arguments = [str(person), str(tmp_path / "l.db"), point, back, text]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    generation = live(control_plane, namespace)["metadata"]["generation"]
    client = control_plane.client(person)
    journal = ChangeLedger(Ledger(tmp_path / "l.db"), SystemClock(), "bob")
    (before,) = journal.statuses().values()
    assert before.state.settled is (point == "told")
    after = Actions(client, journal, SETTINGS, who(client))
    settle(after)
    (status,) = journal.statuses().values()
    assert (status.state, request_of(control_plane, workload)) == (becomes, cpu)
    # Settling read and wrote nothing to the workload: what was done was done once.
    assert live(control_plane, namespace)["metadata"]["generation"] == generation
    assert journal.ledger.verify().wrong_seq is None


def test_the_commands_tell_the_whole_story(
    control_plane: ControlPlane, namespace: str, person: Path, tmp_path: Path
) -> None:
    workload = deployed(control_plane, namespace)
    ledger = Ledger(tmp_path / "l.db")
    client = control_plane.client(person)
    own_actions = Actions(client, ChangeLedger(ledger, SystemClock(), who(client).name), SETTINGS, who(client))
    (done,) = own_actions.accept(reviewed(own_actions, recommended(workload)), TERMS)
    ledger.close()
    sets = ["--set", f"actions.ledger={tmp_path / 'l.db'}", "--set", f"manager.namespace={namespace}"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return cotenant(*sets, *arguments)

    rows = json.loads(run("recs", "changes", "-o", "json").stdout)
    assert [(r["change"], r["state"], r["workload"]) for r in rows] == [(done.change.id, "applied", "web")]
    back = run("recs", "rollback", done.change.id[:6], "--kubeconfig", str(person), "-o", "json", "--yes")
    assert back.returncode == 0, back.stderr
    assert json.loads(back.stdout)[0]["state"] == "rolled-back" and request_of(control_plane, workload) == "1"
    checked = run("audit", "verify", "--kubeconfig", str(person))
    text = f"4 rows of ledger {ledger.id} are unchanged, and row 4 matches the head that the cluster stores\n"
    assert checked.stdout == text
    exported = json.loads(run("audit", "export", "-o", "json").stdout)
    assert [e["event"] for e in exported] == ["accepted", "applied", "rollback-accepted", "rolled-back"]


def test_a_clock_that_stands_still_keeps_the_order(actions: Actions) -> None:
    journal = ChangeLedger(actions.journal.ledger, FixedClock(1000.0), "ann")
    assert journal.statuses() == {} and journal.ledger.head().seq == 0
