"""What keeps an autoscaler from taking a node away: every kind of object and setting, and what is none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.cluster_size.autoscalers.model import NODEPOOL_LABEL, NodeAutoscalers, NodeGroup, NodePool
from cotenant.scheduler_ext.cluster_size.autoscalers.obstacles import allowed_nodes, find_obstacles
from cotenant.scheduler_ext.cluster_size.autoscalers.reading import (
    claim_of,
    flags_of,
    groups_of_flags,
    groups_of_status,
    pool_of,
)
from cotenant.scheduler_ext.cluster_size.model import SizedCluster
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget
from tests.scheduler_ext.cluster_size.two_nodes import node, pod, state

Json = dict[str, Any]
SCALED = NodeAutoscalers(pod="kube-system/cluster-autoscaler-1", flags={"v": ("4",)})
"""A cluster-autoscaler whose flags are all defaults."""
APP = LabelSelector.parse({"matchLabels": {"app": "web"}})
DAEMON = {"owners": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}
EMPTY_DIR = {"volumes": [{"name": "cache", "emptyDir": {}}]}


def pool(**spec: Any) -> NodeAutoscalers:
    """A Karpenter with one NodePool, to which node a belongs."""
    return NodeAutoscalers(pools=(pool_of({"metadata": {"name": "default"}, "spec": spec}),))


def disruption(**values: Any) -> NodeAutoscalers:
    return pool(disruption=values)


def budgets(*allowed: int) -> ClusterObjects:
    return ClusterObjects(
        budgets=[DisruptionBudget("shop", f"b{n}", APP, disruptions) for n, disruptions in enumerate(allowed)]
    )


@dataclass(frozen=True)
class Case:
    """A pod on node a, and the obstacle: its object, setting and whether it keeps an empty node too; None: none."""

    expected: tuple[str, str, bool] | None
    spec: Json = field(default_factory=dict)
    meta: Json = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    autoscalers: NodeAutoscalers = SCALED
    karpenter: bool = False


WEB, AGENT = "ReplicaSet shop/web", "DaemonSet shop/agent"
CA = "cluster-autoscaler.kubernetes.io"
CASES = {
    "nothing": Case(None),
    "safe-to-evict false": Case(
        (WEB, f"annotation {CA}/safe-to-evict=false", False), meta={"annotations": {f"{CA}/safe-to-evict": "false"}}
    ),
    "safe-to-evict true": Case(None, EMPTY_DIR, {"annotations": {f"{CA}/safe-to-evict": "true"}}),
    "do-not-disrupt": Case(
        (WEB, "annotation karpenter.sh/do-not-disrupt=true", False),
        meta={"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        autoscalers=disruption(), karpenter=True,
    ),
    "do-not-disrupt false": Case(None, meta={"annotations": {"karpenter.sh/do-not-disrupt": "false"}}),
    # A DaemonSet's pod does not move, so that its annotation keeps a node that is otherwise empty.
    "do-not-disrupt of a DaemonSet": Case(
        (AGENT, "annotation karpenter.sh/do-not-disrupt=true", True),
        meta={"annotations": {"karpenter.sh/do-not-disrupt": "true"}, **DAEMON},
        autoscalers=disruption(), karpenter=True,
    ),
    "scale-down-disabled": Case(
        ("Node a", f"annotation {CA}/scale-down-disabled=true", True), node={f"{CA}/scale-down-disabled": "true"}
    ),
    "do-not-disrupt of a node": Case(
        ("Node a", "annotation karpenter.sh/do-not-disrupt=true", True), node={"karpenter.sh/do-not-disrupt": "true"},
        autoscalers=disruption(), karpenter=True,
    ),
    "do-not-disrupt of a claim": Case(
        ("NodeClaim claim", "annotation karpenter.sh/do-not-disrupt=true", True), karpenter=True,
        autoscalers=NodeAutoscalers(
            pools=(NodePool("default"),),
            claims=(claim_of({
                "metadata": {"name": "claim", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "status": {"nodeName": "a"},
            }),),
        ),
    ),
    "never consolidates": Case(
        ("NodePool default", "spec.disruption.consolidateAfter: Never", True),
        autoscalers=disruption(consolidateAfter="Never"), karpenter=True,
    ),
    "only empty nodes": Case(
        ("NodePool default", "spec.disruption.consolidationPolicy: WhenEmpty", False),
        autoscalers=disruption(consolidationPolicy="WhenEmpty"), karpenter=True,
    ),
    "consolidates": Case(
        None, autoscalers=disruption(consolidationPolicy="WhenEmptyOrUnderutilized", consolidateAfter="1m"),
        karpenter=True,
    ),
    "no node may leave": Case(
        ("NodePool default", "spec.disruption.budgets[0].nodes: 0", True),
        autoscalers=disruption(budgets=[{"nodes": "0"}]), karpenter=True,
    ),
    "no under-used node may leave": Case(
        ("NodePool default", "spec.disruption.budgets[0].nodes: 0%", False),
        autoscalers=disruption(budgets=[{"nodes": "0%", "reasons": ["Underutilized"]}]), karpenter=True,
    ),
    "no drifted node may leave": Case(
        None, autoscalers=disruption(budgets=[{"nodes": "0", "reasons": ["Drifted"]}]), karpenter=True
    ),
    # 10 % of one node rounds up to one: all of the pool.
    "one of one at a time": Case(None, autoscalers=disruption(budgets=[{"nodes": "10%"}]), karpenter=True),
    "nodes of the pool are annotated": Case(
        ("NodePool default", "spec.template.metadata.annotations karpenter.sh/do-not-disrupt=true", True),
        autoscalers=pool(template={"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
        karpenter=True,
    ),
    "a pool of fixed size": Case(
        ("NodePool default", "spec.replicas: 3", True), autoscalers=pool(replicas=3), karpenter=True
    ),
    "scale-down is off": Case(
        ("Pod kube-system/cluster-autoscaler-1", "flag --scale-down-enabled=false", True),
        autoscalers=replace(SCALED, flags={"scale-down-enabled": ("false",)}),
    ),
    "a group at its smallest": Case(
        ("ConfigMap s", "minSize 3 of blue", True),
        autoscalers=replace(SCALED, groups=(NodeGroup("blue", 3, 3, "ConfigMap s"),))
    ),
    "a group above its smallest": Case(None, autoscalers=replace(SCALED, groups=(NodeGroup("blue", 3, 4, "s"),))),
    "a group that may be empty": Case(None, autoscalers=replace(SCALED, groups=(NodeGroup("blue", 0, 0, "s"),))),
    "fewest cores of the cluster": Case(
        ("Pod kube-system/cluster-autoscaler-1", "flag --cores-total=8:100", True),
        autoscalers=replace(SCALED, flags={"cores-total": ("8:100",)}),
    ),
    "no controller": Case(("Pod shop/p", "no controller", False), meta={"owners": []}),
    "local storage": Case((WEB, "flag --skip-nodes-with-local-storage=true (cache)", False), EMPTY_DIR),
    "local storage that is allowed": Case(
        None, EMPTY_DIR, autoscalers=replace(SCALED, flags={"skip-nodes-with-local-storage": ("false",)})
    ),
    "local volumes that may be lost": Case(
        None, EMPTY_DIR, {"annotations": {f"{CA}/safe-to-evict-local-volumes": "logs, cache"}}
    ),
    "an emptyDir in memory": Case(None, {"volumes": [{"name": "cache", "emptyDir": {"medium": "Memory"}}]}),
    "local storage on a node of Karpenter": Case(
        None, EMPTY_DIR, autoscalers=replace(SCALED, pools=(NodePool("default"),)), karpenter=True
    ),
    "a pod of kube-system": Case(
        ("ReplicaSet kube-system/web", "flag --skip-nodes-with-system-pods=true", False),
        meta={"namespace": "kube-system"},
    ),
    "a controller of its own kind": Case(
        ("CloneSet shop/web", "flag --skip-nodes-with-custom-controller-pods=true", False),
        meta={"owners": [{"kind": "CloneSet", "name": "web", "controller": True}]},
    ),
    "a budget that is used up": Case((WEB, "PodDisruptionBudget b0", False), objects=budgets(0)),
    "a budget that lets one leave": Case(None, objects=budgets(1)),
    "two budgets": Case((WEB, "PodDisruptionBudgets b0 and b1", False), objects=budgets(1, 1)),
}  # fmt: skip


def built(case: Case) -> SizedCluster:
    labels = {NODEPOOL_LABEL: "default"} if case.karpenter else {}
    nodes = [replace(node("a", labels=labels), annotations=case.node), node("b")]
    return state(nodes, [pod("p", "a", case.spec, **case.meta)], case.objects)


@pytest.mark.parametrize("case", CASES)
def test_each_setting_that_keeps_a_node_is_named_with_its_object(case: str) -> None:
    obstacle_case = CASES[case]
    obstacles = find_obstacles(built(obstacle_case), obstacle_case.autoscalers)
    obstacle_rows = [(obstacle.object, obstacle.setting, obstacle.even_empty) for obstacle in obstacles]
    assert obstacle_rows == ([obstacle_case.expected] if obstacle_case.expected else [])


def test_an_annotation_of_an_autoscaler_that_is_not_there_says_so() -> None:
    cluster = built(CASES["do-not-disrupt"])
    (obstacle,) = find_obstacles(cluster, NodeAutoscalers())
    assert obstacle.words == "the pods must not be evicted; this cluster has no karpenter"
    (eviction_obstacle,) = find_obstacles(cluster, disruption())
    assert eviction_obstacle.words == "the pods must not be evicted"


def test_pods_of_one_controller_are_one_obstacle_with_their_number_and_their_nodes() -> None:
    unevictable = {"annotations": {f"{CA}/safe-to-evict": "false"}}
    cluster = state(
        [node("a"), node("b")],
        [pod("p", "a", **unevictable), pod("q", "a", **unevictable), pod("r", "b", **unevictable)],
    )
    (obstacle,) = find_obstacles(cluster, SCALED)
    assert (obstacle.pods, obstacle.nodes, obstacle.namespace) == (3, ("a", "b"), "shop")


def test_a_group_names_its_nodes_only_where_a_label_has_its_name() -> None:
    cluster = state([node("a", labels={"eks.amazonaws.com/nodegroup": "blue"}), node("b")], [])
    groups = (NodeGroup("blue", 1, 1, "s"), NodeGroup("asg-green-7f3", 1, 1, "s"))
    blue, green = find_obstacles(cluster, replace(SCALED, groups=groups))
    assert blue.nodes == ("a",) and green.nodes is None


def test_a_flag_that_could_not_be_read_is_not_taken_for_its_default() -> None:
    cluster = state([node("a")], [pod("p", "a", EMPTY_DIR)])
    (obstacle,) = find_obstacles(cluster, NodeAutoscalers(status=True))
    assert obstacle.words.endswith("unless a flag allows that (the flags could not be read)")


# 12 nodes: 10 % are 1.2, which rounds up to 2; 0 % is none; a number is itself.
@pytest.mark.parametrize(("text", "allowed"), [("10%", 2), ("0%", 0), ("100%", 12), ("3", 3), ("", None), ("-1", None)])
def test_a_budget_of_nodes_is_a_number_or_a_share_that_rounds_up(text: str, allowed: int | None) -> None:
    assert allowed_nodes(text, 12) == allowed


def test_node_groups_are_read_from_both_forms_of_the_status() -> None:
    new = """
