"""Colocation state of a watched cluster: Nodes, pods and NodeMetrics as they change, and all amounts on request. Pure.

The manager updates it from its mirrors; `explain` builds one for a single node. It does no I/O, and time is an
argument. Parsed annotations, strategies and pods are cached until they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import (
    AMOUNT_CAP,
    IMPLAUSIBLE,
    UNKNOWN,
    Booleans,
    Integers,
    NodeColumns,
    PeakForecast,
    ceil_amounts,
    forecast_columns,
)
from cotenant.recommender.colocation.facts import ColocationNode, fact_columns
from cotenant.recommender.colocation.formulas import BandColumns, Parameters, batch, mid
from cotenant.recommender.colocation.model.prod_peaks import PodCensus
from cotenant.recommender.colocation.pods import PodColumns
from cotenant.recommender.colocation.strategy import ColocationConfig, Resolved
from cotenant.recommender.colocation.zones import zone_batch

Computed = Mapping[tuple[Band, Resource], BandColumns]
"""Amounts of all nodes, the same nodes in the same order for every key."""

_ABOVE_BATCH: Final = frozenset(c for c in PriorityClass if not c.is_reclaimer)
_ABOVE_MID: Final = _ABOVE_BATCH - {PriorityClass.MID}


@dataclass(frozen=True, slots=True)
class _NodeParameters:
    """The columns and parameters of one resource, which change only with nodes or the configuration."""

    facts: Mapping[str, Any]
    given: Parameters


class ColocationState:
    """Mutable colocation state of one cluster; not thread-safe."""

    def __init__(self, config: ColocationConfig, steady: Callable[[], float] | None = None) -> None:
        self._config, self._steady = config, steady
        self._seen: dict[str, float] = {}
        """By node: when its present report was first seen here, by `steady`."""
        self._facts: dict[str, ColocationNode] = {}
        self._resolved: dict[str, Resolved] = {}
        self._by_key: dict[tuple[object, ...], Resolved] = {}
        self._metrics: dict[str, NodeMetric] = {}
        self._pods = PodColumns()
        self._forecasts: Mapping[Resource, Mapping[str, PeakForecast]] = {}
        self._fixed: dict[Resource, _NodeParameters] = {}
        self._doubted: dict[tuple[Band, Resource, str], float] = {}
        """Since when, as `_kept` counts, a node's reports have been of no use, for what is computed of them."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in the order of every result."""
        return tuple(self._facts)

    @property
    def facts(self) -> Sequence[ColocationNode]:
        """Parsed Node objects, in the order of `nodes`."""
        return tuple(self._facts.values())

    @property
    def strategies(self) -> Sequence[ColocationStrategy]:
        """Colocation strategy of every node, in the order of `nodes`."""
        return [self._resolved[name].strategy for name in self._facts]

    def resolved(self, node: str) -> Resolved:
        """Return the colocation strategy of a node and the layers that set it; raise KeyError for an unknown node."""
        return self._resolved[node]

    def metric(self, node: str) -> NodeMetric | None:
        """Return the last NodeMetric of a node; None if there is none."""
        return self._metrics.get(node)

    def configure(self, config: ColocationConfig) -> None:
        """Replace the configuration: resolve every node's strategy again, and drop cached columns."""
        self._config = config
        self._by_key.clear()
        self._resolved = {name: self._resolve(facts.node) for name, facts in self._facts.items()}
        self._fixed.clear()

    def upsert_nodes(self, nodes: Iterable[Node]) -> None:
        """Add or replace nodes: read their annotations, and resolve their strategies from the configuration."""
        for node in nodes:
            self._facts[node.name] = ColocationNode.of(node)
            self._resolved[node.name] = self._resolve(node)
        self._fixed.clear()

    def remove_node(self, name: str) -> None:
        """Remove a node; an unknown one is ignored."""
        self._facts.pop(name, None)
        self._resolved.pop(name, None)
        self._doubted = {key: since for key, since in self._doubted.items() if key[2] != name}
        self._fixed.clear()

    def upsert_pods(self, pods: Iterable[Pod]) -> None:
        """Add or change pods; those that have ended are removed."""
        self._pods.upsert(pods)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Forget a pod that is gone."""
        self._pods.remove(namespace, name)

    def report(self, metrics: Iterable[NodeMetric]) -> None:
        """Add NodeMetrics; each replaces the previous NodeMetric of its node."""
        metrics_by_node = {metric.node: metric for metric in metrics}
        now = self._steady() if self._steady else 0.0
        for name, metric in metrics_by_node.items():
            before = self._metrics.get(name)
            if before is None or before.update_seconds != metric.update_seconds:
                self._seen[name] = now
        self._metrics |= metrics_by_node
        self._pods.report(metrics_by_node.values())

    def forget(self, node: str) -> None:
        """Forget the NodeMetric of a node, because the NodeMetric was deleted."""
        self._seen.pop(node, None)
        if self._metrics.pop(node, None) is not None:
            self._pods.forget(node)

    def set_forecasts(
        self, forecasts: Mapping[Resource, Mapping[str, PeakForecast]], census: PodCensus | None = None
    ) -> None:
        """Replace all forecasts of prod's peak by node, and the census of pods that they include.

        Without a census no pod counts as announced.
        """
        self._forecasts = forecasts
        self._pods.know(census)

    def compute(self, now_seconds: float) -> Computed:
        """Compute the batch and mid amounts of every node, by (band, resource), in the order of `nodes`.

        `now_seconds` is the Unix time by which the age of each NodeMetric is judged. Nothing is published.
        """
        computed: dict[tuple[Band, Resource], BandColumns] = {}
        for resource in Resource:
            columns, parameters = self.columns(resource), self._of_nodes(resource).given
            for band_columns in (batch(columns, parameters, now_seconds), mid(columns, parameters, now_seconds)):
                kept_nodes = self._kept(band_columns, parameters, now_seconds)
                computed[band_columns.band, resource] = replace(band_columns, kept=kept_nodes)
        return computed

    def _kept(self, columns: BandColumns, parameters: Parameters, now_seconds: float) -> Booleans:
        """Return the mask of the nodes whose published amounts stay unchanged, (n,).

        They stay while the report is unusable, for at most the strategy's `degrade_seconds`; after that the report
        counts as missing. If reports are watched, the same holds for a report that is too old by its timestamp: a
        timestamp from another machine's clock is believed only once the report has not changed for `degrade_seconds`.
        """
        now = now_seconds if self._steady is None else self._steady()
        expired = columns.expired & (self._steady is not None)
        since = np.full(len(columns.nodes), -np.inf)
        doubtful = columns.doubtful
        for row, name in enumerate(columns.nodes):
            key = (columns.band, columns.resource, name)
            if doubtful[row]:
                since[row] = self._doubted.setdefault(key, now)
                continue
            self._doubted.pop(key, None)
            if expired[row]:
                since[row] = self._seen.get(name, -np.inf)
        return np.asarray((doubtful | expired) & (now - since <= parameters.degrade_seconds))

    def columns(self, resource: Resource) -> NodeColumns:
        """Return the inputs of the formulas for one resource, one column per term, in the order of `nodes`.

        Amounts are millicores or bytes, rounded up; a node without a NodeMetric has measured_seconds NaN, so that the
        formulas withdraw its amounts.
        """
        nodes = self.nodes
        metrics = [self._metrics.get(name) or NodeMetric(name, None) for name in nodes]
        sums = self._pods.sums(nodes, resource)
        terms: dict[str, Any] = {name: ceil_amounts(column) for name, column in sums.items() if name != "all_used"}
        moments = [np.nan if m.update_seconds is None else m.update_seconds for m in metrics]
        # NodeColumns.system_used of the nodes' reports, (n,).
        used, node_used = [], []
        for metric, facts in zip(metrics, self._facts.values(), strict=True):
            system, node_total = metric.system_used(resource), metric.node_used(resource)
            node_used.append(UNKNOWN if node_total is None else min(node_total, AMOUNT_CAP))
            if metric.implausible_field(resource, facts.node.capacity.get(resource, 0)):
                used.append(IMPLAUSIBLE)
            else:
                used.append(UNKNOWN if system is None else min(system, AMOUNT_CAP))
        return NodeColumns(
            nodes=nodes,
            resource=resource,
            system_used=np.array(used, dtype=np.int64),
            host_batch=ceil_amounts([_hosts(m, resource, _ABOVE_BATCH) for m in metrics]),
            host_mid=ceil_amounts([_hosts(m, resource, _ABOVE_MID) for m in metrics]),
            node_used=np.array(node_used, dtype=np.int64),
            prod_reclaimable=ceil_amounts([m.prod_reclaimable.get(resource, 0) for m in metrics]),
            measured_seconds=np.array(moments, dtype=np.float64),
            announced=ceil_amounts(self._pods.announced(nodes, resource)),
            **forecast_columns(nodes, self._forecasts.get(resource, {})),
            **self._of_nodes(resource).facts,
            **terms,
        )

    def __contains__(self, node: str) -> bool:
        return node in self._facts

    def offered(self, computed: Computed) -> dict[str, dict[Resource, int]]:
        """Return by node the batch amount of each resource, without withdrawn resources, from `compute`'s result."""
        offered_by_node: dict[str, dict[Resource, int]] = {}
        for resource in Resource:
            columns = computed[Band.BATCH, resource]
            for node, amount, lent in zip(columns.nodes, columns.amounts, columns.lent, strict=True):
                if lent:
                    offered_by_node.setdefault(node, {})[resource] = int(amount)
        return offered_by_node

    def kept(self, computed: Computed) -> frozenset[str]:
        """Return the nodes whose published amounts `compute` keeps because NodeMetrics are unusable or too old."""
        kept_nodes: set[str] = set()
        for columns in computed.values():
            kept_flags = columns.kept if columns.kept is not None else ()
            kept_nodes |= {name for name, is_kept in zip(columns.nodes, kept_flags, strict=True) if is_kept}
        return frozenset(kept_nodes)

    def zones(self, node: str, resource: Resource, capacities: Sequence[int]) -> Integers:
        """Return the batch amount of each NUMA zone of a node, given the capacities of its zones in the same order."""
        columns = self.columns(resource)
        pods = self._pods.terms(resource, node)
        return zone_batch(capacities, pods, columns.take(columns.nodes.index(node)), self._resolved[node].strategy)

    def _of_nodes(self, resource: Resource) -> _NodeParameters:
        if resource not in self._fixed:
            facts = fact_columns(self.facts, resource)
            self._fixed[resource] = _NodeParameters(facts, Parameters.of(self.strategies, resource))
        return self._fixed[resource]

    def _resolve(self, node: Node) -> Resolved:
        key = self._config.key(node.labels, node.annotations)
        if key not in self._by_key:
            self._by_key[key] = self._config.resolve(node.labels, node.annotations)
        return self._by_key[key]


def _hosts(metric: NodeMetric, resource: Resource, classes: frozenset[PriorityClass]) -> int:
    """Return the usage of host applications of these classes."""
    return sum(h.usage.get(resource, 0) for h in metric.host_applications if h.priority in classes)
