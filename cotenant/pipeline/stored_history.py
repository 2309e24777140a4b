"""EDGE: reads the stored history for an analysis: of the whole cluster, of a shard, or of the nodes only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory
from cotenant.base.errors import NoData
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.lives import LISTINGS, MEASURED, Lives, SourceSilence, source_silence
from cotenant.base.usage.plausible import plausible_of_nodes, plausible_of_pods, plausible_signals
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.unshown import UnshownUse, shown_by_node, unshown_use
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.pipeline.analysis import History
from cotenant.pipeline.shards.plan import WorkloadShard
from cotenant.profiler.history import missing_spans
from cotenant.profiler.off_times import OFF_DOCUMENT, OffTimes
from cotenant.settings import Settings

_DAY_SLOTS: Final = DAY_SECONDS // FIVE_MINUTES_SECONDS

UNREAD: Final = frozenset({Signal.CPU_PRESSURE_MEAN})
"""Stored signals that no analysis reads; each one with 5-minute steps would take a fifth of the memory."""
OF_PODS: Final = tuple(s for s in Signal if s not in UNREAD and not s.spec.per_node)
OF_NODES: Final = tuple(s for s in Signal if s not in UNREAD and s.spec.per_node)
_OF_BOTH: Final = {
    Resource.CPU: (Signal.NODE_CPU_USAGE_MEAN, Signal.CPU_USAGE_MEAN),
    Resource.MEMORY: (Signal.NODE_MEMORY_WORKING_SET_MAX, Signal.MEMORY_WORKING_SET_MAX),
}
"""What a node uses, and what the containers on it do."""
OF_GPUS: Final = tuple(s for s in OF_PODS if s.name.startswith("GPU_"))


def load(store: Store, settings: Settings) -> History:
    """Return everything stored for the last `profiler.window_days`; raise NoData if no usage is stored."""
    history = load_node_history(store, settings)
    return dataclasses.replace(history, usage=_usage_of_pods(store, OF_PODS, history.window))


def load_plausible(store: Store, settings: Settings) -> History:
    """Return the stored history without implausible samples (`base.usage.plausible`), for sums and back-tests.

    The evaluation of a container needs `load` instead: it must see implausible samples to propose no value from them.
    """
    history = load(store, settings)
    return dataclasses.replace(history, usage=plausible_signals(history.usage, history.inventory))


def load_node_history(store: Store, settings: Settings) -> History:
    """Return the history with usage of nodes and GPUs only; raise NoData if no usage of pods is stored."""
    inventory, span = store.read_inventory(), store.usage_span()
    if inventory is None or span is None:
        raise NoData(
            f"no usage of pods of cluster {store.cluster} is stored at {store.url}",
            fix="A recorder stores its first data after five minutes. Without a recorder run "
            "cotenant scan --prometheus URL; cotenant doctor says what is missing.",
        )
    start = max(span[0], span[1] - settings.profiler.window_days * DAY_SECONDS)
    window = TimeGrid.from_span(start, span[1], FIVE_MINUTES_SECONDS)
    grids = _grids(window)
    quality = store.read_quality()
    node_usage = {
        signal: plausible_of_nodes(store.read(signal, grids[signal.spec.step_seconds]), inventory)
        for signal in OF_NODES
    }
    return History(
        inventory=inventory,
        window=window,
        usage=plausible_signals(_usage_of_pods(store, OF_GPUS, window), inventory),
        node_usage=node_usage,
        quality=quality[-1] if quality else None,
        since_seconds=span[0],
        silence=_silence(store, node_usage[Signal.NODE_CPU_USAGE_MEAN], grids),
        unshown=_unshown_use(store, node_usage, inventory, grids),
    )


def _unshown_use(
    store: Store, node_usage: Mapping[Signal, Usage[NodeRef]], inventory: Inventory, grids: Mapping[int, TimeGrid]
) -> UnshownUse:
    """Return what nodes use beyond the usage of their pods, whose series are read one day at a time."""
    window, nodes, shown = grids[FIVE_MINUTES_SECONDS], {}, {}
    for resource, signal in _OF_BOTH.items():
        nodes[resource] = node_usage[signal[0]]
        midnights = range(window.start_seconds // DAY_SECONDS * DAY_SECONDS, window.end_seconds, DAY_SECONDS)
        spans = ((max(at, window.start_seconds), min(at + DAY_SECONDS, window.end_seconds)) for at in midnights)
        days = (TimeGrid.from_span(start, end, window.step_seconds) for start, end in spans)
        parts = (plausible_of_pods(store.read_sparse(signal[1], day), inventory) for day in days)
        shown[resource] = shown_by_node(parts if nodes[resource].refs else (), inventory, nodes[resource])
    return unshown_use(nodes, shown, inventory, grids[HOUR_SECONDS])


def _silence(store: Store, nodes: Usage[NodeRef], grids: Mapping[int, TimeGrid]) -> SourceSilence | None:
    """Return the periods for which the source has no data; None if no node reports.

    They follow from the usage of all nodes, from the listings of all pods, and from data that could not be read or were
    lost.
    """
    if not nodes.refs:
        return None
    listings: dict[Signal, SparseUsage[PodContainerRef]] = {}
    for signals in LISTINGS:
        listings = {signal: store.read_sparse(signal, grids[HOUR_SECONDS]) for signal in signals}
        if any(of.refs for of in listings.values()):
            break
    spans = [
        (span.signal, span.start_seconds, span.end_seconds) for span in missing_spans(store, [*MEASURED, *listings])
    ]
    lost: dict[Signal, npt.NDArray[np.bool_]] = {}
    for signal, start, end in spans:
        grid = grids.get(signal.spec.step_seconds)
        if grid is not None:
            times = grid.times()
            part = (times + grid.step_seconds > start) & (times < end)
            lost[signal] = lost.get(signal, np.zeros(grid.size, dtype=bool)) | part
    off = store.read_document(OFF_DOCUMENT, OffTimes) or OffTimes()
    return source_silence(nodes, listings, grids[HOUR_SECONDS], lost, off.slots(nodes.grid))


def lives(history: History) -> Lives:
    """Return when each pod of a history ran, as far as that is known."""
    silence = history.silence or SourceSilence.of_no_node(history.window, _grids(history.window)[HOUR_SECONDS])
    return Lives.of(silence, history.inventory, history.usage)


def of_shard(store: Store, shard: WorkloadShard, window: TimeGrid) -> Mapping[Signal, SparseUsage[PodContainerRef]]:
    """Return the usage of the shard's pods by signal (metric); little else is read from the store."""
    usage = _usage_of_pods(store, OF_PODS, window, shard)
    own: dict[Signal, SparseUsage[PodContainerRef]] = {}
    taken: dict[int, tuple[np.ndarray[Any, Any], tuple[PodContainerRef, ...]]] = {}
    for signal in list(usage):
        series = usage.pop(signal)  # dropped as soon as it is cut: twice all signals would be most of a worker's memory
        if id(series.refs) not in taken:  # signals of the same series share one tuple
            mine = shard.mine(series.refs)
            taken[id(series.refs)] = mine, tuple(compress(series.refs, mine))
        rows, refs = taken[id(series.refs)]
        own[signal] = series if rows.all() else dataclasses.replace(series.take(rows), refs=refs)
    return own


