"""A change that takes two people, where people log in: it waits, is confirmed by another or declined, and expires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as set_
from typer.testing import CliRunner, Result

from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Address, Create, Patch
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.qos import QOS_LABEL
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, IdentitySource, NotAllowed, Person, Role
from cotenant.base.process.clock import FixedClock, SystemClock
from cotenant.changes.accept import ActionParts, Actions
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.service import ClusterChangeService
from cotenant.changes.soak.reconcile import settle
from cotenant.changes.soak.watcher import Watcher
from cotenant.cli.main import root
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.support import acting
from tests.support.acting import Prepared, Scene

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADA = Person("ada@example.com", way=IdentitySource.PROXY, grants=(Grant(Role.OWNER),))
BEA = Person("bea@example.com", way=IdentitySource.PROXY, grants=(Grant(Role.APPROVER),))
HERE = Person("kubernetes-admin", grants=(Grant(Role.ADMIN),))
AWAITING, APPLIED, CANCELLED = ChangeState.AWAITING, ChangeState.APPLIED, ChangeState.CANCELLED


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared: Prepared) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared) as embedded:
        yield embedded


def reserved(cluster: Scene, ref: WorkloadRef) -> WorkloadRef:
    """The workload as one of class LSR."""
    pointer = "/spec/template/metadata/labels/" + QOS_LABEL.replace("/", "~1")
    client = cluster.client
    operation = {"op": "add", "path": pointer, "value": "LSR"}
    Writer(client, "test").send(Patch(address_of(ref), (operation,), why="test"))
    client.close()
    acting.settle_rollouts(cluster)
    return ref


def service_at(cluster: Scene, hours: float = 0.0) -> ClusterChangeService:
    """A service that everybody uses with its own rights in the cluster, so many hours later."""
    clock = FixedClock(cluster.end_seconds + 3600 * hours)
    return change_service_of(cluster.settings, cluster.store, kubeconfig_door(cluster.settings.kube), clock)


def waiting(cluster: Scene, **request_terms: object) -> tuple[WorkloadRef, str]:
    """A workload of class LSR whose change Ada has accepted, and the change's id."""
    ref = reserved(cluster, cluster.acceptable()[0])
    (done,) = service_at(cluster).accept(ADA, ChangeRequest((ref,), key="k1", **request_terms))  # type: ignore[arg-type]
    assert (done.state, done.words) == (AWAITING, "the change waits for a second person")
    return ref, done.change.id


def events(cluster: Scene) -> list[tuple[str, str]]:
    """(event, who) of each row of the ledger."""
    ledger = Ledger(Path(cluster.settings.actions.ledger), reading=True)
    entries = [(row.event, row.actor) for row in ledger.entries()]
    ledger.close()
    return entries


def test_it_is_done_once_another_person_confirms_it_and_the_ledger_names_both(cluster: Scene) -> None:
    before = cluster.resources(cluster.acceptable()[0])
    ref, change = waiting(cluster)
    assert cluster.resources(ref) == before
    (done,) = service_at(cluster, 1).confirm(BEA, change)
    assert done.state is APPLIED and cluster.resources(ref) != before
    names = [("accepted", ADA.name), ("awaited", ADA.name), ("confirmed", BEA.name), ("applied", BEA.name)]
    assert events(cluster) == names
    with pytest.raises(UsageError, match="does not wait for a second person: it is applied"):
        service_at(cluster, 1).confirm(BEA, change)


def test_a_typed_name_is_no_second_person_where_people_log_in(cluster: Scene) -> None:
    ref, _ = waiting(cluster, second_person="bea@example.com")
    (look,) = service_at(cluster).review(ADA, ChangeRequest((ref,), second_person="bea@example.com"))
    (rule,) = [rule for rule in look.rules if rule.name == "second-person"]
    assert (rule.outcome, "waits for that person" in rule.why) == ("warn", True)


def test_whoever_accepted_it_and_who_may_not_approve_confirm_nothing(cluster: Scene) -> None:
    before = cluster.resources(cluster.acceptable()[0])
    ref, change = waiting(cluster)
    both = replace(ADA, grants=(Grant(Role.ADMIN),))
    with pytest.raises(UsageError, match="cannot be the second person"):
        service_at(cluster).confirm(both, change)
    elsewhere = replace(BEA, grants=(Grant(Role.APPROVER, ("elsewhere",)),))
    with pytest.raises(NotAllowed, match="may not approve"):
        service_at(cluster).confirm(replace(BEA, grants=(Grant(Role.OWNER),)), change)
    with pytest.raises(NoData, match="there is no change"):  # a refusal would name the namespace that is not theirs
        service_at(cluster).confirm(elsewhere, change)
    with pytest.raises(NotAllowed, match="without a login there is no second person"):
        service_at(cluster).confirm(HERE, change)
    assert cluster.resources(ref) == before and [event for event, _ in events(cluster)] == ["accepted", "awaited"]


