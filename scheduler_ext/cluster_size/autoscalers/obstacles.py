"""The objects and settings that prevent Karpenter and cluster-autoscaler from removing nodes. Pure.

    find_obstacles(state, autoscalers)

Sources: Karpenter's documentation of disruption (karpenter.sh/v1) and the FAQ of cluster-autoscaler 1.35. Pods with the
same controller and the same setting are one obstacle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from cotenant.base.kubernetes.moments import duration_seconds
from cotenant.scheduler_ext.cluster_size.autoscalers.model import (
    BOTH,
    NODEPOOL_LABEL,
    NodeAutoscaler,
    NodeAutoscalers,
    Obstacle,
)
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizedNode, SizedPod

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
"""Annotation of a pod: "true", or a duration since the pod's creation during which it applies."""
FORBIDS_EVICTION: Final = {SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true", "karpenter.sh/do-not-evict": "true"}
"""Annotations of pods, with the value that forbids autoscalers to evict them."""
KEPT_NODE: Final = {
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    DO_NOT_DISRUPT: "true",
    "karpenter.sh/do-not-consolidate": "true",
}
"""Annotations of nodes, with the value that forbids autoscalers to remove them."""
STOCK_CONTROLLERS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet", "Node"})
GROUP_LABELS: Final = (
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
)
"""Labels that may have the name of a node's group."""
CONSOLIDATES: Final = frozenset({"Empty", "Underutilized"})
"""Karpenter's reasons to remove nodes that are not needed; drift and expiry replace nodes instead."""
_CORES, _GIB = "cores-total", "memory-total"


class _Rule(NamedTuple):
    """A setting of a pod that an autoscaler obeys."""

    setting: str
    obeyed_by: tuple[NodeAutoscaler, ...]
    words: str
    even_empty: bool = False


def find_obstacles(state: SizedCluster, autoscalers: NodeAutoscalers) -> tuple[Obstacle, ...]:
    """Return all obstacles to removing nodes: those of nodes and pools, then those of pods, each sorted by object."""
    result: list[Obstacle] = []
    why = "the autoscaler does not change the node"
    for node in state.nodes:
        for key, value in KEPT_NODE.items():
            if node.annotations.get(key) == value:
                setting = f"annotation {key}={value}"
                result.append(Obstacle(f"Node {node.name}", setting, _owner_of_key(key), why, (node.name,), True))
    for claim in autoscalers.claims:
        if claim.annotations.get(DO_NOT_DISRUPT) == "true":
            where, setting = (claim.node,) if claim.node else (), f"annotation {DO_NOT_DISRUPT}=true"
            result.append(Obstacle(f"NodeClaim {claim.name}", setting, _owner_of_key(DO_NOT_DISRUPT), why, where, True))
    result += _pool_obstacles(state, autoscalers)
    result += _group_obstacles(state, autoscalers)
    result += _pod_obstacles(state, autoscalers)
    for number, obstacle in enumerate(result):
        if not set(obstacle.obeyed_by) & set(autoscalers.found):
            names = " or ".join(obstacle.obeyed_by)
            result[number] = replace(obstacle, words=f"{obstacle.words}; this cluster has no {names}")
    return tuple(result)


def _owner_of_key(key: str) -> tuple[NodeAutoscaler, ...]:
    return (NodeAutoscaler.KARPENTER if key.startswith("karpenter.sh/") else NodeAutoscaler.CLUSTER_AUTOSCALER,)


def _pool_obstacles(state: SizedCluster, autoscalers: NodeAutoscalers) -> Iterator[Obstacle]:
    for pool in autoscalers.pools or ():
        nodes = tuple(node.name for node in state.nodes if node.facts.labels.get(NODEPOOL_LABEL) == pool.name)
        count = len(nodes)
        rules: list[tuple[str, str, bool]] = []  # setting, words, whether it keeps an empty node
        if pool.consolidate_after == "Never":
            rules.append(("spec.disruption.consolidateAfter: Never", "Karpenter removes no node of this pool", True))
        if pool.policy == "WhenEmpty":
            effect = "Karpenter removes a node only once it is empty"
            rules.append(("spec.disruption.consolidationPolicy: WhenEmpty", effect, False))
        if pool.annotations.get(DO_NOT_DISRUPT) == "true":
            setting = f"spec.template.metadata.annotations {DO_NOT_DISRUPT}=true"
            rules.append((setting, "each node of this pool gets the annotation", True))
        if pool.replicas is not None:
            effect = f"a pool of fixed size: it has {count} nodes and keeps {pool.replicas} at any load"
            rules.append((f"spec.replicas: {pool.replicas}", effect, True))
        for number, budget in enumerate(pool.budgets):
            allowed = allowed_nodes(budget.nodes, count)
            concerns = not budget.reasons or CONSOLIDATES & set(budget.reasons)
            if not concerns or (allowed is not None and 0 < count <= allowed):
                continue
            when = f", for {budget.duration} from each time of cron {budget.schedule!r} UTC" if budget.schedule else ""
            why = f" for reason {' or '.join(budget.reasons)}" if budget.reasons else ""
            most = f"at most {allowed} of {count} nodes may leave at a time" if allowed else "no node may leave"
            effect = f"{most if allowed is not None else 'the number of nodes is invalid'}{why}{when}"
            setting = f"spec.disruption.budgets[{number}].nodes: {budget.nodes}"
            rules.append((setting, effect, not budget.reasons or "Empty" in budget.reasons))
        for setting, effect, even_empty in rules:
            yield Obstacle(f"NodePool {pool.name}", setting, (NodeAutoscaler.KARPENTER,), effect, nodes, even_empty)


def allowed_nodes(text: str, count: int) -> int | None:
    """Return how many of `count` nodes a budget's `text` ("10%" or "2") lets leave at a time; None if it is invalid."""
    number = text.removesuffix("%")
    if not number.isdecimal():
        return None
    return math.ceil(count * int(number) / 100) if text.endswith("%") else int(number)


def _group_obstacles(state: SizedCluster, autoscalers: NodeAutoscalers) -> Iterator[Obstacle]:
    own = (NodeAutoscaler.CLUSTER_AUTOSCALER,)
    pod = f"Pod {autoscalers.pod}"
    if autoscalers.flag("scale-down-enabled", "true") == "false":
        yield Obstacle(
            pod, "flag --scale-down-enabled=false", own, "cluster-autoscaler removes no node",
            tuple(node.name for node in state.nodes if NODEPOOL_LABEL not in node.facts.labels), even_empty=True,
        )  # fmt: skip
    for group in autoscalers.groups:
        group_labels = dict.fromkeys(GROUP_LABELS, group.name)
        nodes = tuple(node.name for node in state.nodes if group_labels.items() & node.facts.labels.items())
        target = group.target if group.target is not None else len(nodes) or None
        if group.smallest > 0 and (target is None or target <= group.smallest):
            has = "its number of nodes is unknown" if target is None else f"it has {target}"
            effect = f"the group {group.name} keeps at least {group.smallest} nodes, and {has}"
            yield Obstacle(
                group.source, f"minSize {group.smallest} of {group.name}", own, effect, nodes or None, even_empty=True
            )
    for name, unit, amount in ((_CORES, "cores", _total(state, "cpu", 1000)), (_GIB, "GiB", _total(state, "memory"))):
        least = autoscalers.flag(name, "").partition(":")[0]
        if least.isdecimal() and int(least) > 0:
            effect = f"the cluster keeps at least {least} {unit}; its nodes offer {amount:,.0f} to pods"
            setting = f"flag --{name}={autoscalers.flag(name, '')}"
            yield Obstacle(pod, setting, own, effect, None, even_empty=True)


def _total(state: SizedCluster, resource: str, unit: int = 1 << 30) -> float:
    return sum(node.allocatable.get(resource, 0) for node in state.nodes) / unit


def _pod_obstacles(state: SizedCluster, autoscalers: NodeAutoscalers) -> Iterator[Obstacle]:
    """Yield one obstacle for each controller and setting, with the nodes and the number of its pods."""
    node_of = {node.name: node for node in state.nodes}
    pods_by_rule: dict[tuple[str, _Rule], list[SizedPod]] = defaultdict(list)
    for pod in state.pods:
        if pod.node in node_of:
            for rule in _pod_rules(pod, node_of[pod.node], autoscalers):
                namespace, kind, name = (
                    pod.owner.split("/", 2) if pod.owner.count("/") >= 2 else (pod.namespace, "Pod", pod.name)
                )
                pods_by_rule[f"{kind} {namespace}/{name}", rule].append(pod)
    for (controller, rule), pods in sorted(pods_by_rule.items(), key=lambda item: (item[0][0], item[0][1].setting)):
        nodes = tuple(sorted({pod.node for pod in pods}))
        yield Obstacle(
            controller, rule.setting, rule.obeyed_by, rule.words, nodes, rule.even_empty, pods[0].namespace, len(pods)
        )


def forbidding_annotation(annotations: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (key, value) of the first annotation that forbids the pod's eviction; None if there is none."""
    return next(
        (
            (key, text)
            for key, value in FORBIDS_EVICTION.items()
            if (text := annotations.get(key, "")) == value or (key == DO_NOT_DISRUPT and duration_seconds(text))
        ),
        None,
    )


def _pod_rules(pod: SizedPod, node: SizedNode, autoscalers: NodeAutoscalers) -> Iterator[_Rule]:
    karpenter_node = NODEPOOL_LABEL in node.facts.labels
    daemon = pod.marks.kind in ("DaemonSet", "Node")
    for key in FORBIDS_EVICTION:
        if forbidding := forbidding_annotation({key: pod.marks.annotations.get(key, "")}):
            yield _Rule(f"annotation {key}={forbidding[1]}", _owner_of_key(key), "the pods must not be evicted", daemon)
    if daemon or pod.goes_with_node:
        return
    budgets = pod.marks.budgets or ()
    for name, allowed in budgets:
        if allowed <= 0:
            yield _Rule(f"PodDisruptionBudget {name}", BOTH, "the disruption budget allows no eviction now")
    if len(budgets) > 1:
        names = " and ".join(name for name, _ in budgets)
        yield _Rule(f"PodDisruptionBudgets {names}", BOTH, "a pod with two disruption budgets cannot be evicted")
    # The rules of cluster-autoscaler alone; `safe-to-evict: "true"` on the pod overrides each.
    is_kept_by_it = NodeAutoscaler.CLUSTER_AUTOSCALER in autoscalers.found and not karpenter_node
    if not is_kept_by_it or pod.marks.annotations.get(SAFE_TO_EVICT) == "true":
        return
    own, kind = (NodeAutoscaler.CLUSTER_AUTOSCALER,), pod.marks.kind
    if not kind:
        yield _Rule("no controller", own, "no controller would create the pod again")
    safe = {name.strip() for name in pod.marks.annotations.get(SAFE_VOLUMES, "").split(",")}
    volumes = [name for name in pod.marks.local if name not in safe]
    without_budget = pod.namespace == "kube-system" and pod.marks.budgets == ()
    foreign = bool(kind) and kind not in STOCK_CONTROLLERS
    unread = "" if autoscalers.flags is not None else ", unless a flag allows that (the flags could not be read)"
    for flag, holds, what, which in (
        ("skip-nodes-with-local-storage", bool(volumes), "pods with volumes on the node", f" ({', '.join(volumes)})"),
        ("skip-nodes-with-system-pods", without_budget, "pods of kube-system without a disruption budget", ""),
        ("skip-nodes-with-custom-controller-pods", foreign, "pods of custom controllers", ""),
    ):
        if holds and autoscalers.flag(flag, "true") != "false":
            effect = f"cluster-autoscaler keeps nodes with {what}{unread}"
            yield _Rule(f"flag --{flag}=true{which}", own, effect)
