"""Who may be the second person of a change, how long it waits for one, and what becomes of it: without any effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.errors import UsageError
from cotenant.changes.decide.lifecycle import Due, Pace, due, same_person, why_not_confirm
from cotenant.changes.model.change import Change, ChangeEvent, ChangeState, ChangeStatus

DAY = 86_400.0
PACE = Pace(soak_seconds=1800.0, verify_seconds=DAY, confirm_seconds=DAY)
CHANGE = Change("a", "b", "shop", "Deployment", "web", "ada@example.com", (), "template", "d@0", ())
AWAITING = ChangeStatus(CHANGE, ChangeState.AWAITING, 0.0, 0.0, "ada@example.com")


def test_somebody_else_may_confirm_until_the_time_is_over() -> None:
    assert why_not_confirm(AWAITING, "bea@example.com", DAY - 1, PACE) == ""
    assert why_not_confirm(AWAITING, "bea@example.com", DAY, PACE) == "the change has waited for more than 24 hours"


@pytest.mark.parametrize(
    "name", ["ada@example.com", "Ada@Example.com", "oidc:ada@example.com", "idp#ada@example.com", ""]
)
def test_whoever_accepted_it_is_no_second_person_by_any_spelling(name: str) -> None:
    assert "cannot be the second person" in why_not_confirm(AWAITING, name, 1.0, PACE)


def test_names_that_only_end_alike_are_two_people() -> None:
    assert not same_person("ada@example.com", "hada@example.com")
    assert same_person("oidc:ada", "ada") and same_person("", "ada")


def test_outside_the_change_windows_nothing_is_confirmed_unless_that_rule_was_passed_over() -> None:
    shut = replace(PACE, may_change=False)
    assert why_not_confirm(AWAITING, "bea", 1.0, shut) == "no change window is open"
    passed_over = replace(CHANGE, guardrails={"change-window": "overridden: no change window is open"})
    assert why_not_confirm(replace(AWAITING, change=passed_over), "bea", 1.0, shut) == ""


@pytest.mark.parametrize("state", [s for s in ChangeState if s is not ChangeState.AWAITING])
def test_what_does_not_wait_for_one_is_not_confirmed(state: ChangeState) -> None:
    assert "does not wait for a second person" in why_not_confirm(replace(AWAITING, state=state), "bea", 1.0, PACE)


def test_what_nobody_confirms_is_cancelled_after_its_time_with_all_of_its_batch() -> None:
    later = replace(AWAITING, change=replace(CHANGE, id="c", wave=1))
    assert due([AWAITING, later], DAY - 1, PACE) == []
    steps = due([AWAITING, later], DAY, PACE)
    assert [(s.due, s.status.change.id) for s in steps] == [(Due.CANCEL, "a"), (Due.CANCEL, "c")]
    assert steps[0].why == "no second person confirmed the change within 24 hours"


def test_what_is_confirmed_soaks_from_then_on() -> None:
    confirmed = AWAITING.moved(ChangeEvent.CONFIRMED, 500.0, "bea")
    assert (confirmed.state, confirmed.begun_seconds) == (ChangeState.UNKNOWN, 500.0)
    applied = confirmed.moved(ChangeEvent.APPLIED, 501.0, "bea")
    # 500 + 1800 s of soaking; by its acceptance at 0 it would have been due at 1800.
    assert due([applied], 2299.0, PACE) == [] and due([applied], 2300.0, PACE)[0].due is Due.VERIFY


def test_nothing_is_applied_or_confirmed_twice_around_the_wait() -> None:
    with pytest.raises(UsageError):
        AWAITING.moved(ChangeEvent.APPLIED, 1.0, "ada")
    with pytest.raises(UsageError):
        AWAITING.moved(ChangeEvent.CONFIRMED, 1.0, "bea").moved(ChangeEvent.CONFIRMED, 2.0, "cem")
