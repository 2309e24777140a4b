"""The slots in which pods lived, of which coverage is a share. Pure.

A workload that is scaled to zero at night, a CronJob between two runs and a queue's worker without a message miss no
samples: nothing lived. These signs tell whether a pod lived, in this order:

- a pod's own samples; a pod with a unique name lives from its first to its last sample;
- kube-state-metrics, which lists the existing containers once an hour: a listed container without samples lived unseen,
  as on a node whose kubelet does not respond (pods of kinds that end remain listed afterwards: they count only while
  some node did not report, or if they are known to run now);
- if nothing lists containers at all, the pod's start and end in the inventory;
- none of these while the source was silent: if no node reported, or if nothing was listed while some node did not
  report, a missing sample is a gap, because nobody can know that nothing lived.

`base.usage.samples` counts the samples that were due and those that are there.

A source's silence is a fact about the whole cluster (`SourceSilence`). It is determined once, before the pods are
divided into shards, so that no result depends on which pods are in a shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole, Inventory, Pod, PodPhase
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.usage.sparse_usage import AnyUsage, SparseUsage
from cotenant.base.usage.usage import HOUR_SECONDS, Flags, Signal, TimeGrid, Usage

Integers = npt.NDArray[np.int64]

LISTINGS: Final = ((Signal.RESTARTS,), (Signal.CPU_REQUEST, Signal.MEMORY_REQUEST))
"""Hourly signals that list containers: the best that a store has. Requests are those of pending pods too."""
MEASURED: Final = (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX)
"""Signals whose samples show that a pod lived."""
NAMED_ANEW: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "DeploymentConfig", "Rollout", "DaemonSet", "Job", "CronJob"}
)
"""Kinds whose pods get a name that no pod had before: between two of its samples such a pod lived."""
LASTING: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "DeploymentConfig", "Rollout", "DaemonSet", "StatefulSet"}
)
"""Kinds whose pods run until they are deleted; pods of others are listed, ended, for as long as somebody keeps them."""
_HOUR_SLOTS: Final = 12
_CHUNK: Final = 4096  # rows made dense at once, so that working memory stays small
_EDGE_SLOTS: Final = 2
"""Slots by which a listed life may begin before its first sample and end after its last one: a rate needs two
scrapes."""


@dataclass(frozen=True, eq=False)
class SourceSilence:
    """The slots of time in which the metric source reported nothing, for the whole cluster.

    In `grid`, `usage` flags the slots without usage of any node, or whose data are lost, and `partly` those in which a
    node did not report that reported before and after. In `hours`, `listing` flags the hours in which no container was
    listed. `listed_by` are the signals that list containers, empty if no source does.
    """

    grid: TimeGrid
    usage: Flags
    partly: Flags
    hours: TimeGrid
    listing: Flags
    listed_by: tuple[Signal, ...]
    off: Flags | None = None
    """Flags (slots,) of the slots in which the whole cluster was off: nothing lived, and no source counts as silent."""

    @cached_property
    def hour_of_slot(self) -> Integers:
        """The index of the hour that contains each slot, as an array of shape (slots,)."""
        return (self.grid.times() - self.hours.start_seconds) // HOUR_SECONDS

    @classmethod
    def of_no_node(cls, grid: TimeGrid, hours: TimeGrid) -> SourceSilence:
        """Return the silence of a source without nodes: it is silent in every slot, and lists no container."""
        silent, unlisted = np.ones(grid.size, dtype=bool), np.ones(hours.size, dtype=bool)
        return cls(grid, silent, np.zeros(grid.size, dtype=bool), hours, unlisted, ())

    def unknown(self, *, listed: bool) -> Flags:
        """Return flags of slots in which a container without samples may have lived; `listed`: a source lists it."""
        listing_silent = self.listing[self.hour_of_slot]
        return (self.usage | self.partly) & listing_silent if listed else self.usage | self.partly


def source_silence(
    nodes: Usage[NodeRef],
    listings: Mapping[Signal, AnyUsage[PodContainerRef]],
    hours: TimeGrid,
    lost: Mapping[Signal, Flags] | None = None,
    off: Flags | None = None,
) -> SourceSilence | None:
    """Return the source's silence, from a usage signal of all nodes and the listings of all pods; None without nodes.

    `lost` has, for some signals, flags of the slots or hours whose data were stored or requested but are unavailable;
    `off` has flags of the slots in which the whole cluster was switched off.
    """
    if not nodes.refs:
        return None
    lost = lost or {}
    present = ~np.isnan(nodes.values)
    has_begun = np.logical_or.accumulate(present, axis=1)
    later = np.logical_or.accumulate(present[:, ::-1], axis=1)[:, ::-1]
    silent: Flags = np.asarray(~present.any(axis=0))
    partly: Flags = np.asarray((has_begun & later & ~present).any(axis=0))
    for signal in MEASURED:
        silent |= lost.get(signal, np.zeros_like(silent))
    listed_by = next((of for of in LISTINGS if any(s in listings and listings[s].refs for s in of)), ())
    has_usage = np.zeros(hours.size, dtype=bool)
    for signal in listed_by:
        if signal in listings:
            has_usage |= _any_by_slot(listings[signal])
            has_usage &= ~lost.get(signal, np.zeros_like(has_usage))
    if off is None or not off.any():
        return SourceSilence(nodes.grid, silent, partly, hours, ~has_usage, tuple(listed_by))
    hour_of_slot = (nodes.grid.times() - hours.start_seconds) // HOUR_SECONDS
    awake = np.zeros(hours.size, dtype=bool)
    awake[hour_of_slot[~off]] = True
    return SourceSilence(nodes.grid, silent & ~off, partly & ~off, hours, ~has_usage & awake, tuple(listed_by), off)


def _any_by_slot(usage: AnyUsage[Any]) -> Flags:
    if not isinstance(usage, SparseUsage):
        return np.asarray((~np.isnan(usage.values)).any(axis=0))
    has_value = np.zeros(usage.grid.size, dtype=bool)
    lengths = np.diff(usage.bounds)
    for begin in range(0, len(usage.refs), 4096):  # positions of all cells at once would take eight times their memory
        rows = slice(begin, begin + 4096)
        cells = usage.cells[usage.bounds[begin] : usage.bounds[min(begin + 4096, len(usage.refs))]]
        starts = np.repeat(usage.first[rows] - (usage.bounds[:-1][rows] - usage.bounds[begin]), lengths[rows])
        has_value[(starts + np.arange(len(cells)))[~np.isnan(cells)]] = True
        if has_value.all():
            break
    return has_value


@dataclass(frozen=True, slots=True)
class PodRule:
    """The known properties of the pods with one name.

    `named_anew`, `lasting`: the workload's kind is in NAMED_ANEW, in LASTING. `ended`: the pod succeeded or failed;
    `waiting`: it is pending, or only its phase is unknown; `running`: it has no end; `alive`: no end and phase Running.
    """

    named_anew: bool
    lasting: bool
    ended: bool
    waiting: bool = False
    running: bool = False
    alive: bool = False
    start_seconds: int = 0
    end_seconds: int | None = None


def pod_rules(inventory: Inventory) -> dict[tuple[str, str], PodRule]:
    """Return the PodRule of each pod by (namespace, pod), of the newest pod where several had one name."""
    newest: dict[tuple[str, str], Pod] = {}
    for pod in inventory.pods:
        key = (pod.namespace, pod.name)
        if key not in newest or pod.start_seconds >= newest[key].start_seconds:
            newest[key] = pod
    # where phases are told, a pod in none of them is in no phase in which it runs: evicted, as far as anybody saw
    not_running = {PodPhase.PENDING}
    if any(pod.phase is not PodPhase.UNKNOWN for pod in newest.values()):
        not_running.add(PodPhase.UNKNOWN)
    return {
        key: PodRule(
            *(pod.workload.kind in NAMED_ANEW, pod.workload.kind in LASTING, pod.phase.ended),
            waiting=pod.phase in not_running,
            running=pod.running,
            alive=pod.running and pod.phase is PodPhase.RUNNING,
            start_seconds=pod.start_seconds,
            end_seconds=pod.end_seconds,
        )
        for key, pod in newest.items()
    }


def starting_containers(inventory: Inventory) -> frozenset[tuple[tuple[str, str], str]]:
    """Return (pod, container) of the init containers, which are listed for the whole life of their pod."""
    init = {
        w.ref: names
        for w in inventory.workloads
        if (names := [c.name for c in w.containers if c.role is ContainerRole.INIT])
    }
    return frozenset(((p.namespace, p.name), name) for p in inventory.pods for name in init.get(p.workload, ()))


_STRANGER: Final = PodRule(named_anew=False, lasting=False, ended=False)


@dataclass(frozen=True, eq=False)
class Lives:
    """The inputs for estimating the lifetimes of some pods' containers: source silence, listing and pod rules.

    `listed` flags, for each row of `row_of`, the hours in which the listing has the container. `starting` are the init
    containers as (pod, container): the listing has them for their pod's whole life.
    """

    silence: SourceSilence
    rules: Mapping[tuple[str, str], PodRule]
    starting: frozenset[tuple[tuple[str, str], str]]
    row_of: Mapping[PodContainerRef, int]
    listed: Flags

    @classmethod
    def of(
        cls, silence: SourceSilence, inventory: Inventory, usage: Mapping[Signal, AnyUsage[PodContainerRef]]
    ) -> Lives:
        """Create the lifetimes of an inventory's pods; `usage` has their series, including the listing's signals."""
        listings = [usage[s] for s in silence.listed_by if s in usage]
        row_of = {ref: row for row, ref in enumerate(dict.fromkeys(ref for of in listings for ref in of.refs))}
        listed = np.zeros((len(row_of), silence.hours.size), dtype=bool)
        for of in listings:
            rows = np.fromiter((row_of[ref] for ref in of.refs), np.int64, len(of.refs))
            for begin in range(0, len(rows), _CHUNK):
                listed[rows[begin : begin + _CHUNK]] |= ~np.isnan(of.rows(slice(begin, begin + _CHUNK)))
        return cls(silence, pod_rules(inventory), starting_containers(inventory), row_of, listed)

    def unseen(self, ref: PodContainerRef, present: Flags) -> tuple[int, int, Flags] | None:
        """Return the slots [first, end) of a container's life, and flags of those slots of it that have no sample.

        `present` has flags of the slots with the container's samples, if any; both arrays of flags have a flag for each
        slot of the grid. Return None if no sign shows that it ever lived.
        """
        some = np.flatnonzero(present)
        row = self.row_of.get(ref, -1)
        key = (ref.namespace, ref.pod)
        rule = self.rules.get(key, _STRANGER)
        listed = self.listed[row] if row >= 0 else np.zeros(self.silence.hours.size, dtype=bool)
        starts = (key, ref.container) in self.starting
        if not len(some):
            if starts or rule.ended or rule.waiting or not listed.any():
                return None
            alive = self._of_hours(listed)
            if not self._lasts(ref, rule):  # too short a life for a sample may be listed for days after it
                alive &= self._blind if self._blind[alive][:_HOUR_SLOTS].any() else False
            span_alive = self._without_outages(alive)
            bounds = np.flatnonzero(span_alive)
            return (int(bounds[0]), int(bounds[-1]) + 1, span_alive) if len(bounds) else None
        first, end = int(some[0]), int(some[-1]) + 1
        alive = np.zeros(len(present), dtype=bool)
        alive[first:end] = True
        if end - first > len(some) and not rule.named_anew and self._is_usually_listed(listed, some):
            self._leave_out_absences(alive, present, listed)
        if not starts and listed.any():
            outside = self._of_hours(self._outside(listed, first, end, ended=rule.ended))
            if not self._lasts(ref, rule):  # it ended where its samples do, unless nobody could see it from then on
                outside[end:] &= bool(self._blind[end : end + _EDGE_SLOTS + 1].any())
                outside &= self._blind
            alive |= outside
        elif not self.silence.listed_by:
            begin, stop = self.of_inventory(ref, first, end)
            alive[begin:stop] |= (np.arange(begin, stop) < first) | (np.arange(begin, stop) >= end)
        alive = self._without_outages(alive)
        bounds = np.flatnonzero(alive)
        return int(bounds[0]), int(bounds[-1]) + 1, alive & ~present

    def _lasts(self, ref: PodContainerRef, rule: PodRule) -> bool:
        """Return whether a listed container runs: by its kind, or because it is the only one of a running pod."""
        return rule.lasting or (rule.alive and self._listed_of_pod[ref.namespace, ref.pod] == 1)

    @cached_property
    def _listed_of_pod(self) -> Counter[tuple[str, str]]:
        """The number of listed containers of each pod, without init containers."""
        keys = (((ref.namespace, ref.pod), ref.container) for ref in self.row_of)
        return Counter(pod for pod, container in keys if (pod, container) not in self.starting)

    def is_told_outside(self, ref: PodContainerRef, first: int, end: int) -> bool:
        """Return whether a container was listed or known to live before or after its samples in [first, end)."""
        if not self.silence.listed_by:
            return self.of_inventory(ref, first, end) != (first, end)
        row, hour = self.row_of.get(ref, -1), self.silence.hour_of_slot
        return row >= 0 and self._hours_listed[row] > int(self.listed[row, hour[first] : hour[end - 1] + 1].sum())

    def is_named_anew(self, ref: PodContainerRef) -> bool:
        """Return whether no later pod takes the name of this pod, which therefore lived between its samples."""
        return self.rules.get((ref.namespace, ref.pod), _STRANGER).named_anew

    def is_running(self, ref: PodContainerRef) -> bool:
        """Return whether the container's pod is still running."""
        return self.rules.get((ref.namespace, ref.pod), _STRANGER).running

    @cached_property
    def _hours_listed(self) -> list[int]:
        counted: list[int] = self.listed.sum(axis=1).tolist()
        return counted

    def of_inventory(self, ref: PodContainerRef, first: int, end: int) -> tuple[int, int]:
        """Return the slots [first, end), extended to the pod's life in the inventory if that is clearly longer."""
        rule, grid = self.rules.get((ref.namespace, ref.pod), _STRANGER), self.silence.grid
        if not rule.start_seconds:
            return first, end
        begin = max(0, grid.index_of(rule.start_seconds))
        stop = grid.size if rule.running else min(grid.size, grid.index_of(rule.end_seconds or 0))
        return (first if first - begin <= _EDGE_SLOTS else begin, end if stop - end <= _EDGE_SLOTS else stop)

    def _without_outages(self, alive: Flags) -> Flags:
        """Return the lived slots without those in which the whole cluster was off."""
        return alive if self.silence.off is None else np.asarray(alive & ~self.silence.off)

    @cached_property
    def _blind(self) -> Flags:
        return np.asarray(self.silence.usage | self.silence.partly)

    def _is_usually_listed(self, listed: Flags, some: Integers) -> bool:
        """Return whether the container was listed in most hours that have samples and a listing."""
        hours = np.unique(self.silence.hour_of_slot[some])
        hours = hours[~self.silence.listing[hours]]
        return bool(len(hours)) and float(listed[hours].mean()) > 0.5

    def _leave_out_absences(self, alive: Flags, present: Flags, listed: Flags) -> None:
        """Remove from a life the stretches in which no pod of this name was listed although others were."""
        hour = self.silence.hour_of_slot
        padded = np.concatenate([[True], present, [True]])
        edges = np.flatnonzero(np.diff(padded.astype(np.int8)))
        for begin, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if not alive[begin:stop].all():
                continue
            within = np.arange(begin, stop)
            inner = (hour[within] > hour[begin - 1]) & (hour[within] < hour[min(stop, len(hour) - 1)])
            absent = inner & ~listed[hour[within]] & ~self.silence.listing[hour[within]]
            if absent.any():
                # (slots,): not in the hour beside the edge of [begin, stop) where the edge is the hour's own, nearly.
                is_kept = np.ones(len(hour), dtype=bool)
                if stop < len(hour) and stop - int(np.searchsorted(hour, hour[stop])) <= _EDGE_SLOTS:
                    is_kept &= hour != hour[stop] - 1
                if int(np.searchsorted(hour, hour[begin - 1], side="right")) - begin <= _EDGE_SLOTS:
                    is_kept &= hour != hour[begin - 1] + 1
                alive[within] = inner & listed[hour[within]] & is_kept[within]

    def _outside(self, listed: Flags, first: int, end: int, *, ended: bool) -> Flags:
        """Return the hours listed before the first or after the last sample that a life's edges do not explain."""
        hour = self.silence.hour_of_slot
        outside = listed.copy()
        from_hour, to_hour = int(hour[first]), int(hour[end - 1])
        early = first - int(np.searchsorted(hour, from_hour)) <= _EDGE_SLOTS
        late = int(np.searchsorted(hour, to_hour, side="right")) - end <= _EDGE_SLOTS
        outside[max(0, from_hour - early) : to_hour + late + 1] = False
        if ended:
            outside[to_hour:] = False
        return outside

    def _of_hours(self, hours: Flags) -> Flags:
        return np.asarray(hours[self.silence.hour_of_slot])
