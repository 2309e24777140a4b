"""Clusters by seed with all that binds a node: zones, spread, anti-affinity, sidecars, budgets, volumes, DaemonSets.

`SeededCluster` has the manifests, for a real API server; `state_of` makes a state of them in which a simulated
scheduler has placed every pod, for tests of the engine alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.cluster_size.constraints import compile_cluster
from cotenant.scheduler_ext.cluster_size.model import (
    ATTACHED,
    HOST_PORT,
    UNLIMITED,
    SizedCluster,
    SizedNode,
    SizedPod,
)
from cotenant.scheduler_ext.cluster_size.placing import Order, PlacingState, PlacingTrial, ScoreRule, place_pods
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget
from cotenant.scheduler_ext.volumes.bound_volumes import BoundVolume

Json = dict[str, Any]
ZONES = ("a", "b", "c")
SIZES = (("8", "32Gi"), ("16", "64Gi"), ("16", "64Gi"))
"""(cpu, memory) of the machine types, of which each zone has its share."""
SHAPES = {
    ("100m", "256Mi"): 30,
    ("250m", "512Mi"): 30,
    ("500m", "2Gi"): 20,
    ("1", "2Gi"): 10,
    ("1500m", "6Gi"): 6,
    ("2", "4Gi"): 4,
}
"""Requests of the workloads' main containers, and how many of a hundred workloads have them."""


@dataclass(frozen=True)
class SeededCluster:
    """Nodes and workloads by seed; pods are to request `fill` of the nodes' CPU."""

    seed: int
    nodes: int = 40
    fill: float = 0.45
    namespace: str = "shop"
    workloads: list[Json] = field(default_factory=list)
    daemons: list[Json] = field(default_factory=list)
    budgets: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    """Persistent volumes, each of one zone and with the name of the claim that it is for."""

    def node(self, number: int) -> Json:
        """Labels and amounts of a node."""
        cpu, memory = SIZES[(number // len(ZONES)) % len(SIZES)]
        name = f"size-{self.seed}-{number}"
        labels = {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)], "kubernetes.io/hostname": name}
        return {"name": name, "labels": labels, "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}

    @classmethod
    def of(cls, seed: int, nodes: int = 40, fill: float = 0.45, namespace: str = "shop") -> SeededCluster:
        """The cluster of a seed."""
        cluster = cls(seed, nodes, fill, namespace)
        draw = random.Random(seed)
        cluster.daemons.append(_daemon(namespace))
        total = sum(float(cluster.node(n)["allocatable"]["cpu"]) for n in range(nodes))
        requested, number = 0.0, 0
        while requested < total * fill:
            workload, replicas, cores = _workload(draw, number, namespace)
            cluster.workloads.append(workload)
            if draw.random() < 0.08:
                cluster.volumes.append(_volume(draw, workload))
                replicas = 1
            if draw.random() < 0.4:
                cluster.budgets.append(_budget(workload, replicas))
            requested, number = requested + cores * replicas, number + 1
        return cluster


def _cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _workload(draw: random.Random, number: int, namespace: str) -> tuple[Json, int, float]:
    cpu, memory = draw.choices(list(SHAPES), list(SHAPES.values()))[0]
    replicas = draw.choice((2, 3, 3, 4, 6, 9, 12))
    name = f"app-{number}"
    labels = {"app": name}
    containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    spec: Json = {"containers": containers, "terminationGracePeriodSeconds": 0}
    cores = _cores(cpu)
    if draw.random() < 0.3:  # a native sidecar counts beside the main container
        side = {"name": "proxy", "image": "x", "restartPolicy": "Always"}
        spec["initContainers"] = [{**side, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]
        cores += 0.1
    kind = draw.random()
    selector = {"matchLabels": labels}
    if kind < 0.25:
        zone = {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}
        spec["topologySpreadConstraints"] = [{**zone, "labelSelector": selector}]
    elif kind < 0.45:
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif kind < 0.55:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": draw.choice(ZONES)}
    elif kind < 0.62:
        spec["containers"][0]["ports"] = [{"containerPort": 9000 + number % 50, "hostPort": 9000 + number % 50}]
    meta = {"name": name, "namespace": namespace}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"metadata": meta, "spec": {"replicas": replicas, "selector": selector, "template": template}}
    return body, replicas, cores


def _daemon(namespace: str) -> Json:
    labels = {"app": "agent"}
    requests = {"cpu": "200m", "memory": "256Mi"}
    spec = {"containers": [{"name": "agent", "image": "x", "resources": {"requests": requests}}]}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "tolerations": [{"operator": "Exists"}]}}
    meta = {"name": "agent", "namespace": namespace}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _budget(workload: Json, replicas: int) -> Json:
    meta = {"name": workload["metadata"]["name"], "namespace": workload["metadata"]["namespace"]}
    return {"metadata": meta, "spec": {"selector": workload["spec"]["selector"], "maxUnavailable": 1}}


