"""Koordinator's own programs and ours in one cluster: what one writes the other uses or leaves alone.

koord-manager and koord-scheduler are built from their module (`make koordinator-binaries`) and have the rights and the
configuration of their sources. `docs/beside-koordinator.md` names the test of each part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.manager.run import Manager
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from tests.cluster import koordinator, needing
from tests.cluster.api import Json
from tests.cluster.control_plane import CONTROLLER_MANAGER, KWOK, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, BATCH_MEMORY, SLO, Scene
from tests.manager.test_beside_koordinator import THEIRS, more_rounds
from tests.manager.test_planning import HOUR, LEAD, SIX, Clock, Plans, landed, phases
from tests.scheduler_ext.reservations.scene import cleared, install

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

Start = Callable[..., Manager]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of its own: Koordinator's manager writes to every node."""
    needing.kubernetes()
    needing.koordinator()
    folder = tmp_path_factory.mktemp("koordinator")
    with ControlPlane(folder, Options(frozenset({CONTROLLER_MANAGER, KWOK}))) as plane:
        koordinator.install(plane)
        yield plane


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[Scene]:
    """Both managers read the same ConfigMap; the Lease of ours is given back at the end."""
    koordinator_cluster = Scene(plane, koordinator.NAMESPACE, tmp_path)
    yield koordinator_cluster
    for plural in ("nodeslos", "nodemetrics"):
        for item in koordinator_cluster.api.items(f"{SLO}/{plural}"):
            koordinator_cluster.api.delete(f"{SLO}/{plural}/{item['metadata']['name']}")


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[list[str]]:
    names = create_nodes(plane, 2, NodeShape(prefix=unique_name("lender")))
    yield names
    delete_nodes(plane, names)


def writers(body: Json, field: str) -> set[str]:
    """Field managers of a part of an object."""
    return {entry["manager"] for entry in body["metadata"]["managedFields"] if field in str(entry.get("fieldsV1"))}


def amounts_written(cluster: Scene, node: str) -> set[str]:
    """Who publishes batch-cpu of a node."""
    return writers(cluster.api.get(f"/api/v1/nodes/{node}"), BATCH_CPU)


def versions(cluster: Scene, nodes: list[str]) -> list[str]:
    """Generations of NodeSLOs and amounts of nodes: equal while nobody writes another value."""
    slos = [cluster.api.get(f"{SLO}/nodeslos/{node}")["metadata"]["generation"] for node in nodes]
    return [str(slos), str(cluster.allocatable(nodes))]


def lends(cluster: Scene, nodes: list[str], system_cpu: int) -> bool:
    """Whether each lends 60 % of 16 cores less what the system uses, the default of both managers."""
    return all(amounts[BATCH_CPU] == str(9600 - 1000 * system_cpu) for amounts in cluster.allocatable(nodes).values())


def test_what_koord_manager_publishes_is_left_to_it_and_taken_over_when_it_is_gone(
    cluster: Scene, started: Start, nodes: list[str], tmp_path: Path
) -> None:
    cluster.configure(colocation_config={"enable": True})
    with koordinator.manager(cluster.plane, tmp_path):
        wait_for("their NodeMetrics", lambda: len(cluster.api.items(f"{SLO}/nodemetrics")) == len(nodes))
        cluster.report(nodes)
        wait_for("their amounts", lambda: cluster.lent(nodes))
        assert [amounts_written(cluster, node) for node in nodes] == [{THEIRS}] * 2
        before = versions(cluster, nodes)
        ours = started()
        wait_for("the status says so", lambda: THEIRS in cluster.state("colocation").get("message", ""))
        assert cluster.state("colocation")["reason"] == ControllerCondition.DEGRADED.value
        wait_for("an Event", lambda: cluster.events("NotOurs"))
        more_rounds(ours)
        assert versions(cluster, nodes) == before
        assert [amounts_written(cluster, node) for node in nodes] == [{THEIRS}] * 2
        slos = [cluster.api.get(f"{SLO}/nodeslos/{node}") for node in nodes]
        assert [writers(slo, "f:spec") for slo in slos] == [{THEIRS}] * 2
        ours.stop()
    started(take_over=[THEIRS])
    wait_for("the status", lambda: cluster.state("colocation").get("reason") == ControllerCondition.UP.value)
    # From the same report and configuration the same amounts, so that nothing is to be written until one changes.
    assert versions(cluster, nodes) == before
    cluster.report(nodes, "3")
    wait_for("our amounts", lambda: lends(cluster, nodes, 3))
    assert all("cotenant-manager" in amounts_written(cluster, node) for node in nodes)


def test_a_koord_manager_that_comes_later_and_ours_do_not_write_in_turns(
    cluster: Scene, started: Start, nodes: list[str], tmp_path: Path
) -> None:
    cluster.configure(colocation_config={"enable": True})
    cluster.report(nodes)
    ours = started()
    wait_for("our amounts", lambda: cluster.lent(nodes))
    wait_for("our NodeSLOs", lambda: len(cluster.api.items(f"{SLO}/nodeslos")) == len(nodes))
    all_texts: list[list[str]] = []
    with koordinator.manager(cluster.plane, tmp_path):
        for system_cpu in (1, 3, 2):
            cluster.report(nodes, str(system_cpu))
            wait_for("the new amounts", lambda cpu=system_cpu: lends(cluster, nodes, cpu))
            text_count = len(all_texts)
            for _ in range(3):
                more_rounds(ours, 2)
                all_texts.append(versions(cluster, nodes))
            assert len(set(map(str, all_texts[text_count:]))) == 1
    assert len(set(map(str, all_texts))) == 3


