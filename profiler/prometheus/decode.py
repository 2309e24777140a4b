"""Decodes answers into usage matrices and counts every defect. Pure.

Two steps: `samples` reads JSON into one matrix of raw series; `usages` identifies each series, scales it, and joins
duplicates. Values are converted one series at a time: msgspec reads them more than twice as fast as numpy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.base.errors import SourceProtocol
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import FloatMatrix, Signal, TimeGrid, Usage
from cotenant.profiler.prometheus.clusters import host_of
from cotenant.profiler.prometheus.parts import (
    GPU_RESOURCES,
    LIMITS,
    MIG_RESOURCE,
    OOM,
    REQUESTS,
    RESTARTS,
    TERMINATED,
    PartKind,
    QueryPart,
    of_any,
)
from cotenant.profiler.prometheus.plan import RangeQuery

Floats = npt.NDArray[np.float64]
Ref = PodContainerRef | NodeRef
_BATCH: Final = 64
"""Series read together: enough for numpy, few enough that working memory stays far below the answer's."""
_PAIRS: Final = msgspec.json.Decoder(list[tuple[float, float]], strict=False)
"""Not strict: values are numbers in quotes."""
_LARGEST: Final = float(np.finfo(np.float32).max) / 1000.0
"""What float32 can hold after cores have become millicores."""


