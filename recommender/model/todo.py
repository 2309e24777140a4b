"""The two lists of what there is to do: containers at risk, whose values rise, and waste, whose requests fall. Pure.

A rise is a risk unless its own severity says that it is a small change: what falls beside it is graded apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.table import Column, Kind
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import request_change

_SMALL: Final = (Severity.OK, Severity.GOOD)


class TodoList(StrEnum):
    """The list that a recommendation belongs to."""

    RAISE = "raise"
    """A request or limit rises by more than a little: the container is at risk with what it has now."""
    CUT = "cut"
    """A request falls, and nothing rises by more than a little."""
    ADJUST = "adjust"
    """A request or limit rises a little, and no request falls."""
    LIMITS = "limits"
    """Limits, or requests that the pod asks for anyway, are lowered, removed or set first: nothing is freed."""
    NOTHING = "nothing"
    """It changes nothing."""


def todo_list(recommendation: Recommendation) -> TodoList:
    """Return the list of one container's recommendation, by all steps of it.

    A request that is not set counts as the limit, else as 0, as the scheduler counts it.
    """
    changed = [value for value in recommendation.values if value.changes_template]
    if not changed:
        return TodoList.NOTHING
    rising = [value for value in changed if _rises(recommendation, value)]
    if any(value.severity not in _SMALL for value in rising):
        return TodoList.RAISE
    if min(request_change(recommendation, resource) or 0 for resource in Resource) < 0:
        return TodoList.CUT
    return TodoList.ADJUST if rising else TodoList.LIMITS


def _rises(recommendation: Recommendation, value: Value) -> bool:
    if value.action is Action.SET and (value.change or 0) > 0:
        return True
    return value.field is Field.REQUEST and (request_change(recommendation, value.resource) or 0) > 0


LIST_COLUMN: Final = Column(
    "todo",
    "To do",
    Kind.TEXT,
    "raise (a value rises by more than a little: at risk), cut (a request falls, at most a little rises), adjust (a "
    "value rises a little), limits (what falls or goes frees nothing), nothing.",
    wide=True,
)
