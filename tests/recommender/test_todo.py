"""Which of the two lists a container belongs to, by every combination of what its values do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from cotenant.base.cluster import ContainerRole
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.todo import TodoList, killed_first, todo_list

CPU, MEMORY, REQUEST, LIMIT = Resource.CPU, Resource.MEMORY, Field.REQUEST, Field.LIMIT
FALLS, RISES, STAYS, FIRST, GONE = (1000, 500), (1000, 2000), (1000, 1000), (None, 700), (1000, None)


def value(
    resource: Resource, field: Field, amounts: tuple[int | None, int | None], severity: Severity = Severity.WARNING
) -> Value:
    now, amount = amounts
    action = Action.UNSET if amount is None else Action.SET
    return Value(resource, field, now, amount, action, Reason.OK, severity=severity)


def of(*values: Value, limits: dict[Resource, int] | None = None) -> TodoList:
    ref = ContainerRef(WorkloadRef("pay", "Deployment", "web"), "app")
    return todo_list(Recommendation(ref, "cotenant", 2, values, 0, "", 0, present_limits=limits or {}))


@pytest.mark.parametrize(("cpu", "memory"), list(product((FALLS, RISES, STAYS), repeat=2)))
def test_what_rises_is_at_risk_whatever_falls_beside_it(cpu: tuple[int, int], memory: tuple[int, int]) -> None:
    # A rise anywhere: at risk. Else a fall: waste. Else nothing changes.
    expected = (
        TodoList.RAISE if RISES in (cpu, memory) else TodoList.CUT if FALLS in (cpu, memory) else TodoList.NOTHING
    )
    assert of(value(CPU, REQUEST, cpu), value(MEMORY, REQUEST, memory)) is expected


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize(("resource", "field"), list(product(Resource, Field)))
def test_a_rise_is_a_risk_unless_it_is_graded_as_a_small_change_whatever_is_graded_beside_it(
    severity: Severity, resource: Resource, field: Field
) -> None:
    small, other = severity in (Severity.OK, Severity.GOOD), MEMORY if resource is CPU else CPU
    rise = value(resource, field, RISES, severity)
    assert of(rise) is (TodoList.ADJUST if small else TodoList.RAISE)
    # A large cut beside a small rise is waste, and no risk.
    assert of(rise, value(other, REQUEST, FALLS)) is (TodoList.CUT if small else TodoList.RAISE)


@pytest.mark.parametrize("severity", list(Severity))
def test_memory_used_above_its_request_is_a_risk_whatever_the_grade_of_its_rise(severity: Severity) -> None:
    small = severity in (Severity.OK, Severity.GOOD)
    for observed_max, above in ((1500.0, True), (900.0, False)):  # of a request of 1000
        rise = replace(value(MEMORY, REQUEST, RISES, severity), inputs={"observed_max": observed_max})
        expected = TodoList.RAISE if above or not small else TodoList.CUT
        assert of(rise, value(CPU, REQUEST, FALLS)) is expected


@pytest.mark.parametrize(
    ("now", "proposed", "limit", "role", "expected"),
    [
        (1000, 1500, None, ContainerRole.MAIN, True),
        (1300, 1500, None, ContainerRole.MAIN, False),
        (None, 1500, None, ContainerRole.MAIN, True),  # requests nothing: the kernel takes it before all that do
        (None, 1500, None, ContainerRole.SIDECAR, True),
        (None, 1500, 1000, ContainerRole.MAIN, True),  # the API server has set its request to the limit
        (None, 1500, 1300, ContainerRole.MAIN, False),
        (0, 1500, None, ContainerRole.MAIN, True),
        (None, None, None, ContainerRole.MAIN, False),  # withheld: the pod may request, or the amount is not known
        (1000, 1500, None, ContainerRole.INIT, False),  # has ended
    ],
)
def test_the_memory_of_a_container_that_requests_nothing_is_above_its_request(
    now: int | None, proposed: int | None, limit: int | None, role: ContainerRole, expected: bool
) -> None:
    action = Action.WITHHELD if proposed is None else Action.SET
    request = Value(MEMORY, REQUEST, now, proposed, action, Reason.OK, inputs={"observed_max": 1200.0})
    ref = ContainerRef(WorkloadRef("pay", "Deployment", "web"), "app")
    limits = {} if limit is None else {MEMORY: limit}
    recommendation = Recommendation(ref, "cotenant", 2, (request,), 0, "", 0, role=role, present_limits=limits)
    assert killed_first(recommendation) is expected


def test_a_limit_that_rises_is_a_risk_and_one_that_only_falls_or_goes_frees_nothing() -> None:
    assert of(value(MEMORY, REQUEST, FALLS), value(MEMORY, LIMIT, RISES)) is TodoList.RAISE
    assert of(value(MEMORY, REQUEST, STAYS), value(MEMORY, LIMIT, FALLS)) is TodoList.LIMITS
    assert of(value(CPU, REQUEST, STAYS), value(CPU, LIMIT, GONE)) is TodoList.LIMITS
    assert of(value(MEMORY, REQUEST, STAYS), value(MEMORY, LIMIT, FIRST)) is TodoList.LIMITS


def test_a_request_that_is_set_first_counts_from_the_limit_and_without_one_from_nothing() -> None:
    # Without a request and a limit the scheduler counts 0, so 700 is a rise; with a limit of 1000 it counts 1000.
    assert of(value(CPU, REQUEST, FIRST)) is TodoList.RAISE
    assert of(value(CPU, REQUEST, FIRST), limits={CPU: 1000}) is TodoList.CUT


def test_what_is_withheld_changes_nothing() -> None:
    withheld = Value(CPU, REQUEST, 1000, None, Action.WITHHELD, Reason.OK)
    assert of(withheld) is TodoList.NOTHING
    assert of() is TodoList.NOTHING
