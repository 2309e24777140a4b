"""Prices of nodes: by a list of machine types with prices, by OpenCost, or by the price sheet of the settings.

The list is CSV with a header: machine_type, price_per_hour, currency, and, if spot machines have other prices,
capacity_type (on-demand or spot; empty: both). A node whose type is not in the list has no price; none is guessed.

OpenCost looks nodes up in their provider's price list, spot machines separately, and exports prices to Prometheus by
node name; its metrics have no currency.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cotenant.base.allocation.gpu_share import gpus_of
from cotenant.base.cluster import Node
from cotenant.base.errors import NoData, UsageError
from cotenant.base.resource import Resource
from cotenant.recommender.money import HOURS_PER_MONTH, monthly_price, node_price
from cotenant.recommender.settings import PriceSettings
from cotenant.scheduler_ext.cluster_size.model import SizedNode

if TYPE_CHECKING:
    from cotenant.profiler.settings import PrometheusSettings

TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
SPOT_LABELS: Final = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels of nodes, with the value that marks spot machines."""
COLUMNS: Final = ("machine_type", "price_per_hour", "currency")
CAPACITY: Final = "capacity_type"
SPOT, ON_DEMAND = "spot", "on-demand"
FIX: Final = "The header is machine_type,price_per_hour,currency; a line is m5.xlarge,0.192,USD."
OPENCOST: Final = "opencost"
OPENCOST_METRIC: Final = "node_total_hourly_cost"
NODE_LABELS: Final = ("exported_node", "node")
"""Labels with the priced node; a scrape without honor_labels renames them, and `node` is then the exporter's."""
SAME_PRICE: Final = 1e-6
"""Prices that differ by less than this share are equal: two exporters of a cluster may round them differently."""
EXAMPLES: Final = 3
STEP_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class NodePrices:
    """The monthly price of each node by name; `notes` are sentences with the number of nodes without a price."""

    currency: str
    monthly: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PriceList:
    """Hourly prices by (machine type, capacity type), all in one currency."""

    currency: str
    hourly: Mapping[tuple[str, str], float]

    def price_of(self, machine: str, capacity: str) -> float | None:
        """Return the hourly price; None if the list does not have the type."""
        return self.hourly.get((machine, capacity), self.hourly.get((machine, "")))

    def node_prices(self, nodes: tuple[SizedNode, ...]) -> NodePrices:
        """Return the price of each node whose machine type is in the list; notes count the others."""
        monthly, unknown, unlabelled = dict[str, float](), Counter[str](), 0
        for node in nodes:
            labels = node.facts.labels
            machine = machine_of(labels)
            price = self.price_of(machine, capacity_of(labels))
            if not machine:
                unlabelled += 1
            elif price is None:
                unknown[machine] += 1
            else:
                monthly[node.name] = price * HOURS_PER_MONTH
        notes = [
            f"the price list has no machine type {name}; {count} {nodes_are(count)} without a price"
            for name, count in sorted(unknown.items())
        ]
        if unlabelled:
            label = TYPE_LABELS[0]
            notes.append(f"{unlabelled} {nodes_are(unlabelled)} without the label {label}, and so without a price")
        return NodePrices(self.currency, monthly, tuple(notes))


def parse_price_list(text: str, file: str) -> PriceList:
    """Return the price list in a CSV text; raise UsageError that names the file, the line and the wrong value."""
    hourly: dict[tuple[str, str], float] = {}
    currencies: dict[str, int] = {}
    for line, cells in price_rows(text, file):
        where = f"{file}, line {line}"
        if not cells["machine_type"]:
            raise UsageError(f"{where}: machine_type is empty", fix=FIX)
        key, written = (cells["machine_type"], cells[CAPACITY]), cells["price_per_hour"]
        if key[1] not in ("", SPOT, ON_DEMAND):
            raise UsageError(f"{where}: {CAPACITY} {key[1]!r} is neither {ON_DEMAND} nor {SPOT}", fix=FIX)
        try:
            price = float(written)
        except ValueError:
            price = math.nan
        if not math.isfinite(price) or price < 0:
            raise UsageError(f"{where}: price_per_hour {written!r} is not a number from 0 up", fix=FIX)
        if hourly.setdefault(key, price) != price:
            raise UsageError(f"{where}: {' '.join(key).strip()} has two prices, {hourly[key]:g} and {price:g}", fix=FIX)
        if not cells["currency"]:
            raise UsageError(f"{where}: currency is empty", fix=FIX)
        currencies.setdefault(cells["currency"], line)
    if not hourly:
        raise UsageError(f"{file} contains no price", fix=FIX)
    if len(currencies) > 1:
        lines = " and ".join(f"{name} (line {line})" for name, line in currencies.items())
        raise UsageError(f"{file}: prices in {len(currencies)} currencies, {lines}", fix="Use one currency per file.")
    return PriceList(next(iter(currencies)), hourly)


