"""What is due for accepted changes, from any history that the ledger can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.intent import Address
from cotenant.changes.decide.lifecycle import (
    MOST_RECHECKS,
    RECHECK_SECONDS,
    Due,
    Pace,
    Regressed,
    due,
    due_rechecks,
    regressed_condition,
)
from cotenant.changes.model.change import (
    TRANSITIONS,
    Change,
    ChangeEvent,
    ChangeState,
    ChangeStatus,
    Write,
    after,
    cool_downs,
    fold_events,
)

PACE = Pace(soak_seconds=1800.0, verify_seconds=86_400.0)
MINUTE = 60.0


def change(id_: str, batch: str = "b", wave: int = 0) -> Change:
    return Change(id_, batch, "shop", "Deployment", id_, "ann", (), "template", "d@0", (), wave=wave)


def status(id_: str, state: ChangeState, wave: int = 0, since: float = 0.0, **more: object) -> ChangeStatus:
    return replace(ChangeStatus(change(id_, wave=wave), state, 0.0, since, "ann"), **more)  # type: ignore[arg-type]


def steps(*change_statuses: ChangeStatus, now: float = 0.0, pace: Pace = PACE) -> list[tuple[Due, str]]:
    return [(step.due, step.status.change.id) for step in due(change_statuses, now, pace)]


def test_a_change_is_judged_at_two_ages_and_then_no_more() -> None:
    applied = status("a", ChangeState.APPLIED)
    assert steps(applied, now=1799.0) == [] and steps(applied, now=1800.0) == [(Due.VERIFY, "a")]
    verified = status("a", ChangeState.VERIFIED, since=1800.0)
    assert steps(verified, now=86_399.0) == [] and steps(verified, now=86_400.0) == [(Due.VERIFY, "a")]
    again = status("a", ChangeState.VERIFIED, since=86_401.0, verified_seconds=86_401.0)
    assert steps(again, now=900_000.0) == []


def test_what_a_later_change_in_force_has_written_again_is_not_judged_at_its_second_age() -> None:
    def writing(id_: str, state: ChangeState, pointer: str) -> ChangeStatus:
        write = Write(Address("apps/v1", "deployments", "web", "shop"), "u", (), {pointer: 1}, {pointer: 2})
        change_status = status(id_, state, since=1800.0)
        return replace(change_status, change=replace(change_status.change, batch=id_, writes=(write,)))

    first = writing("a", ChangeState.VERIFIED, "/cpu")
    assert steps(first, writing("b", ChangeState.APPLIED, "/cpu"), now=86_400.0) == [(Due.VERIFY, "b")]
    # another field, or the same one of a change that was taken back, leaves it in force
    assert (Due.VERIFY, "a") in steps(first, writing("b", ChangeState.APPLIED, "/memory"), now=86_400.0)
    assert steps(first, writing("b", ChangeState.ROLLED_BACK, "/cpu"), now=86_400.0) == [(Due.VERIFY, "a")]


def test_a_workload_cools_down_from_its_last_change_that_was_written_or_rolled_back() -> None:
    changed = [status(state.value, state) for state in ChangeState]
    cooling = {ref.name for ref in cool_downs(changed, 3600.0, 3599.0)}
    assert cooling == {"unknown", "applied", "verified", "regressed", "rollback-unknown", "rolled-back"}
    assert set(cool_downs(changed, 3600.0, 0.0).values()) == {3600.0}
    assert cool_downs(changed, 3600.0, 3600.0) == {}


def test_a_workload_cools_down_from_when_its_change_was_sent_and_not_from_when_it_was_accepted() -> None:
    # It waited a day for those that went first, or for a second person: its pods changed at 86,400 s.
    waited = status("web", ChangeState.APPLIED, begun_seconds=86_400.0)
    assert cool_downs([waited], 3600.0, 86_401.0) == {waited.change.ref: 90_000.0}
    # One that was accepted meanwhile, and sent at once, was sent before it.
    meanwhile = replace(waited, accepted_seconds=7200.0, begun_seconds=7200.0)
    assert cool_downs([waited, meanwhile], 3600.0, 86_401.0) == {waited.change.ref: 90_000.0}


def test_a_regression_is_taken_back_only_when_that_is_wanted_and_only_once() -> None:
    bad = status("a", ChangeState.REGRESSED)
    reverting = replace(PACE, auto_rollback=True)
    assert steps(bad, now=9e9) == [] and steps(bad, pace=reverting) == [(Due.ROLL_BACK, "a")]
    assert steps(replace(bad, rollback_refused=True), pace=reverting) == []


def test_a_recommendation_is_marked_by_harm_cleared_by_a_verdict_and_left_as_it_is_by_all_else() -> None:
    conditions = {state: regressed_condition(status("a", state, words="12 of 12")) for state in ChangeState}
    assert conditions.pop(ChangeState.REGRESSED) == Regressed(True, "DidHarm", "change a: 12 of 12")
    assert conditions.pop(ChangeState.VERIFIED) == Regressed(False, "Held", "change a: 12 of 12")
    assert set(conditions.values()) == {None}


def test_the_rest_waits_for_all_of_the_first_and_for_a_window() -> None:
    waiting = status("c", ChangeState.WAITING, wave=1)
    good, soaks = status("a", ChangeState.VERIFIED), status("b", ChangeState.APPLIED)
    assert steps(good, soaks, waiting, now=MINUTE) == []
    both = (good, status("b", ChangeState.VERIFIED), waiting)
    assert steps(*both, now=MINUTE) == [(Due.RESUME, "c")]
    assert steps(*both, now=MINUTE, pace=replace(PACE, may_change=False)) == []


@pytest.mark.parametrize("state", [ChangeState.FAILED, ChangeState.REGRESSED, ChangeState.ROLLED_BACK])
def test_harm_to_one_of_the_first_takes_all_of_them_back_and_cancels_the_rest(state: ChangeState) -> None:
    bad, good = status("a", state, words="2 restarts"), status("b", ChangeState.VERIFIED)
    waiting = status("c", ChangeState.WAITING, wave=1)
    expected = [
        (Due.CANCEL, "c"),
        *([(Due.ROLL_BACK, "a")] if state is ChangeState.REGRESSED else []),
        (Due.ROLL_BACK, "b"),
    ]
    assert steps(bad, good, waiting) == expected
    (cancel, *_) = due([bad, good, waiting], 0.0, PACE)
    assert cancel.why == f"shop/Deployment/a, changed first, is {state}: 2 restarts"
    # Whoever comes after a process that died in between goes on where it was.
    assert steps(bad, good, replace(waiting, state=ChangeState.CANCELLED)) == expected[1:]


def paced(id_: str, state: ChangeState, wave: int) -> ChangeStatus:
    change_status = status(id_, state, wave=wave)
    return replace(change_status, change=replace(change_status.change, paced=True))


def test_a_batch_of_many_waves_goes_on_one_wave_at_a_time() -> None:
    good, refused = paced("a", ChangeState.VERIFIED, 0), paced("b", ChangeState.FAILED, 0)
    second, third = (paced(id_, ChangeState.WAITING, wave) for id_, wave in (("c", 1), ("d", 2)))
    # What the server refused of it harmed nobody, and holds no other workload up.
    assert steps(good, refused, second, third, now=MINUTE) == [(Due.RESUME, "c")]
    soaks = replace(second, state=ChangeState.APPLIED)
    assert steps(good, refused, soaks, third, now=MINUTE) == []
    through = replace(second, state=ChangeState.VERIFIED)
    assert steps(good, refused, through, third, now=MINUTE) == [(Due.RESUME, "d")]
    assert steps(good, refused, through, third, now=MINUTE, pace=replace(PACE, may_change=False)) == []


@pytest.mark.parametrize("state", [ChangeState.REGRESSED, ChangeState.ROLLED_BACK])
def test_harm_in_a_wave_ends_the_batch_and_takes_no_other_workload_back(state: ChangeState) -> None:
    good, bad = paced("a", ChangeState.VERIFIED, 0), paced("b", state, 1)
    other, last = paced("c", ChangeState.VERIFIED, 1), paced("d", ChangeState.WAITING, 2)
    assert steps(good, bad, other, last, now=MINUTE) == [(Due.CANCEL, "d")]
    # Harm of a wave that was verified already, a day later, ends the rest too.
    assert steps(replace(bad, change=replace(bad.change, wave=0)), other, last, now=MINUTE) == [(Due.CANCEL, "d")]


def test_the_rest_of_a_wave_that_was_begun_in_part_follows_and_harm_in_it_cancels_that_rest() -> None:
    """Two of a wave: one was sent, the other was not, because the watcher had no right there or the server was away."""
    good = paced("a", ChangeState.VERIFIED, 0)
    unsent, third = paced("c", ChangeState.WAITING, 1), paced("d", ChangeState.WAITING, 2)
    for state in (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.FAILED):
        assert steps(good, paced("b", state, 1), unsent, third, now=MINUTE) == [(Due.RESUME, "c")]
    harmed = paced("b", ChangeState.REGRESSED, 1)
    assert steps(good, harmed, unsent, third, now=MINUTE) == [(Due.CANCEL, "c"), (Due.CANCEL, "d")]
    # The same of a canary's rest: it is cancelled, and what was done of it is decided by itself.
    change_status, bad, rest = (
        status(id_, state, wave=wave)
        for id_, state, wave in (
            ("a", ChangeState.VERIFIED, 0),
            ("b", ChangeState.REGRESSED, 1),
            ("c", unsent.state, 1),
        )
    )
    assert steps(change_status, bad, rest, now=MINUTE) == [(Due.CANCEL, "c")]
    assert steps(change_status, replace(bad, state=ChangeState.APPLIED), rest, now=MINUTE) == [(Due.RESUME, "c")]


@pytest.mark.parametrize("is_paced", [True, False])
@pytest.mark.parametrize("state", list(ChangeState))
def test_who_watches_some_changes_of_a_batch_waits_for_the_others_of_it(state: ChangeState, is_paced: bool) -> None:
    """The manager takes steps of ladders alone; a batch may hold changes of other workloads as well."""
    first, rest = status("a", state), status("b", ChangeState.WAITING, wave=1)
    batch = [
        replace(change_status, change=replace(change_status.change, paced=is_paced)) for change_status in (first, rest)
    ]
    due_steps = due(batch, MINUTE, PACE, mine=lambda status: status.change.id == "b")
    # As for who watches all of it, and nothing is done to the change of others.
    assert [(step.due, step.status.change.id) for step in due_steps] == [
        step for step in steps(*batch, now=MINUTE) if step[1] == "b"
    ]
    # What was refused, or was changed by somebody else, says nothing for a canary and holds up nothing that is paced.
    ended = (ChangeState.FAILED, ChangeState.GONE)
    ends_rest = state in (ChangeState.REGRESSED, ChangeState.ROLLED_BACK) or (state in ended and not is_paced)
    is_through = state is ChangeState.VERIFIED or (is_paced and state in (*ended, ChangeState.CANCELLED))
    assert [step.due for step in due_steps] == ([Due.CANCEL] if ends_rest else [Due.RESUME] if is_through else [])


def test_harm_in_an_earlier_wave_takes_the_later_one_not_back() -> None:
    """The later wave soaks on its own: only what went first together with the harm is suspect."""
    harmful, later_wave = status("a", ChangeState.REGRESSED), status("b", ChangeState.APPLIED, wave=1)
    rest = status("c", ChangeState.WAITING, wave=2)
    assert steps(harmful, later_wave, rest, now=MINUTE) == [(Due.CANCEL, "c")]
    # In the last wave that was begun: the whole of that wave, and nothing before it.
    first = status("a", ChangeState.VERIFIED, verified_seconds=1.0)
    due_steps = steps(first, replace(later_wave, state=ChangeState.REGRESSED), rest, now=MINUTE)
    assert set(due_steps) == {(Due.CANCEL, "c"), (Due.ROLL_BACK, "b")}


def test_a_canary_that_somebody_else_changed_ends_the_rest_and_takes_nothing_back() -> None:
    verified, foreign = status("a", ChangeState.VERIFIED), status("b", ChangeState.GONE)
    rest = status("c", ChangeState.WAITING, wave=1)
    assert steps(verified, foreign, rest, now=MINUTE) == [(Due.CANCEL, "c")]
    # Harm beside it takes the whole wave back, as ever.
    harmful = status("d", ChangeState.REGRESSED)
    assert set(steps(foreign, harmful, verified, rest, now=MINUTE)) == {
        (Due.CANCEL, "c"), (Due.ROLL_BACK, "a"), (Due.ROLL_BACK, "d")}  # fmt: skip


def test_a_verified_change_is_compared_again_after_a_quarter_of_a_day_the_longest_unseen_first() -> None:
    day = 86_400.0
    old = [replace(status(id_, ChangeState.VERIFIED), verified_seconds=2 * day) for id_ in "abc"]
    young = replace(status("d", ChangeState.VERIFIED), verified_seconds=MINUTE)  # its second verdict is to come
    now, recheck_seconds = 10 * day, {"a": 10 * day - RECHECK_SECONDS, "b": 10 * day - RECHECK_SECONDS + 1}
    assert [s.change.id for s in due_rechecks([*old, young], now, PACE, recheck_seconds)] == ["c", "a"]
    many = [replace(old[0], change=replace(old[0].change, id=str(number))) for number in range(2 * MOST_RECHECKS)]
    assert len(due_rechecks(many, now, PACE, {})) == MOST_RECHECKS


def test_a_change_is_compared_again_when_no_verdict_comes_any_more_after_harm_or_a_refused_rollback() -> None:
    refused = replace(status("a", ChangeState.APPLIED), rollback_refused=True)
    harmful, soaks = status("b", ChangeState.REGRESSED), status("c", ChangeState.APPLIED)
    assert steps(refused, now=9e9) == []
    assert [s.change.id for s in due_rechecks([refused, harmful, soaks], 9e9, PACE, {})] == ["a", "b"]


def test_what_nobody_saw_the_end_of_comes_first() -> None:
    lost, waiting = status("a", ChangeState.UNKNOWN), status("b", ChangeState.WAITING, wave=1)
    assert steps(lost, waiting, now=9e9) == [(Due.SETTLE, "a")]


class AnyHistory(RuleBasedStateMachine):
    """A batch of three, two of which go first; events as the ledger takes them, and the steps that follow."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.events: list[tuple[str, ChangeEvent, float, str, Change | None, str]] = []
        for id_, wave in (("a", 0), ("b", 0), ("c", 1)):
            self.events.append((id_, ChangeEvent.ACCEPTED, 0.0, "ann", change(id_, wave=wave), ""))
        self.events.append(("c", ChangeEvent.WAITING, 0.0, "ann", None, ""))

    def statuses(self) -> dict[str, ChangeStatus]:
        return fold_events(self.events)

    def tell(self, id_: str, happened: ChangeEvent) -> None:
        after(self.statuses()[id_].state, happened)
        self.events.append((id_, happened, self.seconds, "ann", None, ""))

    @rule(minutes=st.integers(0, 3000))
    def time_passes(self, minutes: int) -> None:
        self.seconds += minutes * MINUTE

    @rule(id_=st.sampled_from("ab"), good=st.booleans())
    def the_cluster_answers(self, id_: str, good: bool) -> None:
        state = self.statuses()[id_].state
        if state is ChangeState.UNKNOWN:
            self.tell(id_, ChangeEvent.APPLIED if good else ChangeEvent.REFUSED)
        elif state is ChangeState.ROLLBACK_UNKNOWN:
            self.tell(id_, ChangeEvent.ROLLED_BACK if good else ChangeEvent.ROLLBACK_REFUSED)

    @rule(good=st.booleans())
    def the_watcher_takes_a_step(self, good: bool) -> None:
        due_steps = due(self.statuses().values(), self.seconds, replace(PACE, auto_rollback=True))
        for step in due_steps[:1]:
            event = {
                Due.SETTLE: None,
                Due.VERIFY: ChangeEvent.VERIFIED if good else ChangeEvent.REGRESSED,
                Due.RESUME: ChangeEvent.RESUMED,
                Due.CANCEL: ChangeEvent.CANCELLED,
                Due.ROLL_BACK: ChangeEvent.ROLLBACK_ACCEPTED,
            }[step.due]
            if event is None:
                self.settled(step.status, good)
            else:
                self.tell(step.status.change.id, event)  # never one that cannot happen

    @rule(id_=st.sampled_from("abc"))
    def somebody_else_changes_the_workload(self, id_: str) -> None:
        if self.statuses()[id_].state.in_force:
            self.tell(id_, ChangeEvent.GONE)

    @rule(id_=st.sampled_from("abc"), happened=st.sampled_from((ChangeEvent.VERIFIED, ChangeEvent.REGRESSED)))
    def an_older_release_writes_on(self, id_: str, happened: ChangeEvent) -> None:
        if self.statuses()[id_].state is ChangeState.GONE:
            self.tell(id_, happened)
            assert self.statuses()[id_].state is ChangeState.GONE

    def settled(self, change_status: ChangeStatus, good: bool) -> None:
        back = change_status.state is ChangeState.ROLLBACK_UNKNOWN
        choices = {
            (False, True): ChangeEvent.APPLIED,
            (False, False): ChangeEvent.WAITING if change_status.change.wave else ChangeEvent.REFUSED,
            (True, True): ChangeEvent.ROLLED_BACK,
            (True, False): ChangeEvent.ROLLBACK_LOST,
        }
        self.tell(change_status.change.id, choices[back, good])

    @invariant()
    def the_rest_is_only_done_after_all_of_the_first_were_good(self) -> None:
        names = [(id_, happened) for id_, happened, *_ in self.events]
        if ("c", ChangeEvent.RESUMED) in names:
            until = names[: names.index(("c", ChangeEvent.RESUMED))]
            assert all((id_, ChangeEvent.VERIFIED) in until for id_ in "ab")
        assert not (("c", ChangeEvent.APPLIED) in names and ("c", ChangeEvent.RESUMED) not in names)

    @invariant()
    def steps_go_on_until_nothing_is_due(self) -> None:
        due_steps = due(self.statuses().values(), self.seconds, PACE)
        assert len({step.status.change.id for step in due_steps}) == len(due_steps)


