from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Autoscaler, Container, ContainerRole, LimitRange, Quota
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import GIB, Resource
from cotenant.profiler.prometheus.inventory import STATE, Rows, build, effective_request
from cotenant.profiler.prometheus.kube_state import declared

CPU, MEMORY = Resource.CPU, Resource.MEMORY
MAIN, INIT, SIDECAR = ContainerRole.MAIN, ContainerRole.INIT, ContainerRole.SIDECAR


def state(*series: tuple[str, dict[str, str], float]) -> Any:
    return Rows.of((), (({"__name__": name, **labels}, value) for name, labels, value in series)).state


def limit(constraint: str, value: float, name: str = "a", **labels: str) -> tuple[str, dict[str, str], float]:
    own = {"namespace": "n", "limitrange": name, "type": "Container", "resource": "cpu", "constraint": constraint}
    return "kube_limitrange", own | labels, value


def test_the_tightest_bound_on_containers_is_kept() -> None:
    ranges = declared.limit_ranges(
        state(
            limit("min", 0.05),
            limit("min", 0.1, "b"),
            limit("max", 4),
            limit("max", 6, "b"),
            limit("maxLimitRequestRatio", 2.5),
            limit("max", 1, type="Pod"),
            limit("default", 0.5),
            limit("max", 8 * GIB, resource="memory"),
            limit("max", 1, resource="ephemeral-storage"),
        )
    )
    containers = LimitRange("n", CPU, 100, 4000, 2.5), LimitRange("n", MEMORY, None, 8 * GIB, None)
    assert ranges == (*containers, LimitRange("n", CPU, None, 1000, None, of_pod=True))


def quota(resource: str, side: str, value: float) -> tuple[str, dict[str, str], float]:
    labels = {"namespace": "n", "resourcequota": "team", "resource": resource, "type": side}
    return "kube_resourcequota", labels, value


def test_a_quota_is_read_in_millicores_and_bytes_and_the_long_name_wins() -> None:
    quotas = declared.quotas(
        state(
            quota("requests.cpu", "hard", 10),
            quota("requests.cpu", "used", 2.5),
            quota("cpu", "hard", 1),
            quota("cpu", "used", 1),
            quota("limits.memory", "hard", 64 * GIB),
            quota("memory", "used", 1),
            quota("pods", "hard", 50),
        )
    )
    # memory has no "hard" and pods are not bounded here.
    assert quotas == (Quota("n", "team", CPU, False, 10_000, 2500), Quota("n", "team", MEMORY, True, 64 * GIB, 0))


def test_our_annotations_are_read_back_from_the_names_that_prometheus_allows() -> None:
    own = declared.own_annotations(
        state(
            ("kube_deployment_annotations",
             {"namespace": "n", "deployment": "web", "annotation_cotenant_dev_profile": "balanced",
              "annotation_cotenant_dev_cpu_floor": "50m", "annotation_other": "x"}, 1),
            ("kube_cronjob_annotations", {"namespace": "n", "cronjob": "dump", "annotation_other": "x"}, 1),
        )
    )  # fmt: skip
    web = WorkloadRef("n", "Deployment", "web")
    assert own == {web: {"cotenant.dev/profile": "balanced", "cotenant.dev/cpu-floor": "50m"}}


def test_well_known_labels_of_nodes_get_their_names_back() -> None:
    assert declared.node_labels(
        {"node": "n1", "label_node_kubernetes_io_instance_type": "m5", "label_topology_kubernetes_io_zone": "a",
         "label_team_x": "y"}
    ) == {"node.kubernetes.io/instance-type": "m5", "topology.kubernetes.io/zone": "a", "team_x": "y"}  # fmt: skip


def build_info(job: str, version: str) -> tuple[str, dict[str, str], float]:
    return "kubernetes_build_info", {"job": job, "git_version": version}, 1.0


