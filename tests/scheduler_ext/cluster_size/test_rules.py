"""Each rule of a scheduler binds a node that could leave without it, and the answer names the rule.

Two nodes of 4 cores with a pod of one core each: one of them could leave. Every case adds one rule by which neither
node takes the other's pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.cluster_size.constraints import CounterKey, compile_cluster, is_selected
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizeOptions
from cotenant.scheduler_ext.cluster_size.placing import (
    TRIALS,
    Order,
    PlacingState,
    PlacingTrial,
    ScoreRule,
    order_pods,
    place_pods,
)
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.cluster_size.tables import notes_of
from cotenant.scheduler_ext.rebalance.load import DisruptionBudget
from cotenant.scheduler_ext.volumes.bound_volumes import BoundVolume
from tests.scheduler_ext.cluster_size.two_nodes import AMOUNTS, node, pod, state
from tests.support.sized_clusters import SeededCluster, state_of

Json = dict[str, Any]
WEB = {"matchLabels": {"app": "web"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def requesting(amounts: Json) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": amounts}}]}


def both(spec: Json | Callable[[str], Json], **more: Any) -> SizedCluster:
    """A pod of this spec on each of two nodes."""
    amounts = more.pop("amounts", AMOUNTS)
    specs = {where: spec(where) if callable(spec) else spec for where in ("a", "b")}
    pods = [pod(f"web-{where}", where, specs[where]) for where in specs]
    return state([node("a", amounts), node("b", amounts)], pods, **more)


def zone_volume(zone: str) -> bytes:
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return msgspec.json.encode({"nodeSelectorTerms": [{"matchExpressions": [term]}]})


def claim(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def sidecar(cpu: str, policy: str | None) -> Json:
    """A main container of one core and an init container, a native sidecar where it is restarted always."""
    init = {"name": "side", "resources": {"requests": {"cpu": cpu}}}
    return {**requesting({"cpu": "1"}), "initContainers": [{**init, **({"restartPolicy": policy} if policy else {})}]}


ANTI = {"podAntiAffinity": {REQUIRED: [{"labelSelector": WEB, "topologyKey": "kubernetes.io/hostname"}]}}
SPREAD = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
VOLUMES = {("shop", zone): BoundVolume(zone_volume(zone), "disks.example") for zone in ("a", "b")}
SHARED = {("shop", zone): BoundVolume(b"", "disks.example") for zone in ("a", "b")}
BINDING: dict[str, tuple[SizedCluster, str]] = {
    "cpu": (both(requesting({"cpu": "2500m"})), "2 by cpu"),
    "memory": (both(requesting({"memory": "5Gi"})), "by memory (needs 5.0 GiB"),
    "pod count": (both({}, amounts={**AMOUNTS, "pods": "1"}), "by pod count"),
    "extended resource": (
        both(requesting({"nvidia.com/gpu": "1"}), amounts={**AMOUNTS, "nvidia.com/gpu": "1"}),
        "by nvidia.com/gpu (needs 1, at most 0 free)",
    ),
    "native sidecar": (both(sidecar("1500m", "Always")), "by cpu (needs 2500m"),
    "init container": (both(sidecar("2500m", None)), "by cpu (needs 2500m"),
    "overhead": (both({"overhead": {"cpu": "1500m"}}), "by cpu (needs 2500m"),
    "pod-level request": (both({"resources": {"requests": {"cpu": "2500m"}}}), "by cpu (needs 2500m"),
    "host port": (
        both({"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        "by host port TCP/80",
    ),
    "node selector": (
        both(lambda where: {"nodeSelector": {"kubernetes.io/hostname": where}}),
        "by node selector kubernetes.io/hostname",
    ),
    "node affinity": (
        both(
            lambda where: {
                "affinity": {"nodeAffinity": {REQUIRED: msgspec.json.decode(zone_volume(where))}}
            }
        ),
        "by required node affinity",
    ),
    "anti-affinity": (both({"affinity": ANTI}), "by anti-affinity between pods"),
    "spread with two domains at least": (
        both({"topologySpreadConstraints": [{**SPREAD, "labelSelector": WEB, "minDomains": 2}]}),
        "by topology spread",
    ),
    "zone of a volume": (both(claim, objects=ClusterObjects(volumes=VOLUMES)), "by a volume that is elsewhere"),
    "attach limit": (
        both(claim, objects=ClusterObjects(volumes=SHARED), limits={"disks.example": 1}),
        "by volumes of disks.example",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", BINDING)
def test_a_rule_binds_both_nodes_and_is_named_with_its_numbers(rule: str) -> None:
    cluster, phrase = BINDING[rule]
    size = decide_size(cluster)
    assert size.leaving == ()
    assert {staying_node.stay.reason for staying_node in size.staying} == {Reason.NO_OTHER_PLACE}
    assert all(phrase.removeprefix("2 ") in staying_node.stay.words for staying_node in size.staying), size.staying


def test_without_a_rule_one_of_the_two_nodes_leaves_and_its_pod_goes_to_the_other() -> None:
    size = decide_size(both({}))
    (leaving_node,) = size.leaving
    (staying_node,) = size.staying
    assert [(place.pod, place.target) for place in leaving_node.places] == [
        (f"shop/web-{leaving_node.name}", staying_node.name)
    ]
    assert staying_node.stay.words == "the node is the last remaining node"
    assert size.freed_millicores == 4000


def test_a_pod_that_another_avoids_is_refused_though_it_avoids_nobody() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "kubernetes.io/hostname"}
    shy = pod("shy", "a", {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}, labels={"app": "shy"})
    noisy = pod("noisy", "b", labels={"app": "noisy"})
    assert decide_size(state([node("a"), node("b")], [shy, noisy])).leaving == ()


def test_a_taint_that_is_not_tolerated_keeps_the_pods_of_other_nodes_away() -> None:
    tainted = node("a", taints=(("team", "x", "NoSchedule"),))
    tolerant = pod("tolerant", "a", {"tolerations": [{"key": "team", "operator": "Exists"}]})
    size = decide_size(state([tainted, node("b")], [tolerant, pod("web", "b")]))
    assert [leaving_node.name for leaving_node in size.leaving] == ["a"]


def test_pods_with_affinity_to_each_other_move_together_the_first_of_them_freely() -> None:
    term = {"labelSelector": WEB, "topologyKey": "kubernetes.io/hostname"}
    friends = [pod(f"web-{n}", "a", {"affinity": {"podAffinity": {REQUIRED: [term]}}}) for n in range(2)]
    bare = pod("bare", "b", labels={"app": "other"}, owners=[])  # so that b stays
    size = decide_size(state([node("a"), node("b")], [*friends, bare]))
    assert [leaving_node.name for leaving_node in size.leaving] == ["a"]


def test_a_daemon_set_leaves_with_its_node_and_its_share_is_not_placed_again() -> None:
    daemon = [{"kind": "DaemonSet", "name": "agent", "controller": True}]
    pods = [pod(f"agent-{where}", where, requesting({"cpu": "2500m"}), owners=daemon) for where in ("a", "b")]
    size = decide_size(state([node("a"), node("b")], [*pods, pod("web", "a")]))
    assert len(size.leaving) == 1


IMMOVABLE: dict[str, tuple[Json, ClusterObjects, Reason, str]] = {
    "no controller": (pod("p", "a", owners=[]), ClusterObjects(), Reason.NO_CONTROLLER, "no controller"),
    "safe-to-evict": (
        pod("p", "a", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        ClusterObjects(), Reason.EVICTION_FORBIDDEN, "safe-to-evict=false",
    ),
    "do-not-disrupt": (
        pod("p", "a", annotations={"karpenter.sh/do-not-disrupt": "true"}),
        ClusterObjects(), Reason.EVICTION_FORBIDDEN, "karpenter.sh/do-not-disrupt=true",
    ),
    "do-not-disrupt for a day": (
        pod("p", "a", annotations={"karpenter.sh/do-not-disrupt": "24h"}, creationTimestamp="2026-01-01T00:00:00Z"),
        ClusterObjects(now_seconds=1_767_225_600 + 86_399), Reason.EVICTION_FORBIDDEN, "do-not-disrupt=24h",
    ),
    "hostPath": (
        pod("p", "a", {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}),
        ClusterObjects(), Reason.LOCAL_STORAGE, "hostPath /data",
    ),
    "local volume": (
        pod("p", "a", claim("c")), ClusterObjects(volumes={("shop", "c"): BoundVolume(local=True)}),
        Reason.LOCAL_STORAGE, "local volume of claim c",
    ),
    "budget": (
        pod("p", "a"), ClusterObjects(budgets=[DisruptionBudget("shop", "web", LabelSelector(), 0)]),
        Reason.DISRUPTION_BUDGET, "budget web allows no eviction now",
    ),
    "two budgets": (
        pod("p", "a"), ClusterObjects(budgets=[DisruptionBudget("shop", n, LabelSelector(), 1) for n in "xy"]),
        Reason.TWO_BUDGETS, "x and y",
    ),
    "batch work": (
        pod("p", "a", requesting({"kubernetes.io/batch-cpu": "500"})), ClusterObjects(), Reason.BATCH_WORK, "batch-cpu",
    ),
    "another scheduler": (
        pod("p", "a", {"schedulerName": "volcano"}), ClusterObjects(), Reason.RULE_NOT_MODELLED, "scheduler volcano",
    ),
    "resource claims": (
        pod("p", "a", {"resourceClaims": [{"name": "gpu"}]}),
        ClusterObjects(), Reason.RULE_NOT_MODELLED, "ResourceClaims",
    ),
    "ephemeral volume": (
        pod("p", "a", {"volumes": [{"name": "v", "ephemeral": {}}]}),
        ClusterObjects(), Reason.RULE_NOT_MODELLED, "volumes of kind ephemeral",
    ),
    "unbound claim": (pod("p", "a", claim("c")), ClusterObjects(), Reason.RULE_NOT_MODELLED, "not bound"),
    "volumes not readable": (
        pod("p", "a", claim("c")), ClusterObjects(volumes=None), Reason.RULE_NOT_MODELLED, "could not be read",
    ),
    "budgets not readable": (
        pod("p", "a"), ClusterObjects(budgets=None), Reason.RULE_NOT_MODELLED, "could not be read",
    ),
    "limits not readable": (
        pod("p", "a", claim("c")), ClusterObjects(attach_limits=None), Reason.RULE_NOT_MODELLED, "could not be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IMMOVABLE)
def test_a_pod_that_cannot_be_moved_keeps_its_node_and_never_counts_as_free(case: str) -> None:
    body, objects, reason, phrase = IMMOVABLE[case]
    size = decide_size(state([node("a"), node("b")], [body], objects))
    # b is empty and leaves; a, whose pod b would have taken, stays.
    assert [leaving_node.name for leaving_node in size.leaving] == ["b"]
    (staying_node,) = size.staying
    assert staying_node.stay.reason is reason
    assert phrase in staying_node.stay.words and "shop/p" in staying_node.stay.words
    assert sum(size.unmodelled.values()) == (reason is Reason.RULE_NOT_MODELLED)


def test_a_waiting_pod_gets_its_place_before_a_node_may_leave() -> None:
    waiting = pod("new", "", requesting({"cpu": "3500m"}))
    # Each node has 3 of 4 cores free: the new pod fits on neither, and says nothing about the size.
    assert len(decide_size(state([node("a"), node("b")], [pod("x", "a"), pod("y", "b"), waiting])).waiting) == 1
    fitting = pod("new", "", requesting({"cpu": "2500m"}))
    # It takes one node's free cores, so that the other node's pod has no place beside it: 1 + 1 + 2.5 > 4.
    size = decide_size(state([node("a"), node("b")], [pod("x", "a"), pod("y", "b"), fitting]))
    assert size.leaving == () and size.waiting == ()


def test_a_waiting_pod_that_one_order_leaves_without_a_node_says_nothing_about_the_size() -> None:
    nodes = [node("a"), node("b"), node("tiny", {"cpu": "500m", "memory": "1Gi", "pods": "10"})]
    waiting = [pod(f"small-{n}", "", requesting({"cpu": "1"})) for n in range(2)]
    size = decide_size(state(nodes, [*waiting, pod("large", "", requesting({"cpu": "4"}))]))
    # Smallest first, the small ones lie on a and b of 4 cores each and the large one fits on neither, with tiny or not.
    # Without it one of a and b holds both small ones.
    assert size.waiting == ("shop/large",)
    assert "tiny" in {leaving.name for leaving in size.leaving} and len(size.staying) == 1
    assert "1 pod without a node may find none in today's cluster either, such as shop/large" in notes_of(size)


def test_a_reserve_of_one_node_keeps_what_its_failure_needs() -> None:
    nodes = [node(name) for name in "abcd"]
    pods = [pod(f"web-{name}", name) for name in "abcd"]
    # Four pods of one core: one node of 4 cores holds all. With one in reserve any one of the kept may fail: two kept.
    assert len(decide_size(state(nodes, pods)).staying) == 1
    reserved = decide_size(state(nodes, pods), SizeOptions(reserve_nodes=1))
    assert len(reserved.staying) == 2
    assert len(decide_size(state(nodes, pods), SizeOptions(reserve_zone=True)).staying) == 2
    # The pods of either fit on the other, after whose failure they have no node at all.
    for staying_node in reserved.staying:
        assert staying_node.stay.pod in staying_node.stay.words and staying_node.stay.pod in {
            f"shop/web-{name}" for name in "abcd"
        }
        assert "once this node is removed and a further node fails" in staying_node.stay.words


def test_a_pod_that_a_failing_zone_would_leave_waiting_still_counts_when_a_node_fails() -> None:
    nodes = [node(name, labels={"topology.kubernetes.io/zone": name[0]}) for name in ("a1", "a2", "b1", "b2")]
    tied = pod("tied", "a1", {"nodeSelector": {"topology.kubernetes.io/zone": "a"}})
    size = decide_size(state(nodes, [tied]), SizeOptions(reserve_nodes=1, reserve_zone=True))
    # Without zone a the pod waits, whatever stays; without a1 it needs a2.
    assert {"a1", "a2"} <= {staying_node.name for staying_node in size.staying}


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.words)
def test_pods_of_higher_priority_are_placed_first_in_every_trial(trial: PlacingTrial) -> None:
    # kube-scheduler's queue is sorted by priority first; within one priority the trial's own order stays.
    priorities = [0, 100, -5, 100, 0, 2_000_000]
    pods = [pod(f"p{n}", "a", {"priority": priority}) for n, priority in enumerate(priorities)]
    cluster = compile_cluster(state([node("a")], pods))
    ordered = order_pods(cluster, range(len(pods)), trial)
    assert [priorities[number] for number in ordered] == [2_000_000, 100, 100, 0, 0, -5]
    assert sorted(ordered) == list(range(len(pods)))


@pytest.mark.parametrize("rule", ScoreRule)
def test_sums_that_are_kept_while_pods_are_placed_are_those_of_a_state_made_anew(rule: ScoreRule) -> None:
    # Free amounts, fitting nodes and free shares are updated at each put; a second state reads them from scratch.
    sized_cluster = state_of(SeededCluster.of(11, nodes=12, fill=0.5))
    cluster = compile_cluster(sized_cluster)
    alive = np.arange(12) >= 3
    placing = PlacingState.of(cluster, alive)
    moving = [p for p, where in enumerate(cluster.node_of.tolist()) if where < 3 and not cluster.pods[p].goes_with_node]
    place_pods(placing, moving, PlacingTrial(Order.RANDOM, rule, 5))
    names = {
        p: sized_cluster.nodes[int(placing.places[place])].name
        for p, place in enumerate(placing.place_of.tolist())
        if place >= 0
    }
    anew = compile_cluster(
        replace(sized_cluster, pods=tuple(replace(p, node=names.get(n, "")) for n, p in enumerate(sized_cluster.pods)))
    )
    fresh = PlacingState.of(anew, alive)
    assert (placing.free == fresh.free).all() and (placing.place_of == fresh.place_of).all()
    for pod_class, same in zip(cluster.classes, anew.classes, strict=True):
        assert np.allclose(placing.share_after(pod_class), fresh.share_after(same)), pod_class.example.address
        assert (placing.fitting_nodes(pod_class) == fresh.fitting_nodes(same)).all(), pod_class.example.address


def test_a_do_not_disrupt_of_a_day_is_over_after_a_day() -> None:
    pod_body = pod(
        "p", "a", annotations={"karpenter.sh/do-not-disrupt": "24h"}, creationTimestamp="2026-01-01T00:00:00Z"
    )
    after = ClusterObjects(now_seconds=1_767_225_600 + 86_401)
    assert sized_pod(msgspec.convert(pod_body, SizedPodWire), after).stays is None


def test_pods_that_are_being_deleted_count_for_affinity_and_not_for_spread() -> None:
    going = pod("p", "a", deletionTimestamp="2026-01-01T00:00:00Z")
    ending, stays = (sized_pod(msgspec.convert(p, SizedPodWire), ClusterObjects()) for p in (going, pod("q", "a")))
    web = LabelSelector.parse(WEB)
    counted = [[is_selected(CounterKey(None, web, staying=s), p) for p in (ending, stays)] for s in (False, True)]
    assert counted == [[True, True], [False, True]]
