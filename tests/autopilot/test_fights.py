"""Another writer on the same field, in any order with rounds, verdicts and clocks: one attempt at most, then off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cotenant.autopilot.decide.candidates import LiveNamespace, PolicyInForce, candidates_of, settings_under
from cotenant.autopilot.decide.history import (
    LedgerNote,
    acts_of,
    busy,
    folded_notes,
    gitops_writer,
    statuses_by_workload,
)
from cotenant.autopilot.decide.policy import PolicySpec, effective, parse_policy
from cotenant.autopilot.decide.records import rows_of
from cotenant.autopilot.decide.round_order import RoundInputs, decide
from cotenant.autopilot.model import AutopilotEvent, AutopilotMode, QueueVerdict
from cotenant.autopilot.settings import CeilingSettings, Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.autoscalers import VerticalAutoscalerObject, vertical_writer
from cotenant.changes.decide.field_changes import planned
from cotenant.changes.model.change import (
    AUTOPILOT_KEY_PREFIX,
    Change,
    ChangeEvent,
    ChangeState,
    ChangeStatus,
    cool_downs,
)
from cotenant.changes.model.settings import ActionSettings
from cotenant.recommender.model.recommendation import Trust
from cotenant.recommender.settings import CotenantSettings
from tests.changes.world import recommended
from tests.support.extent import full

WEB = WorkloadRef("shop", "Deployment", "web")
HOUR = 3600.0
START = 1_800_000_000.0
WRITERS = ("kubectl-edit", "argocd-controller", "vpa-updater", "helm")


def live(cpu: str, manager: str = "") -> dict[str, Any]:
    """The Deployment; manager: who wrote its resources last."""
    container = {"name": "app", "resources": {"requests": {"cpu": cpu}}}
    owned: dict[str, Any] = {
        "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"app"}': {"f:resources": {}}}}}}
    }
    entries = [{"manager": manager, "time": "2027-01-01T00:00:00Z", "fieldsV1": owned}] if manager else []
    return {
        "metadata": {"uid": "u", "labels": {}, "annotations": {}, "managedFields": entries},
        "spec": {"replicas": 2, "template": {"metadata": {}, "spec": {"containers": [container]}}},
    }


class Fight(RuleBasedStateMachine):
    """One workload, the autopilot, and somebody who sets the request back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.body = live("1")
        self.statuses: list[ChangeStatus] = []
        self.notes: list[LedgerNote] = []
        self.fought = False
        self.acts_after_fight = 0
        limits = effective(CeilingSettings(ways=[Way.ROLL_OUT], restarts_per_week=50), PolicySpec())
        meta = {"namespace": "shop", "name": "p"}
        policy = parse_policy({"metadata": meta, "spec": {"mode": "Act"}})
        self.force = PolicyInForce(policy, limits, AutopilotMode.ACT, settings_under(ActionSettings(), limits))

    @initialize()
    def it_acts_once(self) -> None:
        self.round()
        assert len(self.statuses) == 1

    @rule()
    def round(self) -> None:
        decisions = folded_notes(self.notes)
        advice = [replace(recommended(WEB), trust=Trust(0.95))]
        around = LiveNamespace({WEB: self.body})
        candidates = tuple(
            candidates_of(
                [self.force], advice, around, statuses_by_workload(self.statuses), decisions, CotenantSettings()
            )
        )
        acts = acts_of(self.statuses)
        queue = decide(
            RoundInputs(
                self.now,
                candidates,
                acts,
                busy(self.statuses, self.now, 24 * HOUR),
                cool_downs(self.statuses, 24 * HOUR, self.now),
                decisions.left_alone,
                decisions.cleared_seconds,
                at_once=5,
            )
        )
        for event, subject, body in rows_of(queue, "", acts, decisions, self.now):
            self.notes.append(LedgerNote(event, subject, self.now, "manager", {k: str(v) for k, v in body.items()}))
        for entry in queue:
            if entry.verdict is QueueVerdict.ACT:
                self.acts_after_fight += self.fought
                self.act(entry.candidate.allowed)

    def act(self, allowed: Any) -> None:
        write = planned(self.body, allowed, f"c{len(self.statuses)}")
        assert write is not None
        number = len(self.statuses)
        change = Change(
            f"c{number}",
            f"{AUTOPILOT_KEY_PREFIX}{number}",
            "shop",
            "Deployment",
            "web",
            "m",
            (),
            "template",
            "",
            (write,),
        )
        self.statuses.append(ChangeStatus(change, ChangeState.APPLIED, self.now, self.now, "m", begun_seconds=self.now))
        self.body = live("800m")

    @rule(happened=st.sampled_from([ChangeEvent.VERIFIED, ChangeEvent.REGRESSED]))
    def verdict(self, happened: ChangeEvent) -> None:
        if self.statuses and self.statuses[-1].state is ChangeState.APPLIED:
            moved = self.statuses[-1].moved(happened, self.now, "m")
            if happened is ChangeEvent.REGRESSED:  # rolled back, unless somebody has changed the field since
                moved = moved.moved(ChangeEvent.ROLLBACK_ACCEPTED, self.now, "m")
                is_ours = self.body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {
                    "cpu": "800m"
                }
                moved = moved.moved(ChangeEvent.ROLLED_BACK if is_ours else ChangeEvent.ROLLBACK_REFUSED, self.now, "m")
                self.body = live("1") if is_ours else self.body
            self.statuses[-1] = moved

    @rule(who=st.sampled_from(WRITERS))
    def somebody_sets_it_back(self, who: str) -> None:
        in_force = bool(self.statuses) and self.statuses[-1].state.in_force
        self.body = live("1", who)
        self.fought = self.fought or in_force

    @rule(hours=st.sampled_from([-50.0, 30.0, 400.0]))
    def the_clock_moves(self, hours: float) -> None:
        self.now += hours * HOUR

    @invariant()
    def what_was_fought_once_is_not_set_again(self) -> None:
        assert self.acts_after_fight == 0

    @invariant()
    def nobody_is_left_alone_twice(self) -> None:
        assert sum(note.event is AutopilotEvent.LEFT_ALONE for note in self.notes) <= 1


