"""A draft value: an amount that rules change one after another, each recorded as a clamp. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Clamp, Field


@dataclass(frozen=True, slots=True)
class Slot:
    """Which value of the evidence: container, resource, field."""

    index: int
    resource: Resource
    field: Field


@dataclass(frozen=True, slots=True)
class Draft:
    """What a value shall be: `amount` in the resource's unit, the reason that decided it last, the rules that moved it.

    now: as the template has it, None where it is not set. formula: where the amount began, in words for people.
    must_raise: a rule wants more whatever the dead band says. limit_now: the template's limit of a request that it
    does not set.
    """

    now: int | None
    amount: int
    reason: Reason
    formula: str
    must_raise: bool = False
    clamps: tuple[Clamp, ...] = ()
    limit_now: int | None = None

    @property
    def counted(self) -> int | None:
        """What the scheduler and quotas count of it now, in the unit; None for nothing."""
        return self.limit_now if self.now is None else self.now

    @property
    def reason_beside(self) -> Reason:
        """Of the other value of the resource where it follows this one; why this one stays is no reason to change."""
        return Reason.OK if self.reason in (Reason.WITHIN_DEAD_BAND, Reason.LEAK) else self.reason

    def moved(self, rule: str, amount: float, reason: Reason) -> Draft:
        """The draft at the rule's amount, rounded down to an integer; itself when nothing changes."""
        rounded_amount = max(0, int(amount))
        if rounded_amount == self.amount:
            return self
        clamps = (*self.clamps, Clamp(rule, self.amount, rounded_amount))
        return replace(self, amount=rounded_amount, reason=reason, clamps=clamps)

    def at_least(self, rule: str, amount: float | None, reason: Reason) -> Draft:
        """Moved up to a minimum, where there is one."""
        return self if amount is None or self.amount >= amount else self.moved(rule, ceil(amount), reason)

    def at_most(self, rule: str, amount: float | None, reason: Reason) -> Draft:
        """Moved down to a maximum, where there is one."""
        return self if amount is None or self.amount <= amount else self.moved(rule, amount, reason)


Drafts = dict[Slot, Draft]
"""All values of one workload's containers; a withheld one is missing."""
