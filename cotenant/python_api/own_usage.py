"""Forecasts, recommendations and back-tests of usage in your own DataFrame, by the same code as a scan. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Real
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from cotenant.backtesting.forecast_backtest import contenders, plan_of, run_backtest
from cotenant.backtesting.forecast_backtest import table as score_table
from cotenant.base.cluster import Container, Inventory, Pod, Workload
from cotenant.base.errors import FrameError, UsageError
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import ORIGINS, Horizon
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, TimeGrid, Usage
from cotenant.forecasting import plugins
from cotenant.forecasting.backtest.run import Shard
from cotenant.forecasting.base import Forecaster
from cotenant.forecasting.engine import forecast as forecast_usage
from cotenant.pipeline import tables as result_tables
from cotenant.pipeline.analysis import History
from cotenant.pipeline.containers import assess
from cotenant.pipeline.nodes.reclaimable import POD_SIGNAL
from cotenant.profiler import portrait
from cotenant.profiler.pool import by_workload, total
from cotenant.python_api.arguments import require_integer, require_sequence, resource_of, settings_of, with_strategy
from cotenant.python_api.tables import as_frame
from cotenant.python_api.usage_frame import CONTAINER, WORKLOAD, LongUsage, five_minutes, read

COLUMN: Final = {Resource.CPU: "cpu_usage_millicores", Resource.MEMORY: "memory_working_set_bytes"}
"""Usage of a resource in a DataFrame."""
ALLOCATABLE: Final = {resource: f"{resource}_allocatable_{resource.unit}" for resource in Resource}
"""What pods may request of a node."""
THROTTLED: Final = "cpu_throttled_millicores"
AMOUNTS: Final = {
    (resource, side): f"{resource}_{side}_{resource.unit}" for resource in Resource for side in ("request", "limit")
}
"""Columns of requests and limits, of one container."""


def forecast(
    usage: pd.DataFrame, *, resource: str = "cpu", models: Sequence[Forecaster] = (), settings: str | Path | None = None
) -> pd.DataFrame:
    """Forecast the next 24 hours of every workload in a DataFrame; return the columns of `ClusterStore.forecasts`.

    `usage` has columns `time`, `workload` (and `namespace`, `kind`: else "default", "Deployment"), and
    `cpu_usage_millicores` or `memory_working_set_bytes`; with `pod` and `container` as well, their usage is summed as
    in a scan. `models` are your own, beside the built-in ones (docs/plugins.md). `forecast_paths` splits the result by
    half hours.

    A workload with less than two days gets the quantiles of its past, and `reason` says so. Raises FrameError for a
    column that is missing or wrong, NoData or NotEnoughHistory if there are too few data.
    """
    of_resource, own = resource_of(resource), settings_of(settings)
    totals, _ = _totals_and_requests(usage, of_resource)
    portraits = portrait.build(totals.refs, np.arange(len(totals.refs)), totals, own.portrait)
    members = plugins.with_models(
        plugins.members(tuple(own.forecasting.plugins)), require_sequence("models", models, "models", plugins.MODEL_FIX)
    )
    table = result_tables.forecast_table(forecast_usage(totals, portraits, own.forecasting, members))
    return as_frame(table, of_resource)


def recommend(usage: pd.DataFrame, *, strategy: str | None = None, settings: str | Path | None = None) -> pd.DataFrame:
    """Run a strategy on the usage of containers; return the columns of `ClusterStore.recommendations`.

    `usage` has columns `time`, `workload`, `container` (and `namespace`, `kind`, `pod`: else one pod per workload) and
    `cpu_usage_millicores`, `memory_working_set_bytes` or both, in steps of at most 5 minutes. Optional columns improve
    the result: `cpu_throttled_millicores`, `cpu_request_millicores`, `cpu_limit_millicores`, `memory_request_bytes` and
    `memory_limit_bytes` (the newest value counts). `strategy` is "cotenant", "krr-simple", "krr-simple-limit", "vpa" or
    a plug-in; None means that of the settings. A DataFrame has no autoscalers, OOM kills, quotas and QoS classes;
    `ClusterStore.recommend` considers them.

    If the history is too short or the resource is missing, the value is withheld and `cpu_reason` or `memory_reason`
    says why. Raises FrameError for a column that is missing or wrong, SettingsError for an unknown strategy.
    """
    own = with_strategy(settings_of(settings), strategy)
    if isinstance(usage, pd.DataFrame) and "container" not in usage.columns:
        fix = "If each pod has a single container: frame['container'] = 'app'"
        raise FrameError("container", "the DataFrame has no column 'container' to recommend requests for", fix=fix)
    # The series as a scan would have stored them; signals that a DataFrame does not have are empty.
    series = _containers(usage, list(COLUMN.values()))
    factor, refs = five_minutes(series), _pod_containers(series)
    columns = {POD_SIGNAL[r]: COLUMN[r] for r in Resource} | {Signal.CPU_THROTTLED_MEAN: THROTTLED}
    grid = TimeGrid.from_span(series.grid.start_seconds, series.grid.end_seconds, factor * series.grid.step_seconds)
    history_usage: dict[Signal, Usage[PodContainerRef]] = {}
    for signal in (s for s in Signal if not s.spec.per_node):
        matrix = series.values.get(columns.get(signal, ""))
        if matrix is None:
            nothing = np.empty((0, grid.size), dtype=np.float32)
            history_usage[signal] = Usage((), grid, nothing, signal.spec.resource, signal.spec.statistic)
        else:
            fine = Usage(refs, series.grid, matrix, signal.spec.resource, signal.spec.statistic)
            # Series with at least one value, as a store has them.
            samples_usage = fine.coarser(factor)
            sampled = np.asarray(np.isfinite(samples_usage.values).any(axis=1))
            history_usage[signal] = samples_usage.select(sampled)
    history = History(_inventory(series), grid, history_usage, {}, None)
    recommended = assess(history, own).recommendations
    return as_frame(result_tables.recommendations(recommended, own.actions.guardrails))


def backtest(
    usage: pd.DataFrame,
    *,
    resource: str = "cpu",
    origins: int = ORIGINS,
    horizon: str = "24h",
    baselines: Sequence[str] = (),
    known_share: float = 0.5,
) -> pd.DataFrame:
    """Forecast past periods of a history from the data before them, and score the forecasts against baselines.

    `usage` is as for `forecast`, of at least 15 days; requests, if it has them, count as limits when series are grouped
    (strata). `origins` is the number of forecasts, `horizon` "24h" in half hours or "7d" in hours. `baselines` are such
    as ("B1", "B14"); empty means all fast ones. `known_share` is the share of 14 days for which a series needs data.
    One row per stratum and forecaster, with the columns of `cotenant backtest -o json` (docs/backtest.md). Raises
    NotEnoughHistory if there are too few days.
    """
    of_resource = resource_of(resource)
    try:
        ahead = Horizon(horizon)
    except ValueError as error:
        raise UsageError(f"horizon={horizon!r} is not a horizon", fix="Write '24h' or '7d'.") from error
    require_integer("origins", origins, "Write how many forecasts to score.")
    baseline_names = require_sequence("baselines", baselines, "texts", "Write a sequence such as ('B1', 'B14').")
    share: Any = known_share  # callers need not check types
    if not isinstance(share, Real) or not 0 < float(share) <= 1:
        raise UsageError(f"known_share={share!r} is not a share above 0 and up to 1", fix="Write 0.5 for half.")
    series = _FrameSeries(*_totals_and_requests(usage, of_resource))
    who = contenders(",".join(map(str, baseline_names)) or None, of_resource, ahead)
    plan = plan_of(ahead, of_resource, known_share)
    return as_frame(score_table(run_backtest(series, plan, who, origins, Silent())))


@dataclass(frozen=True, slots=True, eq=False)
class _FrameSeries:
    """Totals and limits of a DataFrame's workloads, as a back-test takes them."""

    totals: Usage[WorkloadRef]
    limits: dict[WorkloadRef, float]

    @property
    def title(self) -> str:
        return "the DataFrame"

    @property
    def grid(self) -> TimeGrid:
        return self.totals.grid

    @property
    def shard_count(self) -> int:
        return 1

    def shards(self) -> Iterator[Shard]:
        limits = np.array([self.limits.get(ref, np.nan) for ref in self.totals.refs], dtype=np.float32)
        yield Shard(tuple(str(ref) for ref in self.totals.refs), self.grid, self.totals.values, limits)


