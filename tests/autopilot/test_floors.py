"""Replicas ahead of a forecast peak: when they are lent, how many, when they go back, and who stops it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cotenant.autopilot.decide.floors import (
    FloorForecast,
    FloorStep,
    LentFloor,
    details_of,
    floor_outlook,
    floor_steps,
    kept_by,
    lent_of,
    lent_peaks,
    mark_arrived,
)
from cotenant.autopilot.decide.history import LedgerNote, folded_notes
from cotenant.autopilot.model import AutopilotEvent
from cotenant.autopilot.notes import floor_news
from cotenant.autopilot.rounds.floors import floor_forecasts
from cotenant.autopilot.rounds.ledger_history import LedgerHistory
from cotenant.autopilot.service import report_rows
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline.tables import replicas
from cotenant.recommender.replicas import ReplicaFloor
from cotenant.scheduler_ext.reservations.model.plan import LENT_FLOOR_ANNOTATION
from tests.cluster.api import Json
from tests.support.autopilot import NAMESPACE, NOW

HALF_HOUR = 1800
SLOT = int(NOW // HALF_HOUR) * HALF_HOUR
WEB = WorkloadRef(NAMESPACE, "Deployment", "web")
OWN, MOST, FACTOR = 2, 9, 4.0


def scaler(least: int = OWN, **meta: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"minReplicas": least, "maxReplicas": MOST, "scaleTargetRef": target}
    return {"metadata": {"name": "web", "uid": "h", "resourceVersion": "1", **meta}, "spec": spec}


def marked(least: int) -> dict[str, Any]:
    """An autoscaler that has been lent so many."""
    mark = {"plan": "autopilot", "original": OWN, "floor": least}
    return scaler(least, annotations={LENT_FLOOR_ANNOTATION: json.dumps(mark)})


def after(body: Json, step: FloorStep) -> dict[str, Any]:
    """The autoscaler once the server took the step."""
    assert step.patch is not None
    result: dict[str, Any] = jsonpatch.apply_patch(body, [dict(operation) for operation in step.patch.operations])
    return result


def peak(*counts: int, least: int = OWN, start_seconds: int = SLOT) -> FloorForecast:
    return FloorForecast(start_seconds, counts, least)


def step_of(
    body: Json, forecast: FloorForecast | None, lent: LentFloor | None = None, after_seconds: float = 0.0
) -> FloorStep | None:
    steps = list(floor_steps(WEB, body, FACTOR, lent, forecast, SLOT + after_seconds))
    return steps[0] if steps else None


@pytest.mark.parametrize(
    ("counts", "floor", "half_hours"),
    [
        ((3, 5, 4, 2, 9), 3, 3),  # the peak ends with the first half hour that asks for no more than 2
        ((30, 3), 8, 2),  # 4 x 2 is less than maxReplicas
        ((2, 9), None, 0),  # it begins later
        ((1, 1), None, 0),
    ],
)
def test_a_peak_lends_what_its_first_half_hour_asks_for(
    counts: tuple[int, ...], floor: int | None, half_hours: int
) -> None:
    step = step_of(scaler(), peak(*counts))
    assert (step.lent.floor if step else None) == floor
    assert (len(step.lent.peak.counts) if step else 0) == half_hours


def test_a_floor_rises_with_its_schedule_and_goes_back_at_its_end_alone() -> None:
    first = step_of(scaler(), peak(3, 5, 4, 2))
    assert first is not None
    lent = mark_arrived(first).lent
    assert step_of(scaler(3), None, lent, 1000.0) is None
    second = step_of(scaler(3), None, lent, 1800.0)
    assert second is not None and (second.lent.before, second.lent.floor) == (3, 5)
    lent = mark_arrived(second).lent
    # the third half hour asks for 4 of 5: nothing falls before the end, three half hours after the beginning
    assert step_of(scaler(5), None, lent, 5399.0) is None
    for body in (marked(5), scaler(5)):  # also where somebody has removed the mark
        end = step_of(body, None, lent, 5400.0)
        assert end is not None and end.event is AutopilotEvent.FLOOR_ENDED
        assert after(body, end) == {**scaler(), "metadata": {**body["metadata"], **_cleared(body)}}


def _cleared(body: Json) -> Json:
    return {"annotations": {}} if "annotations" in body["metadata"] else {}


def test_the_outlook_is_what_is_lent_else_the_next_peak_of_the_forecast() -> None:
    def outlook(body: Json, lent: LentFloor | None, after_seconds: float = 0.0, factor: float = FACTOR) -> Any:
        floor = floor_outlook(body, factor, lent, peak(2, 3, 30, 2, 4), SLOT + after_seconds)
        return floor and (floor.floor, floor.start_seconds - SLOT, floor.end_seconds - SLOT, floor.is_lent)

    # the second and third half hour ask for more than 2, at most 4 x 2; the next peak is the fifth
    assert outlook(scaler(), None) == (8, HALF_HOUR, 3 * HALF_HOUR, False)
    assert outlook(scaler(), None, 3 * HALF_HOUR) == (4, 4 * HALF_HOUR, 5 * HALF_HOUR, False)
    assert outlook(scaler(), None, 5 * HALF_HOUR) is None and outlook(scaler(), None, factor=1.0) is None
    step = step_of(scaler(), peak(2, 3, 30, 2, 4), after_seconds=HALF_HOUR)
    assert step is not None
    assert outlook(marked(3), mark_arrived(step).lent, HALF_HOUR) == (8, HALF_HOUR, 3 * HALF_HOUR, True)


def test_a_peak_counts_once_with_the_most_that_it_was_lent() -> None:
    first = step_of(scaler(), peak(3, 5))
    assert first is not None
    second = step_of(scaler(3), None, mark_arrived(first).lent, HALF_HOUR)
    assert second is not None
    refused = replace(
        first, lent=msgspec.structs.replace(first.lent, uid="other")
    )  # written before it was sent, and never arrived
    notes = [
        LedgerNote(step.event, str(WEB), NOW, "m", details_of(step))
        for step in (first, mark_arrived(first), second, mark_arrived(second), refused)
    ]
    # two replicas of its own, five at most
    assert [(lent.own, lent.floor) for lent in lent_peaks(notes)] == [(2, 5)]
    history = LedgerHistory({}, tuple(notes))
    (row,) = report_rows(history, 0.0)
    assert (row["namespace"], row["floors"], row["floor_replicas"]) == (NAMESPACE, 1, 3)
    titles = [
        news.title for news in floor_news([first, replace(first, refused="no"), FloorStep(first.event, first.lent, "")])
    ]
    assert titles == [f"{WEB}: minReplicas was raised"]


def test_an_end_whose_answer_was_lost_is_no_fight() -> None:
    first = step_of(scaler(), peak(3, 5, 2))
    assert first is not None
    lent = mark_arrived(first).lent
    back = step_of(scaler(), None, lent, 3600.0)  # two half hours: the peak is over, and 2 stand there again
    assert back is not None and (back.is_fought, back.patch, back.words) == (False, None, "the peak is over")
    early = step_of(scaler(), None, lent, 3599.0)
    assert early is not None and early.is_fought
    # a person who sets the autoscaler's own number leaves the mark that an end of ours takes away with it
    by_person = {**marked(3), "spec": {**scaler()["spec"], "minReplicas": OWN}}
    by_hand = step_of(by_person, None, lent, 3600.0)
    assert by_hand is not None and by_hand.is_fought
    # of somebody else's value nothing but our mark goes
    other = {**marked(3), "spec": {**scaler()["spec"], "minReplicas": 4}}
    fought = step_of(other, None, lent, 60.0)
    assert fought is not None and fought.is_fought
    assert after(other, fought) == {**scaler(4), "metadata": {**scaler()["metadata"], "annotations": {}}}


def test_a_mark_that_the_ledger_does_not_know_of_goes_back() -> None:
    step = step_of(marked(6), peak(9, 9, least=6))
    assert step is not None and step.event is AutopilotEvent.FLOOR_ENDED
    assert after(marked(6), step)["spec"]["minReplicas"] == OWN


def test_a_floor_rises_no_further_than_the_policy_and_the_autoscaler_allow_now() -> None:
    first = step_of(scaler(), peak(3, 8))
    assert first is not None
    lent, body = mark_arrived(first).lent, scaler(3)
    # 2 x 2.5 = 5 of the 8 that the schedule asks for
    (step,) = floor_steps(WEB, body, 2.5, lent, None, SLOT + 1800.0)
    assert step.lent.floor == 5
    body["spec"]["maxReplicas"] = 4
    (step,) = floor_steps(WEB, body, FACTOR, lent, None, SLOT + 1800.0)
    assert step.lent.floor == 4


def test_a_forecast_of_another_floor_than_that_of_now_lends_nothing() -> None:
    # the scan was made while 5 were lent: its floor is never below that
    assert step_of(scaler(), peak(5, 5, 5, least=5)) is None
    # and one that is over, or has not begun, says nothing of now
    assert step_of(scaler(), peak(5, start_seconds=SLOT - HALF_HOUR)) is None
    assert step_of(scaler(), peak(5, start_seconds=SLOT + HALF_HOUR)) is None


def test_an_autoscaler_that_somebody_else_keeps_is_known() -> None:
    guardrails = GuardrailSettings()
    keda = [{"kind": "ScaledObject", "name": "web", "controller": True}]
    fields: Json = {"f:spec": {"f:minReplicas": {}}}
    flux = [{"manager": "kustomize-controller", "fieldsV1": fields}]
    assert kept_by(scaler(ownerReferences=keda), guardrails) == "ScaledObject web"
    assert kept_by(scaler(managedFields=flux), guardrails) == "kustomize-controller"
    assert kept_by(scaler(labels={"argocd.argoproj.io/instance": "shop"}), guardrails) == "argocd.argoproj.io/instance"
    others = [{"manager": "kubectl-edit", "fieldsV1": fields}, {"manager": "helm-controller", "fieldsV1": {}}]
    assert kept_by(scaler(managedFields=others), guardrails) == ""


def test_a_plan_that_holds_the_autoscaler_is_waited_for() -> None:
    note = '{"plan": "p", "original": 2, "floor": 6}'
    assert step_of(scaler(6, annotations={"cotenant.dev/plan-floor": note}), peak(9, 9, least=6)) is None


def test_the_floors_of_a_scan_are_read_from_its_store(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "demo")
    assert floor_forecasts(store) == {}
    worker = msgspec.structs.replace(WEB, name="worker")
    scanned = ReplicaFloor(
        WEB, 2, OWN, MOST, Reason.OK, SLOT, HALF_HOUR, (2, 5), 5, Resource.CPU, {Resource.CPU: 60}, 90
    )
    alone = replace(scanned, workload=worker, most=None)  # it has no autoscaler
    store.write_table(
        replicas([scanned, alone, replace(scanned, workload=msgspec.structs.replace(WEB, name="new"), floor=())])
    )
    assert floor_forecasts(store) == {WEB: peak(2, 5)}


class LentWorld(RuleBasedStateMachine):
    """One autoscaler, an autopilot whose process may end at any point, a person, and scans that come at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = float(SLOT)
        self.own = OWN
        self.body = scaler()
        self.forecast: FloorForecast | None = None
        self.notes: list[LedgerNote] = []
        self.raises_after_person = 0
        self.person_took = self.is_end_unknown = False

    @property
    def least(self) -> int:
        return int(self.body["spec"]["minReplicas"])

    def history(self) -> tuple[LentFloor | None, bool]:
        decisions = folded_notes(self.notes)
        note = decisions.floors.get("h")
        lent = lent_of(note) if note is not None and note.event is AutopilotEvent.FLOOR_RAISED else None
        return lent, bool(decisions.left_alone)

    @rule(counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
    def scan(self, counts: list[int]) -> None:
        start = int(self.now // HALF_HOUR) * HALF_HOUR
        floors = tuple(min(max(count, self.least), MOST) for count in counts)
        self.forecast = FloorForecast(start, floors, self.least)

    @rule(
        dies=st.sampled_from(["never", "never", "before the write", "after the write"]), factor=st.sampled_from([4, 1])
    )
    def look(self, dies: str, factor: int) -> None:
        lent, is_left = self.history()
        factor = 1 if is_left else factor
        for step in floor_steps(WEB, self.body, factor, lent, self.forecast, self.now):
            is_raise = step.event is AutopilotEvent.FLOOR_RAISED
            self.raises_after_person += is_raise and self.person_took
            if is_raise and step.patch is not None:
                self.note(step)
            if dies == "before the write":
                return
            if step.patch is not None:
                self.body = after(self.body, step)
            if dies == "after the write":
                self.is_end_unknown |= factor == 1
                return
            self.note(mark_arrived(step) if is_raise else step)
            if step.is_fought:
                self.notes.append(LedgerNote(AutopilotEvent.LEFT_ALONE, str(WEB), self.now, "m", {"words": "x"}))

    def note(self, step: FloorStep) -> None:
        self.notes.append(LedgerNote(step.event, str(WEB), self.now, "m", details_of(step)))

    @rule(least=st.integers(1, MOST))
    def person_sets(self, least: int) -> None:
        lent, is_left = self.history()
        if lent is not None and not is_left and least == lent.own and not self.body["metadata"].get("annotations"):
            # The end arrived and its answer was lost: before anybody looked it is again as the end left it.
            self.person_took, self.own = False, lent.own
            self.body["spec"]["minReplicas"] = least
            return
        if lent is not None and lent.has_arrived and least != lent.floor and not is_left:
            self.person_took = True
        if lent is not None and self.person_took and least == lent.floor and not is_left:
            self.person_took, self.own = False, lent.own  # before anybody looked it is again as it was lent
        elif lent is None or self.person_took:
            self.own = least
        elif least != self.least:
            return  # in the moment in which nobody knows what has arrived, the one retry is allowed
        self.body["spec"]["minReplicas"] = least

    @rule(half_hours=st.integers(0, 4))
    def time_passes(self, half_hours: int) -> None:
        self.now += half_hours * HALF_HOUR + 1

    @invariant()
    def it_never_passes_the_policy_or_the_autoscaler(self) -> None:
        assert self.least <= max(min(int(self.own * FACTOR), MOST), self.own)

    @invariant()
    def nothing_is_set_again_after_a_person(self) -> None:
        assert self.raises_after_person == 0

    def teardown(self) -> None:
        self.now += 24 * 3600
        self.forecast = None
        for _ in range(2):
            self.look("never", 4)
        assert self.least == self.own
        assert not self.body["metadata"].get("annotations")
        # nobody is taken for a writer who is none, whenever the process has ended; but for an end before its time
        assert self.person_took or self.is_end_unknown or not folded_notes(self.notes).left_alone


@pytest.mark.slow
def test_whatever_happens_a_floor_goes_back_and_no_person_is_fought() -> None:
    lent_floors: list[LentWorld] = []

    def lent_floor() -> LentWorld:
        lent_floors.append(LentWorld())
        return lent_floors[-1]

    form = settings(max_examples=150, stateful_step_count=20)
    run_state_machine_as_test(lent_floor, settings=form)  # type: ignore[arg-type]  # any factory may be given
    assert len(lent_floors) >= 150
    # the end of each sequence gave its floor back
    assert [lent_floor.least for lent_floor in lent_floors] == [lent.own for lent in lent_floors]
    assert sum(lent_floor.raises_after_person for lent_floor in lent_floors) == 0


@pytest.mark.parametrize("dies", ["never", "after the write"])
def test_a_world_lends_a_floor_that_a_person_takes_back_for_good(dies: str) -> None:
    # how many sequences lend one is Hypothesis' choice; this one always does
    lent_floor = LentWorld()
    lent_floor.scan([6, 6, 6, 6])
    lent_floor.look(dies, 4)
    assert lent_floor.least == 6
    lent_floor.look("never", 4)
    lent_floor.person_sets(3)
    for _ in range(3):
        lent_floor.look("never", 4)
        lent_floor.scan([8, 8])
    assert (lent_floor.least, lent_floor.own, lent_floor.raises_after_person) == (3, 3, 0)
    lent_floor.teardown()
