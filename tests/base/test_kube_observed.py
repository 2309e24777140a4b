"""What mirrors keep of nodes and pods: requests as the scheduler counts them, and the marks that decide."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.errors import QuantityError
from cotenant.base.kube.seen_pods import shape_of
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire, PodObject
from cotenant.base.kubernetes.observed import ObservedNode, ObservedPod, node_of, pod_of
from cotenant.base.kubernetes.qos import PriorityClass, QosClass

MIB = 2**20


def pod(spec: dict[str, Any], phase: str = "Running", **meta: Any) -> ObservedPod:
    body = {"metadata": {"name": "p", "namespace": "shop", "uid": "u", **meta}, "spec": spec}
    return pod_of(msgspec.json.decode(msgspec.json.encode({**body, "status": {"phase": phase}}), type=ObservedPodWire))


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}, **({"restartPolicy": restart} if restart else {})}


def test_a_node_keeps_what_colocation_decides_on() -> None:
    body = {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "labels": {"pool": "a"},
            "annotations": {"node.koordinator.sh/reservation": "{}", "kubectl.kubernetes.io/last-applied": "long"},
        },
        "spec": {"unschedulable": True},
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "kubernetes.io/batch-cpu": "12k"},
            "allocatable": {"cpu": "15500m", "memory": "60Gi", "example.com/absurd": "1e999999"},
        },
    }
    assert node_of(msgspec.json.decode(msgspec.json.encode(body), type=NodeWire)) == ObservedNode(
        name="n1",
        uid="u1",
        labels={"pool": "a"},
        annotations={"node.koordinator.sh/reservation": "{}"},
        capacity={"cpu": 16_000, "memory": 64 * 2**30, "kubernetes.io/batch-cpu": 12_000},
        allocatable={"cpu": 15_500, "memory": 60 * 2**30},
        unschedulable=True,
    )


def test_an_absurd_memory_names_the_node() -> None:
    body = b'{"metadata": {"name": "n1"}, "status": {"allocatable": {"memory": "1e999999"}}}'
    with pytest.raises(QuantityError, match="node n1"):
        node_of(msgspec.json.decode(body, type=NodeWire))


def test_a_pods_request_counts_every_resource_by_name() -> None:
    observed_pod = pod(
        {"containers": [container(cpu="1", memory="1Mi"), container(**{"kubernetes.io/batch-cpu": "2k"})]}
    )
    assert observed_pod.requests == {"cpu": 1000, "memory": MIB, "kubernetes.io/batch-cpu": 2000}


def test_init_containers_sidecars_and_overhead_follow_the_schedulers_rule() -> None:
    observed_pod = pod(
        {
            "containers": [container(cpu="1")],
            "initContainers": [container("Always", cpu="500m"), container(cpu="3"), container("Always", cpu="250m")],
            "overhead": {"cpu": "100m", "memory": "5Mi"},
        }
    )
    # running: 1000 + 500 + 250 = 1750; start: 500 + 3000 = 3500; overhead 100 on top
    assert observed_pod.requests == {"cpu": 3600, "memory": 5 * MIB}


def test_a_pods_own_resources_win_over_its_containers() -> None:
    observed_pod = pod({"containers": [container(cpu="1", memory="1Mi")], "resources": {"requests": {"cpu": "4"}}})
    assert observed_pod.requests == {"cpu": 4000, "memory": MIB}


def test_a_pod_keeps_its_marks_owner_and_state() -> None:
    observed_pod = pod(
        {"containers": [], "nodeName": "n1", "priority": 5500},
        "Pending",
        labels={"koordinator.sh/qosClass": "BE", "app": "web", "evilkoordinator.sh/x": "y", "koordinator.sh": "z"},
        annotations={"node.koordinator.sh/extended-resource-spec": "{}", "other": "x", "cotenant.dev/a": "b"},
        ownerReferences=[{"kind": "Job", "name": "no"}, {"kind": "ReplicaSet", "name": "web-1", "controller": True}],
        deletionTimestamp="2026-01-01T00:00:00Z",
    )
    assert (observed_pod.node, observed_pod.priority, observed_pod.owner) == ("n1", 5500, ("ReplicaSet", "web-1"))
    assert (observed_pod.active, observed_pod.deleting) == (True, True)
    assert observed_pod.labels == {"koordinator.sh/qosClass": "BE"}
    assert observed_pod.annotations == {"node.koordinator.sh/extended-resource-spec": "{}", "cotenant.dev/a": "b"}
    assert (observed_pod.qos_class, observed_pod.priority_class) == (QosClass.BE, PriorityClass.BATCH)
    assert not pod({"containers": []}, "Succeeded").active


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["0", "1", "250m", "3", "2Ki", "1.5"]), max_size=2
)
containers = st.builds(
    lambda requests, always: container("Always" if always else "", **requests), amounts, st.booleans()
)


@given(main=st.lists(containers, max_size=3), init=st.lists(containers, max_size=4), overhead=amounts, own=amounts)
def test_cpu_and_memory_are_what_the_scan_counts_too(main: Any, init: Any, overhead: Any, own: Any) -> None:
    spec = {"containers": main, "initContainers": init, "overhead": overhead, "resources": {"requests": own}}
    text = msgspec.json.encode({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec})
    by_scan = shape_of(msgspec.json.decode(text, type=PodObject)).requests
    assert pod_of(msgspec.json.decode(text, type=ObservedPodWire)).requests == {r.value: a for r, a in by_scan.items()}