def test_it_is_declined_by_the_second_person_or_withdrawn_by_the_first_and_by_nobody_else(cluster: Scene) -> None:
    before = cluster.resources(cluster.acceptable()[0])
    ref, change = waiting(cluster)
    with pytest.raises(NotAllowed, match="may not approve"):
        service_at(cluster).decline(Person("otto", way=IdentitySource.PROXY, grants=(Grant(Role.OWNER),)), change)
    (declined,) = service_at(cluster).decline(ADA, change)
    assert (declined.state, declined.words) == (CANCELLED, f"declined by {ADA.name}")
    (again,) = service_at(cluster).accept(ADA, ChangeRequest((ref,), key="k2"))
    (declined,) = service_at(cluster).decline(BEA, again.change.id)
    assert declined.state is CANCELLED and cluster.resources(ref) == before


def test_after_its_time_it_cannot_be_confirmed_and_the_watcher_cancels_it(cluster: Scene) -> None:
    before = cluster.resources(cluster.acceptable()[0])
    ref, change = waiting(cluster)
    late = service_at(cluster, 24)  # actions.confirm_hours
    with pytest.raises(UsageError, match="waited for more than 24 hours"):
        late.confirm(BEA, change)
    texts: list[str] = []
    watcher: Watcher = late.watcher(lambda news: texts.extend(news_item.words for news_item in news), lambda _now: [])
    (cancelled,) = watcher.step()
    assert cancelled.state is CANCELLED and texts == ["no second person confirmed the change within 24 hours"]
    assert cluster.resources(ref) == before


def test_a_canary_is_confirmed_with_its_rest_which_waits_on_for_the_first(cluster: Scene) -> None:
    refs = cluster.acceptable()[:3]
    reserved(cluster, refs[2])  # one that takes two is enough for all of them
    before = [cluster.resources(ref) for ref in refs]
    all_ = service_at(cluster).accept(ADA, ChangeRequest(refs, key="k1", canary=0.3))
    assert [change_status.state for change_status in all_] == [AWAITING] * 3
    done = service_at(cluster).confirm(BEA, all_[2].change.id)
    assert [change_status.state for change_status in done] == [APPLIED, ChangeState.WAITING, ChangeState.WAITING]
    assert [cluster.resources(ref) != old for ref, old in zip(refs, before, strict=True)] == [True, False, False]


def test_what_somebody_changed_meanwhile_is_refused_and_not_overwritten(cluster: Scene) -> None:
    ref, change = waiting(cluster)
    client = cluster.client
    operation = {"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": {}}
    Writer(client, "test").send(Patch(address_of(ref), (operation,), why="somebody else"))
    client.close()
    (done,) = service_at(cluster).confirm(BEA, change)
    assert done.state is ChangeState.FAILED and not cluster.resources(ref)[0]


@pytest.mark.parametrize("is_lowered", [True, False])
def test_memory_that_was_too_little_meanwhile_is_not_lowered_by_anybody(cluster: Scene, is_lowered: bool) -> None:
    lowered = {
        (WorkloadRef(row["namespace"], row["kind"], row["workload"]), row["container"])
        for row in cluster.store.read_table(RECOMMENDATIONS).rows()
        if row["memory_request"] is not None and row["memory_request"] < (row["memory_request_now"] or 0)
    }
    ref, container = min((ref, name) for ref, name in lowered if ref in cluster.acceptable())
    reserved(cluster, ref)
    before = cluster.resources(ref)
    (waits,) = service_at(cluster).accept(ADA, ChangeRequest((ref,), key="k1"))
    kill_once(cluster, ref, container if is_lowered else "another")
    if not is_lowered:
        assert service_at(cluster, 1).confirm(BEA, waits.change.id)[0].state is APPLIED
        return
    with pytest.raises(UsageError, match="1 container that gets less was OOM-killed since the change was accepted"):
        service_at(cluster, 1).confirm(BEA, waits.change.id)
    assert cluster.resources(ref) == before and service_at(cluster, 1).changes(ADA)[0].state is AWAITING


