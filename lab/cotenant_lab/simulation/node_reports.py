"""NodeMetrics and forecasts of the demo's cluster at the end of its history. Pure.

Usage of pods and nodes is that of the history's last five minutes; later reports follow the pods
(`controllers.node_metrics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotenant.base.controllers.published import ExistingObject
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import OWN_GROUP, SLO_GROUP
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.usage.usage import Signal
from cotenant.manager.decisions.forecasts import ForecastView
from cotenant.manager.decisions.forecasts import decide as forecast_intents
from cotenant.manager.decisions.results import RunResults
from cotenant_lab.simulation.objects import DEMO_LABELS
from cotenant_lab.simulation.population import Stored, uid_of
from cotenant_lab.synthetic import SyntheticCluster

Json = dict[str, Any]
Pair = tuple[float, float]
METRICS: Final = (SLO_GROUP.partition("/")[0], "nodemetrics")
FORECASTS: Final = (OWN_GROUP.partition("/")[0], "usageforecasts")


def node_metrics(cluster: SyntheticCluster) -> tuple[Json, ...]:
    """Return a NodeMetric for each node, from the last samples of its running pods and of the node."""
    usage, inventory = cluster.usage, cluster.inventory
    sums: dict[tuple[str, str], list[float]] = {}
    for index, signal in enumerate((Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX)):
        for ref, value in zip(usage[signal].refs, _last(cluster, signal), strict=True):
            sums.setdefault((ref.namespace, ref.pod), [0.0, 0.0])[index] += value
    by_node: dict[str, list[tuple[str, str, Pair]]] = {}
    for pod in inventory.pods:
        cpu, memory = sums.get((pod.namespace, pod.name), (0.0, 0.0))
        if pod.end_seconds is None and cpu and memory:
            by_node.setdefault(pod.node, []).append((pod.namespace, pod.name, (cpu, memory)))
    metrics = []
    totals = (_last(cluster, of) for of in (Signal.NODE_CPU_USAGE_MEAN, Signal.NODE_MEMORY_WORKING_SET_MAX))
    for ref, *total in zip(usage[Signal.NODE_CPU_USAGE_MEAN].refs, *totals, strict=True):
        pods = by_node.get(ref.name, ())
        cpu, memory = (max(total[index] - sum(used[index] for _, _, used in pods), 0.0) for index in range(2))
        status = metric_status((total[0], total[1]), (cpu, memory), pods, inventory.time_seconds)
        meta = {"name": ref.name, "labels": dict(DEMO_LABELS)}
        head = {"apiVersion": SLO_GROUP, "kind": "NodeMetric", "metadata": meta}
        metrics.append({**head, "spec": {}, "status": status})
    return tuple(metrics)


def node_report_objects(metrics: Sequence[Json], results: RunResults, nodes: Mapping[str, str]) -> Iterator[Stored]:
    """Yield NodeMetrics, and the manager's forecasts, as the server stores them; `nodes` maps names to uids."""
    created_at = moment(results.computed_seconds)
    for metric in metrics:
        yield METRICS, _with_server_fields(metric, created_at)
    existing_nodes = {name: ExistingObject("v1", "Node", name, uid) for name, uid in nodes.items()}
    view = ForecastView(results, {}, existing_nodes)
    for intent in forecast_intents(view, results.computed_seconds, ManagerSettings()).intents:
        if isinstance(intent, Apply):
            yield FORECASTS, _with_server_fields(dict(intent.body), created_at)


def _with_server_fields(body: Json, created_at: str) -> Json:
    """Return the object with the fields that a server adds; the uid is the same in two demos of a seed."""
    kind, meta = body["kind"], body["metadata"]
    return {**body, "metadata": {**meta, "uid": uid_of(kind, "", meta["name"]), "creationTimestamp": created_at}}


def _last(cluster: SyntheticCluster, signal: Signal) -> list[float]:
    """The last value of each series; 0 for one that has none."""
    values: list[float] = np.nan_to_num(cluster.usage[signal].values[:, -1].astype(np.float64)).tolist()
    return values


def metric_status(total: Pair, system: Pair, pods: Sequence[tuple[str, str, Pair]], time_seconds: int) -> Json:
    """Return the status of a NodeMetric; `pods` has (namespace, name, usage)."""
    listed = [{"namespace": namespace, "name": name, "podUsage": _usage(used)} for namespace, name, used in pods]
    of_node = {"nodeUsage": _usage(total), "systemUsage": _usage(system)}
    return {"updateTime": moment(time_seconds), "nodeMetric": of_node, "podsMetric": listed}


def _usage(amounts: Pair) -> Json:
    return {"resources": {"cpu": f"{amounts[0]:.0f}m", "memory": str(int(amounts[1]))}}
