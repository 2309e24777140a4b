"""Pods that differ where copies are alike: a decision's time grows with what a tenant wrote, not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

import pytest

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.kubernetes.quota_tree import MOST_LEVELS, QuotaNode
from cotenant.scheduler_ext.cluster_size.constraints import compile_cluster
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizedNode, SizedPod
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.queues.decide import decide as decide_queues
from cotenant.scheduler_ext.queues.model.gang import Gang, gangs_of
from cotenant.scheduler_ext.queues.model.queue_pod import Placement, QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.packing import FreeCapacity
from cotenant.scheduler_ext.queues.quota_trees import build_quota_forest
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView
from cotenant.scheduler_ext.reservations.plans.preview import FreeNode, pods_per_node

NOW = 1_795_089_600.0
TIMES = 4
MOST = 2.5 * TIMES
"""Four times the objects take four times as long, by their square 16 times; twice that and a bit for a busy machine."""
LEAST_SECONDS = 0.1
TRIES = 3
NODES = tuple(QueueNode(f"n{number}", {"cpu": 8_000, "memory": 1 << 35, "pods": 110}) for number in range(50))
QUOTA = QuotaNode("shop", "shop", minimum={"cpu": 1_000}, maximum={"cpu": 4_000})
OF_GANG = (GANG_GATE, RESERVATION_GATE)


def pod(number: int, gang: str = "", requests: Mapping[str, int] | None = None) -> QueuePod:
    gates = (QUOTA_GATE, *OF_GANG) if gang else (QUOTA_GATE,)
    amounts = requests or {"cpu": 3_000}
    name = f"p{number}"
    return QueuePod(
        "shop", name, f"u{number}", quota="shop", gang=gang, placement=Placement(), gates=gates, requests=amounts
    )


def gang(name: str, group: Iterable[str] = ()) -> Gang:
    return Gang("shop", name, 1, 1, group=tuple(group) or (f"shop/{name}",))


def queues(count: int, pods: Callable[[int], Iterable[QueuePod]], gangs: Callable[[int], Iterable[Gang]]) -> QueueView:
    declared = gangs_of((), (replace(each, source=f"pods/shop/{each.name}") for each in gangs(count)))
    return QueueView(NOW, {"shop": QUOTA}, pods=tuple(pods(count)), nodes=NODES, gangs=declared)


def nested(count: int, valid: bool) -> QueueView:
    """A chain of quotas, each the parent of the next, from the root or from one whose minimum exceeds its maximum."""
    first = QuotaNode("q0", "shop", minimum={"cpu": 1 if valid else 3}, maximum={"cpu": 2})
    rest = (QuotaNode(f"q{number}", "shop", parent=f"q{number - 1}", maximum={"cpu": 2}) for number in range(1, count))
    quotas = {quota.name: quota for quota in (first, *rest)}
    return QueueView(NOW, quotas, pods=(replace(pod(0), quota=f"q{count - 1}"),), nodes=NODES)


def circle(count: int) -> QueueView:
    quotas = (QuotaNode(f"q{number}", "shop", parent=f"q{(number + 1) % count}") for number in range(count))
    return QueueView(NOW, {quota.name: quota for quota in quotas}, nodes=NODES)


def of_one_group(count: int) -> Iterable[Gang]:
    """Each pod's annotation names all gangs, in texts of its own."""
    names = sorted(f"shop/g{number}" for number in range(count))
    return (gang(f"g{number}", [f"{name} "[:-1] for name in names]) for number in range(count))


NO_GANG: Callable[[int], Iterable[Gang]] = lambda _: ()  # noqa: E731 - beside the others
ONE_GANG: Callable[[int], Iterable[Gang]] = lambda _: [gang("g")]  # noqa: E731
QUEUES: dict[str, tuple[int, Callable[[int], QueueView]]] = {
    "pods that wait for a full quota": (2_500, partial(queues, pods=lambda n: map(pod, range(n)), gangs=NO_GANG)),
    "pods beyond the minimum of a gang in a full quota": (
        1_000,
        partial(queues, pods=lambda n: (pod(number, "shop/g") for number in range(n)), gangs=ONE_GANG),
    ),
    "gangs of one group": (
        # the texts of the group themselves grow with the square
        100,
        partial(queues, pods=lambda n: (pod(number, f"shop/g{number}") for number in range(n)), gangs=of_one_group),
    ),
    "quotas below each other": (800, partial(nested, valid=True)),
    "quotas below each other and an invalid one": (800, partial(nested, valid=False)),
    "quotas in a circle": (800, circle),
    "resources that no node has": (
        1_000,
        partial(
            queues,
            pods=lambda n: [pod(0, "shop/g", {f"example.com/r{number}": 1 for number in range(n)})],
            gangs=ONE_GANG,
        ),
    ),
}


MANY = 10_000
"""Names of resources that one pod's requests may have in the 1.5 MB of an object, and more."""


def test_a_computation_has_a_column_for_no_resource_that_no_node_has() -> None:
    """Else a tenant's names, times the nodes, times the pods that differ in them, take all memory."""
    names = [f"example.com/r{number}" for number in range(MANY)]
    sized = tuple(SizedNode(ExtenderNode(node.name), node.allocatable) for node in NODES)
    greedy = SizedPod("shop", "greedy", "", {"cpu": 1, **dict.fromkeys(names, 1)})
    cluster = compile_cluster(SizedCluster(sized, (greedy, SizedPod("other", "plain", "", {"cpu": 1}))))
    assert cluster.resources == ("cpu", "memory", "pods")
    of_greedy, of_plain = cluster.class_of_pod(0), cluster.class_of_pod(1)
    assert not cluster.masks[of_greedy.mask].any() and cluster.masks[of_plain.mask].all()
    assert "example.com/r0 (needs 1, no node has it)" in of_greedy.refusals
    free = FreeCapacity.of(NODES, ["cpu", *names])
    assert free.names == ("cpu", "pods")
    assert not pods_per_node(greedy.requests, 1, [FreeNode(node.name, node.allocatable) for node in NODES]).any()


@pytest.mark.parametrize("shape", QUEUES)
def test_a_round_of_the_queues_takes_a_time_that_grows_with_what_is_written(shape: str) -> None:
    few, view = QUEUES[shape]

    def seconds(count: int) -> float:
        began = time.process_time()
        decide_queues(view(count), QueueSettings())
        return time.process_time() - began

    seconds(few)  # what is imported and compiled once
    times = inf
    for _ in range(TRIES):
        times = min(times, seconds(TIMES * few) / max(seconds(few), LEAST_SECONDS))
        if times < MOST:
            break
    assert times < MOST


def test_quotas_too_far_below_the_root_are_set_aside_by_name_with_those_below_them() -> None:
    problems = build_quota_forest(nested(MOST_LEVELS + 3, valid=True).quotas).problems
    too_deep = f"the quota is not within {MOST_LEVELS} levels below the root quota"
    # q0 is on the first level, so that q32 would be on the 33rd.
    last = f"q{MOST_LEVELS}"
    below = {f"q{MOST_LEVELS + more}": f"ancestor quota {last} is invalid: {too_deep}" for more in (1, 2)}
    assert problems == {last: too_deep, **below}
