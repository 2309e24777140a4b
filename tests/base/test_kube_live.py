from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import (
    Autoscaler,
    Container,
    ContainerRole,
    Inventory,
    LimitRange,
    Node,
    Pod,
    Quota,
    Workload,
    tightest,
)
from cotenant.base.errors import ClusterForbidden
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.kube.live import LISTED, Marks, observe
from cotenant.base.kube.objects import AutoscalerObject, LimitRangeObject, QuotaObject
from cotenant.base.kube.overlay import overlay
from cotenant.base.kube.projection import autoscaler_of, limit_ranges_of, quotas_of, version_of
from cotenant.base.kube.seen_pods import shape_of
from cotenant.base.kubernetes.models.pod import PodObject
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.profiler.sightings import merge_inventories
from cotenant.recommender.incomplete import gone_workloads

pytestmark = pytest.mark.server

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
    api.objects = {path: [] for path in LISTED} | {
        "/version": {"gitVersion": "v1.35.4-gke.1234", "major": "1"},
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
    requested = {CPU: 250, MEMORY: GIB}
    expected = Pod(
        "shop", "web-abc-1", web, "n1", start, qos=QosClass.LS, priority=PriorityClass.PROD, requests=requested
    )
    assert live.pods[0] == expected
    assert (live.pods[3].qos, live.pods[3].priority) == (QosClass.BE, PriorityClass.BATCH)
    assert live.containers["shop", "web-abc-1"] == (Container("main", requested, {MEMORY: 2 * GIB}),)
    assert live.autoscalers == {web: Autoscaler("web", 2, 9, {CPU: 70})}
    assert live.notes == ()


def test_who_else_writes_a_workload_is_told_with_it(shop: Any, kubeconfig: Any) -> None:
    def made(name: str, owner: list[dict[str, Any]]) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "shop", "ownerReferences": owner}, "spec": {}}

    def vpa(name: str, target: str, mode: str) -> dict[str, Any]:
        spec = {"targetRef": {"kind": "StatefulSet", "name": target}, "updatePolicy": {"updateMode": mode}}
        return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}

    shop.objects["/apis/apps/v1/deployments"] = [made("web", owned("Grafana", "main"))]
    shop.objects["/apis/batch/v1/cronjobs"] = [made("report", [])]
    listed = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
    shop.objects[listed] = [vpa("watches", "db", "Off"), vpa("sets", "db", "Recreate")]
    shop.objects[f"{listed[:-1]}checkpoints"] = []
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    workloads = {w.ref.name: w for w in overlay(Inventory("c", 1_750_100_000, (), (), ()), live).workloads}
    assert {name: w.operator for name, w in workloads.items() if w.operator} == {"web": "Grafana main"}
    assert {name: w.vertical for name, w in workloads.items() if w.vertical} == {
        "db": "VerticalPodAutoscaler sets sets pods' requests in mode Recreate"
    }
    assert set(workloads) == {"web", "report", "db", "alone"}


def test_the_amount_of_a_pod_itself_counts_instead_of_its_containers(shop: Any, kubeconfig: Any) -> None:
    main = [{"name": "main", "resources": requests("250m", "1Gi")}, {"name": "proxy", "resources": {}}]
    own = {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}
    shop.objects["/api/v1/pods"] = [
        pod("web-abc-1", owned("ReplicaSet", "web-abc"), containers=main, resources=own),
        pod("db-0", owned("StatefulSet", "db"), containers=main[1:], resources={"limits": {"memory": "4Gi"}}),
    ]
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    web, db = overlay(Inventory("c", 0, (), (), ()), live).workloads
    # one pod each; memory of web is its containers' 1 GiB, and without a request that of db is its limit of 4 GiB
    assert [w.total_request(CPU) for w in (web, db)] == [2000, None]
    assert [w.total_request(MEMORY) for w in (web, db)] == [GIB, 4 * GIB]
    assert [w.total(CPU, "limits") for w in (web, db)] == [3000, 0]
    assert [p.requests for p in live.pods] == [{CPU: 2000, MEMORY: GIB}, {MEMORY: 4 * GIB}]
    shop.objects["/api/v1/pods"] = [pod("web-abc-1", owned("ReplicaSet", "web-abc"), containers=main)]
    later = overlay(
        overlay(Inventory("c", 0, (), (), ()), live), observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    )
    assert {w.ref.name: w.total_request(CPU) for w in later.workloads} == {"web": 250, "db": None}


