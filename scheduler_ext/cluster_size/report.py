"""The report of removable nodes by level of requests, which `cotenant size` stores and every interface shows. Pure.

The command, the page, REST, the Python API and the overview all take their numbers from this object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant.base.amount_text import cores, gib, money
from cotenant.base.table import Table
from cotenant.base.text import agree, counted
from cotenant.scheduler_ext.cluster_size import tables
from cotenant.scheduler_ext.cluster_size.autoscalers.model import Obstacle
from cotenant.scheduler_ext.cluster_size.machines.bills import NO_SHAPES, BatchAlone, Bill, four_bills
from cotenant.scheduler_ext.cluster_size.machines.mix import Mix
from cotenant.scheduler_ext.cluster_size.model import (
    ClusterSize,
    LeavingNode,
    RequestLevel,
    Stay,
    StayingNode,
    further_count,
)
from cotenant.scheduler_ext.cluster_size.prices import NodePrices
from cotenant.scheduler_ext.cluster_size.steps import SizeStep, steps_note

REPORT: Final = "cluster-size"  # name of the stored document, a SizeReport
NEVER: Final = "the number of removable nodes was never computed"
FIX: Final = "Run `cotenant size`."
COMPUTING: Final = "the number of removable nodes is being computed"
LATER: Final = "Try again in a minute."
HIDDEN: Final = "a pod of a namespace that you may not read"
HIDDEN_SETTING: Final = "not shown"


def mix_sentence(mix: Mix | None, currency: str) -> str:
    """Return a sentence about the cheapest mix found, and how far from the optimum it may be; "" without a mix."""
    if mix is None:
        return ""
    if mix.reason or mix.price_month is None:
        return f"No mix of machine types: {mix.reason}{f' (pod {mix.pod})' if mix.pod else ''}"
    kept_text = f", of which {agree(len(mix.kept), 'stays', 'stay')}" if mix.kept else ""
    bound = f"; the lowest possible price is not known: {mix.bound_reason}" if mix.bound_reason else ""
    if mix.price_by_bound is not None:
        bound = f", {mix.price_by_bound:.2f} x the lowest possible price ({money(mix.bound_month, currency)})"
    price = money(mix.price_month, currency)
    missing = f" ({mix.unpriced:,} of them without a price)" if mix.unpriced else ""
    return f"Cheapest mix found: {counted(mix.nodes, 'node')}{kept_text}{missing}, {price} a month{bound}"


def bill_sentence(bills: Sequence[Bill], currency: str) -> str:
    """Return the four monthly bills in one sentence; "" if none of them has a mix of machine types."""
    priced = [f"{bill.name} {money(bill.price_month, currency)}" for bill in bills if bill.price_month is not None]
    has_mix = any(bill.bound_month is not None for bill in bills)
    return f"Monthly cost: {', '.join(priced)}" if has_mix and priced else ""


def batch_sentence(batch: BatchAlone, currency: str) -> str:
    """Return a sentence about the cost of batch work on nodes of its own; "" if no batch pods run."""
    if not batch.pods:
        return ""
    who = agree(batch.pods, "pod that requests", "pods that request")
    amounts = f"{cores(batch.millicores)} cores, {gib(batch.memory_bytes)}"
    start = f"Batch work, counted separately: {who} {amounts}"
    if batch.mix is None or batch.price_month is None:
        return f"{start}; the price of separate nodes is unknown: {batch.mix.reason if batch.mix else ''}"
    where = f"on {counted(batch.mix.nodes, 'separate node')}"
    return f"{start}; {where}, batch would cost {money(batch.price_month, currency)} a month"


@dataclass(frozen=True, slots=True)
class PeakUse:
    """The usage of all pods at the peak `name`, in millicores and bytes; `reason` says why it is unknown, else ""."""

    name: str
    cpu: float | None = None
    memory: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SizedLevel:
    """The removable nodes with one level of requests; if `size` is None, `reason` says why.

    The pods need at least `bound` nodes, even without a reserve; if it is None, `bound_reason` says why.
    """

    level: RequestLevel
    size: ClusterSize | None = None
    reason: str = ""
    bound: int | None = None
    bound_reason: str = ""
    steps: tuple[SizeStep, ...] = ()  # the way there; none where no node could leave
    mix: Mix | None = None  # the cheapest mix of machine types that was found; None where no list of them was given
    beside_batch: int | None = None
    """Nodes that could leave while today's batch pods stay where they are; None if no batch pod prevents any."""

    @property
    def kept_by_bound(self) -> float | None:
        """Number of nodes kept, as a multiple of the lower bound."""
        return len(self.size.staying) / self.bound if self.size is not None and self.bound else None


