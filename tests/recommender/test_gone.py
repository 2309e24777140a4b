"""Nothing is proposed for what was deleted, and nothing is withheld from what sleeps."""

from __future__ import annotations

import pytest

from cotenant.base.cluster import Inventory, Pod, Workload
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kube.live import LiveCluster
from cotenant.base.kube.overlay import overlay
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.incomplete import gone_workloads, withhold_deleted
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

NOW = 1_795_089_600


def inventory(kind: str, *, days_ago: float, listed: tuple[WorkloadRef, ...] = ()) -> Inventory:
    """One workload whose last pod ended so long ago."""
    ref = WorkloadRef("shop", kind, "web")
    pod = Pod("shop", "web-0", ref, "n", NOW - 9 * DAY_SECONDS, NOW - int(days_ago * DAY_SECONDS))
    return Inventory("c", NOW, (), (Workload(ref, 0, ()),), (pod,), controllers=listed)


@pytest.mark.parametrize(
    ("kind", "days_ago", "listed", "is_gone"),
    [
        ("Deployment", 4, (), True),
        ("Deployment", 2.5, (), False),  # asleep over the weekend
        ("Deployment", 0.01, (WorkloadRef("shop", "Deployment", "api"),), True),
        ("Deployment", 8, (WorkloadRef("shop", "Deployment", "web"),), False),
        ("Deployment", 4, (WorkloadRef("shop", "CronJob", "web"),), True),
        ("CronJob", 8, (), False),
        ("CronJob", 0.5, (WorkloadRef("shop", "CronJob", "other"),), True),
        ("Pod", 0.1, (), True),
    ],
)
def test_a_workload_is_gone_when_its_kinds_list_lacks_it_or_it_was_silent_for_days(
    kind: str, days_ago: float, listed: tuple[WorkloadRef, ...], is_gone: bool
) -> None:
    assert bool(gone_workloads(inventory(kind, days_ago=days_ago, listed=listed))) is is_gone


@pytest.mark.parametrize(("replicas", "listed"), [(0, True), (2, True), (0, False), (2, False)])
def test_the_last_of_its_kind_leaves_with_the_next_list_also_if_none_of_its_pods_ever_ran(
    replicas: int, listed: bool
) -> None:
    ref = WorkloadRef("shop", "Deployment", "web")
    workload = Workload(ref, replicas, ())
    stored = Inventory("c", NOW, (), (workload,), (), controllers=(ref,), listed_kinds=("Deployment",))
    live = LiveCluster(listed_kinds=("Deployment",) if listed else ())
    # what may not be listed says nothing: the Deployment stays as it was known
    assert gone_workloads(overlay(stored, live)) == ({ref} if listed else frozenset())


def test_a_workload_that_runs_is_not_gone_whatever_the_list_says() -> None:
    ref = WorkloadRef("shop", "Deployment", "web")
    pod = Pod("shop", "web-0", ref, "n", NOW - DAY_SECONDS)
    without_lists = Inventory("c", NOW, (), (Workload(ref, 1, ()),), (pod,), listed_kinds=("Deployment",))
    assert gone_workloads(without_lists) == frozenset()


def test_every_value_of_a_deleted_workload_is_withheld_with_its_reason_and_others_stay() -> None:
    stored = inventory("Deployment", days_ago=4)
    value = Value(Resource.CPU, Field.REQUEST, 1000, 100, Action.SET, Reason.OK)
    deleted, running = (
        Recommendation(ContainerRef(WorkloadRef("shop", "Deployment", name), "app"), "cotenant", 1, (value,), 0, "", 0)
        for name in ("web", "api")
    )
    first, second = withhold_deleted([deleted, running], gone_workloads(stored))
    assert [(v.action, v.amount, v.now, v.reason) for v in first.values] == [
        (Action.WITHHELD, None, 1000, Reason.DELETED)
    ]
    assert second is running
