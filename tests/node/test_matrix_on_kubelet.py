"""Pods of every shape on a real kubelet beside the agent with every strategy: nothing looser or killed, all comes back.

The kubelet's values are computed from the plans alone (`tests.enforcer.pod_matrix`), compared with what it really sets,
and compared again while the agent acts, after it was killed, beside a journal of another boot, and in the end.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import Running
from tests.enforcer.pod_matrix import MIB, PodPlan, Sizes, after, plans
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, pods_gone
from tests.node.matrix import STARTED_SECONDS, Matrix, Sampling, batches
from tests.node.real_node import RealNode, agent, offer_batch
from tests.support.extent import full_rows

CPU_COUNT = os.cpu_count() or 1
SIZES = Sizes((20, 40), (32 * MIB, 48 * MIB), infeasible=64_000, deferred=1000 * CPU_COUNT - 300, overhead=False)
"""Small enough for some dozen pods on two cores, and enough for a container to start within it."""
BATCH_MILLICORES = 900 * CPU_COUNT
"""Requests of the pods that are there at a time: what a resize is deferred for does not fit beside them."""
MEMORY_QOS = {"enable": True, "minLimitPercent": 60, "lowLimitPercent": 70, "throttlingPercent": 80}
CLASSES = ("lsr", "ls", "be", "system")
EVERYTHING: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 99, "cpuEvictBEUsageThresholdPercent": 99,
        "cpuEvictBESatisfactionLowerPercent": 1, "cpuEvictBESatisfactionUpperPercent": 2,
        "cpuEvictTimeWindowSeconds": 3600,
    },
    "cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 1000},
    "resourceQOSStrategy": {
        f"{name}Class": {"memoryQOS": MEMORY_QOS, "cpuQOS": {"enable": True}} for name in CLASSES
    },
}  # fmt: skip
"""Every strategy; evictions at thresholds, and over a time, that a test does not reach: while pods are made the machine
is full. cfsQuotaBurst is off, because it is meant to raise a quota for a while."""
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[RealNode]:
    runtime = _built_containerd
    with Kubelet(control_plane, runtime, runtime.socket, "matrix", maxPods=250) as kubelet:
        offer_batch(control_plane, kubelet.name)
        yield RealNode(kubelet, runtime, plugged=True)


def publish(plane: ControlPlane, node: RealNode, spec: dict[str, Any], annotations: dict[str, Any]) -> None:
    body = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": spec,
    }
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(body))
    plane.api().patch(f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": annotations}})


def of_another_boot(acting: Running) -> None:
    """What is in the state folder is from before the machine booted."""
    for name in ("originals.json", "known.json"):
        path = acting.folder / "state" / name
        if path.exists():
            path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))


def acts(acting: Running) -> None:
    wait_for("ready", lambda: acting.ask("/readyz")[0] == 200)
    acting.ticked(4)


def together(seed: int, count: int) -> list[list[PodPlan]]:
    """The plans of a seed, in batches that fit the node."""
    return list(batches(list(plans(seed, count, SIZES)), BATCH_MILLICORES))


FEW, MANY = together(45, 24), together(46, 200)


def test_each_plan_is_tried_once() -> None:
    assert [plan for batch in FEW for plan in batch] == list(plans(45, 24, SIZES))
    assert [plan for batch in MANY for plan in batch] == list(plans(46, 200, SIZES))


@pytest.mark.parametrize(
    ("seed", "number"),
    [*((45, number) for number in range(len(FEW))), *full_rows(*((46, n) for n in range(len(MANY))))],
)
def test_the_agent_loosens_kills_and_leaves_nothing(
    control_plane: ControlPlane, namespace: str, node: RealNode, tmp_path: Path, seed: int, number: int
) -> None:
    planned = {45: FEW, 46: MANY}[seed][number]
    sampling = live(Matrix(control_plane, node, namespace), agent(control_plane, node, tmp_path), planned)
    assert sampling.error is None and sampling.looser_lines == set()


def live(matrix: Matrix, acting: Running, planned: list[PodPlan]) -> Sampling:
    """Pods beside the agent: installed, of another boot, with every strategy on, killed, ended; what was seen of it."""
    early, late = planned[: len(planned) // 2], planned[len(planned) // 2 :]
    publish(matrix.plane, matrix.node, {"resourceUsedThresholdWithBE": {"enable": False}}, dict.fromkeys(RATIO))
    with ExitStack() as stack:
        stack.enter_context(pods_gone(matrix.plane, matrix.namespace, STARTED_SECONDS))
        sampling = stack.enter_context(Sampling(matrix, planned))
        matrix.start(early)
        granted = [after(plan) for plan in early]
        assert matrix.differing(granted) == []  # the plans know this kubelet

        stack.enter_context(acting)
        acts(acting)
        assert acting.end() == 0, acting.log()
        assert matrix.differing(granted) == []
        of_another_boot(acting)
        acting.start()
        acts(acting)
        # batch resources are set whatever the policy says; nothing else is on
        assert matrix.differing([plan for plan in granted if plan.qos != "BE"]) == []

        publish(matrix.plane, matrix.node, EVERYTHING, RATIO)
        matrix.start(late)
        granted = [after(plan) for plan in planned]
        acts(acting)
        wait_for("values of its own", lambda: len(matrix.differing(granted)) > len(planned) // 2, STARTED_SECONDS)
        acting.end(signal.SIGKILL)
        acting.start()
        acts(acting)
        assert matrix.ended() == []

        assert acting.end() == 0, acting.log()
        assert matrix.differing(granted) == [] and matrix.strays(granted) == [] and matrix.ended() == []
        before = sampling.samples
        wait_for("a sample of the end", lambda: sampling.error or sampling.samples > before + 1, STARTED_SECONDS)
    return sampling
