"""The LimitRanger's note on a pod in CEL: which resources of which container it names. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cotenant.admission.namespace_limits.defaults import (
    DEFAULTED,
    GROUP_WORDS,
    LIMIT_RANGER_ANNOTATION,
    LIMIT_RANGER_PREFIX,
    SIDE_WORDS,
)
from cotenant.admission.policies.cel import text
from cotenant.admission.resources import SIDES

PLACES: Final = tuple((group, side) for group in GROUP_WORDS for side in SIDES)
"""Group of containers and side of their resources."""
_NAMES: Final = "[" + ", ".join(map(text, DEFAULTED)) + "]"
_ANNOTATION: Final = text(LIMIT_RANGER_ANNOTATION)


def variable(name: str, expression: str) -> dict[str, str]:
    """A variable of a policy, which expressions read as variables.NAME."""
    return {"name": name, "expression": expression}


def note_variables() -> list[dict[str, str]]:
    """Return `notes`, a text for each container and side, and for each group and side the names by container."""
    noted, prefix = f"variables.annotations[{_ANNOTATION}]", text(LIMIT_RANGER_PREFIX)
    notes = f'{noted}.startsWith({prefix}) ? {noted}.replace({prefix}, "", 1).split("; ") : []'
    return [
        variable("notes", f"{_ANNOTATION} in variables.annotations ? ({notes}) : []"),
        *(variable(noted_list(group, side), names_list(group, side, noted_condition)) for group, side in PLACES),
    ]


def noted_list(group: str, side: str) -> str:
    """Name of the variable with the noted resources of each container of a group on a side."""
    return f"{group}Noted{side.title()}"


def names_list(group: str, side: str, condition: Callable[[str, str], str]) -> str:
    """CEL for a list with a list for each container: names `n` of resources on the side that meet the condition."""
    there = f"has(c.resources) && has(c.resources.{side}) && n in c.resources.{side}"
    return f"variables.{group}.map(c, {_NAMES}.filter(n, {there} && {condition(group, side)}))"


def noted_condition(group: str, side: str) -> str:
    """Return the CEL condition that the LimitRanger notes to have set resource `n` of container `c` on a side."""
    words = text(f" {SIDE_WORDS[side]} for {GROUP_WORDS[group]} ")
    named = f'g.split({words})[0].split(", ").exists(m, m == n)'
    return f"variables.notes.exists(g, g.endsWith({words} + c.name) && {named})"


def noted_by_another(side: str) -> str:
    """Return the CEL condition that note `g` names on a side what the LimitRange of this run does not give."""
    words = text(f" {SIDE_WORDS[side]} for ")
    return f'(g.contains({words}) && !g.split({words})[0].split(", ").all(n, n in variables.{side}Defaults))'
