"""EDGE: watches the cluster for the extender and sends frames of changes, in a process of its own or a thread.

    python -m cotenant.scheduler_ext.extender.watch.watcher < job.json > frames

A frame is four bytes of length (big-endian) and MessagePack. At least one is sent per second, so that the reader knows
how old the view is. The process ends when nobody reads its frames.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.topology_document import COLLECTION
from cotenant.base.controllers.clocks import believed_ahead_seconds
from cotenant.base.controllers.isolation import take_each
from cotenant.base.errors import ClusterAbsent, ClusterForbidden
from cotenant.base.kube import KubeClient, Mirror, connect
from cotenant.base.kube.reflection import Key
from cotenant.base.kubernetes.models.node import SchedulableNode
from cotenant.base.kubernetes.models.own_kinds import SwapGuardWire, UsageForecast
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.kubernetes.observed import ON_NODES
from cotenant.base.kubernetes.protocol import (
    CLAIM_DRIVER,
    OWN_GROUP,
    RESOURCE_SLICES,
    SCHEDULING_GROUP,
    SLO_GROUP,
    SWAP_GUARD,
)
from cotenant.base.logs.telemetry import configure_logging
from cotenant.base.problem import first_of
from cotenant.base.process.endings import follow_parent, job_from
from cotenant.base.process.in_hand import ObjectVersion, in_hand, keep_notes
from cotenant.base.settings.sections import KubeSettings, TelemetrySettings
from cotenant.scheduler_ext.extender.metric import NodeMetricWire, SliceWire, metric_of, node_of, outlook_of, slice_of
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.frame import ENCODER, CollectionState, Frame
from cotenant.scheduler_ext.extender.watch.table import NodeTable

_log = structlog.get_logger(__name__)
HEARTBEAT_SECONDS: Final = 1.0
SHORTEST_STALE_SECONDS: Final = 20.0
"""Shortest view age that the settings' `stale_seconds` is taken for: a smaller one would only cost more watches."""
PATHS: Final = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "nodemetrics": f"/apis/{SLO_GROUP}/nodemetrics",
    "forecasts": f"/apis/{OWN_GROUP}/usageforecasts",
    "reservations": f"/apis/{SCHEDULING_GROUP}/reservations",
    "guard": f"/apis/{OWN_GROUP}/swapguards",
    "topologies": COLLECTION,
    "devices": DEVICES,
    "slices": RESOURCE_SLICES,
}
"""API paths of the watched collections, by name."""
OUR_SLICES: Final = f"spec.driver={CLAIM_DRIVER}"  # field selector: ResourceSlices of the node agents


class WatchedKind(NamedTuple):
    """A watched collection: the type of its objects, the function that reduces each to the data used, and selectors."""

    wire: Any
    project: Callable[[Any], Any]
    selectors: Mapping[str, Any] = {}


def watched_kinds(settings: ExtenderSettings) -> dict[str, WatchedKind]:
    """Return the collections of PATHS that the settings use; hardware ones only if the extender assigns hardware."""
    load, as_json = settings.load_aware, WatchedKind(dict[str, Any], dict)
    kinds = {
        "nodes": WatchedKind(SchedulableNode, node_of),
        "pods": WatchedKind(PodWire, lambda wire: facts_of(wire, load), {"fieldSelector": ON_NODES}),
        "nodemetrics": WatchedKind(NodeMetricWire, metric_of),
        "forecasts": WatchedKind(UsageForecast, outlook_of),
        "reservations": WatchedKind(msgspec.Raw, bytes),
        "guard": WatchedKind(SwapGuardWire, lambda wire: wire.spec.nodes or {}),
    }
    kinds |= {"topologies": as_json} if settings.cpus.on else {}
    if settings.devices.on:
        kinds |= {"devices": as_json, "slices": WatchedKind(SliceWire, slice_of, {"fieldSelector": OUR_SLICES})}
    return kinds


def puts_into(table: NodeTable, now_seconds: float) -> dict[str, Callable[[Key, Any], None]]:
    """Return, by collection, the function that stores an object in the table at `now_seconds`, or removes it (None)."""
    return {
        "nodes": lambda key, node: table.put_node(key[1], node),
        "nodemetrics": lambda key, metric: table.put_metric(key[1], metric),
        "forecasts": lambda key, outlook: table.put_outlook(key[1], outlook),
        "pods": lambda key, pod: table.put_pod(key, pod, now_seconds),
        "reservations": lambda key, text: table.put_reservation(key[1], text),
        "topologies": lambda key, body: table.put_document(PATHS["topologies"], key[1], body),
        "devices": lambda key, body: table.put_document(PATHS["devices"], key[1], body),
        "slices": lambda key, node_slice: table.put_slice(key[1], node_slice),
        "guard": lambda key, guards: table.put_guards(guards or {}) if key == ("", SWAP_GUARD) else None,
    }


class WatcherConfig(msgspec.Struct):
    """The configuration that the watcher process reads from stdin."""

    kube: KubeSettings
    extender: ExtenderSettings
    telemetry: TelemetrySettings


