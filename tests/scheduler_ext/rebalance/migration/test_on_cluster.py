"""Moves on a real kube-apiserver and kube-scheduler: room first, budgets kept, no room left behind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.errors import ClusterError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kube.client import Pause
from cotenant.base.kube.writes import send_all
from cotenant.base.kubernetes.intent import Address, eviction_of
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import refusal_of
from cotenant.scheduler_ext.rebalance.migration.view import EvictionRefusal
from tests.cluster.admission_rules import refusing
from tests.cluster.api import Json
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.rebalance.migration.fake_agents import FakeAgents
from tests.scheduler_ext.rebalance.migration.scene import JOBS, MIGRATIONS, Chronicle, MigrationScene, configuration
from tests.scheduler_ext.reservations.disturbed import manager_process
from tests.support.extent import full

Nodes = Callable[..., list[str]]
STEPS = ["Arbitrated", "ReservationCreated", "ReservationScheduled", "Eviction", "PodBoundReservation", "BoundPodReady"]


@pytest.fixture
def nodes(moves: MigrationScene, fake_nodes: Nodes) -> list[str]:
    """Three nodes of four cores that nobody else's pods go to."""
    return fake_nodes(3, cpu="4", labels={"moves": moves.namespace[-60:]})


def pinned(moves: MigrationScene) -> dict[str, Any]:
    return {"nodeSelector": {"moves": moves.namespace[-60:]}}


def test_a_person_s_job_moves_a_pod_to_room_that_stood_before_it_left(moves: MigrationScene, nodes: list[str]) -> None:
    with running(moves.plane), moves.manager():
        pod, other = moves.workload("web", 2, **pinned(moves))
        with Chronicle(moves).recording() as chronicle:
            name = moves.job(pod)
            status = moves.await_job(name)
        source = pod["spec"]["nodeName"]
        (successor,) = [p for p in moves.ready_pods("web") if p["metadata"]["uid"] != other["metadata"]["uid"]]
        assert successor["spec"]["nodeName"] == status["nodeName"] in set(nodes) - {source}
        assert status["podRef"]["uid"] == successor["metadata"]["uid"]
        assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == STEPS
        _, left_at = chronicle.deleted_pods[pod["metadata"]["uid"]]
        (room,) = chronicle.availability
        assert chronicle.available_at(room, left_at)
        wait_for("no room is left", lambda: not moves.rooms())


def test_without_room_elsewhere_the_pod_stays(moves: MigrationScene, nodes: list[str]) -> None:
    with moves.manager():
        web, *_ = moves.workload("web", 2, cpu="3", **pinned(moves))
        moves.workload("batch", 1, cpu="3", **pinned(moves))
        name = moves.job(web)
        assert moves.await_job(name, "Failed")["reason"] == "Unschedulable"
        wait_for("an Event says so", lambda: "Unschedulable" in moves.event_reasons(name))
        assert web["metadata"]["uid"] in {p["metadata"]["uid"] for p in moves.ready_pods("web")}
        wait_for("no room is left", lambda: not moves.rooms())


def test_a_budget_is_kept_and_the_job_waits_for_it(moves: MigrationScene, nodes: list[str]) -> None:
    with moves.manager():
        pods = moves.workload("web", 2, **pinned(moves))
        moves.budget("web", minAvailable=2)
        name = moves.job(pods[0])
        wait_for("it waits", lambda: "disruption-budget" in moves.job_status(name).get("message", ""))
        path = f"/apis/policy/v1/namespaces/{moves.namespace}/poddisruptionbudgets/web"
        moves.api.patch(path, {"spec": {"minAvailable": 1}})
        moves.await_job(name, "Running")
        wait_for(
            "it was evicted",
            lambda: pods[0]["metadata"]["name"] not in {p["metadata"]["name"] for p in moves.pods_of("web")},
        )
        assert len(moves.ready_pods("web")) >= 1


def test_room_that_no_successor_takes_is_given_back(moves: MigrationScene, nodes: list[str]) -> None:
    """Without the webhook a successor may go elsewhere."""
    elsewhere = {**pinned(moves), "nodeName": nodes[0]}
    with moves.manager():
        web, _ = moves.workload("web", 2, **elsewhere)
        name = moves.job(web, ttl="8s")
        wait_for("it was evicted", lambda: moves.job_status(name).get("status") == "WaitForPodBindReservation")
        assert moves.await_job(name, "Failed")["reason"] == "Timeout"
        wait_for("no room is left", lambda: not moves.rooms())
        assert len(moves.ready_pods("web")) == 2