def _totals_and_requests(
    usage: pd.DataFrame, resource: Resource
) -> tuple[Usage[WorkloadRef], dict[WorkloadRef, float]]:
    """Return the usage of each workload, sorted, and the sum of the requests of its running pods.

    Containers are summed by the rule of `cotenant.profiler.pool`; a DataFrame of totals contains the requests itself.
    """
    column, request, spec = COLUMN[resource], AMOUNTS[resource, "request"], POD_SIGNAL[resource].spec
    requests: dict[WorkloadRef, float] = {}
    if not (isinstance(usage, pd.DataFrame) and bool({"pod", "container"} & set(usage.columns))):
        series = read(usage, WORKLOAD, [column], [request])
        refs = tuple(WorkloadRef(*name) for name in series.names)
        if request in series.amounts:
            requests = dict(zip(refs, series.amounts[request].tolist(), strict=True))
        return Usage(refs, series.grid, series.values[column], resource, spec.statistic), requests
    series = _containers(usage, [column])
    inventory = _inventory(series)
    for pod in (p for p in inventory.pods if p.running and p.requests.get(resource)):
        requests[pod.workload] = requests.get(pod.workload, 0.0) + pod.requests[resource]
    of_pods = Usage(_pod_containers(series), series.grid, series.values[column], resource, spec.statistic)
    return total(of_pods, by_workload(of_pods.refs, inventory)), requests


