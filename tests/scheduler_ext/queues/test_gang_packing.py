"""Packing: never a "no" where members fit, exact for members that are alike, and what is short is named."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.pod_identity import Taint, Toleration
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.packing import FreeCapacity, MemberGroup, member_groups, shortage_text
from cotenant.scheduler_ext.queues.view import QueueNode

ANYWHERE = Placement()
ON_GPU = Placement(node_selector={"pool": "gpu"})
TOLERANT = Placement(tolerations=(Toleration("only", "Exists"),))
PLACEMENTS = (ANYWHERE, ON_GPU, TOLERANT)


def node(name: str, cpu: int = 4, pods: int = 10, gpu: bool = False, tainted: bool = False, **more: int) -> QueueNode:
    taints = (Taint("only", "x", "NoSchedule"),) if tainted else ()
    return QueueNode(name, {"cpu": cpu, "pods": pods, **more}, {"pool": "gpu"} if gpu else {}, taints)


def lets_on(node: QueueNode, placement: Placement) -> bool:
    selected = all(node.labels.get(k) == v for k, v in placement.node_selector.items())
    return selected and (not node.taints or bool(placement.tolerations)) and not node.unschedulable


def exists(nodes: Sequence[QueueNode], members: Sequence[MemberGroup]) -> bool:
    """Brute force: whether any assignment of members to nodes holds."""
    singles = [group for group in members for _ in range(group.count)]
    free = [dict(n.allocatable) for n in nodes]

    def place(rest: int) -> bool:
        if rest == len(singles):
            return True
        for number, queue_node in enumerate(nodes):
            needs = singles[rest].needs
            if lets_on(queue_node, singles[rest].placement) and all(
                free[number].get(k, 0) >= v for k, v in needs.items()
            ):
                for name, amount in needs.items():
                    free[number][name] -= amount
                if place(rest + 1):
                    return True
                for name, amount in needs.items():
                    free[number][name] += amount
        return False

    return place(0)


def room(nodes: Sequence[QueueNode], members: Sequence[MemberGroup]) -> FreeCapacity:
    return FreeCapacity.of(nodes, {name for group in members for name in group.needs})


NODES = st.lists(
    st.builds(
        node,
        st.uuids().map(str),
        st.integers(0, 5),
        st.integers(0, 3),
        st.booleans(),
        st.booleans(),
        memory=st.integers(0, 4),
    ),
    max_size=4,
)
GROUP = st.builds(
    MemberGroup,
    st.fixed_dictionaries({"cpu": st.integers(0, 4), "memory": st.integers(0, 3)}),
    st.sampled_from(PLACEMENTS),
    st.integers(1, 3),
)


@settings(max_examples=150)
@given(NODES, GROUP)
def test_for_members_that_are_alike_the_answer_is_exact(nodes: list[QueueNode], group: MemberGroup) -> None:
    fits = exists(nodes, [group])
    assert (not room(nodes, [group]).shortages([group])) is fits
    assert (room(nodes, [group]).placed([group]) is not None) is fits


@settings(max_examples=150)
@given(NODES, st.lists(GROUP, min_size=1, max_size=3))
def test_members_that_can_be_placed_are_never_refused(nodes: list[QueueNode], groups: list[MemberGroup]) -> None:
    fits = exists(nodes, groups)
    if fits:
        assert room(nodes, groups).shortages(groups) == ()
    if room(nodes, groups).placed(groups) is not None:
        assert fits


def test_what_bound_pods_request_is_not_free_and_neither_is_their_number() -> None:
    nodes = (node("a", cpu=4, pods=2), node("b", cpu=4, pods=1))
    pods = [QueuePod("x", "p", "u", node="a", requests={"cpu": 3}), QueuePod("x", "q", "v", node="b", requests={})]
    free = FreeCapacity.of(nodes, ("cpu",), pods)
    assert free.names == ("cpu", "pods")
    assert free.free.tolist() == [[1.0, 1.0], [4.0, 0.0]]
    assert free.placed([MemberGroup({"cpu": 1}, ANYWHERE, 2)]) is None
    assert free.without({"a": {"cpu": 1, "pods": 1}}).free.tolist() == [[0.0, 0.0], [4.0, 0.0]]


def test_two_gangs_fit_side_by_side_only_while_the_first_leaves_room() -> None:
    free = FreeCapacity.of([node("a"), node("b")], ("cpu",))
    four = [MemberGroup({"cpu": 1}, ANYWHERE, 4)]
    remaining = free.placed(four)
    assert remaining is not None
    assert remaining.shortages(four) == ()
    assert remaining.shortages([MemberGroup({"cpu": 2}, ANYWHERE, 3)]) != ()


def test_a_shortage_names_node_groups_what_they_have_and_why_others_are_not_used() -> None:
    nodes = [
        *(node(f"g{i}", cpu=4000, gpu=True) for i in range(3)),
        node("plain", cpu=64_000),
        node("held", cpu=64_000, gpu=True, tainted=True),
        QueueNode("off", {"cpu": 64_000, "pods": 9}, {"pool": "gpu"}, (), True),
    ]
    members = [MemberGroup({"cpu": 2000}, ON_GPU, 16)]
    first, *others = room(nodes, members).shortages(members)
    assert (first.node_group, first.nodes, first.fitting, first.resource) == ("pool=gpu", 3, 6, "cpu")
    assert str(first) == "pool=gpu (3 nodes): capacity for 6 of 16 pods, cpu 12 free of 32 needed"
    assert {(other.node_group, other.refused) for other in others} == {
        ("without pool", "node selector pool=gpu"),
        ("pool=gpu, taint only=x:NoSchedule", "taint only=x:NoSchedule is not tolerated"),
        ("pool=gpu, cordoned", "node is cordoned"),
    }
    assert shortage_text([first] * 6).endswith("; and 2 further node groups")


def test_required_node_affinity_decides_where_members_may_go() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    nodes = [QueueNode(z, {"cpu": 8, "pods": 9}, {"zone": z}) for z in "ab"]
    members = [MemberGroup({"cpu": 1}, Placement(affinity=required), 9)]
    first, second = room(nodes, members).shortages(members)
    assert (first.node_group, first.fitting) == ("zone=a", 8)
    assert (second.node_group, second.refused) == ("zone=b", "required node affinity")


def test_different_members_that_exceed_the_sum_are_told_what_is_short() -> None:
    members = [MemberGroup({"cpu": 2}, ANYWHERE, 2), MemberGroup({"cpu": 3}, ANYWHERE, 1)]
    (short,) = room([node("a"), node("b", cpu=2)], members).shortages(members)
    assert (short.resource, short.needed, short.free, short.nodes) == ("cpu", 7, 6, 2)


def test_a_resource_that_no_node_has_and_a_cluster_without_nodes_are_told() -> None:
    members = [MemberGroup({"nvidia.com/gpu": 1}, ANYWHERE, 2)]
    (short,) = room([node("a")], members).shortages(members)
    assert (short.resource, short.needed, short.free) == ("nvidia.com/gpu", 2, 0)
    (none,) = room([], members).shortages(members)
    assert str(none) == "the cluster (0 nodes): has no node"


def test_members_are_grouped_by_what_they_ask_for() -> None:
    pods = [QueuePod("x", str(i), str(i), requests={"cpu": 1 + i % 2}, placement=ON_GPU) for i in range(5)]
    assert sorted((g.requests["cpu"], g.count) for g in member_groups(pods)) == [(1, 3), (2, 2)]
