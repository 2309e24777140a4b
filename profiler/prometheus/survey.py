"""A survey of the server in one cheap query: containers by namespace, scrape interval, recorded rates. Pure.

It is evaluated at a few times of the span, so that a hole at one of them does not hide everything, and a second time if
the server's newest sample is older than the last of them. Samples of several clusters, or unusable ones, are refused
here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.errors import SourceUnfit
from cotenant.base.usage.quality import ScrapeSpan
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.profiler.prometheus import clusters
from cotenant.profiler.prometheus.parts import (
    CONTAINERS,
    CORE,
    CPU,
    CPU_RULE,
    GPU_MEMORY_USED,
    LIMITS,
    MEMORY,
    ONE_CORE,
    ONE_EACH,
    REQUESTS,
    RESTARTS,
    ROOT,
    SWAPS,
    THROTTLED,
    Rates,
)
from cotenant.profiler.prometheus.plan import MARK, MAX_STEPS, Population
from cotenant.profiler.prometheus.promql import (
    Matcher,
    equal,
    marked_union,
    metric_name_matcher,
    of_labels,
    selector,
    union,
    with_constant_label,
)
from cotenant.profiler.prometheus.sampling.intervals import COUNTED_SECONDS, RateSpan, nearest_usual

DEFAULT_INTERVAL_SECONDS: Final = 60
"""Scrape interval if no sample shows one; Prometheus' own default."""
_PARTS: Final = 14
MOMENTS_AT_ONCE: Final = 4
"""Evaluations in one query: the server holds all series that lived between the first and the last of them."""
LOOKBACK_SECONDS: Final = 300
"""Prometheus' look-back: an evaluation sees no sample that is older. A newest sample older than that is a late one."""
_QUIET_SECONDS: Final = 1200
"""A kube-state-metrics that is scraped every 15 minutes is not silent between two scrapes."""

NEEDED: Final[Mapping[str, str]] = {
    CPU: "CPU usage is unknown",
    MEMORY: "memory usage is unknown",
    THROTTLED: "throttled time is unknown: usage counts as demand",
    REQUESTS: "requests are unknown",
    LIMITS: "limits are unknown",
    RESTARTS: "restarts and OOM kills are unknown",
    "kube_pod_owner": "owners are unknown, every pod counts as a bare pod",
    "kube_pod_status_phase": "phases of pods are unknown: pods with recent usage count as running",
    "kube_node_status_allocatable": "nodes' capacity is unknown",
}
"""Metrics on which the results depend, and what is lost without each."""
_SAID: Final = frozenset({THROTTLED, "kube_pod_status_phase"})
"""Whose loss says what stands for it; the others' say why they are missing."""
_EXPORTERS: Final[Mapping[str, str]] = {
    "container_": "the kubelet's cAdvisor metrics are",
    "kube_": "kube-state-metrics is",
}
"""Beginning of a metric's name -> who exports it."""
_NAMED_BY: Final = ("namespace", "pod", "container")
_OF_OPENTELEMETRY: Final = (
    *("k8s_pod_", "k8s.pod.", "k8s_container_", "k8s.container.", "container_cpu_time", "container.cpu."),
)
"""Beginnings of the names that OpenTelemetry's receivers give the kubelet's metrics."""
_SCRAPE_CADVISOR: Final = "Let Prometheus, or a Prometheus receiver, scrape the kubelet's /metrics/cadvisor."
POD_INFO: Final = "kube_pod_info"
OLD_LABELS: Final = "containers carry only the labels pod_name and container_name of kubelets before 1.16"
RELABEL: Final = (
    "Relabel these series: metric_relabel_configs with source_labels: [pod_name], target_label: pod, and the same from "
    "container_name to container."
)