def test_a_placeholder_holds_its_node_and_is_no_workload(shop: Any, kubeconfig: Any) -> None:
    placeholder_pod = pod("evening-0", containers=[{"name": "hold", "resources": requests("3")}])
    placeholder_pod["metadata"]["namespace"] = PLACEHOLDER_NAMESPACE
    shop.objects["/api/v1/pods"].append(placeholder_pod)
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    inventory = overlay(Inventory("c", 0, (), (), ()), live)
    assert PLACEHOLDER_NAMESPACE not in {w.ref.namespace for w in inventory.workloads}
    # the web's 250 m and the placeholder's 3 cores; the other pods ask for nothing
    assert inventory.requested_by_node(CPU) == {"n1": 3250}
    (placeholder,) = (p for p in inventory.pods if p.placeholder)
    assert not placeholder.serving
    # a version before took it for a workload of its own
    before = replace(
        inventory, workloads=(*inventory.workloads, Workload(placeholder.workload, 1, (Container("hold"),)))
    )
    assert merge_inventories(before, inventory, 0).workloads == tuple(sorted(inventory.workloads, key=lambda w: w.ref))


def test_what_the_api_server_lists_is_there_however_long_it_has_no_pod(shop: Any, kubeconfig: Any) -> None:
    meta = [{"metadata": {"name": name, "namespace": "shop"}} for name in ("web", "asleep")]
    shop.objects["/apis/apps/v1/deployments"] = meta
    inventory = overlay(
        Inventory("c", 10**9, (), (), ()), observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    )
    asleep, deleted = (WorkloadRef("shop", "Deployment", name) for name in ("asleep", "deleted"))
    remembered = replace(inventory, workloads=(*inventory.workloads, Workload(asleep, 0, ()), Workload(deleted, 0, ())))
    # neither has had a pod in the window; one of the two still is an object
    assert gone_workloads(remembered) == {deleted}


def test_what_may_not_be_read_is_a_note_and_the_hash_leads_to_the_deployment(shop: Any, kubeconfig: Any) -> None:
    shop.forbidden = {"/apis/apps/v1/replicasets", "/apis/autoscaling/v2/horizontalpodautoscalers", "/api/v1/nodes"}
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert live.pods[0].workload == WorkloadRef("shop", "Deployment", "web")
    assert (live.autoscalers, live.nodes) == (None, None)
    assert len(live.notes) == 3
    assert [n for n in live.notes if 'resources: ["horizontalpodautoscalers"]' in n]


def test_without_the_right_to_list_pods_there_is_no_picture(shop: Any, kubeconfig: Any) -> None:
    shop.forbidden = {"/api/v1/pods"}
    with pytest.raises(ClusterForbidden, match="pods"):
        observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))


@pytest.mark.parametrize("path", [*LISTED[1:], "/version"])
def test_each_right_that_is_missing_is_one_note_and_nothing_stops(shop: Any, kubeconfig: Any, path: str) -> None:
    complete = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    shop.forbidden = {path}
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert [p.name for p in live.pods] == [p.name for p in complete.pods]
    (note,) = live.notes
    assert path.rsplit("/", 1)[-1] in note


def test_an_api_group_that_an_old_server_lacks_is_a_note(shop: Any, kubeconfig: Any) -> None:
    del shop.objects["/apis/batch/v1/cronjobs"]
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert (len(live.pods), len(live.notes)) == (4, 1)
    assert "does not serve /apis/batch/v1/cronjobs" in live.notes[0]


