"""The service on real API servers: every call by name of a person, one ledger behind, pages that never wait for it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cotenant.base.errors import ClusterUnreachable, KeyTaken, NoData, StoreBusy, UsageError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.moments import APART_SECONDS
from cotenant.base.ledger.ledger import Ledger, turn
from cotenant.base.people import Grant, NotAllowed, Person, Role
from cotenant.base.process.clock import SystemClock
from cotenant.changes.audited_acts import MOST_AT_ONCE
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.service import ClusterChangeService
from cotenant.dashboard.changes.change_tables import health_words
from cotenant_lab.simulation.api_server import AccessRule, Account, EmbeddedServer
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support import acting

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))


def test_the_service_reviews_accepts_and_rolls_back_on_a_real_cluster(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with acting.on_plane(control_plane, tmp_path) as real_cluster:
        service, ref = real_cluster.service(), real_cluster.acceptable()[0]
        before = real_cluster.resources(ref)
        (looked,) = service.dry_run(ADMIN, ChangeRequest((ref,)))
        assert looked.error == "" and looked.blocked(()) == () and looked.tried is not None and looked.tried.accepted
        (done,) = service.accept(ADMIN, ChangeRequest((ref,), key="k1"))
        assert done.state is ChangeState.APPLIED and real_cluster.resources(ref) != before
        assert [s.change.id for s in service.changes(ADMIN)] == [done.change.id]
        (back,) = service.roll_back(ADMIN, [done.change.id])
        assert back.state is ChangeState.ROLLED_BACK and real_cluster.resources(ref) == before
        assert service.ledger().bad_row == 0 and service.ledger().anchored


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared: acting.Prepared) -> Iterator[acting.Scene]:
    with acting.embedded(tmp_path, prepared) as embedded:
        yield embedded


def test_the_same_key_again_changes_nothing_more(cluster: acting.Scene) -> None:
    service, ref, other = cluster.service(), *cluster.acceptable()[:2]
    (first,) = service.accept(ADMIN, ChangeRequest((ref,), key="k1"))
    version = cluster.live(ref)["metadata"]["resourceVersion"]
    (again,) = service.accept(ADMIN, ChangeRequest((ref,), key="k1"))
    assert again == first and cluster.live(ref)["metadata"]["resourceVersion"] == version
    with pytest.raises(KeyTaken, match=f"'k1' was used before, to change {ref}"):
        service.accept(ADMIN, ChangeRequest((other,), key="k1"))


class SetClock(SystemClock):
    """The machine's clock, which somebody has set wrong."""

    def __init__(self, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds

    def now_seconds(self) -> float:
        return super().now_seconds() + self.ahead_seconds


@pytest.mark.parametrize("when", ["at the start", "in the middle"])
@pytest.mark.parametrize("ahead", [3600.0, -3600.0], ids=["ahead", "behind"])
def test_a_soak_begins_by_the_servers_time_where_ours_is_off(cluster: acting.Scene, ahead: float, when: str) -> None:
    clock = SetClock(ahead if when == "at the start" else 0.0)
    service, ref = ClusterChangeService(replace(cluster.service()._config, clock=clock)), cluster.acceptable()[0]
    if when == "in the middle":
        service.dry_run(ADMIN, ChangeRequest((ref,)))
        clock.ahead_seconds = ahead
    (done,) = service.accept(ADMIN, ChangeRequest((ref,)))
    # begun an hour early it would be judged at once, by what was before it; two clocks may differ by APART_SECONDS
    assert abs(done.begun_seconds - SystemClock().now_seconds()) < APART_SECONDS


def test_a_workload_that_alone_moves_too_much_is_refused_in_the_review_already(cluster: acting.Scene) -> None:
    """As on a small cluster, where one workload has most of what is requested."""
    workload = cluster.acceptable()[0]
    (free,) = cluster.service().review(ADMIN, ChangeRequest((workload,)))
    moved = abs(free.savings.net.millicores)
    assert moved and "batch-share" not in {rule.name for rule in free.rules}
    # At most a tenth of all requests moves at once: moved / (9 x moved) = 11 %, moved / (10 x moved) = 10 %.
    config = cluster.service()._config
    limits = msgspec.structs.replace(config.settings.guardrails, most_requests_share=0.1)
    config = replace(config, settings=msgspec.structs.replace(config.settings, guardrails=limits))
    narrow = ClusterChangeService(replace(config, requested_millicores=lambda: 9 * moved))
    enough = ClusterChangeService(replace(config, requested_millicores=lambda: 10 * moved))
    (refused,) = narrow.review(ADMIN, ChangeRequest((workload,)))
    (rule,) = refused.blocked(())
    assert (rule.name, rule.why) == (
        "batch-share",
        "11 % of the cluster's CPU requests change at once; at most 10 % may",
    )
    assert refused.blocked(["batch-share"]) == ()
    assert enough.review(ADMIN, ChangeRequest((workload,)))[0].blocked(()) == ()
    with pytest.raises(UsageError, match="batch-share"):
        narrow.accept(ADMIN, ChangeRequest((workload,), key="one"))
    done = narrow.accept(ADMIN, ChangeRequest((workload,), key="two", overridden=("batch-share",)))
    assert [status.state for status in done] == [ChangeState.APPLIED]
    assert done[0].change.guardrails["batch-share"].startswith("overridden: 11 %")


def test_nobody_accepts_under_a_key_of_the_autopilot(cluster: acting.Scene) -> None:
    service, ref = cluster.service(), cluster.acceptable()[0]
    with pytest.raises(KeyTaken, match=r"'autopilot-b7eeb8542319' begins with 'autopilot-'"):
        service.accept(ADMIN, ChangeRequest((ref,), key="autopilot-b7eeb8542319"))
    assert service.changes(ADMIN) == []


def test_two_clicks_at_once_make_one_change(cluster: acting.Scene) -> None:
    service, change_request = cluster.service(), ChangeRequest(cluster.acceptable()[:1], key="k1")
    done: list[str] = []
    threads = [threading.Thread(target=lambda: done.extend(s.change.id for s in service.accept(ADMIN, change_request)))
               for _ in range(4)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 4 and set(done) == {s.change.id for s in service.changes(ADMIN)} and len(set(done)) == 1


class Stuck:
    """A door behind which a client waits until it is let go, as behind an API server that hangs."""

    def __init__(self, cluster: acting.Scene) -> None:
        self.cluster = cluster
        self.entered, self.go = threading.Semaphore(0), threading.Event()

    @contextmanager
    def __call__(self, _who: Person) -> Iterator[KubeClient]:
        self.entered.release()
        assert self.go.wait(60)
        client = self.cluster.client
        yield client
        client.close()


def test_pages_that_only_look_never_wait_for_a_slow_cluster(cluster: acting.Scene) -> None:
    change_request = ChangeRequest(cluster.acceptable()[:1])
    (change_status,) = cluster.service().accept(ADMIN, change_request)
    door = Stuck(cluster)
    service = ClusterChangeService(replace(cluster.service()._config, access=door))
    slow = [threading.Thread(target=service.dry_run, args=(ADMIN, change_request)) for _ in range(MOST_AT_ONCE)]
    try:
        for thread in slow:
            thread.start()
            door.entered.acquire()
        # Every slot is taken by a call that hangs; what only looks answers all the same, what asks is refused.
        assert [s.change.id for s in service.changes(ADMIN)] == [change_status.change.id]
        assert (
            service.ledger().rows == 2
            and service.trouble() == ""
            and len(service.story(ADMIN, change_status.change.id)) == 2
        )
        with pytest.raises(StoreBusy, match=f"{MOST_AT_ONCE} other requests"):
            service.review(ADMIN, change_request)
    finally:
        door.go.set()
        for thread in slow:
            thread.join(60)


def test_another_process_that_writes_is_named(cluster: acting.Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.changes.service.PATIENCE_SECONDS", 0.05)
    service, change_request = cluster.service(), ChangeRequest(cluster.acceptable()[:1])
    with turn(Path(cluster.settings.actions.ledger).with_suffix(".lock"), "cotenant recs apply", 1.0):
        with pytest.raises(StoreBusy, match="cotenant recs apply"):
            service.accept(ADMIN, change_request)
        assert not service.review(ADMIN, change_request)[0].error and not service.changes(ADMIN)


def test_without_an_api_server_there_are_words_and_what_is_known(
    tmp_path: Path, prepared: acting.Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.changes.service.GLANCE_SECONDS", 0.1)
    monkeypatch.setattr(
        "cotenant.changes.access.kubeconfig_access.IDLE_SECONDS", 0.0
    )  # the embedded server's open connections outlive it
    with acting.embedded(tmp_path, prepared) as embedded_cluster:
        service, change_request = embedded_cluster.service(), ChangeRequest(embedded_cluster.acceptable()[:1])
        (change_status,) = service.accept(ADMIN, change_request)
        assert service.ledger().anchored
    wait_for("the service to see it", service.trouble)
    assert "does not answer" in service.trouble()
    health = service.ledger()
    assert (health.rows, health.bad_row, health.anchored) == (2, 0, False) and "not compared" in health.notes[0]
    assert [s.change.id for s in service.changes(ADMIN)] == [change_status.change.id]
    with pytest.raises(ClusterUnreachable):
        service.permissions(ADMIN, ())


def test_a_ledger_in_which_nothing_is_written_lacks_nothing(cluster: acting.Scene) -> None:
    health = cluster.service().ledger()
    assert (health.rows, health.notes, health_words(health)) == (
        0,
        (),
        "The audit log is empty; whether the log's last entries were removed cannot be checked: the cluster stores "
        "no hash of the last",
    )


def test_a_flipped_byte_and_a_cut_tail_are_found(cluster: acting.Scene) -> None:
    service, path = cluster.service(), Path(cluster.settings.actions.ledger)
    for ref in cluster.acceptable()[:2]:
        service.accept(ADMIN, ChangeRequest((ref,)))
    assert service.ledger().rows == 4 and not service.ledger().bad_row
    db = sqlite3.connect(path)
    db.executescript("DROP TRIGGER no_update; DROP TRIGGER no_delete;")
    db.execute("UPDATE entries SET actor = 'eve' WHERE seq = 2")
    db.commit()
    assert service.ledger().bad_row == 2 and "ledger row 2 was changed" in service.ledger().words
    db.execute("UPDATE entries SET actor = 'jane' WHERE seq = 2")
    db.execute("DELETE FROM entries WHERE seq > 2")
    db.commit()
    db.close()
    # The chain of two rows is whole in itself; the cluster's head knows of four.
    assert Ledger(path, reading=True).verify().wrong_seq is None
    assert service.ledger().bad_row == 3 and "ledger rows 3 to 4 are missing" in service.ledger().words


def test_rights_are_asked_for_by_namespace_whatever_a_page_showed(cluster: acting.Scene) -> None:
    service, ref = cluster.service(), cluster.acceptable()[0]
    (done,) = service.accept(ADMIN, ChangeRequest((ref,)))
    elsewhere = Person("bob", grants=(Grant(Role.OWNER, ("shop",)),))
    assert service.changes(elsewhere) == [] and [s.change.id for s in service.changes(ADMIN)] == [done.change.id]
    request = ChangeRequest((ref,))
    for refused in (lambda: service.accept(elsewhere, request), lambda: service.settle(elsewhere)):
        with pytest.raises(NotAllowed, match="bob may not"):
            refused()
    # A change of others is answered like one that does not exist.
    for unknown in (lambda: service.roll_back(elsewhere, [done.change.id]),
                    lambda: service.story(elsewhere, done.change.id)):  # fmt: skip
        with pytest.raises(NoData, match=f"no change '{done.change.id}'"):
            unknown()
    with pytest.raises(NoData, match="no change 'nope'"):
        service.roll_back(ADMIN, ["nope"])
    assert service.changes(ADMIN)[0].state is ChangeState.APPLIED


def test_a_change_tells_its_story_row_by_row(cluster: acting.Scene) -> None:
    service, ref = cluster.service(), cluster.acceptable()[0]
    jane = replace(ADMIN, source="203.0.113.5 r-1")
    (done,) = service.accept(jane, ChangeRequest((ref,)))
    service.roll_back(ADMIN, [done.change.id])
    story = service.story(ADMIN, done.change.id)
    assert [t.event for t in story] == ["accepted", "applied", "rollback-accepted", "rolled-back"]
    bodies = [json.loads(t.body) for t in story]
    assert bodies[0]["source"] == bodies[1]["source"] == "203.0.113.5 r-1" and "source" not in bodies[2]
    assert len({t.hash for t in story}) == 4 and [t.row for t in story] == [1, 2, 3, 4]


def test_the_matrix_says_what_the_cluster_allows(tmp_path: Path, prepared: acting.Prepared) -> None:
    with EmbeddedServer() as server:
        rules = (AccessRule(("get", "list"), ("apps", "batch", "autoscaling", "policy"), ("*",)),)
        kubeconfig = server.write_kubeconfig(tmp_path / "reader", server.account("reader", Account("reader", rules)))
        reader_cluster = acting.Scene(prepared, acting.settings_of(tmp_path, kubeconfig, acting.ACTIONS))
        permissions = reader_cluster.service().permissions(ADMIN, ["pay"])
    allowed = {(p.feature, p.namespace) for p in permissions if p.allowed}
    refused = {(p.feature, p.namespace) for p in permissions if not p.allowed}
    assert allowed == {("Review a change", ""), ("Review a change", "pay")}
    assert ("Apply and roll back", "pay") in refused and ("Resize running pods", "") in refused


def test_the_matrix_on_a_real_cluster_follows_a_role_in_one_namespace(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, prepared: acting.Prepared
) -> None:
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}]
    api, group = control_plane.api(), "/apis/rbac.authorization.k8s.io/v1"
    api.create(f"{group}/namespaces/{namespace}/roles", {"metadata": {"name": "owner"}, "rules": rules})
    binding = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "owner"},
        "subjects": [{"kind": "User", "name": "olga"}],
    }
    api.create(f"{group}/namespaces/{namespace}/rolebindings", binding)
    settings = acting.settings_of(tmp_path, control_plane.user("olga"), acting.ACTIONS)
    service = acting.Scene(prepared, settings).service()

    def allowed() -> set[tuple[str, str, str]]:
        return {
            (p.verb, p.resource, p.namespace) for p in service.permissions(ADMIN, [namespace, "default"]) if p.allowed
        }

    expected = {("get", "deployments.apps", namespace), ("patch", "deployments.apps", namespace)}
    assert wait_for("the role to be in force", lambda: allowed() == expected)