@dataclass(frozen=True, slots=True)
class SizeReport:
    """The removable nodes of a cluster at every level; `notes` are on unpriced nodes and the busiest moment's pods."""

    cluster: str
    computed_seconds: int
    currency: str
    levels: tuple[SizedLevel, ...]
    peaks: tuple[PeakUse, ...] = ()
    notes: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    autoscaler_notes: tuple[str, ...] = ()  # what autoscalers do by themselves, and what of them could not be read
    batch: BatchAlone = field(default_factory=BatchAlone)
    machine_notes: tuple[str, ...] = ()  # machine types of the list that are left out, and why

    def at(self, level: RequestLevel) -> SizedLevel:
        """Return the result at a level of requests; its `size` is None if the level was not computed."""
        sized_level = next((sized for sized in self.levels if sized.level is level), None)
        return sized_level or SizedLevel(level, reason="the cluster size was not computed")

    @property
    def gaps(self) -> tuple[str, ...]:
        """Sentences about what could not be read, without duplicates."""
        return tuple(dict.fromkeys(gap for sized in self.levels if sized.size for gap in sized.size.gaps))


def with_prices(size: ClusterSize, prices: NodePrices) -> ClusterSize:
    """Return the computed size with the monthly price of every node that has one."""
    return replace(
        size,
        leaving=tuple(replace(node, price_month=prices.monthly.get(node.name)) for node in size.leaving),
        staying=tuple(replace(node, price_month=prices.monthly.get(node.name)) for node in size.staying),
    )


def worth_of(size: ClusterSize, currency: str) -> str:
    """Return the monthly cost of the removable nodes, or their cores if none has a price; "" if there are none."""
    if not size.leaving:
        return ""
    if size.price_month is None:
        return f"{cores(size.freed_millicores)} cores"
    missing = f", {size.unpriced_count} of them without a price" if size.unpriced_count else ""
    return f"{money(size.price_month, currency)} a month{missing}"


def short_sentence(report: SizeReport, level: RequestLevel) -> str:
    """Return "9 of 60 nodes could leave now, 1 more after the ready steps"; "" if the level was not computed.

    The second number is left out for level `now`. If the number for `now` is unknown, only that of `level` is given.
    """
    now, size = report.at(RequestLevel.NOW).size, report.at(level).size
    if size is None:
        return ""
    if now is None:
        return f"{tables.count_text(size)} could leave {level_words(level)}"
    further = further_count(now, size)
    more = f"{abs(further)} {'more' if further > 0 else 'fewer'}" if further else "no more"
    then = "" if level is RequestLevel.NOW else f", {more} {level_words(level)}"
    return f"{tables.count_text(now)} could leave now{then}"


def batch_condition(sized: SizedLevel) -> str:
    """Return as text the numbers of removable nodes with batch pods on lent capacity and in place; "" if equal."""
    if sized.size is None or sized.beside_batch is None:
        return ""
    size_text = f"{tables.count_text(sized.size)} if batch work runs on capacity that the other pods lend"
    return f"{size_text}; {sized.beside_batch} if today's batch pods stay where they are"


def best_known(report: SizeReport) -> RequestLevel | None:
    """Return the level to show first: READY if it was computed, else NOW; None if neither was."""
    return next((level for level in (RequestLevel.READY, RequestLevel.NOW) if report.at(level).size is not None), None)


def level_sentences(report: SizeReport) -> list[str]:
    """Return one sentence per `RequestLevel`: the number of removable nodes, or why that number is not known."""
    sentences = []
    for sized in report.levels:
        when = level_words(sized.level)
        if sized.size is None:
            sentences.append(f"It is not known which nodes could leave {when}: {sized.reason}")
        else:
            worth = worth_of(sized.size, report.currency)
            sentences.append(f"{tables.count_text(sized.size)} could leave {when}{f' ({worth})' if worth else ''}")
    return sentences


