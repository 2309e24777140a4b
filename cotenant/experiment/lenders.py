"""The capacity that each way of sharing lends to batch, by node and step, by the product's own formulas. Pure.

koordinator and cotenant are the policies `usage` and `forecast` of `recommender.colocation.formulas`, on present usage
(of the step before, as a NodeMetric reports it) and on calibrated peaks of the last decision (every six hours, from
earlier data only). Unlike in the manager, pods that start after that decision are not subtracted, so that more is lent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import structs

from cotenant.backtesting.policies import decision_slots, forecasts_at, present_columns
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.experiment.batch_jobs import LONGEST_STEPS
from cotenant.experiment.install import FORECAST, USAGE, install_of
from cotenant.experiment.outcome import Incident, Sharing
from cotenant.experiment.world import World
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.recommender.colocation.formulas import Parameters, batch

Floats = npt.NDArray[np.float64]
Slots = npt.NDArray[np.intp]
Forecasts = Mapping[Resource, Mapping[float, Mapping[str, Any]]]
"""Columns of the reclaim formulas, (n, decisions), by resource and risk in percent."""

DECISION_STEPS: Final = 72
"""Number of steps between two decisions on peaks: six hours."""


class TriedLender(Protocol):
    """A way of lending capacity to batch, at one value of its parameter."""

    def offered(self, resource: Resource, slots: Slots) -> Floats:
        """Return the capacity that each node lends in these time slots, (n, slots), in the unit of the resource."""


def forecast_peaks(
    world: World, risks_percent: Sequence[float], settings: NodePeakSettings, progress: Progress
) -> Forecasts:
    """Return calibrated peaks of the nodes for each risk, at all decisions from the first evaluated step on.

    `risks_percent` are risks of CPU, and the result's keys; those of memory are in the settings' proportion to them.
    """
    served: dict[Resource, Mapping[float, Mapping[str, Any]]] = {}
    share = settings.memory_risk_percent / settings.risk_percent
    slots = np.arange(world.first_slot, world.steps.stop, DECISION_STEPS, dtype=np.intp)
    progress.stage("Forecasts", len(world.past) * len(slots))
    for resource, past in world.past.items():
        own = {risk: risk * share if resource is Resource.MEMORY else risk for risk in risks_percent}
        past_slots = decision_slots(past.grid, past.older)
        place: npt.NDArray[np.intp] = np.searchsorted(past_slots, slots).clip(max=len(past_slots) - 1).astype(np.intp)
        columns = forecasts_at(replace(past, cold=past.cold[:, place]), slots, settings, list(own.values()), progress)
        shape = len(past.nodes), len(slots)
        served[resource] = {risk: {k: v.reshape(shape) for k, v in columns[at].items()} for risk, at in own.items()}
    return served


@dataclass(frozen=True, slots=True)
class ByFormula:
    """Lends by the reclaim policy `usage`, or by `forecast` with the `forecasts` of one risk (None for `usage`)."""

    world: World
    strategy: ColocationStrategy
    forecasts: Mapping[Resource, Mapping[str, Any]] | None

    def offered(self, resource: Resource, slots: Slots) -> Floats:
        """Return what the formula lends, from usage of the step before each slot, (n, slots), in the resource's unit.

        While the manager is down, the amount that it last wrote is kept; while Prometheus is away, the last forecast.
        """
        effect, past = self.world.effect, self.world.past[resource]
        slots = np.where(effect.during(slots, Incident.MANAGER_DEAD), effect.first, slots)
        columns = present_columns(past, slots)
        if self.forecasts is not None:
            # The newest decision in each judged slot; none is made without Prometheus.
            decided = np.where(effect.during(slots, Incident.PROMETHEUS_AWAY), effect.first - 1, slots)
            at = ((decided - self.world.first_slot) // DECISION_STEPS).astype(np.intp)
            columns = replace(columns, **{name: of[:, at].ravel() for name, of in self.forecasts[resource].items()})
        amounts = batch(columns, Parameters.of([self.strategy] * len(columns.nodes), resource), now_seconds=0.0)
        return np.where(amounts.lent, amounts.amounts, 0).astype(np.float64).reshape(len(past.nodes), len(slots))


@dataclass(frozen=True, slots=True)
class ByShare:
    """Lends a fixed share of each node's capacity at all times; a share of 0 means no colocation."""

    world: World
    share: float

    def offered(self, resource: Resource, slots: Slots) -> Floats:
        """Return the fixed share of each node's capacity, at most its allocatable, the same in every slot."""
        past = self.world.past[resource]
        lent = np.minimum(self.share * past.capacity, past.capacity - past.reserved)
        return np.repeat(lent[:, None], len(slots), axis=1).astype(np.float64)


@dataclass(frozen=True, slots=True)
class ByOracle:
    """Lends the capacity that will stay free for as long as a batch job may run at full speed.

    `ahead` is, for each slot, the highest usage without batch until the longest job that starts in it ends.
    """

    world: World
    ahead: Mapping[Resource, Floats]

    def offered(self, resource: Resource, slots: Slots) -> Floats:
        """Return what stays free on each node for the longest job's duration from each slot on, (nodes, slots).

        It is in the resource's unit, at least 0. No real lender knows `ahead`, the future usage.
        """
        return np.maximum(self.world.past[resource].capacity[:, None] - self.ahead[resource][:, slots], 0.0)


def lender(world: World, sharing: Sharing, knob: float, forecasts: Forecasts) -> TriedLender:
    """Return the lender for one way of sharing; `knob` is its parameter: a risk in %, a lent share or a reclaim %."""
    if sharing is Sharing.COTENANT:
        # a risk that is asked for is tolerated, else the guard of unproven peaks would answer in its place
        own = install_of(FORECAST).strategy
        tolerated = min(100, max(own.forecast_violation_percent, int(2 * knob)))
        strategy = structs.replace(own, forecast_violation_percent=tolerated)
        return ByFormula(world, strategy, {r: of[knob] for r, of in forecasts.items()})
    if sharing is Sharing.KOORDINATOR:
        own = install_of(USAGE).strategy
        memory = own.memory_reclaim_percent + int(knob) - own.cpu_reclaim_percent
        strategy = structs.replace(own, cpu_reclaim_percent=int(knob), memory_reclaim_percent=memory)
        return ByFormula(world, strategy, None)
    if sharing is Sharing.ORACLE:
        return ByOracle(world, {r: highest_ahead(world.need(r), LONGEST_STEPS) for r in world.past})
    return ByShare(world, knob if sharing is Sharing.STATIC else 0.0)


def highest_ahead(need: npt.NDArray[Any], steps: int) -> Floats:
    """Return for each slot the highest `need` in it and the next `steps` slots that exist, (n, slots)."""
    highest, covered = need.astype(np.float64), 1
    reach = min(steps + 1, highest.shape[1])
    while covered < reach:
        shift = min(covered, reach - covered)
        highest[:, : highest.shape[1] - shift] = np.maximum(highest[:, :-shift], highest[:, shift:])
        covered += shift
    return highest