def template(*names: str, init: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "template": {
            "spec": {"containers": [{"name": n} for n in names], "initContainers": [{"name": n} for n in init]}
        }
    }


def with_mesh(shop: Any) -> None:
    """A web pod with an init container, a native sidecar and two containers that a webhook put there."""
    main = {"name": "main", "resources": requests("250m"), "resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]}  # fmt: skip
    init = [
        {"name": "migrate", "resources": requests("1")},
        {"name": "logs", "restartPolicy": "Always", "resources": requests("20m")},
        {"name": "istio-init", "resources": {}},
        {"name": "istio-proxy", "restartPolicy": "Always", "resources": requests("100m")},
    ]
    body = pod("web-abc-1", owned("ReplicaSet", "web-abc"), labels={"pod-template-hash": "abc"},
               containers=[main, {"name": "agent"}], initContainers=init)  # fmt: skip
    body["metadata"]["annotations"] = {"cotenant.dev/profile": "balanced", "cotenant.dev/floor": "1", "other": "x"}
    shop.objects["/api/v1/pods"] = [body]
    shop.objects["/apis/apps/v1/replicasets"][0]["spec"] = template("main", init=("migrate", "logs"))
    meta = {"name": "web", "namespace": "shop", "labels": {"app": "web"},
            "annotations": {"cotenant.dev/profile": "aggressive", "kubectl.kubernetes.io/x": "y"}}  # fmt: skip
    shop.objects["/apis/apps/v1/deployments"] = [{"metadata": meta, "spec": template("main", init=("migrate", "logs"))}]


MAIN, INIT, SIDECAR, INJECTED = ContainerRole.MAIN, ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.INJECTED


def roles(live: Any) -> dict[str, ContainerRole]:
    return {c.name: c.role for c in live.containers["shop", "web-abc-1"]}


def test_init_containers_sidecars_and_injected_containers_are_told_apart(shop: Any, kubeconfig: Any) -> None:
    with_mesh(shop)
    client = connect(KubeSettings(kubeconfig=kubeconfig(shop.url)))
    live = observe(client)
    # istio-init ends whoever put it there; istio-proxy and agent stay and are not in the ReplicaSet's template.
    container_roles = {
        "main": MAIN,
        "agent": INJECTED,
        "migrate": INIT,
        "logs": SIDECAR,
        "istio-init": INIT,
        "istio-proxy": INJECTED,
    }
    assert roles(live) == container_roles
    assert [c.restarts_on for c in live.containers["shop", "web-abc-1"] if c.restarts_on] == [(MEMORY,)]
    # Without ReplicaSets the Deployment's template tells the same; without both every container is the template's.
    shop.forbidden = {"/apis/apps/v1/replicasets"}
    assert roles(observe(client)) == container_roles
    shop.forbidden |= {"/apis/apps/v1/deployments"}
    blind = observe(client)
    assert roles(blind) == container_roles | {"agent": MAIN, "istio-proxy": SIDECAR}
    assert len(blind.notes) == 2


def test_a_workloads_own_annotations_win_over_those_its_pods_carry(shop: Any, kubeconfig: Any) -> None:
    with_mesh(shop)
    client = connect(KubeSettings(kubeconfig=kubeconfig(shop.url)))
    web = WorkloadRef("shop", "Deployment", "web")
    own = {"cotenant.dev/profile": "aggressive", "cotenant.dev/floor": "1"}
    assert observe(client).marks[web] == Marks({"app": "web"}, own)
    shop.forbidden = {"/apis/apps/v1/deployments"}
    carried = {"cotenant.dev/profile": "balanced", "cotenant.dev/floor": "1"}
    assert observe(client).marks[web] == Marks({"pod-template-hash": "abc"}, carried)


def bounded(shop: Any) -> None:
    """Two LimitRanges and two quotas of the namespace shop, one of them for some pods only."""
    container = {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "4", "memory": "8Gi"},
                 "maxLimitRequestRatio": {"cpu": "2500m"}, "default": {"cpu": "1"}}  # fmt: skip
    pod_wide = {"type": "Pod", "max": {"cpu": "1"}}
    other = {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "6"}}
    shop.objects["/api/v1/limitranges"] = [
        {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"limits": [container, pod_wide]}},
        {"metadata": {"name": "b", "namespace": "shop"}, "spec": {"limits": [other]}},
    ]
    hard = {"requests.cpu": "10", "limits.cpu": "20", "memory": "64Gi", "pods": "50"}
    used = {"requests.cpu": "2500m", "limits.cpu": "6", "memory": "32Gi", "pods": "7"}
    shop.objects["/api/v1/resourcequotas"] = [
        {
            "metadata": {"name": "team", "namespace": "shop"},
            "spec": {"hard": hard},
            "status": {"hard": hard, "used": used},
        },
        {"metadata": {"name": "high", "namespace": "shop"}, "spec": {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}},
    ]


