"""Under-used nodes are emptied on a real control plane: marked first, given back when somebody needs them, or at last.

Three nodes of ten cores, half a core of system usage each: `low` runs four pods of half a core, the others five of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Patch
from cotenant.base.kubernetes.node_taints import NODES, node_address
from tests.cluster import needing
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.rebalance.migration.fake_agents import FakeAgents
from tests.scheduler_ext.rebalance.migration.scene import JOBS, MIGRATIONS, Chronicle, MigrationScene, configuration

MARK = {"key": "cotenant.dev/emptying", "effect": "PreferNoSchedule"}
OTHER = {"key": "example.com/theirs", "effect": "NoExecute"}
CORES = {"a": 0.5, "b": 0.5, "full": 1.0, "fuller": 1.0}


@dataclass
class EmptyingScene:
    """The moves of a namespace, and its three nodes."""

    moves: MigrationScene
    low: str
    others: tuple[str, str]
    pins: Json

    def marks(self, node: str = "") -> list[Json]:
        """Taints of the mark on a node (`low` unless named), as the server has them."""
        taints = self.moves.api.get(f"{NODES}/{node or self.low}")["spec"].get("taints") or ()
        return [taint for taint in taints if taint["key"] == MARK["key"]]

    def pods(self) -> list[str]:
        """Pods that are on the under-used node."""
        bound = self.moves.api.items(self.moves.pods_path, fieldSelector=f"spec.nodeName={self.low}")
        return [pod["metadata"]["name"] for pod in bound]


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own: a pod that waits for room anywhere, such as one of another test, stops the emptying of nodes."""
    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("emptying")) as plane:
        yield plane


@pytest.fixture
def cluster(moves: MigrationScene, fake_nodes: Callable[..., list[str]]) -> Iterator[EmptyingScene]:
    label = {"moves": moves.namespace[-60:]}
    low, full, fuller = nodes = fake_nodes(3, cpu="10", labels=label)
    pins = {"nodeSelector": label}
    for node, apps in ((low, {"a": 2, "b": 2}), (full, {"full": 5}), (fuller, {"fuller": 5})):
        moves.workloads_on(node, nodes, apps, **pins)
    chosen = {"nodeSelector": {"matchLabels": label}}
    thresholds = {"lowThresholds": {"cpu": 40, "memory": 40}, "highThresholds": {"cpu": 80, "memory": 80}}
    relief = {**chosen, **thresholds, "lowThresholds": {"cpu": 30, "memory": 40}}
    moves.features = (*MIGRATIONS, "descheduler")
    moves.descheduler = {
        "interval_seconds": 1,
        "plugins": ["LowNodeLoad", "HighNodeLoad"],
        "configuration": configuration(relief, {**chosen, **thresholds}),
    }
    with FakeAgents(moves.plane, moves.namespace, nodes, CORES).reporting(), running(moves.plane):
        yield EmptyingScene(moves, low, (full, fuller), pins)


def test_an_under_used_node_is_emptied_and_its_mark_goes_with_the_manager(cluster: EmptyingScene) -> None:
    moves = cluster.moves
    with moves.manager() as manager:
        wait_for("rounds of a dry run", lambda: manager.rounds("descheduler") > 3)
    assert moves.api.items(JOBS) == [] and cluster.marks() == [] and len(cluster.pods()) == 4
    moves.descheduler["dry_run"] = False
    moves.api.patch(f"{NODES}/{cluster.low}", {"spec": {"taints": [{**OTHER, "effect": "PreferNoSchedule"}]}})
    with Chronicle(moves).recording() as chronicle, moves.manager():
        wait_for("it is empty", lambda: cluster.pods() == [], 180)
        assert cluster.marks() == [MARK] and not any(map(cluster.marks, cluster.others))
        wait_for("an Event says so", lambda: "EmptyingBegun" in moves.event_reasons(cluster.low))
    jobs = moves.api.items(JOBS)
    # four pods, two of each workload, one of each at a time
    assert {job["metadata"]["annotations"]["cotenant.dev/source-node"] for job in jobs} == {cluster.low}
    assert len(jobs) == 4 and set(chronicle.deleted_pods) == {job["spec"]["podRef"]["uid"] for job in jobs}
    for job in jobs:
        _, left_at = chronicle.deleted_pods[job["spec"]["podRef"]["uid"]]
        assert chronicle.available_at(f"migration-{job['metadata']['uid']}", left_at)
    taints = moves.api.get(f"{NODES}/{cluster.low}")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == [OTHER["key"]]


def test_a_node_that_a_person_approved_is_given_back_when_a_pod_needs_it_and_emptied_otherwise(
    cluster: EmptyingScene,
) -> None:
    moves, approved = cluster.moves, {"spec": {"taints": [{**MARK, "value": "approved"}]}}
    moves.budget("a", minAvailable=2)
    moves.api.patch(f"{NODES}/{cluster.low}", approved)
    with moves.manager() as manager:  # a dry run, which goes on with what people approve
        # the node waits for the budget as a whole
        wait_for("rounds", lambda: manager.rounds("descheduler") > 3)
        assert len(cluster.pods()) == 4 and cluster.marks()
        # 4 of 10 cores are requested on `low`, 5 on the others: nine cores fit on `low` alone, once it is empty
        moves.pod("large", "9", **cluster.pins)
        wait_for("the mark is taken away", lambda: cluster.marks() == [])
        wait_for("an Event says so", lambda: "EmptyingEnded" in moves.event_reasons(cluster.low))
        assert len(cluster.pods()) == 4 and moves.api.items(JOBS) == []
        moves.api.delete(f"{moves.pods_path}/large")
        budget = f"/apis/policy/v1/namespaces/{moves.namespace}/poddisruptionbudgets/a"
        moves.api.patch(budget, {"spec": {"minAvailable": 1}})
        moves.api.patch(f"{NODES}/{cluster.low}", approved)
        wait_for("it is empty", lambda: cluster.pods() == [], 180)


def test_the_manager_may_change_nothing_of_a_node_but_its_mark(cluster: EmptyingScene) -> None:
    client = cluster.moves.plane.client(cluster.moves.account)
    writer = Writer(client, "cotenant-manager")

    def answer(path: str, value: object) -> str:
        operation = {"op": "add", "path": path, "value": value}
        try:
            writer.send(Patch(node_address(cluster.low), (operation,)), dry_run=True)
        except ClusterDenied as error:
            return error.message
        return ""

    wait_for("the guard", lambda: "cotenant-emptying" in answer("/spec/unschedulable", True))
    assert answer("/spec/taints", [MARK]) == ""
    refused: list[tuple[str, Any]] = [("/spec/taints", [OTHER]), ("/spec/taints", [{**MARK, "effect": "NoSchedule"}])]
    refused += [("/metadata/labels/mine", "1"), ("/metadata/annotations/mine", "1")]
    assert all("cotenant-emptying" in answer(path, value) for path, value in refused)
    client.close()