def level_words(level: RequestLevel) -> str:
    """Return the level within a sentence: its value, but "with requests as they are" for "now"."""
    return "with requests as they are" if level is RequestLevel.NOW else level.value


def bound_sentence(sized: SizedLevel) -> str:
    """Return a sentence that compares the number of kept nodes with its lower bound; "" without a computed size."""
    if sized.size is None:
        return ""
    if sized.kept_by_bound is None:
        return f"The lowest possible number of nodes is not known: {sized.bound_reason}"
    kept_text = counted(len(sized.size.staying), "node")
    return f"{kept_text} kept, {bound_text(sized)} the fewest possible ({sized.bound})"


def bound_text(sized: SizedLevel) -> str:
    """Return the number of kept nodes as a multiple of the lower bound, "1.05 x"; "" without a bound."""
    return "" if sized.kept_by_bound is None else f"{sized.kept_by_bound:.2f} x"


def month_text(size: ClusterSize, currency: str) -> str:
    """Return the removable nodes' monthly price, such as "1,240 USD a month"; "" if none of them has a price."""
    return "" if size.price_month is None else f"{money(size.price_month, currency)} a month"


def peak_sentences(report: SizeReport, size: ClusterSize) -> list[str]:
    """Return sentences on the pods' usage at each peak, compared with the capacity of the kept nodes."""
    sentences = []
    for peak in report.peaks:
        parts = []
        if peak.cpu is not None:
            parts.append(f"{cores(peak.cpu)} of {cores(size.kept_millicores)} cores")
        if peak.memory is not None:
            parts.append(f"{gib(peak.memory)} of {gib(size.kept_bytes)}")
        use_text = f"the pods use {', '.join(parts)} that the kept nodes have" if parts else peak.reason
        sentences.append(f"At {peak.name} {use_text}" if parts else f"{peak.name}: {use_text}")
    return sentences


def fits_at_peaks(report: SizeReport, size: ClusterSize) -> bool | None:
    """Return whether the kept nodes hold the pods' usage at every known peak; None if no peak is known."""
    used = [(peak.cpu or 0.0, peak.memory or 0.0) for peak in report.peaks if not peak.reason]
    if not used:
        return None
    return all(cpu <= size.kept_millicores and memory <= size.kept_bytes for cpu, memory in used)


def report_document(report: SizeReport) -> dict[str, Any]:
    """Return the totals of every level as plain data; `level_document` has the rows of nodes."""
    batch = report.batch
    mix = batch.mix
    return {
        "cluster": report.cluster,
        "computed_seconds": report.computed_seconds,
        "currency": report.currency,
        "notes": list(report.notes),
        "autoscalers": list(report.autoscaler_notes),
        "machine_types": list(report.machine_notes),
        "batch_on_lent_capacity": {
            "pods": batch.pods,
            "cpu_millicores": batch.millicores,
            "memory_bytes": batch.memory_bytes,
            "nodes_of_its_own": mix.nodes if mix and not mix.reason else None,
            "price_month": batch.price_month,
            "reason": mix.reason if mix else "",
        },
        "peaks": [
            {"peak": peak.name, "cpu_millicores": peak.cpu, "memory_bytes": peak.memory, "reason": peak.reason}
            for peak in report.peaks
        ],
        "levels": [_totals(report, sized) for sized in report.levels],
    }


def level_document(report: SizeReport, level: RequestLevel) -> dict[str, Any]:
    """Return one level as plain data, with the rows of its nodes and moves."""
    sized = report.at(level)
    rows = {name: list(table.rows()) for name, table in tables_of(report, sized).items()}
    return {**_totals(report, sized), **rows}


def tables_of(report: SizeReport, sized: SizedLevel) -> dict[str, Table]:
    """Return the tables of a level by name, as in `--show`; empty if the level was not computed."""
    size = sized.size
    if size is None:
        return {}
    return {
        "nodes": tables.node_table(size),
        "moves": tables.move_table(size),
        "steps": tables.step_table(sized.steps),
        "obstacles": tables.obstacle_table(report.obstacles, size),
        "mix": tables.mix_table(sized.mix),
        "bills": tables.bill_table(bills_of(report, sized.level)),
    }


