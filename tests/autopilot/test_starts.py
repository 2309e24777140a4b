"""More CPU for pods while they start: who gets how much, when it goes back, and what is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cotenant.autopilot.decide.halt import Halt
from cotenant.autopilot.decide.history import LedgerNote, folded_notes
from cotenant.autopilot.decide.policy import PolicySpec, effective
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry, helped_starts
from cotenant.autopilot.decide.starts import (
    BoostStep,
    PodBoost,
    StartAim,
    beginnings,
    boost_of,
    details_of,
    endings,
    highest_starts,
)
from cotenant.autopilot.model import AutopilotEvent, AutopilotMode, QueueVerdict
from cotenant.autopilot.settings import CeilingSettings
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.quantity import parse_millicores
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

NOW = 1_800_000_000.0
LONGEST = 600.0
WEB = WorkloadRef("shop", "Deployment", "web")
AIM = StartAim(WEB, "w", {"app": 1500}, 4.0)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    cpu: str = "500m",
    limit: str | None = "1",
    *,
    ready_seconds: float | None = None,
    begun_seconds: float = NOW - 30,
    uid: str = "p",
    running: bool = True,
) -> dict[str, Any]:
    """A pod of `web`, which is ready since `ready_seconds`, or not yet."""
    resources: dict[str, Any] = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    if limit:
        resources["limits"]["cpu"] = limit
    ready = {"type": "Ready", "status": str(ready_seconds is not None)}
    if ready_seconds is not None:
        ready["lastTransitionTime"] = moment(ready_seconds)
    status = {
        "phase": "Running",
        "startTime": moment(begun_seconds),
        "conditions": [ready],
        "containerStatuses": [{"name": "app", "state": {"running": {}} if running else {"waiting": {}}}],
    }
    owner = {"kind": "ReplicaSet", "name": "web-7d4b", "uid": "r", "controller": True}
    labels = {"pod-template-hash": "7d4b"}
    meta = {"name": f"web-7d4b-{uid}", "namespace": "shop", "uid": uid, "ownerReferences": [owner], "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": "n1", "containers": [{"name": "app", "resources": resources}]}} | {
        "status": status
    }


def begin_steps(pod_body: Mapping[str, Any], aim: StartAim = AIM, spared: tuple[str, ...] = ()) -> list[BoostStep]:
    return list(beginnings([pod_body], aim, spared, NOW, LONGEST))


def amounts(step: BoostStep) -> tuple[int, int | None]:
    """CPU request and limit after a step, millicores."""
    (resources,) = step.boost.write.after.values()
    limit = resources["limits"].get("cpu")
    return parse_millicores(resources["requests"]["cpu"], ""), limit and parse_millicores(limit, "")


@pytest.mark.parametrize(
    ("cpu", "limit", "factor", "after"),
    [
        ("500m", "1", 4.0, (1500, 1500)),  # what its starts used
        ("500m", "1", 2.5, (1250, 1250)),  # 2.5 x 500
        ("500m", "4", 4.0, (1500, 4000)),  # the limit is wide enough
        ("500m", None, 4.0, (1500, None)),
        ("1400m", "1450m", 4.0, None),  # 1500 is less than a tenth more than either
        ("1400m", "1400m", 1.0, None),
    ],
)
def test_a_starting_pod_gets_what_its_starts_used_up_to_the_policys_factor(
    cpu: str, limit: str | None, factor: float, after: tuple[int, int | None] | None
) -> None:
    steps = begin_steps(pod(cpu, limit), replace(AIM, factor=factor))
    assert [amounts(step) for step in steps] == ([after] if after else [])


@pytest.mark.parametrize(
    ("pod_body", "spared"),
    [
        (pod(ready_seconds=NOW - 1), ()),
        (pod(running=False), ()),
        (pod(begun_seconds=NOW - LONGEST), ()),  # the portraits' start-up phase is over
        (pod(), ("p",)),  # it had it once, or a change has resized it
    ],
)
def test_a_pod_that_is_ready_not_running_old_or_spared_gets_nothing(
    pod_body: dict[str, Any], spared: tuple[str, ...]
) -> None:
    assert begin_steps(pod_body, spared=spared) == []


def test_a_pod_whose_class_would_change_or_which_would_restart_gets_nothing() -> None:
    restarts = pod()
    restarts["spec"]["containers"][0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    nearly_guaranteed = pod("500m", "1")
    nearly_guaranteed["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi"
    # request and limit would both be 1500m, and memory's are the same: Burstable would turn into Guaranteed
    assert begin_steps(restarts) == begin_steps(nearly_guaranteed) == []


def boosted(step: BoostStep, **status: Any) -> dict[str, Any]:
    """The pod once the write has been made."""
    after = pod(**status)
    (resources,) = step.boost.write.after.values()
    after["spec"]["containers"][0]["resources"] = resources
    return after


def ended(pod_body: dict[str, Any], boost: PodBoost, now: float = NOW) -> list[BoostStep]:
    return list(endings([pod_body], [boost], now, LONGEST))


def test_it_goes_back_once_the_pod_has_been_ready_for_a_minute_or_takes_too_long() -> None:
    (step,) = begin_steps(pod())
    assert ended(boosted(step), step.boost) == []
    assert ended(boosted(step, ready_seconds=NOW - 59), step.boost) == []
    (back,) = ended(boosted(step, ready_seconds=NOW - 60), step.boost)
    assert back.patch is not None and back.words == "the pod is ready"
    before = pod()["spec"]["containers"][0]["resources"]
    assert [o["value"] for o in back.patch.operations if o["op"] == "replace"] == [before]
    (late,) = ended(boosted(step), step.boost, NOW + LONGEST)
    assert late.patch is not None and "longer than 10 minutes" in late.words


def test_what_somebody_has_changed_since_or_what_is_gone_is_not_written() -> None:
    (step,) = begin_steps(pod())
    (other,) = ended(pod("700m", ready_seconds=NOW - 100), step.boost)
    assert other.patch is None and "the pod no longer has the CPU that the autopilot gave it" in other.words
    assert [(ending.patch, ending.words) for ending in ended(pod(uid="q"), step.boost)] == [(None, "the pod is gone")]


def pending(step: BoostStep, reason: str, **status: Any) -> dict[str, Any]:
    """The pod whose node has refused the write, or put it off."""
    after = boosted(step, **status)
    condition = {"type": "PodResizePending", "status": "True", "reason": reason, "message": "no room"}
    after["status"]["conditions"].append(condition)
    return after


def test_what_its_node_can_never_give_goes_back_at_once() -> None:
    (step,) = begin_steps(pod())
    (back,) = ended(pending(step, "Infeasible"), step.boost)
    assert back.patch is not None and "no room" in back.words


def test_what_its_node_has_put_off_waits_as_long_as_a_start_lasts_and_then_goes_back() -> None:
    (step,) = begin_steps(pod())
    assert ended(pending(step, "Deferred"), step.boost, NOW + LONGEST - 1) == []
    for late in (ended(pending(step, "Deferred"), step.boost, NOW + LONGEST),
                 ended(pending(step, "Deferred", ready_seconds=NOW - 60), step.boost)):  # fmt: skip
        (back,) = late
        assert back.patch is not None
        # What was never granted leaves the spec: another pod's resize does not wait behind it.
        before = pod()["spec"]["containers"][0]["resources"]
        assert [o["value"] for o in back.patch.operations if o["op"] == "replace"] == [before]


@given(st.integers(1, 8000), st.none() | st.integers(1, 8000), st.integers(1, 9000), st.floats(1, 20))
def test_nothing_is_ever_lowered_or_given_beyond_the_factor_and_what_starts_used(
    request: int, limit: int | None, highest: int, factor: float
) -> None:
    if limit is not None and limit < request:
        limit = request
    starting_pod = pod(f"{request}m", f"{limit}m" if limit else None)
    for step in begin_steps(starting_pod, StartAim(WEB, "w", {"app": highest}, factor)):
        new_request, new_limit = amounts(step)
        assert request <= new_request <= max(request, min(highest, request * factor))
        assert (new_limit is None) == (limit is None)
        assert limit is None or new_limit is None or limit <= new_limit <= max(limit, highest)
        assert new_limit is None or new_request <= new_limit
        # what the ledger keeps of it comes back whole
        assert boost_of(str(WEB), NOW, details_of(step.boost)) == step.boost


def test_a_row_that_cannot_be_read_is_no_boost() -> None:
    assert boost_of(str(WEB), NOW, {}) is boost_of("web", NOW, {"write": "{"}) is None


def recommended_starts(used: object, resource: Resource = Resource.CPU) -> Recommendation:
    inputs: dict[str, Any] = {} if used is None else {"startup_max": used}
    value = Value(resource, Field.REQUEST, 500, 400, Action.SET, Reason.OK, inputs=inputs)
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, (value,), 0, "", 0)


def test_only_starts_that_were_seen_count() -> None:
    seen_starts = [recommended_starts(used) for used in (700.5, float("nan"), None, "much", 0)]
    assert [highest_starts([seen_start]) for seen_start in seen_starts] == [{"app": 700}, {}, {}, {}, {}]
    assert highest_starts([recommended_starts(700, Resource.MEMORY)]) == {}


@pytest.mark.parametrize(
    ("reason", "mode", "halted", "is_helped"),
    [
        (Reason.OK, AutopilotMode.ACT, False, True),
        (Reason.AUTOPILOT_OUTSIDE_WINDOW, AutopilotMode.ACT, False, True),  # a start does not wait for one
        (Reason.AUTOPILOT_CHANGE_UNDER_WAY, AutopilotMode.ACT, False, True),
        (Reason.OK, AutopilotMode.OBSERVE, False, False),
        (Reason.OK, AutopilotMode.ACT, True, False),
    ],
)
def test_starts_are_helped_where_a_policy_acts_and_nothing_halts(
    reason: Reason, mode: AutopilotMode, halted: bool, is_helped: bool
) -> None:
    limits = effective(CeilingSettings(), PolicySpec())
    candidate = QueueCandidate(WEB, "shop/p", mode, limits, starts=AIM)
    halt = Halt(Reason.AUTOPILOT_PAUSED, "x") if halted else None
    assert helped_starts([QueueEntry(candidate, QueueVerdict.WAIT, reason)], halt) == [AIM] * is_helped


class Start(RuleBasedStateMachine):
    """One pod among looks, other writers, lost answers and killed processes; the ledger is all that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.pod = pod(begun_seconds=NOW)
        self.notes: list[LedgerNote] = []
        self.given = 0
        self.base, self.is_taken_over = "500m", False

    def resources(self) -> dict[str, Any]:
        only: dict[str, Any] = self.pod["spec"]["containers"][0]["resources"]
        return only

    def note(self, step: BoostStep) -> None:
        details = details_of(step.boost)
        self.notes.append(LedgerNote(step.event, str(WEB), self.now, "manager", details))

    def open_boosts(self) -> list[PodBoost]:
        rows = [n for n in folded_notes(self.notes).boosts.values() if n.event is AutopilotEvent.BOOSTED]
        return [b for row in rows if (b := boost_of(row.subject, row.seconds, row.details)) is not None]

    @rule(lost=st.sampled_from(["", "before", "after"]))
    def look(self, lost: str) -> None:
        """lost: the process dies after the ledger's row, before or after the write."""
        spared = set(folded_notes(self.notes).boosts)
        for step in beginnings([self.pod], AIM, spared, self.now, LONGEST):
            self.note(step)
            if lost != "before":
                (self.pod["spec"]["containers"][0]["resources"],) = step.boost.write.after.values()
                self.given += 1
        for step in endings([self.pod], self.open_boosts(), self.now, LONGEST):
            if step.patch is not None and lost != "before":
                (self.pod["spec"]["containers"][0]["resources"],) = step.boost.write.before.values()
            if not lost:
                self.note(step)

    @rule(seconds=st.sampled_from([5.0, 61.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def it_is_ready(self) -> None:
        self.pod["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": moment(self.now)}]

    @rule()
    def somebody_else_resizes_it(self) -> None:
        self.pod["spec"]["containers"][0]["resources"] = pod("777m")["spec"]["containers"][0]["resources"]
        self.base, self.is_taken_over = "777m", self.given > 0

    @invariant()
    def it_was_given_once_at_most_and_others_are_never_overwritten(self) -> None:
        assert self.given <= 1
        cpu = self.resources()["requests"]["cpu"]
        assert cpu == self.base or (cpu == "1500m" and self.given and not self.is_taken_over)

    def teardown(self) -> None:
        self.now += LONGEST + 1
        self.look("")
        assert self.open_boosts() == []
        assert self.resources()["requests"]["cpu"] == self.base


TestStart = Start.TestCase
TestStart.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
