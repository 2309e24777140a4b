from __future__ import annotations

from dataclasses import replace

from cotenant.base.cluster import Autoscaler, Container, Inventory, Node, Pod, RunningSum, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube.live import LiveCluster, Marks
from cotenant.base.kube.overlay import overlay
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.base.runtimes.heap import ManagedHeap

CPU = Resource.CPU
WEB, DB, NEW = (WorkloadRef("shop", "Deployment", name) for name in ("web", "db", "new"))
OLD_MAIN, NEW_MAIN = Container("main", {CPU: 100}), Container("main", {CPU: 200})

OWN = {"cotenant.dev/profile": "aggressive"}
GONE = Pod("shop", "web-0", WEB, "n1", 1000, 5000)
RUNNING = Pod("shop", "web-1", WEB, "n1", 4000)
KNOWN = Inventory(
    "prod",
    9000,
    (Node("n1", {CPU: 4000}, {CPU: 3900}), Node("n2", {CPU: 8000}, {CPU: 7900})),
    (Workload(WEB, 1, (OLD_MAIN,)), Workload(DB, 3, (OLD_MAIN,), QosClass.LS, PriorityClass.PROD)),
    (GONE, RUNNING),
    notes=("from history",),
)

LIVE = LiveCluster(
    nodes=(Node("n1", {CPU: 4000}, {CPU: 3800}, {"zone": "a"}),),
    pods=(
        Pod("shop", "web-1", WEB, "n2", 4100, qos=QosClass.LS, priority=PriorityClass.PROD, requests={CPU: 100}),
        Pod("shop", "web-2", WEB, "n1", 8000, qos=QosClass.LSR, priority=PriorityClass.PROD, requests={CPU: 200}),
        Pod("shop", "new-1", NEW, "n1", 8900),
    ),
    containers={("shop", "web-1"): (OLD_MAIN,), ("shop", "web-2"): (NEW_MAIN,), ("shop", "new-1"): (NEW_MAIN,)},
    autoscalers={DB: Autoscaler("db", 1, 9, {CPU: 70})},
    marks={WEB: Marks({"app": "web"}, {"cotenant.dev/profile": "aggressive"})},
    notes=("no access to jobs",),
)


def test_a_running_pod_is_told_by_the_api_server_and_keeps_the_start_that_history_saw() -> None:
    inventory = overlay(KNOWN, LIVE)
    assert inventory.pods == (GONE, replace(LIVE.pods[0], start_seconds=4000), LIVE.pods[1], LIVE.pods[2])


def test_the_youngest_pod_speaks_for_the_template_and_new_workloads_are_added() -> None:
    # the older pod has 100m, the younger one 200m
    web = replace(NEW_MAIN, running={CPU: RunningSum(2, 300, 300)})
    assert overlay(KNOWN, LIVE).workloads == (
        Workload(WEB, 2, (web,), QosClass.LSR, PriorityClass.PROD, None, {"app": "web"}, OWN),
        Workload(DB, 3, (OLD_MAIN,), QosClass.LS, PriorityClass.PROD, Autoscaler("db", 1, 9, {CPU: 70})),
        Workload(NEW, 1, (NEW_MAIN,)),
    )


def test_a_node_or_an_autoscaler_that_the_api_server_no_longer_shows_is_gone() -> None:
    inventory = overlay(KNOWN, LIVE)
    assert inventory.nodes == LIVE.nodes
    assert inventory.notes == ("from history", "no access to jobs")
    without = overlay(inventory, replace(LIVE, autoscalers={}))
    assert [w.autoscaler for w in without.workloads] == [None, None, None]


def test_what_the_api_server_may_not_list_stays_as_history_has_it() -> None:
    inventory = overlay(overlay(KNOWN, LIVE), replace(LIVE, nodes=None, autoscalers=None, marks={}))
    assert inventory.nodes == LIVE.nodes
    assert inventory.workloads[1].autoscaler == Autoscaler("db", 1, 9, {CPU: 70})
    assert inventory.workloads[0].annotations == OWN


def test_laying_the_same_picture_over_twice_changes_nothing_more() -> None:
    once = overlay(KNOWN, LIVE)
    assert overlay(once, LIVE) == once


def test_an_api_server_that_shows_nothing_takes_nothing_away() -> None:
    assert overlay(KNOWN, LiveCluster()) == KNOWN


def test_a_pod_that_only_usage_showed_gets_its_owner_and_stands_for_itself_no_more() -> None:
    bare = WorkloadRef("shop", "Pod", "web-1")
    remembered = replace(
        KNOWN, workloads=(Workload(bare, 1, (), described=False),), pods=(replace(RUNNING, workload=bare, node=""),)
    )
    inventory = overlay(remembered, LIVE)
    assert bare not in {w.ref for w in inventory.workloads}
    assert {p.workload for p in inventory.pods} == {WEB, NEW}
    assert overlay(remembered, LiveCluster()).workloads == remembered.workloads


def test_a_heap_that_metrics_tell_of_stays_with_what_the_api_server_knows() -> None:
    heap = ManagedHeap("jvm", 2**30, 2**28)
    recorded = replace(KNOWN, workloads=(Workload(WEB, 1, (replace(OLD_MAIN, heap=heap),)),))
    (web, *_) = overlay(recorded, LIVE).workloads
    assert [container.heap for container in web.containers] == [heap]
