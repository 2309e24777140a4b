"""Named baseline forecasters, with which back-tests compare others; they never change.

`cotenant_lab.backtest` has the baselines for node peaks. A back-test uses `DEFAULT`, and the slow ones in `SLOW` only
if they are named. `by_name` has the short names (B1, B1-gaussian, ..., B14).
"""

from __future__ import annotations

from typing import Final

from cotenant.forecasting.backtest.baselines.crane import CraneDsp
from cotenant.forecasting.backtest.baselines.decomposed import StlSes
from cotenant.forecasting.backtest.baselines.seasonal import GaussianSeasonalNaive, MaxPath
from cotenant.forecasting.backtest.baselines.strong import NAIVE_DAY, NAIVE_WEEK, StrongSelection
from cotenant.forecasting.base import Forecaster

_NAMED: Final[dict[str, Forecaster]] = {
    "B1": NAIVE_DAY,
    "B1-gaussian": GaussianSeasonalNaive(),
    "B2": NAIVE_WEEK,
    "B3": MaxPath(),
    "B3-slot": MaxPath(per_slot=True, name="B3 max of 7 d, per slot"),
    "B10": CraneDsp(),
    "B11": StlSes(),
    "B14": StrongSelection(),
}
SHORT_NAMES: Final = tuple(_NAMED)
BASELINE: Final = "B1"
"""What relative losses are relative to, always: the seasonal naive of the day with empirical residual quantiles."""
STRONG: Final = "B14"
SLOW: Final = ("B11",)
DEFAULT: Final = tuple(name for name in _NAMED if name not in SLOW)


def by_name(short: str) -> Forecaster:
    """Return the baseline forecaster with a short name such as B1; raise KeyError for an unknown name."""
    return _NAMED[short]
