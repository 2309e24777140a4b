"""A change that takes two people, where people log in: it waits, is confirmed by another or declined, and expires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as set_
from typer.testing import CliRunner, Result

from cotenant.base.errors import UsageError
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def scene(tmp_path: Path, made: Prepared) -> Iterator[Scene]:
    with acting.embedded(tmp_path, made) as found:
        yield found


def reserved(scene: Scene, ref: WorkloadRef) -> WorkloadRef:
    """The workload as one of class LSR."""
    pointer = "/spec/template/metadata/labels/" + QOS_LABEL.replace("/", "~1")
    client = scene.client
    operation = {"op": "add", "path": pointer, "value": "LSR"}
    Writer(client, "test").send(Patch(address_of(ref), (operation,), why="test"))
    client.close()
    acting.settle_rollouts(scene)
    return ref


def service_at(scene: Scene, hours: float = 0.0) -> ClusterChangeService:
    """A service that everybody uses with its own rights in the cluster, so many hours later."""
    clock = FixedClock(scene.end_seconds + 3600 * hours)
    return change_service_of(scene.settings, scene.store, kubeconfig_door(scene.settings.kube), clock)


def waiting(scene: Scene, **wanted: object) -> tuple[WorkloadRef, str]:
    """A workload of class LSR whose change Ada has accepted, and the change's id."""
    ref = reserved(scene, scene.acceptable()[0])
    (done,) = service_at(scene).accept(ADA, ChangeRequest((ref,), key="k1", **wanted))  # type: ignore[arg-type]
    assert (done.state, done.words) == (AWAITING, "the change waits for a second person")
    return ref, done.change.id


def events(scene: Scene) -> list[tuple[str, str]]:
    """(event, who) of each row of the ledger."""
    ledger = Ledger(Path(scene.settings.actions.ledger), reading=True)
    found = [(row.event, row.actor) for row in ledger.entries()]
    ledger.close()
    return found


def test_it_is_done_once_another_person_confirms_it_and_the_ledger_names_both(scene: Scene) -> None:
    before = scene.resources(scene.acceptable()[0])
    ref, change = waiting(scene)
    assert scene.resources(ref) == before
    (done,) = service_at(scene, 1).confirm(BEA, change)
    assert done.state is APPLIED and scene.resources(ref) != before
    names = [("accepted", ADA.name), ("awaited", ADA.name), ("confirmed", BEA.name), ("applied", BEA.name)]
    assert events(scene) == names
    with pytest.raises(UsageError, match="does not wait for a second person: it is applied"):
        service_at(scene, 1).confirm(BEA, change)


def test_a_typed_name_is_no_second_person_where_people_log_in(scene: Scene) -> None:
    ref, _ = waiting(scene, second_person="bea@example.com")
    (look,) = service_at(scene).review(ADA, ChangeRequest((ref,), second_person="bea@example.com"))
    (rule,) = [rule for rule in look.rules if rule.name == "second-person"]
    assert (rule.outcome, "waits for that person" in rule.why) == ("warn", True)


def test_whoever_accepted_it_and_who_may_not_approve_confirm_nothing(scene: Scene) -> None:
    before = scene.resources(scene.acceptable()[0])
    ref, change = waiting(scene)
    both = replace(ADA, grants=(Grant(Role.ADMIN),))
    with pytest.raises(UsageError, match="cannot be the second person"):
        service_at(scene).confirm(both, change)
    elsewhere = replace(BEA, grants=(Grant(Role.APPROVER, ("elsewhere",)),))
    with pytest.raises(NotAllowed, match="may not approve"):
        service_at(scene).confirm(replace(BEA, grants=(Grant(Role.OWNER),)), change)
    with pytest.raises(UsageError, match="there is no change"):  # a refusal would name the namespace that is not theirs
        service_at(scene).confirm(elsewhere, change)
    with pytest.raises(NotAllowed, match="without a login there is no second person"):
        service_at(scene).confirm(HERE, change)
    assert scene.resources(ref) == before and [event for event, _ in events(scene)] == ["accepted", "awaited"]


