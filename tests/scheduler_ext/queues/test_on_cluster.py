"""Queues on a real kube-apiserver and kube-scheduler: in turn, never beyond a quota, never stuck, whoever is killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.guard_watchdog import GuardWatchdog
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Address, Create, Patch
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import GANG_GATE, PROFILE_GROUP, QUOTA_GATE, QUOTA_GROUP, RESERVATION_GATE
from cotenant.base.process.clock import FixedClock
from cotenant.scheduler_ext.queues.controller import QueueController
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.queues.gang_scene import install_queues
from tests.scheduler_ext.queues.scene import Excess, QueueScene
from tests.scheduler_ext.reservations.disturbed import manager_process
from tests.scheduler_ext.reservations.scene import cleared, empty
from tests.support.settings_files import document

Nodes = Callable[..., list[str]]


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str) -> Iterator[QueueScene]:
    """A namespace and a tree of its own; nothing outlives the test."""
    install_queues(control_plane)
    queue_cluster = QueueScene(control_plane, namespace)
    queue_cluster.profile()
    yield queue_cluster
    empty(queue_cluster)
    for quota in queue_cluster.api.items(queue_cluster.quotas_path):
        queue_cluster.api.delete(f"{queue_cluster.quotas_path}/{quota['metadata']['name']}")
    cleared(queue_cluster)


def test_two_teams_share_what_is_there_and_what_was_lent_comes_back(cluster: QueueScene, fake_nodes: Nodes) -> None:
    fake_nodes(2, cpu="4", labels=cluster.label)
    lender, borrower = cluster.quota("lender", "4", "8"), cluster.quota("borrower", "4", "8")
    excess = Excess(cluster, {borrower: 8, lender: 8})
    with cluster.manager(revoke=True, delay_evict_seconds=0.5), excess.watched():
        cluster.team(borrower, 10)
        wait_for("it borrows all that is idle", lambda: len(cluster.admitted_pods(borrower)) == 8)
        wait_for("its status says so", lambda: cluster.status(borrower).get("used", {}).get("cpu") == "8")
        noted = cluster.api.get(f"{cluster.quotas_path}/{borrower}")["metadata"]["annotations"][
            "cotenant.dev/borrows-since"
        ]
        assert 0 <= time.time() - (moment_of(noted, "") or 0.0) < 120
        lent = cluster.team(lender, 4)
        wait_for("what was lent is back", lambda: set(lent) <= set(cluster.admitted_pods(lender)))
        for name in lent:
            assert cluster.await_bound(name)
        wait_for("the borrower has its guarantee", lambda: len(cluster.admitted_pods(borrower)) == 4)
        wait_for("its runtime says so", lambda: cluster.runtime_cpu(borrower) == "4")
    assert excess.looks > 0
    assert excess.found == []


def test_what_a_round_has_no_time_for_goes_in_the_next_ones(
    cluster: QueueScene, fake_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueController, "send_seconds", 0.0)
    fake_nodes(1, cpu="4", labels=cluster.label)
    team = cluster.quota("team", "4", "4")
    # A round without time writes to two pods; six of these eight have room in all.
    cluster.team(team, 8, cpu="600m")
    with cluster.manager():
        wait_for("six are let go", lambda: len(cluster.admitted_pods(team)) == 6)
        wait_for("its status says so", lambda: cluster.status(team).get("used", {}).get("cpu") == "3600m")
        assert len(cluster.admitted_pods(team)) == 6


def test_pods_of_the_webhook_wait_and_go_and_nobody_waits_for_a_manager_that_ended(
    cluster: QueueScene, fake_nodes: Nodes
) -> None:
    fake_nodes(1, cpu="4", labels=cluster.label)
    team = cluster.quota("team", "1", "1")
    with running(cluster.plane) as webhook:
        with cluster.manager():
            wait_for("the promise", lambda: webhook.state.view().queues_served_until_seconds > time.time())
            wait_for("the quota is known", lambda: team in webhook.state.view().quotas.quotas)
            created = [cluster.member(f"pod-{number}", team, gated=False) for number in range(3)]
            assert [pod["spec"]["schedulingGates"] for pod in created] == [[{"name": QUOTA_GATE}]] * 3
            wait_for("one is let go", lambda: len(cluster.admitted_pods(team)) == 1)
            cluster.await_bound(cluster.admitted_pods(team)[0])
            assert len(cluster.admitted_pods(team)) == 1
            spec = cluster.api.get("/apis/cotenant.dev/v1alpha1/swapguards/swaps")["spec"]
            assert set(spec) == {"queuesServedUntil"}
        assert cluster.promised_until() <= time.time()
        assert set(cluster.gates().values()) == {()}
        wait_for("the end is known", lambda: webhook.state.view().queues_served_until_seconds <= time.time())
        assert "schedulingGates" not in cluster.member("later", team, gated=False)["spec"]


def test_a_rollout_of_the_manager_lets_nobody_go_early(cluster: QueueScene, fake_nodes: Nodes) -> None:
    fake_nodes(1, cpu="4", labels=cluster.label)
    team = cluster.quota("team", "1", "1")
    with cluster.manager(keep_gates_at_end=True):
        first, second = cluster.team(team, 2)
        wait_for("one is let go", lambda: len(cluster.admitted_pods(team)) == 1)
    assert cluster.promised_until() > time.time()
    (going,) = cluster.admitted_pods(team)
    with cluster.manager(keep_gates_at_end=True):
        cluster.api.delete(f"{cluster.pods_path}/{going}")
        wait_for(
            "the next manager goes on", lambda: cluster.admitted_pods(team) == [second if going == first else first]
        )


def test_one_round_by_hand_does_what_its_table_says_and_lets_nobody_else_go(
    cluster: QueueScene, fake_nodes: Nodes, tmp_path: Path
) -> None:
    fake_nodes(1, cpu="4", labels=cluster.label)
    team = cluster.quota("team", "1", "1")
    waiting = set(cluster.team(team, 3))
    settings = cluster.settings(cluster.account)
    file = tmp_path / "settings.json"  # JSON is YAML
    config = {**document(settings, "manager", "queues"), "kube": {"kubeconfig": str(cluster.account)}}
    file.write_text(json.dumps(config))
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()", "--config", str(file)]
    command += ["serve", "manager", "--once", "--write", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    pods = {row["object"].rpartition("/")[2] for row in json.loads(done.stdout) if row["object"].startswith("pods/")}
    # The quota's single core is for one of the three; the promise runs out by itself, and the webhook sees to it.
    assert len(pods) == 1 and set(cluster.admitted_pods(team)) == pods < waiting
    assert cluster.promised_until() > 0


def test_the_webhook_lifts_gates_a_minute_after_the_promise_ran_out(cluster: QueueScene) -> None:
    team = cluster.quota("team", "1", "1")
    cluster.promise("2030-01-01T00:00:00Z")
    all_gates = [{"name": gate} for gate in (QUOTA_GATE, GANG_GATE, RESERVATION_GATE, "example.com/theirs")]
    cluster.member("waiting", team, schedulingGates=all_gates)
    client = cluster.plane.client(account(cluster.plane, "cotenant-webhook"))
    end = 1893456000.0
    assert not GuardWatchdog(client, FixedClock(end + 59)).free_forgotten()
    assert len(cluster.gates()["waiting"]) == 4
    late = GuardWatchdog(client, FixedClock(end + 61))
    assert late.free_forgotten()
    assert cluster.gates()["waiting"] == ("example.com/theirs",)
    assert not late.free_forgotten()


def test_where_koordinator_deals_with_quotas_nobody_waits_for_us(cluster: QueueScene) -> None:
    team = cluster.quota("team", "1", "1")
    cluster.promise("2030-01-01T00:00:00Z")
    cluster.team(team, 2)
    with cluster.manager(handled_by="koordinator"):
        wait_for("the gates are gone", lambda: set(cluster.gates().values()) == {()})
        wait_for("the promise is withdrawn", lambda: cluster.promised_until() <= time.time())
    assert set(cluster.gates().values()) == {()}
    assert sorted(cluster.admitted_pods(team)) == sorted(pod["metadata"]["name"] for pod in cluster.pods())


def test_a_pod_of_higher_priority_takes_room_back_in_its_full_quota_where_a_budget_lets_it(
    cluster: QueueScene, fake_nodes: Nodes
) -> None:
    fake_nodes(1, cpu="8", labels=cluster.label)
    team = cluster.quota("team", "2", "2")
    urgent: dict[str, Any] = {"metadata": {"name": unique_name("urgent")}, "value": 1000}
    cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    with cluster.manager(preempt=True):
        guarded, free = cluster.team(team, 2)
        for name in (guarded, free):
            cluster.await_bound(name)
        budget = {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"guarded": "yes"}}}}
        patch = {"metadata": {"labels": {"guarded": "yes"}}}
        cluster.api.patch(f"{cluster.pods_path}/{guarded}", patch)
        path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
        cluster.api.create(path, {"metadata": {"name": "guarded"}, **budget})
        cluster.member("urgent", team, priorityClassName=urgent["metadata"]["name"])
        assert cluster.await_bound("urgent")
        assert sorted(cluster.gates()) == sorted([guarded, "urgent"])
    cluster.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent['metadata']['name']}")


def test_the_root_quota_of_a_profile_is_made_and_follows_its_nodes(cluster: QueueScene, fake_nodes: Nodes) -> None:
    pool, name = {"pool": cluster.namespace}, f"made-{cluster.namespace[-20:]}"
    fake_nodes(1, cpu="4", labels=pool)
    path = f"/apis/{PROFILE_GROUP}/namespaces/{cluster.namespace}/elasticquotaprofiles"
    spec = {"quotaName": name, "nodeSelector": {"matchLabels": pool}}
    cluster.api.create(
        path, {"apiVersion": PROFILE_GROUP, "kind": "ElasticQuotaProfile", "metadata": {"name": name}, "spec": spec}
    )
    root = f"{cluster.quotas_path}/{name}"
    with cluster.manager():
        wait_for("it is made", lambda: cluster.api.exists(root))
        assert cluster.api.get(root)["spec"]["min"]["cpu"] == "4"
        fake_nodes(1, cpu="2", labels=pool)
        wait_for("it has grown", lambda: cluster.api.get(root)["spec"]["max"]["cpu"] == "6")
        wait_for("and says its total", lambda: "total-resource" in str(cluster.api.get(root)["metadata"]))
        assert cluster.api.get(root)["spec"]["min"]["cpu"] == "6"


def test_quotas_that_the_webhook_completes_are_made_resized_and_told_of(cluster: QueueScene, fake_nodes: Nodes) -> None:
    """It fills in parent and weights, of quotas from before it too: no write of the manager is refused for that."""
    pool, name = {"pool": cluster.namespace}, f"full-{cluster.namespace[-20:]}"
    fake_nodes(1, cpu="4", labels=pool | cluster.label)
    team = cluster.quota("team", "1", "2")
    path = f"/apis/{PROFILE_GROUP}/namespaces/{cluster.namespace}/elasticquotaprofiles"
    kind = {"apiVersion": PROFILE_GROUP, "kind": "ElasticQuotaProfile"}

    def profile(name: str) -> str:
        spec = {"quotaName": name, "nodeSelector": {"matchLabels": pool}}
        cluster.api.create(path, {**kind, "metadata": {"name": name}, "spec": spec})
        return f"{cluster.quotas_path}/{name}"

    old, weight = profile(f"bare-{cluster.namespace[-20:]}"), "quota.scheduling.koordinator.sh/shared-weight"
    with cluster.manager():
        wait_for("one is made before there is a webhook", lambda: cluster.api.exists(old))
    assert weight not in str(cluster.api.get(old)["metadata"].get("annotations"))
    with running(cluster.plane) as webhook:
        wait_for("the webhook reads quotas", lambda: team in webhook.state.view().quotas.quotas)
        new = profile(name)
        with cluster.manager():
            wait_for("another one is made", lambda: cluster.api.exists(new))
            assert weight in cluster.api.get(new)["metadata"]["annotations"]
            fake_nodes(1, cpu="2", labels=pool)
            for root in (old, new):
                wait_for("it has grown", lambda root=root: cluster.api.get(root)["spec"]["max"]["cpu"] == "6")
                wait_for(
                    "it says its total", lambda root=root: "total-resource" in str(cluster.api.get(root)["metadata"])
                )
            # All of its most is asked for, which its tree has.
            cluster.member("asks", team, cpu="2")
            wait_for("a quota from before it says what it may use", lambda: cluster.runtime_cpu(team) == "2")


def test_the_manager_changes_no_quota_but_says_how_it_stands(cluster: QueueScene) -> None:
    team = cluster.quota("team", "1", "1")
    client = cluster.plane.client(account(cluster.plane, "cotenant-manager", cluster.namespace))

    def refused(path: str, value: object) -> str:
        address = Address(QUOTA_GROUP, "elasticquotas", team, cluster.namespace)
        try:
            Writer(client, "cotenant-manager").send(
                Patch(address, ({"op": "add", "path": path, "value": value},)), dry_run=True
            )
        except ClusterDenied as error:
            return error.message
        return ""

    def creation_refusal(**labels: str) -> str:
        address = Address(QUOTA_GROUP, "elasticquotas", "new", cluster.namespace)
        body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": {"name": "new", "labels": labels}}
        try:
            Writer(client, "cotenant-manager").send(Create(address, body), dry_run=True)
        except ClusterDenied as error:
            return error.message
        return ""

    wait_for("the policy is in force", lambda: "changes no quota" in refused("/spec/max/cpu", "9"))
    runtime = {"quota.scheduling.koordinator.sh/runtime": "{}"}
    assert refused("/status", {"used": {"cpu": "1"}}) == ""
    assert refused("/metadata/annotations", runtime) == ""
    assert "a quota's annotations" in refused("/metadata/annotations", {**runtime, "a": "b"})
    assert "makes no quota" in creation_refusal()
    group = "quota.scheduling.koordinator.sh"
    root = {f"{group}/profile": "x", f"{group}/is-root": "true", f"{group}/is-parent": "true"}
    assert creation_refusal(**root) == ""
    for missing in root:
        assert "makes no quota" in creation_refusal(**{key: value for key, value in root.items() if key != missing})
    assert "changes no quota" in refused("/metadata/labels/quota.scheduling.koordinator.sh~1profile", "mine")
    client.close()


@pytest.mark.parametrize("kills", [1, pytest.param(100, marks=pytest.mark.soak)])
def test_a_manager_that_is_killed_again_and_again_admits_nothing_twice(
    cluster: QueueScene, fake_nodes: Nodes, tmp_path: Path, kills: int
) -> None:
    fake_nodes(2, cpu="8", labels=cluster.label)
    most = {cluster.quota("team-a", "2", "3"): 3, cluster.quota("team-b", "2", "3"): 3}
    seed, count = random.Random(7), 4 + kills
    for quota in most:
        cluster.team(quota, count)
    with Excess(cluster, most).watched() as excess, manager_process(cluster, tmp_path) as manager:
        for _ in range(kills):
            before = len(cluster.pods())
            wait_for("it works", lambda before=before: progressed(cluster) or len(cluster.pods()) < before, 120)
            time.sleep(seed.uniform(0.0, 0.4))
            manager.again()
        wait_for("all had their turn", lambda: progressed(cluster) and not cluster.pods(), 120 + 10 * kills)
    assert excess.looks > 0
    assert excess.found == []


def progressed(cluster: QueueScene) -> bool:
    """End the pods that run; whether there were some, or nothing is left."""
    pods = cluster.pods()
    bound = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
    for name in bound:
        cluster.api.delete(f"{cluster.pods_path}/{name}", gracePeriodSeconds="0")
    return bool(bound) or not pods
