"""The replicas that a workload will need by half hour: a floor for its autoscaler before the peak. Pure.

forecast of the workload's total usage -> pods at the target utilisation -> floor, raised by the lead time in advance.

An autoscaler reacts to measured usage, so it is late by the time that a pod needs to start; a floor from the forecast
is in time and leaves the rest to the autoscaler. need(t) = ceil(q(t) / (request of a pod x target)), the highest over
the resources with a target. The floor at t is the highest need from t to t + lead, at least the present minReplicas and
at most maxReplicas, which is reported if it is too low. A workload without autoscaler but with many replicas is
computed with the settings' CPU target. Prior art: Crane's EHPA takes the highest of forecast, cron and observed; AWS
predictive scaling only ever raises the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Autoscaler, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.text import counted
from cotenant.base.usage.forecast import Forecasts
from cotenant.recommender.settings import ReplicaSettings

TARGET_PERCENT: Final = 70
"""CPU utilisation that such a workload is to run at. Room for one pod in three to fail or start while the others
carry its load."""
MANY_REPLICAS: Final = 6
"""Replicas from which a workload without autoscaler gets a floor too. From six replicas on, one pod is less than a
fifth of the capacity, so that a floor can follow the demand."""

Counts = npt.NDArray[np.int64]

_NOISE: Final = 1e-6
"""Share of a pod that does not make another one."""


@dataclass(frozen=True, slots=True)
class ReplicaFloor:
    """The replica floor of a workload, the fewest replicas that it will need, in each half hour of the forecast.

    `floor` has one count per half hour and is empty if withheld; `least` and `most` are minReplicas and maxReplicas, 1
    and None without an autoscaler; `needed` is the most replicas that the forecast requires, perhaps more than `most`;
    `by` is the resource that requires them.
    """

    workload: WorkloadRef
    replicas: int
    least: int
    most: int | None
    reason: Reason
    start_seconds: int = 0
    step_seconds: int = 0
    floor: tuple[int, ...] = ()
    needed: int = 0
    by: Resource | None = None
    targets: Mapping[Resource, int] | None = None
    percentile: int = 0

    @property
    def peak(self) -> int:
        """Highest replica floor of the forecast; 0 if the floor is withheld."""
        return max(self.floor, default=0)

    @property
    def peak_seconds(self) -> int | None:
        """Start of the first half hour with the highest floor, in Unix seconds; None if the floor is withheld."""
        return self.start_seconds + self.floor.index(self.peak) * self.step_seconds if self.floor else None

    @property
    def cut(self) -> bool:
        """True if maxReplicas is below the number of replicas that the forecast needs."""
        return self.most is not None and self.needed > self.most


def replica_floors(
    workloads: Iterable[Workload], forecasts: Mapping[Resource, Forecasts[WorkloadRef]], settings: ReplicaSettings
) -> list[ReplicaFloor]:
    """Return, in order, the replica floors of workloads with many replicas or with an autoscaler on CPU or memory."""
    rows = {r: {ref: row for row, ref in enumerate(forecast_of.refs)} for r, forecast_of in forecasts.items()}
    floors = []
    for w in workloads:
        # Utilisation in percent of the request that decides about replicas, by resource.
        asks = any(c.effective_requests.get(Resource.CPU) for c in w.staying)
        many = asks and w.ref.kind in settings.kinds and w.replicas >= MANY_REPLICAS
        targets = w.autoscaler.targets if w.autoscaler else {Resource.CPU: TARGET_PERCENT} if many else {}
        if targets or (w.autoscaler and w.autoscaler.unsolvable):
            floors.append(_floor(w, targets, forecasts, rows, settings))
    return floors


def _floor(
    workload: Workload,
    targets: Mapping[Resource, int],
    forecasts: Mapping[Resource, Forecasts[WorkloadRef]],
    rows: Mapping[Resource, Mapping[WorkloadRef, int]],
    settings: ReplicaSettings,
) -> ReplicaFloor:
    """Return the replica floor of one workload, or the reason why there is none.

    need = ceil(usage quantile / (request of a pod x target %)) per half hour, the highest over the resources; _NOISE
    keeps rounding errors of a whole quotient from adding a replica. The floor at a time is the highest need within the
    lead after it, within the autoscaler's bounds. `needed` is the highest need before it is limited.
    """
    scaler = workload.autoscaler or Autoscaler("", 1, 0)
    least, most = scaler.min_replicas, scaler.max_replicas or None
    common: dict[str, Any] = {"workload": workload.ref, "replicas": workload.replicas, "least": least, "most": most}
    needs: dict[Resource, Counts] = {}
    if workload.gaps:
        return ReplicaFloor(**common, reason=workload.gaps[0])
    if not workload.own.resources().isdisjoint(targets):
        return ReplicaFloor(**common, reason=Reason.POD_AMOUNTS)
    if scaler.unsolvable:
        return ReplicaFloor(**common, reason=Reason.HPA_UNSOLVED)
    for resource, percent in targets.items():
        request = sum(c.effective_requests.get(resource, 0) for c in workload.staying)
        row = rows[resource].get(workload.ref)
        if not request:
            return ReplicaFloor(**common, reason=Reason.HPA_UNSOLVED)
        reason = forecasts[resource].reason[row] if row is not None else Reason.NO_DATA
        if row is None or reason not in (Reason.OK, Reason.NO_PEAK):
            return ReplicaFloor(**common, reason=reason)
        usage = forecasts[resource].level(settings.percentile / 100)[row].astype(np.float64)
        needs[resource] = np.ceil(usage / (request * percent / 100) - _NOISE).astype(np.int64)
    grid = forecasts[next(iter(needs))].grid
    need = np.max(list(needs.values()), axis=0)
    # The highest need from each slot until the lead time later: pods are to be there when it comes.
    lead_slots = -(-settings.lead_seconds // grid.step_seconds)
    padded = np.append(need, np.full(lead_slots, need[-1]))
    floor_counts: Counts = np.lib.stride_tricks.sliding_window_view(padded, lead_slots + 1).max(axis=1)
    return ReplicaFloor(
        **common,
        reason=Reason.OK,
        start_seconds=grid.start_seconds,
        step_seconds=grid.step_seconds,
        floor=tuple(np.clip(floor_counts, least, most).tolist()),
        needed=int(need.max()),
        by=max(needs, key=lambda r: int(needs[r].max())),
        targets=dict(targets),
        percentile=settings.percentile,
    )


def replica_totals(table: Table) -> str:
    """Return a sentence that sums up all rows of the REPLICAS table."""
    rows = list(table.rows())
    running = sum(row["replicas"] or 0 for row in rows)
    floors = [row["floor"] for row in rows if row["floor"]]
    proposed = f"{counted(len(floors), 'replica floor')} proposed, at most {counted(sum(floors), 'pod')} in total"
    ahead = proposed if floors else "no replica floor proposed"
    return f"{counted(len(rows), 'workload')}: {counted(running, 'pod')} now; {ahead}"
