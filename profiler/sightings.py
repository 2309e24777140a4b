"""Facts derived from usage: lifetimes of pods, their events, missing samples. Pure.

Also merges inventories: a snapshot with the stored one, and with what usage shows, so that facts outlive their pods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import (
    Container,
    ContainerRole,
    Event,
    EventKind,
    GoneNode,
    Inventory,
    Pod,
    PodPhase,
    PodRow,
    UnnamedPod,
    Workload,
)
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import unnamed_pods, with_parts_marked
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.text import agree
from cotenant.base.usage.usage import Signal, Usage, exact_amount


@dataclass(slots=True)
class MemoryLimits:
    """Changes of each container's memory limit: the limit at an hour's end, by the hour's start in Unix seconds."""

    changes: dict[PodContainerRef, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, usage: Usage[Any]) -> None:
        """Add a block of hourly memory limits in bytes; each is the last limit of its hour."""
        times = usage.grid.times()
        for ref, row in zip(usage.refs, usage.values, strict=True):
            measured_slots = np.flatnonzero(~np.isnan(row))
            for slot in measured_slots[np.flatnonzero(np.diff(row[measured_slots], prepend=np.nan))]:
                insort(self.changes.setdefault(ref, []), (int(times[slot]), exact_amount(row[slot])))

    def at_kill(self, hour_seconds: int, ref: PodContainerRef) -> int | None:
        """Return the memory limit in bytes at a kill in the hour that starts at `hour_seconds`; None if it is unknown.

        The limit is that of the hour before, because somebody may have raised it after the kill.
        """
        changes = self.changes.get(ref, [])
        newest = max(0, bisect_left(changes, (hour_seconds, 0)) - 1)
        return next((limit for start, limit in changes[newest : newest + 1] if start <= hour_seconds), None)


NODE_SUMS: Final = {
    Signal.NODE_CPU_USAGE_MEAN: Signal.CPU_USAGE_MEAN,
    Signal.NODE_MEMORY_WORKING_SET_MAX: Signal.MEMORY_WORKING_SET_MAX,
}
"""Node signal -> the container signal whose sum replaces it (for memory an upper bound: a sum of maxima)."""

_AMOUNTS: Final = {
    Signal.CPU_REQUEST: (0, Resource.CPU),
    Signal.MEMORY_REQUEST: (0, Resource.MEMORY),
    Signal.CPU_LIMIT: (1, Resource.CPU),
    Signal.MEMORY_LIMIT: (1, Resource.MEMORY),
}
SILENCE_SECONDS: Final = 1800
"""A pod that only usage shows counts as gone after this time without usage: two scrapes of 15 minutes."""
_DELETED_SECONDS: Final = 900
"""A pod that is gone has no usage after so long: rates reach back over four scrapes at most."""
_AWAY_SECONDS: Final = 7200
"""A pod of which nothing was told for two hours and more is not one that has just been deleted."""
_SHOWN: Final = 10
"""Namespaces that a note names."""
_EVENTS: Final = {Signal.OOM_KILLS: EventKind.OOM_KILL, Signal.RESTARTS: EventKind.RESTART}
SHOWING: Final = frozenset({Signal.CPU_USAGE_MEAN, *_AMOUNTS, *_EVENTS})
"""Signals whose samples show facts that an inventory lacks; of others it only matters whether there are any."""


@dataclass(slots=True)
class _SampledLife:
    """The first and the last slot with CPU usage of a container."""

    first_seconds: int
    last_seconds: int


