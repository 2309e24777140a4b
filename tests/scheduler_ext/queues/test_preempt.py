"""Who goes when a pod of higher priority waits for a full quota: pods of that quota alone, and no more than needed."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from tests.scheduler_ext.queues.quota_scene import NOW, decided, node, pod, queue_view, quota
from tests.scheduler_ext.queues.test_revoke import evicted

QUOTAS = [quota("a", 4000, 4000), quota("b", 4000, 4000)]


def running(name: str, cpu: int, priority: int = 0, quota_name: str = "a", **more: Any) -> QueuePod:
    return pod(name, quota_name, cpu, waits=False, priority=priority, **more)


def victims(*pods: QueuePod, cpu: int = 2000, priority: int = 5, **more: Any) -> list[str]:
    """Who goes for one pod that waits; quota a has four cores."""
    scene_parts = {name: more.pop(name) for name in ("nodes", "gangs", "evictions_refused") if name in more}
    settings = {"preempt": True, **more.pop("settings", {})}
    waiting = pod("urgent", "a", cpu, priority=priority, **more)
    return evicted(decided(queue_view(QUOTAS, [*pods, waiting], **scene_parts), **settings))


def test_the_least_important_pods_of_the_quota_go_and_only_as_many_as_are_needed() -> None:
    # 4 cores are used; 2 of them are needed: low alone gives 1, low and mid 3, mid alone 2, so low stays.
    assert victims(running("low", 1000, 1), running("mid", 2000, 2), running("same", 1000, 5)) == ["mid"]


def test_pods_of_other_quotas_of_equal_priority_and_those_that_may_not_be_preempted_stay() -> None:
    assert victims(running("same", 4000, 5), running("other", 4000, 0, "b")) == []
    assert victims(running("firm", 4000, 1, preemptible=False)) == []
    assert victims(running("missed", 4000, 1, missed=True)) == []


def test_nobody_goes_for_what_the_webhook_missed() -> None:
    # 5 of 4 cores are used, of which nobody admitted 2: a pod of 1 core would take 2 cores from others.
    low = [running(f"low-{number}", 1000, 1) for number in range(3)]
    assert victims(running("missed", 2000, 9, missed=True), *low, cpu=1000) == []
    assert victims(running("missed", 1000, 9, missed=True), *low, cpu=1000) == ["low-0"]


def test_nobody_goes_unless_enough_can() -> None:
    assert victims(running("low", 1000, 1), running("same", 3000, 5)) == []


def test_nobody_goes_for_a_pod_that_would_find_no_room_on_the_nodes() -> None:
    # 2 cores are needed: low leaves 2 on n1, which has 2 in all; on nodes of 1 core each the pod never fits.
    assert victims(running("low", 4000, 1), nodes=[node(4000)]) == ["low"]
    assert victims(running("low", 4000, 1), nodes=[node(1000, "n1"), node(1000, "n2")]) == []


def test_it_is_off_by_default_and_a_pod_that_never_preempts_waits() -> None:
    assert victims(running("low", 4000, 1), settings={"preempt": False}) == []
    assert victims(running("low", 4000, 1), preempts=False) == []


def test_what_ends_already_counts_as_given_back_and_a_refused_eviction_is_not_repeated_at_once() -> None:
    assert victims(running("low", 2000, 1, deleting=True), running("mid", 2000, 2)) == []
    refused = {"uid-low": NOW + 10}
    assert victims(running("low", 2000, 1), running("mid", 2000, 2), evictions_refused=refused) == ["mid"]


def test_a_pod_that_outlasts_its_deletion_makes_no_room_for_others() -> None:
    # 4 cores are used and 2 are needed; the pod of 2 that was to be gone a day ago still uses them
    stuck = running("stuck", 2000, 1, deleting=True, gone_by_seconds=NOW - 86_400)
    assert victims(stuck, running("mid", 2000, 2)) == ["mid"]
    # on the node, too: 4 cores, of which it keeps 2, are too few for 3 more
    assert victims(stuck, running("mid", 2000, 2), cpu=3000, nodes=[node(4000)]) == []
    ending = running("ending", 2000, 1, deleting=True, gone_by_seconds=NOW + 30)
    assert victims(ending, running("mid", 2000, 2), cpu=3000, nodes=[node(4000)]) == ["mid"]


def test_a_gang_gives_way_whole_or_stays() -> None:
    train = {"shop/train": Gang("shop", "train", 2, 2, group=("shop/train",))}
    members = [running(f"train-{i}", 2000, i, gang="shop/train") for i in range(2)]
    assert sorted(victims(*members, gangs=train)) == ["train-0", "train-1"]
    mixed = [members[0], running("train-1", 2000, 9, gang="shop/train")]
    assert victims(*mixed, gangs=train) == []


@pytest.mark.parametrize("behind", [4, 6])
def test_only_the_first_of_a_queue_preempts(behind: int) -> None:
    other = QueuePod(
        "shop", "other", "uid-other", "7", gates=(QUOTA_GATE,), quota="a", requests={"cpu": 1000}, priority=behind
    )
    preempted = victims(running("low", 4000, 1), other, cpu=4000)
    assert preempted == ["low"]
