"""How an accepted change was verified: each rule with its numbers before and after, and the usage around it. Pure.

The ledger keeps it with the verdict, so that its reasons can still be read years later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cotenant.base.resource import Resource


class RuleUnit(StrEnum):
    """The unit of a rule's numbers."""

    COUNT = "count"
    RATIO = "ratio"
    """A share, 0 to 1."""
    SECONDS = "seconds"


class RuleVerdict(StrEnum):
    """The verdict of one rule on a change: its measure kept its level, got worse, or has no data."""

    KEPT = "held"
    WORSE = "worse"
    NO_DATA = "no data"
    """There is no data to decide by."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of one rule; `before` is None without a sample, or if the rule only counts events after the change.

    `most` is the highest `after` that passes, None if there is no such bound; `words` is the result as a sentence.
    """

    rule: str
    verdict: RuleVerdict
    unit: RuleUnit = RuleUnit.COUNT
    before: float | None = None
    after: float | None = None
    most: float | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class UsageTrace:
    """Usage and requests, summed over a workload's pods, in the resource's unit; None is no sample.

    The first value is at `start_seconds` (Unix time); the others follow every `step_seconds`.
    """

    resource: Resource
    start_seconds: int
    step_seconds: int
    usage: tuple[float | None, ...]
    request: tuple[float | None, ...] = ()

    @property
    def times(self) -> list[int]:
        """Unix time of each value."""
        return [self.start_seconds + self.step_seconds * k for k in range(len(self.usage))]


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """The result of verifying a change over a period (Unix seconds), with the result of each rule."""

    since_seconds: float
    until_seconds: float
    rules: tuple[RuleResult, ...] = ()
    traces: tuple[UsageTrace, ...] = ()

    @property
    def harm(self) -> str:
        """The text of the first rule that failed; "" if none did."""
        return next((rule.words for rule in self.rules if rule.verdict is RuleVerdict.WORSE), "")
