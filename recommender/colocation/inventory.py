"""NodeColumns from stored history: an Inventory and its present usage replace Node and NodeMetric objects. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import NodeColumns, PeakForecast, ceil_amounts, forecast_columns
from cotenant.recommender.colocation.facts import ColocationNode, fact_columns
from cotenant.recommender.colocation.pods import Measured, PodColumns
from cotenant.recommender.colocation.strategy import ColocationConfig


@dataclass(frozen=True, slots=True)
class Usages:
    """Present usage of nodes, and forecasts of prod's usage on them, by node name in one resource's unit.

    `nodes` is the usage of each entire node, `measured_seconds` the Unix time of its newest sample; `prod_reclaimable`
    the forecast part of prod's requests that prod will not use, missing = 0; `prod_peaks` the forecast for policy
    `forecast`.
    """

    nodes: Mapping[str, float]
    measured_seconds: Mapping[str, float]
    prod_reclaimable: Mapping[str, float] = field(default_factory=dict)
    prod_peaks: Mapping[str, PeakForecast] = field(default_factory=dict)


def node_columns(inventory: Inventory, resource: Resource, now: Usages, pods: PodColumns) -> NodeColumns:
    """Sum the inventory's pods by node; a pod that is gone but still has a metric counts with its usage."""
    nodes = tuple(n.name for n in inventory.nodes)
    facts = [ColocationNode.of(node) for node in inventory.nodes]
    sums = pods.sums(nodes, resource)
    terms: dict[str, Any] = {name: ceil_amounts(column) for name, column in sums.items()}
    used = ceil_amounts([now.nodes.get(name, 0.0) for name in nodes])
    none, moments = np.zeros(len(nodes), dtype=np.int64), now.measured_seconds
    is_known = [np.isfinite(now.nodes.get(name, np.nan)) for name in nodes]
    measured = [moments.get(name, np.nan) if present else np.nan for name, present in zip(nodes, is_known, strict=True)]
    return NodeColumns(
        nodes=nodes,
        resource=resource,
        system_used=np.maximum(used - terms.pop("all_used"), 0),
        host_batch=none,
        host_mid=none,
        node_used=used,
        announced=none,
        prod_reclaimable=ceil_amounts([now.prod_reclaimable.get(name, 0.0) for name in nodes]),
        measured_seconds=np.array(measured, dtype=np.float64),
        **forecast_columns(nodes, now.prod_peaks),
        **fact_columns(facts, resource),
        **terms,
    )


def strategies(inventory: Inventory, config: ColocationConfig) -> list[ColocationStrategy]:
    """Return the strategy of each of the inventory's nodes, in their order."""
    return [config.resolve(n.labels, n.annotations).strategy for n in inventory.nodes]


def pod_columns(inventory: Inventory, used: Mapping[Resource, Mapping[tuple[str, str], float]]) -> PodColumns:
    """Return columns of the running pods, and of every known pod's usage on its present or last node.

    `used` is present usage by (namespace, name), in the resource's unit; a missing key means no metric.
    """
    columns = PodColumns(size=max(len(inventory.pods), 1))
    columns.upsert(pod for pod in inventory.pods if pod.running)
    of_resources = [used.get(resource, {}) for resource in Resource]
    names = set().union(*of_resources)
    measured: dict[str, list[Measured]] = defaultdict(list)
    for pod in inventory.pods:
        name = (pod.namespace, pod.name)
        if name in names and pod.node:
            row = tuple(of.get(name, np.nan) for of in of_resources)
            measured[pod.node].append((*name, pod.effective_priority, row))
    columns.use(measured)
    return columns
