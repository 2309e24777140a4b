"""Compares series of whole pods with those of their containers: one query per scan, and its answer. Pure.

cAdvisor has a series for each container and one for the pod's own cgroup (without a label `container`), which covers
all that runs in the pod. It is never added to usage. If a sandboxed runtime runs containers outside of their cgroups,
or a container's series are lost, the pod's value is clearly larger than the sum of its containers. What only the pod's
cgroup contains (the pause container, kernel memory, files in memory that outlived a restart) is within the tolerance,
as is the time between both series' samples, because daily means are compared.

A CPU counter that is above zero and does not change proves that CPU is counted there, and that its zeros are true.

A working set that fills its limit may be file pages that are read again and again: the kernel can reclaim those, and
the unreclaimable memory is what the container needs. A swapping node may hold more of a pod than its working set.

Replicas of a scraper count the same: if several series of one container have counters far apart, they are parts of the
container, such as its cores under an unknown label, and its usage may be their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Inventory, PodRow
from cotenant.base.resource import MIB, Resource
from cotenant.base.text import agree
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeWindow
from cotenant.profiler.prometheus.clusters import host_of
from cotenant.profiler.prometheus.parts import (
    ACTIVE_FILE,
    CONTAINERS,
    CORE,
    CPU,
    LIMITS,
    MEMORY,
    RSS,
    SERIES,
    expression_of,
    over_cores,
)
from cotenant.profiler.prometheus.plan import MARK, NamespaceShard
from cotenant.profiler.prometheus.promql import Matcher, equal, marked_union, metric_name_matcher, of_labels, selector
from cotenant.profiler.prometheus.survey import ServerProfile

LARGER: Final = 1.2
"""Factor by which a pod's value may exceed the sum of its containers' values."""
TOLERANCE: Final[Mapping[Resource, int]] = {Resource.CPU: 20, Resource.MEMORY: 32 * MIB}
"""Amount, in millicores or bytes, by which a pod's value may exceed that product."""
STILL_CPU_SECONDS: Final = 0.5
"""CPU seconds in a day below which a pod did nothing: its pause container takes a few hundredths."""
SETTLED_SECONDS: Final = HOUR_SECONDS
"""A younger pod has too few samples to compare: its containers did not start at one moment."""
_PODS: Final = (equal("container", ""), Matcher("pod", "!=", ""))
_OWN_GROUP: Final = Matcher("id", "=~", ".*/(kubepods[^/]*-)?pod[^/]+")
"""A pod's group itself; pause containers have a group inside it."""
_UNITS: Final = {Resource.CPU: 1000.0, Resource.MEMORY: 1.0}
_DAY: Final = f"[{DAY_SECONDS}s:{HOUR_SECONDS}s]"
_CONTAINER, _POD, _PARTS, _UNRECLAIMABLE, _SWAP = "idle-container", "idle-pod", "parts", "unreclaimable", "swap"
NODE_SWAP: Final = ("node_memory_SwapTotal_bytes", "node_memory_SwapFree_bytes", "node_swap_usage_bytes")
"""Swap metrics of nodes: total and free by node_exporter, and used by the kubelet."""
FILLS: Final = 0.85
"""Share of its limit from which on a working set counts as filling it."""
APART: Final = 0.02
"""Share of a container's highest counter by which its counters may differ, besides its usage in APART_SECONDS."""
APART_SECONDS: Final = 900
"""Most time between the scrapes of two replicas of Prometheus; their counters differ by the usage in it."""

Row = tuple[Mapping[str, str], float]
"""Labels of a series and its value."""


