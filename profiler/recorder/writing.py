"""EDGE: writes closed slots, hourly amounts and the inventory to the store, as a scan's pull writes them.

A crash is harmless at any point: slots and hours contain absolute values, and the counts of open hours are written
again by the next process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import Inventory, PodRow
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.inventory.partial_inventory import left_out_notes
from cotenant.base.kube.live import LiveCluster
from cotenant.base.kube.overlay import overlay
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.profiler.recorder.exposition import Floats
from cotenant.profiler.recorder.pod_records import DECLARED, Declared
from cotenant.profiler.recorder.restarts import RestartLog, RestartState, hour_of
from cotenant.profiler.recorder.slots import ClosedSlot
from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus
from cotenant.profiler.settings import ProfilerSettings
from cotenant.profiler.sightings import Sightings, merge_inventories, unnamed_notes, with_history

RESTARTS_DOCUMENT: Final = "recorder-restarts"
_CONTAINER_SIGNALS: Final = (
    (Signal.CPU_USAGE_MEAN, "cpu_mean"),
    (Signal.CPU_USAGE_MAX, "cpu_max"),
    (Signal.MEMORY_WORKING_SET_MAX, "memory_max"),
    (Signal.CPU_THROTTLED_MEAN, "throttled_mean"),
)
_NODE_SIGNALS: Final = ((Signal.NODE_CPU_USAGE_MEAN, "cpu_mean"), (Signal.NODE_MEMORY_WORKING_SET_MAX, "memory_max"))
_PARTS_OF_NEWEST_DAY: Final = 12
"""An hour of slots stays apart; more than that is merged into the day's file."""

SignalUsage = tuple[Signal, Usage[Any]]


@dataclass(slots=True)
class HourlyAmounts:
    """Requests, limits and restart counts of containers in the present hour; each is written when it changes.

    Zero kills are written only once the hour is over, because a number may still turn out to be unknown.
    """

    hour: int = -1
    written: dict[PodContainerRef, Declared] = field(default_factory=dict)

    def usage(
        self, declared: dict[PodContainerRef, Declared], log: RestartLog, now_seconds: float
    ) -> list[SignalUsage]:
        """Return, as usage, requests and limits new or changed in this hour, and new counts of restarts and kills."""
        ended: list[tuple[int, PodContainerRef]] = []
        if (hour := hour_of(now_seconds)) != self.hour:
            ended = [(self.hour, ref) for ref in self.written] if hour == self.hour + HOUR_SECONDS else []
            self.hour, self.written = hour, {}
        new = [ref for ref, amounts in declared.items() if self.written.get(ref) != amounts]
        fresh = [(self.hour, ref) for ref in new if ref not in self.written]
        self.written.update((ref, declared[ref]) for ref in new)
        blocks: list[SignalUsage] = []
        for index, (signal, _, _) in enumerate(DECLARED):
            if some := {ref: amount for ref in new if (amount := declared[ref][index]) is not None}:
                blocks.append(_one_slot(signal, self.hour, list(some), list(some.values())))
        restarts = {at: float(log.counts(at[1], at[0]).restarts) for at in {*log.changed, *fresh}}
        kills = {at: log.known_kills(at[1], at[0]) for at in {*log.changed, *ended}}
        over = {*ended, *(at for at in log.changed if at[0] < hour)}
        kills_known = {at: float(count) for at, count in kills.items() if count or (count == 0 and at in over)}
        return [*blocks, *_counted_usage(Signal.RESTARTS, restarts), *_counted_usage(Signal.OOM_KILLS, kills_known)]


def _counted_usage(signal: Signal, counts: dict[tuple[int, PodContainerRef], float]) -> Iterator[SignalUsage]:
    for hour in sorted({hour for hour, _ in counts}):
        of_hour = {ref: count for (at, ref), count in counts.items() if at == hour}
        refs = sorted(of_hour)
        yield _one_slot(signal, hour, refs, [of_hour[ref] for ref in refs])


def _one_slot(signal: Signal, start: int, refs: Sequence[Any], values: Sequence[float] | Floats) -> SignalUsage:
    spec = signal.spec
    matrix = np.array(values, dtype=np.float32).reshape(-1, 1)
    return signal, Usage(tuple(refs), TimeGrid(start, spec.step_seconds, 1), matrix, spec.resource, spec.statistic)


