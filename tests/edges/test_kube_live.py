from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.edges.kube import connect
from cotenant.edges.kube.live import AutoscalerObject, PodObject, autoscaler_of, effective_request, observe
from cotenant.model.cluster import Autoscaler, Container, Node, Pod
from cotenant.model.errors import ClusterForbidden
from cotenant.model.identity import WorkloadRef
from cotenant.model.qos import PriorityClass, QosClass
from cotenant.model.resource import GIB, MIB, Resource
from cotenant.settings.kube import KubeSettings

CPU, MEMORY = Resource.CPU, Resource.MEMORY


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "u", "controller": True}]


def pod(name: str, owner: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "shop",
        "creationTimestamp": "2025-06-16T00:00:00Z",
        "labels": spec.pop("labels", {}),
    }
    if owner:
        meta["ownerReferences"] = owner
    body = {"nodeName": "n1", "containers": [{"name": "main", "image": "i", "resources": {}}], **spec}
    return {"metadata": meta, "spec": body, "status": {"phase": "Running", "startTime": "2025-06-16T00:01:00Z"}}


def requests(cpu: str | None = None, memory: str | None = None) -> dict[str, Any]:
    return {"requests": {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}}


@pytest.fixture
def shop(api: Any) -> Any:
    """Two nodes; a Deployment, a CronJob, a StatefulSet and a bare pod; one pod that ended, one not yet placed."""
    main = [{"name": "main", "resources": requests("250m", "1Gi") | {"limits": {"memory": "2Gi"}}}]
    labels = {"koordinator.sh/qosClass": "LS", "pod-template-hash": "abc"}
    api.objects = {
        "/api/v1/nodes": [
            {
                "metadata": {"name": "n1", "labels": {"zone": "a"}},
                "status": {
                    "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "1Ki"},
                    "allocatable": {"cpu": "3920m", "memory": "15Gi"},
                },
            }
        ],
        "/api/v1/pods": [
            pod("web-abc-1", owned("ReplicaSet", "web-abc"), labels=labels, priority=9500, containers=main),
            pod("report-28-x", owned("Job", "report-28")),
            pod("db-0", owned("StatefulSet", "db")),
            pod("alone", labels={"koordinator.sh/qosClass": "BE"}, priority=5500),
            pod("done") | {"status": {"phase": "Succeeded"}},
            pod("pending", nodeName=""),
        ],
        "/apis/apps/v1/replicasets": [
            {"metadata": {"name": "web-abc", "namespace": "shop", "ownerReferences": owned("Deployment", "web")}}
        ],
        "/apis/batch/v1/jobs": [
            {"metadata": {"name": "report-28", "namespace": "shop", "ownerReferences": owned("CronJob", "report")}}
        ],
        "/apis/autoscaling/v2/horizontalpodautoscalers": [HPA],
    }
    return api


HPA = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
            },
            {
                "type": "Resource",
                "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
            },
            {
                "type": "Pods",
                "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "9"}},
            },
        ],
    },
}


def test_the_cluster_is_told_in_the_words_of_the_model(shop: Any, kubeconfig: Any) -> None:
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    capacity = {CPU: 4000, MEMORY: 16 * GIB}
    assert live.nodes == (Node("n1", capacity, {CPU: 3920, MEMORY: 15 * GIB}, {"zone": "a"}),)
    assert [(p.name, str(p.workload)) for p in live.pods] == [
        ("web-abc-1", "shop/Deployment/web"),
        ("report-28-x", "shop/CronJob/report"),
        ("db-0", "shop/StatefulSet/db"),
        ("alone", "shop/Pod/alone"),
    ]
    web = WorkloadRef("shop", "Deployment", "web")
    # 2025-06-16 00:01:00 UTC, the start and not the creation
    start = 1_750_032_060
    asked = {CPU: 250, MEMORY: GIB}
    expected = Pod("shop", "web-abc-1", web, "n1", start, None, QosClass.LS, PriorityClass.PROD, asked)
    assert live.pods[0] == expected
    assert (live.pods[3].qos, live.pods[3].priority) == (QosClass.BE, PriorityClass.BATCH)
    assert live.containers["shop", "web-abc-1"] == (Container("main", asked, {MEMORY: 2 * GIB}),)
    assert live.autoscalers == {web: Autoscaler("web", 2, 9, {CPU: 70})}
    assert live.notes == ()


