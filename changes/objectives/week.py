"""EDGE: queries Prometheus for the hours of a workload's last week."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.base.identity import WorkloadRef
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.regression_check import Objective
from cotenant.changes.objectives.found import Floats, ObjectiveWeek
from cotenant.changes.objectives.query_labels import put_labels
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import decode_single_series, latest
from cotenant.profiler.prometheus.promql import quote

HOURS: Final = 7 * 24


def hours(source: Client, query: str, workload: WorkloadRef, end: int) -> Floats:
    """Return a query's value for each hour of the week before `end` (Unix time), the oldest first; NaN is no value."""
    start = end - (HOURS - 1) * HOUR_SECONDS
    answer = source.range(fill_variables(query, workload, HOUR_SECONDS), start, end, HOUR_SECONDS)
    values = decode_single_series(answer, start, end, HOUR_SECONDS)
    return np.array([np.nan if value is None else value for value in values])


def narrow_to_cluster(objective: Objective, labels: Mapping[str, str], workload: WorkloadRef) -> Objective:
    """Return an objective whose query has further label matchers, for a metric source with several clusters.

    Raise UsageError if they cannot be added.
    """
    if not labels:
        return objective
    more = ",".join(f"{key}={quote(value)}".replace("$", "$$") for key, value in labels.items())

    def put(query: str) -> str:
        return put_labels(query, lambda _: more, lambda text: fill_variables(text, workload, HOUR_SECONDS))

    exists = objective.exists and put(objective.exists)
    return replace(objective, query=put(objective.query), exists=exists)


def objective_week(source: Client, objective: Objective, workload: WorkloadRef, end: int) -> ObjectiveWeek:
    """Return an objective's values in the week before `end` (Unix time); raise a SourceError if the source fails."""
    values = hours(source, objective.query, workload, end)
    exists = True
    if objective.exists:
        query = fill_variables(objective.exists, workload, HOUR_SECONDS)
        exists = bool(latest(source.range(query, end, end, HOUR_SECONDS)))
    return ObjectiveWeek(objective, values, exists)
