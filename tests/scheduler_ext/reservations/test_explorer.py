"""Every interleaving of controller, schedulers, policy, strangers and crashes: reserved room is never booked twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler_ext.reservations.world import CORES, World, beginning, booked, explore, following, pod, pods

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


def landed(world: World) -> bool:
    return any(p.uid == "owner" and p.node for p in pods(world.objects))


def held(world: World) -> bool:
    return any(p.is_placeholder and p.node for p in pods(world.objects))


def robbed(world: World) -> bool:
    return any(p.uid == "stranger" and p.node for p in pods(world.objects))


def leading_to(good: set[World], back: dict[World, list[World]]) -> set[World]:
    """States from which one of the good ones can still be reached."""
    found, edge = set(good), list(good)
    while edge:
        for before in back[edge.pop()]:
            if before not in found:
                found.add(before)
                edge.append(before)
    return found


@pytest.mark.parametrize("how", HANDED_OVER)
def test_room_is_handed_to_its_owner_and_to_nobody_else_whatever_comes_between(how: str) -> None:
    found, back = explore(beginning(**HANDED_OVER[how]), LIMIT)
    assert len(found) > 1_000
    assert max(booked(world.objects) for world in found) <= CORES
    assert not any(robbed(world) for world in found)
    # The owner can still land from everywhere, and where nothing more can happen it has.
    assert leading_to({w for w in found if landed(w)}, back) == found.keys()
    assert all(landed(world) for world in found if not any(following(world)))


@pytest.mark.parametrize("how", GIVEN_UP)
def test_room_that_could_not_be_handed_over_is_held_again(how: str) -> None:
    found, back = explore(beginning(**GIVEN_UP[how]), LIMIT)
    assert max(booked(world.objects) for world in found) <= CORES
    assert not any(robbed(world) for world in found)
    assert leading_to({w for w in found if landed(w) or held(w)}, back) == found.keys()