@pytest.mark.parametrize(
    ("series", "version"),
    [
        # Two API servers during an upgrade: the older one is what one can rely on, whatever others run.
        ([build_info("apiserver", "v1.35.4"), build_info("apiserver", "v1.34.9"), build_info("kubelet", "v1.36.0")],
         "1.34.9"),
        ([build_info("kubernetes-apiservers", "v1.29.3-eks-1")], "1.29.3"),
        # Nobody but kubelets tells: the API server is never older than the newest of them.
        ([build_info("kubelet", "v1.9.9"), build_info("kubelet", "v1.33.1")], "1.33.1"),
        ([("kube_node_info", {"node": "a", "kubelet_version": "v1.31.2+k3s1"}, 1.0)], "1.31.2"),
        ([], ""),
    ],
)  # fmt: skip
def test_the_servers_version_is_the_one_to_rely_on(series: list[Any], version: str) -> None:
    assert declared.server_version(state(*series)) == version


def of_pod(metric: str, container: str, resource: str, value: float) -> tuple[str, dict[str, str], float]:
    return metric, {"namespace": "n", "pod": "p", "container": container, "resource": resource}, value


def test_init_containers_and_sidecars_are_told_apart_by_their_restart_policy() -> None:
    requests, init = "kube_pod_container_resource_requests", "kube_pod_init_container_resource_requests"
    own = {"namespace": "n", "pod": "p"}
    rows = Rows.of(
        (),
        [
            ({"__name__": name, **labels}, value)
            for name, labels, value in (
                ("kube_pod_info", own | {"node": "x"}, 1.0),
                of_pod(requests, "app", "cpu", 0.5),
                of_pod(init, "migrate", "cpu", 2.0),
                of_pod(init, "proxy", "cpu", 0.1),
                of_pod("kube_pod_init_container_resource_limits", "proxy", "memory", GIB),
                ("kube_pod_init_container_info", own | {"container": "migrate"}, 1.0),
                ("kube_pod_init_container_info", own | {"container": "proxy", "restart_policy": "Always"}, 1.0),
                ("kube_pod_init_container_info", own | {"container": "wait"}, 1.0),
            )
        ],
    )
    inventory = build("c", 1000, rows, None).inventory
    assert inventory.workloads[0].containers == (
        Container("app", {CPU: 500}),
        Container("migrate", {CPU: 2000}, {}, INIT),
        Container("proxy", {CPU: 100}, {MEMORY: GIB}, SIDECAR),
        Container("wait", {}, {}, INIT),
    )
    # CPU: sidecar 100 + max(main 500, the larger init 2000); memory: the sidecar's limit, as it has no request
    assert inventory.pods[0].requests == {CPU: 2100, MEMORY: GIB}


@pytest.mark.parametrize(
    ("beside", "targets", "unsolvable"),
    [
        ({"metric": "kube_pod_init_container_info", "container": "migrate"}, {CPU: 60}, ()),
        ({"metric": "kube_pod_container_resource_requests", "container": "proxy", "resource": "cpu"}, {}, (CPU,)),
        ({"metric": "kube_pod_init_container_info", "container": "proxy", "restart_policy": "Always"}, {}, (CPU,)),
    ],
)
def test_a_target_is_the_pods_only_where_one_container_is_all_that_stays(
    beside: dict[str, str], targets: dict[Resource, int], unsolvable: tuple[Resource, ...]
) -> None:
    # kube-state-metrics gives a target of one container the labels of one of the whole pod.
    more, own, prefix = dict(beside), {"namespace": "n", "pod": "p"}, "kube_horizontalpodautoscaler"
    scaler = {"namespace": "n", "horizontalpodautoscaler": "h"}
    controller = {"owner_kind": "StatefulSet", "owner_name": "db", "owner_is_controller": "true"}
    owner = own | {"__name__": "kube_pod_owner"} | controller
    series = [
        ("kube_pod_info", own | {"node": "x"}, 1.0),
        of_pod("kube_pod_container_resource_requests", "app", "cpu", 0.5),
        (more.pop("metric"), own | more, 2.0),
        (f"{prefix}_info", scaler | {"scaletargetref_kind": "StatefulSet", "scaletargetref_name": "db"}, 1.0),
        (f"{prefix}_spec_min_replicas", scaler, 2.0),
        (f"{prefix}_spec_max_replicas", scaler, 9.0),
        (f"{prefix}_spec_target_metric", scaler | {"metric_name": "cpu", "metric_target_type": "utilization"}, 60.0),
        (f"{prefix}_spec_target_metric", scaler | {"metric_name": "memory", "metric_target_type": "average"}, 9.0),
        (f"{prefix}_spec_target_metric", scaler | {"metric_name": "rps", "metric_target_type": "value"}, 9.0),
    ]
    rows = Rows.of([owner], (({"__name__": name, **labels}, value) for name, labels, value in series))
    (workload,) = build("c", 1000, rows, None).inventory.workloads
    assert workload.autoscaler == Autoscaler("h", 2, 9, targets, unsolvable)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([MAIN, INIT, SIDECAR]), st.integers(1, 4000)), min_size=1, max_size=6))