RANGES = (
    # The tighter of both LimitRanges; the one of type Pod bounds the sum of a pod's containers.
    LimitRange("shop", CPU, 100, 4000, 2.5),
    LimitRange("shop", MEMORY, None, 8 * GIB, None),
    LimitRange("shop", CPU, None, 1000, None, of_pod=True),
)
QUOTAS = (
    Quota("shop", "team", CPU, True, 20_000, 6000),
    Quota("shop", "team", CPU, False, 10_000, 2500),
    Quota("shop", "team", MEMORY, False, 64 * GIB, 32 * GIB),
)


def test_bounds_of_namespaces_and_the_servers_version_are_told(shop: Any, kubeconfig: Any) -> None:
    bounded(shop)
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    assert live.limit_ranges == RANGES
    assert live.quotas is not None
    assert sorted(live.quotas, key=str) == sorted(QUOTAS, key=str)
    assert live.server_version == "1.35.4"
    (note,) = live.notes
    assert "shop/high has scopes and counts only some pods" in note


def test_what_the_api_server_shows_survives_overlay_and_store(shop: Any, kubeconfig: Any, tmp_path: Any) -> None:
    with_mesh(shop)
    bounded(shop)
    live = observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url))))
    web = WorkloadRef("shop", "Deployment", "web")
    remembered = Inventory("c", 9, (Node("gone", {CPU: 1}, {CPU: 1}),), (Workload(web, 1, (Container("main"),)),), ())
    inventory = overlay(remembered, live)
    store = Store(f"file://{tmp_path}", "c")
    store.write_inventory(inventory)
    assert store.read_inventory() == inventory
    (workload,) = inventory.workloads
    assert [c.role for c in workload.containers] == [MAIN, INJECTED, INIT, SIDECAR, INIT, INJECTED]
    assert workload.annotations == {"cotenant.dev/profile": "aggressive", "cotenant.dev/floor": "1"}
    assert (inventory.limit_ranges, inventory.server_version) == (RANGES, "1.35.4")
    assert set(inventory.quotas) == set(QUOTAS)
    # The API server lists nodes and does not show "gone".
    assert [n.name for n in inventory.nodes] == ["n1"]
    # And when it may not be asked for bounds and nodes, what is known stays.
    shop.forbidden = {"/api/v1/nodes", "/api/v1/limitranges", "/api/v1/resourcequotas", "/version"}
    later = overlay(inventory, observe(connect(KubeSettings(kubeconfig=kubeconfig(shop.url)))))
    same = ("nodes", "limit_ranges", "quotas", "server_version", "workloads")
    assert [getattr(later, name) for name in same] == [getattr(inventory, name) for name in same]


amounts = st.none() | st.integers(0, 64_000)


