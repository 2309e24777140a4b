"""EDGE: the recorder's loop: read every kubelet once per round and store complete slots, while the Lease is held.

    kubelets, metrics API -> slots --(closed)--> store          pods (watched) -> restarts, amounts, inventory -> store

Slots that could not be stored are kept for an hour and stored later, so that a full disk or an unavailable bucket costs
no data within that time. A process that is killed loses what it read of the open slot.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from cotenant.base.cluster import Inventory
from cotenant.base.controllers.isolation import compute_without_failing, take_each
from cotenant.base.controllers.sender import Leadership
from cotenant.base.errors import CotenantError, NotLeader, SourceProtocol
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.kube import KubeClient
from cotenant.base.kube.reflection import Key
from cotenant.base.process.clock import Clock
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.store.store import Store
from cotenant.base.text import agree, counted
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS
from cotenant.profiler.recorder import metrics_api, writing
from cotenant.profiler.recorder.exposition import container_ref, parse_resource_metrics, parse_throttled_time
from cotenant.profiler.recorder.gaps import GAPS_KEPT, RecordingGap, count_missing, gap_before, gaps_between, join_gaps
from cotenant.profiler.recorder.kubelets import SPREAD, THROTTLING, KubeletRules, Kubelets
from cotenant.profiler.recorder.pod_records import RecordedPod, declared_amounts
from cotenant.profiler.recorder.restarts import RestartLog
from cotenant.profiler.recorder.slots import AHEAD_SECONDS, ClosedSlot, UsageSlots
from cotenant.profiler.recorder.status import (
    STATUS_DOCUMENT,
    TROUBLES_KEPT,
    NodeSource,
    PresentUse,
    RecorderStatus,
    count_sources,
)
from cotenant.profiler.recorder.watched import ClusterWatch
from cotenant.profiler.settings import ProfilerSettings

LEASE: Final = "cotenant-recorder"
BRIDGED_INTERVALS: Final = 2.5
"""Most intervals between two readings without a gap between them: one reading may fail."""
PENDING_SLOTS: Final = 12
"""Most closed slots that wait while the store cannot be written."""
GRACE_SECONDS: Final = 30.0
"""Time, beyond an interval, from a slot's end until it is closed: kubelets report samples that are some seconds old."""
POLL_SECONDS: Final = 0.5
FIRST_ROUNDS: Final = 2
"""Number of first rounds, which follow each other soon, because a rate needs two readings of a counter."""
FIRST_SHARE: Final = 0.25
"""Share of the interval between two of these first rounds."""
FIRST_SECONDS: Final = 2.0 * DAY_SECONDS
log = structlog.get_logger(__name__)


class RecordingRight(Leadership, Protocol):
    """The right to record usage, which only the holder of a Lease has."""

    error: CotenantError | None
    """Why it is unknown who holds the right, or None."""
    transitions: int
    """Number of earlier holders: unchanged as long as nobody else held the right."""


@dataclass(slots=True)
class _Term:
    """The data read and counted since this process holds the Lease; another one may have written before."""

    begun: float
    containers: UsageSlots[PodContainerRef]
    nodes: UsageSlots[NodeRef]
    rounds: int = 0
    """Rounds that were read."""
    error: CotenantError | None = None
    """Why the store is behind, or None."""
    pending: tuple[list[ClosedSlot[PodContainerRef]], list[ClosedSlot[NodeRef]]] = field(
        default_factory=lambda: ([], [])
    )
    sources: dict[str, NodeSource] = field(default_factory=dict)
    answered: dict[str, NodeSource] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    restarts: RestartLog | None = None
    status: RecorderStatus | None = None
    kept_until: int = 0
    gaps: list[RecordingGap] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    transitions: int | None = None
    hourly: writing.HourlyAmounts = field(default_factory=writing.HourlyAmounts)
    samples: int = 0
    lost_slots: int = 0
    told_hour: int = -1


