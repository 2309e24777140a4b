"""EDGE: the watcher's mirror of the cluster, and the frames that send its changes to the serving process.

`put_*` store objects as they arrive and mark their node as changed; `take` returns the rows of marked nodes and clears
the marks. A changed set of nodes gives a complete frame.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from cotenant.base.allocation.allocator import NodeHardware
from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.topology_document import COLLECTION
from cotenant.base.controllers.isolation import Watched, compute_without_failing
from cotenant.base.process.in_hand import ObjectVersion
from cotenant.scheduler_ext.extender.columns import NodeState, rows_of, share_of
from cotenant.scheduler_ext.extender.cpus import free_cpu_capacity
from cotenant.scheduler_ext.extender.devices import free_devices
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, NodeSlice, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.extender.snapshot import slot_of
from cotenant.scheduler_ext.extender.turnover import Departure, Watch, predates_departure_watch, relevant_departures
from cotenant.scheduler_ext.extender.watch.frame import (
    SLOT_SECONDS,
    SLOTS,
    CollectionState,
    Frame,
    FreeCpus,
    FreeDevices,
    PlaceholderOf,
)

Key = tuple[str, str]
ValueT = TypeVar("ValueT")
FreeT = TypeVar("FreeT", FreeCpus, FreeDevices)


@dataclass(slots=True)
class NodeTable:
    """Nodes with their pods, metrics and forecasts; all departures since `watched_since` (Unix time) are known."""

    settings: LoadAwareSettings
    watched_since: float = -math.inf
    nodes: dict[str, ExtenderNode] = field(default_factory=dict)
    metrics: dict[str, LoadMetric] = field(default_factory=dict)
    outlooks: dict[str, Outlook] = field(default_factory=dict)
    pods: dict[Key, NewPod] = field(default_factory=dict)
    guards: dict[str, list[str]] = field(default_factory=dict)
    reservations: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    """Objects that describe nodes' hardware, as JSON, by collection path and name; none for hardware that is off."""
    slices: dict[str, NodeSlice] = field(default_factory=dict)
    claimed: dict[str, dict[str, frozenset[str]]] = field(default_factory=lambda: defaultdict(dict))
    """Devices in each node's ResourceSlices, by node and slice."""
    departures: dict[str, list[Departure]] = field(default_factory=dict)
    """Pods that left each node, while its forecast may still include them."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Nodes for which no row can be computed, and why; each is tried again once its data changes."""
    _on: dict[str, dict[Key, NewPod]] = field(default_factory=lambda: defaultdict(dict))
    _changed: set[str] = field(default_factory=set)
    _forecast: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)
    _other_nodes: bool = True
    _other_guards: bool = True
    _other_placeholders: bool = True
    _documents: set[Key] = field(default_factory=set)  # collection and node of documents that changed
    _hardware: set[str] = field(default_factory=set)
    """Nodes whose pods, labels or slices changed, so that their free hardware has to be computed again."""
    _reservations: set[str] = field(default_factory=set)
    _fresh: bool = True
    _slot: int = -1
    _index: dict[str, int] = field(default_factory=dict)  # row of each node, as the last whole frame had it

    def put_node(self, name: str, node: ExtenderNode | None) -> None:
        """Store a new or changed node, or remove it (None); if the set of nodes changes, the next frame is complete."""
        before = self.nodes.get(name)
        self._other_nodes |= (node is None) == (before is not None)
        if node is None:
            self.nodes.pop(name, None)
            self.departures.pop(name, None)
        else:
            self.nodes[name] = node
        self._changed.add(name)
        if (
            node is None
            or before is None
            or (node.labels, node.cpu_annotations) != (before.labels, before.cpu_annotations)
        ):
            self._hardware.add(name)

    def put_metric(self, name: str, metric: LoadMetric | None) -> None:
        """Store a new or changed NodeMetric, or remove it (None)."""
        _put(self.metrics, name, metric)
        self._changed.add(name)

    def put_outlook(self, name: str, outlook: Outlook | None) -> None:
        """Store a new or changed UsageForecast, or remove it (None)."""
        _put(self.outlooks, name, outlook)
        self._changed.add(name)
        self._forecast.add(name)

    def put_pod(self, key: Key, pod: NewPod | None, now_seconds: float) -> None:
        """Store a placed or changed pod, or remove it (None); without a time of placement, `now_seconds` counts."""
        before = self.pods.get(key)
        if pod is not None and pod.assigned_seconds is None:
            assigned_seconds = before.assigned_seconds if before is not None and before.node == pod.node else None
            pod = replace(pod, assigned_seconds=now_seconds if assigned_seconds is None else assigned_seconds)
        if before is not None:
            if pod == before:  # most of what a kubelet writes is about things that no rule asks
                return
            del self.pods[key], self._on[before.node][key]
            self._touch(before.node)
            if pod is None or pod.identity.uid != before.identity.uid:
                self._gone.add(before.identity.uid)
            stays = pod is not None and not pod.ended and pod.node == before.node
            is_same = pod is not None and pod.identity.uid == before.identity.uid
            if not (stays and is_same) and (departure := Departure.of(before, now_seconds)) is not None:
                remembered, outlook = self.departures.get(before.node, ()), self.outlooks.get(before.node)
                relevant = relevant_departures(remembered, outlook, now_seconds)
                self.departures[before.node] = [*relevant, departure]
        if pod is not None and pod.node and not pod.ended:
            self.pods[key] = self._on[pod.node][key] = pod
            self._touch(pod.node)
        placeholders = (before and before.placeholder_of, pod and pod.placeholder_of)
        self._other_placeholders |= any(placeholder is not None for placeholder in placeholders)

    def _touch(self, node: str) -> None:
        self._changed.add(node)
        self._hardware.add(node)

    def put_guards(self, guards: Mapping[str, Iterable[str]]) -> None:
        """Replace `guards`: for each node that hands over reserved capacity now, the pods that may be bound to it."""
        self.guards = {node: list(pods) for node, pods in guards.items()}
        self._other_guards = True

    def put_reservation(self, name: str, text: bytes | None) -> None:
        """Store a new or changed Reservation as JSON, or remove it (None)."""
        _put(self.reservations, name, text)
        self._reservations.add(name)

    def put_document(self, collection: str, name: str, body: Mapping[str, Any] | None) -> None:
        """Store a node's new or changed object of a hardware collection (such as Device), or remove it (None)."""
        _put(self.documents[collection], name, body)
        self._documents.add((collection, name))

    def put_slice(self, name: str, node_slice: NodeSlice | None) -> None:
        """Store a node's new or changed ResourceSlice, or remove it (None)."""
        if (before := self.slices.get(name)) is not None:
            self.claimed[before.node].pop(name, None)
            self._hardware.add(before.node)
        if node_slice is not None:
            self.claimed[node_slice.node][name] = node_slice.devices
            self._hardware.add(node_slice.node)
        _put(self.slices, name, node_slice)

    def state(self, name: str, now_seconds: float) -> NodeState:
        """Return the inputs of a node's row at a Unix time; drop departures that no longer count."""
        pods = tuple(self._on[name].values()) if name in self._on else ()
        outlook = self.outlooks.get(name)
        departures = relevant_departures(self.departures.pop(name, ()), outlook, now_seconds)
        if departures:
            self.departures[name] = departures
        watch = Watch(tuple(departures), self.watched_since, now_seconds)
        return NodeState(self.nodes[name], self.metrics.get(name), pods, outlook, watch)

    def take(
        self,
        sources: Mapping[str, CollectionState],
        now_seconds: float,
        monotonic_seconds: float,
        with_shares: bool = True,
    ) -> Frame:
        """Return the changes since the last call; `left_out` then names the nodes for which no row could be computed.

        If `with_shares`, the frame has the contribution of each pod of a changed node, which only preemption uses.
        """
        slot, before = slot_of(now_seconds), self.left_out
        if slot != self._slot:
            # Nodes whose numbers rest on what their forecast says for now.
            doubtful = {
                name
                for name, outlook in self.outlooks.items()
                if name in self._on
                and any(predates_departure_watch(p, outlook, self.watched_since) for p in self._on[name].values())
            }
            self._changed |= doubtful
            # names of nodes that came and went are not kept
            self.departures = {name: self.departures[name] for name in self.departures.keys() & self.nodes.keys()}
            for by_node in (self._on, self.claimed):
                for name in [name for name, entries in by_node.items() if not entries]:
                    del by_node[name]
        touched = self._changed | self._hardware | {name for _, name in self._documents}
        still_out = {name: why for name, why in before.items() if name not in touched}

        def frame(failing: Collection[str]) -> tuple[Frame, dict[str, int]]:
            gone_nodes = still_out.keys() | set(failing)
            if full := self._other_nodes or gone_nodes != before.keys():
                index = {name: row for row, name in enumerate(name for name in self.nodes if name not in gone_nodes)}
            else:
                index = self._index
            return self._frame(index, full, sources, now_seconds, monotonic_seconds, with_shares), index

        for name in before.keys() & touched:
            self._touch(name)  # what was told of it as of a node that is gone
        watched = Watched("frame", self._version_of)
        (table, self._index), failures = compute_without_failing(list(self.nodes), frame, (MemoryError,), watched)
        self.left_out = still_out | failures
        for marks in (self._changed, self._forecast, self._gone, self._reservations, self._documents, self._hardware):
            marks.clear()
        self._other_nodes = self._other_guards = self._other_placeholders = self._fresh = False
        self._slot = slot
        return table

    def _version_of(self, name: str) -> ObjectVersion:
        """Return the version of a node with its pods, for skipping one that cannot be computed."""
        described = f"{self.nodes[name]} {sorted(self._on.get(name, ()))}".encode(errors="surrogatepass")
        return ObjectVersion("rows", "", name, str(zlib.crc32(described)))

    def _frame(
        self,
        index: Mapping[str, int],
        full: bool,
        sources: Mapping[str, CollectionState],
        now_seconds: float,
        monotonic_seconds: float,
        with_shares: bool,
    ) -> Frame:
        """Return the changes of the nodes with these rows, or with `full` all their data."""
        slot = slot_of(now_seconds)
        rows = list(index) if full else sorted(self._changed & index.keys(), key=index.__getitem__)
        again = slot != self._slot
        ahead = [n for n in index if n in self.outlooks] if full or again else sorted(self._forecast & index.keys())
        empty = np.full((2, SLOTS), np.nan)
        peaks = [self.outlooks[n].slots(slot, SLOTS, SLOT_SECONDS) if n in self.outlooks else empty for n in ahead]
        placeholders = {
            pod.identity.uid: PlaceholderOf(pod.node, pod.placeholder_of)
            for pod in (self.pods.values() if self._other_placeholders else ())
            if pod.placeholder_of is not None
        }
        values = rows_of((self.state(n, now_seconds) for n in rows), self.settings).tobytes()
        shares = {
            pod.identity.uid: share_of(pod, self.metrics.get(name))
            for name in (self._changed & index.keys() & self._on.keys() if with_shares else ())
            for pod in self._on[name].values()
        }
        # pods on nodes that are not there (any more): nobody can displace them
        without_node = (self._changed & self._on.keys()) - index.keys()
        orphaned = {pod.identity.uid for name in without_node for pod in self._on[name].values()}
        return Frame(
            sent_seconds=monotonic_seconds,
            sources=dict(sources),
            fresh=self._fresh,
            names=rows if full else None,
            rows=_numbers(rows, index),
            values=values,
            ahead_rows=_numbers(ahead, index),
            ahead=np.array(peaks).tobytes(),
            first_slot=slot,
            guards=self.guards if self._other_guards else None,
            placeholders=placeholders if self._other_placeholders else None,
            reservations={name: self.reservations.get(name) for name in self._reservations} or None,
            rooms=self._changed_capacities(COLLECTION, free_cpu_capacity, index) or None,
            device_rooms=self._changed_capacities(DEVICES, free_devices, index) or None,
            shares=shares if with_shares else None,
            gone=sorted(self._gone | orphaned),
        )

    def _changed_capacities(
        self,
        collection: str,
        count_free: Callable[[NodeHardware, Iterable[NewPod]], FreeT | None],
        index: Collection[str],
    ) -> dict[str, FreeT | None]:
        """Return free capacity by node if document, pods or labels changed; None: gone, left out or no document."""
        bodies = self.documents[collection]
        rooms: dict[str, FreeT | None] = {}
        for name in {n for path, n in self._documents if path == collection} | (self._hardware & bodies.keys()):
            node, body = self.nodes.get(name), bodies.get(name)
            if node is None or body is None or name not in index:
                rooms[name] = None
                continue
            claimed = frozenset[str]().union(*self.claimed.get(name, {}).values())
            hardware = NodeHardware(name, node.labels, node.cpu_annotations, {collection: body}, claimed)
            rooms[name] = count_free(hardware, self._on[name].values() if name in self._on else ())
        return rooms


def _numbers(names: list[str], index: Mapping[str, int]) -> bytes:
    return np.fromiter((index[n] for n in names), np.int32, len(names)).tobytes()


def _put(mapping: dict[str, ValueT], key: str, value: ValueT | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