class Watching:
    """The watched copies of all collections, and the table that they fill. Not thread-safe."""

    def __init__(
        self, client: KubeClient, settings: ExtenderSettings, wake: threading.Event, only: Collection[str] = PATHS
    ) -> None:
        """Create the mirrors; nothing is requested before `start`.

        `only` are the members of PATHS to watch; by default all that the settings use.
        """
        self._server_clock, self._is_clock_apart = client.server_clock, False
        self.table = NodeTable(settings.load_aware)
        often = (settings.coalesce_seconds / 2,)  # a pod comes with every binding: at full speed hundreds a second
        self.mirrors: dict[str, Mirror[Any]] = {
            name: Mirror(client, PATHS[name], wire, project, wake, *(often if name == "pods" else ()), **selectors)
            for name, (wire, project, selectors) in watched_kinds(settings).items()
            if name in only
        }
        for mirror in self.mirrors.values():
            mirror.renew_within(max(settings.stale_seconds, SHORTEST_STALE_SECONDS))

    def start(self) -> None:
        """Start listing and watching."""
        for mirror in self.mirrors.values():
            mirror.start()

    def stop(self) -> None:
        """End all watches; calls that hang end with the process."""
        for mirror in self.mirrors.values():
            threading.Thread(target=mirror.stop, daemon=True).start()

    def complete(self) -> bool:
        """Return whether every collection was listed once, or is known to be absent or forbidden."""
        return all(
            m.wait_synced(0) or isinstance(m.error, ClusterAbsent | ClusterForbidden) for m in self.mirrors.values()
        )

    def frame(self, with_shares: bool = True) -> Frame:
        """Return the changes since the last frame; before all collections are complete, only their state."""
        ahead, sources = self._clock_ahead_seconds(), self.sources()
        now = time.time() + ahead
        if not self.complete():
            return Frame(time.monotonic(), sources)
        if math.isinf(self.table.watched_since):
            self.table.watched_since = now
        # What the mirrors received since the last call is applied to the table, each object for itself.
        changed = {name: mirror.changed() for name, mirror in self.mirrors.items()}
        refused = [
            f"{ObjectVersion(self.mirrors[kind].path, *key, '')}: {why}"
            for kind, act in puts_into(self.table, now).items()
            if kind in changed
            for (key, _), why in take_each(changed[kind].items(), partial(_take, self.mirrors[kind], act))
        ]
        if refused:
            _log.error("objects are left out", objects=first_of(refused))
        before = self.table.left_out
        frame = self.table.take(sources, now, time.monotonic(), with_shares)
        if new := self.table.left_out.items() - before.items():
            _log.error("nodes are left out", nodes=first_of([f"{node}: {why}" for node, why in sorted(new)]))
        return replace(frame, clock_ahead_seconds=ahead)

    def _clock_ahead_seconds(self) -> float:
        """Return how far the cluster's clock is ahead of this machine's, 0 if not by much; logged once."""
        reports = (m.updated_seconds for m in self.table.metrics.values() if m.updated_seconds is not None)
        ahead = believed_ahead_seconds(time.time(), self._server_clock.now_seconds(), reports)
        if ahead and not self._is_clock_apart:
            direction = "behind" if ahead > 0 else "ahead of"
            _log.warning(
                "clock_apart",
                what=f"this machine's clock is {abs(ahead):.0f} s {direction} the API server's clock, which dates "
                "the nodes' reports; synchronise this machine by NTP",
            )
        self._is_clock_apart = bool(ahead)
        return ahead

    def sources(self) -> dict[str, CollectionState]:
        """Return age and completeness of each collection, for the serving process.

        A kind is `absent` if the API server does not know it; the rules work without it. A collection that was complete
        once is not absent: it keeps its last content and ages.
        """
        return {
            name: CollectionState(
                mirror.age_seconds(),
                mirror.error.message if mirror.error else "",
                synced := mirror.wait_synced(0),
                absent=isinstance(mirror.error, ClusterAbsent) and not synced,
            )
            for name, mirror in self.mirrors.items()
        }


def _take(mirror: Mirror[Any], act: Callable[[Key, Any], None], item: tuple[Key, Any]) -> None:
    """Apply one change, with the mirror's present object if there is one."""
    with ExitStack() as noted:
        for version in mirror.versions([item[0]]):
            noted.enter_context(in_hand(version))
        act(*item)


def watch(
    client: KubeClient, settings: ExtenderSettings, emit: Callable[[Frame], None], stopping: threading.Event
) -> None:
    """Emit frames until stopped, or until `emit` raises OSError because the reader has ended."""
    wake = threading.Event()
    watching = Watching(client, settings, wake)
    watching.start()
    try:
        while not stopping.is_set():
            began = time.monotonic()
            emit(watching.frame())
            # the first change after a quiet time is sent at once, those that follow it together
            if wake.wait(HEARTBEAT_SECONDS):
                stopping.wait(max(began + settings.coalesce_seconds - time.monotonic(), 0.0))
            wake.clear()
    except OSError:
        return
    finally:
        watching.stop()


def main() -> int:
    """Run the watcher process: WatcherConfig as one line of JSON on stdin, frames on stdout."""
    follow_parent()
    job = job_from(sys.stdin.buffer, WatcherConfig, one_line=True)
    configure_logging(job.telemetry)
    keep_notes("extender-watcher")
    out = sys.stdout.buffer

    def emit(frame: Frame) -> None:
        body = ENCODER.encode(frame)
        out.write(len(body).to_bytes(4, "big") + body)
        out.flush()

    watch(connect(job.kube), job.extender, emit, threading.Event())
    return 0


if __name__ == "__main__":
    import os

    os._exit(main())  # mirrors' threads may sit in a read for minutes