@dataclass(slots=True)
class Sightings:
    """Facts about pods, collected from blocks of usage; its size does not grow with the number of samples."""

    signals: set[Signal] = field(default_factory=set)
    lives: dict[PodContainerRef, _SampledLife] = field(default_factory=dict)
    amounts: dict[PodContainerRef, dict[tuple[int, Resource], int]] = field(default_factory=dict)
    told_until: dict[tuple[str, str], int] = field(default_factory=dict)
    """(namespace, pod) -> end of the last hour in which the pod had a request."""
    events: list[tuple[int, EventKind, PodContainerRef]] = field(default_factory=list)
    limits: MemoryLimits = field(default_factory=MemoryLimits)

    def add(self, block: Iterable[tuple[Signal, Usage[Any]]]) -> None:
        """Add what a block of usage shows: pods' lives (from CPU usage), requests, limits, events, signals."""
        for signal, usage in block:
            if not usage.refs:
                continue
            self.signals.add(signal)
            if signal is Signal.CPU_USAGE_MEAN:
                present = ~np.isnan(usage.values)
                sampled = np.flatnonzero(present.any(axis=1))
                first, last = present.argmax(axis=1), usage.grid.size - 1 - present[:, ::-1].argmax(axis=1)
                times = usage.grid.times()
                for i in sampled:
                    begin, end = int(times[first[i]]), int(times[last[i]])
                    life = self.lives.setdefault(usage.refs[i], _SampledLife(begin, end))
                    life.first_seconds, life.last_seconds = min(begin, life.first_seconds), max(end, life.last_seconds)
            elif signal in _AMOUNTS:
                present = ~np.isnan(usage.values)
                last = usage.grid.size - 1 - present[:, ::-1].argmax(axis=1)
                for i in np.flatnonzero(present.any(axis=1)):
                    ref = usage.refs[i]
                    self.amounts.setdefault(ref, {})[_AMOUNTS[signal]] = exact_amount(usage.values[i, last[i]])
                    until = int(usage.grid.start_seconds + (last[i] + 1) * usage.grid.step_seconds)
                    key = (ref.namespace, ref.pod)
                    self.told_until[key] = max(until, self.told_until.get(key, 0))
                if signal is Signal.MEMORY_LIMIT:
                    self.limits.add(usage)
            elif signal in _EVENTS:
                kind = _EVENTS[signal]
                for i, k in zip(*np.nonzero(np.nan_to_num(usage.values)), strict=True):
                    self.events.append(
                        (int(usage.grid.start_seconds + k * usage.grid.step_seconds), kind, usage.refs[i])
                    )


def init_containers(inventory: Inventory) -> frozenset[PodContainerRef]:
    """Return the init containers of all pods, which run only at the start."""
    names = {w.ref: [c.name for c in w.containers if c.role is ContainerRole.INIT] for w in inventory.workloads}
    return frozenset(
        PodContainerRef(p.namespace, p.name, name) for p in inventory.pods for name in names.get(p.workload, ())
    )


def declared_by_lasting(signal: Signal, usage: Usage[Any], starting: frozenset[PodContainerRef]) -> Usage[Any]:
    """Return the requests or limits in `usage` without those of init containers, which end before the pod serves."""
    if signal not in _AMOUNTS or starting.isdisjoint(usage.refs):
        return usage
    rows = [i for i, ref in enumerate(usage.refs) if ref not in starting]
    return replace(usage, refs=tuple(usage.refs[i] for i in rows), values=usage.values[rows])


def merge_inventories(stored: Inventory | None, snapshot: Inventory, keep_since: int) -> Inventory:
    """Return the snapshot with the pods, workloads and events since `keep_since` that only the stored inventory has.

    A pod that ran at the last snapshot and is not in this one ended in between: its end is this snapshot's time until
    usage shows the true end.
    """
    if stored is None:
        return snapshot
    snapshot = _carry_over_owners(snapshot, stored)
    before = {(p.namespace, p.name): p for p in stored.pods if _is_recent(p, keep_since)}
    pods = {
        key: _carry_over_pod(p, before.pop(key, None), snapshot.time_seconds)
        for p in snapshot.pods
        for key in ((p.namespace, p.name),)
    }
    pods |= {key: _end_if_running(p, snapshot.time_seconds) for key, p in before.items()}
    needed = {p.workload for p in pods.values() if not p.placeholder}
    workloads = {w.ref: replace(w, replicas=0) for w in stored.workloads if w.ref in needed}
    for workload in snapshot.workloads:
        old = workloads.get(workload.ref)
        workloads[workload.ref] = replace(workload, containers=workload.containers or (old.containers if old else ()))
    events = tuple(e for e in stored.events if e.time_seconds >= keep_since)
    ordered = tuple(pods[key] for key in sorted(pods))
    return replace(
        snapshot,
        pods=ordered,
        workloads=tuple(workloads[r] for r in sorted(workloads)),
        events=events,
        created_seconds=snapshot.created_seconds or stored.created_seconds,
        unnamed=tuple(u for u in stored.unnamed if u.last_seconds >= keep_since),
        pod_rows=_pod_rows(stored, snapshot, keep_since),
        gone_nodes=_gone_nodes(stored, snapshot, ordered, keep_since),
    )