class Recorder:
    """A recorder process; it reads and writes only while it holds the Lease."""

    def __init__(
        self,
        client: KubeClient,
        settings: SettingSections,
        store: Store,
        leadership: RecordingRight,
        clock: Clock,
        rules: KubeletRules | None = None,
    ) -> None:
        """Create the recorder; nothing is requested before `run`. Raise SettingsError for unreadable certificates."""
        self._client, self._store, self._leadership, self._clock = client.sibling(), store, leadership, clock
        rules = rules or KubeletRules()
        self._interval = rules.interval_seconds
        self._round_seconds = rules.round_seconds or self._interval
        self._profiler = settings.section(ProfilerSettings)
        self.watch = ClusterWatch(client)
        """The pods and nodes."""
        self._kubelets = Kubelets(client.access, rules, self._round_seconds, clock.now_seconds)
        self._throttling = Kubelets(client.access, rules, self._round_seconds, clock.now_seconds, THROTTLING)
        self._retry_seconds = settings.section(ManagerSettings).retry_seconds
        self._begin()

    def _begin(self) -> None:
        """Reset all knowledge, at the start and after another process may have written."""
        self.term = _Term(self._clock.now_seconds(), *self._new_slots())

    def _new_slots(self) -> tuple[UsageSlots[PodContainerRef], UsageSlots[NodeRef]]:
        longest = BRIDGED_INTERVALS * self._interval
        return (
            UsageSlots(lambda _, labels: container_ref(labels), longest),
            UsageSlots(lambda node, _: NodeRef(node), longest),
        )

    def wrong(self) -> str:
        """Return the problem that keeps this recorder from recording; "" if none is known or another one records."""
        if not self._leadership.is_leading:
            return ""
        if not self.watch.is_synced:
            return str(self.watch.error or "pods and nodes are not completely listed yet")
        if self.term.error is not None:
            return f"usage is not stored: {self.term.error.message}"
        known_sources = [source for source in self.term.sources.values() if source is not NodeSource.NONE]
        return "" if known_sources or not self.term.rounds else f"no node was read: {self._first_trouble()}"

    def _first_trouble(self) -> str:
        """Return why kubelets are not read, with the first node as an example."""
        first = next(iter(sorted(self._kubelets.errors.items())), None)
        return f"{first[1].message} {first[1].fix}".strip() if first else "no node has published its kubelet's address"

    # ---- the loop

    def run(self, stopping: threading.Event) -> None:
        """Record usage until a stop is requested; then store the slots that are not complete yet."""
        self.watch.start()
        try:
            asyncio.run(self._loop(stopping))
            if self._leadership.is_leading and self.term.rounds:
                self.store_closed(float("inf"))
        finally:
            self.watch.stop()
            self._client.close()

    async def _loop(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            begun_seconds = time.monotonic()
            if not self._may_read():
                if self.term.transitions is not None:
                    self._begin()
                    self.watch.keep_versions(False)
                await _pause(stopping, self._retry_seconds)
                continue
            if self.term.transitions is None:  # begin once pods and nodes are known
                if not await asyncio.to_thread(self.watch.wait_synced, self._retry_seconds):
                    why = str(self.watch.error or "pods and nodes are not completely listed yet")
                    log.info("the cluster's pods and nodes are not known yet", why=why)
                    continue
                self.watch.keep_versions(True)
                self.term.begun, self.term.transitions = self._clock.now_seconds(), self._leadership.transitions
            self._heed_clock()
            share = FIRST_SHARE if self.term.rounds < FIRST_ROUNDS else 1.0
            await self.read_round(spread=SPREAD * share, stopping=stopping)
            # Slots that end by then get no more samples; a clock that jumped ahead closes none.
            if self.store_closed(self._present_seconds() - self._interval - GRACE_SECONDS):
                self._publish()
            await _pause(stopping, self._round_seconds * share - (time.monotonic() - begun_seconds))

    def _may_read(self) -> bool:
        """Return whether this process leads, or was the last known leader: then slots are kept until it leads again.

        While the API server is unavailable nobody else can have taken the Lease, and kubelets answer without it for a
        while.
        """
        right = self._leadership
        if right.is_leading:
            return self.term.transitions in (None, right.transitions)
        return self.term.transitions is not None and (right.error is not None or right.is_leading)

    def _require_right(self) -> None:
        """Raise NotLeader unless this process holds the Lease and nobody else held it since the term began.

        A process that was suspended during a round gets the Lease again before the round is over; meanwhile another one
        may have stored and counted what this one would overwrite with old data.
        """
        self._leadership.require()
        if self.term.transitions not in (None, self._leadership.transitions):
            raise NotLeader(f"another process held the Lease {LEASE} in this round; the round's usage was not stored")

    def _heed_clock(self) -> None:
        """Begin new slots if the clock was set back, because the open ones would then be in the future."""
        now = self._clock.now_seconds()
        newest = max(self.term.containers.newest_seconds, self.term.nodes.newest_seconds)
        if now >= newest - AHEAD_SECONDS:
            return
        log.warning("the clock was set back; readings of unfinished slots are dropped", seconds=round(newest - now))
        self.term.containers, self.term.nodes = self._new_slots()
        containers, nodes = self.term.pending
        containers[:] = [slot for slot in containers if slot.end_seconds <= now]
        nodes[:] = [slot for slot in nodes if slot.end_seconds <= now]
        self.term.begun = now
        why = f"the clock was set back by {newest - now:.0f} s"
        self.term.gaps.append(RecordingGap(now // FIVE_MINUTES_SECONDS * FIVE_MINUTES_SECONDS, now, why))

    async def read_round(self, *, spread: float = SPREAD, stopping: threading.Event | None = None) -> None:
        """Query the usage of each node once; if a kubelet fails, read its node from the metrics API if that is served.

        Throttled time is a separate page, which is read if a container on the node has a CPU limit.
        """
        addresses = self.watch.kubelets()
        present = {address.node for address in addresses}
        self.term.answered = dict.fromkeys(present, NodeSource.NONE)
        may_throttle = self.watch.nodes_with_quotas() - self._kubelets.errors.keys()
        stopped = stopping.is_set if stopping else None
        throttling = [address for address in addresses if address.node in may_throttle]
        await asyncio.gather(
            self._kubelets.read_round(addresses, self._take, spread=spread, stopped=stopped),
            self._throttling.read_round(throttling, self._take_throttled, spread=spread, stopped=stopped),
        )
        failing = frozenset(self._kubelets.errors)
        if failing:
            await asyncio.to_thread(self._read_metrics_api, failing)
        if failing - self.term.failing:
            log.warning("kubelets are not read", nodes=len(failing), example=self._first_trouble())
        self.term.failing = failing
        if stopping is None or not stopping.is_set():  # a round that was cut short says nothing of who was not asked
            self.term.sources = self.term.answered
        self.term.rounds += 1

    def _take(self, node: str, text: bytes, received_seconds: float) -> None:
        answer = parse_resource_metrics(text)
        columns = (answer.container_cpu, answer.container_memory, answer.container_starts)
        self.term.containers.add(node, *columns, received_seconds=received_seconds)
        self.term.nodes.add(node, answer.node_cpu, answer.node_memory, received_seconds=received_seconds)
        self.term.samples += answer.samples
        self.term.answered[node] = NodeSource.KUBELET

    def _take_throttled(self, node: str, text: bytes, received_seconds: float) -> None:
        """Add a kubelet's throttled time; raise SourceProtocol if it reports none, which does not mean zero."""
        throttled = parse_throttled_time(text)
        if not throttled.labels:
            raise SourceProtocol(
                f"the kubelet of node {node} reports no throttled time of containers with a limit.",
                fix="Check that the kubelet's flag --containerd names the runtime's socket, which cAdvisor reads.",
            )
        self.term.containers.add_throttled(node, throttled, received_seconds=received_seconds)
        self.term.samples += len(throttled.labels)

    def _read_metrics_api(self, nodes: Collection[str]) -> None:
        """Add the metrics API's usage of these nodes; without that API they are gaps."""
        node_of = {pod.key: pod.node for pod in self.watch.pods()}
        try:
            containers, own = metrics_api.read(self._client, nodes, node_of)
        except CotenantError as error:
            log.info("the metrics API is not read", why=error.message)
            return
        received = self._clock.now_seconds()
        for node, means in containers.items():
            self.term.containers.add_means(node, means, received_seconds=received)
            self.term.answered[node] = NodeSource.METRICS_API
        for node, means in own.items():
            self.term.nodes.add_means(node, means, received_seconds=received)
            self.term.answered[node] = NodeSource.METRICS_API

    # ---- the store

    def store_closed(self, until_seconds: float) -> bool:
        """Store slots that end by `until_seconds`, declared amounts and the inventory; return False if that failed."""
        containers, nodes = self.term.pending
        bound = min(until_seconds, self._clock.now_seconds() + HOUR_SECONDS)
        containers += [slot for slot in self.term.containers.close(bound) if slot.refs]
        nodes += [slot for slot in self.term.nodes.close(bound) if slot.refs]
        for slots in (containers, nodes):
            self.term.lost_slots += max(0, len(slots) - PENDING_SLOTS)
            del slots[:-PENDING_SLOTS]
        if not containers and not nodes:
            return True
        try:
            self._require_right()
            self._store_pending()
            self.term.error = None
        except CotenantError as error:
            self.term.error = error
            self.term.hourly = writing.HourlyAmounts()  # nobody knows how much of it was stored
            log.warning(
                "usage is not stored yet", slots=max(len(containers), len(nodes)), error=error.message, fix=error.fix
            )
            return False
        return True

    def _present_seconds(self) -> float:
        """Return the present time, at most an interval after the newest sample: a clock may have jumped ahead."""
        pending = (slot.end_seconds for slots in self.term.pending for slot in slots)
        newest = max(self.term.containers.newest_seconds, self.term.nodes.newest_seconds, *pending)
        return min(self._clock.now_seconds(), newest + self._interval)

    def _store_pending(self) -> None:
        now, store = self._present_seconds(), self._store
        restarts, pods = self._earlier_restarts(now), self.watch.pods()
        containers, nodes = self.term.pending
        containers[:] = [slot for slot in containers if not self._is_stored(slot)]
        nodes[:] = [slot for slot in nodes if not self._is_stored(slot)]
        failing = self._note_ends((*self.watch.take(), *pods), restarts, now)
        blocks = writing.slot_usage(containers, nodes)
        present = [pod for pod in pods if pod.occupies_node]
        amounts, unread = compute_without_failing(
            [pod.key for pod in present],
            lambda without: declared_amounts(pod for pod in present if pod.key not in without),
            (MemoryError,),
        )
        blocks += self.term.hourly.usage(amounts, restarts, now)
        writing.write_usage(store, blocks, restarts)
        restarts.forget((pod.key for pod in pods), now)  # only then: what an earlier process left may be of older hours
        idle = writing.idle_rows(containers, self.term.containers.resting_series(), int(now))
        # Nothing of this has a name here: each step's objects are gone before the next one makes its own.
        inventory, failing_pods = compute_without_failing(
            [pod.key for pod in pods],
            lambda without: writing.write_inventory(
                store,
                writing.present_inventory(store.cluster, self.watch.observe(without), idle, int(now)),
                blocks,
                self._profiler,
            ),
            (CotenantError, MemoryError),
        )
        self.watch.leave_out(failing | unread | failing_pods)
        self._account(now, inventory)
        self.watch.forget_placed()
        containers.clear()
        nodes.clear()
        log.info("usage stored", containers=len(self.term.containers), nodes=len(self.term.nodes))

    def _account(self, now: float, inventory: Inventory) -> None:
        """Publish the time up to which slots are stored and what is missing, and once an hour the quality record."""
        _, nodes = self.term.pending
        missing = self.term.missing + count_missing(nodes, {address.node for address in self.watch.kubelets()})
        self.term.status = self._new_status(now)
        self.term.gaps = []
        writing.write_status(self._store, self.term.status)
        if self.term.told_hour != (hour := int(now // HOUR_SECONDS)):
            writing.tidy(self._store, self._profiler)
            notes = self._own_notes(missing)
            defects = {**self.term.containers.defects}
            self._store.append_quality(writing.quality_record(self.term.status, defects, inventory, int(now), notes))
            self.term.told_hour = hour
            missing = Counter()
        self.term.missing = missing

    def _publish(self) -> None:
        """Store counts since the last slot, and in the first days present usage, which no analysis shows yet."""
        now = self._clock.now_seconds()
        try:
            self._require_right()
            # Count ends and keep the counts at once: a later status may show another end in the place of this one
            is_first = self.term.restarts is None
            restarts = self._earlier_restarts(now)
            versions = [*self.watch.take(), *(self.watch.pods() if is_first else ())]
            self._note_ends(versions, restarts, now)
            if versions and restarts.changed:
                writing.write_counts(self._store, restarts)
            if self.term.status is None or now - self.term.status.begun_seconds < FIRST_SECONDS:
                self.term.status = self._new_status(now)
                self.term.gaps = []
                writing.write_status(self._store, self.term.status)
        except CotenantError as error:
            log.info("restart counts and the recorder's status are not stored yet", why=error.message)

    def _note_ends(self, pods: Iterable[RecordedPod], restarts: RestartLog, now: float) -> dict[Key, str]:
        """Count how containers of these pods ended; return the pods that cannot be counted, and why."""
        failing = take_each(pods, lambda pod: restarts.note(pod.ends(), now))
        restarts.state.complete = True
        return {pod.key: why for pod, why in failing}

    def _earlier_restarts(self, now: float) -> RestartLog:
        """Return the counts so far, on first use with those that an earlier process stored."""
        if self.term.restarts is None:
            status = self._store.read_document(STATUS_DOCUMENT, RecorderStatus)
            self.term.restarts = writing.kept_restarts(self._store, self.term.begun)
            self.term.status = status
            # Up to when that process stored slots; one whose clock was ahead says nothing of that
            if status is not None and status.until_seconds <= now + FIVE_MINUTES_SECONDS:
                self.term.kept_until = status.until_seconds
                stored_until = self.term.kept_until or status.begun_seconds
                bridged = BRIDGED_INTERVALS * self._interval
                if gap := gap_before(stored_until, status.written_seconds, self.term.begun, bridged):
                    self.term.gaps.append(gap)
        return self.term.restarts

    def _is_stored(self, slot: ClosedSlot[Any]) -> bool:
        """Return whether an earlier process stored this slot: it stays, because it may include an unseen peak."""
        return slot.start_seconds < self.term.begun and slot.end_seconds <= self.term.kept_until

    def _new_status(self, now: float) -> RecorderStatus:
        troubles = {node: f"{e.message} {e.fix}".strip() for node, e in sorted(self._kubelets.errors.items())}
        unthrottled = [e for node, e in sorted(self._throttling.errors.items()) if node not in troubles]
        before = self.term.status
        earlier = before.until_seconds if before and before.until_seconds <= now + FIVE_MINUTES_SECONDS else 0
        since = max(earlier, math.ceil(self.term.begun / FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS)
        gaps = [*(before.gaps if before else ()), *self.term.gaps, *gaps_between(since, self.term.pending[1])]
        bridged = now - BRIDGED_INTERVALS * self._interval
        nodes, millicores, memory = self.term.nodes.present_use(bridged)
        containers, _, _ = self.term.containers.present_use(bridged)
        return RecorderStatus(
            begun_seconds=before.begun_seconds if before else self.term.begun,
            written_seconds=now,
            until_seconds=max((slot.end_seconds for slots in self.term.pending for slot in slots), default=earlier),
            interval_seconds=self._interval,
            nodes=count_sources(self.term.sources),
            troubles=dict(list(troubles.items())[:TROUBLES_KEPT]),
            unthrottled=len(unthrottled),
            throttling_trouble=f"{unthrottled[0].message} {unthrottled[0].fix}".strip() if unthrottled else "",
            questions=self._kubelets.asked + self._throttling.asked,
            samples=self.term.samples,
            gaps=join_gaps(gaps)[-GAPS_KEPT:],
            present=PresentUse(now, nodes, containers, millicores, memory) if nodes else None,
            left_out=dict(list(self.watch.left_out().items())[:TROUBLES_KEPT]),
        )

    def _own_notes(self, missing: Counter[str]) -> tuple[str, ...]:
        late = self.term.containers.late + self.term.nodes.late
        notes = []
        if late:
            notes.append(f"{late} samples were dropped, wholly or in part: their five-minute slot was closed already")
        if missing:
            node, count = missing.most_common(1)[0]
            nodes, values = agree(len(missing), "node lacks", "nodes lack"), counted(missing.total(), "value")
            notes.append(f"{nodes} {values} of five-minute slots in the last hour; {node} lacks most: {count}")
        if self.term.lost_slots:
            slots = agree(self.term.lost_slots, "slot of usage was", "slots of usage were")
            notes.append(f"{slots} lost, because the store could not be written for an hour")
        return tuple(notes)


async def _pause(stopping: threading.Event, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not stopping.is_set() and (seconds_left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(POLL_SECONDS, seconds_left))