def test_a_pod_that_came_just_now_and_a_pod_without_a_controller_stay(moves: MigrationScene, nodes: list[str]) -> None:
    moves.descheduler = {"configuration": configuration()}
    with moves.manager():
        web, _ = moves.workload("web", 2, **pinned(moves))
        status = moves.await_job(moves.job(web), "Failed")
        assert (status["reason"], status["message"].partition(":")[0]) == ("ForbiddenMigratePod", "started-lately")
        moves.pod("bare", "1", **pinned(moves))
        moves.await_bound("bare")
        bare = moves.api.get(f"{moves.pods_path}/bare")
        status = moves.await_job(moves.job(bare, mode="EvictDirectly"), "Failed")
        assert status["message"].startswith("no-controller")


def hot_node(moves: MigrationScene, fake_nodes: Nodes, **settings: bool) -> tuple[list[str], dict[str, int]]:
    """Three nodes of 10 cores with rounds of LowNodeLoad over them; eight pods of four workloads are on the first."""
    label = {"moves": moves.namespace[-60:]}
    nodes = fake_nodes(3, cpu="10", labels=label)
    apps = dict.fromkeys("abcd", 2)
    moves.features = (*MIGRATIONS, "descheduler")
    thresholds = {"lowThresholds": {"cpu": 40, "memory": 40}, "highThresholds": {"cpu": 70, "memory": 80}}
    load = {**thresholds, "nodeSelector": {"matchLabels": label}, "anomalyCondition": {"consecutiveAbnormalities": 1}}
    moves.descheduler = {"interval_seconds": 1, "configuration": configuration(load), **settings}
    moves.workloads_on(nodes[0], nodes, apps, **pinned(moves))
    return nodes, apps


def test_rounds_relieve_a_hot_node_once_they_may(moves: MigrationScene, fake_nodes: Nodes) -> None:
    nodes, apps = hot_node(moves, fake_nodes)
    agents = FakeAgents(moves.plane, moves.namespace, nodes, dict.fromkeys(apps, 1.0))
    with agents.reporting(), running(moves.plane), Chronicle(moves).recording() as chronicle:
        with moves.manager() as manager:
            wait_for("rounds of a dry run", lambda: manager.rounds("descheduler") > 3)
        assert moves.api.items(JOBS) == [] and agents.loads[nodes[0]] == 8.5
        moves.descheduler["dry_run"] = False
        with moves.manager():
            # 8.5 of 10 cores; two pods of one core each bring it under 7
            wait_for("it is relieved", lambda: agents.loads[nodes[0]] <= 7)
            wait_for(
                "the moves have ended",
                lambda: {j["status"].get("phase") for j in moves.api.items(JOBS)} == {"Succeeded"},
            )
    jobs = moves.api.items(JOBS)
    targets = {job["metadata"]["annotations"]["cotenant.dev/target-node"] for job in jobs}
    assert len(jobs) == 2 and targets <= set(nodes[1:])
    assert {job["status"]["nodeName"] for job in jobs} == targets
    assert set(chronicle.deleted_pods) == {job["spec"]["podRef"]["uid"] for job in jobs}
    for job in jobs:
        _, left_at = chronicle.deleted_pods[job["spec"]["podRef"]["uid"]]
        assert chronicle.available_at(f"migration-{job['metadata']['uid']}", left_at)
    assert not moves.rooms()


def test_pods_whose_evictions_are_refused_do_not_keep_a_hot_node_hot(moves: MigrationScene, fake_nodes: Nodes) -> None:
    """A rule of the cluster keeps pods of one workload, two budgets those of another; the others relieve the node."""
    nodes, apps = hot_node(moves, fake_nodes, dry_run=False)
    for pod in moves.ready_pods("a"):  # those of the lowest deletion cost are moved first
        cost = {"controller.kubernetes.io/pod-deletion-cost": "-1"}
        moves.api.patch(f"{moves.pods_path}/{pod['metadata']['name']}", {"metadata": {"annotations": cost}})
    for name in ("b-one", "b-two"):
        moves.budget("b", name, minAvailable=1)
    agents = FakeAgents(moves.plane, moves.namespace, nodes, dict.fromkeys(apps, 1.0))
    with kept_by_a_rule(moves, "a-"), agents.reporting(), running(moves.plane), moves.manager():
        # 8.5 of 10 cores: two pods of one core each bring it under 7, and only c and d may leave
        wait_for("it is relieved", lambda: agents.loads[nodes[0]] <= 7, 240)
        wait_for("the moves have ended", lambda: all(map(is_over, moves.api.items(JOBS))))
        jobs = moves.api.items(JOBS)
        failed = [job for job in jobs if job["status"]["phase"] == "Failed"]
        assert failed and {job["spec"]["podRef"]["name"][0] for job in failed} == {"a"}
        assert {job["spec"]["podRef"]["name"][0] for job in jobs} <= set("acd")
        for job in failed:
            status = job["status"]
            (evicting,) = [condition for condition in status["conditions"] if condition["type"] == "Eviction"]
            assert (status["reason"], evicting["status"], evicting["reason"]) == ("FailedEvict", "False", "FailedEvict")
            assert KEPT in status["message"] and KEPT in evicting["message"]
            name = job["metadata"]["name"]
            wait_for("an Event says so", lambda name=name: any(KEPT in note for note in moves.event_notes(name)))
    assert len(moves.ready_pods("a")) == len(moves.ready_pods("b")) == 2