def _gone_nodes(stored: Inventory, snapshot: Inventory, pods: Iterable[Pod], keep_since: int) -> tuple[GoneNode, ...]:
    """Return earlier nodes of these pods that are gone, or smaller, since `keep_since`."""
    present = {node.name: node.capacity for node in snapshot.nodes}
    hosts = {pod.node for pod in pods}
    nodes_left = (GoneNode(node.name, node.capacity, snapshot.time_seconds) for node in stored.nodes)
    gone_nodes: dict[str, GoneNode] = {}
    for node in (*stored.gone_nodes, *nodes_left):
        now = present.get(node.name, {})
        larger = any(amount > now.get(resource, 0) for resource, amount in node.capacity.items())
        if larger and node.name in hosts and node.end_seconds >= keep_since:
            old = gone_nodes.get(node.name, node)
            most = {r: max(old.capacity.get(r, 0), node.capacity.get(r, 0)) for r in Resource}
            gone_nodes[node.name] = GoneNode(node.name, most, node.end_seconds)
    return tuple(gone_nodes[name] for name in sorted(gone_nodes))


def _pod_rows(stored: Inventory, snapshot: Inventory, keep_since: int) -> tuple[PodRow, ...]:
    """Return the pods' own rows since `keep_since`, each merged with the newer one of its pod.

    Older rows are kept because history contains usage of their time.
    """
    rows = {(r.namespace, r.name): r for r in stored.pod_rows if r.seen_seconds >= keep_since}
    for row in snapshot.pod_rows:
        old = rows.get((row.namespace, row.name), row)
        idle = tuple(sorted({*old.idle, *row.idle}))
        both = {**row.unreclaimable, **old.unreclaimable}
        highest = {name: max(amount, row.unreclaimable.get(name, 0)) for name, amount in both.items()}
        beyond, swaps = {**old.beyond, **row.beyond}, old.swaps or row.swaps
        rows[row.namespace, row.name] = replace(row, beyond=beyond, idle=idle, unreclaimable=highest, swaps=swaps)
    return tuple(rows[key] for key in sorted(rows))


def _carry_over_owners(snapshot: Inventory, stored: Inventory) -> Inventory:
    """Return the snapshot with earlier known owners of pods for which a link above them is missing now."""
    before = {(p.namespace, p.name): p.workload for p in stored.pods if p.owner_known}
    lost = [p for p in snapshot.pods if not p.owner_known]
    owner = {p.workload: before[p.namespace, p.name] for p in lost if (p.namespace, p.name) in before}
    if not owner:
        return snapshot
    pods = tuple(
        replace(p, workload=owner[p.workload], owner_known=True) if not p.owner_known and p.workload in owner else p
        for p in snapshot.pods
    )
    running = Counter(p.workload for p in pods if p.serving)
    workloads: dict[WorkloadRef, Workload] = {}
    for workload in snapshot.workloads:
        ref = owner.get(workload.ref, workload.ref)
        other = workloads.get(ref, workload)
        containers = other.containers or workload.containers
        workloads[ref] = replace(other, ref=ref, containers=containers, replicas=running[ref])
    return replace(snapshot, pods=pods, workloads=tuple(workloads[ref] for ref in sorted(workloads)))


def carried_over(stored: Inventory | None, snapshot: Inventory, keep_since: int) -> Inventory:
    """Return the snapshot, which contains no pod at all, with the facts of the stored inventory.

    A snapshot without pods means that kube-state-metrics is unavailable, not that the cluster is empty. Pods stay as
    they were; `by_usage` decides which of them still run.
    """
    if stored is None:
        return snapshot
    pods = tuple(p for p in stored.pods if _is_recent(p, keep_since))
    needed = {p.workload for p in pods}
    return replace(
        snapshot,
        nodes=snapshot.nodes or stored.nodes,
        pods=pods,
        workloads=tuple(w for w in stored.workloads if w.ref in needed),
        events=tuple(e for e in stored.events if e.time_seconds >= keep_since),
        limit_ranges=snapshot.limit_ranges or stored.limit_ranges,
        quotas=snapshot.quotas or stored.quotas,
        server_version=snapshot.server_version or stored.server_version,
        controllers=snapshot.controllers or stored.controllers,
        listed_kinds=snapshot.listed_kinds or stored.listed_kinds,
        created_seconds=snapshot.created_seconds or stored.created_seconds,
        pod_rows=_pod_rows(stored, snapshot, keep_since),
        gone_nodes=_gone_nodes(stored, snapshot, pods, keep_since),
    )