Floats = npt.NDArray[np.float64]
Answer = Sequence[tuple[dict[str, str], Floats]]
"""Series of one answer with their finite values, oldest first."""


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """The facts about the server, found once by the survey: what it holds and how to query it.

    `recorded` is true if kubernetes-mixin's recorded rate covers all containers at every surveyed time; that rate
    equals cotenant's, and is read instead if its window fits.
    """

    population: Population
    rates: Rates
    recorded: bool
    names: frozenset[str]
    """Names of the metrics on the server in the surveyed span."""
    notes: tuple[str, ...]
    newest_seconds: int | None = None
    """Time of the newest sample of a container's CPU, rounded up; None where none was seen."""
    created_seconds: int | None = None
    """When the cluster's namespace kube-system was created; None where the server does not say."""
    cores: float = 0.0
    """Number of CPU series per container if there is one for each core, else 0."""
    state_seconds: int = 0
    """Longest scrape interval of kube-state-metrics at the surveyed times; 0 if unknown."""
    spans: tuple[RateSpan, ...] = ()
    """Rate windows by span of days; time that no span covers is read by `rates`."""
    scrapes: tuple[ScrapeSpan, ...] = ()
    """Scrape intervals that were found, and of how many series."""
    latest_seconds: int = 0
    """Shortest scrape interval of any series in the last hour that the survey read; 0 if unknown."""

    @property
    def swap(self) -> str:
        """Name of the metric of the containers' swapped memory; empty if the server has none."""
        return next((name for name in SWAPS if name in self.names), "")

    @property
    def slowest(self) -> Rates:
        """Query windows for the longest scrape interval of any container."""
        return self.slowest_in(0, sys.maxsize)

    def slowest_in(self, start_seconds: int, end_seconds: int) -> Rates:
        """Return query windows for the longest scrape interval of any container in [start, end)."""
        slowest = (span.rates.slowest for span in self.spans_in(start_seconds, end_seconds))
        return max((self.rates, *slowest), key=lambda rates: rates.scrape_seconds)

    def spans_in(self, start_seconds: int, end_seconds: int) -> tuple[RateSpan, ...]:
        """Return the spans of equal query windows that overlap [start, end)."""
        return tuple(s for s in self.spans if s.end_seconds > start_seconds and s.start_seconds < end_seconds)

    @property
    def of_state(self) -> Rates:
        """Query windows for hourly signals: those of kube-state-metrics, and the kubelets' counters of OOM kills."""
        return Rates(max(self.slowest.scrape_seconds, self.state_seconds))

    def visible_end(self, end_seconds: int) -> int:
        """Return the window's end, or the newest sample's Unix time if a query at the end no longer sees it."""
        newest = self.newest_seconds
        return end_seconds if newest is None or newest >= end_seconds - LOOKBACK_SECONDS else newest


def containers(labels: Mapping[str, str]) -> str:
    """Return the selector of the containers' CPU metric."""
    return selector((metric_name_matcher(CPU), *CONTAINERS, *of_labels(labels)))


def newest_question(metric: str) -> str:
    """Return the PromQL of the time of the newest sample of a metric, at each time at which a sample is visible."""
    return f"max(timestamp({metric}))"


def search(start_seconds: int, end_seconds: int, step_seconds: int = LOOKBACK_SECONDS) -> range:
    """Return the times at which to search for a newest sample, the last at the end, as many as fit in one answer.

    At the default step each time sees all samples since the previous one.
    """
    start = max(start_seconds, end_seconds - MAX_STEPS * step_seconds)
    count = max(0, end_seconds - start) // step_seconds
    return range(end_seconds - count * step_seconds, end_seconds + 1, step_seconds)


def newest(answer: Answer) -> int | None:
    """Return the newest sample's time from an answer to `newest_question`, rounded up to a second; None if empty."""
    times = [float(values.max()) for _, values in answer]
    return math.ceil(max(times)) if times else None


