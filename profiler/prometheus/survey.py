"""What the server holds, found in one cheap query: containers by namespace, scrape interval, recorded rates. Pure.

It is evaluated at a few moments of the span, so that a hole at one of them does not blind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.model.usage import DAY_SECONDS, HOUR_SECONDS
from profiler.prometheus.parts import (
    CONTAINERS,
    CPU,
    CPU_RULE,
    LIMITS,
    MEMORY,
    REQUESTS,
    RESTARTS,
    ROOT,
    THROTTLED,
    Rates,
)
from profiler.prometheus.plan import MARK, Population
from profiler.prometheus.promql import Matcher, equal, marked, named, of_labels, selector, union

USUAL_INTERVALS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900)
DEFAULT_INTERVAL_SECONDS: Final = 60
"""Assumed where no sample tells; Prometheus' own default."""
_COUNTED_SECONDS: Final = HOUR_SECONDS - 1
_PARTS: Final = 14

NEEDED: Final[Mapping[str, str]] = {
    CPU: "CPU usage is unknown: the kubelet's cAdvisor metrics are not scraped",
    MEMORY: "memory usage is unknown: the kubelet's cAdvisor metrics are not scraped",
    THROTTLED: "throttled time is unknown: demand counts as usage",
    REQUESTS: "requests are unknown: kube-state-metrics is not scraped",
    LIMITS: "limits are unknown: kube-state-metrics is not scraped",
    RESTARTS: "restarts and OOM kills are unknown: kube-state-metrics is not scraped",
    "kube_pod_owner": "owners are unknown, every pod counts as a bare pod: kube-state-metrics is not scraped",
    "kube_node_status_allocatable": "nodes' capacity is unknown: kube-state-metrics is not scraped",
}
"""Metrics that the numbers rest on, and what is lost without each."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. `recorded`: kubernetes-mixin's rate covers all containers at every moment looked at."""

    population: Population
    rates: Rates
    recorded: bool
    names: frozenset[str]
    """Metrics on the server in the span."""
    notes: tuple[str, ...]


def moments(start_seconds: int, end_seconds: int) -> range:
    """When to look: at most 15 evaluations, an hour to a day apart, the last at the end."""
    step = min(max((end_seconds - start_seconds) // _PARTS, HOUR_SECONDS), DAY_SECONDS)
    count = min((end_seconds - start_seconds) // step, _PARTS)
    return range(end_seconds - count * step, end_seconds + 1, step)


def question(labels: Mapping[str, str], names: frozenset[str]) -> str:
    """The survey's expression; every series is marked with what it tells."""
    own = of_labels(labels)
    containers = selector((named(CPU), *CONTAINERS, *own))
    asked = {
        "namespaces": f"count by (namespace) ({containers})",
        "samples": f"max(count_over_time({containers}[{_COUNTED_SECONDS}s]))",
        "roots": f"count({selector((named(CPU), *ROOT, *own))})",
        "old-labels": f"count({selector((named(CPU), Matcher('pod_name', '!=', ''), equal('pod', ''), *own))})",
    }
    if CPU_RULE in names:
        asked["recorded"] = f"count({selector((named(CPU_RULE), *CONTAINERS, *own))})"
    return union(marked(text, MARK, name) for name, text in asked.items())


def findings(
    answer: Sequence[tuple[dict[str, str], npt.NDArray[np.float64]]], names: frozenset[str], interval_seconds: int
) -> Survey:
    """Read the survey's answer; interval_seconds: the scrape interval if the user gave it, else 0."""
    told: dict[str, npt.NDArray[np.float64]] = {labels.get(MARK, ""): values for labels, values in answer}
    namespaces = {
        labels.get("namespace", ""): int(values.max()) for labels, values in answer if labels.get(MARK) == "namespaces"
    }
    counts = told.get("samples", np.empty(0))
    rates = Rates(interval_seconds or _interval(counts))
    notes = [sentence for metric, sentence in NEEDED.items() if metric not in names]
    if told.get("old-labels", np.zeros(1)).max() > 0:
        notes.append(
            "containers carry the labels pod_name and container_name of old kubelets: relabel them to pod and container"
        )
    if not interval_seconds and len(counts) > 1 and counts.max() > 1.5 * np.median(counts) > 0:
        notes.append("the scrape interval changed in the window, or scrapes were lost: the usual one was taken")
    people = Population(namespaces, int(told.get("roots", np.zeros(1)).max()))
    recorded = told.get("recorded", np.zeros(0))
    covered = len(recorded) == len(counts) > 0 and recorded.min() >= sum(namespaces.values())
    return Survey(people, rates, bool(covered), names, tuple(notes))


def _interval(counts: npt.NDArray[np.float64]) -> int:
    """Scrape interval from the number of samples in an hour: the nearest usual one when it is near, else as counted."""
    if not len(counts):
        return DEFAULT_INTERVAL_SECONDS
    seconds = _COUNTED_SECONDS / max(1.0, float(np.median(counts)))
    usual = min(USUAL_INTERVALS, key=lambda s: abs(s - seconds))
    return usual if abs(usual - seconds) < 0.15 * usual else max(1, round(seconds))
