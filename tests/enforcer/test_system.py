"""The node's own reserves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from enforcer.contract import Surface
from enforcer.strategies.system import MIN_FREE, SCALE, System
from tests.enforcer.readings import policy, seen


def test_both_values_by_the_policy() -> None:
    plan = System(on=True).step(seen(), policy(), None).plan
    # 8 GiB = 8,388,608 KiB; * 100 / 10,000 = 83,886; scale as it stands.
    assert {(w.surface, w.key): w.value for w in plan.surfaces} == {
        (Surface.SYSCTL, MIN_FREE): "83886",
        (Surface.SYSCTL, SCALE): "150",
    }


def test_off_says_nothing() -> None:
    assert System().step(seen(), policy(), None).plan.surfaces == ()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 400))
def test_a_reserve_never_takes_more_than_a_twentieth(factor: int, scale: int) -> None:
    of = policy({"systemStrategy": {"minFreeKbytesFactor": factor, "watermarkScaleFactor": scale}})
    plan = System(on=True).step(seen(), of, None).plan
    reserve = {w.key: int(w.value) for w in plan.surfaces}.get(MIN_FREE, 0)
    assert reserve * 20 <= 8_388_608
    assert bool(plan.verdicts) == (factor > 500)