def kill_once(cluster: Scene, ref: WorkloadRef, container: str) -> None:
    """A pod of the Deployment, whose container was OOM-killed a minute after the scan."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{ref.name}-h", "uid": "r", "controller": True}
    labels = {**cluster.live(ref)["spec"]["template"]["metadata"]["labels"], "pod-template-hash": "h"}
    pod = f"{ref.name}-h-1"
    meta = {"name": pod, "namespace": ref.namespace, "labels": labels, "ownerReferences": [owner]}
    address = Address("v1", "pods", pod, ref.namespace)
    spec = {"containers": [{"name": container, "image": "i"}]}
    end = {"reason": "OOMKilled", "finishedAt": moment(cluster.end_seconds + 60)}
    status = {"containerStatuses": [{"name": container, "lastState": {"terminated": end}}]}
    client = cluster.client
    writer = Writer(client, "test")
    writer.send(Create(address, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, why="test"))
    writer.send(Patch(address, ({"op": "add", "path": "/status", "value": status},), "status", why="test"))
    client.close()


def test_an_administrator_may_pass_over_the_rule_and_the_ledger_keeps_why(cluster: Scene) -> None:
    ref = reserved(cluster, cluster.acceptable()[0])
    change_request = ChangeRequest((ref,), overridden=("second-person",), because="the pager is ringing")
    with pytest.raises(NotAllowed):
        service_at(cluster).accept(ADA, change_request)
    (done,) = service_at(cluster).accept(replace(ADA, grants=(Grant(Role.ADMIN),)), change_request)
    recorded_reason = done.change.guardrails["second-person"]
    assert (
        done.state is APPLIED
        and recorded_reason.startswith("overridden: ")
        and recorded_reason.endswith("the pager is ringing")
    )


def test_without_a_login_a_typed_name_does_and_is_kept_as_one_that_nobody_checked(cluster: Scene) -> None:
    ref = reserved(cluster, cluster.acceptable()[0])
    with pytest.raises(UsageError, match="second-person"):
        service_at(cluster).accept(HERE, ChangeRequest((ref,)))
    (done,) = service_at(cluster).accept(HERE, ChangeRequest((ref,), second_person="bea"))
    assert done.state is APPLIED
    assert done.change.guardrails["second-person"] == "warn: confirmed by bea: the name was not verified"


def test_a_process_that_ends_after_the_second_person_is_written_down_leaves_what_can_be_settled(cluster: Scene) -> None:
    before = cluster.resources(cluster.acceptable()[0])
    ref, change = waiting(cluster)

    class Ended(BaseException):
        pass

    def ends(gap: str) -> None:
        if gap == "confirmed":
            raise Ended

    client, ledger = cluster.client, Ledger(Path(cluster.settings.actions.ledger))
    journal = ChangeLedger(ledger, SystemClock(), BEA.name)
    actions = Actions(
        client, journal, cluster.settings.actions, ClusterUser(BEA.name, (), True), ActionParts(reached=ends)
    )
    with pytest.raises(Ended):
        actions.confirm([journal.statuses()[change]])
    assert journal.statuses()[change].state is ChangeState.UNKNOWN
    (change_status,) = settle(Actions(client, journal, cluster.settings.actions, ClusterUser(BEA.name)))
    assert (change_status.state, change_status.words) == (ChangeState.FAILED, "no write reached the cluster")
    assert cluster.resources(ref) == before
    ledger.close()


# --- by the command line ----------------------------------------------------------------------------------------------
def run(cluster: Scene, *arguments: str, **access: str) -> Result:
    sets = {
        "actions.ledger": cluster.settings.actions.ledger,
        "manager.namespace": "kube-system",
        "kube.kubeconfig": cluster.settings.kube.kubeconfig,
        "actions.confirm_hours": "720",
        **{f"access.{key}": value for key, value in access.items()},
    }
    flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return CliRunner().invoke(root, [*flags, "recs", *arguments])


def test_the_command_line_takes_the_name_that_the_cluster_knows_and_the_roles_of_the_settings(cluster: Scene) -> None:
    settings = set_(cluster.settings, actions=set_(cluster.settings.actions, confirm_hours=720.0))
    ref = reserved(cluster, cluster.acceptable()[0])
    service = change_service_of(settings, cluster.store, kubeconfig_door(settings.kube), SystemClock())
    (done,) = service.accept(ADA, ChangeRequest((ref,), key="k1"))
    result = run(cluster, "confirm", done.change.id)
    assert result.exit_code != 0 and "access.mode is none" in result.output
    me = reviewer_name(cluster)
    access = {"mode": "proxy", "proxy.trusted": "127.0.0.1/32", "read_only": "false"}
    result = run(cluster, "confirm", done.change.id, **access)
    assert result.exit_code != 0 and "may not approve" in " ".join(result.output.split())
    result = run(cluster, "confirm", done.change.id[:6], **access, roles=f'[{{"role": "approver", "user": "{me}"}}]')
    assert result.exit_code == 0, result.output
    assert events(cluster)[-2:] == [("confirmed", me), ("applied", me)]


def reviewer_name(cluster: Scene) -> str:
    """Who the cluster says the kubeconfig is."""
    from cotenant.changes.live_context import who

    client = cluster.client
    text = who(client).name
    client.close()
    return text
