"""The answer on a real API server: a stock kube-scheduler chooses as modelled, and places what was promised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cotenant.scheduler_ext.cluster_size.constraints import compile_cluster
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.model import SizedCluster
from cotenant.scheduler_ext.cluster_size.placing import PlacingState
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from tests.cluster import needing
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.waiting import wait_for
from tests.support.command_line import cotenant
from tests.support.sized_clusters import SeededCluster
from tests.support.sized_plane import build_cluster, planner, pods_left_waiting, take_out, take_out_in_turn

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SEED = 5


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this file alone: the question is about all nodes of a cluster."""
    needing.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("sized"), Options(heartbeats=False)) as plane:
        yield plane


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> SeededCluster:
    """Twenty nodes that are a little more than half full, with every pod running."""
    seeded_cluster = SeededCluster.of(SEED, nodes=20, fill=0.6)
    build_cluster(plane, seeded_cluster)
    return seeded_cluster


def test_each_new_pod_goes_to_a_node_that_the_modelled_scores_put_first(
    plane: ControlPlane, cluster: SeededCluster
) -> None:
    # Twelve replicas one by one, so that pods of the same ReplicaSet in three zones count too. A score is a sum of
    # whole numbers, each of which a float may have rounded the other way: a point may be missing.
    labels = {"app": "grows"}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments"
    api, client = plane.api(), plane.client(planner(plane))
    api.create(path, {"metadata": {"name": "grows"}, "spec": spec})
    addresses = {pod.address for pod in read_cluster(client).pods}
    for replicas in range(1, 13):
        api.patch(f"{path}/grows", {"spec": {"replicas": replicas}})
        wait_for("a node for it", lambda: _placed_beside(addresses, read_cluster(client)), 60)
        state = read_cluster(client)
        new = _placed_beside(addresses, state)[0]
        gap = _points_below_the_best(state, new)
        assert gap <= 1, (replicas, state.pods[new].node)
        addresses.add(state.pods[new].address)
    client.close()
    api.delete(f"{path}/grows")


def _placed_beside(addresses: set[str], state: SizedCluster) -> list[int]:
    """Numbers of the pods with a node that are not known."""
    return [number for number, pod in enumerate(state.pods) if pod.node and pod.address not in addresses]


def _points_below_the_best(state: SizedCluster, new: int) -> int:
    """The score of the pod's node before it came, below the highest score of a node that it fits on."""
    before = tuple(replace(pod, node="") if number == new else pod for number, pod in enumerate(state.pods))
    compiled = compile_cluster(replace(state, pods=before))
    placing = PlacingState.of(compiled, np.ones(len(state.nodes), dtype=np.bool_))
    places = np.flatnonzero(placing.fitting_nodes(compiled.class_of_pod(new)))
    scores = placing.stock_scores(new, places)
    chosen = [state.nodes[place].name for place in places.tolist()].index(state.pods[new].node)
    return int(scores.max() - scores[chosen])


def test_the_nodes_that_could_leave_leave_no_pod_waiting_and_twice_as_many_do(
    plane: ControlPlane, cluster: SeededCluster
) -> None:
    # The nodes are 60 % full, so that two fifths could leave at most; twice what the answer says is more than that.
    who = planner(plane)
    client = plane.client(who)
    try:
        size = decide_size(read_cluster(client))
    finally:
        client.close()
    assert 4 < len(size.leaving) <= 8
    assert not size.gaps and not size.unmodelled and not size.waiting

    done = cotenant("size", "--show", "all", "-o", "json", "--kubeconfig", str(who))
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert [row["node"] for row in printed["nodes"] if row["leaves"] == "yes"] == [node.name for node in size.leaving]
    assert f"{len(size.leaving)} of 20 nodes could leave" in done.stderr

    assert take_out_in_turn(plane, cluster, [node.name for node in size.leaving]) == []

    further = [node.name for node in size.staying][: len(size.leaving)]
    take_out(plane, cluster, further)
    assert pods_left_waiting(plane, cluster, seconds=20) != []


def test_what_may_not_be_read_makes_its_pods_immovable_and_the_exit_code_4(
    plane: ControlPlane, cluster: SeededCluster
) -> None:
    done = cotenant("size", "-o", "json", "--show", "all", "--kubeconfig", str(planner(plane, ["csinodes"])))
    assert done.returncode == 4, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert any("CSINodes could not be read" in gap for gap in summary["gaps"])
    # The seed has workloads with a volume claim; none of their pods may be counted as free.
    claims = len(cluster.volumes)
    assert sum(summary["unmodelled_rules"].values()) == claims > 0
