"""Sizes a container's memory together with its runtime's heap: one decision for heap, request and limit. Pure.

largest heap = live x `heap_live_factor`, at most the present size; under collection pressure it is the present size, x
`heap_raise` if that size is below live x `heap_live_factor`. Live is what collections leave in the heap. The default
factor is 1 / 0.45 plus a tenth: G1 starts marking at 45 % of the heap (`InitiatingHeapOccupancyPercent`). request = at
most heap + rest; limit = at least heap + rest. The rest is the usage outside of the heap, with the memory margin. If
the heap cannot change (an autoscaler on memory, limit = request, a leak, an OOM kill, a container that is in no
template), it stays, and only the limit is adapted to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.base.cluster import ContainerRole
from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.runtimes.heap import HeapProposal, ManagedHeap, runtime_named
from cotenant.base.text import percent
from cotenant.recommender.base import rounded_up
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant import autoscaler, size
from cotenant.recommender.strategies.cotenant.demand import ResourceDemand
from cotenant.recommender.strategies.cotenant.draft import Drafts, Slot
from cotenant.recommender.strategies.cotenant.size import ContainerContext

HEAP_LIVE_FACTOR: Final = 2.5
"""Largest heap of a runtime, times what collections leave in it; a collector needs room to work. A collector needs
one to three times the live data as free heap; the middle of what runtimes advise."""
HEAP_RAISE: Final = 1.5
"""The same, times its present size, under collection pressure. One step of half the present size, judged again
after the next scan."""

MEMORY: Final = Resource.MEMORY
RULE: Final = "heap + memory used outside of the heap"
LEAST_BYTES: Final = 32 * MIB
MOVABLE: Final = frozenset({ContainerRole.MAIN, ContainerRole.SIDECAR})
Heaps = Mapping[int, HeapProposal]
"""By container of the evidence; one whose heap stays as it is has its present size as the proposed one."""


def largest_heap(heap: ManagedHeap, own: CotenantSettings) -> int:
    """Return the maximum heap that a runtime needs, in bytes; the present one if a change is not worth a restart.

    A heap that is too small for its live data is raised only if collections are frequent. Frequent collections alone
    raise no heap: they have another cause (the application requests them, or they are concurrent).
    """
    needed = max(rounded_up(heap.live_bytes * HEAP_LIVE_FACTOR, MIB), LEAST_BYTES)
    if heap.collecting_fraction >= own.heap_collecting_fraction:
        is_too_small = heap.live_bytes < heap.maximum_bytes < needed  # all of it is live: not known
        return rounded_up(heap.maximum_bytes * HEAP_RAISE, MIB) if is_too_small else heap.maximum_bytes
    return needed if needed < heap.maximum_bytes * (1 - own.dead_band_fraction) else heap.maximum_bytes


def heaps_of(places: Mapping[int, ContainerContext], drafts: Drafts, demand: ResourceDemand) -> Heaps:
    """Return the proposed heap of each container with a language runtime and a proposed memory request.

    A heap has the size of `largest_heap`, or its present size if it cannot change (see this module). `rest_bytes` is
    the memory that the process needs outside of the heap, by the pods' highest usage, with margin, rounded up to MiB.
    """
    heaps = {}
    for index, place in places.items():
        heap, request = place.container.heap, drafts.get(Slot(index, MEMORY, Field.REQUEST))
        if heap is None or request is None:
            continue
        highest = float(np.nan_to_num(demand.highest[place.index]))
        rest = rounded_up(heap.rest_bytes(highest) * (1 + place.policy.margin_fraction(MEMORY)), MIB)
        is_fixed = place.guaranteed or autoscaler.follows(place.workload, MEMORY) or place.container.role not in MOVABLE
        is_short = request.reason is Reason.OOM_BUMP or bool(np.isfinite(demand.leak[place.index]))
        amount = largest_heap(heap, place.own) if not is_fixed and not is_short else heap.maximum_bytes
        heaps[index] = HeapProposal(heap.runtime, heap.maximum_bytes, amount, rest)
    return heaps


def with_heaps(drafts: Drafts, heaps: Heaps, places: Mapping[int, ContainerContext]) -> Drafts:
    """Return the memory drafts adapted to the proposed heaps, before the cluster's bounds."""
    sized = dict(drafts)
    for index, heap in heaps.items():
        slot, limit_slot, place = Slot(index, MEMORY, Field.REQUEST), Slot(index, MEMORY, Field.LIMIT), places[index]
        if heap.change:
            # Not above what heap and rest can take; more by as much as the heap rises.
            request = drafts[slot]
            if heap.change > 0:
                draft = request.at_least(RULE, max(request.now or 0, request.amount) + heap.change, Reason.HEAP)
                sized[slot] = size.apply_size_steps(place, MEMORY, draft)
            else:
                draft = request.at_most(RULE, heap.floor_bytes, Reason.HEAP)
                sized[slot] = size.dead_band(place, size.apply_size_steps(place, MEMORY, draft), MEMORY)
        if limit := drafts.get(limit_slot):
            beyond = limit.now is not None and limit.now < heap.floor_bytes
            limit = size.within_annotation(place, limit.at_least(RULE, heap.floor_bytes, Reason.HEAP), MEMORY)
            sized[limit_slot] = replace(limit, must_raise=limit.must_raise or beyond)
    return sized


def settle_heaps(drafts: Drafts, heaps: Heaps) -> tuple[Drafts, Heaps]:
    """Return drafts and heaps after all bounds: a heap changes only with its request and within its limit.

    If a bound leaves too little for the new heap, the container's memory stays unchanged. No limit is lowered below
    what the heap needs.
    """
    final, moving = dict(drafts), {}
    for index, heap in heaps.items():
        request, limit = (drafts.get(Slot(index, MEMORY, field)) for field in (Field.REQUEST, Field.LIMIT))
        fits = limit is None or limit.amount >= heap.floor_bytes
        least = min((request.now or 0) + heap.change, heap.floor_bytes) if request and heap.change > 0 else 0
        if heap.change and fits and request is not None and request.amount != request.now and request.amount >= least:
            moving[index] = heap
        elif heap.change or not fits:
            # Memory drafts at their present amounts; is_all: the request's too, which went with a heap.
            is_all = bool(heap.change)
            for slot in (Slot(index, MEMORY, field) for field in Field if is_all or field is Field.LIMIT):
                draft = drafts.get(slot)
                if draft is not None and draft.now is not None and (is_all or draft.amount < draft.now):
                    final[slot] = draft.moved(RULE, draft.now, Reason.HEAP)
    return final, moving


def notes(heap: HeapProposal | None, now: ManagedHeap | None) -> Iterator[str]:
    """Yield a sentence on the change of the heap for the reader of the recommendation; nothing without a change."""
    if heap is None or now is None:
        return
    runtime = runtime_named(heap.runtime)
    flag = f" ({runtime.flag})" if runtime else ""
    why = f"{human_bytes(now.live_bytes)} are live after collections"
    if heap.change > 0:
        why = f"{percent(now.collecting_fraction)} of the time goes into collections"
    yield (
        f"{heap.runtime}: the maximum heap{flag} changes from {human_bytes(heap.now_bytes)} to "
        f"{human_bytes(heap.amount_bytes)} with the memory amounts: {why}; other memory: {human_bytes(heap.rest_bytes)}"
    )
