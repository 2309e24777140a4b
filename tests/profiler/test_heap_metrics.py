"""Heaps of JVMs as Micrometer and the JMX exporter write them, read from a real Prometheus and joined to containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import GIB, MIB
from cotenant.base.runtimes.heap import ManagedHeap
from cotenant.base.usage.usage import HOUR_SECONDS
from tests.profiler.conftest import inventory_in, profiler_settings, pulled, store_in
from tests.support.approximate import about
from tests.support.prometheus import Server, blocks_from

START = 1_795_046_400
HOURS = 26
SCRAPES = range(START, START + HOURS * HOUR_SECONDS, 60)
END = START + HOURS * HOUR_SECONDS


def labelled(name: str, **labels: str) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def saw_tooth(at: int, low: int, high: int) -> int:
    """A heap that grows for ten minutes and falls back at a collection."""
    return low + (high - low) * (at // 60 % 10) // 10


def exposition() -> str:
    """`spring` and, for three hours, `young` by Micrometer; `jmx` by the JMX exporter, without a label container."""
    spring = {"namespace": "shop", "pod": "spring-0", "container": "app", "instance": "10.0.0.1:8080", "job": "pods"}
    jmx = {"namespace": "shop", "pod": "jmx-0", "instance": "10.0.0.2:9404", "job": "jmx"}
    young = {"namespace": "shop", "pod": "young-0", "instance": "10.0.0.3:8080", "job": "pods"}
    rows: dict[str, list[str]] = {}

    def add(name: str, value: float, at: int, **labels: str) -> None:
        rows.setdefault(name, []).append(f"{labelled(name, **labels)} {value} {at}")

    for at in SCRAPES:
        eden, old = {"area": "heap", "id": "G1 Eden Space"}, {"area": "heap", "id": "G1 Old Gen"}
        add("jvm_memory_used_bytes", saw_tooth(at, 0, 800 * MIB), at, **spring, **eden)
        add("jvm_memory_used_bytes", 300 * MIB, at, **spring, **old)
        add("jvm_memory_used_bytes", 150 * MIB, at, **spring, area="nonheap", id="Metaspace")
        add("jvm_memory_used_bytes", 50 * MIB, at, **spring, area="nonheap", id="CodeCache")
        add("jvm_memory_committed_bytes", GIB, at, **spring, **eden)
        add("jvm_memory_committed_bytes", GIB, at, **spring, **old)
        add("jvm_memory_max_bytes", -1, at, **spring, **eden)
        add("jvm_memory_max_bytes", 4 * GIB, at, **spring, **old)
        add("jvm_memory_bytes_used", 700 * MIB, at, **jmx, area="heap")
        add("jvm_memory_bytes_used", 90 * MIB, at, **jmx, area="nonheap")
        add("jvm_memory_bytes_committed", GIB, at, **jmx, area="heap")
        add("jvm_memory_bytes_max", GIB, at, **jmx, area="heap")
        add("jvm_memory_bytes_max", -1, at, **jmx, area="nonheap")
        if at >= END - 3 * HOUR_SECONDS:
            add("jvm_memory_used_bytes", 300 * MIB, at, **young, area="heap", id="G1 Old Gen")
            add("jvm_memory_max_bytes", 4 * GIB, at, **young, area="heap", id="G1 Old Gen")
        for pod, container in (("spring-0", "app"), ("spring-0", "proxy"), ("jmx-0", "main"), ("young-0", "main")):
            of_pod = {"namespace": "shop", "pod": pod}
            add("kube_pod_info", 1, at, **of_pod, node="n")
            add("kube_pod_owner", 1, at, **of_pod, owner_kind="StatefulSet", owner_name=pod[:-2])
            add("kube_pod_container_status_restarts_total", 0, at, **of_pod, container=container)
    out = [line for name in rows for line in (f"# TYPE {name} unknown", *dict.fromkeys(rows[name]))]
    pauses = [
        (labelled("jvm_gc_pause_seconds_sum", **spring, action="end of minor GC", cause="G1 Evacuation Pause"), 0.01),
        (labelled("jvm_gc_pause_seconds_sum", **spring, action="end of major GC", cause="System.gc()"), 0.02),
        (labelled("jvm_gc_collection_seconds_sum", **jmx, gc="G1 Young Generation"), 0.2),
    ]
    out += ["# TYPE container_cpu_usage_seconds counter"]
    for pod, container in (("spring-0", "app"), ("jmx-0", "main")):
        own = labelled("container_cpu_usage_seconds_total", namespace="shop", pod=pod, container=container)
        out += [f"{own} {0.5 * (at - START)} {at}" for at in SCRAPES]
    for name in ("jvm_gc_pause_seconds_sum", "jvm_gc_collection_seconds_sum"):
        out.append(f"# TYPE {name} unknown")
        out += [
            f"{t} {share * (at - START)} {at}" for t, share in pauses if t.startswith(f"{name}{{") for at in SCRAPES
        ]
    return "\n".join([*out, "# EOF\n"])


@pytest.mark.slow
@pytest.mark.prometheus
def test_heaps_are_joined_to_the_containers_of_their_pods(tmp_path: Path) -> None:
    (tmp_path / "m.om").write_text(exposition())
    blocks_from(tmp_path / "m.om", tmp_path / "data")
    store = store_in(tmp_path / "store")
    with Server(tmp_path / "data") as server:
        record = pulled(store, END - 60, profiler_settings(server.url))
    assert not any("heaps" in note for note in record.notes)
    by_workload = {workload.ref: workload for workload in inventory_in(store).workloads}
    spring = by_workload[WorkloadRef("shop", "StatefulSet", "spring")]
    app, proxy = (spring.container(name) for name in ("app", "proxy"))
    assert app is not None and proxy is not None
    # The old generation alone is bounded; the hourly minimum is 300 MiB with an empty eden. Both pools' committed are
    # 2 GiB, Metaspace and CodeCache 200 MiB, and collections take 1 % + 2 % of the time.
    share = about(0.03, within=1e-3)
    assert app.heap == ManagedHeap("jvm", 4 * GIB, 300 * MIB, 2 * GIB, 200 * MIB, share)
    assert proxy.heap is None
    main = by_workload[WorkloadRef("shop", "StatefulSet", "jmx")].container("main")
    assert main is not None
    share = about(0.2, within=1e-3)
    assert main.heap == ManagedHeap("jvm", GIB, 700 * MIB, GIB, 90 * MIB, share)
    first = by_workload[WorkloadRef("shop", "StatefulSet", "young")].container("main")
    # three hours do not tell what is live in the heap, so that all of it counts as live
    assert first is not None and first.heap == ManagedHeap("jvm", 4 * GIB, 4 * GIB)
