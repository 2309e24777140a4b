"""The amounts that recommendations free and raise, now and after all steps: the only place that sums savings. Pure.

A change of a request is the change of what the scheduler counts: a missing request counts as the limit, else 0
(`effective_request`), and a pod as the largest sum that it requests at a time (`pod_floor`). Each change of a resource
of a container either frees or raises; both sums are kept apart as positive numbers, and net = frees - raises. Money is
split by resource too.
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
    """The steps of a recommendation that a saving covers: the next one or all."""

    NOW = "now"
    """Of the next step, where the guardrails allow one now."""
    ALL_STEPS = "after all steps"


@dataclass(frozen=True, slots=True)
class SavingColumns:
    """Names of four columns: change of CPU and of memory requests over all pods, money freed, money added."""

    cpu: str
    memory: str
    freed: str
    raised: str

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The names of the four columns, in the order of the fields."""
        return self.cpu, self.memory, self.freed, self.raised


COLUMNS: Final[Mapping[When, SavingColumns]] = {
    When.NOW: SavingColumns("cpu_step_total", "memory_step_total", "freed_step", "raised_step"),
    When.ALL_STEPS: SavingColumns("cpu_delta_total", "memory_delta_total", "freed_month", "raised_month"),
}


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Sums of requests over all pods: millicores of CPU, bytes of memory, money per month (None without prices)."""

    millicores: int = 0
    bytes: int = 0
    monthly: float | None = None

    def amount(self, resource: Resource) -> int:
        """Return the total of one resource, in its unit."""
        return self.millicores if resource is Resource.CPU else self.bytes


@dataclass(frozen=True, slots=True)
class Savings:
    """The amounts by which requests fall (`frees`) and rise (`raises`), summed apart; both are positive numbers."""

    frees: RequestTotals = RequestTotals()
    raises: RequestTotals = RequestTotals()

    @property
    def net(self) -> RequestTotals:
        """Amounts freed minus amounts raised: positive if more is freed."""
        frees, raises = self.frees, self.raises
        monthly = None if frees.monthly is None else frees.monthly - (raises.monthly or 0.0)
        return RequestTotals(frees.millicores - raises.millicores, frees.bytes - raises.bytes, monthly)


@dataclass(frozen=True, slots=True)
class PlannedSavings:
    """Savings of the recommendations' next step, and of all their steps."""

    now: Savings = Savings()
    all_steps: Savings = Savings()


def request_change(recommendation: Recommendation, resource: Resource) -> int | None:
    """Return by how much the proposal changes one pod's request as the scheduler counts it, in the resource's unit.

    It is None if there is no request value, or if that is withheld and the counted request stays the same. The changes
    of a workload's containers add up to the change of their pod once all of them are applied.
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
    """Return the container's request as the scheduler counts it after the proposal, in the resource's unit."""
    request, limit = (recommendation.value(resource, field) for field in Field)
    limit_then = recommendation.present_limits.get(resource) if limit is None else limit.then
    return int(effective_request(request.then if request else None, limit_then))


def total_change(recommendation: Recommendation, resource: Resource) -> int | None:
    """Return the change of the requests of all pods together, in the resource's unit; None if none is proposed."""
    change = request_change(recommendation, resource)
    pods = recommendation.replicas if recommendation.pods is None else recommendation.pods
    if not change:
        return change
    running = recommendation.running.get(resource)
    less = running.less_than(request_now(recommendation, resource)) if running else 0
    return round(change * pods + less)


def money_moved(recommendation: Recommendation) -> tuple[float | None, float | None]:
    """Return the (freed, raised) money per month over all pods, summed over resources; None if there are no prices."""
    if recommendation.monthly_saving is None:
        return None, None
    parts = [*recommendation.monthly_savings.values()] or [recommendation.monthly_saving]
    return sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)


def saving_cells(recommendation: Recommendation, when: When) -> dict[str, float | None]:
    """Return one recommendation's cells of the four columns in `COLUMNS`."""
    cells = (*(total_change(recommendation, r) for r in Resource), *money_moved(recommendation))
    return dict(zip(COLUMNS[when].names, cells, strict=True))


def savings_of(recommendations: Iterable[Recommendation]) -> Savings:
    """Return the total savings of recommendations, each with the steps that it contains."""
    rows = [saving_cells(recommendation, When.ALL_STEPS) for recommendation in recommendations]
    return summed_savings({name: [row[name] for row in rows] for name in COLUMNS[When.ALL_STEPS].names})


def summed_savings(columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]], when: When = When.ALL_STEPS) -> Savings:
    """Return the total savings from columns of the recommendations table; a missing cell counts as 0.

    Money is None if no row has a price.
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
    """Return the least number of proposals that together give SHARE of the saving; 0 if nothing is saved.

    `savings` has the saving of each proposal, all in one unit (millicores, bytes or money).
    """
    ordered = np.sort(np.array(savings, dtype=np.float64))[::-1]
    total = float(ordered.sum())
    return int(np.searchsorted(np.cumsum(ordered), SHARE * total) + 1) if total > 0 else 0


def freed_of(changes: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the amount that each change of a request frees; 0 if the change raises the request or is missing."""
    return np.maximum(-np.nan_to_num(np.asarray(changes, dtype=np.float64)), 0)


def _sum(amounts: npt.NDArray[np.float64]) -> int:
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