def test_it_is_declined_by_the_second_person_or_withdrawn_by_the_first_and_by_nobody_else(scene: Scene) -> None:
    before = scene.resources(scene.acceptable()[0])
    ref, change = waiting(scene)
    with pytest.raises(NotAllowed, match="may not approve"):
        service_at(scene).decline(Person("otto", way=IdentitySource.PROXY, grants=(Grant(Role.OWNER),)), change)
    (gone,) = service_at(scene).decline(ADA, change)
    assert (gone.state, gone.words) == (CANCELLED, f"declined by {ADA.name}")
    (again,) = service_at(scene).accept(ADA, ChangeRequest((ref,), key="k2"))
    (gone,) = service_at(scene).decline(BEA, again.change.id)
    assert gone.state is CANCELLED and scene.resources(ref) == before


def test_after_its_time_it_cannot_be_confirmed_and_the_watcher_cancels_it(scene: Scene) -> None:
    before = scene.resources(scene.acceptable()[0])
    ref, change = waiting(scene)
    late = service_at(scene, 24)  # actions.confirm_hours
    with pytest.raises(UsageError, match="waited for more than 24 hours"):
        late.confirm(BEA, change)
    texts: list[str] = []
    watcher: Watcher = late.watcher(lambda news: texts.extend(one.words for one in news), lambda _now: [])
    (gone,) = watcher.step()
    assert gone.state is CANCELLED and texts == ["no second person confirmed the change within 24 hours"]
    assert scene.resources(ref) == before


def test_a_canary_is_confirmed_with_its_rest_which_waits_on_for_the_first(scene: Scene) -> None:
    refs = scene.acceptable()[:3]
    reserved(scene, refs[2])  # one that takes two is enough for all of them
    before = [scene.resources(ref) for ref in refs]
    all_ = service_at(scene).accept(ADA, ChangeRequest(refs, key="k1", canary=0.3))
    assert [change_status.state for change_status in all_] == [AWAITING] * 3
    done = service_at(scene).confirm(BEA, all_[2].change.id)
    assert [change_status.state for change_status in done] == [APPLIED, ChangeState.WAITING, ChangeState.WAITING]
    assert [scene.resources(ref) != old for ref, old in zip(refs, before, strict=True)] == [True, False, False]


def test_what_somebody_changed_meanwhile_is_refused_and_not_overwritten(scene: Scene) -> None:
    ref, change = waiting(scene)
    client = scene.client
    operation = {"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": {}}
    Writer(client, "test").send(Patch(address_of(ref), (operation,), why="somebody else"))
    client.close()
    (done,) = service_at(scene).confirm(BEA, change)
    assert done.state is ChangeState.FAILED and not scene.resources(ref)[0]


@pytest.mark.parametrize("is_lowered", [True, False])
def test_memory_that_was_too_little_meanwhile_is_not_lowered_by_anybody(scene: Scene, is_lowered: bool) -> None:
    lowered = {
        (WorkloadRef(row["namespace"], row["kind"], row["workload"]), row["container"])
        for row in scene.store.read_table(RECOMMENDATIONS).rows()
        if row["memory_request"] is not None and row["memory_request"] < (row["memory_request_now"] or 0)
    }
    ref, container = min((ref, name) for ref, name in lowered if ref in scene.acceptable())
    reserved(scene, ref)
    before = scene.resources(ref)
    (waits,) = service_at(scene).accept(ADA, ChangeRequest((ref,), key="k1"))
    kill_once(scene, ref, container if is_lowered else "another")
    if not is_lowered:
        assert service_at(scene, 1).confirm(BEA, waits.change.id)[0].state is APPLIED
        return
    with pytest.raises(UsageError, match="1 container that gets less was OOM-killed since it was accepted"):
        service_at(scene, 1).confirm(BEA, waits.change.id)
    assert scene.resources(ref) == before and service_at(scene, 1).changes(ADA)[0].state is AWAITING


