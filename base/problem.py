"""The problems that a webhook finds in an object, all at once, each with field, value and fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.text import format_value

MOST_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One rule that an object breaks; `field` is a path as in the manifest."""

    field: str
    value: str
    words: str
    fix: str

    def __str__(self) -> str:
        """Return the problem as text for people: field, value, what is wrong, and the fix."""
        return f"{self.field}: {format_value(self.value)} {self.words} (fix: {self.fix})"


def problems_text(problems: Sequence[Problem]) -> str:
    """Return the problems as one text, separated by semicolons; those beyond MOST_PROBLEMS are only counted."""
    return first_of([str(problem) for problem in problems])


def first_of(sentences: Sequence[str]) -> str:
    """Return sentences as one text, separated by semicolons; those beyond MOST_PROBLEMS are only counted."""
    more = len(sentences) - MOST_PROBLEMS
    listed = "; ".join(sentences[:MOST_PROBLEMS])
    return f"{listed}; and {more} more" if more > 0 else listed
