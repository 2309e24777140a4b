"""B11: statsmodels' STL of the day with simple exponential smoothing of the rest. Pure, slow, frozen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.forecasting.backtest.baselines.seasonal import NORMAL
from cotenant.forecasting.base import Array, conform
from cotenant.forecasting.empirical import known_mean


@dataclass(frozen=True, slots=True)
class StlSes:
    """Baseline B11: STL of hourly means, simple exponential smoothing of the rest, and normal quantiles of its errors.

    The variance h steps ahead is that of one step x (1 + (h - 1) a^2), a = smoothing factor (Hyndman et al. 2008, 6.3).
    """

    name: str = "B11 stl + ses (statsmodels, hourly)"

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        It works on hourly means, and repeats each hour's forecast for its slots. Series with fewer than two days of
        known hours get quantiles of their history (`conform`).
        """
        factor = max(1, HOUR_SECONDS // grid.step_seconds)
        block = history[:, history.shape[1] % factor :].reshape(len(history), history.shape[1] // factor, factor)
        hourly = known_mean(block)
        period = max(2, grid.slots_per_day // factor)
        hours = -(-horizon // factor)
        paths = np.full((len(history), hours, len(LEVELS)), np.nan)
        for row, series in enumerate(hourly):
            known_hours = ~np.isnan(series)
            if known_hours.sum() >= 2 * period:
                slots = np.arange(len(series))
                # Quantiles (hours, L) of one series without gaps.
                forecast_series = np.interp(slots, slots[known_hours], series[known_hours])
                from statsmodels.tsa.seasonal import STL

                if np.ptp(forecast_series) == 0:
                    paths[row] = np.full((hours, len(LEVELS)), forecast_series[-1])
                else:
                    seasonal = STL(forecast_series, period=period, robust=False).fit().seasonal
                    rest = forecast_series - seasonal
                    fitted = _simple_smoothing()(rest, initialization_method="estimated").fit()
                    deviation = float(np.sqrt(np.mean((rest - fitted.fittedvalues) ** 2)))
                    point = seasonal[-period:][np.arange(hours) % period] + fitted.forecast(1)[0]
                    widening = np.sqrt(1 + np.arange(hours) * float(fitted.params["smoothing_level"]) ** 2)
                    paths[row] = point[:, None] + deviation * widening[:, None] * NORMAL
        return conform(np.repeat(paths, factor, axis=1)[:, :horizon], history)


def _simple_smoothing() -> Any:
    """Return statsmodels' SimpleExpSmoothing, and silence its warning that the optimiser did not converge.

    A rest that is only noise has no best smoothing factor. The filter stays set, because `warnings.catch_warnings`
    around a fit would swap the filters of other threads too. It is set before every fit, because the end of such a
    block elsewhere may have removed it, and after the import, in which statsmodels enables this warning.
    """
    from statsmodels.tsa.holtwinters import SimpleExpSmoothing

    warnings.filterwarnings("ignore", "Optimization failed to converge", UserWarning, r"statsmodels\.tsa\.holtwinters")
    return SimpleExpSmoothing
