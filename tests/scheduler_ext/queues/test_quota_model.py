"""Every order of what managers, a scheduler and others do: no quota over its max, none long over its runtime.

Bounds: two quotas on one node of four cores, up to four pods of two cores each, and of each thing that happens besides
as many as a row says. A manager that crashes has its last write arrive before its successor holds the Lease.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler_ext.queues.quota_world import (
    LENDING,
    STRICT,
    Limits,
    Pod,
    beginning,
    following,
    is_served,
    wrong,
)
from tests.support.explorer import CounterExample, explore

LIMIT = 500_000
A1, A2, B1, B2 = (Pod(name, name[0], 2) for name in ("a1", "a2", "b1", "b2"))
URGENT = Pod("urgent", "a", 2, priority=1)
"""It goes before the others of its quota."""
SMALLER = Limits(STRICT.quotas, cores=2)

ROWS: dict[str, tuple[tuple[Pod, ...], Limits, dict[str, Any]]] = {
    "four ask for all": ((A1, A2, B1, B2), LENDING, {"crashes": 1, "losses": 1, "touches": 1}),
    "one pushes in": ((A1, B1), STRICT, {"coming": (URGENT,), "crashes": 1, "losses": 1, "ends": 1}),
    "it borrows and has to give back": ((A1, A2), LENDING, {"coming": (B1,), "delays": 2, "crashes": 1, "losses": 1}),
    "a quota is lowered": ((A1, A2), LENDING, {"lowered": (STRICT,), "delays": 2, "crashes": 1, "ends": 1}),
    "half of the node is lost": ((A1, B1), STRICT, {"lowered": (SMALLER,), "delays": 2, "crashes": 1}),
}
LARGE: dict[str, tuple[tuple[Pod, ...], Limits, dict[str, Any]]] = {
    "one pushes in past two": (
        (A1, A2, B1),
        STRICT,
        {"coming": (URGENT,), "crashes": 1, "losses": 1, "touches": 1},
    ),
    "two come to who borrows": ((A1, A2), LENDING, {"coming": (B1, URGENT), "delays": 2, "crashes": 1}),
    "two crash": ((A1, A2, B1, B2), LENDING, {"crashes": 2, "losses": 2, "touches": 1}),
}


def explored(pods: tuple[Pod, ...], limits: Limits, **more: Any) -> int:
    """How many states there are; CounterExample where something is wrong, or a pod that fits waits for ever."""
    exploration = explore(beginning(*pods, limits=limits, **more), following, LIMIT, wrong)
    exploration.require_return(is_served, "no pod waits that fits")
    return len(exploration.first)


@pytest.mark.slow
@pytest.mark.parametrize("how", ROWS)
def test_no_quota_is_over_its_max_or_for_long_over_its_runtime_whatever_comes_between(how: str) -> None:
    pods, limits, happens = ROWS[how]
    assert explored(pods, limits, **happens) > 500


@pytest.mark.soak
@pytest.mark.parametrize("how", LARGE)
def test_the_same_with_more_at_the_same_time(how: str) -> None:
    pods, limits, happens = LARGE[how]
    assert explored(pods, limits, **happens) > 10_000


@pytest.mark.parametrize(
    ("fault", "happens"),
    [
        ("forgets", {}),  # A manager does not remember what it has let go and no mirror shows yet.
        ("trusts", {"losses": 1}),  # A write whose answer was lost counts as refused.
        ("unfenced", {"crashes": 1}),  # A write of a dead manager arrives after its successor has begun.
    ],
)
def test_the_model_finds_a_planted_fault_and_tells_how_it_comes_about(fault: str, happens: dict[str, Any]) -> None:
    with pytest.raises(CounterExample) as exception_info:
        explored((A1,), STRICT, coming=(URGENT,), **happens, **{fault: True})
    assert exception_info.value.wrong == "quota a uses 4 cores, at most 2 were ever allowed"
    assert "urgent is created" in exception_info.value.steps


def test_the_model_finds_a_manager_that_forgets_what_it_has_evicted() -> None:
    with pytest.raises(CounterExample) as exception_info:
        explored((A1, A2), LENDING, coming=(B1,), delays=1, forgets=True)
    assert (
        exception_info.value.wrong == "a1 is to be evicted, and its quota does not use more than its runtime any more"
    )
    assert "the manager evicts a2: done" in exception_info.value.steps