def test_what_may_not_be_read_is_a_note_and_the_hash_leads_to_the_deployment(shop: Any, kubeconfig: Any) -> None:
    shop.forbidden = {"/apis/apps/v1/replicasets", "/apis/autoscaling/v2/horizontalpodautoscalers", "/api/v1/nodes"}
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert live.pods[0].workload == WorkloadRef("shop", "Deployment", "web")
    assert (live.autoscalers, live.nodes) == ({}, ())
    assert len(live.notes) == 3
    assert 'resources: ["horizontalpodautoscalers"]' in live.notes[1]


def test_without_the_right_to_list_pods_there_is_no_picture(shop: Any, kubeconfig: Any) -> None:
    shop.forbidden = {"/api/v1/pods"}
    with pytest.raises(ClusterForbidden, match="pods"):
        observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))


def test_one_absurd_quantity_costs_one_pod_and_not_the_scan(shop: Any, kubeconfig: Any) -> None:
    absurd = [{"name": "main", "resources": requests("100m", "1e999999")}]
    shop.objects["/api/v1/pods"].append(pod("absurd", containers=absurd))
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert "absurd" not in {p.name for p in live.pods}
    assert len(live.pods) == 4
    (note,) = live.notes
    assert "pod shop/absurd" in note
    assert "1e999999" in note


def effective(**spec: Any) -> dict[Resource, int]:
    return effective_request(msgspec.convert(pod("p", **spec), PodObject))


def test_the_effective_request_counts_sidecars_init_containers_and_overhead() -> None:
    assert effective() == {}
    main = [{"name": "a", "resources": requests("200m", "64Mi")}, {"name": "b", "resources": requests("100m")}]
    init = [
        {"name": "first", "resources": requests("250m", "512Mi")},
        {"name": "proxy", "restartPolicy": "Always", "resources": requests("50m", "32Mi")},
        {"name": "second", "resources": requests("400m", "16Mi")},
    ]
    # cpu: running 200 + 100 + sidecar 50 = 350; init: first 250, second 400 + sidecar 50 = 450 -> 450, + overhead 10
    # memory: running 64 + 32 = 96; init: first 512, second 16 + 32 = 48 -> 512 MiB
    expected = {CPU: 460, MEMORY: 512 * MIB}
    assert effective(containers=main, initContainers=init, overhead={"cpu": "10m"}) == expected
    # the pod's own request replaces the sum for the resource that it names
    assert effective(containers=main, resources=requests("1")) == {CPU: 1000, MEMORY: 64 * MIB}


millis = st.integers(0, 5000)


@given(main=st.lists(millis, min_size=1, max_size=3), init=st.lists(st.tuples(millis, st.booleans()), max_size=4))
def test_the_effective_request_is_the_highest_sum_of_what_runs_at_once(
    main: list[int], init: list[tuple[int, bool]]
) -> None:
    """Replays the pod's life: init containers one by one beside the sidecars started so far, then everything."""
    moments, sidecars = [], 0
    for request, stays in init:
        moments.append(sidecars + request)
        sidecars += request if stays else 0
    moments.append(sidecars + sum(main))
    found = effective(
        containers=[{"name": f"c{i}", "resources": requests(f"{m}m")} for i, m in enumerate(main)],
        initContainers=[
            {"name": f"i{i}", "resources": requests(f"{m}m"), **({"restartPolicy": "Always"} if stays else {})}
            for i, (m, stays) in enumerate(init)
        ],
    )
    assert found == {CPU: max(moments)}


def test_an_autoscaler_of_one_container_counts_as_scaling_on_the_resource() -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    metrics = [
        {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c", "target": target}}
    ]
    spec = {"scaleTargetRef": {"kind": "StatefulSet", "name": "db"}, "maxReplicas": 3, "metrics": metrics}
    found = autoscaler_of(
        msgspec.convert({"metadata": {"name": "h", "namespace": "n"}, "spec": spec}, AutoscalerObject)
    )
    assert found == (WorkloadRef("n", "StatefulSet", "db"), Autoscaler("h", 1, 3, {MEMORY: 50}))
