"""Strategies `krr-simple` and `krr-simple-limit`: Robusta KRR's rules, without its known errors.

Rules (KRR `strategies/simple.py`, `simple_limit.py`): CPU request is the p95 of each pod, then the maximum over the
pods, and the CPU limit is removed (`simple`); or request and limit are the p66 and p96 over the points of all pods
together (`simple_limit`). Memory request and limit are the highest working set of any pod + 15 %. All are rounded up to
1 m and 1 MiB, with floors of 10 m and 100 MiB. A value is withheld if an autoscaler scales on the resource.

The numbers are the metric server's own answers at 75 s if it was queried, else computed from the stored 5-minute
series; the input `resolution_seconds` says which. A pod without an answer, or with one from next to no points (a rate
window of 75 s is empty if scrapes are further apart), is measured by its stored series, so that a number always covers
all counted pods. Deliberate differences to KRR: percentiles are exact (its p99.5 queries 0.99), the window is not cut
to whole days, and the minimum history is a time, not a number of points that many pods collect in minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Final

import numpy as np

from cotenant.base.identity import PodContainerRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import Signal
from cotenant.recommender.base import display_inputs, recommendation, rounded_up, withheld
from cotenant.recommender.evidence import Evidence, Floats, Integers, RowSummary, row_maximum, row_percentile
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.severity import absolute_severity
from cotenant.recommender.strategies.settings import KrrSettings

CPU_FLOOR_MILLICORES: Final = 10
"""Lowest CPU proposal. Default of Robusta KRR (--cpu-min 10)."""
MEMORY_FLOOR_BYTES: Final = 100 * 1024**2
"""Lowest memory proposal. Default of Robusta KRR (--mem-min 100)."""
LEAST_POINTS: Final = 100
"""Of a pod's answer whose points cover less than half of its stored time. Default of KRR (--points-required)."""
OOM_MEMORY_BUFFER_PERCENT: Final = 25.0
"""Added to the limit at which a container was killed. Default of Robusta KRR (--oom-memory-buffer-percentage)."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SOURCE = {CPU: Signal.CPU_USAGE_MEAN, MEMORY: Signal.MEMORY_WORKING_SET_MAX}


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredUsage:
    """Request and limit of n containers by a rule, before rounding; NaN = no data; `limit` is None if removed.

    `resolution_seconds`, (n,), is the step of the points used; `rules` are the formulas of request and limit as text.
    """

    request: Floats
    limit: Floats | None
    resolution_seconds: Integers
    rules: tuple[str, str]


class KrrSimple:
    """Strategy `krr-simple`: CPU percentile of each pod, then the maximum over the pods; no CPU limit."""

    name = "krr-simple"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """Return one recommendation per container, in the order of `evidence`."""
        return _recommend(self.name, evidence, settings, _percentile_of_pods)


class KrrSimpleLimit:
    """Strategy `krr-simple-limit`: CPU percentiles over the points of all pods together, for request and limit."""

    name = "krr-simple-limit"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """Return one recommendation per container, in the order of `evidence`."""
        return _recommend(self.name, evidence, settings, _pooled_percentiles)


def _recommend(
    name: str,
    evidence: Evidence,
    settings: RecommenderSettings,
    cpu_rule: Callable[[Evidence, KrrSettings], MeasuredUsage],
) -> list[Recommendation]:
    """Return KRR's recommendations over the last `history_hours`: CPU by `cpu_rule`, memory by KRR's only rule."""
    krr = settings.krr
    recent = evidence.last_seconds(krr.history_hours * 3600)
    columns = [_Column(CPU, cpu_rule(recent, krr), recent, krr), _Column(MEMORY, _memory(recent, krr), recent, krr)]
    rows = range(len(recent))
    return [recommendation(name, recent, i, [v for c in columns for v in c.values(i)], settings) for i in rows]


class _Column:
    """Turns the measured numbers of one resource into values with action, reason and inputs."""

    def __init__(self, resource: Resource, measured: MeasuredUsage, evidence: Evidence, krr: KrrSettings) -> None:
        self.resource, self.measured, self.evidence = resource, measured, evidence
        self.unit, self.floor = (1, CPU_FLOOR_MILLICORES) if resource is CPU else (MIB, MEMORY_FLOOR_BYTES)
        # Time with samples: the stored slots of all pods together, or the longest pod by the server's count of steps.
        stored = evidence.observed_seconds(SOURCE[resource])
        if evidence.server is None:
            self.observed = stored
        else:
            points = np.zeros(len(evidence) + 1)
            for pod, answer in evidence.server.pods.items():
                place = evidence.server_rows.get(pod, -1)
                points[place] = max(points[place], answer.cpu_points if resource is CPU else answer.memory_points)
            self.observed = np.fmax(stored, points[:-1] * evidence.server.step_seconds)
        # Why a value is withheld, or OK; the first that applies.
        scaled = evidence.scaled_by_autoscaler(resource) & (not krr.allow_hpa)
        too_short = self.observed < krr.minimum_history_minutes * 60
        cases = [~np.isfinite(measured.request), too_short, scaled]
        names = [Reason.NO_DATA, Reason.NOT_ENOUGH_HISTORY, Reason.HPA_ON_RESOURCE, Reason.OK]
        self.reasons = [names[place] for place in np.select(cases, [0, 1, 2], default=3)]
        self.highest = evidence.highest_seen(resource)
        self.pods = evidence.pods_seen(SOURCE[resource])

    def values(self, index: int) -> list[Value]:
        limits, now = self.measured.limit, self.evidence.now(index, self.resource, Field.LIMIT)
        if limits is not None:
            limit = self._value(index, Field.LIMIT, float(limits[index]))
        elif self.reasons[index] is not Reason.OK:  # as the request is
            limit = withheld(self.resource, Field.LIMIT, now, self.reasons[index], {})
        else:
            level = absolute_severity(self.resource, now, None)
            limit = Value(self.resource, Field.LIMIT, now, None, Action.UNSET, Reason.OK, level, {}, "no CPU limit")
        return [self._value(index, Field.REQUEST, float(self.measured.request[index])), limit]

    def _value(self, index: int, which: Field, measured: float) -> Value:
        now = self.evidence.now(index, self.resource, which)
        inputs = display_inputs(
            measured=measured,
            observed_max=float(self.highest[index]),
            pods_seen=int(self.pods[index]),
            history_hours=float(self.observed[index]) / 3600,
            resolution_seconds=int(self.measured.resolution_seconds[index]),
            floor=self.floor,
        )
        if self.reasons[index] is not Reason.OK:
            return withheld(self.resource, which, now, self.reasons[index], inputs)
        amount = max(rounded_up(measured, self.unit), self.floor)
        reason = Reason.FLOOR if measured < self.floor else Reason.OK
        level = absolute_severity(self.resource, now, amount)
        unit = "1 m" if self.resource is CPU else "1 MiB"
        formula = f"max(round up to {unit} ({self.measured.rules[which is Field.LIMIT]}), floor)"
        return Value(self.resource, which, now, amount, Action.SET, reason, level, inputs, formula)


def _percentile_of_pods(evidence: Evidence, krr: KrrSettings) -> MeasuredUsage:
    """Return the maximum over the pods of each pod's CPU percentile; from the server's answers if it was queried."""
    fraction, rule = krr.cpu_percentile / 100, f"max over pods of p{krr.cpu_percentile:g} of CPU usage"
    answers_fit = evidence.server is not None and isclose(evidence.server.cpu_fraction, fraction)
    answers = _answers(evidence, CPU) if answers_fit else {}
    highest, resolution = _highest_of_pods(evidence, CPU, answers, row_percentile(fraction))
    return MeasuredUsage(highest, None, resolution, (rule, "no CPU limit"))


def _pooled_percentiles(evidence: Evidence, krr: KrrSettings) -> MeasuredUsage:
    """Return percentiles over all pods' points together: the server's raw points if available, else the stored ones."""
    percentiles = (krr.cpu_request_percentile, krr.cpu_limit_percentile)
    pooled = evidence.server.pooled if evidence.server is not None else {}
    answers = np.array([[pooled.get(c, {}).get(p / 100, np.nan) for c in evidence.containers] for p in percentiles])
    # None of a container with a pod that has stored samples and no answer of the server.
    usage, missing = evidence.usage.get(SOURCE[CPU]), np.zeros(len(evidence) + 1, dtype=bool)
    if usage is not None and usage.values.size:
        answered = _answers(evidence, CPU)
        valid = np.isfinite(usage.values).any(axis=1) & np.array(
            [pod not in answered for pod in usage.refs], dtype=bool
        )
        missing[evidence.usage_rows[SOURCE[CPU]][valid]] = True
    answers[:, missing[:-1]] = np.nan
    stored = np.full((2, len(evidence)), np.nan)
    for container, values in evidence.by_container(SOURCE[CPU]):
        points = values[np.isfinite(values)].astype(np.float64)
        stored[:, container] = np.quantile(points, [p / 100 for p in percentiles]) if points.size else np.nan
    # The server's answer where it has one, else the number from the stored series.
    request, limit = np.where(np.isfinite(answers), answers, stored)
    request_rule, limit_rule = (f"p{p:g} over all pods' points of CPU usage" for p in percentiles)
    step = evidence.server.step_seconds if evidence.server is not None else 0
    resolution = np.where(np.isfinite(answers[0]), step, SOURCE[CPU].spec.step_seconds)
    return MeasuredUsage(request, limit, resolution, (request_rule, limit_rule))


def _memory(evidence: Evidence, krr: KrrSettings) -> MeasuredUsage:
    """Return the highest working set + buffer; with `use_oom_kills` at least the killing limit + its buffer."""
    highest, resolution = _highest_of_pods(evidence, MEMORY, _answers(evidence, MEMORY), row_maximum)
    amounts = highest * (100 + krr.memory_buffer_percent) / 100
    rule = f"max over pods of memory x {1 + krr.memory_buffer_percent / 100:g}"
    if krr.use_oom_kills:
        # Highest memory limit in force at any OOM kill, (n,); NaN without a kill.
        limits_bytes = np.full(len(evidence), np.nan)
        for index, kills in enumerate(evidence.oom_kills):
            for kill in kills:
                limits_bytes[index] = np.fmax(limits_bytes[index], evidence.limit_at(index, kill))
        killed = limits_bytes * (100 + OOM_MEMORY_BUFFER_PERCENT) / 100
        amounts = np.where(np.isfinite(amounts), np.fmax(amounts, killed), amounts)
        rule = f"max({rule}, limit at an OOM kill x {1 + OOM_MEMORY_BUFFER_PERCENT / 100:g})"
    return MeasuredUsage(amounts, amounts, resolution, (rule, rule))


def _answers(evidence: Evidence, resource: Resource) -> dict[PodContainerRef, float]:
    """Return the server's number for each pod with enough points."""
    if evidence.server is None:
        return {}
    usage, step, values_by_pod = evidence.usage.get(SOURCE[resource]), evidence.server.step_seconds, {}
    slots = np.isfinite(usage.values).sum(axis=1) if usage is not None else np.zeros(0)
    for pod, answer in evidence.server.pods.items():
        of_cpu = resource is CPU
        value = answer.cpu_percentile_millicores if of_cpu else answer.memory_max_bytes
        points = answer.cpu_points if of_cpu else answer.memory_points
        is_recorded = usage is not None and pod in usage.row_of
        stored = slots[usage.row_of[pod]] * usage.grid.step_seconds if usage is not None and is_recorded else 0
        if np.isfinite(value) and (points >= LEAST_POINTS or 2 * points * step >= stored):
            values_by_pod[pod] = value
    return values_by_pod