def test_what_the_eviction_api_answers_is_understood(moves: MigrationScene, nodes: list[str]) -> None:
    """A budget (429), two of them (500), another pod of the name (409), no pod (404), a rule (422): real answers."""
    client = moves.plane.client(moves.account)

    def answer(name: str, uid: str) -> EvictionRefusal:
        address = Address("v1", "pods", name, moves.namespace)
        (outcome,) = send_all(client, [eviction_of(address, uid, "test")], "cotenant-manager")
        refusal = refusal_of(outcome.error, 0.0)
        assert refusal is not None
        return refusal

    (pod,) = moves.workload("one", 1, **pinned(moves))
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    moves.budget("one", minAvailable=1)
    pause = Pause()
    patient = KubeClient(client.access, msgspec.structs.replace(client.settings, retries=5), pause=pause)
    with pytest.raises(ClusterError, match="disruption budget"):
        Writer(patient, "t").send(eviction_of(Address("v1", "pods", name, moves.namespace), uid, "test"))
    # a budget's 429 is an answer and not a busy server: nobody else's writes wait for it
    assert pause.until_seconds == 0.0
    budget = answer(name, uid)
    assert not budget.final and "disruption budget" in budget.why
    moves.budget("one", "other", minAvailable=1)
    two = answer(name, uid)
    assert two.final and "more than one PodDisruptionBudget" in two.why
    (ruled,) = moves.workload("ruled", 1, **pinned(moves))
    assert not answer("nobody", uid).final and not answer(ruled["metadata"]["name"], "another").final
    with kept_by_a_rule(moves, "ruled-"):
        by_rule = answer(ruled["metadata"]["name"], ruled["metadata"]["uid"])
    assert by_rule.final and KEPT in by_rule.why


KEPT = "this pod is kept by the test's rule"


