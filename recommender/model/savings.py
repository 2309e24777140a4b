"""What recommendations free and raise, now and after all steps: the one place where savings are added up. Pure.

A change of a request is counted as the scheduler counts it: a request that is not set is the limit, else 0
(`effective_request`), and a pod asks for what it needs at its largest moment (`pod_floor`). Per container and resource
a change either frees or raises; sums of both are kept apart, each a positive number, and net = frees - raises. Money is
split by resource, as the amounts are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.pod_request import effective_request
from cotenant.base.kubernetes.quantity import add
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Action, Field, Recommendation

MILLIONTHS: Final = 1e6
"""Of a unit of money: the grid on which money is added up."""
SHARE: Final = 0.7
"""Of the whole saving: what is worth the effort."""


class When(StrEnum):
    """The steps of a recommendation that a saving covers."""

    NOW = "now"
    """Of the next step, where the guardrails allow one now."""
    ALL_STEPS = "after all steps"


@dataclass(frozen=True, slots=True)
class SavingColumns:
    """Columns of the table of recommendations: change of requests over all pods, money that is freed and raised."""

    cpu: str
    memory: str
    freed: str
    raised: str

    @property
    def names(self) -> tuple[str, str, str, str]:
        """All of them."""
        return self.cpu, self.memory, self.freed, self.raised


COLUMNS: Final[Mapping[When, SavingColumns]] = {
    When.NOW: SavingColumns("cpu_step_total", "memory_step_total", "freed_step", "raised_step"),
    When.ALL_STEPS: SavingColumns("cpu_delta_total", "memory_delta_total", "freed_month", "raised_month"),
}


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Requests over all pods: CPU in millicores, memory in bytes, money a month (None: nothing is priced)."""

    millicores: int = 0
    bytes: int = 0
    monthly: float | None = None

    def amount(self, resource: Resource) -> int:
        """Return the total of one resource, in its unit."""
        return self.millicores if resource is Resource.CPU else self.bytes


@dataclass(frozen=True, slots=True)
class Savings:
    """The amounts by which requests fall and by which they rise, each summed alone: both are positive numbers."""

    frees: RequestTotals = RequestTotals()
    raises: RequestTotals = RequestTotals()

    @property
    def net(self) -> RequestTotals:
        """Frees - raises: positive where more is freed."""
        frees, raises = self.frees, self.raises
        monthly = None if frees.monthly is None else frees.monthly - (raises.monthly or 0.0)
        return RequestTotals(frees.millicores - raises.millicores, frees.bytes - raises.bytes, monthly)


@dataclass(frozen=True, slots=True)
class PlannedSavings:
    """Savings of the next step and of all steps."""

    now: Savings = Savings()
    all_steps: Savings = Savings()


def request_change(recommendation: Recommendation, resource: Resource) -> int | None:
    """Change of what the scheduler counts for one pod, in the unit; None where nothing is said about the request.

    The changes of a workload's containers add up to the change of their pod once all of them are applied.
    """
    request = recommendation.value(resource, Field.REQUEST)
    if request is None:
        return None
    floor = recommendation.pod_floor.get(resource, 0)
    then, now = request_then(recommendation, resource), request_now(recommendation, resource)
    change = max(then, floor) - max(now, floor)
    return change if change or request.action is not Action.WITHHELD else None


def request_now(recommendation: Recommendation, resource: Resource) -> int:
    """Return the request that the scheduler counts for the container now, in the resource's unit."""
    request, limit = (recommendation.value(resource, field) for field in Field)
    limit_now = recommendation.present_limits.get(resource) if limit is None else limit.now
    return int(effective_request(request.now if request else None, limit_now))


def request_then(recommendation: Recommendation, resource: Resource) -> int:
    """Return what the scheduler counts for the container once the proposal is applied, in the resource's unit."""
    request, limit = (recommendation.value(resource, field) for field in Field)
    limit_then = recommendation.present_limits.get(resource) if limit is None else limit.then
    return int(effective_request(request.then if request else None, limit_then))