time: 2026-01-01
autoscalerStatus: Running
nodeGroups:
- name: blue
  health: {status: Healthy, cloudProviderTarget: 4, minSize: 2, maxSize: 9}
- name: broken
"""
    old = """Cluster-autoscaler status at 2023-01-01:
Cluster-wide:
  Health:      Healthy (ready=4 unready=0)
NodeGroups:
  Name:        blue
  Health:      Healthy (ready=4 unready=0 registered=4 cloudProviderTarget=4 (minSize=2, maxSize=9))
  ScaleDown:   NoCandidates (candidates=0)
"""
    expected = [("blue", 2, 4)]
    for text in (new, old):
        assert [(group.name, group.smallest, group.target) for group in groups_of_status(text)] == expected


def test_flags_are_read_in_both_forms_and_the_last_one_counts() -> None:
    containers = [{"command": ["./cluster-autoscaler", "--nodes=1:5:blue", "--nodes", "2:9:green"], "args": ["--v=4"]}]
    flags = flags_of({"spec": {"containers": [*containers, {"args": ["--scale-down-enabled"]}]}})
    assert flags == {"nodes": ("1:5:blue", "2:9:green"), "v": ("4",), "scale-down-enabled": ("true",)}
    groups = groups_of_flags(flags, "kube-system/ca")
    assert [(group.name, group.smallest, group.target) for group in groups] == [("blue", 1, None), ("green", 2, None)]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON_VALUES, st.text(max_size=80))
def test_objects_of_any_form_are_read_without_an_error(value: Any, text: str) -> None:
    assert pool_of({"spec": {"disruption": value, "template": value}}).name == ""
    assert pool_of({"spec": {"disruption": {"budgets": value}}}).replicas is None
    assert claim_of({"status": value, "metadata": value}) is not None
    assert isinstance(groups_of_status(text), tuple)