class Labels(msgspec.Struct, frozen=True):
    """The labels of a series that cotenant uses; all other labels are skipped while decoding."""

    name: str = msgspec.field(name="__name__", default="")
    part: str = msgspec.field(name="cotenant_part", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""
    instance: str = ""
    uid: str = ""
    cgroup: str = msgspec.field(name="id", default="")
    resource: str = ""
    job: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""
    exported_container: str = ""
    hostname: str = msgspec.field(name="Hostname", default="")
    uuid: str = msgspec.field(name="UUID", default="")
    gpu: str = ""
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")

    @property
    def of_device(self) -> tuple[str, ...]:
        """The GPU or MIG instance that the series describes."""
        return (self.uuid or f"{self.hostname}/{self.gpu}", self.gpu_instance)

    @property
    def of_container(self) -> PodContainerRef:
        """The container that the series describes; without honor_labels, it is named by the labels `exported_...`."""
        return PodContainerRef(
            self.exported_namespace or self.namespace,
            self.exported_pod or self.pod,
            self.exported_container or self.container,
        )


class _LabelledSeries(msgspec.Struct, frozen=True):
    metric: Labels
    values: msgspec.Raw


class _Described(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: msgspec.Raw


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Raw series of one answer; `values` has a row per series and a column per evaluation time, NaN if missing."""

    labels: tuple[Labels, ...]
    values: Floats
    defects: Mapping[Defect, int]
    count: int


def samples(result: msgspec.Raw, query: RangeQuery) -> Samples:
    """Decode the answer to a usage query; raise SourceProtocol if it is not a matrix on the queried grid."""
    series = _decode_answer(result, list[_LabelledSeries])
    values = np.full((len(series), query.grid.size + query.lead), np.nan)
    defects: Counter[Defect] = Counter()
    count = 0
    for start in range(0, len(series), _BATCH):
        pairs = [_pairs(s.values) for s in series[start : start + _BATCH]]
        count += sum(map(len, pairs))
        defects += _write_series_rows(pairs, query, values[start : start + _BATCH])
    return Samples(tuple(s.metric for s in series), values, defects, count)


def _write_series_rows(pairs: list[Floats], query: RangeQuery, values: Floats) -> Counter[Defect]:
    """Write each series' values into its row of the grid; return counts of the defects.

    Of a repeated time, as when Cortex' query frontend joined two cached answers, the last value counts.
    """
    rows = np.repeat(np.arange(len(pairs)), [len(p) for p in pairs])
    times, numbers = np.concatenate(pairs).T
    step = query.grid.step_seconds
    exact = (times - query.first_seconds) / step
    nearest = np.rint(exact)
    with np.errstate(invalid="ignore"):  # a time that is NaN or infinite is none of those
        # A value beyond float32 counts as infinite: NaN and infinity are quotients of recording rules
        finite, negative = np.abs(numbers) <= _LARGEST, numbers < 0
        is_on_grid = (np.abs(exact - nearest) * step <= 0.5) & (nearest >= 0) & (nearest < values.shape[1])
    if not is_on_grid.all():
        raise SourceProtocol(f"the metric source answered for {times[~is_on_grid][0]:.3f}, a time not requested")
    good, repeated = finite & ~negative, (rows[1:] == rows[:-1]) & (np.diff(nearest) == 0)
    values[rows[good], nearest[good].astype(np.intp)] = numbers[good]
    counted = {Defect.NOT_FINITE: ~finite, Defect.NEGATIVE: negative & finite, Defect.REPEATED_SAMPLE: repeated}
    return Counter({defect: int(which.sum()) for defect, which in counted.items()})


def decode_series(result: msgspec.Raw) -> list[tuple[dict[str, str], Floats]]:
    """Return series of a small answer with all labels and finite values, oldest first; skip empty series."""
    series = [(s.metric, _pairs(s.values)[:, 1]) for s in _decode_answer(result, list[_Described])]
    finite = ((labels, values[np.abs(values) <= _LARGEST]) for labels, values in series)
    return [(labels, values) for labels, values in finite if values.size]


def decode_timed_series(result: msgspec.Raw) -> list[tuple[dict[str, str], Floats, Floats]]:
    """Return series of a small answer: all labels, the times of the values, and the values, oldest first."""
    series = [(s.metric, _pairs(s.values)) for s in _decode_answer(result, list[_Described])]
    return [(labels, pairs[:, 0], pairs[:, 1]) for labels, pairs in series]


def latest(result: msgspec.Raw) -> list[tuple[dict[str, str], float]]:
    """Return series of a small answer with all labels and their newest value, even if infinite or NaN."""
    series = [(s.metric, _pairs(s.values)[:, 1]) for s in _decode_answer(result, list[_Described])]
    return [(labels, float(values[-1])) for labels, values in series if values.size]


def raw_values(result: msgspec.Raw) -> list[tuple[Labels, Floats]]:
    """Return series with the labels that cotenant uses and their finite values, without times."""
    series = [(s.metric, _pairs(s.values)[:, 1]) for s in _decode_answer(result, list[_LabelledSeries])]
    return [(labels, values[np.isfinite(values)]) for labels, values in series]


def label_sets(data: msgspec.Raw) -> list[dict[str, str]]:
    """Decode the answer of the series endpoint into label sets."""
    return _decode_answer(data, list[dict[str, str]])


def texts(data: msgspec.Raw) -> list[str]:
    """Decode the answer of the label values endpoint into the values."""
    return _decode_answer(data, list[str])


def _decode_answer(raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNDECODABLE as error:
        raise SourceProtocol(f"the metric source's answer does not match the query: {error}") from error


def _pairs(raw: msgspec.Raw) -> Floats:
    """Return (time, value) rows of one series from `[[1,"2"],[3,"4"]]`, with NaN and +Inf as Prometheus writes them."""
    text = bytes(raw).replace(b'"+Inf"', b'"Inf"')  # the one form that msgspec does not read
    try:
        pairs = _PAIRS.decode(text)
    except UNDECODABLE as error:
        raise SourceProtocol(f"the metric source's samples are not pairs of numbers: {text[:80]!r}") from error
    return np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs)).reshape(-1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class SignalUsage:
    """Usage of one signal, and the references that had several series."""

    signal: Signal
    usage: Usage[Any]
    duplicates: frozenset[Ref]


def usages(query: RangeQuery, samples: Samples, node_names: Mapping[str, str], overlap_slots: int) -> list[SignalUsage]:
    """Return the usage of every signal of the query on the query's time grid, rows sorted by reference.

    `node_names` maps addresses to nodes, for series that name a node by its address. `overlap_slots` is for how long a
    restarted container's old and new series may overlap without counting as duplicates.
    """
    parts = {part.name: part for part in query.parts}
    only = query.parts[0] if len(parts) == 1 else None
    of_part: dict[str, list[int]] = {}
    for row, labels in enumerate(samples.labels):
        of_part.setdefault(only.name if only else labels.part, []).append(row)
    out: list[SignalUsage] = []
    for name, part in parts.items():
        rows = of_part.get(name, [])
        block = _Block([samples.labels[r] for r in rows], samples.values[rows], query, overlap_slots)
        out.extend(_READERS[part.kind](part, block, node_names))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    labels: list[Labels]
    values: Floats
    query: RangeQuery
    overlap_slots: int

    @property
    def slots(self) -> Floats:
        """Values without the evaluation before the first slot."""
        return self.values[:, self.query.lead :]

    def take(self, rows: list[int], values: Floats) -> _Block:
        return _Block([self.labels[r] for r in rows], values, self.query, self.overlap_slots)


def _read_container(part: QueryPart, block: _Block, _: Mapping[str, str]) -> list[SignalUsage]:
    return [_merge_series(part.signals[0], block, block.slots * part.scale, (x.of_container for x in block.labels))]


def _read_node(part: QueryPart, block: _Block, node_names: Mapping[str, str]) -> list[SignalUsage]:
    def node(labels: Labels) -> NodeRef:
        host = host_of(labels.instance)
        return NodeRef(labels.node or node_names.get(host, host))

    return [_merge_series(part.signals[0], block, block.slots * part.scale, map(node, block.labels))]


def _read_device(part: QueryPart, block: _Block, _: Mapping[str, str]) -> list[SignalUsage]:
    """Return a container's sum over devices; of several series of one device, as after a restart, the highest.

    Without honor_labels a device that no container uses has only the exporter's labels; it is left out as soon as any
    series shows that honor_labels is off.
    """
    exported = any(labels.exported_pod for labels in block.labels)
    rows = [i for i, x in enumerate(block.labels) if (x.exported_pod if exported else x.of_container.container)]
    per_device: dict[tuple[PodContainerRef, tuple[str, ...]], Floats] = {}
    for row in rows:
        key = (block.labels[row].of_container, block.labels[row].of_device)
        values = block.slots[row] * part.scale
        per_device[key] = np.fmax(per_device[key], values) if key in per_device else values
    rows_of = ((ref, values) for (ref, _device), values in per_device.items())
    return [SignalUsage(part.signals[0], _sum_rows(part.signals[0], rows_of, block.query.grid), frozenset())]


def _sum_rows(signal: Signal, rows: Iterable[tuple[Ref, Floats]], grid: TimeGrid) -> Usage[Any]:
    """Return one row per reference: the sum of its rows that have a value."""
    sums: dict[Ref, Floats] = {}
    for ref, b in rows:
        a = sums.get(ref)
        sums[ref] = b if a is None else np.where(np.isnan(a), b, np.where(np.isnan(b), a, a + b))
    refs = tuple(sorted(sums))
    return _usage(signal, refs, grid, np.array([sums[ref] for ref in refs]).reshape(len(refs), grid.size))


_SIDES: Final = {
    (REQUESTS, "cpu"): (Signal.CPU_REQUEST, 1000.0),
    (LIMITS, "cpu"): (Signal.CPU_LIMIT, 1000.0),
    (REQUESTS, "memory"): (Signal.MEMORY_REQUEST, 1.0),
    (LIMITS, "memory"): (Signal.MEMORY_LIMIT, 1.0),
}


def _amounts_of(labels: Labels) -> Mapping[Signal, float]:
    """Return the signals of a series of requests or limits, each with the factor to its unit."""
    metric, resource = of_any(labels.name), labels.resource
    if (metric, resource) in _SIDES:
        signal, scale = _SIDES[metric, resource]
        return {signal: scale}
    if metric != REQUESTS:
        return {}
    if resource.startswith(MIG_RESOURCE):
        return {Signal.GPU_INSTANCE_REQUEST: 100.0}
    return GPU_RESOURCES.get(resource, {})


def _read_gauges(part: QueryPart, block: _Block, _: Mapping[str, str]) -> list[SignalUsage]:
    scales = [_amounts_of(labels) for labels in block.labels]

    def amounts(signal: Signal, rows: list[int]) -> SignalUsage:
        chosen = block.take(rows, block.values[rows])
        values = chosen.slots * np.array([scales[i][signal] for i in rows]).reshape(-1, 1)
        return _merge_series(signal, chosen, values, (x.of_container for x in chosen.labels))

    out = []
    for signal in part.signals:
        rows = [i for i, factors in enumerate(scales) if signal in factors]
        of_resource: dict[str, list[int]] = {}
        for row in rows:  # MIG profiles are requested side by side; other amounts are written in one way or another
            name = block.labels[row].resource if signal is Signal.GPU_INSTANCE_REQUEST else ""
            of_resource.setdefault(name, []).append(row)
        parts = [amounts(signal, own) for own in of_resource.values() or [[]]]
        if len(parts) == 1:
            out.append(parts[0])
            continue
        each = (row for p in parts for row in zip(p.usage.refs, p.usage.values, strict=True))
        twice = frozenset[Ref]().union(*(p.duplicates for p in parts))
        out.append(SignalUsage(signal, _sum_rows(signal, each, block.query.grid), twice))
    return out


class _CounterOwner(NamedTuple):
    """The owner of a counter: a container of one pod, whatever other pod has its name; for a kubelet one run of it."""

    container: PodContainerRef
    uid: str
    cgroup: str


def _read_counters(_: QueryPart, block: _Block, __: Mapping[str, str]) -> list[SignalUsage]:
    """Return restarts, which are steps of the counter, and OOM kills: restarts for that reason, or kubelet steps."""
    restarts, reasons = _steps(_join_counters(block, RESTARTS)), _join_counters(block, TERMINATED)
    never = np.full(block.values.shape[1], np.nan)
    by_reason = {
        counted: np.where(reasons.get(counted, never)[block.query.lead :] > 0, row, np.where(np.isnan(row), np.nan, 0))
        for counted, row in restarts.items()
    }
    kills_told, kills_seen = (
        _by_container(Signal.OOM_KILLS, rows, block) for rows in (by_reason, _steps(_join_counters(block, OOM)))
    )
    kills = _merge_series(
        Signal.OOM_KILLS,
        block,
        np.concatenate([kills_told.values, kills_seen.values]),
        [*kills_told.refs, *kills_seen.refs],
    )
    return [
        SignalUsage(Signal.OOM_KILLS, kills.usage, frozenset()),
        SignalUsage(Signal.RESTARTS, _by_container(Signal.RESTARTS, restarts, block), frozenset()),
    ]


def _join_counters(block: _Block, metric: str) -> dict[_CounterOwner, Floats]:
    """Return the metric's counters by owner: of several series of one, the highest value at each evaluation.

    They are joined before steps are computed: the series of a new exporter instance continues the old one's count.
    """
    joined: dict[_CounterOwner, Floats] = {}
    for labels, values in zip(block.labels, block.values, strict=True):
        if of_any(labels.name) == metric:
            counted = _CounterOwner(labels.of_container, labels.uid, labels.cgroup)
            joined[counted] = np.fmax(joined[counted], values) if counted in joined else values
    return joined


def _steps(counters: Mapping[_CounterOwner, Floats]) -> dict[_CounterOwner, Floats]:
    return dict(zip(counters, increases(np.array(list(counters.values()))), strict=True)) if counters else {}


def _by_container(signal: Signal, rows: Mapping[_CounterOwner, Floats], block: _Block) -> Usage[Any]:
    """Return each container's steps, summed over pods with the same name and runs of the container."""
    return _sum_rows(signal, ((counted.container, row) for counted, row in rows.items()), block.query.grid)


_READERS: Final[dict[PartKind, Callable[[QueryPart, _Block, Mapping[str, str]], list[SignalUsage]]]] = {
    PartKind.CONTAINER: _read_container,
    PartKind.NODE: _read_node,
    PartKind.GAUGES: _read_gauges,
    PartKind.COUNTERS: _read_counters,
    PartKind.DEVICE: _read_device,
}


def increases(counters: Floats) -> Floats:
    """Return the increases between samples of counters, from (n, T + 1) to (n, T): exact, unlike PromQL's increase().

    A smaller value is a reset: the increase is the new value. A counter that returns after a gap counts from its last
    value. A new counter counts from zero; but if no counter has a sample one step earlier (the history starts), its
    increase is 0. Each row combines all series of one counter (`_join_counters`).
    """
    present = ~np.isnan(counters)
    position = np.where(present, np.arange(counters.shape[1]), 0)
    filled = np.take_along_axis(counters, np.maximum.accumulate(position, axis=1), axis=1)
    before, now = filled[:, :-1], counters[:, 1:]
    begins = np.isnan(before) & ~present[:, :-1].any(axis=0)
    base = np.where(begins, now, np.where(np.isnan(before) | (now < before), 0.0, before))
    return now - base


def _merge_series(signal: Signal, block: _Block, values: Floats, refs: Iterable[Ref]) -> SignalUsage:
    """Return one row per reference: the maximum of its series."""
    series_refs = list(refs)
    order = sorted(set(series_refs))
    row = {ref: i for i, ref in enumerate(order)}
    target = np.fromiter((row[ref] for ref in series_refs), dtype=np.intp, count=len(series_refs))
    joined = np.full((len(order), block.query.grid.size), np.nan)
    np.fmax.at(joined, target, values)
    twice = np.bincount(target, minlength=len(order)) > 1
    duplicates = [
        int(r)
        for r in np.flatnonzero(twice)
        if ((~np.isnan(values[target == r])).sum(axis=0) > 1).sum() > block.overlap_slots
    ]
    usage = _usage(signal, tuple(order), block.query.grid, joined)
    return SignalUsage(signal, usage, frozenset(order[i] for i in duplicates))


def _usage(signal: Signal, refs: tuple[Ref, ...], grid: TimeGrid, values: Floats | FloatMatrix) -> Usage[Any]:
    spec = signal.spec
    return Usage(refs, grid, np.ascontiguousarray(values, dtype=np.float32), spec.resource, spec.statistic)


class _SeriesValues(msgspec.Struct):
    values: list[tuple[float, str]] = []


def decode_single_series(
    answer: msgspec.Raw, start_seconds: int, end_seconds: int, step_seconds: int
) -> tuple[float | None, ...]:
    """Return the only series of a range query's answer, one value per step; None for a missing or non-finite value.

    Raise SourceProtocol if the answer has several series.
    """
    lines = msgspec.json.decode(answer, type=list[_SeriesValues])
    if len(lines) > 1:
        raise SourceProtocol(f"the query gives {len(lines)} series, one is needed", fix="Aggregate: max(...).")
    samples = {int(moment): float(text) for moment, text in (lines[0].values if lines else [])}
    finite = {moment: value for moment, value in samples.items() if math.isfinite(value)}
    return tuple(finite.get(moment) for moment in range(start_seconds, end_seconds + 1, step_seconds))