@given(st.lists(st.tuples(amounts, amounts), max_size=5))
def test_a_container_that_keeps_the_tightest_bounds_keeps_all(bounds: list[tuple[int | None, int | None]]) -> None:
    things = [
        {
            "metadata": {"name": f"l{i}", "namespace": "n"},
            "spec": {"limits": [{"type": "Container",
                                 "min": {} if a is None else {"cpu": f"{a}m"},
                                 "max": None if b is None else {"cpu": f"{b}m"}}]},
        }
        for i, (a, b) in enumerate(bounds)
    ]  # fmt: skip
    ranges = tightest(
        [r for limit_range in things for r in limit_ranges_of(msgspec.convert(limit_range, LimitRangeObject))]
    )
    lows, highs = [a for a, _ in bounds if a is not None], [b for _, b in bounds if b is not None]
    expected = () if not lows + highs else (LimitRange("n", CPU, max(lows, default=None), min(highs, default=None)),)
    assert ranges == expected


def test_a_quota_that_names_cpu_twice_counts_once_and_the_long_name_wins() -> None:
    quota = {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"cpu": "1", "requests.cpu": "2"}}}
    assert quotas_of(msgspec.convert(quota, QuotaObject)) == (Quota("n", "q", CPU, False, 2000, 0),)


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.35.4", "1.35.4"), ("v1.29.3-eks-adc7111", "1.29.3"), ("v1.30.1+k3s1", "1.30.1"), ("1.35", "1.35"), ("?", "")],
)
def test_a_vendors_version_is_read_as_the_plain_one(text: str, version: str) -> None:
    assert version_of(text) == version


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
    return dict(shape_of(msgspec.convert(pod("p", **spec), PodObject)).requests)


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
    counted = effective(
        containers=[{"name": f"c{i}", "resources": requests(f"{m}m")} for i, m in enumerate(main)],
        initContainers=[
            {"name": f"i{i}", "resources": requests(f"{m}m"), **({"restartPolicy": "Always"} if stays else {})}
            for i, (m, stays) in enumerate(init)
        ],
    )
    assert counted == {CPU: max(moments)}


def of_pods(resource: str, percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


def of_container(resource: str, percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "ContainerResource", "containerResource": {"name": resource, "container": "app", "target": target}}


AMOUNT = {"type": "AverageValue", "averageValue": "500m"}


@pytest.mark.parametrize(
    ("metrics", "targets", "unsolvable"),
    [
        ([of_pods("cpu", 80), of_pods("memory", 60)], {CPU: 80, MEMORY: 60}, ()),
        ([of_container("cpu", 60)], {}, (CPU,)),
        # the autoscaler adds pods for whichever of them asks for more: neither alone says when
        ([of_pods("cpu", 80), of_container("cpu", 60), of_pods("memory", 70)], {MEMORY: 70}, (CPU,)),
        ([of_container("cpu", 60), of_pods("cpu", 80)], {}, (CPU,)),
        ([of_pods("cpu", 80), of_pods("cpu", 60)], {}, (CPU,)),
        # none of these is a share of the request, so none moves with it
        (
            [
                {"type": "Resource", "resource": {"name": "cpu", "target": AMOUNT}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a", "target": AMOUNT}},
                {"type": "Pods", "pods": {"metric": {"name": "cpu"}, "target": AMOUNT}},
                {"type": "Object", "object": {"metric": {"name": "cpu"}, "target": {"type": "Value", "value": "9"}}},
                {"type": "External", "external": {"metric": {"name": "memory"}, "target": AMOUNT}},
                of_pods("ephemeral-storage", 50),
            ],
            {},
            (),
        ),
    ],
)  # fmt: skip
def test_only_one_utilisation_of_the_whole_pod_is_a_target_that_can_move(
    metrics: list[dict[str, Any]], targets: dict[Resource, int], unsolvable: tuple[Resource, ...]
) -> None:
    spec = {"scaleTargetRef": {"kind": "StatefulSet", "name": "db"}, "maxReplicas": 3, "metrics": metrics}
    autoscaler = autoscaler_of(
        msgspec.convert({"metadata": {"name": "h", "namespace": "n"}, "spec": spec}, AutoscalerObject)
    )
    assert autoscaler == (WorkloadRef("n", "StatefulSet", "db"), Autoscaler("h", 1, 3, targets, unsolvable))
