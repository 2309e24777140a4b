"""Data of the pages of one workload and of one forecast, and sums over a workload's containers. Pure.

A `Story` is the workload's rows of every result table. Charts show the whole workload, so requests and proposals per
pod are multiplied by the number of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import fine_path
from cotenant.base.usage.usage import HALF_HOUR_SECONDS, HOUR_SECONDS
from cotenant.dashboard.figures import display
from cotenant.recommender.model.recommendation import Backtest, Field, Recommendation, Restart
from cotenant.recommender.model.savings import request_now, request_then

Row: TypeAlias = Mapping[str, Any]
Floats = npt.NDArray[np.float64]

PATHS = {"0.1": "q10", "0.5": "q50", "0.9": "q90", "0.95": "q95"}
"""Quantile level -> column of FORECASTS."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a forecast: a key of FORECASTS."""

    scope: str
    namespace: str
    kind: str
    name: str
    resource: str = ""
    """The resource to show; "" means CPU and memory."""

    @property
    def where(self) -> dict[str, str]:
        """The key as column values of FORECASTS, the most selective first."""
        texts = {"name": self.name, "namespace": self.namespace, "scope": self.scope, "kind": self.kind}
        return texts | ({"resource": self.resource} if self.resource else {})

    @property
    def words(self) -> str:
        """The subject's name for people: "node n1", "pay/Deployment/checkout", "cluster demo"."""
        return f"{self.namespace}/{self.kind}/{self.name}" if self.scope == "workload" else f"{self.scope} {self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """All results on one workload: usage summaries (portraits) and forecasts by resource, `log` of past proposals."""

    workload: Row
    portraits: Mapping[str, Row]
    forecasts: Mapping[str, Row]
    events: Sequence[Row]
    recommendations: Sequence[Recommendation]
    log: Sequence[Row]


@dataclass(frozen=True, slots=True, eq=False)
class ForecastDetail:
    """A row of FORECASTS, hourly usage and requests before it (NaN = missing), and its row of WEEKS, if any."""

    row: Row
    times: Sequence[int]
    mean: Floats
    request: Floats
    week: Row | None = None

    @classmethod
    def of(cls, row: Row, before: Row | None) -> ForecastDetail:
        """Build from a row of FORECASTS and a row of past usage with `start`, `mean` and perhaps `request`."""
        if before is None or before["start"] is None:
            return cls(row, (), np.empty(0), np.empty(0))
        mean = floats(before["mean"])
        request = floats(before.get("request") or [None] * len(mean))
        return cls(row, hours(int(before["start"]), len(mean)), mean, request)


def floats(cells: Sequence[float | None]) -> Floats:
    """Convert a list of a result row to numbers, None to NaN."""
    return np.array(cells, dtype=np.float64)


def hours(start_seconds: int, count: int) -> list[int]:
    """Return the start times of consecutive hours, in Unix seconds."""
    return [start_seconds + HOUR_SECONDS * k for k in range(count)]


def ahead(row: Row) -> tuple[list[int], dict[str, Floats]]:
    """Return the times and quantile paths of a row of FORECASTS; empty if it has none."""
    paths = {level: floats(row[name]) for level, name in PATHS.items() if row.get(name)}
    if not paths or row["start"] is None:
        return [], {}
    count = max(len(path) for path in paths.values())
    return [int(row["start"]) + HALF_HOUR_SECONDS * k for k in range(count)], paths


def fine_95(row: Row) -> Floats:
    """Return the 0.95 quantile of each 5-minute value of a row of FORECASTS; empty if it has none."""
    return fine_path(row.get("fine_q95") or (), row.get("fine_profile") or ())


def peak_window(row: Row) -> tuple[int, int] | None:
    """Return the peak window of a row of FORECASTS, in Unix seconds; None if it has none."""
    start, end = row["peak_time"], row["peak_end"]
    return None if start is None or end is None else (int(start), int(end))


def total(story: Story, resource: Resource, which: Field, *, proposed: bool) -> int | None:
    """Sum one field over all pods and the containers that run at the same time, in the resource's unit.

    None if the sum is undefined: no pod runs, a container lacks the field (a pod with one limit missing is unlimited),
    or pod-level amounts are used instead. A request that is not set counts as the limit.
    """
    counted = request_then if proposed else request_now
    running = [r for r in story.recommendations if r.role is not ContainerRole.INIT]
    amounts = []
    for recommendation in running:
        value = recommendation.value(resource, which)
        if value is not None and value.reason is Reason.POD_AMOUNTS:
            return None
        amount = None if value is None else value.then if proposed else value.now
        if value is not None and amount is None and which is Field.REQUEST:
            amount = counted(recommendation, resource) or None
        if amount is None:
            return None
        of_pods = recommendation.running.get(resource) if which is Field.REQUEST and not proposed else None
        amounts.append(of_pods.counted if of_pods else amount * recommendation.replicas)
    return sum(amounts) or None


def replicas_count(recommendations: Sequence[Recommendation]) -> int:
    """Return the number of pods by which a workload's proposals are multiplied; 0 without any proposal."""
    return max((recommendation.replicas for recommendation in recommendations), default=0)


def proposed_by_hour(story: Story, resource: Resource) -> Floats:
    """Return the proposed request of all pods for each past hour, NaN if unknown; empty if no hour has a value."""
    row, now = story.portraits.get(resource.value), total(story, resource, Field.REQUEST, proposed=True)
    pods = floats(row.get("pods") or ()) if row else np.empty(0)
    replicas = replicas_count(story.recommendations)
    return pods * (now / replicas) if now is not None and replicas and len(pods) else np.empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestTotals(Backtest):
    """The back-tests of a workload's containers, summed; `containers` of its `of` containers have a back-test."""

    containers: int
    of: int


def outcome(recommendations: Sequence[Recommendation]) -> BacktestTotals | None:
    """Return the sums of the back-tests of a workload's proposals, with the fewest `days`; None without back-tests."""
    tests = [r.backtest for r in recommendations if r.backtest is not None]
    if not tests:
        return None
    columns = {field.name: [getattr(test, field.name) for test in tests] for field in fields(Backtest)}
    added = {name: None if None in amounts else sum(amounts) for name, amounts in columns.items()}
    days = min(columns["days"])
    return BacktestTotals(**{**added, "days": days}, containers=len(tests), of=len(recommendations))


def restart(recommendations: Sequence[Recommendation]) -> Restart:
    """Return the most disruptive kind of restart that applying the proposals needs."""
    return max((r.restart for r in recommendations), key=list(Restart).index, default=Restart.NONE)


def model_losses(row: Row) -> list[tuple[str, float]]:
    """Return the models of a row of FORECASTS with their losses relative to yesterday's values, best first."""
    pairs = [part.rpartition(" ") for part in str(row["losses"] or "").split(", ") if part]
    return [(name, float(loss)) for name, _, loss in pairs]


def forecast_quality_words(row: Row | None) -> str:
    """Return the model, measured error and reason of a row of FORECASTS in words."""
    if row is None:
        return "There is no forecast: too little history."
    error, covered = row["relative_wql"], row["coverage_95"]
    reason = Reason(row["reason"]) if row["reason"] in set(Reason) else Reason.OK
    note = "" if reason is Reason.OK else f" {SENTENCES[reason]}"
    if error is None or covered is None:
        return f"Model {row['model']}; its error could not be measured yet.{note}"
    coverage = f"p95 covered {display.percent(covered)} of the values"
    return f"Model {row['model']}; error {error:.2f} x the error of repeating yesterday, {coverage}.{note}"
