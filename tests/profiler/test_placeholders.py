"""Pods that only hold reserved room are no workload: they have no row, no cost and no recommendation."""

from __future__ import annotations

from cotenant.base.cluster import Inventory
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.profiler.pool import by_container, by_workload
from cotenant.profiler.prometheus.inventory import Rows, build


def test_placeholders_are_left_out_of_the_inventory() -> None:
    pods = [{"namespace": namespace, "pod": "p", "node": "n1"} for namespace in ("shop", PLACEHOLDER_NAMESPACE)]
    rows = Rows.of(
        [{"__name__": "kube_pod_info", **pod} for pod in pods],
        [({"__name__": "kube_pod_info", **pod}, 1.0) for pod in pods],
    )
    inventory = build("c", 1000, rows, None).inventory
    assert {pod.namespace for pod in inventory.pods} == {"shop"}


def test_their_usage_belongs_to_nobody() -> None:
    series = [PodContainerRef(PLACEHOLDER_NAMESPACE, "held-0", "hold"), PodContainerRef("shop", "web-0", "app")]
    inventory = Inventory("c", 1000, (), (), ())
    assert by_workload(series, inventory).refs == (WorkloadRef("shop", "Pod", "web-0"),)
    assert by_workload(series, inventory).rows.tolist() == [-1, 0]
    assert by_container(series, inventory).rows.tolist() == [-1, 0]