def by_usage(inventory: Inventory, sightings: Sightings) -> Inventory:
    """Return the inventory of a snapshot without pods, with the pods that have recent usage as running pods.

    Usage is recent if it is at most SILENCE_SECONDS older than the newest usage. Pods that only usage shows are added
    as bare pods. Without any usage the inventory stays unchanged.
    """
    lives = _lives_of_pods(sightings)
    if not lives:
        return inventory
    since = max(last for _, last in lives.values()) - SILENCE_SECONDS
    pod_keys = {(p.namespace, p.name) for p in inventory.pods}
    bare = [
        Pod(namespace, name, WorkloadRef(namespace, "Pod", name), "", first, owner_known=False)
        for (namespace, name), (first, _) in sorted(lives.items())
        if (namespace, name) not in pod_keys and namespace != PLACEHOLDER_NAMESPACE
    ]
    silent = {key for key in pod_keys if key not in lives} | {key for key, (_, last) in lives.items() if last < since}
    pods = tuple(
        replace(p, end_seconds=inventory.time_seconds) if p.running and (p.namespace, p.name) in silent else p
        for p in (*inventory.pods, *bare)
    )
    running = Counter(p.workload for p in pods if p.running and p.phase is not PodPhase.PENDING)
    workloads = (*inventory.workloads, *(Workload(p.workload, 0, (), described=False) for p in bare))
    return replace(inventory, pods=pods, workloads=tuple(replace(w, replicas=running[w.ref]) for w in workloads))


def _is_recent(pod: Pod, keep_since: int) -> bool:
    return pod.end_seconds is None or pod.end_seconds >= keep_since


def _end_if_running(pod: Pod, seconds: int) -> Pod:
    """Return the pod, ended at this time if it ran, because the snapshot of that time lacks it."""
    return replace(pod, end_seconds=seconds) if pod.running and pod.listed else pod


def _carry_over_pod(pod: Pod, old: Pod | None, seconds: int) -> Pod:
    """Return a pod of the snapshot of that time, with missing facts taken from the stored one."""
    if old is None:
        return pod
    if pod.running:  # where nothing tells when pods were created, what usage showed at first holds
        return pod if pod.start_seconds else replace(pod, start_seconds=old.start_seconds)
    old = _end_if_running(old, seconds)
    known_end = old.end_seconds if old.end_seconds is not None else pod.end_seconds
    return replace(pod, start_seconds=pod.start_seconds or old.start_seconds, end_seconds=known_end,
                   requests=pod.requests or old.requests, node=pod.node or old.node)  # fmt: skip