def _containers(usage: pd.DataFrame, columns: Sequence[str]) -> LongUsage:
    """Return series of containers; without a column of pods a workload is one pod, without containers a pod is one."""
    if isinstance(usage, pd.DataFrame) and "workload" in usage.columns:
        usage = usage.assign(
            pod=usage["pod"] if "pod" in usage.columns else usage["workload"],
            container=usage["container"] if "container" in usage.columns else "main",
        )
    return read(usage, CONTAINER, columns, tuple(AMOUNTS.values()), optional=(THROTTLED,))


def _pod_containers(series: LongUsage) -> tuple[PodContainerRef, ...]:
    return tuple(PodContainerRef(namespace, pod, container) for namespace, _, _, pod, container in series.names)


def _inventory(series: LongUsage) -> Inventory:
    """Return the workloads, pods and requests that the series show.

    A pod runs while it has samples: without any in the last hour it is gone; with one in the first slot it started
    earlier.
    """
    grid, end = series.grid, series.grid.end_seconds
    # [start of the first, end of the last) slot with a sample of each series, Unix seconds.
    present = np.zeros((len(series.names), grid.size), dtype=bool)
    for matrix in series.values.values():
        present |= np.isfinite(matrix)
    slots = present.argmax(axis=1)
    ends = np.where(present.any(axis=1), grid.size - present[:, ::-1].argmax(axis=1), slots)
    first, last = (grid.start_seconds + place * grid.step_seconds for place in (slots, ends))
    workloads, pods = [], []
    owners: dict[tuple[str, str], WorkloadRef] = {}
    for key, rows_of_workload in groupby(range(len(series.names)), key=lambda row: series.names[row][:3]):
        ref, rows = WorkloadRef(*key), list(rows_of_workload)
        running = 0
        for name, rows_of_pod in groupby(rows, key=lambda row: series.names[row][3]):
            of_pod = list(rows_of_pod)
            if owners.setdefault((ref.namespace, name), ref) != ref:
                what = f"pod {ref.namespace}/{name} belongs to {owners[ref.namespace, name]} and to {ref}"
                fix = "Give each pod of a namespace a different name."
                raise FrameError("pod", what, fix=fix)
            end_seconds = int(last[of_pod].max()) if last[of_pod].max() < end - HOUR_SECONDS else None
            running += end_seconds is None
            start = int(first[of_pod].min())
            start -= HOUR_SECONDS * 24 if start == series.grid.start_seconds else 0
            sums: dict[Resource, int] = {}
            for row in of_pod:
                for resource, amount in _amounts(series, row, "request").items():
                    sums[resource] = sums.get(resource, 0) + amount
            pods.append(Pod(ref.namespace, name, ref, "", start, end_seconds, requests=sums))
        # Containers of a workload by name, each with the amounts of the youngest pod that shows any. rows: of its
        # series, those of the youngest pod last.
        template_rows = sorted(rows, key=lambda r: (last[r], first[r], r))
        containers: dict[str, Container] = {}
        for row in template_rows:
            name = series.names[row][4]
            own = Container(name, _amounts(series, row, "request"), _amounts(series, row, "limit"))
            if own.requests or own.limits or name not in containers:
                containers[name] = own
        workloads.append(Workload(ref, running, tuple(containers[name] for name in sorted(containers))))
    return Inventory("DataFrame", end, (), tuple(workloads), tuple(pods))


def _amounts(series: LongUsage, row: int, side: str) -> dict[Resource, int]:
    amounts = {r: series.amounts.get(AMOUNTS[r, side]) for r in Resource}
    return {r: round(float(a[row])) for r, a in amounts.items() if a is not None and np.isfinite(a[row])}
