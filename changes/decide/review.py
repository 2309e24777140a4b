"""One workload before it is changed: what would be written, and how each guardrail came out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.guardrails import SECOND_PERSON, blocking
from cotenant.changes.decide.ladder import why_no_ladder
from cotenant.changes.decide.rule import Guardrail, GuardrailOutcome
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import Method
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import Savings, savings_of
from cotenant.recommender.model.steps import NextStep


@dataclass(frozen=True, slots=True)
class Review:
    """One workload before it is changed: what would be written by which method, and how each guardrail came out.

    recommendations: over the values of now, a cut that is too large at its first step; next_steps: what that leaves for
    later. error: why there is nothing to write, in words; writes are then empty. impossible: methods that cannot be
    had; live: the workload as it was looked at.
    """

    workload: WorkloadRef
    recommendations: tuple[Recommendation, ...]
    id: str
    writes: tuple[Write, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    error: str = ""
    method: Method = Method.TEMPLATE
    impossible: Mapping[Method, str] = field(default_factory=dict)
    suggested: Method = Method.TEMPLATE
    live: Mapping[str, Any] = field(default_factory=dict)
    next_steps: tuple[NextStep, ...] = ()
    whole: tuple[Recommendation, ...] = ()
    """The recommendations over the values of now, with all steps."""

    def blocked(self, overridden: Iterable[str]) -> list[Guardrail]:
        """Failed rules that nobody overrode."""
        return blocking(self.guardrails, overridden)

    @property
    def takes_two(self) -> bool:
        """True if the change needs a second person."""
        return any(
            guardrail.rule == SECOND_PERSON and guardrail.outcome is not GuardrailOutcome.PASS
            for guardrail in self.guardrails
        )

    @property
    def no_ladder(self) -> str:
        """Why its later steps cannot be accepted together with the first one, in words; "" when they can."""
        return self.error or why_no_ladder(self.whole, self.next_steps, self.takes_two)

    @property
    def savings(self) -> Savings:
        """The CPU, memory and money that the change frees and raises over all pods."""
        return savings_of(self.recommendations)
