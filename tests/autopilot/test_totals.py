"""The sum of a round, and the policy that a filter becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.autopilot.decide.policy import PolicySpec, effective
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry, round_totals
from cotenant.autopilot.model import STATUS, AutopilotMode, QueueVerdict, RoundTotals, policy_totals
from cotenant.autopilot.policy_draft import parse_draft
from cotenant.autopilot.settings import CeilingSettings, Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.table import Table
from cotenant.dashboard.autopilot.policy_editor import draft_of
from cotenant.dashboard.changes.select_bar import draft_name
from cotenant.recommender.model.savings import RequestTotals, Savings
from tests.changes.world import recommended


def entry(name: str, amount: int, verdict: QueueVerdict, *ways: Way) -> QueueEntry:
    ref = WorkloadRef("shop", "Deployment", name)
    first = replace(recommended(ref, amount), monthly_saving=float(1000 - amount))
    limits = effective(CeilingSettings(), PolicySpec())
    return QueueEntry(QueueCandidate(ref, "shop/p", AutopilotMode.OBSERVE, limits, first=(first,)), verdict, ways=ways)


def test_the_sum_of_a_round_is_of_what_is_done_or_proposed_and_not_of_what_waits() -> None:
    totals = round_totals([
        entry("a", 800, QueueVerdict.PROPOSE, Way.IN_PLACE, Way.ROLL_OUT),
        entry("b", 1500, QueueVerdict.ACT, Way.IN_PLACE),
        entry("c", 100, QueueVerdict.WAIT, Way.ROLL_OUT),
    ])  # fmt: skip
    # Two pods each: a frees 2 x 200 m and 200 of money, b raises 2 x 500 m and 500; only a may be rolled out: two pods.
    savings = Savings(RequestTotals(400, 0, 200.0), RequestTotals(1000, 0, 500.0))
    assert totals == RoundTotals(2, savings, 2)
    assert round_totals([]).changes == 0


def test_the_totals_of_policies_count_what_they_have_in_common_once() -> None:
    counts = [("shop", "a", "Act", 3, 1, 2), ("shop", "b", "Observe", 4, 2, 2), ("pay", "a", "Act", 5, 0, 1)]
    names = ("namespace", "policy", "mode", "workloads", "queued", "under_way")
    table = Table.from_rows(STATUS, [dict(zip(names, cells, strict=True)) for cells in counts])
    # 3 + 4 + 5 workloads, 1 + 2 changes; both rows of shop count the same two that are under way, beside pay's one.
    assert policy_totals(table) == "3 policies (1 Observe, 2 Act): 12 workloads, 3 queued, 3 under way"


@pytest.mark.parametrize(
    ("todo", "directions"),
    [
        ("raise", ["Up", "UpAfterOOMKill", "UpAfterThrottling"]),
        ("cut", ["Down"]),
        ("", ["Down", "Up", "UpAfterOOMKill"]),
    ],
)
def test_a_filter_becomes_a_policy_of_its_namespace_and_list_that_observes(todo: str, directions: list[str]) -> None:
    policy, document = parse_draft(draft_of(draft_name("pay", todo)))
    assert (policy.namespace, document["spec"]["directions"]) == ("pay", directions)
    assert document["spec"]["mode"] == "Observe"
