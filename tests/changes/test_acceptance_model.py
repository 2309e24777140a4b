"""Every order of what people, watchers, kills and others do: the ledger and the cluster say the same of each change.

Bounds: one workload with one pod, the acts that a row names, each once and at any time, and of each thing that goes
wrong as many as the row says. Takeovers are of a ledger in a bucket; one in a file is its process's until that ends.
"""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.changes.model.service import Method
from tests.changes.acceptance_world import NOON, Act, at_rest, beginning, following, mistold, wrong
from tests.support.explorer import CounterExample, Explored, explore

LIMIT = 200_000
ANN, AGAIN = (Act("ann", "accepts", "k1", 800, number=number) for number in (0, 1))
IN_PLACE = Act("ann", "accepts", "k1", 800, method=Method.IN_PLACE)
BEN = Act("ben", "accepts", "k2", 600)
BACK = Act("carol", "rolls back", "k1")
WATCH = Act("watcher", "watches")
SOON = Act("watcher", "watches", now_seconds=NOON.seconds + 60)
CONFIRM, CONFIRM_TOO, CONFIRM_OWN = (Act(name, "confirms", "k1") for name in ("ben", "carol", "ann"))
DECLINE = Act("ann", "declines", "k1")

ROWS: dict[str, tuple[tuple[Act, ...], dict[str, Any]]] = {
    "it is asked for twice": ((ANN, AGAIN, WATCH), {"kills": 1, "losses": 1, "others": 1}),
    "two people accept": ((ANN, BEN, WATCH), {"kills": 1, "others": 1}),
    "it is rolled back": ((ANN, BACK, WATCH), {"kills": 2, "losses": 1, "others": 1}),
    "a pod is resized": ((IN_PLACE, BACK, WATCH), {"kills": 2, "losses": 1}),
    "a second person confirms": ((ANN, CONFIRM, CONFIRM_OWN, WATCH), {"kills": 1, "losses": 1, "qos": "LSE"}),
    "two confirm and one declines": ((ANN, CONFIRM, CONFIRM_TOO, DECLINE), {"kills": 1, "qos": "LSE"}),
    "the turn is taken from one who paused": ((ANN, SOON), {"takeovers": 1, "kills": 1, "losses": 1}),
    "it is taken from one who resizes": ((IN_PLACE, SOON), {"takeovers": 1, "kills": 1}),
    "it is taken from one who accepts twice": ((ANN, AGAIN), {"takeovers": 1, "losses": 1}),
}
LARGE: dict[str, tuple[tuple[Act, ...], dict[str, Any]]] = {
    "twice, and another one": ((ANN, AGAIN, BEN, WATCH), {"kills": 2, "losses": 1, "others": 1}),
    "resized, and another one": ((IN_PLACE, BEN, BACK), {"kills": 1, "losses": 1, "others": 1}),
    "taken while it is rolled back": ((ANN, SOON, BACK), {"takeovers": 1, "kills": 1, "losses": 1, "others": 1}),
    "taken while two accept": ((ANN, BEN, SOON), {"takeovers": 1, "kills": 1, "losses": 1}),
    "taken twice": ((IN_PLACE, SOON, BACK), {"takeovers": 2, "kills": 1}),
}


def explored(acts: tuple[Act, ...], **more: Any) -> Explored[Any]:
    """All that can happen; CounterExample where something is wrong, or is said wrongly when all is over."""
    exploration = explore(beginning(*acts, **more), following, LIMIT, wrong)
    for end_state in exploration.ends:
        if why := "it waits for ever" if not at_rest(end_state) else mistold(end_state):
            raise CounterExample(exploration.story(end_state), why)
    return exploration


@pytest.mark.slow
@pytest.mark.parametrize("how", ROWS)
def test_the_ledger_says_of_each_change_what_the_cluster_has_whatever_comes_between(how: str) -> None:
    acts, goes_wrong = ROWS[how]
    assert len(explored(acts, **goes_wrong).first) > 100


@pytest.mark.soak
@pytest.mark.parametrize("how", LARGE)
def test_the_same_with_more_at_the_same_time(how: str) -> None:
    acts, goes_wrong = LARGE[how]
    assert len(explored(acts, **goes_wrong).first) > 5_000


@pytest.mark.parametrize(
    ("fault", "acts", "goes_wrong", "last", "so"),
    [
        # A patch without its tests of the old values.
        ("blind", (ANN,), {"others": 1}, "ann accepts k1: writes deployments/shop/web: 200", "somebody else has set"),
        # A row of acceptance that never reaches the ledger.
        ("unwritten", (ANN,), {}, "ann accepts k1: writes deployments/shop/web: 200", "the ledger does not know of it"),
        # Nobody asks whether the turn was lost before a write.
        (
            "unchecked",
            (ANN, SOON),
            {"takeovers": 1, "losses": 1},
            "",
            "is failed by the ledger, and the cluster has it",
        ),
    ],
)
def test_the_model_finds_a_planted_fault_and_tells_how_it_comes_about(
    fault: str, acts: tuple[Act, ...], goes_wrong: dict[str, Any], last: str, so: str
) -> None:
    with pytest.raises(CounterExample) as exception_info:
        explored(acts, **goes_wrong, **{fault: True})
    assert so in exception_info.value.wrong
    assert exception_info.value.steps[-1].startswith(last)
