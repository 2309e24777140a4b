"""Prices that OpenCost's exporter leaves in Prometheus: what it says each node costs an hour.

OpenCost looks a node up in its provider's price list, spot machines apart, and exports the answer by the node's name;
its metrics carry no currency.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cotenant.base.errors import NoData, UsageError
from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.scheduler_ext.cluster_size.model import SizedNode
from cotenant.scheduler_ext.cluster_size.prices import NodePrices, nodes_are

if TYPE_CHECKING:
    from cotenant.profiler.settings import PrometheusSettings

WORD: Final = "opencost"
METRIC: Final = "node_total_hourly_cost"
NODE_LABELS: Final = ("exported_node", "node")
"""The label of the priced node; a scrape without honor_labels renames it, and `node` is then that of the exporter."""
SAME_PRICE: Final = 1e-6
"""Two exporters of one cluster may differ by less than this share of a price: they read it as text."""
EXAMPLES: Final = 3
STEP_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class ExportedPrices:
    """Price an hour of each node by its name. unusable: why an exported price does not count, by node."""

    currency: str
    hourly: Mapping[str, float]
    unusable: Mapping[str, str] = field(default_factory=dict)

    def node_prices(self, nodes: tuple[SizedNode, ...]) -> NodePrices:
        """The price of each node a month, with a sentence for each reason why nodes have none."""
        names = [node.name for node in nodes]
        monthly = {name: self.hourly[name] * HOURS_PER_MONTH for name in names if name in self.hourly}
        notes = [f"OpenCost's prices name no currency: {self.currency} by recommender.prices.currency"]
        unknown = [name for name in names if name not in self.hourly and name not in self.unusable]
        if unknown:
            words = ", ".join(unknown[:EXAMPLES]) + ", ..." * (len(unknown) > EXAMPLES)
            notes.append(f"OpenCost exports no price of {words}; {len(unknown)} {nodes_are(len(unknown))} without one")
        reasons = Counter(self.unusable[name] for name in names if name in self.unusable)
        notes += [f"{reason}; {count} {nodes_are(count)} without a price" for reason, count in sorted(reasons.items())]
        return NodePrices(self.currency, monthly, tuple(notes))


def exported_prices(series: Iterable[tuple[Mapping[str, str], float]], currency: str) -> ExportedPrices:
    """Prices from the newest value of each series of the metric; a node with two prices, or none above zero, has none.

    A price of zero says that OpenCost knows none: no machine is free.
    """
    found: dict[str, list[float]] = {}
    for labels, value in series:
        name = next((labels[label] for label in NODE_LABELS if labels.get(label)), "")
        if name:
            found.setdefault(name, []).append(value)
    hourly, unusable = dict[str, float](), dict[str, str]()
    for name, values in found.items():
        wrong = [value for value in values if not (math.isfinite(value) and value > 0)]
        if wrong:
            unusable[name] = f"OpenCost gives {wrong[0]:g} an hour"
        elif max(values) - min(values) > SAME_PRICE * max(values):
            unusable[name] = f"OpenCost gives {min(values):g} and {max(values):g} an hour"
        else:
            hourly[name] = max(values)
    return ExportedPrices(currency, hourly, unusable)


def read_exported_prices(prometheus: PrometheusSettings, currency: str, now_seconds: float) -> ExportedPrices:
    """Prices that OpenCost exports now; UsageError without an address, NoData where Prometheus has no price."""
    from cotenant.profiler.prometheus.client import Client
    from cotenant.profiler.prometheus.decode import latest
    from cotenant.profiler.prometheus.promql import equal, of_labels, selector

    if not prometheus.url:
        raise UsageError(
            f"--prices {WORD}: no Prometheus is configured",
            fix=f"Set profiler.prometheus.url to the one that scrapes OpenCost; for a file of that name: ./{WORD}.",
        )
    client = Client(prometheus)
    try:
        now = int(client.clock_seconds() or now_seconds)
        query = selector((equal("__name__", METRIC), *of_labels(prometheus.labels)))
        series = latest(client.range(query, now, now, STEP_SECONDS))
    finally:
        client.close()
    if not series:
        raise NoData(
            f"{client.url} has no sample of {METRIC} of the last minutes",
            fix="Let it scrape OpenCost's exporter, or give a price list: cotenant size --prices machines.csv.",
        )
    return exported_prices(series, currency)
