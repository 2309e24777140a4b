"""A plan's floor of an autoscaler through its window, while a person sets another one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import pytest

from cotenant.base.kubernetes.intent import Apply, Intent, Patch
from cotenant.base.kubernetes.moments import moment
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model.plan import FLOOR_ANNOTATION
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_decisions import PlanView, decide

SIX = 1_803_578_400.0
WEB = ("shop", "Deployment", "web")
EVENINGS = [{"start": moment(start), "end": moment(start + 7200)} for start in (SIX, SIX + 24 * HOUR_SECONDS)]


def plan_body() -> dict[str, Any]:
    """Two more pods from six to eight, on two evenings; approved for both."""
    spec = {
        "source": "Manual",
        "realisation": "ReplicaFloor",
        "owner": {"name": "web"},
        "amount": {"perPod": {"cpu": "1"}, "count": 2},
        "windows": [{**window, "count": 2} for window in EVENINGS],
        "extendBy": "0",
        "lead": "10m",
        "approval": {"decision": "Approved", "by": "ann", "at": moment(SIX - 7200)},
    }
    return {"metadata": {"name": "peak", "namespace": "shop", "uid": "p", "generation": 1}, "spec": spec}


def scaler_body() -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"minReplicas": 3, "maxReplicas": 10},
    }


@dataclass
class Evening:
    """The objects, and rounds of the manager on them. lost: whether writes of the plan's status are lost."""

    plan: dict[str, Any] = field(default_factory=plan_body)
    scaler: dict[str, Any] = field(default_factory=scaler_body)
    lost: bool = False

    def rounds(self, now_seconds: float, count: int = 3) -> list[Intent]:
        """What the rounds sent, the server having taken it."""
        sent: list[Intent] = []
        for _ in range(count):
            view = PlanView((parse_plan(self.plan),), autoscalers={WEB: self.scaler}, allocatable={"cpu": 100_000})
            decision = decide(view, now_seconds, PlanSettings())
            assert decision.notes == ()
            for intent in decision.intents:
                if isinstance(intent, Patch):
                    operations = [dict(operation) for operation in intent.operations]
                    self.scaler = jsonpatch.apply_patch(self.scaler, operations)
                elif isinstance(intent, Apply) and not self.lost:
                    self.plan["status"] = deepcopy(dict(intent.body["status"]))
            sent += decision.intents
        return sent

    @property
    def minimum(self) -> int:
        return int(self.scaler["spec"]["minReplicas"])

    @property
    def is_marked(self) -> bool:
        return FLOOR_ANNOTATION in self.scaler["metadata"].get("annotations", {})

    @property
    def reserved_reason(self) -> tuple[str, str]:
        condition = next(c for c in self.plan["status"]["conditions"] if c["type"] == "Reserved")
        return condition["reason"], condition["message"]


@pytest.mark.parametrize("theirs", [1, 3, 4, 8])
def test_a_floor_that_somebody_sets_in_the_window_stays_theirs_and_the_next_window_begins_anew(theirs: int) -> None:
    evening = Evening()
    evening.rounds(SIX - 7200)
    assert (evening.minimum, evening.is_marked) == (3, False)
    evening.rounds(SIX)
    # Three of its own and two of the plan.
    assert (evening.minimum, evening.is_marked) == (5, True)
    evening.scaler["spec"]["minReplicas"] = theirs
    evening.rounds(SIX + 60)
    assert (evening.minimum, evening.is_marked) == (theirs, False)
    text = f"Somebody set minReplicas of web to {theirs}; the plan had set 5. The plan will not set it in this window."
    assert evening.reserved_reason == ("TakenOver", text)
    for minutes in range(2, 150, 10):
        evening.rounds(SIX + 60 * minutes)
        assert (evening.minimum, evening.is_marked) == (theirs, False)
    assert evening.reserved_reason[0] == "Ended"
    evening.rounds(SIX + 24 * HOUR_SECONDS)
    assert (evening.minimum, evening.is_marked) == (theirs + 2, True)
    evening.rounds(SIX + 27 * HOUR_SECONDS)
    assert (evening.minimum, evening.is_marked) == (theirs, False)


def test_nothing_is_raised_again_by_a_manager_that_could_not_write_down_who_took_the_floor_over() -> None:
    evening = Evening()
    evening.rounds(SIX)
    evening.scaler["spec"]["minReplicas"] = 8
    evening.lost = True
    sent = evening.rounds(SIX + 60)
    # The mark is what it is recognised by until the status has it.
    assert not [intent for intent in sent if isinstance(intent, Patch)] and evening.is_marked
    evening.lost = False
    evening.rounds(SIX + 120)
    assert (evening.minimum, evening.is_marked) == (8, False)
