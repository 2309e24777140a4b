"""What people read of quotas and of pods that wait for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_report import queue_report
from tests.scheduler_ext.queues.quota_scene import NOW, decided, pod, queue_view, quota

QUOTAS = [
    quota("top", 6000, 10_000, is_parent=True),
    quota("lender", 4000, 6000, "top"),
    quota("borrower", 2000, 10_000, "top"),
    quota("other", 2000, 10_000),
]
PODS = [
    pod("large", "borrower", 5000, waits=False),
    pod("small", "other", 3000, waits=False),
    pod("waits", "other", 4000, created_seconds=7),
    pod("behind", "other", 4000, created_seconds=8),
]


def test_rows_say_who_has_what_who_lends_and_who_borrows() -> None:
    report = queue_report(queue_view(QUOTAS, PODS), QueueSettings())
    rows = {row.quota: row for row in report.quotas}
    assert [row.quota for row in report.quotas] == ["other", "top", "borrower", "lender"]
    assert [rows[n].depth for n in ("other", "top", "borrower", "lender")] == [0, 0, 1, 1]
    lender, borrower, other = rows["lender"], rows["borrower"], rows["other"]
    assert (lender.used, lender.lent, lender.borrowed) == (0, 4000, 0)
    assert (borrower.used, borrower.borrowed, borrower.runtime, borrower.lent) == (5000, 3000, 5000, 0)
    assert (other.used, other.request, other.runtime, other.waiting_pods) == (3000, 11_000, 5000, 2)
    assert (other.minimum, other.maximum, other.weight) == (2000, 10_000, 10_000)


def test_a_waiting_pod_is_told_what_is_missing_and_who_holds_it() -> None:
    waits, behind = queue_report(queue_view(QUOTAS, PODS), QueueSettings()).waiting
    assert (waits.pod, waits.position, waits.code, waits.since_seconds) == ("waits", 1, "quota-exceeded", 7)
    assert (waits.blocking_quota, waits.resource, waits.requested, waits.missing) == ("other", "cpu", 4000, 2000)
    assert waits.reason == "quota other, cpu: 3 used + 4 requested > 5 runtime, 2 missing"
    assert waits.holders == (("borrower", 3000),)
    assert (behind.pod, behind.position) == ("behind", 2)


def test_the_time_since_which_a_quota_is_over_its_runtime_is_shown() -> None:
    view = queue_view(
        [quota("a", 0, 10_000), quota("b", 6000, 10_000)], [pod("x", "a", 8000, waits=False), pod("y", "b", 6000)]
    )
    rows = {row.quota: row for row in decided(view).report.quotas}
    assert rows["a"].over_since_seconds == NOW and rows["b"].over_since_seconds is None


def test_one_look_shows_since_when_a_quota_borrows_where_the_manager_noted_it() -> None:
    pods = [pod("x", "a", 8000, waits=False)]
    fresh = queue_report(queue_view([quota("a", 2000, 10_000)], pods), QueueSettings()).quotas[0]
    assert (fresh.borrowed, fresh.borrows_since_seconds) == (6000, None)
    noted = queue_report(queue_view([quota("a", 2000, 10_000)], pods, borrows_since={"a": NOW - 60}), QueueSettings())
    assert noted.quotas[0].borrows_since_seconds == NOW - 60


def test_what_cannot_be_used_is_shown_with_its_problem() -> None:
    view = queue_view(
        [quota("a", 5000, 4000)], [pod("p", "a", 1000)], unreadable=(("elasticquotas/x", "spec.min: no object"),)
    )
    report = queue_report(view, QueueSettings())
    problem = "min of cpu is 5, more than the quota's max 4"
    assert report.problems == (("elasticquotas/a", problem), ("elasticquotas/x", "spec.min: no object"))
    assert [(row.quota, row.problem, row.waiting_pods) for row in report.quotas] == [("a", problem, 1)]
    assert report.waiting[0].code == "quota-invalid"


def likely(runs: tuple[float, ...], **more: Any) -> dict[str, tuple[float | None, str]]:
    """When two pods of 2 cores are likely to be let go; three of 2 cores run for 10, 20 and 30 s in a quota of 6."""
    started = {"started_seconds": None, "ends": True, **more}
    running = [
        pod(f"runs-{age}", "a", 2000, waits=False, **{**started, "started_seconds": NOW - age}) for age in (10, 20, 30)
    ]
    waiting = [pod("first", "a", 2000, created_seconds=1), pod("second", "a", 2000, created_seconds=2)]
    view = queue_view([quota("a", 6000, 6000)], [*running, *waiting], runs={"a": runs})
    return {row.pod: (row.likely_seconds, row.likely_basis) for row in queue_report(view, QueueSettings()).waiting}


def test_a_pod_is_likely_let_go_when_pods_of_its_quota_have_left_what_it_and_those_ahead_need() -> None:
    # All runs took 100 s: the three end in 70, 80 and 90 s, each leaving 2 cores, first to the one ahead.
    basis = "by the run times of 5 ended pods of quota a"
    assert likely((100.0,) * 5) == {"first": (NOW + 70, basis), "second": (NOW + 80, basis)}


def test_nothing_is_said_where_nothing_is_known_or_pods_never_end() -> None:
    assert likely(()) == {"first": (None, ""), "second": (None, "")}
    assert likely((100.0,) * 5, ends=False) == {"first": (None, ""), "second": (None, "")}
    by_deadline = likely((), deadline_seconds=200.0)
    assert by_deadline["first"] == (NOW + 170, "by deadlines of running pods")


def test_a_quota_is_of_the_namespaces_whose_pods_count_against_it_or_below_it() -> None:
    quotas = [
        quota("top", 6000, 10_000, is_parent=True),
        quota("lender", 4000, 6000, "top", namespaces=("bound",)),
        quota("borrower", 2000, 10_000, "top"),
    ]
    pods = [
        pod("a", "borrower", 1000, waits=False),
        replace(pod("b", "borrower", 1000), namespace="lab"),
        replace(pod("c", "gone", 1000), namespace="elsewhere"),
    ]
    rows = {row.quota: row.namespaces for row in queue_report(queue_view(quotas, pods), QueueSettings()).quotas}
    assert rows == {"top": ("bound", "lab", "shop"), "lender": ("bound",), "borrower": ("lab", "shop")}


def test_sums_beyond_64_bits_in_one_quota_leave_the_numbers_of_the_others() -> None:
    huge = 2**63 - 1
    pods = [pod(f"p{number}", "a", huge, waits=False) for number in range(3)]
    quotas = [quota("a", 0, huge), quota("b", 2000, 10_000)]
    report = queue_report(queue_view(quotas, [*pods, pod("x", "b", 1500, waits=False)]), QueueSettings())
    alone = queue_report(queue_view(quotas, [pod("x", "b", 1500, waits=False)]), QueueSettings())
    rows = {row.quota: row for row in report.quotas}
    assert rows["a"].used == 3 * huge  # exact, and no negative number of 64 bits
    # b requests 1500 of its minimum of 2000, which it lends beyond that: its runtime is what it requests.
    assert (rows["b"].used, rows["b"].runtime) == (1500, 1500)
    assert rows["b"] == next(row for row in alone.quotas if row.quota == "b")