def with_history(inventory: Inventory, sightings: Sightings, *, amounts_known: bool = False) -> Inventory:
    """Return the inventory with what usage shows: lives of gone pods, templates of stopped workloads, events.

    If `amounts_known` is true, requests were read from the pods' objects: a missing amount means that none is set.
    """
    lives = _lives_of_pods(sightings)
    using = tuple(_still_using(inventory, sightings, lives))
    requested = _last_pod_requests(sightings, {(p.namespace, p.name) for p in using if _asks_for_unknown(p)})
    pods = tuple(
        _complete_from_usage(pod, lives.get((pod.namespace, pod.name)), requested.get((pod.namespace, pod.name), {}))
        for pod in using
    )
    # Containers of workloads without a template, from the last amounts of their newest pod.
    bare = {w.ref for w in inventory.workloads if not w.containers}
    newest: dict[Any, Pod] = {}
    for pod in pods:
        if pod.workload in bare and pod.start_seconds >= newest.get(pod.workload, pod).start_seconds:
            newest[pod.workload] = pod
    by_pod: dict[tuple[str, str], list[str]] = {}
    for ref in sorted(sightings.lives.keys() | sightings.amounts.keys()):
        by_pod.setdefault((ref.namespace, ref.pod), []).append(ref.container)
    templates: dict[WorkloadRef, tuple[Container, ...]] = {}
    for owner, pod in newest.items():
        for name in by_pod.get((pod.namespace, pod.name), []):
            amounts_told = sightings.amounts.get(PodContainerRef(pod.namespace, pod.name, name), {})
            requests, limits = ({r: v for (s, r), v in amounts_told.items() if s == side} for side in (0, 1))
            templates[owner] = (*templates.get(owner, ()), Container(name, requests, limits))
    silent_about = {} if amounts_known else _unknown_amount_workloads(inventory, pods, sightings)
    # Replicas of the workloads with pods of unknown phase: those count as far as they used something of late
    since = max((last for _, last in lives.values()), default=0) - SILENCE_SECONDS
    unclear = {p.workload for p in pods if p.running and p.phase is PodPhase.UNKNOWN}

    def serves(pod: Pod) -> bool:
        life = lives.get((pod.namespace, pod.name))
        used = life is not None and life[1] >= since
        return pod.serving or (pod.running and pod.phase is PodPhase.UNKNOWN and used and not pod.placeholder)

    counts = Counter(p.workload for p in pods if p.workload in unclear and serves(p))
    serving = {ref: counts[ref] for ref in unclear}
    workloads = tuple(
        replace(
            w,
            containers=w.containers or templates.get(w.ref, ()),
            replicas=serving.get(w.ref, w.replicas),
            gaps=tuple(dict.fromkeys((*w.gaps, *silent_about.get(w.ref, ())))),
        )
        for w in inventory.workloads
    )
    events = {(e.time_seconds, e.kind, e.subject): e for e in inventory.events}
    for moment, kind, ref in sightings.events:
        limit = sightings.limits.at_kill(moment, ref) if kind is EventKind.OOM_KILL else None
        events[moment, kind, ref] = Event(moment, kind, ref, limit)
    ordered = tuple(events[key] for key in sorted(events))
    # Pods that use something and that the inventory lacks, with those noted before
    named_pods = {(p.namespace, p.name) for p in inventory.pods}
    noted = {(u.namespace, u.name): (u.first_seconds, u.last_seconds) for u in inventory.unnamed}
    for key, (first, last) in lives.items():
        if key not in named_pods:
            before = noted.get(key, (first, last))
            noted[key] = (min(first, before[0]), max(last, before[1]))
    strangers = sorted(key for key in noted if key not in named_pods and key[0] != PLACEHOLDER_NAMESPACE)
    unnamed = tuple(UnnamedPod(*key, *noted[key]) for key in strangers)
    return with_parts_marked(replace(inventory, pods=pods, workloads=workloads, events=ordered, unnamed=unnamed))


