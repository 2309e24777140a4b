"""Heaps of language runtimes: the queries, and the containers to which the answers belong. Pure.

Series of a scraped application have the labels of its target. Without a label `container` they belong to the pod's only
main container; if there are several, the series is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Container, ContainerRole, Inventory
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.runtimes.heap import HeapFact, ManagedHeap, ManagedRuntime
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.promql import Wording, equal, metric_name_matcher, of_labels, selector, union

BY: Final = "namespace, pod, container"
LONGEST_SPAN_SECONDS: Final = 7 * DAY_SECONDS
HeapRow = tuple[str, HeapFact, Mapping[str, str], float]
"""(runtime, figure, labels, value)."""


def questions(
    runtime: ManagedRuntime, labels: Mapping[str, str], shard: NamespaceShard, span_seconds: int
) -> Mapping[HeapFact, Wording]:
    """Return the PromQL of a runtime's heap figures in a range of namespaces, over whole hours up to a week."""

    def select(metrics: tuple[str, ...], **own: str) -> str:
        conditions = (equal(label, value) for label, value in own.items())
        return selector((metric_name_matcher(*metrics), *conditions, *of_labels(labels), *shard.matchers()))

    def select_each(metrics: tuple[str, ...], **own: str) -> str:
        each = [select((name,), **own) for name in metrics]
        return each[0] if len(each) == 1 else f"({union(each)})"

    hours = max(1, min(span_seconds, LONGEST_SPAN_SECONDS) // HOUR_SECONDS)
    usual, exact = (runtime.questions(way, BY, f"{hours}h") for way in (select, select_each))
    return {fact: Wording(text, exact[fact]) for fact, text in usual.items()}


def with_heaps(inventory: Inventory, rows: Iterable[HeapRow]) -> Inventory:
    """Return the inventory with the heap of each container whose maximum heap size is in the answers."""
    # The heap of each container; where two runtimes report on it, the one with the larger heap. A heap whose live part
    # is not known counts as live in full: it stays, and limits stay above it.
    highest: dict[tuple[ContainerRef, str], dict[HeapFact, float]] = defaultdict(dict)
    owners, workloads = inventory.owners(), {workload.ref: workload for workload in inventory.workloads}
    for runtime, fact, labels, value in rows:
        key = (labels.get("namespace", ""), labels.get("pod", ""))
        workload = workloads.get(owners.get(key, WorkloadRef("", "", "")))
        if workload is None:
            continue
        name, mains = labels.get("container", ""), [c for c in workload.containers if c.role is ContainerRole.MAIN]
        chosen: list[Container] = [c for c in workload.containers if c.name == name] if name else mains
        if len(chosen) == 1:
            figures = highest[ContainerRef(workload.ref, chosen[0].name), runtime]
            figures[fact] = max(value, figures.get(fact, 0.0))
    heaps: dict[ContainerRef, ManagedHeap] = {}
    for (ref, runtime), figures in highest.items():
        if HeapFact.MAXIMUM in figures:
            heap_figures = {HeapFact.LIVE: figures[HeapFact.MAXIMUM], **figures}
            sizes = {fact: round(heap_figures.get(fact, 0.0)) for fact in HeapFact}
            heap = ManagedHeap(
                runtime,
                sizes[HeapFact.MAXIMUM],
                sizes[HeapFact.LIVE],
                sizes[HeapFact.COMMITTED],
                sizes[HeapFact.OTHER],
                round(heap_figures.get(HeapFact.COLLECTING, 0.0), 4),
            )
            heaps[ref] = max(heap, heaps.get(ref, heap), key=lambda candidate: candidate.maximum_bytes)
    if not heaps:
        return inventory
    workloads_with_heaps = tuple(
        replace(w, containers=tuple(replace(c, heap=heaps.get(ContainerRef(w.ref, c.name))) for c in w.containers))
        for w in inventory.workloads
    )
    return replace(inventory, workloads=workloads_with_heaps)
