"""The results of a pipeline run that the controllers publish: small and serialisable. Pure.

The analysis (`daily_analysis.analyse`) holds a cluster's whole history in memory, so that it runs in a process of its
own (`manager.pipeline_child`), which sends `RunResults` back. `collect` makes them from an Analysis.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.base.usage.usage import TimeGrid
from cotenant.changes.decide.patches import by_workload
from cotenant.pipeline.analysis import Analysis, WorkloadColumns
from cotenant.pipeline.nodes.node_peaks import prod_census
from cotenant.recommender.colocation.model.prod_peaks import ProdPeak, StoredCensus
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.replicas import ReplicaFloor
from cotenant.scheduler_ext.rebalance.published_outlooks import WorkloadMedian
from cotenant.scheduler_ext.reservations.model.plan import Proposal
from cotenant.settings import Settings

MEDIAN: Final = 0.5
HIGH: Final = 0.95


class PipelineJob(msgspec.Struct):
    """A pipeline run to make: settings, the cluster's name in the store, and whether to store the results (`keep`)."""

    settings: Settings
    cluster: str
    keep: bool = True


class PipelineFailure(msgspec.Struct):
    """Why a pipeline run has no results: the kind of error, the message and the fix.

    `history_end_seconds` is the end of the stored usage, Unix seconds; None if no usage can be read.
    """

    kind: str
    message: str
    fix: str = ""
    history_end_seconds: int | None = None


class ContainerAdvice(msgspec.Struct, frozen=True):
    """The recommended requests (`amounts`) and limits of one container, in millicores and bytes."""

    name: str
    amounts: dict[Resource, int] = {}
    limits: dict[Resource, int] = {}
    withheld: dict[Resource, str] = {}
    """Reason code of each resource without an amount."""


class WorkloadAdvice(msgspec.Struct, frozen=True):
    """The recommended requests and limits of one workload's containers, and the evidence for them.

    `figures` are values over all pods of the workload, such as `cpu_p95` and `cpu_cv`. `record_digest` names the full
    record in the store. The usage history behind the amounts spans `start_seconds` to `end_seconds`.
    """

    namespace: str
    kind: str
    name: str
    containers: tuple[ContainerAdvice, ...]
    settings_digest: str
    record_digest: str
    start_seconds: int
    end_seconds: int
    figures: dict[str, float] = {}

    @property
    def ref(self) -> WorkloadRef:
        """The reference of the workload."""
        return WorkloadRef(self.namespace, self.kind, self.name)


class SeriesOutlook(msgspec.Struct, frozen=True):
    """One resource's forecast on a node, in its unit: p50 and p95 of each half hour, p95 of the highest 5 minutes."""

    median: list[int]
    high: list[int]
    peak: int
    peak_seconds: int | None = None
    """Start of the highest peak window; None when no window stands out."""
    model: str = ""
    reason: str = ""


class NodeOutlook(msgspec.Struct, frozen=True):
    """One node's forecast of the next 24 hours, and the span (Unix seconds) of the usage on which it is based."""

    node: str
    start_seconds: int
    step_seconds: int
    series: dict[Resource, SeriesOutlook]
    settings_digest: str
    history_start_seconds: int
    history_end_seconds: int

    @property
    def end_seconds(self) -> int:
        """The Unix time at which the last half hour of the forecast ends."""
        return self.start_seconds + self.step_seconds * max((len(s.high) for s in self.series.values()), default=0)


class RunResults(msgspec.Struct, frozen=True):
    """The results of one pipeline run."""

    computed_seconds: int
    workloads: tuple[WorkloadAdvice, ...] = ()
    nodes: tuple[NodeOutlook, ...] = ()
    prod_reclaimable: dict[str, dict[Resource, int]] = {}
    """Requests of prod, by node, that the forecast expects prod not to use in the next 24 hours."""
    prod_peaks: dict[Resource, dict[str, ProdPeak]] = {}
    """By node: the peaks that the colocation policy `forecast` uses."""
    prod_census: StoredCensus | None = None
    """The pods that `prod_peaks` include."""
    proposals: tuple[Proposal, ...] = ()
    """Capacity to reserve for the next peaks of workloads."""
    workload_medians: tuple[WorkloadMedian, ...] = ()
    """The forecasts that the descheduler uses; empty if it is disabled."""


def collect(analysis: Analysis, *, with_medians: bool = False) -> RunResults:
    """Return everything of an analysis that the manager uses; `with_medians` adds the median forecasts of workloads."""
    # p95 (millicores, bytes) and coefficient of variation of each workload's total, where there are samples.
    figures: dict[WorkloadRef, dict[str, float]] = defaultdict(dict)
    workloads = analysis.workloads
    for resource in Resource:
        columns = (workloads.p95[resource].tolist(), workloads.variation[resource].tolist())
        for ref, high, cv in zip(workloads.refs, *columns, strict=True):
            if np.isfinite(high):
                figures[ref][f"{resource}_p95"] = round(high)
            if np.isfinite(cv):
                figures[ref][f"{resource}_cv"] = round(cv, 3)
    grid = analysis.pod_totals[Resource.CPU].prod.grid
    census = prod_census(analysis.history.inventory, grid.end_seconds, grid.start_seconds)
    # The term of the mid formula that rests on the forecast, as the reclaimable rows show it.
    prod_reclaimable: dict[str, dict[Resource, int]] = defaultdict(dict)
    for row in analysis.reclaimable:
        if "prod_reclaimable" in row.terms:
            prod_reclaimable[row.node][row.resource] = row.terms["prod_reclaimable"]
    return RunResults(
        computed_seconds=analysis.computed_seconds,
        workloads=advice(analysis.recommendations, dict(figures)),
        nodes=outlooks(analysis.node_forecasts, analysis.settings_digest, analysis.history.window),
        prod_reclaimable=dict(prod_reclaimable),
        prod_peaks={
            resource: {
                name: ProdPeak(p.peak, _finite(p.violation), p.origins, _finite(p.system_peak), p.mid_peak)
                for name, p in forecasts.items()
            }
            for resource, forecasts in analysis.peak_forecasts.items()
        },
        prod_census=StoredCensus.of(census),
        proposals=analysis.proposals,
        workload_medians=medians(analysis.workloads, analysis.replica_floors) if with_medians else (),
    )


