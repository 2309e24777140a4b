"""Every interleaving of controller, schedulers, policy, strangers and crashes: reserved room is never booked twice."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.kubernetes.protocol import REQUIRED_TERMS
from cotenant.scheduler_ext.reservations.view import PodView
from tests.scheduler_ext.reservations.world import CORES, World, beginning, booked, following, pod, pods
from tests.support.explorer import CounterExample, explore

pytestmark = pytest.mark.slow

LIMIT = 400_000
OTHER = ("default-scheduler", "other")
GATED = pod("owner", 3, gated=True)
STRANGER = pod("stranger", 3)

HANDED_OVER: dict[str, dict[str, Any]] = {
    "the controller crashes twice": {"owner": GATED, "strangers": (STRANGER,), "budget": (2, 0, 0, 0)},
    "controller and scheduler crash": {"owner": GATED, "strangers": (STRANGER,), "budget": (1, 1, 0, 0)},
    "the stranger has a scheduler of its own": {
        "owner": GATED,
        "strangers": (pod("stranger", 3, scheduler="other"),),
        "schedulers": OTHER,
        "budget": (1, 0, 0, 0),
    },
    "the webhook missed the owner": {
        "owner": pod("owner", 3, unschedulable=True),
        "strangers": (STRANGER,),
        "budget": (1, 1, 0, 0),
    },
    "the owner leaves a part": {
        "owner": pod("owner", 2, gated=True),
        "strangers": (pod("stranger", 2),),
        "allocate_once": False,
        "budget": (1, 0, 0, 0),
    },
}
GIVEN_UP: dict[str, dict[str, Any]] = {
    "it takes too long": {"owner": GATED, "strangers": (STRANGER,), "budget": (0, 0, 1, 0), "together": True},
    "the owner is deleted before it is bound": {
        "owner": GATED,
        "strangers": (STRANGER,),
        "budget": (0, 0, 0, 1),
        "together": True,
    },
}


def landed(state: World) -> bool:
    return any(p.uid == "owner" and p.node for p in pods(state.objects))


def holds_capacity(state: World) -> bool:
    return any(p.is_placeholder and p.node for p in pods(state.objects))


def wrong(state: World) -> str:
    """What must never be, in words."""
    if any(p.uid == "stranger" and p.node for p in pods(state.objects)):
        return "the stranger has the reserved capacity"
    cores = booked(state.objects)
    return f"{cores} of {CORES} cores are booked" if cores > CORES else ""


@pytest.mark.parametrize("how", HANDED_OVER)
def test_room_is_handed_to_its_owner_and_to_nobody_else_whatever_comes_between(how: str) -> None:
    explored = explore(beginning(**HANDED_OVER[how]), following, LIMIT, wrong)
    assert len(explored.first) > 1_000
    explored.require_end(landed, "the owner runs")


@pytest.mark.parametrize("how", GIVEN_UP)
def test_room_that_could_not_be_handed_over_is_held_again(how: str) -> None:
    explored = explore(beginning(**GIVEN_UP[how]), following, LIMIT, wrong)
    assert any(holds_capacity(state) for state in explored.first)
    explored.require_return(
        lambda state: landed(state) or holds_capacity(state), "the owner runs or the capacity is reserved"
    )


def bound_to_the_node(state: World) -> list[PodView]:
    """Owners that can run nowhere but on the node: what Kubernetes lets nobody take back."""
    return [
        p for p in pods(state.objects) if p.uid == "owner" and p.affinity.get("nodeAffinity", {}).get(REQUIRED_TERMS)
    ]


def test_an_owner_is_bound_to_the_node_only_once_its_placeholder_is_gone() -> None:
    """A hand-over that is given up before that leaves a pod that any node may take."""

    def wrong_so(state: World) -> str:
        early = [p.place for p in bound_to_the_node(state) if p.gates]
        return wrong(state) or (f"{early} is bound to the node, and may not get the capacity" if early else "")

    explored = explore(beginning(**GIVEN_UP["it takes too long"], policy="Restricted"), following, LIMIT, wrong_so)
    assert any(bound_to_the_node(state) for state in explored.first)
    assert any(not owner.gates and not bound_to_the_node(state) for state in explored.first
               for owner in pods(state.objects) if owner.uid == "owner")  # fmt: skip


def test_the_model_finds_a_controller_that_does_not_wait_for_the_policy() -> None:
    with pytest.raises(CounterExample) as exception_info:
        explore(beginning(**HANDED_OVER["the controller crashes twice"], hasty=True), following, LIMIT, wrong)
    assert exception_info.value.wrong == "the stranger has the reserved capacity"
    assert "the policy of the API server learns the hand-overs" not in exception_info.value.steps
    assert exception_info.value.steps[-1] == "default-scheduler binds pods/shop/stranger"
