"""EDGE: reads from Prometheus the nodes' CPU usage and limits over time, by kind of pods (lane), as agents report them.

One query per batch of nodes: `cotenant_enforcer_cpu_cores` by node and kind of value. Cores become millicores. Nodes
that were never scraped are left out; their actions are then shown without values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

import msgspec
import numpy as np

from cotenant.base.errors import SourceProtocol
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.model.enforcement import NUMBERS, NodeLanes
from cotenant.profiler.prometheus.checks.one_cluster import require_one_cluster
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.promql import (
    in_values,
    metric_name_matcher,
    of_labels,
    selector,
    union,
    with_constant_label,
)
from cotenant.profiler.settings import PrometheusSettings

METRIC: Final = "cotenant_enforcer_cpu_cores"
DRY: Final = "cotenant_enforcer_dry_run"
BATCH: Final = 50
STEP_SECONDS: Final = 60
SOURCE: Final = "the agents' metrics in Prometheus"
_DRY_OF: Final = "dry_run"


class _LaneSeries(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


def lanes(settings: PrometheusSettings, nodes: Sequence[str], since: float, until: float) -> list[NodeLanes]:
    """Return CPU usage and limits of these nodes over time, by kind of pods (lane); raise SourceError on failure."""
    all_series: list[_LaneSeries] = []
    start, end = (int(at) // STEP_SECONDS * STEP_SECONDS for at in (since, until))
    with closing(Client(settings)) as client:
        require_one_cluster(client, settings.labels, start, end, metric_name_matcher(METRIC))
        for first in range(0, len(nodes), BATCH):
            text = query(nodes[first : first + BATCH], settings.labels)
            answer = client.range(text, start, end, STEP_SECONDS)
            try:
                all_series += msgspec.json.decode(answer, type=list[_LaneSeries])
            except UNDECODABLE as error:
                raise SourceProtocol(f"the answer to a query of {METRIC} is not a matrix: {error}") from error
    return lanes_by_node(all_series, set(nodes), start, end)


def query(nodes: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return the PromQL for the CPU lanes of some nodes, whose label is `node` or, if renamed, `exported_node`."""
    own = [(in_values(label, nodes), *of_labels(labels)) for label in ("node", "exported_node")]
    lanes = (f"max by (node, exported_node, of) ({selector((metric_name_matcher(METRIC), *some))})" for some in own)
    dry = (f"max by (node, exported_node) ({selector((metric_name_matcher(DRY), *some))})" for some in own)
    return union((*lanes, *(with_constant_label(text, "of", _DRY_OF) for text in dry)))


def lanes_by_node(all_series: Iterable[_LaneSeries], nodes: set[str], start: int, end: int) -> list[NodeLanes]:
    """Group the CPU series by node, with their values on the queried time grid."""
    size = (end - start) // STEP_SECONDS + 1
    cells: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for series in all_series:
        node = series.metric.get("exported_node") or series.metric.get("node", "")
        of = series.metric.get("of", "")
        if node in nodes and of in (*NUMBERS, "capacity", _DRY_OF):
            out = [float("nan")] * size
            for at, text in series.values:
                place = round((at - start) / STEP_SECONDS)
                if 0 <= place < size:
                    out[place] = float(text)
            cells[node][of] = out
    node_lanes, nothing = [], [float("nan")] * size
    for node, numbers in sorted(cells.items()):
        dry = [v for v in numbers.get(_DRY_OF, nothing) if not np.isnan(v)]
        capacity = [v for v in numbers.get("capacity", nothing) if not np.isnan(v)]
        values = {name: [MILLICORES_PER_CORE * v for v in numbers.get(name, nothing)] for name in NUMBERS}
        millicores = MILLICORES_PER_CORE * (capacity[-1] if capacity else 0.0)
        is_dry = bool(dry and dry[-1])
        node_lanes.append(NodeLanes(node, float(start), float(STEP_SECONDS), millicores, values, is_dry, SOURCE))
    return node_lanes
