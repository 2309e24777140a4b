"""A draft value: an amount that rules change one after another, each change recorded as a clamp. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Clamp, Field


@dataclass(frozen=True, slots=True)
class Slot:
    """The key of a draft value: index of the container in the evidence, resource, field."""

    index: int
    resource: Resource
    field: Field


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft of a value: its amount, the reason that decided it last, and the rules that changed it.

    `amount` is in the resource's unit; `now` is the template's amount, None if not set; `formula` is the origin of the
    amount as readable text; `must_raise` is true if a rule requires a raise even if the change is small.
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
        """Present amount as the scheduler and quotas count it; None if neither request nor limit is set."""
        return self.limit_now if self.now is None else self.now

    @property
    def reason_beside(self) -> Reason:
        """Reason for the resource's other value (request or limit) if that value follows this draft.

        A reason to keep this value (dead band, leak) becomes OK, because it is no reason to change the other value.
        """
        return Reason.OK if self.reason in (Reason.WITHIN_DEAD_BAND, Reason.LEAK) else self.reason

    def moved(self, rule: str, amount: float, reason: Reason) -> Draft:
        """Return the draft with `amount`, which a rule set, as an integer; the same draft if nothing changes."""
        rounded_amount = max(0, int(amount))
        if rounded_amount == self.amount:
            return self
        clamps = (*self.clamps, Clamp(rule, self.amount, rounded_amount))
        return replace(self, amount=rounded_amount, reason=reason, clamps=clamps)

    def at_least(self, rule: str, amount: float | None, reason: Reason) -> Draft:
        """Return the draft raised to a minimum; unchanged if `amount` is None."""
        return self if amount is None or self.amount >= amount else self.moved(rule, ceil(amount), reason)

    def at_most(self, rule: str, amount: float | None, reason: Reason) -> Draft:
        """Return the draft lowered to a maximum; unchanged if `amount` is None."""
        return self if amount is None or self.amount <= amount else self.moved(rule, amount, reason)


Drafts = dict[Slot, Draft]
"""All values of one workload's containers; a withheld one is missing."""