def price_rows(text: str, file: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column of each row below the header; missing price columns are ""."""
    reader = csv.DictReader(text.removeprefix("\ufeff").splitlines())
    try:
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"{file}: the header has no column {', '.join(missing)}", fix=FIX)
        names = dict.fromkeys((*(reader.fieldnames or ()), *COLUMNS, CAPACITY))
        for row in reader:
            yield reader.line_num, {name: str(row.get(name) or "").strip() for name in names}
    except csv.Error as error:
        raise UsageError(f"{file}, line {reader.line_num}: the line is not CSV: {error}", fix=FIX) from error


def node_prices(
    nodes: tuple[SizedNode, ...], sheet: PriceSettings, listed: PriceList | ExportedPrices | None
) -> NodePrices:
    """Return the nodes' monthly prices by `listed`, else by the sheet's prices of allocatable CPU, GiB and GPUs."""
    if listed is not None:
        return listed.node_prices(nodes)
    monthly = {}
    for node in nodes:
        amounts = {resource: node.allocatable.get(resource.value, 0) for resource in Resource}
        price = node_price(Node(node.name, amounts, amounts, node.facts.labels), sheet)
        monthly[node.name] = monthly_price(amounts, gpus_of(node.allocatable), price)
    return NodePrices(sheet.currency, monthly)


def nodes_are(count: int) -> str:
    """Return "node is" for one node, else "nodes are"."""
    return "node is" if count == 1 else "nodes are"


def machine_of(labels: Mapping[str, str]) -> str:
    """Return the machine type in a node's labels; "" if there is none."""
    return next((labels[name] for name in TYPE_LABELS if labels.get(name)), "")


def capacity_of(labels: Mapping[str, str]) -> str:
    """Return "spot" for a spot machine, else "on-demand"."""
    spot = any(labels.get(name) == value for name, value in SPOT_LABELS.items())
    return SPOT if spot else ON_DEMAND


@dataclass(frozen=True, slots=True)
class ExportedPrices:
    """Hourly prices by node name; `unusable` says by node name why an exported price is not used."""

    currency: str
    hourly: Mapping[str, float]
    unusable: Mapping[str, str] = field(default_factory=dict)

    def node_prices(self, nodes: tuple[SizedNode, ...]) -> NodePrices:
        """Return the monthly price of each node, with a note for each reason why nodes have none."""
        names = [node.name for node in nodes]
        monthly = {name: self.hourly[name] * HOURS_PER_MONTH for name in names if name in self.hourly}
        notes = [f"OpenCost's prices have no currency: {self.currency} is from recommender.prices.currency"]
        unknown = [name for name in names if name not in self.hourly and name not in self.unusable]
        if unknown:
            listed_nodes = ", ".join(unknown[:EXAMPLES]) + ", ..." * (len(unknown) > EXAMPLES)
            notes.append(
                f"OpenCost exports no price of {listed_nodes}; {len(unknown)} {nodes_are(len(unknown))} without a price"
            )
        reasons = Counter(self.unusable[name] for name in names if name in self.unusable)
        notes += [f"{reason}; {count} {nodes_are(count)} without a price" for reason, count in sorted(reasons.items())]
        return NodePrices(self.currency, monthly, tuple(notes))


def exported_prices(series: Iterable[tuple[Mapping[str, str], float]], currency: str) -> ExportedPrices:
    """Return the price of each node in OpenCost's `series`; a node with different prices, or with zero, has none.

    OpenCost exports zero for an unknown price: no machine is free of charge.
    """
    hourly_prices: dict[str, list[float]] = {}
    for labels, value in series:
        name = next((labels[label] for label in NODE_LABELS if labels.get(label)), "")
        if name:
            hourly_prices.setdefault(name, []).append(value)
    hourly, unusable = dict[str, float](), dict[str, str]()
    for name, values in hourly_prices.items():
        wrong = [value for value in values if not (math.isfinite(value) and value > 0)]
        if wrong:
            unusable[name] = f"OpenCost exports the price {wrong[0]:g} an hour"
        elif max(values) - min(values) > SAME_PRICE * max(values):
            unusable[name] = f"OpenCost exports the prices {min(values):g} and {max(values):g} an hour"
        else:
            hourly[name] = max(values)
    return ExportedPrices(currency, hourly, unusable)


def read_exported_prices(prometheus: PrometheusSettings, currency: str, now_seconds: float) -> ExportedPrices:
    """Return the prices that OpenCost exports now; raise UsageError without a Prometheus, NoData without any price."""
    from cotenant.profiler.prometheus.client import Client
    from cotenant.profiler.prometheus.decode import latest
    from cotenant.profiler.prometheus.promql import equal, of_labels, selector

    if not prometheus.url:
        raise UsageError(
            f"--prices {OPENCOST}: no Prometheus is configured",
            fix=f"Set profiler.prometheus.url to a Prometheus that scrapes OpenCost, or write ./{OPENCOST} for a file.",
        )
    with closing(Client(prometheus)) as client:
        now = int(client.clock_seconds() or now_seconds)
        query = selector((equal("__name__", OPENCOST_METRIC), *of_labels(prometheus.labels)))
        series = latest(client.range(query, now, now, STEP_SECONDS))
    if not series:
        raise NoData(
            f"{client.url} has no recent sample of {OPENCOST_METRIC}",
            fix="Let Prometheus scrape OpenCost's exporter, or give a price list: cotenant size --prices machines.csv.",
        )
    return exported_prices(series, currency)
