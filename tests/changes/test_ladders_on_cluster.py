"""An accepted ladder on a real API server: each step after the verdict of a day on the one before, and what ends it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.reasons import Reason
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.ladder import LadderEvent, LadderState, LadderStatus
from cotenant.changes.model.service import Method
from cotenant.changes.model.tables import rollback_lines
from cotenant.changes.soak.ladders import Ladders
from cotenant.changes.soak.watcher import Watcher
from cotenant.recommender.model.recommendation import Recommendation
from tests.changes.conftest import Make
from tests.changes.test_watching import settled
from tests.changes.world import Kubelet, deployed, live, pods, recommended, template
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
HOUR = 3600.0
DAY = 24 * HOUR
TARGET = 300
"""Millicores. From 1000 the largest cut of 30 % leaves 700; 490; 343 would leave a rest of 13 % to 300: the last."""
STEPS = ["1", "700m", "490m", "343m", "300m"]


class Climbed:
    """A watcher that takes the steps of ladders, at any time of ours; `fresh` is what is recommended then."""

    def __init__(self, make: Make, workload: WorkloadRef, namespace: str, **settings: Any) -> None:
        self.make, self.workload = make, workload
        self.settings = {"soak_minutes": 30.0, **settings}
        self.amount: int | None = TARGET
        self.stale = False
        self.compared: tuple[Compared, ...] = ()
        self.switch_namespace = namespace
        self.now = 0.0

    def actions(self) -> Actions:
        return self.make(ShiftedClock(self.now), **self.settings).having(compare=lambda *_: self.compared)

    def fresh(self, workloads: Collection[WorkloadRef]) -> Sequence[Recommendation]:
        """What a scan of now recommends: `amount` millicores, of history that ends now."""
        if self.amount is None:
            return []
        end = 0 if self.stale else int(SystemClock().now_seconds() + self.now)
        return [replace(recommended(workload, self.amount), end_seconds=end) for workload in workloads]

    def accept(self, **terms: Any) -> LadderStatus:
        actions = self.actions()
        reviews = actions.review([recommended(self.workload, TARGET)])
        actions.accept(reviews, AcceptanceTerms(ladder=True, **terms))
        return self.ladder()

    def step(self, at_seconds: float) -> list[str]:
        """One look at a time after the acceptance; the states of what moved."""
        self.now = at_seconds

        @contextmanager
        def opened() -> Iterator[Actions]:
            yield self.actions()

        watcher = Watcher(opened, lambda _: None, climb=Ladders(self.fresh, self.switch_namespace))
        return [change_status.state.value for change_status in watcher.step()]

    def ladder(self) -> LadderStatus:
        (ladder_status,) = self.actions().journal.ladders().values()
        return ladder_status


@pytest.fixture
def workload(control_plane: ControlPlane, namespace: str, kubelet: Kubelet) -> WorkloadRef:
    return deployed(control_plane, namespace, "web", 1, nodeSelector={"test/own": kubelet.node})


@pytest.fixture
def climbed(make: Make, workload: WorkloadRef, namespace: str) -> Climbed:
    # The switch is looked for in the test's namespace, where the account has the roles of deploy/applier.yaml alone.
    return Climbed(make, workload, namespace)


def cpu(plane: ControlPlane, workload: WorkloadRef) -> str:
    text: str = template(plane, workload)["requests"]["cpu"]
    return text


def climb_once(plane: ControlPlane, climbed: Climbed, day: int) -> None:
    """The verdict of the soak time, then that of the whole day, and the step after it."""
    settled(plane, climbed.workload)
    climbed.step((day - 1) * (DAY + HOUR) + HOUR)
    climbed.step(day * (DAY + HOUR))


def test_all_steps_are_taken_one_by_one_and_each_follows_a_whole_days_verdict(
    control_plane: ControlPlane, climbed: Climbed
) -> None:
    accepted = climbed.accept()
    workload = climbed.workload
    assert cpu(control_plane, workload) == STEPS[1]
    assert [f"{step.amount}m" for step in accepted.ladder.steps] == STEPS[1:]
    settled(control_plane, workload)
    # Its soak time is over after half an hour: that verdict alone is not the one that the next step waits for.
    assert climbed.step(HOUR) == ["verified"] and cpu(control_plane, workload) == STEPS[1]
    assert climbed.step(23 * HOUR) == [] and cpu(control_plane, workload) == STEPS[1]
    for day, cpu_request in enumerate(STEPS[2:], 1):
        climb_once(control_plane, climbed, day)
        assert cpu(control_plane, workload) == cpu_request
    climb_once(control_plane, climbed, 4)
    assert (climbed.ladder().state, cpu(control_plane, workload)) == (LadderState.DONE, STEPS[4])
    # Nothing more, whatever is recommended later.
    climbed.amount = 100
    climb_once(control_plane, climbed, 5)
    assert cpu(control_plane, workload) == STEPS[4]
    changes = climbed.actions().journal.statuses().values()
    assert len(changes) == 4 and {change.change.ladder for change in changes} == {accepted.ladder.id}


def test_nothing_goes_below_what_was_approved(control_plane: ControlPlane, climbed: Climbed) -> None:
    climbed.accept()
    climbed.amount = 100  # a later scan recommends less than anybody approved
    for day in range(1, 6):
        climb_once(control_plane, climbed, day)
    assert (climbed.ladder().state, cpu(control_plane, climbed.workload)) == (LadderState.DONE, STEPS[4])


def test_a_recommendation_above_the_next_step_ends_it(control_plane: ControlPlane, climbed: Climbed) -> None:
    climbed.accept()
    climbed.amount = 491  # the next step is 490
    climb_once(control_plane, climbed, 1)
    ladder_status = climbed.ladder()
    assert (ladder_status.state, ladder_status.reason) == (LadderState.STOPPED, Reason.LADDER_RECOMMENDATION_ROSE)
    assert "491m" in ladder_status.words and "490m" in ladder_status.words
    climbed.amount = TARGET
    climb_once(control_plane, climbed, 2)
    assert cpu(control_plane, climbed.workload) == STEPS[1]


def test_harm_is_rolled_back_whatever_the_settings_say_and_ends_it(
    control_plane: ControlPlane, climbed: Climbed
) -> None:
    climbed.accept()
    climb_once(control_plane, climbed, 1)
    assert cpu(control_plane, climbed.workload) == STEPS[2]
    settled(control_plane, climbed.workload)
    climbed.compared = (Compared(Measure.THROTTLED, 0.0, 0.9),)
    assert not climbed.actions().settings.auto_rollback
    climbed.step(DAY + 3 * HOUR)
    # The second step is taken back, and the first one stays: its verdict was good.
    ladder_status = climbed.ladder()
    assert (ladder_status.state, ladder_status.reason) == (LadderState.STOPPED, Reason.LADDER_STEP_ENDED)
    assert cpu(control_plane, climbed.workload) == STEPS[1]
    climbed.compared = ()
    climb_once(control_plane, climbed, 3)
    assert cpu(control_plane, climbed.workload) == STEPS[1]


def test_a_hand_edit_ends_it_and_stays(control_plane: ControlPlane, climbed: Climbed) -> None:
    climbed.accept()
    settled(control_plane, climbed.workload)
    climbed.step(HOUR)
    ref = climbed.workload
    patch = {
        "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "650m"}}}]}}}
    }
    control_plane.api().patch(
        f"/apis/apps/v1/namespaces/{ref.namespace}/deployments/{ref.name}", patch, kind="strategic"
    )
    settled(control_plane, ref)
    climbed.step(DAY + HOUR)
    ladder_status = climbed.ladder()
    assert (ladder_status.state, ladder_status.reason) == (LadderState.STOPPED, Reason.LADDER_OTHER_WRITER)
    assert cpu(control_plane, ref) == "650m"


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("stale", Reason.LADDER_RESULTS_OLD),
        ("none", Reason.LADDER_RESULTS_OLD),
        ("window", Reason.LADDER_GUARDRAIL),
        ("switch", Reason.LADDER_PAUSED),
    ],
)
def test_what_nobody_can_say_or_has_switched_off_keeps_it_waiting_and_ends_nothing(
    control_plane: ControlPlane, climbed: Climbed, why: str, reason: Reason
) -> None:
    climbed.accept()
    settled(control_plane, climbed.workload)
    climbed.step(HOUR)
    switch = f"/api/v1/namespaces/{climbed.switch_namespace}/configmaps"
    if why == "stale":
        climbed.stale = True
    elif why == "none":
        climbed.amount = None
    elif why == "window":
        # A window that is not open at any time of this day or the next one.
        climbed.settings["windows"] = [closed_window()]
    else:
        control_plane.api().create(switch, {"metadata": {"name": "cotenant-autopilot"}, "data": {"paused": "yes"}})
    for _ in range(2):
        assert climbed.step(DAY + HOUR) in ([], ["verified"])
    ladder_status = climbed.ladder()
    assert (ladder_status.state, ladder_status.reason) == (LadderState.UNDER_WAY, reason) and ladder_status.words
    # It is written down once, not at each look.
    rows = [row.event for row in climbed.actions().journal.ledger.entries() if row.event == "ladder-waits"]
    assert len(rows) == 1
    climbed.stale, climbed.amount = False, TARGET
    climbed.settings.pop("windows", None)
    if why == "switch":
        control_plane.api().delete(f"{switch}/cotenant-autopilot")
    climbed.step(DAY + 2 * HOUR)
    assert cpu(control_plane, climbed.workload) == STEPS[2]


def closed_window() -> str:
    """A weekly window on the day after the day after the next one."""
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(datetime.now(UTC).weekday() + 4) % 7]
    return f"{day} 00:00-24:00 UTC"


def test_without_the_ladder_only_the_first_step_is_taken(control_plane: ControlPlane, climbed: Climbed) -> None:
    actions = climbed.actions()
    actions.accept(actions.review([recommended(climbed.workload, TARGET)]), AcceptanceTerms())
    climb_once(control_plane, climbed, 1)
    assert climbed.actions().journal.ladders() == {} and cpu(control_plane, climbed.workload) == STEPS[1]


def test_every_step_can_be_taken_back_one_by_one(control_plane: ControlPlane, climbed: Climbed) -> None:
    climbed.accept()
    for day in (1, 2):
        climb_once(control_plane, climbed, day)
    assert cpu(control_plane, climbed.workload) == STEPS[3]
    actions = climbed.actions()
    down = list(actions.journal.statuses().values())[::-1]
    # What the dialog before the whole way lists: each field once, from what it is to what it is in the end.
    lines = {
        line.pointer: (line.now, line.new) for line in rollback_lines(change_status.change for change_status in down)
    }
    for status, cpu_request in zip(down, STEPS[2::-1], strict=True):
        assert actions.roll_back(status).state is ChangeState.ROLLED_BACK
        assert cpu(control_plane, climbed.workload) == cpu_request
    note = live(control_plane, climbed.workload)["metadata"]["annotations"][CHANGE_ANNOTATION]
    assert lines == {"app cpu request": (STEPS[3], STEPS[0]), CHANGE_ANNOTATION: (down[0].change.id, note)}
    climb_once(control_plane, climbed, 4)
    assert climbed.ladder().state is LadderState.STOPPED and cpu(control_plane, climbed.workload) == STEPS[0]


def test_an_ended_ladder_takes_no_further_event(control_plane: ControlPlane, climbed: Climbed) -> None:
    climbed.accept()
    climbed.amount = 900
    climb_once(control_plane, climbed, 1)
    with pytest.raises(UsageError, match="stopped already"):
        climbed.actions().journal.record_ladder(climbed.ladder(), LadderEvent.DONE)


def test_a_ladder_in_place_restarts_nothing(control_plane: ControlPlane, climbed: Climbed, webhook: object) -> None:
    actions = climbed.actions()
    reviews = actions.review([recommended(climbed.workload, TARGET)], method=Method.IN_PLACE)
    actions.accept(reviews, AcceptanceTerms(ladder=True))
    before = [pod["metadata"]["uid"] for pod in pods(control_plane, climbed.workload)]
    climbed.step(HOUR)
    climbed.step(DAY + HOUR)
    assert len(climbed.actions().journal.statuses()) == 2
    live_pods = pods(control_plane, climbed.workload)
    assert [pod["metadata"]["uid"] for pod in live_pods] == before
    assert [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in live_pods] == [STEPS[2]]


def test_the_switch_also_stops_the_rest_of_a_step_whose_first_pods_soaked(
    control_plane: ControlPlane, climbed: Climbed, namespace: str, kubelet: Kubelet, webhook: object
) -> None:
    climbed.workload = deployed(control_plane, namespace, "two", 2, nodeSelector={"test/own": kubelet.node})
    actions = climbed.actions()
    reviews = actions.review([recommended(climbed.workload, TARGET)], method=Method.IN_PLACE)
    actions.accept(reviews, AcceptanceTerms(ladder=True, canary=0.5))
    switch = f"/api/v1/namespaces/{climbed.switch_namespace}/configmaps"
    control_plane.api().create(switch, {"metadata": {"name": "cotenant-autopilot"}, "data": {"paused": "yes"}})

    def amounts() -> list[str]:
        live_pods = pods(control_plane, climbed.workload)
        return sorted(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in live_pods)

    climbed.step(HOUR)
    assert amounts() == sorted(STEPS[:2])
    assert [status.state for status in climbed.actions().journal.statuses().values()][1] is ChangeState.WAITING
    control_plane.api().delete(f"{switch}/cotenant-autopilot")
    climbed.step(2 * HOUR)
    assert amounts() == [STEPS[1]] * 2