@contextmanager
def kept_by_a_rule(moves: MigrationScene, prefix: str) -> Iterator[None]:
    """A rule of the cluster, in force, that refuses evictions of the namespace's pods whose names begin so."""
    expression = f"request.namespace != '{moves.namespace}' || !request.name.startsWith('{prefix}')"
    rule = {"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    probe = eviction_of(Address("v1", "pods", f"{prefix}probe", moves.namespace), "none", "test")
    client = moves.plane.client(moves.account)
    in_force = lambda: KEPT in str(send_all(client, [probe], "t")[0].error)  # noqa: E731
    validation = {"expression": expression, "message": KEPT}
    with refusing(moves.api, f"keep-{moves.namespace}"[:60], rule, validation, in_force):
        yield


FEW_KILLS = 2


@pytest.mark.parametrize("kills", [FEW_KILLS, *full(100)])
def test_a_manager_that_is_killed_again_and_again_loses_no_pod_and_leaves_no_room(
    moves: MigrationScene, fake_nodes: Nodes, tmp_path: Path, kills: int
) -> None:
    """A workload whose eviction was cut off waits for two minutes for its budget; the others go on meanwhile.

    The small form has no budgets: it would wait for that in most runs, while others wait for the control plane.
    """
    fake_nodes(4, cpu="16", labels={"moves": moves.namespace[-60:]})
    seed, names = random.Random(11), tuple(f"a{number}" for number in range(min(kills + 1, 12)))
    for app in names:
        moves.workload(app, 2, **pinned(moves))
        if kills > FEW_KILLS:
            moves.budget(app, minAvailable=1)
    stream = JobStream(moves, names)
    cut_off = 0
    with running(moves.plane), manager_process(moves, tmp_path) as manager, Chronicle(moves).recording() as chronicle:
        for _ in range(kills):
            wait_for("a move goes on", stream.goes_on, 360)
            time.sleep(seed.uniform(0.0, 1.5))
            cut_off += stream.is_under_way()
            manager.again()
        wait_for("jobs have ended", lambda: not stream.open_jobs(), 360)
        wait_for("no room is left", lambda: not moves.rooms())
        for app in names:
            wait_for(f"{app} is whole", lambda app=app: len(moves.ready_pods(app)) == 2)
    jobs = moves.api.items(JOBS)
    print(
        f"{kills} kills, {cut_off} of them with a move under way; "
        f"{len(jobs)} jobs, {len(chronicle.deleted_pods)} pods moved"
    )
    # While no manager runs for long, no webhook holds a successor back; its job gives the room up in the end.
    assert {job["status"].get("reason", "") for job in jobs} <= {"", "Timeout"}
    assert 2 * cut_off > kills
    assert 2 * len(chronicle.deleted_pods) >= kills and min(chronicle.fewest[app] for app in names) >= 1
    # A pod whose job ran out of time gets another one: one of its rooms stood when it left.
    without = [
        name for uid, (name, at) in chronicle.deleted_pods.items() if not any(rooms_available(chronicle, jobs, uid, at))
    ]
    assert without == []


def rooms_available(chronicle: Chronicle, jobs: Sequence[Json], pod_uid: str, revision: int) -> Iterator[bool]:
    """Of the room of each job of a pod: whether it was Available at a revision."""
    for job in jobs:
        if job["spec"]["podRef"]["uid"] == pod_uid:
            yield chronicle.available_at(f"migration-{job['metadata']['uid']}", revision)


class JobStream:
    """A job for each workload at any time: one that ended is followed by the next."""

    def __init__(self, moves: MigrationScene, apps: Sequence[str]) -> None:
        self.moves, self.apps = moves, apps
        self._last: dict[str, str] = {}
        """Workload -> the status of all its jobs that a look before saw."""

    def goes_on(self) -> bool:
        """Begin what has ended; whether a manager wrote any job's status since the last look that said so."""
        jobs = self.moves.api.items(JOBS)
        statuses = {job["metadata"]["name"]: str(job.get("status")) for job in jobs if job.get("status")}
        busy = {job["spec"]["podRef"]["name"].rpartition("-")[0] for job in jobs if not is_over(job)}
        for app in self.apps:
            ready = [] if app in busy else self.moves.ready_pods(app)
            if len(ready) == 2:
                self.moves.job(ready[0])
        has_gone_on = any(self._last.get(name) != status for name, status in statuses.items())
        if has_gone_on:
            self._last = statuses
        return has_gone_on

    def open_jobs(self) -> list[Json]:
        """Those that have not ended."""
        return [job for job in self.moves.api.items(JOBS) if not is_over(job)]

    def is_under_way(self) -> bool:
        """Whether a job is in the middle of its move."""
        return any((job.get("status") or {}).get("phase") == "Running" for job in self.open_jobs())


def is_over(job: Json) -> bool:
    return (job.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def test_a_soft_eviction_leaves_the_end_to_whoever_looks_after_the_pod(moves: MigrationScene, nodes: list[str]) -> None:
    moves.descheduler["configuration"] = configuration(evictionPolicy="SoftEviction")
    with running(moves.plane), moves.manager():
        web, _ = moves.workload("web", 2, **pinned(moves))
        name, path = moves.job(web), f"{moves.pods_path}/{web['metadata']['name']}"
        key = "scheduling.koordinator.sh/soft-eviction"
        wait_for("it is asked to leave", lambda: key in (moves.api.get(path)["metadata"].get("annotations") or {}))
        assert moves.job_status(name)["phase"] == "Running"
        moves.api.delete(path)
        moves.await_job(name)


def test_an_eviction_that_is_granted_is_no_failure(moves: MigrationScene, nodes: list[str]) -> None:
    (web,) = moves.workload("web", 1, **pinned(moves))
    meta = web["metadata"]
    eviction = eviction_of(Address("v1", "pods", meta["name"], meta["namespace"]), meta["uid"], "a test")
    (outcome,) = send_all(moves.plane.client(moves.account), [eviction], "cotenant-manager")
    assert outcome.error is None


def test_without_a_room_the_pod_is_evicted_directly(moves: MigrationScene, nodes: list[str]) -> None:
    with moves.manager():
        web, _ = moves.workload("web", 2, **pinned(moves))
        moves.await_job(moves.job(web, mode="EvictDirectly"))
        wait_for("it is back", lambda: len(moves.ready_pods("web")) == 2)
        assert web["metadata"]["uid"] not in {p["metadata"]["uid"] for p in moves.pods_of("web")}
        assert moves.rooms() == []
