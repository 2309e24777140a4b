"""Moves through the service: who may, what is written, what the ledger says, what can be undone, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import ClusterConflict, ClusterForbidden, NoData, UsageError
from cotenant.base.kube import Writer, connect
from cotenant.base.kubernetes.intent import Delete
from cotenant.base.people import NotAllowed, Role
from cotenant.base.process.shipped_manifests import deploy
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import name_of
from cotenant.scheduler_ext.rebalance.model.move_service import ENABLE_COMMAND, FEATURE, MoveEvent, namespace_of
from cotenant.scheduler_ext.rebalance.moves.jobs import carrier_of, job_row, withdraw_job
from cotenant_lab.simulation.api_server.rights import AccessRule, Account
from tests.support import moves
from tests.support.moves import APPROVER, COLD, HOT, JOB_BODIES, VIEWER, MoveScene, job, narrowed
from tests.support.plans import person


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MoveScene]:
    with moves.embedded(tmp_path) as move_scene:
        yield move_scene


def planned(cluster: MoveScene) -> list[str]:
    """Pods that the round moves: two, because of five replicas two may be away at once."""
    rows = cluster.service().report(VIEWER).moves.rows()
    return [row["pod"] for row in rows if row["decision"] == "move"]


# ---- on a server


@pytest.mark.server
def test_an_approved_move_is_a_job_and_the_ledger_has_it_before_and_after(cluster: MoveScene) -> None:
    pod = planned(cluster)[0]
    (outcome,) = cluster.service().approve(APPROVER, [pod], "sale tonight")
    assert (outcome.error, outcome.pod) == ("", pod)
    (migration_job,) = cluster.jobs()
    namespace, _, name = pod.partition("/")
    uid = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["uid"]
    assert migration_job["metadata"]["name"] == outcome.job == name_of(namespace, name, uid)
    assert migration_job["spec"]["mode"] == "ReservationFirst" and migration_job["spec"]["podRef"]["uid"] == uid
    row = job_row(migration_job)
    assert (row["pod"], row["source"], row["target"], row["by"]) == (pod, HOT, COLD, "ann")
    assert cluster.events() == [("move-asked", "ann", pod), ("move-approved", "ann", pod)]
    document = json.loads(cluster.rows()[0].body)
    assert document["sent"] == {**document["sent"], "kind": "PodMigrationJob"} and "sale tonight" in document["words"]
    history = cluster.service().history(VIEWER)
    assert [entry.event for entry in history] == [MoveEvent.APPROVED, MoveEvent.ASKED]


@pytest.mark.server
def test_a_dry_run_leaves_no_job_and_no_row(cluster: MoveScene) -> None:
    pods = planned(cluster)
    outcomes = cluster.service().preview(APPROVER, [*pods, "shop/other"])
    assert [outcome.error for outcome in outcomes[:-1]] == [""] * len(pods) and len(pods) == 2
    assert "shop/other is no longer planned" in outcomes[-1].error
    assert (cluster.jobs(), cluster.rows()) == ([], [])


@pytest.mark.server
def test_a_second_approval_makes_no_second_job_and_one_refusal_leaves_the_others(cluster: MoveScene) -> None:
    service, (first, second) = cluster.service(), planned(cluster)
    service.approve(APPROVER, [first])
    again = service.approve(APPROVER, [first, second])
    assert f"is already moving pod {first}" in again[0].error and not again[1].error
    assert len(cluster.jobs()) == 2
    cluster.say(again[1].job, "Failed", reason="Unschedulable")
    # the failed one stays as a record; who approves the pod again gets a further job
    (further,) = service.approve(APPROVER, [second])
    assert (further.error, further.job) == ("", f"{again[1].job}-2")
    assert [event for event, _, pod in cluster.events() if pod == second][-2:] == ["move-asked", "move-approved"]


@pytest.mark.server
def test_a_pod_that_left_its_node_is_not_moved(cluster: MoveScene) -> None:
    service, pod = cluster.service(), planned(cluster)[0]
    service.report(VIEWER)  # the round that the person looked at
    cluster.api.delete(f"/api/v1/namespaces/shop/pods/{pod.partition('/')[2]}", gracePeriodSeconds="0")
    (outcome,) = service.approve(APPROVER, [pod])
    assert outcome.error == f"pod {pod} is no longer on node {HOT}" and cluster.jobs() == []
    assert [event for event, _, _ in cluster.events()] == ["move-refused"]


@pytest.mark.server
def test_nothing_is_approved_while_nobody_carries_it_out(cluster: MoveScene) -> None:
    pod = planned(cluster)[0]
    cluster.carried("DryRun")
    with pytest.raises(UsageError, match="dry run") as refusal:
        cluster.service().approve(APPROVER, [pod])
    assert refusal.value.fix == ENABLE_COMMAND
    assert (cluster.jobs(), cluster.rows()) == ([], [])


@pytest.mark.server
@pytest.mark.parametrize("who", [person(Role.VIEWER), person(Role.OWNER), narrowed(APPROVER, "pay")])
def test_moves_are_approved_by_approvers_of_the_namespace_alone(cluster: MoveScene, who: moves.Person) -> None:
    service, pod = cluster.service(), planned(cluster)[0]
    service.approve(APPROVER, [pod])
    rows, name = cluster.rows(), cluster.jobs()[0]["metadata"]["name"]
    for act in (lambda: service.preview(who, [pod]), lambda: service.approve(who, [pod])):
        with pytest.raises(NotAllowed, match="may not approve"):
            act()
    # Whoever does not read the pod's namespace is not told that the job exists: a refusal would name the namespace.
    reads = who.reads is None
    with pytest.raises(NotAllowed if reads else NoData, match="may not approve" if reads else "not exist") as refused:
        service.withdraw(who, name)
    assert reads or namespace_of(pod) not in refused.value.message.replace(name, "")
    assert len(cluster.jobs()) == 1 and cluster.rows() == rows


@pytest.mark.server
def test_a_job_is_withdrawn_while_it_is_pending_and_not_later(cluster: MoveScene) -> None:
    service, (first, second) = cluster.service(), planned(cluster)
    outcomes = service.approve(APPROVER, [first, second])
    service.withdraw(APPROVER, outcomes[0].job, "not today")
    assert [left_job["metadata"]["name"] for left_job in cluster.jobs()] == [outcomes[1].job]
    assert cluster.events()[-1] == ("move-withdrawn", "ann", first)
    cluster.say(outcomes[1].job, "Running")
    with pytest.raises(UsageError, match="is Running; only"):
        service.withdraw(APPROVER, outcomes[1].job)
    with pytest.raises(NoData, match="does not exist"):
        service.withdraw(APPROVER, outcomes[0].job)
    assert len(cluster.jobs()) == 1


@pytest.mark.server
def test_a_job_that_went_on_since_we_looked_is_not_deleted(cluster: MoveScene) -> None:
    (outcome,) = cluster.service().approve(APPROVER, planned(cluster)[:1])
    (looked_at,) = cluster.jobs()
    cluster.say(outcome.job, "Running")
    intent = withdraw_job(looked_at)
    client = connect(cluster.settings.kube)
    try:
        with pytest.raises(ClusterConflict):
            Writer(client, "test").send(intent)
    finally:
        client.close()
    assert [job_row(left_job)["phase"] for left_job in cluster.jobs()] == ["Running"]


@pytest.mark.server
def test_the_shipped_roles_are_enough_and_a_viewer_of_the_cluster_is_refused_in_words(
    cluster: MoveScene, tmp_path: Path
) -> None:
    rules = [
        AccessRule(tuple(rule["verbs"]), tuple(rule["apiGroups"]), tuple(rule["resources"]))
        for body in yaml.safe_load_all((deploy() / "planner.yaml").read_text())
        if body["metadata"]["name"] in ("cotenant-mover", "cotenant-rebalance-looks")
        for rule in body["rules"]
    ]
    pod = planned(cluster)[0]
    enough = _as(cluster, Account("mover", tuple(rules)), tmp_path / "mover")
    (outcome,) = enough.approve(APPROVER, [pod])
    assert not outcome.error
    enough.withdraw(APPROVER, outcome.job)
    looks = tuple(rule for rule in rules if set(rule.verbs) <= {"get", "list"})
    (refused,) = _as(cluster, Account("looker", looks), tmp_path / "looker").approve(APPROVER, [pod])
    assert "podmigrationjobs" in refused.error and cluster.jobs() == []
    with pytest.raises(ClusterForbidden, match="nodes"):
        _as(cluster, Account("nobody"), tmp_path / "nobody").report(VIEWER)


def _as(cluster: MoveScene, account: Account, path: Path) -> moves.ClusterMoveService:
    token = cluster.server.account(account.name, account)
    return cluster.service(kubeconfig=str(cluster.server.write_kubeconfig(path, token=token)))


@pytest.mark.server
def test_without_a_kind_of_jobs_there_are_none_and_without_metrics_there_is_no_round(cluster: MoveScene) -> None:
    cluster.api.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmigrationjobs.scheduling.koordinator.sh"
    )
    assert len(cluster.service().jobs(VIEWER).jobs) == 0
    for name in (HOT, COLD):
        cluster.api.delete(f"{moves.METRICS}/{name}")
    with pytest.raises(NoData, match="the usage of nodes is not reported"):
        cluster.service().report(VIEWER)


# ---- pure


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, "No manager runs"),
        ({}, "is off"),
        ({"data": {"queues": "{}"}}, "is off"),
        ({"data": {FEATURE: '{"reason": "DryRun"}'}}, "dry run"),
        ({"data": {FEATURE: '{"reason": "Forbidden", "message": "no right"}'}}, "Forbidden: no right"),
        ({"data": {FEATURE: "not json"}}, "cannot be read"),
        ({"data": {FEATURE: '{"reason": "Up"}'}}, ""),
        ({"data": {FEATURE: '{"reason": "Degraded"}'}}, ""),
    ],
)
def test_the_managers_status_says_whether_moves_are_carried_out(status: dict[str, object] | None, reason: str) -> None:
    carrier = carrier_of(status, FEATURE)
    assert reason in carrier.why_not and carrier.carries is (reason == "")
    assert carrier.carries or carrier.command


def test_rows_of_jobs_show_phase_steps_and_reason() -> None:
    waits, runs, done, failed = map(job_row, JOB_BODIES)
    assert (waits["phase"], runs["phase"], runs["step"]) == ("Pending", "Running", "Evicting")
    assert runs["done"] == "ReservationCreated, ReservationScheduled", "by their moments; Eviction does not hold yet"
    assert (done["target"], done["successor"]) == ("cold-2", "e-2")
    assert failed["reason"] == "Unschedulable: no node has 4 cores free"
    paused = job("p", "shop/p-1")
    paused["spec"]["paused"] = True
    assert job_row(paused)["phase"] == "Pending, paused"
    unreadable = job_row({"metadata": {"name": "x"}, "spec": {}})
    assert unreadable["phase"] == "unreadable" and "names no pod" in unreadable["reason"]
    assert isinstance(withdraw_job(JOB_BODIES[0]), Delete)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", fullmatch=True)


@pytest.mark.slow
@given(NAMES, NAMES, st.uuids())
def test_names_of_jobs_fit_the_server_and_differ_by_pod(namespace: str, name: str, uid: object) -> None:
    text = name_of(namespace, name, str(uid))
    # 200 of the pod, "-" and 12 hexadecimal digits, of the 253 that a name may have
    assert len(text) <= 213 and text[-13] == "-" and text[0].isalnum()
    assert text != name_of(namespace, name, f"{uid}x")


PARTS = st.dictionaries(
    st.sampled_from(["phase", "status", "reason", "message", "nodeName"]), st.none() | st.text(max_size=8), max_size=4
)


@given(PARTS)
def test_a_status_of_any_texts_is_a_row(status: dict[str, object]) -> None:
    row = job_row(job("x", "shop/x-1") | {"status": status})
    assert row["phase"] == "Pending" and row["step"] == (status.get("status") or ""), "an unknown phase is Pending"