def medians(workloads: WorkloadColumns, floors: Iterable[ReplicaFloor] = ()) -> tuple[WorkloadMedian, ...]:
    """Return the median forecast of each workload with a forecast of at least one resource, ordered by name."""
    replicas = {floor.workload: list(floor.floor) for floor in floors if floor.most is not None}
    of_each: dict[WorkloadRef, dict[Resource, list[int]]] = defaultdict(dict)
    for resource, paths in workloads.medians.items():
        for row in np.flatnonzero(np.isfinite(paths).all(axis=1)).tolist():
            of_each[workloads.refs[row]][resource] = _round_up(paths[row])
    return tuple(
        WorkloadMedian(
            ref.namespace, ref.kind, ref.name, workloads.grid.start_seconds, of_each[ref], replicas.get(ref, [])
        )
        for ref in sorted(of_each)
    )


def advice(
    recommendations: Iterable[Recommendation], figures: Mapping[WorkloadRef, dict[str, float]]
) -> tuple[WorkloadAdvice, ...]:
    """Group the recommendations by workload, ordered by name."""
    return tuple(
        WorkloadAdvice(
            namespace=ref.namespace,
            kind=ref.kind,
            name=ref.name,
            containers=tuple(_container(r) for r in own),
            settings_digest=own[0].settings_digest,
            record_digest=hashlib.sha256(msgspec.json.encode(own, order="deterministic")).hexdigest()[:12],
            start_seconds=own[0].end_seconds - own[0].window_seconds,
            end_seconds=own[0].end_seconds,
            figures=figures.get(ref, {}),
        )
        for ref, own in sorted(by_workload(recommendations).items(), key=lambda of: of[0])
    )


def outlooks(
    forecasts: Mapping[Resource, Forecasts[NodeRef]], digest: str, history: TimeGrid
) -> tuple[NodeOutlook, ...]:
    """Return one NodeOutlook per node with a forecast of at least one resource."""
    by_node: dict[str, dict[Resource, SeriesOutlook]] = defaultdict(dict)
    for resource, forecast in forecasts.items():
        finite = np.isfinite(forecast.quantiles).all(axis=(1, 2)) & np.isfinite(forecast.peak).all(axis=1)
        for i in np.flatnonzero(finite).tolist():
            window = forecast.peak_window(i)
            by_node[forecast.refs[i].name][resource] = SeriesOutlook(
                median=_round_up(forecast.level(MEDIAN)[i]),
                high=_round_up(forecast.level(HIGH)[i]),
                peak=_round_up(forecast.peak_level(HIGH)[i : i + 1])[0],
                peak_seconds=window.start_seconds if window else None,
                model=forecast.model[i],
                reason=forecast.reason[i].value,
            )
    grids = [forecast.grid for forecast in forecasts.values()]
    return tuple(
        NodeOutlook(
            node=name,
            start_seconds=grids[0].start_seconds,
            step_seconds=grids[0].step_seconds,
            series=by_node[name],
            settings_digest=digest,
            history_start_seconds=history.start_seconds,
            history_end_seconds=history.end_seconds,
        )
        for name in sorted(by_node)
    )


def _container(recommendation: Recommendation) -> ContainerAdvice:
    """Return the advice for one container, without a memory amount that is only valid with another heap size.

    Readers of the object would apply the memory alone.
    """
    if recommendation.heap is not None:
        values = tuple(v for v in recommendation.values if v.resource is not Resource.MEMORY)
        rest = _container(replace(recommendation, values=values, heap=None))
        return msgspec.structs.replace(rest, withheld={**rest.withheld, Resource.MEMORY: Reason.HEAP.value})
    requests = {v.resource: v for v in recommendation.values if v.field is Field.REQUEST}
    limits = [
        v for v in recommendation.values if v.field is Field.LIMIT and v.action is Action.SET and v.amount is not None
    ]
    return ContainerAdvice(
        name=recommendation.container.container,
        amounts={r: v.amount for r, v in requests.items() if v.amount is not None},
        limits={v.resource: v.amount for v in limits if v.amount is not None},
        withheld={r: v.reason.value for r, v in requests.items() if v.amount is None},
    )


def _round_up(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[int]:
    """Round up, so that no published forecast is below the computed one."""
    integers: list[int] = np.ceil(values.astype(np.float64)).astype(np.int64).tolist()
    return integers


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