@pytest.mark.parametrize("interleavings", [40, *full(200)])
def test_the_autopilot_fights_nobody(interleavings: int) -> None:
    fights: list[Fight] = []

    def fight() -> Fight:
        fights.append(Fight())
        return fights[-1]

    form = settings(max_examples=interleavings, stateful_step_count=25)
    run_state_machine_as_test(fight, settings=form)  # type: ignore[arg-type]  # any factory may be given
    assert len(fights) >= interleavings
    assert sum(fight.acts_after_fight for fight in fights) == 0


@pytest.mark.parametrize("who", WRITERS)
def test_what_somebody_has_set_back_is_left_alone_in_every_later_round(who: str) -> None:
    # how many interleavings have a fight is Hypothesis' choice, none at times; this one always has
    fight = Fight()
    fight.it_acts_once()
    fight.somebody_sets_it_back(who)
    for _ in range(3):
        fight.the_clock_moves(400.0)
        fight.round()
    assert fight.fought and len(fight.statuses) == 1
    assert [note.event for note in fight.notes].count(AutopilotEvent.LEFT_ALONE) == 1


def test_a_vpa_or_a_gitops_tool_keeps_it_away_from_the_beginning() -> None:
    def vpa(**spec: Any) -> VerticalAutoscalerObject:
        target = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
        body = {"metadata": {"name": "v", "namespace": "shop"}, "spec": {**target, **spec}}
        return msgspec.convert(body, VerticalAutoscalerObject)

    initial = vpa(updatePolicy={"updateMode": "Initial"})
    assert "VerticalPodAutoscaler v" in vertical_writer(WEB.kind, WEB.name, [initial])
    assert vertical_writer(WEB.kind, WEB.name, [vpa(updatePolicy={"updateMode": "Off"})]) == ""
    assert vertical_writer("Deployment", "other", [initial]) == ""
    # without an updatePolicy, or a mode in it, a VPA recreates pods
    assert vertical_writer(WEB.kind, WEB.name, [vpa()])
    assert vertical_writer(WEB.kind, WEB.name, [vpa(updatePolicy={})])
    assert "argocd-controller" in gitops_writer(live("1", "argocd-controller"), WEB.kind)
    assert gitops_writer(live("1", "kubectl-edit"), WEB.kind) == ""