def question(server: ServerProfile, day: TimeWindow, labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL by which `with_pod_rows` reads a `PodRow` of a day for each pod of a range of namespaces.

    Evaluate it at the day's end. Of several series of one pod or container, as from two replicas of Prometheus, the
    highest counts. CPU series of single cores are added unless there is one of their total.
    """
    # Windows for the longest scrape interval of any series in the day: none may look idle
    own, rates = (*of_labels(labels), *shard.matchers()), server.slowest_in(*day)
    rate, highest = ("rate(", f"[{rates.window_seconds}s])"), ("max_over_time(", f"[{rates.gauge_window_seconds}s])")
    # Containers that use no CPU now, of those of which some was counted before
    series = selector((metric_name_matcher(CPU), *CONTAINERS, *own))
    by = "max by (namespace, pod, container)"
    counted = f"{by} (last_over_time({series}[{rates.gauge_window_seconds}s])) > 0"
    used = f"rate({series}[{rates.window_seconds}s])"
    # Pods whose own counter of CPU stood still all day, above zero
    group, by_pod = selector((metric_name_matcher(CPU), *_PODS, _OWN_GROUP, *own)), "sum by (namespace, pod)"
    moved = f"{by_pod} (last_over_time({group}{_DAY})) - {by_pod} (min_over_time({group}{_DAY}))"
    # Pods' CPU as the sum of all series, of containers with several that lived for an hour and are far apart
    part, lived = f"(namespace, pod, container, {CORE})", f"({series} and {series} offset 1h)"
    difference = f"max by {part} {lived} - min by {part} {lived}"
    bound = f"{APART!r} * max by {part} {lived} + {APART_SECONDS} * max by {part} ({used})"
    expressions = {
        Resource.CPU: _excess_query(Resource.CPU, CPU, rate, own, per_core=server.cores > 0),
        Resource.MEMORY: _excess_query(Resource.MEMORY, MEMORY, highest, own),
        _CONTAINER: f"({counted} unless {by} ({used}) > 0)",
        _POD: f"({moved} <= {STILL_CPU_SECONDS!r} and {by_pod} ({group}) > 0)",
        _PARTS: f"{by_pod} (sum by {part} ({used}) and on {part} ({difference} > {bound}))",
    }
    if LIMITS in server.names and (amounts := _unreclaimable(server.names, own)):
        expressions[_UNRECLAIMABLE] = amounts
    if not server.swap and (swapped := _swap_query(server.names, of_labels(labels))):
        expressions[_SWAP] = swapped
    return marked_union(MARK, expressions)


def _excess_query(
    resource: Resource, metric: str, window: tuple[str, str], own: tuple[Matcher, ...], *, per_core: bool = False
) -> str:
    """Return the PromQL of the mean usage of each pod whose own series clearly exceeds the sum of its containers."""
    plain = f"{window[0]}{SERIES}{window[1]}"
    shape = over_cores(plain) if per_core else plain

    def usage(matchers: tuple[Matcher, ...], *each: str) -> str:
        series = expression_of(shape, (metric_name_matcher(metric), *matchers, *own))
        return f"sum by (namespace, pod) (max by ({', '.join(('namespace', 'pod', *each))}) ({series}))"

    of_pods, of_containers = usage(_PODS), usage(CONTAINERS, "container")
    bound = f"{LARGER!r} * avg_over_time({of_containers}{_DAY}) + {TOLERANCE[resource] / _UNITS[resource]!r}"
    return f"(avg_over_time({of_pods}{_DAY}) > {bound})"


def _unreclaimable(names: Collection[str], own: tuple[Matcher, ...]) -> str:
    """Return the PromQL of the daily maximum of unreclaimable memory of containers at their limit; empty if unknown."""
    by = "by (namespace, pod, container)"

    def gauge(metric: str, *more: Matcher) -> str:
        return f"max {by} ({selector((metric_name_matcher(metric), *CONTAINERS, *more, *own))})"

    if ACTIVE_FILE in names:
        unreclaimed = f"({gauge(MEMORY)} - {gauge(ACTIVE_FILE)})"
    elif RSS in names:
        unreclaimed = gauge(RSS)
    else:
        return ""
    limit = gauge(LIMITS, equal("resource", "memory"))
    full = f"max_over_time(({gauge(MEMORY)}){_DAY}) >= {FILLS!r} * {limit}"
    return f"max_over_time(({unreclaimed}){_DAY}) and {full}"


def _swap_query(names: Collection[str], own: tuple[Matcher, ...]) -> str:
    """Return the PromQL of each node's daily maximum of swapped memory, if significant; empty if unknown."""
    total, free, of_kubelet = (selector((metric_name_matcher(name), *own)) for name in NODE_SWAP)
    used = [
        *([f"({total} - ignoring (__name__) {free})"] if set(NODE_SWAP[:2]) <= set(names) else []),
        *([of_kubelet] if NODE_SWAP[2] in names else []),
    ]
    by = "max by (instance, node, nodename)"
    each = (f"{by} (max_over_time(({text}){_DAY}))" for text in used)
    return " or ".join(f"({text} > {TOLERANCE[Resource.MEMORY]})" for text in each)


def with_pod_rows(inventory: Inventory, rows: Iterable[Row], node_names: Mapping[str, str] | None = None) -> Inventory:
    """Return the inventory with each pod's usage compared with its containers', from `rows`, the answer to `question`.

    Pods younger than an hour are not compared. `node_names`: node by address; an unnamed swapping node marks all pods.
    """
    settled_before = inventory.time_seconds - SETTLED_SECONDS
    young = {(p.namespace, p.name) for p in inventory.pods if p.start_seconds > settled_before}
    of_pod: dict[tuple[str, str], PodRow] = {}
    machines, swapping = {node.name for node in inventory.nodes}, set[str]()
    for labels, value in rows:
        if labels.get(MARK) == _SWAP:
            by_address = (node_names or {}).get(host_of(labels.get("instance", "")), "")
            names = (labels.get("node", ""), labels.get("nodename", ""), labels.get("instance", ""), by_address)
            swapping |= {name for name in names if name in machines} or {""}
            continue
        key = (labels.get("namespace", ""), labels.get("pod", ""))
        row = of_pod.get(key, PodRow(*key, inventory.time_seconds))
        mark = labels.get(MARK, "")
        if mark in (_CONTAINER, _POD):
            of_pod[key] = replace(row, idle=tuple(sorted({*row.idle, labels.get("container", "")})))
        elif mark == _UNRECLAIMABLE:
            of_pod[key] = replace(row, unreclaimable={**row.unreclaimable, labels.get("container", ""): round(value)})
        elif key not in young:
            resource = Resource.CPU if mark == _PARTS else Resource(mark)
            most = max(round(value * _UNITS[resource]), row.beyond.get(resource, 0))
            of_pod[key] = replace(row, beyond={**row.beyond, resource: most})
    for pod in inventory.pods if swapping else ():
        if "" in swapping or pod.node in swapping:
            key = (pod.namespace, pod.name)
            of_pod[key] = replace(of_pod.get(key, PodRow(*key, inventory.time_seconds)), swaps=True)
    return replace(inventory, pod_rows=tuple(of_pod[key] for key in sorted(of_pod)))


def note(inventory: Inventory) -> tuple[str, ...]:
    """Return a note on pods that use more than the sum of their containers; empty if there are none."""
    larger = [row for row in inventory.pod_rows if row.beyond]
    if not larger:
        return ()
    some = ", ".join(f"{row.namespace}/{row.name}" for row in larger[:_SHOWN])
    more = f" and {len(larger) - _SHOWN} more" if len(larger) > _SHOWN else ""
    use = agree(
        len(larger),
        "pod uses clearly more than its containers show together",
        "pods use clearly more than their containers show together",
    )
    return (f"{use} ({some}{more}): their usage is measured incompletely, so their requests are not lowered",)


_SHOWN: Final = 3