def test_the_effective_request_is_never_below_what_runs_at_once(containers: list[tuple[ContainerRole, int]]) -> None:
    """Replays a pod's life with all its sidecars first: each init container beside them, then everything that stays."""
    sidecars = sum(v for role, v in containers if role is SIDECAR)
    moments = [sidecars + v for role, v in containers if role is INIT]
    moments.append(sidecars + sum(v for role, v in containers if role is MAIN))
    request = effective_request([Container(str(i), {CPU: v}, {}, role) for i, (role, v) in enumerate(containers)])
    assert request == {CPU: max(moments)}


def test_what_nobody_tells_is_a_note_and_what_somebody_tells_is_none() -> None:
    blind = build("c", 1000, Rows.of((), ()), None).inventory
    assert [note.partition(":")[0] for note in blind.notes] == [
        "QoS and priority are unknown",
        "annotations of workloads are unknown",
        "it is not known whether LimitRanges or autoscalers exist",
    ]
    exported = {"__name__": "kube_job_annotations", "namespace": "n", "job_name": "j"}
    # as kube-state-metrics 2.5 has it for each object without any allow-list, and with one for others' annotations
    for bare in (exported, exported | {"annotation_argocd_argoproj_io_tracking_id": "a:b"}):
        inventory = build("c", 1000, Rows.of((), [(bare, 1.0)]), None).inventory
        assert [note for note in inventory.notes if "annotations of workloads are unknown" in note]
    own = exported | {"annotation_cotenant_dev_exclude": "true"}
    inventory = build("c", 1000, Rows.of((), [(own, 1.0)]), None).inventory
    assert [note for note in inventory.notes if "annotations" in note] == []
    assert build("c", 1000, Rows.of((), ()), {}).inventory.notes == ()


def test_the_snapshot_stays_one_question() -> None:
    # All of it fits in one selector; a server refuses expressions far longer than this.
    assert len("|".join(STATE)) < 2000
    assert len(set(STATE)) == len(STATE)


def test_a_nodes_gpus_are_counted_once_under_the_names_that_kube_state_metrics_gives_them() -> None:
    amounts = {
        "a": {"cpu": 8, "nvidia_com_gpu": 2, "koordinator_sh_gpu_core": 200, "koordinator_sh_gpu_memory_ratio": 200},
        "b": {"cpu": 8, "koordinator_sh_gpu": 150},
        "c": {"cpu": 8},
    }
    series = [
        ({"__name__": "kube_node_status_allocatable", "node": node, "resource": resource}, float(amount))
        for node, published in amounts.items()
        for resource, amount in published.items()
    ]
    nodes = build("c", 1000, Rows.of((), series), None).inventory.nodes
    assert {node.name: node.gpus for node in nodes} == {"a": 2.0, "b": 1.5, "c": 0.0}