def _still_using(
    inventory: Inventory, sightings: Sightings, lives: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterable[Pod]:
    """Yield the pods; those that are no longer listed but still have usage keep running until they have none.

    A deleted pod has no usage soon after. A pod whose shard of kube-state-metrics is unavailable does, beyond the end
    that an earlier scan gave it, or hours after its requests were last exported.
    """
    newest = max((last for _, last in lives.values()), default=0)
    newest_seconds = max(sightings.told_until.values(), default=0)
    for pod in inventory.pods:
        key = (pod.namespace, pod.name)
        last = lives.get(key, (0, 0))[1]
        if pod.running and not pod.listed and lives and last < newest - SILENCE_SECONDS:
            yield replace(pod, end_seconds=last or inventory.time_seconds)
        elif pod.running or pod.phase.ended or last < newest - _DELETED_SECONDS:
            yield pod
        elif (
            last > (pod.end_seconds or last) + _DELETED_SECONDS
            or newest_seconds - sightings.told_until.get(key, newest_seconds) >= _AWAY_SECONDS
        ):
            yield replace(pod, end_seconds=None, phase=PodPhase.UNKNOWN, listed=False)
        else:
            yield pod


def unnamed_notes(inventory: Inventory) -> tuple[str, ...]:
    """Return notes on pods with usage that kube-state-metrics never reported, or no longer does; empty without any."""
    strangers = unnamed_pods(inventory)
    unlisted = sum(pod.running and not pod.listed for pod in inventory.pods)
    listed_no_more = agree(
        unlisted,
        "pod has usage but kube-state-metrics no longer reports it: it counts as running",
        "pods have usage but kube-state-metrics no longer reports them: they count as running",
    )
    notes = (listed_no_more,) if unlisted else ()
    if not strangers:
        return notes
    counts = Counter(pod.namespace for pod in strangers).most_common()
    where = ", ".join(f"{namespace} {count}" for namespace, count in counts[:_SHOWN])
    more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
    of = agree(
        len(strangers),
        "pod had usage but kube-state-metrics does not report it",
        "pods had usage but kube-state-metrics does not report them",
    )
    return (
        *notes,
        f"{of} (by namespace: "
        f"{where}{more}): a shard of kube-state-metrics is not scraped or excludes namespaces, or relabelling "
        "changes its labels; nothing is proposed for workloads that these pods may belong to",
    )


def _unknown_amount_workloads(
    inventory: Inventory, pods: Sequence[Pod], sightings: Sightings
) -> dict[WorkloadRef, tuple[Reason, ...]]:
    """Return workloads with a pod that lacks an amount which it or another pod of its role had in the window.

    It is more likely that a series is not scraped than that somebody removed all requests.
    """
    templates = {w.ref: {c.name: (c.requests, c.limits) for c in w.containers} for w in inventory.workloads}
    owner = {(p.namespace, p.name): p.workload for p in pods if p.running}
    reasons: dict[WorkloadRef, tuple[Reason, ...]] = {}
    for ref, amounts in sightings.amounts.items():
        workload = owner.get((ref.namespace, ref.pod))
        own = templates.get(workload, {}).get(ref.container) if workload else None
        if workload and own and any(amount and r not in own[side] for (side, r), amount in amounts.items()):
            reasons[workload] = (Reason.AMOUNTS_UNKNOWN,)
    sums: dict[tuple[WorkloadRef, str], set[Resource]] = {}
    for pod in pods:
        sums.setdefault((pod.workload, pod.role), set()).update(r for r, amount in pod.requests.items() if amount)
    for pod in pods:
        if pod.running and sums[pod.workload, pod.role] - pod.requests.keys():
            reasons[pod.workload] = (Reason.AMOUNTS_UNKNOWN,)
    return reasons


def _asks_for_unknown(pod: Pod) -> bool:
    """Return whether no series shows a pod's requests now; its last requests may be known."""
    return not (pod.running and pod.listed) and not pod.requests


def _last_pod_requests(sightings: Sightings, pods: Set[tuple[str, str]]) -> dict[tuple[str, str], dict[Resource, int]]:
    """Return by (namespace, pod) the sum of what the containers of these pods requested last."""
    sums: dict[tuple[str, str], dict[Resource, int]] = {}
    for ref, amounts in sightings.amounts.items():
        if (ref.namespace, ref.pod) not in pods:
            continue
        own = sums.setdefault((ref.namespace, ref.pod), {})
        for (side, resource), amount in amounts.items():
            if side == 0:
                own[resource] = own.get(resource, 0) + amount
    return sums


def _lives_of_pods(sightings: Sightings) -> dict[tuple[str, str], tuple[int, int]]:
    """Return by (namespace, pod) the first and the last slot with usage of any container."""
    lives: dict[tuple[str, str], tuple[int, int]] = {}
    for ref, life in sightings.lives.items():
        key = (ref.namespace, ref.pod)
        first, last = lives.get(key, (life.first_seconds, life.last_seconds))
        lives[key] = (min(first, life.first_seconds), max(last, life.last_seconds))
    return lives


def _complete_from_usage(pod: Pod, life: tuple[int, int] | None, requested: Mapping[Resource, int]) -> Pod:
    """Return a pod that is not listed now with life and requests from usage; other pods unchanged."""
    if _asks_for_unknown(pod) and requested:
        pod = replace(pod, requests=dict(requested))
    if life is None:
        return pod
    start = pod.start_seconds or life[0]
    if pod.end_seconds is None:
        return pod if pod.start_seconds else replace(pod, start_seconds=start)
    step = Signal.CPU_USAGE_MEAN.spec.step_seconds
    return replace(pod, start_seconds=start, end_seconds=min(pod.end_seconds, life[1] + step))
