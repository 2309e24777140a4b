"""Queries whether CPU counters continued over a silence (no node samples), and when later containers started. Pure.

The nodes' root cgroups are the best evidence: after a boot they start from zero. If no node has samples on both sides,
or root cgroups are not scraped, containers of the same pods replace them, except those that had used less CPU than
their start uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cotenant.profiler.off_times import Signs, Silence
from cotenant.profiler.prometheus.parts import CONTAINERS, CORE, CPU, ROOT, Rates
from cotenant.profiler.prometheus.plan import MARK
from cotenant.profiler.prometheus.promql import marked_union, metric_name_matcher, of_labels, selector
from cotenant.profiler.prometheus.survey import LOOKBACK_SECONDS

STARTED: Final = ("container_start_time_seconds", "kube_pod_container_state_started")
"""Metrics of container starts, by cAdvisor and by kube-state-metrics."""
_SETTLE_SECONDS: Final = 900
"""The query covers this time after the end of the silence: nodes do not return all at once."""
_LEAST_SECONDS: Final = 60
"""CPU time of a container whose counter tells whether it went on."""
_BY: Final = {
    "node": (ROOT, f"node, instance, {CORE}", ""),
    "container": (CONTAINERS, f"namespace, pod, container, {CORE}", f" > {_LEAST_SECONDS}"),
}


def moment(silence: Silence) -> int:
    """Return the Unix time at which to evaluate the query on a silence (a time span without node samples)."""
    return silence.end_seconds + _SETTLE_SECONDS


def question(silence: Silence, rates: Rates, labels: Mapping[str, str]) -> str:
    """Return the PromQL that shows whether the cluster was off in a silence; `rates` are of the slowest series."""
    own, reach = of_labels(labels), max(LOOKBACK_SECONDS, 2 * rates.scrape_seconds)
    after, back = _SETTLE_SECONDS + reach, moment(silence) - silence.start_seconds
    expressions = {}
    for name, (chosen, by, least) in _BY.items():
        series = selector((metric_name_matcher(CPU), *chosen, *own))
        # Counters after the silence at their lowest, beside those before it at their highest
        lowest = f"max by ({by}) (min_over_time({series}[{after}s]))"
        highest = f"max by ({by}) (max_over_time({series}[{after}s] offset {back}s))"
        for mark, sign in (("on", ">="), ("anew", "<")):
            expressions[f"{name}-{mark}"] = f"count({lowest} {sign} ({highest}{least}))"
    for metric in STARTED:
        series = selector((metric_name_matcher(metric), *CONTAINERS, *own))
        expressions[metric] = f"min(min_over_time({series}[{after}s]))"
    return marked_union(MARK, expressions)


def read(rows: Iterable[tuple[Mapping[str, str], float]]) -> Signs:
    """Decode the answer to `question` into the evidence on whether the cluster was off during the silence."""
    values_by_mark = {labels.get(MARK, ""): value for labels, value in rows}
    counted = next((n for n in _BY if f"{n}-on" in values_by_mark or f"{n}-anew" in values_by_mark), "node")
    starts = [values_by_mark[metric] for metric in STARTED if metric in values_by_mark]
    return Signs(int(values_by_mark.get(f"{counted}-on", 0)), min(starts, default=None))
