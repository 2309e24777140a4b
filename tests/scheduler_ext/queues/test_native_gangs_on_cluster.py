"""Gangs left to Kubernetes 1.36's own gang scheduling, its gates on, by webhook and manager with their rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import NATIVE_GANG_GROUP
from tests.cluster import binaries, needing
from tests.cluster.api import Json
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.queues.gang_scene import PREFIX, GangScene, install_queues
from tests.scheduler_ext.reservations.scene import cleared

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
GROUPS = f"/apis/{NATIVE_GANG_GROUP}/namespaces/{{}}/podgroups"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    needing.next_kubernetes()
    extra = {APISERVER: [GATES, f"--runtime-config={NATIVE_GANG_GROUP}=true"]}
    extra |= {name: [GATES] for name in (CONTROLLER_MANAGER, SCHEDULER)}
    options = Options(release=binaries.NEXT, extra=extra)
    with ControlPlane(tmp_path_factory.mktemp("gang-scheduling"), options) as plane:
        yield plane


class NativeScene(GangScene):
    """A namespace on that plane whose pods pass the webhook."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.queues |= {"gangs_by": "auto"}
        self.nodes = {"gangs": namespace}

    def submit(self, name: str, size: int, least: int = 0, **annotations: str) -> None:
        """Members as a user creates them."""
        gang_annotations = {PREFIX + "name": name, PREFIX + "min-available": str(least or size)}
        gang_annotations |= {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
        spec = {"terminationGracePeriodSeconds": 0, "containers": containers, "nodeSelector": self.nodes}
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for _ in range(size):
            self.api.create(
                path, {"metadata": {"generateName": f"{name}-", "annotations": gang_annotations}, "spec": spec}
            )

    def groups(self) -> dict[str, Json]:
        """Kubernetes' own PodGroups by name."""
        return {item["metadata"]["name"]: item for item in self.api.items(GROUPS.format(self.namespace))}

    def group_names(self, gang: str) -> list[Any]:
        """The PodGroup that each member names."""
        return [pod["spec"].get("schedulingGroup", {}).get("podGroupName") for pod in self.members(gang)]


@pytest.fixture
def cluster(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[NativeScene]:
    install_queues(plane)
    namespace = create_namespace(plane.api(), unique_name(request.node.originalname))
    native_cluster = NativeScene(plane, namespace)
    nodes = create_nodes(plane, 2, NodeShape(prefix=namespace, cpu="4", labels=native_cluster.nodes))
    with running(plane, native_gangs=True) as webhook, native_cluster.manager():
        served: Callable[[], bool] = lambda: webhook.state.view().queues_served_until_seconds > 0  # noqa: E731
        wait_for("the promise", served)
        wait_for("it is offered", lambda: webhook.state.view().natives is not None)
        yield native_cluster
    plane.api().delete(f"/api/v1/namespaces/{namespace}")
    delete_nodes(plane, nodes)
    cleared(native_cluster)


def test_the_scheduler_starts_gangs_whole_and_one_without_room_waits_and_holds_nothing(cluster: NativeScene) -> None:
    cluster.submit("one", 4)
    cluster.await_running("one", 4)
    assert cluster.groups()["one"]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert cluster.group_names("one") == ["one"] * 4
    cluster.submit("two", 4)
    wait_for("the scheduler has it", lambda: "two" in cluster.groups() and not any_gated(cluster, "two"))
    wait_for("the scheduler says why", lambda: cluster.groups()["two"].get("status", {}).get("conditions"))
    assert (cluster.bound("two"), cluster.gang_reservations(), cluster.all_placeholders()) == (0, [], [])
    cluster.remove("one")
    cluster.await_running("two", 4)
    wait_for("its PodGroup goes with its pods", lambda: "one" not in cluster.groups())
    assert cluster.gang_reservations() == []


def test_a_replacement_starts_by_itself_once_the_gang_was_placed(cluster: NativeScene) -> None:
    cluster.submit("train", 4)
    cluster.await_running("train", 4)
    placed: Callable[[], bool] = lambda: condition(cluster, "train") == "True"  # noqa: E731
    wait_for("the scheduler says that it was placed", placed)
    for pod in cluster.members("train")[:3]:
        cluster.api.delete(
            f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds="0"
        )
    cluster.submit("train", 1, least=4)
    cluster.await_running("train", 2)
    assert sorted(map(str, cluster.group_names("train"))) == ["None", "train"]


def test_what_a_podgroup_cannot_say_is_placed_by_us_on_the_same_server(cluster: NativeScene) -> None:
    cluster.submit("batch", 4, match_policy="only-waiting")
    cluster.await_running("batch", 4)
    assert (cluster.group_names("batch"), cluster.groups()) == ([None] * 4, {})
    wait_for("nothing is held", lambda: not cluster.gang_reservations() and not cluster.all_placeholders())


def condition(cluster: NativeScene, gang: str) -> str:
    """Status of the condition PodGroupScheduled."""
    conditions = cluster.groups()[gang].get("status", {}).get("conditions", [])
    return next(
        (group_condition["status"] for group_condition in conditions if group_condition["type"] == "PodGroupScheduled"),
        "",
    )


def any_gated(cluster: NativeScene, gang: str) -> bool:
    return any(pod["spec"].get("schedulingGates") for pod in cluster.members(gang))
