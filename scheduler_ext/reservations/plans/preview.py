"""Computes what approving a plan would do: where its pods fit, remaining quota, displaced batch work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from cotenant.base.text import counted, percent
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model.plan import Plan, Span
from cotenant.scheduler_ext.reservations.model.plan_service import PlanGuardResult, Preview

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FreeNode:
    """A node and its unrequested capacity by resource (`free`); `batch_millicores` is what batch pods request on it.

    `then` is the unused capacity at the window's start by the usage forecast, at most `free`; None without a forecast.
    """

    name: str
    free: Mapping[str, int]
    batch_millicores: int = 0
    schedulable: bool = True
    then: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PreviewContext:
    """The nodes, remaining quota and CPU price from which a preview is computed."""

    nodes: Sequence[FreeNode]
    quota_left: Mapping[str, int]
    price_per_core_hour: float


def preview(plan: Plan, window: Span, place: PreviewContext, guards: tuple[PlanGuardResult, ...] = ()) -> Preview:
    """Return the preview of a plan as if the capacity for this window's pods were reserved now.

    Pods go to the node with the most unrequested CPU, as by the scheduler's default score.
    """
    plan = replace(plan, count=plan.most_in(window))
    counts = pods_per_node(plan.per_pod, plan.count, place.nodes)
    hours, cores = window.seconds / HOUR_SECONDS, plan.cores_per_pod
    batch = np.array([node.batch_millicores for node in place.nodes], dtype=np.float64) / 1000
    displaced = float(np.minimum(batch, counts * cores).sum()) * hours
    reserved_core_hours = sum(peak.count * cores * peak.span.seconds / HOUR_SECONDS for peak in plan.windows)
    reserved_core_hours = reserved_core_hours or plan.count * cores * hours
    missing = plan.count - int(counts.sum())
    # when the window begins, by capacity of now without a forecast; none where no node has one
    nodes_then: tuple[tuple[str, int], ...] = ()
    late: int | None = None
    if any(node.then is not None for node in place.nodes):
        ahead = [replace(node, free=node.free if node.then is None else node.then) for node in place.nodes]
        counts_then = pods_per_node(plan.per_pod, plan.count, ahead)
        nodes_then, late = _counts_by_node(place.nodes, counts_then), plan.count - int(counts_then.sum())
    expected = plan.status.expected
    without = "Without the plan, pods of this workload compete for free capacity when the peak begins"
    without += f"; today {missing} of {plan.count} pods would wait." if missing else "; today all pods would find it."
    if expected and expected.occurrences:
        without += f" In {counted(expected.occurrences, 'past peak')}"
        without += f" {percent(expected.hit_ratio)} of the reserved capacity would have been used."
    notes = []
    pods = counted(plan.count, "pod")
    if missing:
        fit = f"{'fits' if missing == 1 else 'fit'} on no node now"
        notes.append(f"{missing} of {pods} {fit}: capacity must become free before the window begins.")
    if late is not None and late > missing:
        fit = "fits" if late == 1 else "fit"
        notes.append(f"{late} of {pods} {fit} on no node when the window begins: nodes are busier then.")
    return Preview(
        count=plan.count,
        window=window,
        nodes=_counts_by_node(place.nodes, counts),
        unplaced=missing,
        nodes_then=nodes_then,
        unplaced_then=late,
        quota_left={n: remaining - plan.count * plan.per_pod.get(n, 0) for n, remaining in place.quota_left.items()},
        displaced_core_hours=displaced,
        displaced_cost=displaced * place.price_per_core_hour,
        reserved_core_hours=reserved_core_hours,
        reserved_cost=reserved_core_hours * place.price_per_core_hour,
        expected=expected,
        guards=guards,
        notes=tuple(notes),
        without=without,
        windows=plan.windows,
        standby=plan.standby,
        standby_core_hours=plan.standby_core_hours,
        standby_cost=plan.standby_core_hours * place.price_per_core_hour,
    )


def forecast_free_capacity(
    free: Mapping[str, int], allocatable: Mapping[str, int], used: Mapping[str, int]
) -> dict[str, int]:
    """Return a node's unused capacity if its forecast usage is `used`; at most `free`, its unrequested capacity."""
    return {
        n: min(free_amount, allocatable[n] - used[n]) if n in used else free_amount for n, free_amount in free.items()
    }


def _counts_by_node(nodes: Sequence[FreeNode], counts: Counts) -> tuple[tuple[str, int], ...]:
    return tuple((n.name, int(c)) for n, c in zip(nodes, counts, strict=True) if c)


def pods_per_node(per_pod: Mapping[str, int], count: int, nodes: Sequence[FreeNode]) -> Counts:
    """Return the number of pods per node, (nodes,): each pod goes to the node with most free CPU on which it fits."""
    names = [name for name, amount in per_pod.items() if amount > 0]
    if not {*names}.issubset(chain.from_iterable(n.free for n in nodes)):
        return np.zeros(len(nodes), dtype=np.int64)
    names = names or ["cpu"]
    size = np.array([max(per_pod.get(name, 0), 0) for name in names], dtype=np.float64)
    free = np.array([[n.free.get(name, 0) for name in names] for n in nodes], dtype=np.float64).reshape(-1, len(names))
    open_ = np.array([n.schedulable for n in nodes], dtype=bool)
    counts = np.zeros(len(nodes), dtype=np.int64)
    for _ in range(count):
        fits = open_ & (free >= size).all(axis=1)
        if not fits.any():
            break
        best = int(np.where(fits, free[:, 0], -np.inf).argmax())
        free[best] -= size
        counts[best] += 1
    return counts