def kill_once(scene: Scene, ref: WorkloadRef, container: str) -> None:
    """A pod of the Deployment, whose container was OOM-killed a minute after the scan."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{ref.name}-h", "uid": "r", "controller": True}
    labels = {**scene.live(ref)["spec"]["template"]["metadata"]["labels"], "pod-template-hash": "h"}
    pod = f"{ref.name}-h-1"
    meta = {"name": pod, "namespace": ref.namespace, "labels": labels, "ownerReferences": [owner]}
    address = Address("v1", "pods", pod, ref.namespace)
    spec = {"containers": [{"name": container, "image": "i"}]}
    end = {"reason": "OOMKilled", "finishedAt": moment(scene.end_seconds + 60)}
    status = {"containerStatuses": [{"name": container, "lastState": {"terminated": end}}]}
    client = scene.client
    writer = Writer(client, "test")
    writer.send(Create(address, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, why="test"))
    writer.send(Patch(address, ({"op": "add", "path": "/status", "value": status},), "status", why="test"))
    client.close()


def test_an_administrator_may_pass_over_the_rule_and_the_ledger_keeps_why(scene: Scene) -> None:
    ref = reserved(scene, scene.acceptable()[0])
    wanted = ChangeRequest((ref,), overridden=("second-person",), because="the pager is ringing")
    with pytest.raises(NotAllowed):
        service_at(scene).accept(ADA, wanted)
    (done,) = service_at(scene).accept(replace(ADA, grants=(Grant(Role.ADMIN),)), wanted)
    kept = done.change.guardrails["second-person"]
    assert done.state is APPLIED and kept.startswith("overridden: ") and kept.endswith("the pager is ringing")


def test_without_a_login_a_typed_name_does_and_is_kept_as_one_that_nobody_checked(scene: Scene) -> None:
    ref = reserved(scene, scene.acceptable()[0])
    with pytest.raises(UsageError, match="second-person"):
        service_at(scene).accept(HERE, ChangeRequest((ref,)))
    (done,) = service_at(scene).accept(HERE, ChangeRequest((ref,), second_person="bea"))
    assert done.state is APPLIED
    assert done.change.guardrails["second-person"] == "warn: approved by bea: the name was not verified"


def test_a_process_that_ends_after_the_second_person_is_written_down_leaves_what_can_be_settled(scene: Scene) -> None:
    before = scene.resources(scene.acceptable()[0])
    ref, change = waiting(scene)

    class Ended(BaseException):
        pass

    def ends(gap: str) -> None:
        if gap == "confirmed":
            raise Ended

    client, ledger = scene.client, Ledger(Path(scene.settings.actions.ledger))
    journal = ChangeLedger(ledger, SystemClock(), BEA.name)
    actions = Actions(
        client, journal, scene.settings.actions, ClusterUser(BEA.name, (), True), ActionParts(reached=ends)
    )
    with pytest.raises(Ended):
        actions.confirm([journal.statuses()[change]])
    assert journal.statuses()[change].state is ChangeState.UNKNOWN
    (change_status,) = settle(Actions(client, journal, scene.settings.actions, ClusterUser(BEA.name)))
    assert (change_status.state, change_status.words) == (ChangeState.FAILED, "no write reached the cluster")
    assert scene.resources(ref) == before
    ledger.close()


# --- by the command line ----------------------------------------------------------------------------------------------
def run(scene: Scene, *words: str, **access: str) -> Result:
    sets = {
        "actions.ledger": scene.settings.actions.ledger,
        "manager.namespace": "kube-system",
        "kube.kubeconfig": scene.settings.kube.kubeconfig,
        "actions.confirm_hours": "720",
        **{f"access.{key}": value for key, value in access.items()},
    }
    flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return CliRunner().invoke(root, [*flags, "recs", *words])


def test_the_command_line_takes_the_name_that_the_cluster_knows_and_the_roles_of_the_settings(scene: Scene) -> None:
    settings = set_(scene.settings, actions=set_(scene.settings.actions, confirm_hours=720.0))
    ref = reserved(scene, scene.acceptable()[0])
    service = change_service_of(settings, scene.store, kubeconfig_door(settings.kube), SystemClock())
    (done,) = service.accept(ADA, ChangeRequest((ref,), key="k1"))
    result = run(scene, "confirm", done.change.id)
    assert result.exit_code != 0 and "access.mode is none" in result.output
    me = reviewer_name(scene)
    access = {"mode": "proxy", "proxy.trusted": "127.0.0.1/32", "read_only": "false"}
    result = run(scene, "confirm", done.change.id, **access)
    assert result.exit_code != 0 and "may not approve" in " ".join(result.output.split())
    result = run(scene, "confirm", done.change.id[:6], **access, roles=f'[{{"role": "approver", "user": "{me}"}}]')
    assert result.exit_code == 0, result.output
    assert events(scene)[-2:] == [("confirmed", me), ("applied", me)]


def reviewer_name(scene: Scene) -> str:
    """Who the cluster says the kubeconfig is."""
    from cotenant.changes.live_context import who

    client = scene.client
    text = who(client).name
    client.close()
    return text
