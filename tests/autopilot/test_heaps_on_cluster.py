"""A heap, its memory request and its limit, changed by the autopilot on a real API server, judged and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.autopilot.model import QueueVerdict
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import MIB, Resource
from cotenant.base.runtimes.heap import HeapProposal
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.model.change import ChangeState
from cotenant.recommender.model.recommendation import Field, Trust
from tests.autopilot.scene import APPROVER, HOUR, AutopilotScene
from tests.changes.world import Kubelet, deployed, live, own_node, recommended
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name

BEFORE = {"requests": {"cpu": "1", "memory": "1000Mi"}, "limits": {"memory": "1200Mi"}}


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[Kubelet]:
    with own_node(control_plane, unique_name("heaps")) as kubelet:
        yield kubelet


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AutopilotScene:
    return AutopilotScene(control_plane, namespace, tmp_path)


def jvm(cluster: AutopilotScene, node: Kubelet, **container: Any) -> WorkloadRef:
    """Two pods of a JVM with a heap of 900 MiB, of which 720 would do, and 1,000 MiB requested, 850 as proposed."""
    own = {"resources": BEFORE, **container}
    workload = deployed(cluster.plane, cluster.namespace, nodeSelector={"test/own": node.node}, container=own)
    recommendation = recommended(workload)
    inputs = {"days": 14.0, "coverage": 1.0, "observed_max": 980.0 * MIB}
    memory = replace(
        recommendation.values[0],
        resource=Resource.MEMORY,
        field=Field.REQUEST,
        now=1000 * MIB,
        amount=850 * MIB,
        inputs=inputs,
    )
    limit = replace(memory, field=Field.LIMIT, now=1200 * MIB, amount=1200 * MIB)
    move = HeapProposal("jvm", 900 * MIB, 720 * MIB, 120 * MIB)
    cluster.recommendations.append(
        replace(recommendation, values=(*recommendation.values, memory, limit), heap=move, trust=Trust(0.95))
    )
    cluster.bind()
    spec: dict[str, Any] = {
        "mode": "Observe",
        "ways": ["InPlace", "RollOut"],
        "largestCut": {"cpu": 0.25, "memory": 0.25},
    }
    cluster.policy(**spec)
    cluster.service().act(APPROVER, f"{cluster.namespace}/nightly")
    return workload


def container_of(cluster: AutopilotScene, workload: WorkloadRef) -> dict[str, Any]:
    own: dict[str, Any] = live(cluster.plane, workload)["spec"]["template"]["spec"]["containers"][0]
    return own


def test_heap_request_and_limit_change_in_one_write_and_go_back_in_one(cluster: AutopilotScene, node: Kubelet) -> None:
    options = [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xms900m -Xmx900m -XX:+UseG1GC"}]
    workload = jvm(cluster, node, env=options)
    _, _, (act,) = cluster.round()
    (status,) = act.changes
    assert (status.state, status.change.method, len(status.change.writes)) == (ChangeState.APPLIED, "template", 1)
    own = container_of(cluster, workload)
    # a limit of 1,200 MiB holds the heap and what was seen beside it: 720 + 120
    assert own["env"][0]["value"] == "-Xms720m -Xmx720m -XX:+UseG1GC"
    assert own["resources"] == {"requests": {"cpu": "800m", "memory": "850Mi"}, "limits": {"memory": "1200Mi"}}
    cluster.compared = (Compared(Measure.THROTTLED, 0.01, 0.5),)
    cluster.ahead_seconds = 2 * HOUR
    _, (taken_back,), _ = cluster.round()
    assert taken_back.state is ChangeState.ROLLED_BACK
    own = container_of(cluster, workload)
    assert (own["env"], own["resources"]) == (options, BEFORE)


def test_memory_waits_where_the_template_sets_no_heap_and_cpu_goes_alone(
    cluster: AutopilotScene, node: Kubelet
) -> None:
    workload = jvm(cluster, node)
    reading, _, (act,) = cluster.round()
    assert [entry.verdict for entry in reading.queue] == [QueueVerdict.ACT]
    assert act.changes[0].state is ChangeState.APPLIED
    assert container_of(cluster, workload)["resources"] == {**BEFORE, "requests": {"cpu": "800m", "memory": "1000Mi"}}
