"""Stored usage in long form: one row per series and time, for selected series and a period, summed as in a scan."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from numbers import Real
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from cotenant.base.cluster import Inventory
from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.store.days import Between
from cotenant.base.table import Schema, Table
from cotenant.base.usage.plausible import plausible_of_nodes, plausible_of_pods
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import (
    DAY_SECONDS,
    FIVE_MINUTES_SECONDS,
    HOUR_SECONDS,
    FloatMatrix,
    Signal,
    TimeGrid,
    Usage,
)
from cotenant.pipeline.nodes.pod_hours import PROD
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL, POD_SIGNAL, node_refs, of_classes
from cotenant.profiler.pool import by_node, by_workload, total
from cotenant.python_api.arguments import matching_rows
from cotenant.python_api.own_usage import ALLOCATABLE, AMOUNTS, COLUMN, THROTTLED
from cotenant.python_api.usage_frame import LATEST_SECONDS, write
from cotenant.recommender.model.views import WORKLOADS
from cotenant.settings import Settings

Moment: TypeAlias = str | float | datetime
PER: Final = ("workload", "container")
SUMMED: Final = ("all", "prod")
_NAMED: Final = Schema(
    "usage",
    tuple(WORKLOADS.column(name) for name in ("namespace", "kind", "workload", "qos", "priority")),
    WORKLOADS.key,
)
"""What a filter of usage may name."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredUsage:
    """A period of a cluster's stored history, from which usage is read as DataFrames."""

    store: Store
    inventory: Inventory
    window: TimeGrid

    @classmethod
    def of(cls, store: Store, settings: Settings, since: Moment | None, until: Moment | None) -> StoredUsage:
        """Return the stored usage of a period; without `since` it is the last `profiler.window_days`.

        Raises NoData if nothing is stored for the period. Warns if the last scan could not read a part of the metrics.
        """
        inventory, span = store.read_inventory(), store.usage_span()
        if inventory is None or span is None:
            fix = "Run cotenant scan --prometheus URL, or cotenant doctor to see what is missing."
            raise NoData(f"no usage of cluster {store.cluster} is stored", fix=fix)
        quality = store.read_quality()
        if quality and quality[-1].unread_seconds:
            hours = max(quality[-1].unread_seconds.values()) / HOUR_SECONDS
            text = f"the last scan of cluster {store.cluster} could not read up to {hours:.1f} hours of a metric"
            warnings.warn(f"{text}: there may have been usage at times without a row", stacklevel=3)
        end = span[1] if until is None else min(span[1], _seconds("until", until))
        start = end - settings.profiler.window_days * DAY_SECONDS if since is None else _seconds("since", since)
        window = TimeGrid.from_span(max(span[0], start), end, FIVE_MINUTES_SECONDS)
        if not window.size:
            first, last = (pd.Timestamp(at, unit="s", tz="UTC") for at in span)
            fix = "Give a since before until, both in the stored period, or leave out both."
            raise NoData(f"cluster {store.cluster} has usage only from {first} to {last}", fix=fix)
        return cls(store, inventory, window)

    def chosen(self, workload: str | None, where: str) -> tuple[WorkloadRef, ...]:
        """Return the workloads that match the name `workload` and the filter `where`; raise NoData if none do."""
        listed = {w.ref: (w.qos.value, w.priority.value) for w in self.inventory.workloads}
        unlisted = (pod.workload for pod in self.inventory.pods if pod.workload not in listed and not pod.placeholder)
        listed |= dict.fromkeys(unlisted, ("", ""))
        rows = [
            dict(zip(_NAMED_COLUMNS, (ref.namespace, ref.kind, ref.name, *classes), strict=True))
            for ref, classes in listed.items()
        ]
        matches = matching_rows(Table.from_rows(_NAMED, rows), where)
        refs = tuple(WorkloadRef(row["namespace"], row["kind"], row["workload"]) for row in matches.rows())
        if workload is not None:
            refs = tuple(ref for ref in refs if workload in (str(ref), f"{ref.namespace}/{ref.name}"))
        if not refs:
            fix = "Write namespace/Kind/name; .workloads() lists all names."
            raise NoData(f"no stored workload matches {workload or where}", fix=fix)
        return tuple(sorted(refs))

    def by_workload(self, refs: Sequence[WorkloadRef], resources: Sequence[Resource]) -> pd.DataFrame:
        """Return usage summed over each workload's pods, with the sum of the requests of its running pods."""
        values: dict[str, FloatMatrix] = {}
        amounts: dict[str, npt.NDArray[np.float64]] = {}
        for resource in resources:
            usage = plausible_of_pods(self._read(POD_SIGNAL[resource], refs), self.inventory)
            values[COLUMN[resource]] = total(usage, by_workload(usage.refs, self.inventory, refs)).values
            requests = {w.ref: w.total_request(resource) for w in self.inventory.workloads}
            total_requests = [requests.get(ref) or np.nan for ref in refs]  # NaN where nothing is requested
            amounts[AMOUNTS[resource, "request"]] = np.array(total_requests, dtype=np.float64)
        identity = {
            "namespace": [ref.namespace for ref in refs],
            "kind": [ref.kind for ref in refs],
            "workload": [ref.name for ref in refs],
        }
        return _require_rows(write(identity, self.window, values, amounts))

    def by_container(self, refs: Sequence[WorkloadRef], resources: Sequence[Resource]) -> pd.DataFrame:
        """Return the usage of each container of each pod, with the requests and limits of the workload's template."""
        signals = {COLUMN[r]: POD_SIGNAL[r] for r in resources}
        if Resource.CPU in resources:
            signals[THROTTLED] = Signal.CPU_THROTTLED_MEAN
        usages = {name: plausible_of_pods(self._read(signal, refs), self.inventory) for name, signal in signals.items()}
        series = sorted(set().union(*(usage.refs for usage in usages.values())))
        place = {ref: row for row, ref in enumerate(series)}
        values = {}
        for name, usage in usages.items():
            values[name] = np.full((len(series), self.window.size), np.nan, dtype=np.float32)
            values[name][[place[ref] for ref in usage.refs]] = usage.values
        owners = self.inventory.owners()
        workloads = [owners[ref.namespace, ref.pod] for ref in series]
        identity = {
            "namespace": [ref.namespace for ref in series],
            "kind": [ref.kind for ref in workloads],
            "workload": [ref.name for ref in workloads],
            "pod": [ref.pod for ref in series],
            "container": [ref.container for ref in series],
        }
        by_ref = {w.ref: w for w in self.inventory.workloads}
        templates = [
            by_ref[w].container(r.container) if w in by_ref else None for r, w in zip(series, workloads, strict=True)
        ]
        columns: dict[str, npt.NDArray[np.float64]] = {}
        for resource in resources:
            requests = [t.requests.get(resource) if t else None for t in templates]
            limits = [t.limits.get(resource) if t else None for t in templates]
            columns[AMOUNTS[resource, "request"]] = np.array(requests, dtype=np.float64)
            columns[AMOUNTS[resource, "limit"]] = np.array(limits, dtype=np.float64)
        return _require_rows(write(identity, self.window, values, columns))

    def by_node(self, resource: Resource, *, only_prod: bool) -> pd.DataFrame:
        """Return the usage of nodes, in total or of prod pods only, and the nodes' allocatable amounts."""
        if only_prod:
            pods, refs = self.store.read_sparse(POD_SIGNAL[resource], self.window), node_refs(self.inventory)
            pods = plausible_of_pods(pods, self.inventory)
            members = by_node(pods.refs, self.inventory, refs)
            usage = total(pods, of_classes(members, pods.refs, self.inventory, PROD))
        else:
            usage = self.store.read(NODE_SIGNAL[resource], self.window)
            usage = plausible_of_nodes(usage, self.inventory)
        allocatable = {node.name: float(node.allocatable.get(resource, np.nan)) for node in self.inventory.nodes}
        amounts = np.array([allocatable.get(ref.name, np.nan) for ref in usage.refs], dtype=np.float64)
        names = {"node": [ref.name for ref in usage.refs]}
        return _require_rows(
            write(names, usage.grid, {COLUMN[resource]: usage.values}, {ALLOCATABLE[resource]: amounts})
        )

    def _read(self, signal: Signal, refs: Iterable[WorkloadRef]) -> Usage[PodContainerRef]:
        """Return the series of these workloads' pods; for a single namespace little else is read."""
        workloads, owners = set(refs), self.inventory.owners()
        namespace, *others = {ref.namespace for ref in workloads}
        between: Between | None = None if others else ((namespace,), (namespace + "\0",))
        usage: SparseUsage[PodContainerRef] = self.store.read_sparse(signal, self.window, between)
        rows = [owners.get((ref.namespace, ref.pod)) in workloads for ref in usage.refs]
        return usage.select(np.array(rows, dtype=bool))


_NAMED_COLUMNS: Final = tuple(column.name for column in _NAMED.columns)


def _require_rows(frame: pd.DataFrame) -> pd.DataFrame:
    if not len(frame):
        raise NoData("no usage from since to until is stored", fix="Leave since and until out to see the last days.")
    return frame


def _seconds(name: str, moment: Any) -> int:
    """Return Unix seconds; a time without a zone is UTC. UsageError if it is not a time in 1970..2100."""
    stamp: Any = pd.NaT
    with suppress(ValueError, TypeError, OverflowError):
        stamp = pd.Timestamp(float(moment), unit="s") if isinstance(moment, Real) else pd.Timestamp(moment)
    if stamp is pd.NaT:
        raise UsageError(
            f"{name}={moment!r} is not a time", fix="Write '2026-11-19T12:00Z', a datetime or Unix seconds."
        )
    aware = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp
    seconds = int(aware.timestamp())
    if not 0 <= seconds < LATEST_SECONDS:
        raise UsageError(f"{name}={moment!r} lies outside 1970..2100", fix="Give seconds: divide milliseconds by 1000.")
    return seconds
