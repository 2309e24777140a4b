"""EDGE: finds which metrics a server has in a span, from its index or by querying those that a scan needs.

A server that requires a metric name in every selector (Google Cloud's) lists none by labels, and a list may be cut with
a warning: missing names would look like "not scraped".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cotenant.base.errors import SourceError, SourceLimit, SourceProtocol
from cotenant.base.runtimes.heap import runtimes
from cotenant.base.usage.usage import TimeWindow
from cotenant.profiler.prometheus import clusters, decode, inventory, parts, survey
from cotenant.profiler.prometheus.checks import pod_rows
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.kube_state import phases
from cotenant.profiler.prometheus.promql import (
    NAME_MARK,
    metric_name_matcher,
    of_labels,
    selector,
    union,
    with_constant_label,
)

_MATTER: Final = (
    *(*survey.NEEDED, *inventory.OWNERS, *inventory.STATE, phases.QOS, parts.CPU_RULE, *parts.SWAPS),
    *(parts.ACTIVE_FILE, parts.RSS, *pod_rows.NODE_SWAP, parts.PRESSURE, parts.OOM, parts.TERMINATED),
    *map(parts.of_init, (parts.RESTARTS, parts.TERMINATED)),
    *(parts.GPU_ACTIVE, parts.GPU_UTIL, parts.GPU_MEMORY_USED, parts.GPU_MEMORY_FREE, clusters.BIRTH),
)


def present(client: Client, labels: Mapping[str, str], window: TimeWindow, more: Sequence[str] = ()) -> frozenset[str]:
    """Return the names of the metrics that have a series with these labels in the window (Unix seconds).

    If the server does not list names, the metrics of `more` and those that a scan reads are queried at some times of
    the window (`survey.moments`). If these queries fail too, the SourceError of the list is raised.
    """
    try:
        return client.names(*window, selector(of_labels(labels)))
    except (SourceProtocol, SourceLimit) as error:
        heaps = (metric for runtime in runtimes() for metric in runtime.metrics)
        names = tuple(dict.fromkeys((*_MATTER, *heaps, *more)))
        try:
            return _names_with_series(client, labels, survey.moments(*window), names)
        except SourceError:
            raise error from None


def _names_with_series(
    client: Client, labels: Mapping[str, str], moments: range, names: Sequence[str]
) -> frozenset[str]:
    """Return the names that have a series at one of the times; a query that is too large is halved.

    Raise SourceLimit if the query for a single name is too large.
    """
    own = of_labels(labels)
    text = union(
        with_constant_label(f"count({selector((metric_name_matcher(name), *own))})", NAME_MARK, name) for name in names
    )
    try:
        answer = decode.decode_series(client.range(text, moments[0], moments[-1], moments.step))
    except SourceLimit:
        half = len(names) // 2
        if not half:
            raise
        return _names_with_series(client, labels, moments, names[:half]) | _names_with_series(
            client, labels, moments, names[half:]
        )
    return frozenset(row[NAME_MARK] for row, _ in answer if NAME_MARK in row)