def _volume(draw: random.Random, workload: Json) -> Json:
    """The volume of a workload, which runs once from now on."""
    meta, spec = workload["metadata"], workload["spec"]["template"]["spec"]
    workload["spec"]["replicas"] = 1
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": meta["name"]}}]
    zone = spec.get("nodeSelector", {}).get("topology.kubernetes.io/zone") or draw.choice(ZONES)
    where = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]
    return {
        "metadata": {"name": f"{meta['namespace']}-{meta['name']}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disks.example", "volumeHandle": meta["name"]},
            "claimRef": {"namespace": meta["namespace"], "name": meta["name"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": where}]}},
        },
    }


def state_of(cluster: SeededCluster) -> SizedCluster:
    """A state in which every pod has a node, chosen as a stock scheduler would."""
    nodes = [_node(cluster.node(number)) for number in range(cluster.nodes)]
    budgets = [
        DisruptionBudget(cluster.namespace, b["metadata"]["name"], LabelSelector.parse(b["spec"]["selector"]), 1)
        for b in cluster.budgets
    ]
    bound = {
        (v["spec"]["claimRef"]["namespace"], v["spec"]["claimRef"]["name"]): BoundVolume(
            msgspec.json.encode(v["spec"]["nodeAffinity"]["required"]), v["spec"]["csi"]["driver"]
        )
        for v in cluster.volumes
    }
    objects = ClusterObjects(budgets=budgets, volumes=bound)
    pods = [
        _pod(workload, number, "ReplicaSet", objects)
        for workload in cluster.workloads
        for number in range(_replicas(workload))
    ]
    for daemon in cluster.daemons:
        pods += [replace(_pod(daemon, n, "DaemonSet", objects), node=node.name) for n, node in enumerate(nodes)]
    names = {name for pod in pods for name in pod.requests}
    more = {name: 1 for name in names if name.startswith(HOST_PORT)}
    more |= {name: UNLIMITED for name in names if name.startswith(ATTACHED)}
    sized = tuple(replace(node, allocatable={**node.allocatable, **more}) for node in nodes)
    return _placed(SizedCluster(sized, tuple(pods)), cluster.seed)


def _replicas(workload: Json) -> int:
    return int(workload["spec"]["replicas"])


def _node(node: Json) -> SizedNode:
    amounts = parse_readable_quantities(node["allocatable"])
    return SizedNode(ExtenderNode(node["name"], allocatable=amounts, labels=node["labels"]), amounts)


def _pod(workload: Json, number: int, kind: str, objects: ClusterObjects) -> SizedPod:
    meta, template = workload["metadata"], workload["spec"]["template"]
    owner = {"kind": kind, "name": meta["name"], "controller": True}
    body = {
        "metadata": {
            **template["metadata"],
            "name": f"{meta['name']}-{number}",
            "namespace": meta["namespace"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
    return sized_pod(msgspec.convert(body, SizedPodWire), objects)


def _placed(state: SizedCluster, seed: int) -> SizedCluster:
    cluster = compile_cluster(state)
    placing = PlacingState.of(cluster, np.ones(len(state.nodes), dtype=np.bool_))
    waiting = [number for number, pod in enumerate(state.pods) if not pod.node]
    assert place_pods(placing, waiting, PlacingTrial(Order.BY_OWNER, ScoreRule.STOCK, seed)) is None, (
        "the cluster is too small"
    )
    names = {pod: state.nodes[int(placing.places[placing.place_of[pod]])].name for pod in waiting}
    return replace(state, pods=tuple(replace(pod, node=names.get(n, pod.node)) for n, pod in enumerate(state.pods)))
