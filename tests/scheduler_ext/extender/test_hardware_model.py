"""Every order of what binders ask, of kills, lost answers and deletions: no CPU and no GPU is given twice.

Bounds: two nodes with enough for one pod each, two pods, the binds that a row names, in any order and at the same time,
and of each thing that goes wrong as many as a row says.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler_ext.extender.hardware_world import KINDS, Bind, beginning, doubled, end, following
from tests.support.explorer import CounterExample, explore

LIMIT = 500_000
TWO = (Bind("p0", "n0"), Bind("p1", "n0"))
IMPATIENT = (Bind("p0", "n0"), Bind("p0", "n1"), Bind("p1", "n0"))
"""The scheduler asks for another node while the first binder still goes on."""
REPEATED = (Bind("p0", "n0"), Bind("p0", "n0"), Bind("p1", "n0"))
"""The scheduler asks the other replica for the same."""
CROSSED = (Bind("p0", "n0"), Bind("p0", "n1"), Bind("p1", "n1"), Bind("p1", "n0"))

ROWS = [
    (TWO, {"kills": 1, "losses": 1, "deletions": 1}),
    (TWO, {"deleted_ledgers": 1}),
    (IMPATIENT, {"kills": 1}),
    (IMPATIENT, {"losses": 1}),
    (REPEATED, {"deletions": 1}),
    pytest.param(IMPATIENT, {"kills": 1, "losses": 1}, marks=pytest.mark.soak),
    pytest.param(REPEATED, {"kills": 1, "losses": 1}, marks=pytest.mark.soak),
    pytest.param(IMPATIENT, {"deleted_ledgers": 1}, marks=pytest.mark.soak),
    pytest.param(CROSSED, {}, marks=pytest.mark.soak),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("binds", "goes_wrong"), ROWS)
def test_hardware_has_one_owner_whatever_comes_between(
    kind: str, binds: tuple[Bind, ...], goes_wrong: dict[str, Any]
) -> None:
    explored = explore(beginning(kind, binds, **goes_wrong), following, LIMIT, doubled)
    assert len(explored.first) > 4_000
    explored.require_end(end, "every pod is bound that asks for it again")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["ignores_versions", "at_any_moment"])
def test_the_model_finds_a_planted_fault_and_tells_how_it_comes_about(kind: str, fault: str) -> None:
    start = beginning(kind, TWO, deleted_ledgers=int(fault == "at_any_moment"), **{fault: True})
    with pytest.raises(CounterExample) as exception_info:
        explore(start, following, LIMIT, doubled)
    assert "n0 is given twice, to pods that are bound" in exception_info.value.wrong
    assert exception_info.value.steps[-1] in {
        f"the binder of {pod} to n0 creates pods/default/{pod}/binding: 201; it ends: done" for pod in ("p0", "p1")
    }