def moments(start_seconds: int, end_seconds: int) -> range:
    """Return the times at which to evaluate the survey: at most 15, an hour to a day apart, the last at the end."""
    step = min(max((end_seconds - start_seconds) // _PARTS, HOUR_SECONDS), DAY_SECONDS)
    count = min((end_seconds - start_seconds) // step, _PARTS)
    return range(end_seconds - count * step, end_seconds + 1, step)


def concatenate_answers(answers: Sequence[Answer]) -> list[tuple[dict[str, str], Floats]]:
    """Join answers for successive times into a single answer."""
    values: dict[frozenset[tuple[str, str]], list[Floats]] = {}
    for labels, some in (series for answer in answers for series in answer):
        values.setdefault(frozenset(labels.items()), []).append(some)
    return [(dict(labels), np.concatenate(parts)) for labels, parts in values.items()]


def question(labels: Mapping[str, str], names: frozenset[str]) -> str:
    """Return the PromQL of the survey, in which a label on each series names what the series counts."""
    own, of_containers, of_cpu = of_labels(labels), containers(labels), metric_name_matcher(CPU)
    # A metric of kube-state-metrics with few series, as far as the server has one
    of_state = next((name for name in ("kube_node_info", "kube_node_status_allocatable") if name in names), POD_INFO)
    one_each, roots = (selector((of_cpu, *chosen, ONE_EACH, *own)) for chosen in (CONTAINERS, ROOT))
    expressions = {
        "namespaces": f"count by (namespace) (group without ({CORE}) ({one_each}))",
        "cores": f"count({selector((of_cpu, *CONTAINERS, ONE_CORE, *own))})",
        "samples": f"max(count_over_time({of_containers}[{COUNTED_SECONDS}s]))",
        "newest": newest_question(of_containers),
        "state": f"max(count_over_time({selector((metric_name_matcher(of_state), *own))}[{COUNTED_SECONDS}s]))",
        "hidden": f"group({selector((of_cpu, Matcher('exported_container', '!=', ''), *own))}) * time()",
        "exported": f"count({selector((metric_name_matcher(POD_INFO), Matcher('exported_pod', '!=', ''), *own))})",
        "roots": f"count(group without ({CORE}) ({roots}))",
        "old-labels": f"count({selector((of_cpu, Matcher('pod_name', '!=', ''), equal('pod', ''), *own))})",
    }
    expressions |= clusters.questions(of_containers, own, names)
    if GPU_MEMORY_USED in names:
        expressions["devices"] = f"count({selector((metric_name_matcher(GPU_MEMORY_USED), *own))})"
    if CPU_RULE in names:
        expressions["recorded"] = f"count({selector((metric_name_matcher(CPU_RULE), *CONTAINERS, *own))})"
    return marked_union(MARK, expressions)


def refuse_unfit(answer: Answer, describe: str) -> None:
    """Raise SourceUnfit if the samples cannot be read as one cluster's usage; `describe` names the server."""
    by_mark: dict[str, list[tuple[dict[str, str], Floats]]] = {}
    for labels, values in answer:
        by_mark.setdefault(labels.get(MARK, ""), []).append((labels, values))
    clusters.check(by_mark, describe)
    if "hidden" in by_mark and clusters.latest(by_mark["hidden"]) >= clusters.latest(by_mark.get("clusters", ())):
        raise SourceUnfit(
            f"{describe}: cAdvisor is scraped without honor_labels, so that its label container is the exporter's own",
            fix="Set honor_labels: true (honorLabels in a ServiceMonitor) where Prometheus scrapes cAdvisor.",
        )
    if "old-labels" in by_mark and "namespaces" not in by_mark:
        raise SourceUnfit(f"{describe}: {OLD_LABELS}", fix=RELABEL)


def labels_question(labels: Mapping[str, str], names: frozenset[str]) -> str:
    """Return the PromQL that counts usage series with each label of a container; "" if `names` has no usage metric."""
    own = of_labels(labels)
    return union(
        with_constant_label(
            f"count({selector((metric_name_matcher(metric), Matcher(label, '!=', ''), *own))})", MARK, mark
        )
        for metric in (CPU, MEMORY)
        if metric in names
        for label in _NAMED_BY
        for mark in (f"{metric} {label}",)
    )


def refuse_unlabelled(answer: Answer, names: frozenset[str], describe: str) -> None:
    """Raise SourceUnfit if no usage metric has all labels that identify a container."""
    marks = {labels.get(MARK, "") for labels, _ in answer}
    lacking = {m: [label for label in _NAMED_BY if f"{m} {label}" not in marks] for m in (CPU, MEMORY) if m in names}
    if not lacking or not all(lacking.values()):
        return
    metric, missing = next(iter(lacking.items()))
    written = _other_names(names)
    fix = (
        _SCRAPE_CADVISOR
        if written
        else (
            "A standalone cAdvisor does not know pods: scrape the kubelet's /metrics/cadvisor instead. If that is "
            "scraped, let no relabelling drop these labels."
        )
    )
    first = f"the label {missing[0]}"
    labels = first if len(missing) == 1 else f"the labels {', '.join(missing[:-1])} and {missing[-1]}"
    raise SourceUnfit(f"{describe}: no series of {metric} has {labels}{written}", fix=fix)


def _other_names(names: Collection[str]) -> str:
    """Return what a server has in place of the kubelet's own metrics, for a message; "" if nothing looks like it."""
    foreign_names = sorted(name for name in names if name.startswith(_OF_OPENTELEMETRY))
    return f"; it has OpenTelemetry's names, such as {foreign_names[0]}, which are not read" if foreign_names else ""


def findings(answer: Answer, names: frozenset[str], interval_seconds: int) -> ServerProfile:
    """Decode the survey's answer; `interval_seconds` is the scrape interval if the user set it, else 0."""
    values_by_mark: dict[str, Floats] = {labels.get(MARK, ""): values for labels, values in answer}
    namespaces = {
        labels.get("namespace", ""): int(values.max()) for labels, values in answer if labels.get(MARK) == "namespaces"
    }
    counts = values_by_mark.get("samples", np.empty(0))
    rates = Rates(
        interval_seconds or (nearest_usual(float(np.median(counts))) if len(counts) else DEFAULT_INTERVAL_SECONDS)
    )
    # Whether another metric reports the same facts; the inventory notes the pods for which it does not
    notes = [loss for metric, loss in losses(names).items() if not (metric == "kube_pod_owner" and POD_INFO in names)]
    if values_by_mark.get("old-labels", np.zeros(1)).max() > 0:
        notes.append(f"some {OLD_LABELS} and are left out. {RELABEL}")
    if values_by_mark.get("exported", np.zeros(1)).max() > 0:
        notes.append(
            "kube-state-metrics is scraped without honor_labels: its labels exported_namespace, exported_pod and "
            "exported_container were read; set honor_labels: true, other tools need it"
        )
    nodes, devices = (int(values_by_mark.get(mark, np.zeros(1)).max()) for mark in ("roots", "devices"))
    population = Population(namespaces, nodes, devices)
    recorded = values_by_mark.get("recorded", np.zeros(0))
    covered = bool(len(recorded) == len(counts) > 0 and recorded.min() >= sum(namespaces.values()))
    created = clusters.created_seconds(_series_with_mark(answer, "birth"))
    state = values_by_mark.get("state", np.empty(0))
    state_seconds = nearest_usual(float(state.min())) if len(state) else 0
    recent = newest(_series_with_mark(answer, "newest"))
    cores = float(values_by_mark.get("cores", np.zeros(1)).max() / max(1, sum(namespaces.values())))
    latest = 0 if interval_seconds or not len(counts) else nearest_usual(float(counts[-1]))
    return ServerProfile(
        population, rates, covered, names, tuple(notes), recent, created, cores, state_seconds, latest_seconds=latest
    )


def losses(names: Collection[str]) -> dict[str, str]:
    """Return what is unknown because a needed metric is missing, by metric, with the cause if other names show it."""
    return {metric: f"{loss}{_why(metric, names)}" for metric, loss in NEEDED.items() if metric not in names}


def _why(metric: str, names: Collection[str]) -> str:
    """Explain why a metric is missing: if its exporter has other metrics, something on the way drops it."""
    if metric in _SAID:
        return ""
    if metric in (CPU, MEMORY) and (other := _other_names(names)):
        return f"{other.replace('; it', ': the server')}. {_SCRAPE_CADVISOR}"
    prefix, exporter = next((p, e) for p, e in _EXPORTERS.items() if metric.startswith(p))
    if not any(name.startswith(prefix) for name in names):
        return f": {exporter} not scraped"
    unset = "no container sets any, or " if metric in (REQUESTS, LIMITS) else ""
    return f": {exporter} scraped, but without {metric} ({unset}an allow-list or a relabelling drops it)"


def lateness(now_seconds: int, server: ServerProfile, state_seconds: int) -> tuple[str, ...]:
    """Return notes on late usage, and on late kube-state-metrics, whose newest sample is of `state_seconds`."""
    newest = server.newest_seconds
    notes = []
    patience = max(LOOKBACK_SECONDS, 2 * max(server.rates.scrape_seconds, server.latest_seconds))
    if newest is not None and newest < now_seconds - patience:
        notes.append(
            f"the newest usage is of {_utc(newest)}, {_span(now_seconds - newest)} ago, and the inventory is of "
            "that time: the server lags behind, has stopped scraping, or a clock is wrong"
        )
    if state_seconds < min(now_seconds, newest or now_seconds) - max(_QUIET_SECONDS, patience):
        notes.append(
            f"kube-state-metrics has been silent since {_utc(state_seconds)}, {_span(now_seconds - state_seconds)} "
            "ago: nodes, owners and requests are of that time"
        )
    return tuple(notes)


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _span(seconds: int) -> str:
    if seconds < 2 * HOUR_SECONDS:
        return f"{seconds // 60} minutes"
    return f"{seconds // HOUR_SECONDS} hours" if seconds < 2 * DAY_SECONDS else f"{seconds // DAY_SECONDS} days"


def _series_with_mark(answer: Answer, mark: str) -> Answer:
    return [(labels, values) for labels, values in answer if labels.get(MARK) == mark]
