"""The to-do lists: containers at risk, whose values must rise, and waste, whose requests can fall. Pure.

A rise counts as a risk unless its own severity is that of a small change; a simultaneous fall is graded separately. A
rise of memory counts as a risk whatever its size if usage exceeded the request: such a container is killed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cotenant.base.cluster import ContainerRole
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.table import Column, Kind
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.model.savings import request_change, request_now

_SMALL: Final = (Severity.OK, Severity.GOOD)


class TodoList(StrEnum):
    """The to-do list that a recommendation belongs to."""

    RAISE = "raise"
    """A request or limit rises by more than a little: the container is at risk with what it has now."""
    CUT = "cut"
    """A request falls, and nothing rises by more than a little."""
    ADJUST = "adjust"
    """A request or limit rises a little, and no request falls."""
    LIMITS = "limits"
    """Limits are lowered, removed or newly set, or a request is set to what counts already: nothing is freed."""
    NOTHING = "nothing"
    """It changes nothing."""


def todo_list(recommendation: Recommendation) -> TodoList:
    """Return the to-do list to which one container's recommendation, with all its steps, belongs.

    A missing request counts as the limit, else as 0, as the scheduler counts it.
    """
    changed = [value for value in recommendation.values if value.changes_template]
    if not changed:
        return TodoList.NOTHING
    changes = {resource: request_change(recommendation, resource) or 0 for resource in Resource}
    rising = [
        value
        for value in changed
        if (value.action is Action.SET and (value.change or 0) > 0)
        or (value.field is Field.REQUEST and changes[value.resource] > 0)
    ]
    short = killed_first(recommendation)
    if any(value.severity not in _SMALL or (short and value.resource is Resource.MEMORY) for value in rising):
        return TodoList.RAISE
    if min(changes.values()) < 0:
        return TodoList.CUT
    return TodoList.ADJUST if rising else TodoList.LIMITS


def killed_first(recommendation: Recommendation) -> bool:
    """Return whether the container used more memory than it requests, so that it is killed first; false if unknown.

    A request of 0 counts only if another one is proposed: if not, the request may be unknown, or set on the pod. The
    result is false for an init container, which has ended when its node runs out of memory.
    """
    memory = recommendation.value(Resource.MEMORY, Field.REQUEST)
    observed_max = memory.inputs.get("observed_max") if memory else None
    request = request_now(recommendation, Resource.MEMORY)
    is_known = recommendation.role is not ContainerRole.INIT and (request or (memory and memory.action is Action.SET))
    return bool(is_known) and isinstance(observed_max, int | float) and request < observed_max


ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    # Of the same severity first those that can be applied now, in the fewest steps: the others have no steps.
    TodoList.RAISE: ("-severity", "steps"),
    # By CPU where nothing is priced.
    TodoList.CUT: ("-saving_month", "cpu_delta_total"),
    "": ("-saving_month", "cpu_delta_total"),
}
"""The order of a list, "" of all rows, in the grammar of filters: its first row is what there is to do first."""

LIST_COLUMNS: Final = (
    Column(
        "todo",
        "To do",
        Kind.TEXT,
        "raise (a value rises clearly, or memory usage was above the request: at risk), cut (a request falls, and no "
        "value rises clearly), adjust (a value rises slightly, no request falls), limits (the change frees nothing), "
        "nothing.",
        wide=True,
    ),
    Column(
        "killed_first",
        "Killed first",
        Kind.TEXT,
        "yes if the container used more memory than it requests, so it is killed first if its node runs out; else no.",
        wide=True,
    ),
)
