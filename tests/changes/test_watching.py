"""The watcher on a real API server: canaries, harm, windows, processes that died."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cotenant.admission.webhook_server.service import WebhookService
from cotenant.base.errors import ClusterForbidden, StoreBusy
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.settings.sections import NotifySettings
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.field_changes import CHANGE_ANNOTATION
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.service import Method
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.notifications import payload
from cotenant.changes.soak import watcher
from cotenant.changes.soak.watcher import News, Watcher
from tests.changes.conftest import Make
from tests.changes.dying import Where, killed, watching
from tests.changes.world import RESOURCES, Kubelet, cpus, deployed, live, pods, recommended, template
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support.extent import full

TERMS = AcceptanceTerms(overridden=("cool-down",), canary=0.5)
HOUR = 3600.0


class Watched:
    """A watcher over one ledger, at any time of ours."""

    def __init__(self, make: Make, **settings: Any) -> None:
        self.make = make
        self.settings = {"soak_minutes": 30.0, "resize_seconds": 20.0, **settings}
        self.news: list[News] = []
        self.compared: tuple[Compared, ...] = ()

    def actions(self, ahead_seconds: float = 0.0) -> Actions:
        return self.make(ShiftedClock(ahead_seconds), **self.settings).having(compare=lambda *_: self.compared)

    def step(self, ahead_seconds: float) -> list[tuple[str, ChangeState]]:
        @contextmanager
        def opened() -> Iterator[Actions]:
            yield self.actions(ahead_seconds)

        moved = Watcher(opened, self.news.extend).step()
        return [(s.change.name, s.state) for s in moved]


def templates(plane: ControlPlane, *workloads: WorkloadRef) -> list[str]:
    return [template(plane, ref)["requests"]["cpu"] for ref in workloads]


def accepted(actions: Actions, *workloads: WorkloadRef, **more: Any) -> list[ChangeStatus]:
    reviews = actions.review([recommended(ref) for ref in workloads], **more)
    return actions.accept(reviews, TERMS)


@pytest.fixture
def three(control_plane: ControlPlane, namespace: str, kubelet: Kubelet) -> list[WorkloadRef]:
    """Three workloads that run."""
    return [
        deployed(control_plane, namespace, name, 1, nodeSelector={"test/own": kubelet.node}) for name in ("a", "b", "c")
    ]


def settled(plane: ControlPlane, *workloads: WorkloadRef) -> None:
    """Wait until the rollouts are through."""
    for ref in workloads:
        path = f"/apis/apps/v1/namespaces/{ref.namespace}/deployments/{ref.name}"
        wait_for(f"{ref.name} is rolled out", lambda path=path: _rolled(plane.api().get(path)))


def _rolled(body: dict[str, Any]) -> bool:
    status, replica_count = body["status"], body["spec"]["replicas"]
    is_observed = status.get("observedGeneration") == body["metadata"]["generation"]
    return (
        is_observed
        and status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == replica_count
    )


def test_two_of_three_go_first_soak_and_the_rest_follows(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make
) -> None:
    watched = Watched(make)
    done = accepted(watched.actions(), *three)
    # Half of three is two.
    assert [s.state for s in done] == [ChangeState.APPLIED, ChangeState.APPLIED, ChangeState.WAITING]
    assert templates(control_plane, *three) == ["800m", "800m", "1"]
    settled(control_plane, *three)
    assert watched.step(0.4 * HOUR) == [] and templates(control_plane, three[2]) == ["1"]
    assert sorted(watched.step(0.6 * HOUR)) == [
        ("a", ChangeState.VERIFIED),
        ("b", ChangeState.VERIFIED),
        ("c", ChangeState.APPLIED),
    ]
    assert templates(control_plane, *three) == ["800m", "800m", "800m"]
    settled(control_plane, *three)
    # c soaks from when it was sent; a day later all are judged once more, and then no more.
    assert watched.step(1.2 * HOUR) == [("c", ChangeState.VERIFIED)]
    assert {name for name, state in watched.step(26 * HOUR)} == {"a", "b", "c"} and watched.step(50 * HOUR) == []
    assert watched.news == []


def test_harm_to_the_first_takes_them_back_and_the_rest_is_never_done(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make
) -> None:
    watched = Watched(make)
    accepted(watched.actions(), *three)
    settled(control_plane, *three)
    watched.compared = (Compared(Measure.THROTTLED, 0.02, 0.4),)
    change_states = dict(watched.step(0.6 * HOUR))
    assert change_states == {"a": ChangeState.ROLLED_BACK, "b": ChangeState.ROLLED_BACK, "c": ChangeState.CANCELLED}
    assert templates(control_plane, *three) == ["1", "1", "1"]
    (phrase,) = [news.words for news in watched.news if "/c:" in news.title]
    assert "changed first, is regressed: throttled CPU periods 2.0 % -> 40.0 %, a rise of more than 10 %" in phrase
    assert watched.step(50 * HOUR) == []


@pytest.mark.parametrize(
    "dies_after", ["sent", "rollback-sent", *full("resumed", "judged", "cancelled", "rollback-accepted")]
)
def test_a_watcher_that_dies_is_gone_on_with(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make, person: Path, tmp_path: Path, dies_after: str
) -> None:
    watched, harm = Watched(make), dies_after not in ("resumed", "sent", "judged")
    accepted(watched.actions(), *three)
    settled(control_plane, *three)
    watched.compared = (Compared(Measure.THROTTLED, 0.0, 0.9),) if harm else ()
    where = Where(
        str(person),
        tmp_path / "ledger.db",
        dies_after,
        watched.settings,
        0.6 * HOUR,
        watched.compared,
    )
    killed(watching, where)
    for _ in range(3):
        watched.step(0.7 * HOUR)
        settled(control_plane, *three)
    states = {s.change.name: s.state for s in watched.actions().journal.statuses().values()}
    back = {"a": ChangeState.ROLLED_BACK, "b": ChangeState.ROLLED_BACK, "c": ChangeState.CANCELLED}
    if harm:
        assert templates(control_plane, *three) == ["1", "1", "1"]
        assert states == back
    else:
        assert templates(control_plane, *three) == ["800m", "800m", "800m"]
        assert states == dict.fromkeys(("a", "b"), ChangeState.VERIFIED) | {"c": ChangeState.APPLIED}


def test_the_rest_waits_for_a_window_however_well_the_first_did(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make
) -> None:
    watched = Watched(make)
    accepted(watched.actions(), *three[:2])
    settled(control_plane, *three[:2])
    # The one minute of the week that is four days from now.
    watched.settings["windows"] = [_minute(watched.actions().journal.clock.now_seconds() + 96 * HOUR)]
    expected = [("a", ChangeState.VERIFIED)]
    assert watched.step(0.6 * HOUR) == expected and templates(control_plane, three[1]) == ["1"]
    watched.settings["windows"] = []
    assert watched.step(0.6 * HOUR) == [("b", ChangeState.APPLIED)]


def _minute(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%a} {moment:%H:%M}-{moment + timedelta(minutes=1):%H:%M} UTC".lower().replace("utc", "UTC")


def test_of_one_workload_a_pod_goes_first_and_is_taken_back_when_it_suffers(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, webhook: WebhookService, make: Make
) -> None:
    assert webhook.server.port
    workload = deployed(control_plane, namespace, "web", 3, nodeSelector={"test/own": kubelet.node})
    watched = Watched(make)
    actions = watched.actions()
    (review,) = actions.review([recommended(workload)], method=Method.IN_PLACE)
    first, rest = actions.accept([review], structs.replace(TERMS, canary=0.1))
    assert (first.state, rest.state) == (ChangeState.APPLIED, ChangeState.WAITING)
    assert cpus(control_plane, workload) == ["1", "1", "800m"]
    change_steps = watched.step(0.6 * HOUR)
    assert change_steps == [("web", ChangeState.VERIFIED), ("web", ChangeState.APPLIED)]
    assert cpus(control_plane, workload) == ["800m", "800m", "800m"] and len(pods(control_plane, workload)) == 3


def test_a_regression_is_taken_back_only_where_that_is_wanted(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make
) -> None:
    watched = Watched(make)
    actions = watched.actions()
    actions.accept(actions.review([recommended(three[0])]), structs.replace(TERMS, canary=0.0))
    settled(control_plane, three[0])
    watched.compared = (Compared(Measure.PRESSURE, None, 0.5),)
    assert watched.step(0.6 * HOUR) == [("a", ChangeState.REGRESSED)] and templates(control_plane, three[0]) == ["800m"]
    watched.settings["auto_rollback"] = True
    assert watched.step(0.6 * HOUR) == [("a", ChangeState.ROLLED_BACK)] and templates(control_plane, three[0]) == ["1"]
    assert [news.title.split(" ", 3)[-1] for news in watched.news] == ["did harm", "was rolled back"]


def test_a_raise_whose_first_new_pod_fits_no_node_is_harm_although_every_old_pod_is_ready(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, make: Make
) -> None:
    workload = deployed(control_plane, namespace, "web", 3, nodeSelector={"test/own": kubelet.node})
    watched = Watched(make, auto_rollback=True)
    actions = watched.actions()
    # The node has 64 cores, of which the three pods leave 61: a quarter more of them is one, beside which all stay.
    actions.accept(actions.review([recommended(workload, 63_000)]), structs.replace(TERMS, canary=0.0))
    wait_for("a pod that waits", lambda: len(pods(control_plane, workload)) == 4)
    wait_for("its count", lambda: live(control_plane, workload)["status"].get("updatedReplicas") == 1)
    assert live(control_plane, workload)["status"]["readyReplicas"] == 3
    # While its pod is young the rollout may yet go on: neither good nor bad.
    watched.settings["soak_minutes"] = 0.0
    assert watched.step(60.0) == [("web", ChangeState.APPLIED)]
    assert watched.step(0.6 * HOUR) == [("web", ChangeState.ROLLED_BACK)]
    assert templates(control_plane, workload) == ["1"]
    assert "1 of 3 replicas have the present template" in watched.news[-1].words


def test_a_thread_looks_until_it_is_told_to_stop(control_plane: ControlPlane, person: Path, tmp_path: Path) -> None:
    event = threading.Event()

    @contextmanager
    def opened() -> Iterator[Actions]:
        ledger, client = Ledger(tmp_path / "l.db"), control_plane.client(person)
        yield Actions(client, ChangeLedger(ledger, SystemClock(), "watcher"), ActionSettings(), ClusterUser("watcher"))
        ledger.close()
        client.close()
        event.set()

    seen_news: list[News] = []
    peak = News("shop/web: a peak is ahead", "18:00, 310 cores more")
    stop = Watcher(opened, seen_news.extend, lambda _now: [peak]).start(0.01)
    assert event.wait(60)
    event.clear()
    assert event.wait(60)
    stop()
    assert seen_news == [peak]  # once, however often it is ahead
    slack = payload("prod <1>", seen_news, NotifySettings())
    assert "prod &lt;1&gt;" in slack["text"] and "310 cores" in slack["blocks"][1]["text"]["text"]
    assert payload("prod", seen_news, NotifySettings(format="json"))["news"][0]["bad"] is False


def test_stopping_the_watcher_waits_for_the_run_that_goes_on_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    began, end, before = threading.Event(), threading.Event(), set(threading.enumerate())

    def opened() -> AbstractContextManager[Actions]:
        began.set()
        end.wait(60)
        raise StoreBusy("another process has the ledger")

    monkeypatch.setattr(watcher, "STOP_SECONDS", 0.01)
    stop = Watcher(opened, lambda _news: None).start(0.01)
    assert began.wait(60)
    stop()
    (thread,) = set(threading.enumerate()) - before
    monkeypatch.setattr(watcher, "STOP_SECONDS", 60.0)
    threading.Timer(0.05, end.set).start()
    stop()
    assert not thread.is_alive()


def test_what_the_watcher_may_not_write_is_left_for_somebody_who_may(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make, tmp_path: Path
) -> None:
    watched = Watched(make)
    accepted(watched.actions(), *three[:2])
    settled(control_plane, *three[:2])
    name = f"looker-{three[0].namespace}"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{three[0].namespace}"
    control_plane.api().create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    control_plane.api().create(f"{rbac}/rolebindings", binding)
    client = control_plane.client(control_plane.user(name, []))
    ledger = Ledger(tmp_path / "ledger.db")

    @contextmanager
    def opened() -> Iterator[Actions]:
        journal = ChangeLedger(ledger, ShiftedClock(0.6 * HOUR), name)
        yield Actions(client, journal, ActionSettings(), ClusterUser(name))

    watcher = Watcher(opened, watched.news.extend)
    path = f"/apis/apps/v1/namespaces/{three[0].namespace}/deployments"
    wait_for("the right to look", lambda: _may_list(client, path))
    assert [(s.change.name, s.state) for s in watcher.step()] == [("a", ChangeState.VERIFIED)]
    assert watcher.step() == [] and templates(control_plane, three[1]) == ["1"]
    ledger.close()
    # Somebody who may comes by.
    assert watched.step(0.6 * HOUR) == [("b", ChangeState.APPLIED)]


def _may_list(client: KubeClient, path: str) -> bool:
    try:
        client.list(path)
    except ClusterForbidden:
        return False
    return True


def test_what_waited_takes_no_annotation_and_no_label_away_that_somebody_has_set_meanwhile(
    control_plane: ControlPlane, namespace: str, make: Make
) -> None:
    api, path = control_plane.api(), f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    labels, refs = {"app": "db"}, [WorkloadRef(namespace, "StatefulSet", name) for name in ("db-a", "db-b")]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [
        {"name": "app", "image": "example.invalid/a:1", "resources": RESOURCES}]}}  # fmt: skip
    body = {"replicas": 0, "serviceName": "db", "selector": {"matchLabels": labels}, "template": template}
    for ref in refs:  # without any annotation and label of its own
        api.create(path, {"metadata": {"name": ref.name}, "spec": body})
    actions = make()
    reviews = actions.review([recommended(ref) for ref in refs])
    first, waiting = actions.accept(reviews, structs.replace(TERMS, overridden=("cool-down", "rollout")))
    assert waiting.state is ChangeState.WAITING and "annotations" not in api.get(f"{path}/db-b")["metadata"]
    own = {"annotations": {"team.example/owner": "ann"}, "labels": {"team": "ann"}}
    api.patch(f"{path}/db-b", {"metadata": own}, kind="merge")
    assert actions.resume(waiting, "nothing was harmed").state is ChangeState.APPLIED
    meta = api.get(f"{path}/db-b")["metadata"]
    assert meta["labels"] == own["labels"]
    assert meta["annotations"] == {**own["annotations"], CHANGE_ANNOTATION: waiting.change.id}
    # the one that went first had no annotation, and has got the note alone
    assert api.get(f"{path}/db-a")["metadata"]["annotations"] == {CHANGE_ANNOTATION: first.change.id}


@pytest.mark.parametrize(
    ("resource", "now", "amount", "becomes"),
    [(Resource.MEMORY, GIB, 900 * MIB, ChangeState.CANCELLED), (Resource.CPU, 1000, 800, ChangeState.APPLIED)],
)
def test_memory_of_a_workload_that_was_killed_while_its_change_waited_is_not_lowered(
    control_plane: ControlPlane, three: list[WorkloadRef], make: Make, resource: Resource, now: int, amount: int,
    becomes: ChangeState,
) -> None:  # fmt: skip
    watched, path = Watched(make), f"/api/v1/namespaces/{three[0].namespace}/pods"
    ones = [recommended(ref) for ref in three[1:]]
    lowered = [
        replace(recommendation, values=(replace(recommendation.values[0], resource=resource, now=now, amount=amount),))
        for recommendation in ones
    ]
    actions = watched.actions()
    first, waiting = actions.accept(actions.review(lowered), structs.replace(TERMS, canary=0.5))
    assert (first.state, waiting.state) == (ChangeState.APPLIED, ChangeState.WAITING)
    settled(control_plane, *three)
    (pod,) = pods(control_plane, three[2])
    end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": (datetime.now(UTC) + timedelta(minutes=1)).isoformat()}
    killed_once = [{"op": "add", "path": "/status/containerStatuses/0/lastState", "value": {"terminated": end}}]
    control_plane.api().patch(f"{path}/{pod['metadata']['name']}/status", killed_once, "json")
    moved = dict(watched.step(0.6 * HOUR))
    assert moved == {"b": ChangeState.VERIFIED, "c": becomes}
    if becomes is ChangeState.CANCELLED:
        (news,) = watched.news
        assert (
            news.words
            == "the change lowers memory, and 1 container that gets less was OOM-killed since the change was accepted"
        )
        assert template(control_plane, three[2])["requests"]["memory"] == "1Gi"
