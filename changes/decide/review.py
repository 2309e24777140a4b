"""One workload before it is changed: what would be written, and how each guardrail came out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.changes.decide.guardrails import SECOND_PERSON, blocking
from cotenant.changes.decide.ladder import why_no_ladder
from cotenant.changes.decide.rule import Guardrail, GuardrailOutcome
from cotenant.changes.model.change import Write
from cotenant.changes.model.service import Method, ReviewedWorkload
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import Savings, savings_of


@dataclass(frozen=True, slots=True)
class Review(ReviewedWorkload):
    """The writes to a workload by one method, and how each guardrail came out.

    With an error nothing is written. live: the workload as it was looked at; whole: the recommendations over the values
    of now, with all steps.
    """

    id: str
    writes: tuple[Write, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    method: Method = Method.TEMPLATE
    live: Mapping[str, Any] = field(default_factory=dict)
    whole: tuple[Recommendation, ...] = ()

    def blocked(self, overridden: Iterable[str]) -> list[Guardrail]:
        """Failed rules that nobody overrode."""
        return blocking(self.guardrails, overridden)

    @property
    def takes_two(self) -> bool:
        """True if the change needs a second person."""
        return any(g.rule == SECOND_PERSON and g.outcome is not GuardrailOutcome.PASS for g in self.guardrails)

    @property
    def no_ladder(self) -> str:
        """Why its later steps cannot be accepted together with the first one, in words; "" when they can."""
        return self.error or why_no_ladder(self.whole, self.next_steps, self.takes_two)

    @property
    def savings(self) -> Savings:
        """The CPU, memory and money that the change frees and raises over all pods."""
        return savings_of(self.recommendations)
