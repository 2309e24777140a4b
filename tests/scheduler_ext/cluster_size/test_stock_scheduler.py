"""The answer on a real API server: a stock kube-scheduler places what it promised, and not much more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from tests.cluster import needing
from tests.cluster.control_plane import ControlPlane, Options
from tests.support.command_line import cotenant
from tests.support.sized_clusters import SeededCluster
from tests.support.sized_plane import build_cluster, planner, pods_left_waiting, take_out

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
    made = SeededCluster.of(SEED, nodes=20, fill=0.6)
    build_cluster(plane, made)
    return made


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

    take_out(plane, cluster, [node.name for node in size.leaving])
    assert pods_left_waiting(plane, cluster) == []

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
