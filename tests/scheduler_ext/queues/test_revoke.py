"""What quotas give back that use more than their runtime for too long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.kubernetes.observed import LAG_SECONDS
from cotenant.scheduler_ext.queues.decide import QueueWrites
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.plan import PLAN_LABEL
from cotenant.scheduler_ext.reservations.model.reservation import Reservation, ReservationStatus
from tests.scheduler_ext.queues.quota_scene import NOW, decided, pod, queue_view, quota

OVER = {"a": NOW - 121}
QUOTAS = [quota("a", 0, 10_000), quota("b", 4000, 10_000)]


def running(name: str, cpu: int, **more: Any) -> QueuePod:
    return pod(name, "a", cpu, waits=False, **more)


def revoked(pods: list[QueuePod], over_since: dict[str, float] = OVER, **more: Any) -> QueueWrites:
    """Quota b wants its four cores back from quota a, which uses all ten."""
    settings = {"revoke": True, **more.pop("settings", {})}
    view = queue_view(QUOTAS, [*pods, pod("back", "b", 4000)], over_since=over_since, **more)
    return decided(view, **settings)


def evicted(writes: QueueWrites) -> list[str]:
    return [i.address.name for i in writes.intents if getattr(i, "subresource", "") == "eviction"]


def test_the_least_important_pods_go_and_only_as_many_as_are_needed() -> None:
    pods = [running("low", 2000, priority=1), running("mid", 3000, priority=2), running("high", 5000, priority=3)]
    assert evicted(revoked(pods)) == ["low", "mid"]
    enough = [running("low", 1000, priority=1), running("mid", 4000, priority=2), running("high", 5000, priority=3)]
    assert evicted(revoked(enough)) == ["mid"], "low can stay once mid is gone"


def test_of_equals_the_pod_without_a_node_goes_then_the_youngest() -> None:
    pods = [
        running("old", 3000, created_seconds=1),
        running("young", 3000, created_seconds=2),
        running("unbound", 4000, created_seconds=0, node=""),
    ]
    assert evicted(revoked(pods)) == ["unbound"]
    assert evicted(revoked([running(f"p{i}", 2500, created_seconds=i) for i in range(4)])) == ["p3", "p2"]


def test_what_was_evicted_and_no_mirror_shows_as_ending_counts_as_given_back() -> None:
    pods = [running("old", 5000, created_seconds=1), running("young", 5000, created_seconds=2)]
    assert evicted(revoked(pods)) == ["young"]
    evicted_uids = frozenset({"uid-young"})
    assert evicted(revoked(pods, evicted=evicted_uids)) == []
    # Also where another one would be first now: it was bound since, as the mirror shows, and the other one was not.
    unbound = [running("old", 5000, created_seconds=1, node=""), running("young", 5000, created_seconds=2)]
    assert evicted(revoked(unbound)) == ["old"] and evicted(revoked(unbound, evicted=evicted_uids)) == []


def test_nothing_is_given_back_before_the_delay_nor_where_it_is_switched_off() -> None:
    pods = [running("low", 10_000)]
    young = revoked(pods, {"a": NOW - 100})
    assert evicted(young) == [] and young.over_since == {"a": NOW - 100} and young.wake_seconds == 20
    assert revoked(pods, {}).over_since == {"a": NOW}
    assert evicted(revoked(pods, settings={"revoke": False})) == []
    assert evicted(revoked(pods)) == ["low"]


def test_a_quota_within_its_runtime_is_forgotten() -> None:
    assert revoked([running("low", 6000)]).over_since == {}


def test_pods_that_may_not_be_preempted_or_that_the_webhook_missed_stay() -> None:
    pods = [running("firm", 5000, preemptible=False), running("missed", 5000, missed=True)]
    writes = revoked(pods)
    assert evicted(writes) == [] and "a" not in writes.over_since, "what was missed alone is above runtime"
    writes = revoked([running("firm", 9000, preemptible=False), running("other", 1000)])
    assert evicted(writes) == ["other"]
    assert ("elasticquotas/a", "quota exceeds its runtime by 3 of cpu that no eviction frees") in writes.notes


def test_no_pod_goes_for_what_a_plan_reserves() -> None:
    # Pods of a use 6 cores, which is its runtime while b wants its 4, and a plan holds 3 more that nobody runs in.
    template = {"metadata": {"namespace": "shop"}}
    plan_reservation = Reservation(
        "r",
        labels={PLAN_LABEL: "shop.web"},
        template=template,
        size={"cpu": 3000},
        status=ReservationStatus(Phase.AVAILABLE, "n1"),
    )
    quotas = [quota("a", 0, 10_000, namespaces=("shop",)), QUOTAS[1]]
    pods = [running("one", 3000), running("two", 3000), pod("back", "b", 4000)]
    writes = decided(queue_view(quotas, pods, over_since=OVER, reservations=(plan_reservation,)), revoke=True)
    assert evicted(writes) == [] and writes.over_since == {}
    # A core more is a core too many, and the plan's are not asked for besides.
    pods[1] = running("two", 4000)
    assert evicted(
        decided(queue_view(quotas, pods, over_since=OVER, reservations=(plan_reservation,)), revoke=True)
    ) == ["one"]


def test_what_is_ending_already_counts_as_given_back() -> None:
    assert evicted(revoked([running("ends", 4000, deleting=True), running("stays", 6000)])) == []


@pytest.mark.parametrize(
    ("gone_by", "given_back"),
    [
        (NOW + 30, True),  # in its grace period
        (NOW, True),
        (NOW - LAG_SECONDS + 1, True),  # its end may only not be seen yet
        (NOW - LAG_SECONDS, False),
        (NOW - 86_400, False),  # a finalizer, or a node that is away, keeps it for ever
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown"])
def test_a_pod_that_outlasts_its_deletion_gives_nothing_back(phase: str, gone_by: float, given_back: bool) -> None:
    # 10 of 6 cores: the pod that ends gives back the four that are too many; one that never ends does not
    ends = running("ends", 4000, deleting=True, gone_by_seconds=gone_by, phase=phase)
    assert evicted(revoked([ends, running("stays", 6000)])) == ([] if given_back else ["stays"])


def test_a_refused_eviction_is_tried_later_and_another_pod_meanwhile() -> None:
    pods = [running("low", 5000, priority=1), running("high", 5000, priority=2)]
    writes = revoked(pods, evictions_refused={"uid-low": NOW + 7})
    assert evicted(writes) == ["high"] and writes.wake_seconds == 7
    assert evicted(revoked(pods, evictions_refused={"uid-low": NOW})) == ["low"]


def test_a_gang_gives_back_its_extra_members_or_all() -> None:
    gangs = {"shop/g": Gang("shop", "g", 2, 3)}
    members = [running(f"m{i}", 2000, gang="shop/g", created_seconds=i) for i in range(3)]
    assert evicted(revoked([*members, running("other", 2000, priority=5)], gangs=gangs)) == ["m2"]
    big_members = [replace(m, requests={"cpu": 5000}) for m in members[:2]]
    assert evicted(revoked(big_members, gangs=gangs)) == ["m0", "m1"]


def test_a_gang_without_a_usable_minimum_gives_back_pod_by_pod_and_ends_no_round() -> None:
    # A tenant deletes the PodGroup of running pods, or writes minMember: 0.
    gangs = {"shop/g": Gang("shop", "g", 0, 0, problem="minMember: 0 is not a number of members")}
    members = [running(f"m{i}", 5000, gang="shop/g", created_seconds=i) for i in range(2)]
    assert evicted(revoked(members, gangs=gangs)) == ["m1"]


def test_a_round_evicts_ten_pods_at_most() -> None:
    # Four cores are due: sixteen pods of a quarter each. The youngest ten go in this round.
    pods = [running(f"p{i}", 250, created_seconds=i) for i in range(40)]
    assert evicted(revoked(pods)) == [f"p{i}" for i in range(39, 29, -1)]


def test_an_eviction_is_of_that_very_pod_and_says_why() -> None:
    eviction = next(i for i in revoked([running("low", 10_000)]).intents if i.address.name == "low")
    assert eviction.body["deleteOptions"] == {"preconditions": {"uid": "uid-low"}}  # type: ignore[union-attr]
    assert eviction.why == "quota a uses more than its runtime for 121 seconds"
