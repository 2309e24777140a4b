"""What changes free and raise by the ledger: promised, in effect and verified. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.recommender.model.savings import Savings, joined_savings


@dataclass(frozen=True, slots=True)
class ChangeSavings:
    """Freed and raised: promised by all accepted changes, in effect, and verified by a soak."""

    promised: Savings
    in_force: Savings
    verified: Savings


def change_savings(statuses: Sequence[ChangeStatus]) -> ChangeSavings:
    """Sum over changes, by resource and in money; changes that failed or never began are promised and not in effect."""
    return ChangeSavings(
        joined_savings(s.change.savings for s in statuses),
        joined_savings(s.change.savings for s in statuses if s.state.in_force),
        joined_savings(s.change.savings for s in statuses if s.state is ChangeState.VERIFIED),
    )


def verified_by_month(statuses: Sequence[ChangeStatus]) -> dict[str, int]:
    """Net millicores freed by what was verified up to the end of each UTC month ("2026-11") that has a verdict."""
    months = Counter[str]()
    for status in statuses:
        if status.state is ChangeState.VERIFIED:
            month = datetime.fromtimestamp(status.verified_seconds or status.since_seconds, UTC).strftime("%Y-%m")
            months[month] += status.change.savings.net.millicores
    return dict(zip(sorted(months), accumulate(months[month] for month in sorted(months)), strict=True))
