"""What is withheld while part of the history could not be read."""

from __future__ import annotations

import pytest

from cotenant.model.identity import ContainerRef, WorkloadRef
from cotenant.model.reasons import Reason
from cotenant.model.recommendation import Action, Field, Recommendation, Value
from cotenant.model.resource import Resource
from cotenant.model.usage import Signal
from recommender.incomplete import without_decreases

WEB = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")


def proposal(resource: Resource, now: int | None, amount: int | None, reason: Reason = Reason.OK) -> Value:
    action = Action.UNSET if amount is None else Action.SET
    return Value(resource, Field.REQUEST, now, amount, action, reason, inputs={"days": 14})


def judged(value: Value, *unread: Signal) -> Value:
    (found,) = without_decreases([Recommendation(WEB, "cotenant", 1, (value,), 1, "digest", 1)], unread)
    return found.values[0]


@pytest.mark.parametrize(
    ("resource", "signal"),
    [
        (Resource.CPU, Signal.CPU_USAGE_MEAN),
        (Resource.CPU, Signal.CPU_THROTTLED_MEAN),
        (Resource.MEMORY, Signal.OOM_KILLS),
        (Resource.MEMORY, Signal.MEMORY_WORKING_SET_MAX),
    ],
)
def test_a_decrease_that_rests_on_what_is_missing_is_withheld(resource: Resource, signal: Signal) -> None:
    value = judged(proposal(resource, 200, 100), signal)
    assert (value.action, value.amount, value.now) == (Action.WITHHELD, None, 200)
    assert (value.reason, value.inputs) == (Reason.HISTORY_INCOMPLETE, {"days": 14})


@pytest.mark.parametrize(
    ("value", "signal"),
    [
        (proposal(Resource.CPU, 100, 200), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 100, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, None, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 100, None), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.CPU, 200, 100), Signal.OOM_KILLS),
        (proposal(Resource.MEMORY, 200, 100), Signal.CPU_USAGE_MEAN),
        (proposal(Resource.MEMORY, 200, 100), Signal.CPU_PRESSURE_MEAN),
    ],
    ids=["raise", "same", "unset", "limit removed", "other resource", "other resource too", "beside the point"],
)
def test_everything_else_stands(value: Value, signal: Signal) -> None:
    assert judged(value, signal) == value


def test_a_request_that_moves_with_an_autoscaler_is_withheld_as_a_pair() -> None:
    value = judged(proposal(Resource.CPU, 100, 200, Reason.HPA_SOLVED), Signal.CPU_USAGE_MEAN)
    assert value.reason is Reason.HISTORY_INCOMPLETE
