"""Hidden recommendations: a reason, an end, and who did it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import FixedClock
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.snooze import DAY_SECONDS, postponed_recommendations, recall, snooze

WEB, DB = WorkloadRef("shop", "Deployment", "web"), WorkloadRef("shop", "StatefulSet", "db")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[ChangeLedger]:
    ledger = Ledger(tmp_path / "l.db")
    yield ChangeLedger(ledger, FixedClock(1000.0), "ann")
    ledger.close()


def test_a_snooze_ends_and_a_dismissal_does_not(journal: ChangeLedger) -> None:
    snooze(journal, [WEB], 7.0, "after the  sale\n")
    snooze(journal, [DB], None, "never")
    recommendations = postponed_recommendations(journal.ledger, 1000.0)
    assert (recommendations[WEB].until_seconds, recommendations[WEB].reason) == (
        1000.0 + 7 * DAY_SECONDS,
        "after the sale",
    )
    assert (recommendations[DB].until_seconds, recommendations[DB].actor, recommendations[DB].since_seconds) == (
        None,
        "ann",
        1000.0,
    )
    assert set(postponed_recommendations(journal.ledger, 1000.0 + 7 * DAY_SECONDS)) == {DB}


def test_the_last_word_counts_and_a_recall_of_nothing_is_no_row(journal: ChangeLedger) -> None:
    recall(journal, [WEB])
    assert journal.ledger.head().seq == 0
    snooze(journal, [WEB], None, "no")
    snooze(journal, [WEB], 1.0, "for a day")
    assert postponed_recommendations(journal.ledger, 1000.0)[WEB].reason == "for a day"
    recall(journal, [WEB, DB])
    assert postponed_recommendations(journal.ledger, 1000.0) == {} and journal.ledger.head().seq == 3
    # They are no changes, and the chain holds.
    assert journal.statuses() == {} and journal.ledger.verify().wrong_seq is None


@pytest.mark.parametrize(("days", "reason"), [(1.0, ""), (1.0, " \n"), (0.0, "x"), (-1.0, "x"), (float("nan"), "x"),
                                              (1e9, "x"), (1.0, "x" * 501)])  # fmt: skip
def test_without_a_reason_or_a_length_nothing_is_hidden(journal: ChangeLedger, days: float, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        snooze(journal, [WEB], days, reason)
    assert refused.value.fix and journal.ledger.head().seq == 0


def test_a_row_that_cannot_be_read_hides_nothing(journal: ChangeLedger) -> None:
    journal.ledger.append(1.0, "x", [("postponed", "shop/web", {}), ("postponed", str(WEB), {"until_seconds": "soon"})])
    assert postponed_recommendations(journal.ledger, 0.0) == {}
