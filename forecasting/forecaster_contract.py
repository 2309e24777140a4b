"""The contract of a forecast model as checks, for the tests of your own plug-in. Pure, seeded.

`faults(MyModel())` is empty if the model keeps the contract of `Forecaster`; each fault is a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Forecaster

Answer = npt.NDArray[Any]

SLOTS_PER_DAY: Final = 48
START_SECONDS: Final = 1_699_833_600
HISTORY_DAYS: Final = (0, 1 / SLOTS_PER_DAY, 1, 3, 14)


def faults(model: Forecaster, seed: int = 0) -> tuple[str, ...]:
    """Return a sentence for each part of the contract that the model breaks; its exceptions are not caught."""
    sentences = [
        f"{days:g} days of history: {fault}" for days in HISTORY_DAYS for fault in _of(model, _days(days, seed))
    ]
    gaps = _days(14, seed)
    gaps[0], gaps[1, 100:200] = np.nan, np.nan
    sentences += [f"with gaps: {fault}" for fault in _of(model, gaps)]
    # The same history gives the same answer, whichever other series stand beside it.
    history = _days(14, seed)
    answer = _answer(model, history)
    if not np.array_equal(answer, _answer(model, history), equal_nan=True):
        sentences.append("the same history gives different forecasts: seed the random generator")
    elif not np.allclose(answer[[1]], _answer(model, history[[1]]), equal_nan=True):
        sentences.append("the answer for a series depends on the other series")
    return tuple(sentences)


def _of(model: Forecaster, history: FloatMatrix) -> Iterator[str]:
    before = history.copy()
    answer = _answer(model, history)
    shape = (len(history), SLOTS_PER_DAY, len(LEVELS))
    if not np.array_equal(history, before, equal_nan=True):
        yield "the model modifies the history that it receives"
    if answer.shape != shape:
        yield f"the answer has shape {answer.shape}, not (series, horizon, levels) = {shape}"
        return
    if not np.isfinite(answer).all():
        yield "the answer has values that are not finite"
    elif (answer < 0).any():
        yield "the answer has values below 0"
    elif (np.diff(answer, axis=-1) < 0).any():
        yield "the value of a higher quantile level is below that of a lower level"


def _answer(model: Forecaster, history: FloatMatrix) -> Answer:
    grid = TimeGrid(START_SECONDS, 86_400 // SLOTS_PER_DAY, history.shape[1])
    return np.asarray(model.quantiles(history, grid, SLOTS_PER_DAY))


def _days(count: float, seed: int) -> FloatMatrix:
    slots = np.arange(round(SLOTS_PER_DAY * count))
    noise = np.random.default_rng(seed).normal(0, 20, (3, len(slots)))
    values = np.abs(200 + 100 * np.sin(2 * np.pi * slots / SLOTS_PER_DAY) + noise)
    return values.astype(np.float32)
