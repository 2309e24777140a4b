"""An agent that is killed and starts again while the API server is away, on real cgroups."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import needing
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace, unique_name
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.enforcer.tokens import agent_files, installed
from tests.support import kubepods
from tests.support.kubepods import Kubepods, Pod

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.xdist_group("agent-cluster"),
    pytest.mark.skipif(bool(kubepods.missing()), reason=f"no real cgroups: {kubepods.missing()}"),
]
BE = "kubepods/besteffort"
POLICY = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeSLO",
    "metadata": {"name": "a-0"},
    "spec": {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}},
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster that may lose its API server, with the node a-0 and its policy."""
    needing.kubernetes()
    with ControlPlane(tmp_path / "plane", Options(frozenset({CONTROLLER_MANAGER}), heartbeats=False)) as plane:
        installed(plane)
        create_nodes(plane, 1, NodeShape(prefix="a"))
        plane.api().create("/apis/slo.koordinator.sh/v1alpha1/nodeslos", POLICY)
        yield plane


def batch_pod(plane: ControlPlane, tree: Kubepods) -> Pod:
    """A best-effort pod that the API server knows and that has a cgroup."""
    space = create_namespace(plane.api(), unique_name("recall"))
    body = {
        "metadata": {"name": "etl", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"nodeName": "a-0", "containers": [{"name": "main", "image": "none", "resources": BATCH}]},
    }
    meta = plane.api().create(f"/api/v1/namespaces/{space}/pods", body)["metadata"]
    pod = tree.pod("etl", qos="BE", resources=BATCH, uid=meta["uid"])
    plane.api().patch(f"/api/v1/namespaces/{space}/pods/etl/status", {"status": pod.body["status"]})
    return pod


def verdicts(agent: Running) -> set[str]:
    return {verdict["reason"] for verdict in agent.status().get("verdicts", ())}


def edited(agent: Running, **changes: Any) -> None:
    """Another age in the file."""
    path = agent.folder / "state" / "known.json"
    document = json.loads(path.read_bytes())
    document["known"] |= changes
    path.write_text(json.dumps(document))


def test_it_goes_on_by_the_last_policy_and_pods_and_gives_back_when_they_are_too_old_or_damaged(
    plane: ControlPlane, tmp_path: Path
) -> None:
    files = agent_files(plane, "a-0", tmp_path)
    settings = {
        "enforcer.pods_file": "",
        "enforcer.policy_file": "",
        "enforcer.node_name": "a-0",
        "enforcer.api_server": files.server,
        "enforcer.token_file": files.token,
        "enforcer.ca_file": files.ca,
    }
    with Kubepods() as tree:
        batch = batch_pod(plane, tree)
        before = tree.values(KNOBS)

        def held() -> tuple[str, bool]:
            return tree.read(batch.container, "cpu", "cpu.shares"), tree.read(BE, "cpu", "cpu.cfs_quota_us") != "-1"

        with Running(tree, tmp_path / "a", settings=settings) as agent:
            wait_for("the pod's weight and the tier's quota", lambda: held() == ("1024", True))
            recall_file = agent.folder / "state" / "known.json"
            wait_for("the pod on disk", lambda: recall_file.exists() and batch.uid in recall_file.read_text())
            agent.end(signal.SIGKILL)
            plane.servers[APISERVER].kill()
            assert held() == ("1024", True)

            agent.start()
            wait_for("a word of it", lambda: "Recalled" in verdicts(agent))
            agent.ticked(3)
            assert held() == ("1024", True)
            assert "before this agent started" in agent.status()["policy_origin"]
            agent.end(signal.SIGKILL)

            edited(agent, policy_at=0.5, pods_at=0.5)  # when the machine booted
            agent.settings = {**settings, "enforcer.policy_ttl_seconds": 10, "enforcer.release_seconds": 10}
            agent.start()
            wait_for("the policy to be given up", lambda: "PolicyGivenUp" in verdicts(agent))
            wait_for("the kernel's own values", lambda: tree.values(KNOBS) == before)
            agent.end(signal.SIGKILL)

            recall_file.write_bytes(recall_file.read_bytes()[:-9])
            agent.start()
            wait_for("a word of the damage", lambda: any("set aside" in n for n in agent.status().get("notes", ())))
            agent.ticked(2)
            assert "NoPolicy" in verdicts(agent)
            assert agent.end() == 0, agent.log()
        assert tree.values(KNOBS) == before
