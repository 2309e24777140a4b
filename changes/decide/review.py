"""The review of one workload before it is changed: the planned writes and the guardrails' results. Pure."""

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
    """The planned writes to a workload by one method, and the guardrails' results.

    With an error nothing is written. `live` is the workload as it was read; `whole` has the recommendations before cuts
    were reduced to a first step, computed again from the present values.
    """

    id: str
    writes: tuple[Write, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    method: Method = Method.TEMPLATE
    live: Mapping[str, Any] = field(default_factory=dict)
    whole: tuple[Recommendation, ...] = ()

    def blocked(self, overridden: Iterable[str]) -> list[Guardrail]:
        """Return the failed rules that are not overridden."""
        return blocking(self.guardrails, overridden)

    @property
    def takes_two(self) -> bool:
        """True if the change needs a second person."""
        return any(g.rule == SECOND_PERSON and g.outcome is not GuardrailOutcome.PASS for g in self.guardrails)

    @property
    def no_ladder(self) -> str:
        """Why a cut's later steps cannot be accepted together with the first one; "" if they can."""
        return self.error or why_no_ladder(self.whole, self.next_steps, self.takes_two)

    @property
    def savings(self) -> Savings:
        """The CPU, memory and money that the change saves or adds over all pods."""
        return savings_of(self.recommendations)
