"""The product's forecast engine in a back-test: what it would serve, from the same past as other forecasters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec.structs import replace

from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import CPU_BUCKETS, HistogramBatch
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, TimeGrid, Usage
from cotenant.forecasting.backtest.contenders import ContenderForecast
from cotenant.forecasting.backtest.plan import Past
from cotenant.forecasting.base import Forecaster
from cotenant.forecasting.engine import STEP_SECONDS, forecast, forecast_and_learn
from cotenant.forecasting.settings import ForecastingSettings

ENGINE: Final = "cotenant"


@dataclass(frozen=True, slots=True)
class EngineContender:
    """The product's forecasts in a back-test: the next 24 hours, in half hours or at the step of the measurement."""

    resource: Resource = Resource.CPU
    settings: ForecastingSettings = field(default_factory=ForecastingSettings)
    name: str = ENGINE
    members: Sequence[Forecaster] | None = None
    """The forecast models; None = the built-in models and the settings' plug-ins."""

    learned_hours: float = 0.0
    """Age of the back-tests that the forecast uses, as in a scan that reuses those of an earlier scan."""

    def answer(self, past: Past, horizon: int) -> ContenderForecast:
        """Return the forecast that the product would serve; raise ValueError for an unsupported step or horizon."""
        step, end = past.coarse_grid.step_seconds, past.coarse_grid.end_seconds
        if step not in (STEP_SECONDS, past.fine_grid.step_seconds) or horizon * step != DAY_SECONDS:
            raise ValueError("the engine only forecasts 24 hours, in half hours or at the step of the measurement")
        if end % STEP_SECONDS:
            raise ValueError(f"the engine only forecasts from a whole half hour on, not from {end} s")
        refs = tuple(NodeRef(str(row)) for row in range(len(past.fine)))
        usage = Usage(refs, past.fine_grid, past.fine, self.resource, past.statistic)
        portraits = no_portraits(self.resource)
        if not self.learned_hours:
            forecasts = forecast(usage, portraits, self.settings, self.members)
        else:
            cut = usage.grid.size - round(self.learned_hours * HOUR_SECONDS) // usage.grid.step_seconds
            grid = TimeGrid(usage.grid.start_seconds, usage.grid.step_seconds, cut)
            before = Usage(usage.refs, grid, usage.values[:, :cut], usage.resource, usage.statistic)
            lasting = replace(self.settings, relearn_hours=self.learned_hours + 1)
            learned = forecast_and_learn(before, portraits, lasting, None)[1]
            forecasts = forecast_and_learn(usage, portraits, lasting, learned)[0]
        announced = np.array([forecasts.peak_window(row) is not None for row in range(len(refs))], dtype=bool)
        shape = forecasts.level(0.5) if forecasts.timing is None else forecasts.timing
        quantiles = forecasts.quantiles
        if step != STEP_SECONDS and forecasts.fine is not None:
            quantiles, shape = forecasts.fine.paths(), np.repeat(shape, STEP_SECONDS // step, axis=1)
        return ContenderForecast(quantiles, shape, announced, forecasts.peak)


def no_portraits(resource: Resource) -> Portraits[NodeRef]:
    """Return usage summaries (portraits) of no series, because each series of a back-test has its own history."""
    none = np.zeros(0)
    return Portraits(
        refs=(),
        resource=resource,
        step_seconds=300,
        end_seconds=0,
        histograms=HistogramBatch.empty(0, CPU_BUCKETS, DAY_SECONDS),
        startup_max=none,
        startup_samples=none,
        first_seconds=none,
        last_seconds=none,
        seen=none,
        square_sums=none,
        daily_maxima=np.zeros((0, 7)),
        daily_sums=np.zeros((0, 7)),
        daily_counts=np.zeros((0, 7)),
        slot_sums=np.zeros((0, 2, 48)),
        slot_counts=np.zeros((0, 2, 48)),
        slot_maxima=np.zeros((0, 7, 48)),
        pattern=(),
    )