def total_change(recommendation: Recommendation, resource: Resource) -> int | None:
    """`request_change` over all pods, from what they request in all."""
    change = request_change(recommendation, resource)
    pods = recommendation.replicas if recommendation.pods is None else recommendation.pods
    if not change:
        return change
    running = recommendation.running.get(resource)
    less = running.less_than(request_now(recommendation, resource)) if running else 0
    return round(change * pods + less)


def money_moved(recommendation: Recommendation) -> tuple[float | None, float | None]:
    """(freed, raised) money a month over all pods, resource by resource; None where nothing is priced."""
    if recommendation.monthly_saving is None:
        return None, None
    parts = [*recommendation.monthly_savings.values()] or [recommendation.monthly_saving]
    return sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)


def saving_cells(recommendation: Recommendation, when: When) -> dict[str, float | None]:
    """The cells of one recommendation in the columns of `COLUMNS`."""
    cells = (*(total_change(recommendation, r) for r in Resource), *money_moved(recommendation))
    return dict(zip(COLUMNS[when].names, cells, strict=True))


def savings_of(recommendations: Iterable[Recommendation]) -> Savings:
    """Sums over recommendations as they stand: at their first step, or whole."""
    rows = [saving_cells(recommendation, When.ALL_STEPS) for recommendation in recommendations]
    return summed_savings({name: [row[name] for row in rows] for name in COLUMNS[When.ALL_STEPS].names})


def summed_savings(columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]], when: When = When.ALL_STEPS) -> Savings:
    """Sums over rows of the table of recommendations, a column each; a missing cell counts for nothing.

    Money is None where no row is priced.
    """
    names = COLUMNS[when]
    cpu, memory, freed, raised = (np.asarray(columns[name], dtype=np.float64) for name in names.names)
    frees = (_sum(-cpu), _sum(-memory), _money(freed))
    raises = (_sum(cpu), _sum(memory), _money(raised))
    return Savings(RequestTotals(*frees), RequestTotals(*raises))


def joined_savings(parts: Iterable[Savings]) -> Savings:
    """Return the sum of the savings of several parts."""
    listed = list(parts)
    return Savings(_sum_totals([part.frees for part in listed]), _sum_totals([part.raises for part in listed]))


def joined_plans(parts: Iterable[PlannedSavings]) -> PlannedSavings:
    """Return the sum of the planned savings of several parts."""
    listed = list(parts)
    return PlannedSavings(joined_savings(p.now for p in listed), joined_savings(p.all_steps for p in listed))


def worth_the_effort(savings: Sequence[int] | npt.NDArray[np.float64]) -> int:
    """Fewest proposals that together give SHARE of the saving; 0 when nothing is saved.

    savings: of each proposal, in one unit (millicores, bytes or money).
    """
    ordered = np.sort(np.array(savings, dtype=np.float64))[::-1]
    total = float(ordered.sum())
    return int(np.searchsorted(np.cumsum(ordered), SHARE * total) + 1) if total > 0 else 0


def freed_of(changes: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the amount that each change frees; 0 where it raises or is missing."""
    return np.maximum(-np.nan_to_num(np.asarray(changes, dtype=np.float64)), 0)


def _sum(amounts: npt.NDArray[np.float64]) -> int:
    """Return the sum of the positive amounts, rounded."""
    return round(float(amounts[amounts > 0].sum()))


def _money(amounts: npt.NDArray[np.float64]) -> float | None:
    """Return the sum of the priced amounts, in units of money; None if none is priced.

    Each amount is rounded to millionths first, so that shards and their order do not change the sum.
    """
    priced = amounts[np.isfinite(amounts)]
    return float(np.rint(priced * MILLIONTHS).sum()) / MILLIONTHS if priced.size else None


def _sum_totals(parts: Sequence[RequestTotals]) -> RequestTotals:
    priced = [part.monthly for part in parts if part.monthly is not None]
    monthly = _money(np.array(priced, dtype=np.float64))
    return RequestTotals(add(part.millicores for part in parts), add(part.bytes for part in parts), monthly)