def slot_usage(
    containers: Sequence[ClosedSlot[PodContainerRef]], nodes: Sequence[ClosedSlot[NodeRef]]
) -> list[SignalUsage]:
    """Return each signal of each closed slot as Usage of one slot; a signal without any value in a slot is left out."""
    slots: list[tuple[ClosedSlot[Any], Any]] = [(slot, _CONTAINER_SIGNALS) for slot in containers]
    slots += [(slot, _NODE_SIGNALS) for slot in nodes]
    blocks: list[SignalUsage] = []
    for slot, signals in slots:
        for signal, name in signals:
            values = getattr(slot, name)
            measured_rows = np.flatnonzero(np.isfinite(values))  # few containers have a quota that throttles them
            if measured_rows.size:
                refs = [slot.refs[i] for i in measured_rows.tolist()]
                blocks.append(_one_slot(signal, slot.start_seconds, refs, values[measured_rows]))
    return blocks


def idle_rows(
    slots: Sequence[ClosedSlot[PodContainerRef]], resting: Collection[PodContainerRef], now_seconds: int
) -> tuple[PodRow, ...]:
    """Return a row for each pod with containers that used no CPU in a slot, but have a CPU counter above 0."""
    counted, idle = set(resting), dict[tuple[str, str], set[str]]()
    for slot in slots:
        for i in np.flatnonzero(slot.cpu_mean == 0).tolist():
            ref = slot.refs[i]
            if ref in counted:
                idle.setdefault((ref.namespace, ref.pod), set()).add(ref.container)
    return tuple(PodRow(*key, now_seconds, idle=tuple(sorted(names))) for key, names in sorted(idle.items()))


def write_usage(store: Store, blocks: Sequence[SignalUsage], log: RestartLog) -> None:
    """Append the usage blocks to the store, then store the restart counts of `log`."""
    for signal, usage in blocks:
        store.append(signal, usage)
    write_counts(store, log)
    log.changed.clear()


def write_counts(store: Store, log: RestartLog) -> None:
    """Store the restart counts."""
    store.write_document(RESTARTS_DOCUMENT, log.state)


def present_inventory(cluster: str, live: LiveCluster, idle: tuple[PodRow, ...], now_seconds: int) -> Inventory:
    """Return the inventory of the objects that run now, as the API server shows them."""
    return replace(overlay(Inventory(cluster, now_seconds, (), (), ()), live), pod_rows=idle)


def write_inventory(
    store: Store, present: Inventory, blocks: Sequence[SignalUsage], settings: ProfilerSettings
) -> Inventory:
    """Update the stored inventory with the running objects and their usage, and return it."""
    keep_since = present.time_seconds - settings.window_days * DAY_SECONDS
    merged = merge_inventories(store.read_inventory(), present, keep_since)
    del present  # 100,000 pods
    sightings = Sightings()
    sightings.add(blocks)
    inventory = with_history(merged, sightings, amounts_known=True)
    store.write_inventory(inventory)
    return inventory


def tidy(store: Store, settings: ProfilerSettings) -> int:
    """Merge the stored parts of hours into the day's files, and remove old days; return the number of days removed."""
    store.compact(_PARTS_OF_NEWEST_DAY)
    return store.keep(settings.keep_days)


def quality_record(
    status: RecorderStatus, defects: dict[Defect, int], inventory: Inventory, now_seconds: int, notes: tuple[str, ...]
) -> QualityRecord:
    """Return the quality record of an hour of recording."""
    return QualityRecord(
        time_seconds=now_seconds,
        source=status.source,
        scrape_interval_seconds=status.interval_seconds,
        queries=status.questions,
        samples=status.samples,
        defects={defect: count for defect, count in defects.items() if count},
        notes=(*status.notes, *notes, *unnamed_notes(inventory), *left_out_notes(inventory)),
    )


def kept_restarts(store: Store, begun_seconds: float) -> RestartLog:
    """Read the restart counts of an earlier process; return an empty log from `begun_seconds` on if there are none.

    The counts of the open hours count as changed, because it is unknown whether that process stored them as usage too.
    """
    state = store.read_document(RESTARTS_DOCUMENT, RestartState)
    return RestartLog.of(state if state is not None else RestartState(begun_seconds))


def write_status(store: Store, status: RecorderStatus) -> None:
    """Store the recorder's status."""
    store.write_document(STATUS_DOCUMENT, status)