AnyHistory.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyHistory = AnyHistory.TestCase


def test_a_change_that_has_ended_is_said_to_have_ended() -> None:
    with pytest.raises(UsageError, match="the change is rolled-back already: it cannot become rollback-accepted"):
        after(ChangeState.ROLLED_BACK, ChangeEvent.ROLLBACK_ACCEPTED)


def test_who_comes_second_is_told_who_was_first_and_when() -> None:
    # 1,763,589,240 s is Wednesday, 19 November 2025, 21:54 UTC.
    ended = status("a", ChangeState.ROLLED_BACK, since=1_763_589_240.0)
    with pytest.raises(UsageError, match="ann, Wed 19 Nov 21:54 UTC: rolled-back"):
        ended.moved(ChangeEvent.ROLLBACK_ACCEPTED, 1_763_589_300.0, "bob")


def test_what_cannot_happen_is_refused_before_it_is_written() -> None:
    states = [None, *ChangeState]
    for state in states:
        for happened in ChangeEvent:
            if (state, happened) in TRANSITIONS:
                assert isinstance(after(state, happened), ChangeState)
            else:
                with pytest.raises(UsageError, match="cannot become"):
                    after(state, happened)
    # Every state but the ends can be left, and every state can be reached.
    assert set(TRANSITIONS.values()) == set(ChangeState)
    left_states = {state for state, _ in TRANSITIONS if state is not None}
    assert set(ChangeState) - left_states == {ChangeState.FAILED, ChangeState.CANCELLED, ChangeState.ROLLED_BACK}