def _totals(report: SizeReport, sized: SizedLevel) -> dict[str, Any]:
    return {
        "level": sized.level.value,
        "sentence": short_sentence(report, sized.level),
        "nodes_that_could_leave_beside_batch": sized.beside_batch,
        "reason": sized.reason,
        "lower_bound_nodes": sized.bound,
        "lower_bound_reason": sized.bound_reason,
        "kept_by_bound": sized.kept_by_bound,
        "mix_month": sized.mix.price_month if sized.mix else None,
        "mix_lower_bound_month": sized.mix.bound_month if sized.mix else None,
        "mix_reason": sized.mix.reason if sized.mix else NO_SHAPES,
        "peaks_fit": fits_at_peaks(report, sized.size) if sized.size is not None else None,
        "summary": tables.summary_of(sized.size) if sized.size is not None else None,
    }


def sentences_of(report: SizeReport, level: RequestLevel) -> list[str]:
    """Return all sentences that are shown about one level."""
    sized = report.at(level)
    if sized.size is None:
        return [sized.reason]
    lines = [tables.headline_of(sized.size, report.currency), batch_condition(sized), bound_sentence(sized)]
    lines += peak_sentences(report, sized.size)
    lines += [mix_sentence(sized.mix, report.currency), bill_sentence(bills_of(report, level), report.currency)]
    lines += [batch_sentence(report.batch, report.currency), *report.machine_notes, *tables.notes_of(sized.size)]
    lines += [*report.notes, steps_note(sized.steps), obstacle_sentence(report, sized.size)]
    return [line for line in lines if line]


def bills_of(report: SizeReport, level: RequestLevel) -> tuple[Bill, ...]:
    """Return the four monthly bills; right-sizing uses the recommended requests of `level`, of READY if it is NOW."""
    later = RequestLevel.READY if level is RequestLevel.NOW else level
    return four_bills(report.at(RequestLevel.NOW), report.at(later))


def obstacle_sentence(report: SizeReport, size: ClusterSize) -> str:
    """Return a sentence with the number of settings that keep nodes, and how many concern removable nodes, or ""."""
    if not report.obstacles:
        return ""
    leaving = {node.name for node in size.leaving}
    near = [obstacle for obstacle in report.obstacles if obstacle.nodes is None or leaving.intersection(obstacle.nodes)]
    count = len(report.obstacles)
    return (
        f"{agree(count, 'setting keeps', 'settings keep')} autoscalers from removing nodes, "
        f"{len(near):,} of the settings concern nodes that could leave"
    )


def narrow_report(report: SizeReport, namespaces: Iterable[str]) -> SizeReport:
    """Return the report for a reader who may see only these namespaces: pods of other namespaces are not named."""
    allowed = frozenset(namespaces)
    levels = [
        replace(
            sized, size=_narrow_size(sized.size, allowed) if sized.size else None, mix=_narrow_mix(sized.mix, allowed)
        )
        for sized in report.levels
    ]
    obstacles = [
        obstacle
        if not obstacle.namespace or obstacle.namespace in allowed
        else replace(obstacle, object=HIDDEN, setting=HIDDEN_SETTING)
        for obstacle in report.obstacles
    ]
    batch = replace(report.batch, mix=_narrow_mix(report.batch.mix, allowed))
    return replace(report, levels=tuple(levels), obstacles=tuple(obstacles), batch=batch)


def _narrow_mix(mix: Mix | None, allowed: frozenset[str]) -> Mix | None:
    hides = mix is not None and mix.pod and mix.pod.partition("/")[0] not in allowed
    return replace(mix, pod=HIDDEN) if mix is not None and hides else mix


def _narrow_size(size: ClusterSize, allowed: frozenset[str]) -> ClusterSize:
    def narrow_leaving(node: LeavingNode) -> LeavingNode:
        return replace(node, places=tuple(place for place in node.places if place.pod.partition("/")[0] in allowed))

    def narrow_staying(node: StayingNode) -> StayingNode:
        hides = node.stay.pod and node.stay.pod.partition("/")[0] not in allowed
        return replace(node, stay=Stay(node.stay.reason, HIDDEN)) if hides else node

    return replace(
        size,
        leaving=tuple(map(narrow_leaving, size.leaving)),
        staying=tuple(map(narrow_staying, size.staying)),
        waiting=tuple(pod for pod in size.waiting if pod.partition("/")[0] in allowed),
    )
