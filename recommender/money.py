"""The price of a proposal's change: requested amounts times the price sheet. Pure; runs after the back-test.

Money follows requests, because nodes are bought for requests; it is saved only once nodes are removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.cluster import Inventory, Node, Workload
from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.recommender.evidence import Floats
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.settings import PriceSettings

HOURS_PER_MONTH: Final = 730
"""8,760 hours of a year / 12."""


class Price(NamedTuple):
    """Prices of a core, a GiB of memory and a GPU, in currency per hour."""

    core: float
    gib: float
    gpu: float


def node_price(node: Node, own: PriceSettings) -> Price:
    """Return a node's prices: those of the price sheet's first label that the node has, or else the general prices."""
    return Price(
        _price_by_label(node, own.core_hour_by_node_label, own.per_core_hour),
        _price_by_label(node, own.gib_hour_by_node_label, own.per_gib_hour),
        _price_by_label(node, own.gpu_hour_by_node_label, own.per_gpu_hour),
    )


def prices(workloads: Sequence[Workload], inventory: Inventory, own: PriceSettings) -> list[Price]:
    """Return the prices for each workload: the mean over its running pods' nodes, or general prices without pods."""
    general = Price(own.per_core_hour, own.per_gib_hour, own.per_gpu_hour)
    if not (own.core_hour_by_node_label or own.gib_hour_by_node_label or own.gpu_hour_by_node_label):
        return [general] * len(workloads)
    of_node = {node.name: node_price(node, own) for node in inventory.nodes}
    paid: dict[WorkloadRef, list[Price]] = defaultdict(list)
    for pod in inventory.pods:
        if pod.running:
            paid[pod.workload].append(of_node.get(pod.node, general))
    means = {ref: Price(*np.mean(node_prices, axis=0).tolist()) for ref, node_prices in paid.items()}
    return [means.get(workload.ref, general) for workload in workloads]


def monthly_savings(freed: Mapping[Resource, Floats], price: Sequence[Price]) -> dict[Resource, Floats]:
    """Return by resource the money saved per month, one value per container.

    `freed` is the decrease of all pods' requests in the resource's unit, `price` the prices for each container.
    """
    core, gib, _ = np.array(price, dtype=np.float64).reshape(-1, len(Price._fields)).T
    rates = {Resource.CPU: (MILLICORES_PER_CORE, core), Resource.MEMORY: (GIB, gib)}
    return {resource: freed[resource] / unit * rate * HOURS_PER_MONTH for resource, (unit, rate) in rates.items()}


def monthly_price(amounts: Mapping[Resource, int], gpus: float, price: Price) -> float:
    """Return the price per month of amounts in millicores and bytes, and of a number of GPUs."""
    parts = {r: np.array([amounts.get(r, 0)], dtype=np.float64) for r in Resource}
    return sum(float(each[0]) for each in monthly_savings(parts, [price]).values()) + gpus * price.gpu * HOURS_PER_MONTH


def price_findings(
    findings: Sequence[ClusterFinding], inventory: Inventory, own: PriceSettings
) -> list[ClusterFinding]:
    """Return the same findings in their order, with the monthly price of what idle workloads and nodes would free.

    A node is priced with its GPUs; the GPUs of an idle workload have findings of their own.
    """
    subjects = {finding.subject for finding in findings if finding.freed}
    workloads = [workload for workload in inventory.workloads if workload.ref in subjects]
    paid: dict[ContainerRef | WorkloadRef | NodeRef, tuple[float, Price]] = {
        workload.ref: (0.0, price) for workload, price in zip(workloads, prices(workloads, inventory, own), strict=True)
    }
    paid |= {NodeRef(node.name): (node.gpus, node_price(node, own)) for node in inventory.nodes}
    return [
        replace(finding, monthly_saving=monthly_price(finding.freed, *paid[finding.subject]))
        if finding.freed
        else finding
        for finding in findings
    ]


def _price_by_label(node: Node, sheet: Mapping[str, float], general: float) -> float:
    """Return the price of the sheet's first entry `label=value` that the node matches, else the general price.

    All prices are currency per hour, for one core, GiB or GPU.
    """
    pairs = ((key.partition("="), amount) for key, amount in sheet.items())
    return next((amount for (label, _, value), amount in pairs if node.labels.get(label) == value), general)
