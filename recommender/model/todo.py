"""The two lists of what there is to do: containers at risk, whose values rise, and waste, whose requests fall. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind
from cotenant.recommender.model.recommendation import Action, Recommendation
from cotenant.recommender.model.savings import request_change


class TodoList(StrEnum):
    """The list that a recommendation belongs to."""

    RAISE = "raise"
    """A request or limit rises: the container is at risk with what it has now, whatever else falls."""
    CUT = "cut"
    """A request falls and nothing rises."""
    LIMITS = "limits"
    """Only limits are lowered, removed or set first: nothing is freed."""
    NOTHING = "nothing"
    """It changes nothing."""


def todo_list(recommendation: Recommendation) -> TodoList:
    """Return the list of one container's recommendation, by all steps of it.

    A request that is not set counts as the limit, else as 0, as the scheduler counts it.
    """
    changed = [value for value in recommendation.values if value.changes_template]
    if not changed:
        return TodoList.NOTHING
    changes = [request_change(recommendation, resource) or 0 for resource in Resource]
    rises = any(value.action is Action.SET and (value.change or 0) > 0 for value in changed)
    if rises or max(changes) > 0:
        return TodoList.RAISE
    return TodoList.CUT if min(changes) < 0 else TodoList.LIMITS


LIST_COLUMN: Final = Column(
    "todo",
    "To do",
    Kind.TEXT,
    "raise (a value rises: at risk), cut (a request falls, nothing rises), limits (only limits fall or go), nothing.",
    wide=True,
)