def batch_pod(cluster: Scene, namespace: str, name: str, millicores: int) -> Callable[[], Json]:
    """A pod for koord-scheduler that asks for batch resources alone; what reads it."""
    resources = {BATCH_CPU: str(millicores), BATCH_MEMORY: "1Gi"}
    container = {"name": "main", "image": "app", "resources": {"requests": resources, "limits": resources}}
    spec = {
        "schedulerName": koordinator.SCHEDULER_NAME,
        "priorityClassName": "koord-batch",
        "containers": [container],
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(path, {"metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}}, "spec": spec})
    return lambda: cluster.api.get(f"{path}/{name}")


def refusal(pod: Json) -> str:
    """Why a pod has no node; empty while no scheduler has said it."""
    conditions = pod["status"].get("conditions") or ()
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def test_koord_scheduler_places_batch_pods_within_the_amounts_that_we_publish_and_none_beyond(
    cluster: Scene, started: Start, nodes: list[str], tmp_path: Path
) -> None:
    cluster.configure(colocation_config={"enable": True})
    cluster.report(nodes)
    started()
    wait_for("our amounts", lambda: cluster.lent(nodes) and lends(cluster, nodes, 1))
    space = create_namespace(cluster.api, unique_name("batch"))
    with koordinator.scheduler(cluster.plane, tmp_path):
        first, second = (batch_pod(cluster, space, f"fits-{i}", 5000) for i in range(2))
        for pod in (first, second):
            wait_for("a node", lambda pod=pod: pod()["spec"].get("nodeName"))
        # 8,600 each, of which 3,600 are left on each.
        assert {pod()["spec"]["nodeName"] for pod in (first, second)} == set(nodes)
        beyond = batch_pod(cluster, space, "beyond", 3601)
        wait_for("a refusal", lambda: f"Insufficient {BATCH_CPU}" in refusal(beyond()))
        third = batch_pod(cluster, space, "the-rest", 3600)
        wait_for("a node", lambda: third()["spec"].get("nodeName") in nodes)
        assert not beyond()["spec"].get("nodeName")
        wait_for("it runs", lambda: third()["status"]["phase"] == "Running")
    cluster.api.delete(f"/api/v1/namespaces/{space}")


@pytest.fixture
def plans(plane: ControlPlane) -> Iterator[Plans]:
    install(plane)
    plans = Plans(plane, create_namespace(plane.api(), unique_name("planned")))
    yield plans
    cleared(plans)


def test_koord_scheduler_holds_what_a_plan_of_ours_reserves_and_gives_it_to_its_owners(
    plans: Plans, tmp_path: Path
) -> None:
    theirs = {"schedulerName": koordinator.SCHEDULER_NAME}
    (node,) = create_nodes(plans.plane, 1, NodeShape(cpu="7", memory="32Gi", prefix=unique_name("held")))
    plans.deployment(0, node, **theirs)
    name, clock = plans.plan(), Clock(SIX - 6 * HOUR)
    handled = ReservationSettings(handled_by="koordinator")
    with (
        koordinator.scheduler(plans.plane, tmp_path),
        plans.keeper(clock, "reservations", reservations=handled),
    ):
        plans.await_plan(name, "Proposed")
        plans.approve(name)
        clock.seconds = SIX - LEAD
        wait_for("both are Available", lambda: phases(plans) == ["Available", "Available"])
        plan_reservations = plans.reservations()
        assert {r["status"]["nodeName"] for r in plan_reservations} == {node}
        assert {writer for r in plan_reservations for writer in writers(r, "f:status")} == {koordinator.SCHEDULER_NAME}
        assert not [pod for r in plan_reservations for pod in plans.placeholders(r["metadata"]["name"])]
        strangers = plans.strangers(2, "3", nodeSelector={"kubernetes.io/hostname": node}, **theirs)
        clock.seconds = SIX + 1
        path = f"/apis/apps/v1/namespaces/{plans.namespace}/deployments/web"
        plans.api.patch(path, {"spec": {"replicas": 2}}, kind="merge")
        wait_for("the web pods land", lambda: len(landed(plans)) == 2)
        pods = plans.api.items(f"/api/v1/namespaces/{plans.namespace}/pods", labelSelector="app=web")
        allocated = [pod["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-allocated"] for pod in pods]
        assert {json.loads(text)["name"] for text in allocated} == {r["metadata"]["name"] for r in plan_reservations}
        assert not any(pod["spec"].get("schedulingGates") for pod in pods)
        assert not any(plans.node_of(stranger) for stranger in strangers)
        wait_for("their use is counted", lambda: plans.status_of(name)["progress"].get("mostUsed") == 2)
