"""Keeps recommendations and findings for the next analysis: results that are still valid are not computed again.

A recommendation is based on weeks, and most hours change nothing. Each analysis therefore stores the inputs of a
workload's evaluation, and the next one keeps the result while these are unchanged and no container used more than
before, for at most half a day (`renew_hours`) and a share of the history behind it. There is one block of numbers per
shard; the recommendations themselves are read from where `cotenant explain` finds them. Data that cannot be read, or
were stored with other settings, are ignored.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from cotenant.base.cluster import Inventory, LimitRange, Quota
from cotenant.base.errors import StoreError
from cotenant.base.identity import ContainerRef, PodContainerRef, WorkloadRef
from cotenant.base.inventory.partial_inventory import unmeasured_pods
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.resource import Resource
from cotenant.base.settings.base import digest
from cotenant.base.severity import Severity
from cotenant.base.store import Store
from cotenant.base.usage.lives import MEASURED
from cotenant.base.usage.plausible import largest_use
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import HOUR_SECONDS, Signal
from cotenant.base.version import __version__
from cotenant.pipeline.analysis import Floats, History, Judgements, Numbers
from cotenant.pipeline.containers import ContainerResults
from cotenant.pipeline.shards import recommendation_rows
from cotenant.recommender import stored_recommendations
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.strategies.cotenant.daemons import LABELS
from cotenant.settings import Settings

FOLDER: Final = "judged-workloads"
_FINDINGS: Final = "-findings"
_FORM: Final = "4"
"""Increases whenever the stored notes, or their storage, change their meaning."""
LEAST_SHARE: Final = 24
"""A result is kept for a 24th of the span of history behind it: an hour after one day, half a day after twelve days."""
LATE_SECONDS: Final = HOUR_SECONDS
"""Samples with this delay are still processed."""
_COLUMNS: Final = ("names", "facts", "begin_seconds", "end_seconds", "highest")
Usages = Mapping[Signal, SparseUsage[PodContainerRef]]


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """All n containers of a shard that are known or left usage, with the inputs on which their results depend.

    `workloads`, (n,), is the position of each container's workload in the inventory; `facts`, (n,), is a digest of that
    workload except its usage. `rows` has by signal the index of each series' container, -1 if its pod is unknown.
    """

    refs: tuple[ContainerRef, ...]
    workloads: npt.NDArray[np.int64]
    facts: Numbers
    rows: Mapping[Signal, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, inventory: Inventory, usage: Usages, deleted: Collection[WorkloadRef]) -> Containers:
        """Return the containers of the inventory's workloads, and those that have series of the workloads' pods."""
        numbers = {workload.ref: number for number, workload in enumerate(inventory.workloads)}
        owners = {pod: numbers[ref] for pod, ref in inventory.owners().items() if ref in numbers}
        place: dict[tuple[int, str], int] = {}
        for number, workload in enumerate(inventory.workloads):
            for container in workload.containers:
                place.setdefault((number, container.name), len(place))

        def found(series: PodContainerRef) -> int:
            number = owners.get((series.namespace, series.pod))
            return -1 if number is None else place.setdefault((number, series.container), len(place))

        rows: dict[Signal, npt.NDArray[np.int64]] = {}
        looked_up: dict[int, npt.NDArray[np.int64]] = {}
        for signal, series in usage.items():
            if id(series.refs) not in looked_up:  # signals of the same series share one tuple
                looked_up[id(series.refs)] = np.array([found(ref) for ref in series.refs], dtype=np.int64)
            rows[signal] = looked_up[id(series.refs)]
        facts = np.array([*_facts(inventory, deleted, usage), 0], dtype=np.uint64)
        workloads = np.array([number for number, _ in place], dtype=np.int64)
        refs = tuple(ContainerRef(inventory.workloads[number].ref, name) for number, name in place)
        return cls(refs, workloads, facts[workloads], rows)

    def others(self, usage: Usages, present: npt.NDArray[np.bool_]) -> Usages:
        """Return only the usage of containers that are not marked in the mask `present`, (n,)."""
        if not present.any():
            return usage
        open_ones = np.append(~present, False)
        return {signal: series.take(np.flatnonzero(open_ones[self.rows[signal]])) for signal, series in usage.items()}

    def noted(self, usage: Usages, basis: str, until_seconds: int) -> Judgements:
        """Return the `Judgements` to store if all containers are evaluated now; their findings are added afterwards."""
        mean, rows = usage[Signal.CPU_USAGE_MEAN], self.rows[Signal.CPU_USAGE_MEAN]
        starts = mean.grid.start_seconds + mean.first * mean.grid.step_seconds
        begin = np.full(int(self.workloads.max(initial=-1)) + 1, until_seconds, dtype=np.int64)
        np.minimum.at(begin, self.workloads[rows[rows >= 0]], starts[rows >= 0])
        return Judgements(
            basis=basis,
            until_seconds=until_seconds,
            names=np.array([_number(str(ref).encode()) for ref in self.refs], dtype=np.uint64),
            facts=self.facts,
            begin_seconds=begin[self.workloads],
            end_seconds=np.full(len(self.refs), until_seconds, dtype=np.int64),
            highest=self.highest({signal: series.highest() for signal, series in usage.items()}),
            findings=(),
        )

    def highest(self, of_series: Mapping[Signal, Floats]) -> npt.NDArray[np.float32]:
        """Return the highest value of each container's series by signal, (n, signals); NaN if none has a value."""
        table = np.full((len(self.refs) + 1, len(of_series)), np.nan, dtype=np.float32)
        for column, (signal, values) in enumerate(of_series.items()):
            np.fmax.at(table[:, column], self.rows[signal], values)  # those of nobody gather in the last row
        return table[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Results of an earlier analysis that are still valid, and the workloads that they are about.

    `rows`, (n,), is the row of each container in the stored judgements; -1 if it has to be evaluated again.
    """

    workloads: frozenset[WorkloadRef]
    results: ContainerResults
    rows: npt.NDArray[np.int64]


def basis(history: History, settings: Settings) -> str:
    """Return a digest of what all results depend on: settings with the window, kinds of nodes, DaemonSet pods, gaps."""
    inventory, quality = history.inventory, history.quality
    prices = settings.recommender.prices
    sheets = (prices.core_hour_by_node_label, prices.gib_hour_by_node_label, prices.gpu_hour_by_node_label)
    labels = {*LABELS, *(key.partition("=")[0] for sheet in sheets for key in sheet)}
    daemons = (pod for pod in inventory.pods if pod.running and pod.workload.kind == "DaemonSet")
    # What matters of a node to workloads that run anywhere: nodes of one kind are alike.
    kinds = (
        (node.capacity, node.allocatable, {name: node.labels[name] for name in labels if name in node.labels})
        for node in inventory.nodes
    )
    parts = (
        *(_FORM, __version__, inventory.server_version),
        *map(digest, (settings.portrait, settings.recommender, settings.actions.guardrails)),
        settings.profiler.window_days,
        round(quality.slowest_seconds) if quality else 0,
        sorted(history.unread_seconds),
        [sorted(names) for names in history.unshown.parted.values()] if history.unshown else [],
        sorted({_encode_deterministic(kind) for kind in kinds}),
        [largest_use(inventory, resource) for resource in Resource],
        sorted({_encode_deterministic((pod.workload, pod.requests)) for pod in daemons}),
        list(history.usage),
    )
    return hashlib.sha256(_encode_deterministic(parts)).hexdigest()[:24]


def reuse_results(
    store: Store, containers: Containers, usage: Usages, before: Judgements | None, now: Judgements, renew_hours: float
) -> Kept:
    """Return the results of an earlier analysis that are still valid and less than `renew_hours` old.

    `before` is the `Judgements` of that analysis, `now` those that an evaluation of all containers would store now.
    """
    rows = _reusable_rows(containers, usage, before, now, renew_hours)
    if before is None or not (rows >= 0).any():
        return Kept(frozenset(), ContainerResults((), ()), np.full(len(rows), -1, dtype=np.int64))
    ends = {ref: int(before.end_seconds[row]) for ref, row in zip(containers.refs, rows.tolist(), strict=True)}
    wanted_ends = {ref: ends[ref] for ref, row in zip(containers.refs, rows.tolist(), strict=True) if row >= 0}
    earlier: dict[ContainerRef, Recommendation] = {}
    try:
        for namespace in dict.fromkeys(ref.workload.namespace for ref in wanted_ends):
            # a namespace may have workloads of many shards: only those of this one are read in full
            for text in store.read_document(stored_recommendations.document_name(namespace), list[msgspec.Raw]) or ():
                address = msgspec.json.decode(text, type=_Address)
                if wanted_ends.get(address.container) == address.end_seconds:
                    earlier[address.container] = msgspec.json.decode(text, type=Recommendation)
    except (StoreError, *UNDECODABLE) as error:
        structlog.get_logger(__name__).info("workloads are judged anew", reason=str(error))
        earlier = {}
    lost = {ref.workload for ref in wanted_ends if ref not in earlier}
    complete = frozenset(ref.workload for ref in wanted_ends) - lost
    rows = np.where([ref.workload in complete for ref in containers.refs], rows, -1)
    recommendations = tuple(earlier[ref] for ref in wanted_ends if ref.workload in complete)
    findings = tuple(finding for finding in before.findings if _workload(finding) in complete)
    return Kept(complete, ContainerResults(recommendations, findings), rows)


def merge_kept_results(
    before: Judgements | None, of: Kept, now: Judgements, anew: Iterable[ClusterFinding]
) -> Judgements:
    """Return the `Judgements` for the next analysis: the old ones for kept containers, the new ones for others."""
    findings = (*of.results.findings, *anew)
    if before is None:
        return replace(now, findings=findings)
    present = of.rows >= 0

    columns: dict[str, Any] = {name: getattr(now, name).copy() for name in _COLUMNS}
    for name, own in columns.items():
        own[present] = getattr(before, name)[of.rows[present]]
    return replace(now, **columns, findings=findings)


def read(store: Store, group: str, basis: str) -> Judgements | None:
    """Return a shard's stored `Judgements` if they have this basis; None if nothing usable is stored."""
    try:
        noted, finding_block = store.read_block(FOLDER, group), store.read_block(FOLDER, f"{group}{_FINDINGS}")
        if noted is None or finding_block is None or noted[1] != finding_block[1] or noted[1]["basis"] != basis:
            return None
        columns, stamp = noted
        findings = tuple(finding_of(text) for text in finding_block[0]["finding"].tolist())
        own: dict[str, Any] = {name: columns[name] for name in _COLUMNS}
        return Judgements(basis, int(stamp["until_seconds"]), **own, findings=findings)
    except (StoreError, KeyError, ValueError, TypeError, *UNDECODABLE) as error:
        structlog.get_logger(__name__).info("workloads are judged anew", group=group, reason=str(error))
        return None


def write(store: Store, group: str, judgements: Judgements) -> None:
    """Store a shard's recommendation rows, then its judgements; rows with another stamp than theirs are not read."""
    store.write_encoded_block(FOLDER, f"{group}{recommendation_rows.SUFFIX}", judgements.rows)
    store.write_block(FOLDER, group, {name: getattr(judgements, name) for name in _COLUMNS}, judgements.stamp)
    texts = np.array([*map(text_of, judgements.findings), None], dtype=object)[:-1]
    store.write_block(FOLDER, f"{group}{_FINDINGS}", {"finding": texts}, judgements.stamp)


def forget(store: Store, groups: Collection[str]) -> None:
    """Remove the stored judgements of shards that are not in `groups`."""
    for name in store.block_names(FOLDER):
        if name.removesuffix(_FINDINGS).removesuffix(recommendation_rows.SUFFIX) not in groups:
            store.remove_result(f"{FOLDER}/{name}.parquet")


def _reusable_rows(
    containers: Containers, usage: Usages, before: Judgements | None, now: Judgements, renew_hours: float
) -> npt.NDArray[np.int64]:
    """Return the row of each container in `before`, (n,); -1 if its workload has to be evaluated again."""
    nowhere = np.full(len(containers.refs), -1, dtype=np.int64)
    if before is None or not len(before.names) or before.highest.shape[1] != len(usage):
        return nowhere
    if now.begin_seconds.min(initial=now.until_seconds) < before.begin_seconds.min():
        return nowhere  # the window reaches further back: means over the whole of it, as of jobs' pods, are others now
    order = np.argsort(before.names)
    rows = order[np.minimum(np.searchsorted(before.names, now.names, sorter=order), len(order) - 1)]
    end, begin = before.end_seconds[rows], before.begin_seconds[rows]
    # not all in one scan: half of the time at least, the rest by the workload
    spread = 0.5 + (now.facts % np.uint64(1024)).astype(np.float64) / 2048
    most_seconds = np.minimum(renew_hours * HOUR_SECONDS, (end - begin) / LEAST_SHARE) * spread
    age = now.until_seconds - end
    since = before.until_seconds - LATE_SECONDS
    newest = containers.highest({signal: _highest_since(series, since) for signal, series in usage.items()})
    holds = (before.names[rows] == now.names) & (before.facts[rows] == now.facts)
    holds &= now.begin_seconds >= begin  # older history that came since, from a source with more of it, was not seen
    holds &= (age >= 0) & (age < most_seconds) & (np.isnan(newest) | (newest <= before.highest[rows])).all(axis=1)
    moved = np.unique(containers.workloads[~holds])
    holds &= ~np.isin(containers.workloads, moved)
    return np.where(holds, rows, nowhere)


class _Address(msgspec.Struct):
    """The container of a stored recommendation, and the end of the history behind it."""

    container: ContainerRef
    end_seconds: int


class _Finding(msgspec.Struct):
    """A finding about a workload or one of its containers, as it is stored."""

    workload: WorkloadRef
    container: str | None
    kind: FindingKind
    severity: Severity
    evidence: dict[str, float | int | str]
    proposal: str
    freed: dict[Resource, int]


def text_of(finding: ClusterFinding) -> str:
    """Return a finding as JSON text, without its money value, which is computed for all findings together."""
    subject, container = _workload(finding), None
    if isinstance(finding.subject, ContainerRef):
        container = finding.subject.container
    plain = _Finding(
        *(subject, container, finding.kind, finding.severity),
        *(dict(finding.evidence), finding.proposal, dict(finding.freed)),
    )
    return msgspec.json.encode(plain, enc_hook=np.generic.item).decode()  # it knows Python's own numbers alone


def finding_of(text: str) -> ClusterFinding:
    """Return the finding of a JSON text from `text_of`; raise msgspec errors for other text."""
    plain = msgspec.json.decode(text, type=_Finding)
    subject = plain.workload if plain.container is None else ContainerRef(plain.workload, plain.container)
    return ClusterFinding(
        plain.kind, subject, plain.severity, plain.evidence, proposal=plain.proposal, freed=plain.freed
    )


def _workload(finding: ClusterFinding) -> WorkloadRef:
    """Return the workload of a shard's finding, which is never about a node."""
    subject = finding.subject.workload if isinstance(finding.subject, ContainerRef) else finding.subject
    assert isinstance(subject, WorkloadRef)
    return subject


def _facts(inventory: Inventory, deleted: Collection[WorkloadRef], usage: Usages) -> Iterator[int]:
    """Yield a digest of all that is known of each workload of the inventory except its usage.

    That a pod has no usage although it could have been measured is such a fact: it changes without new samples.
    """
    owners = inventory.owners()
    about: dict[WorkloadRef, list[bytes]] = defaultdict(list)
    bounds: dict[str, list[bytes]] = defaultdict(list)
    for pod in inventory.pods:
        if pod.running:
            about[pod.workload].append(_encode_deterministic(pod))
    for signal in MEASURED:
        measured = {(ref.namespace, ref.pod) for ref in usage[signal].refs}
        # Start of the last slot with a sample of any series, Unix seconds.
        series = usage[signal]
        last = int((series.first + np.diff(series.bounds)).max(initial=1)) - 1
        for pod in unmeasured_pods(inventory, measured, series.grid.start_seconds + last * series.grid.step_seconds):
            about[pod.workload].append(_encode_deterministic((signal, pod.namespace, pod.name)))
    for event in inventory.events:
        if owner := owners.get((event.subject.namespace, event.subject.pod)):
            about[owner].append(_encode_deterministic(event))
    for row in inventory.pod_rows:
        if owner := owners.get((row.namespace, row.name)):
            about[owner].append(_encode_deterministic((row.namespace, row.name, sorted(row.beyond), row.idle)))
    for history in inventory.vpa_histories:  # what it holds changes every minute, as usage does
        begin = history.container.container, history.autoscaler, history.first_seconds
        about[history.container.workload].append(_encode_deterministic(begin))
    every_bound: tuple[LimitRange | Quota, ...] = (*inventory.limit_ranges, *inventory.quotas)
    for bound in every_bound:
        bounds[bound.namespace].append(_encode_deterministic(bound))
    for workload in inventory.workloads:
        facts: Sequence[bytes] = sorted(about[workload.ref] + bounds[workload.ref.namespace])
        yield _number(_encode_deterministic((workload, workload.ref in deleted, facts)))


def _highest_since(series: SparseUsage[PodContainerRef], seconds: int) -> Floats:
    """Return the highest value of each series in the slots that end after a time, (n,); NaN if it has none."""
    slots = max(1, -(-(series.grid.end_seconds - seconds) // series.grid.step_seconds))
    newest = series.tail(slots).values
    if not newest.size:
        return np.full(len(series.refs), np.nan)
    highest: Floats = np.fmax.reduce(newest, axis=1).astype(np.float64)
    return highest


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


def _encode_deterministic(content: object) -> bytes:
    return msgspec.msgpack.encode(content, order="deterministic")