def _grids(window: TimeGrid) -> dict[int, TimeGrid]:
    """Return the grids by step: the window itself, and the hours that it overlaps."""
    first = window.start_seconds // HOUR_SECONDS * HOUR_SECONDS
    hours = TimeGrid.from_span(first, math.ceil(window.end_seconds / HOUR_SECONDS) * HOUR_SECONDS, HOUR_SECONDS)
    return {FIVE_MINUTES_SECONDS: window, HOUR_SECONDS: hours}


def _usage_of_pods(
    store: Store, signals: Iterable[Signal], window: TimeGrid, shard: WorkloadShard | None = None
) -> dict[Signal, SparseUsage[PodContainerRef]]:
    """Return stored usage on the grid of each signal's step; signals of the same series share their references."""
    grids, between = _grids(window), None if shard is None else shard.between
    usage: dict[Signal, SparseUsage[PodContainerRef]] = {}
    for signal in signals:  # one by one: a signal takes three times its size while it is read
        series = store.read_sparse(signal, grids[signal.spec.step_seconds], between)
        same = next((other.refs for other in usage.values() if other.refs == series.refs), series.refs)
        usage[signal] = dataclasses.replace(series, refs=same)
    # The usage, in which the means, shared, replace missing maxima. No maxima are stored where scrapes are too rare for
    # maxima of their own. A store has maxima of some days alone where the interval of the scrapes changed, or where
    # maxima were stored at any interval before; days without them at either end of the window get the means.
    highest, mean = usage.get(Signal.CPU_USAGE_MAX), usage.get(Signal.CPU_USAGE_MEAN)
    if highest is None or mean is None:
        return usage
    if not highest.refs:
        usage[Signal.CPU_USAGE_MAX] = dataclasses.replace(mean, statistic=highest.statistic)
    elif any(abs(end - other_end) >= _DAY_SLOTS for end, other_end in zip(_ends(highest), _ends(mean), strict=True)):
        usage[Signal.CPU_USAGE_MAX] = highest.filled(mean)
    return usage


def _ends(usage: SparseUsage[PodContainerRef]) -> tuple[int, int]:
    """Return the first slot with stored data, and the one after the last."""
    if not usage.refs:
        return 0, 0
    return int(usage.first.min()), int((usage.first + np.diff(usage.bounds)).max())
