"""What changes free and raise by the ledger: promised, in force and verified. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.recommender.model.savings import Savings, joined_savings


@dataclass(frozen=True, slots=True)
class ChangeSavings:
    """Freed and raised: promised by all that was accepted, in force, and verified by a soak."""

    promised: Savings
    in_force: Savings
    verified: Savings


def change_savings(statuses: Sequence[ChangeStatus]) -> ChangeSavings:
    """Sum over changes, by resource and in money; what failed or never came was promised and is not in force."""
    return ChangeSavings(
        joined_savings(s.change.savings for s in statuses),
        joined_savings(s.change.savings for s in statuses if s.state.in_force),
        joined_savings(s.change.savings for s in statuses if s.state is ChangeState.VERIFIED),
    )