def _highest_of_pods(
    evidence: Evidence, resource: Resource, answers: Mapping[PodContainerRef, float], summary: RowSummary
) -> tuple[Floats, Integers]:
    """Return the maximum over each container's pods, (n,), and the step of the points used; NaN without data.

    A pod counts with the server's answer, else with `summary` of its stored series.
    """
    of_server, of_store = (np.full(len(evidence) + 1, -np.inf) for _ in range(2))
    places = np.array([evidence.server_rows.get(pod, -1) for pod in answers], dtype=np.int64)
    np.maximum.at(of_server, places, np.fromiter(answers.values(), dtype=np.float64))
    usage = evidence.usage.get(SOURCE[resource])
    if usage is not None and usage.values.size:
        each = summary(usage.values)
        counted = np.isfinite(each) & np.array([pod not in answers for pod in usage.refs], dtype=bool)
        np.maximum.at(of_store, evidence.usage_rows[SOURCE[resource]], np.where(counted, each, -np.inf))
    highest = np.fmax(of_server, of_store)[:-1]
    fine = of_server[:-1] >= of_store[:-1]
    step = evidence.server.step_seconds if evidence.server is not None else 0
    steps = np.where(fine & np.isfinite(highest), step, SOURCE[CPU].spec.step_seconds)
    return np.where(np.isfinite(highest), highest, np.nan), steps
