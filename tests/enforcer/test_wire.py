"""Pods, Nodes, policies and forecasts on the wire, as the agent reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.errors import QuantityError, UsageError
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.base.kubernetes.pod_resources import ContainerKind, ResizeState
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer.contract import ContainerSpec, KubeQos
from cotenant.enforcer.sources.wire import forecast_of, kube_qos, node_of, pod_of

BATCH_POD: dict[str, Any] = {
    "metadata": {
        "name": "etl",
        "namespace": "data",
        "uid": "0a-1b",
        "creationTimestamp": "1970-01-01T00:01:40Z",
        "labels": {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "17", "app": "etl"},
        "annotations": {"node.koordinator.sh/extended-resource-spec": "{}", "example.com/secret": "x"},
        "ownerReferences": [{"kind": "Job", "name": "etl", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 5500,
        "containers": [
            {
                "name": "main",
                "resources": {
                    "requests": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi", "odd": "x"},
                    "limits": {"kubernetes.io/batch-cpu": 2000},
                },
            }
        ],
    },
    "status": {
        "phase": "Running",
        "qosClass": "BestEffort",
        "containerStatuses": [{"name": "main", "containerID": "containerd://abc123", "state": {"running": {}}}],
    },
}


def read(body: dict[str, object]) -> NodePodWire:
    return msgspec.json.decode(msgspec.json.encode(body), type=NodePodWire)


def test_a_batch_pod_is_read_with_its_class_its_amounts_and_its_container() -> None:
    pod = pod_of(read(BATCH_POD))
    assert (pod.key, pod.uid, pod.qos_class, pod.priority_class) == (
        "data/etl",
        "0a-1b",
        QosClass.BE,
        PriorityClass.BATCH,
    )
    assert (pod.priority, pod.sub_priority, pod.owner, pod.created_seconds) == (5500, 17, ("Job", "etl"), 100.0)
    # batch-cpu is whole millicores, batch-memory bytes: 1 Gi = 2**30. What is no quantity is left out.
    container = ContainerSpec(
        "main",
        "abc123",
        running=True,
        requests={"kubernetes.io/batch-cpu": 1500, "kubernetes.io/batch-memory": 2**30},
        limits={"kubernetes.io/batch-cpu": 2000},
    )
    assert pod.containers == (container,)


@pytest.mark.parametrize(("claims_field", "claims"), [(None, False), ([], False), ([{"name": "core"}], True)])
def test_a_pod_that_names_resource_claims_is_known_by_it(claims_field: list[object] | None, claims: bool) -> None:
    body = {**BATCH_POD, "spec": {**BATCH_POD["spec"], "resourceClaims": claims_field}}
    assert pod_of(read(body)).claims is claims


def test_only_labels_and_annotations_of_the_protocol_are_kept() -> None:
    pod = pod_of(read(BATCH_POD))
    assert set(pod.labels) == {"koordinator.sh/qosClass", "koordinator.sh/priority"}
    assert set(pod.annotations) == {"node.koordinator.sh/extended-resource-spec"}


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "x" * 129, "a\x00", "a.b"])
def test_a_uid_that_could_leave_its_folder_is_refused(uid: str) -> None:
    body = BATCH_POD | {"metadata": BATCH_POD["metadata"] | {"uid": uid}}
    with pytest.raises(UsageError, match="is invalid"):
        pod_of(read(body))


def test_a_mirror_pod_is_static_and_named_by_the_hash_that_names_its_cgroup() -> None:
    annotations = {"kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "fffe01"}
    pod = pod_of(read({"metadata": {"name": "etcd", "uid": "u1", "annotations": annotations}}))
    assert (pod.static, pod.uid) == (True, "fffe01")


def test_a_cpu_request_that_is_no_quantity_names_the_container() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "much"}}}
    with pytest.raises(QuantityError, match="pod x/p, container c"):
        pod_of(read({"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": {"containers": [container]}}))


@pytest.mark.parametrize(
    ("requests", "limits", "qos"),
    [
        ({}, {}, KubeQos.BEST_EFFORT),
        ({"kubernetes.io/batch-cpu": 5}, {}, KubeQos.BEST_EFFORT),
        ({"cpu": 100}, {}, KubeQos.BURSTABLE),
        ({"cpu": 100, "memory": 1}, {"cpu": 200, "memory": 1}, KubeQos.BURSTABLE),
        ({"cpu": 100, "memory": 1}, {"cpu": 100, "memory": 1}, KubeQos.GUARANTEED),
        ({}, {"cpu": 100, "memory": 1}, KubeQos.GUARANTEED),
    ],
)
def test_without_a_told_class_kubernetes_rule_decides(
    requests: dict[str, int], limits: dict[str, int], qos: KubeQos
) -> None:
    assert kube_qos("", [ContainerSpec("c", requests=requests, limits=limits)]) is qos


@pytest.mark.parametrize("text", ["containerd://../x", "docker://a/b", "cri-o://a\x00", "c" * 129])
def test_a_container_id_that_could_leave_its_folder_is_refused(text: str) -> None:
    container = {"name": "c", "image": "x"}
    status = {"containerStatuses": [{"name": "c", "containerID": text}]}
    body = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}, "status": status}
    with pytest.raises(UsageError, match="is invalid"):
        pod_of(read(body))


def test_a_node_is_read_in_the_units_of_pods() -> None:
    node = {
        "metadata": {"name": "n1", "uid": "u", "labels": {"zone": "a"}, "annotations": {"x.y/z": "1"}},
        "status": {"allocatable": {"cpu": "3920m", "kubernetes.io/batch-cpu": "1000", "memory": "1Ki"}},
    }
    observed_node = node_of(msgspec.convert(node, NodeWire))
    assert observed_node.allocatable == {"cpu": 3920, "kubernetes.io/batch-cpu": 1000, "memory": 1024}
    assert (observed_node.uid, observed_node.labels, observed_node.annotations) == ("u", {"zone": "a"}, {})


def test_a_forecast_is_read_with_unix_times() -> None:
    spec = {
        "start": "1970-01-01T00:30:00Z",
        "validUntil": "1970-01-02T00:00:00Z",
        "cpu": {"q95Millicores": [1, 2]},
        "memory": {"q95Bytes": [3]},
    }
    forecast = forecast_of(msgspec.json.decode(msgspec.json.encode({"spec": spec}), type=UsageForecast))
    assert (forecast.start_seconds, forecast.valid_until_seconds, forecast.step_seconds) == (1800.0, 86_400.0, 1800)
    assert (forecast.q95_cpu_millicores, forecast.q95_memory_bytes) == ((1, 2), (3,))


SHAPED = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "0a-1c"},
    "spec": {
        "resources": {"limits": {"cpu": "700m"}, "requests": {"cpu": "100m"}},
        "overhead": {"cpu": "50m"},
        "containers": [{"name": "main", "resources": {"limits": {"cpu": "100"}, "requests": {"cpu": "100"}}}],
        "initContainers": [
            {"name": "setup", "resources": {"limits": {"memory": "4Gi"}}},
            {"name": "proxy", "restartPolicy": "Always"},
        ],
        "ephemeralContainers": [{"name": "debug"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "resources": {"limits": {"cpu": "750m"}},
        "containerStatuses": [
            {
                "name": "main",
                "containerID": "containerd://aa",
                "state": {"running": {}},
                "resources": {"limits": {"cpu": "200m"}, "requests": {"cpu": "150m"}},
                "allocatedResources": {"cpu": "150m"},
            }
        ],
        "initContainerStatuses": [
            {"name": "setup", "containerID": "containerd://bb", "state": {"terminated": {}}},
            {"name": "proxy", "containerID": "containerd://cc", "state": {"running": {}}},
        ],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": "containerd://dd", "state": {"running": {}}}],
    },
}


def test_every_kind_of_container_and_what_the_kubelet_granted_is_read() -> None:
    pod = pod_of(read(SHAPED))
    assert [(c.name, c.kind, c.id, c.running) for c in pod.every_container] == [
        ("main", ContainerKind.MAIN, "aa", True),
        ("setup", ContainerKind.INIT, "bb", False),
        ("proxy", ContainerKind.SIDECAR, "cc", True),
        ("debug", ContainerKind.EPHEMERAL, "dd", True),
    ]
    (main,) = pod.containers
    assert (main.limits, main.actual_limits, main.actual_requests, main.allocated) == (
        {"cpu": 100_000},
        {"cpu": 200},
        {"cpu": 150},
        {"cpu": 150},
    )
    assert (pod.own_limits, pod.own_requests, pod.own_actual_limits) == ({"cpu": 700}, {"cpu": 100}, {"cpu": 750})
    assert (pod.overhead, pod.resize, pod.init_containers[1].actual_limits) == (
        {"cpu": 50},
        ResizeState.INFEASIBLE,
        None,
    )


@pytest.mark.parametrize(
    ("own", "qos"),
    [
        (None, KubeQos.BEST_EFFORT),
        ({"limits": {"cpu": "700m", "memory": "128Mi"}}, KubeQos.GUARANTEED),
        ({"requests": {"cpu": "100m"}}, KubeQos.BURSTABLE),
    ],
)
def test_without_a_told_class_the_pods_own_amounts_decide(own: dict[str, object] | None, qos: KubeQos) -> None:
    """A pod whose containers have none is no best-effort pod then, and its cgroup is elsewhere."""
    spec = {"containers": [{"name": "main"}], **({"resources": own} if own else {})}
    assert pod_of(read({"metadata": SHAPED["metadata"], "spec": spec})).kube_qos is qos
