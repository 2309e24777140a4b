"""EDGE: simulated node agents: a node's NodeMetric follows the pods that run on it.

A pod's usage is that of its first report; a new pod's is the mean of its controller's pods, or its request if no usage
of them is known. System usage stays constant.
"""

from __future__ import annotations

from typing import Any

from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource
from cotenant_lab.simulation.api_server.state import Collection, Key, ObjectState
from cotenant_lab.simulation.local_client import LocalClient
from cotenant_lab.simulation.node_reports import METRICS, Pair, metric_status

Json = dict[str, Any]
PODS: Collection = ("", "pods")


class NodeMetricReports:
    """The writer of NodeMetric reports, for one thread at a time; usage is taken from the initial reports."""

    def __init__(self, state: ObjectState, hand: LocalClient) -> None:
        """Listens from now on."""
        self._state, self._hand = state, hand
        self._feed, _ = state.subscribe(PODS, state.version)
        self._usage: dict[Key, Pair] = {}
        self._systems: dict[str, Pair] = {}
        for (_, node), metric in state.items(METRICS):
            status = metric["status"]
            self._systems[node] = _amounts(status["nodeMetric"]["systemUsage"])
            self._usage |= {(p["namespace"], p["name"]): _amounts(p["podUsage"]) for p in status["podsMetric"]}
        by_owner: dict[Key, list[Pair]] = {}
        for key, pod in state.items(PODS):
            if key in self._usage:
                by_owner.setdefault(_owner(key, pod), []).append(self._usage[key])
        self._by_owner: dict[Key, Pair] = {}
        for owner, used in by_owner.items():
            cpu, memory = (sum(amounts) / len(used) for amounts in zip(*used, strict=True))
            self._by_owner[owner] = cpu, memory

    def report(self, now_seconds: float) -> None:
        """Write the reports of nodes on which a pod was bound, became running or ended since the last call."""
        nodes: set[str] = set()
        while not self._feed.empty():
            change = self._feed.get()
            for pod in (change.before, change.after) if change is not None else ():
                if pod is not None and pod["spec"].get("nodeName"):
                    nodes.add(pod["spec"]["nodeName"])
        for node in sorted(nodes & self._systems.keys()):
            metric, system, pods = self._state.get(METRICS, ("", node)), self._systems[node], []
            for key, pod in sorted(self._state.items(PODS)) if metric is not None else ():
                if pod["spec"].get("nodeName") == node and (pod.get("status") or {}).get("phase") == "Running":
                    used = self._usage.get(key) or self._by_owner.get(_owner(key, pod))
                    if used is None:
                        requests = requests_of(pod["spec"])
                        used = float(requests.get("cpu", 0)), float(requests.get("memory", 0))
                    self._usage[key] = used
                    pods.append((*key, used))
            cpu, memory = (system[index] + sum(used[index] for _, _, used in pods) for index in range(2))
            if metric is not None:
                self._hand.told(metric, metric_status((cpu, memory), system, pods, int(now_seconds)))


def _owner(key: Key, pod: Json) -> Key:
    """(namespace, KIND/NAME of its controller)."""
    references = pod["metadata"].get("ownerReferences") or [{"kind": "Pod", "name": key[1]}]
    return key[0], f"{references[0]['kind']}/{references[0]['name']}"


def _amounts(usage: Json) -> Pair:
    """(millicores, bytes) of a report's `resources`."""
    resources = usage["resources"]
    cpu = parse_amount(Resource.CPU, resources["cpu"])
    return float(cpu), float(parse_amount(Resource.MEMORY, resources["memory"]))
