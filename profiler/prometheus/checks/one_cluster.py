"""EDGE: checks that some series are of one cluster, before a query combines what has the same names."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.profiler.prometheus import clusters, decode, survey
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.parts import CONTAINERS, CPU
from cotenant.profiler.prometheus.plan import MARK
from cotenant.profiler.prometheus.promql import Matcher, equal, marked_union, metric_name_matcher, of_labels, selector


def usage_in(namespace: str) -> tuple[Matcher, ...]:
    """Return the matchers of the CPU usage of a namespace's containers."""
    return metric_name_matcher(CPU), *CONTAINERS, equal("namespace", namespace)


def require_one_cluster(client: Client, labels: Mapping[str, str], start: int, end: int, *series: Matcher) -> None:
    """Raise SourceUnfit if the series with these labels are of several clusters at start or end (Unix seconds).

    Raise another SourceError if the server does not say.
    """
    own = of_labels(labels)
    expressions = clusters.questions(selector((*series, *own)), own, frozenset({clusters.BIRTH}))
    answer = client.range(marked_union(MARK, expressions), start, end, max(1, end - start))
    survey.refuse_unfit(decode.decode_series(answer), client.describe())
