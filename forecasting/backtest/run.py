"""Runs contenders (the compared forecasters) over rolling origins, shard by shard, into a table of scores. Pure.

A shard has at most a few thousand series, and each trial keeps only a few numbers per series. So memory is limited by
the shard and by the scores: about 45 bytes per contender, series and origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.progress import Progress, Silent
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.backtest.contenders import MEDIAN, Contender, ContenderForecast
from cotenant.forecasting.backtest.plan import BacktestPlan, BacktestTrial, join_slots, trial
from cotenant.forecasting.backtest.windows import amplitude, compare, count_matched_windows, equal_peaks, window_starts
from cotenant.forecasting.base import LEVEL_ARRAY
from cotenant.forecasting.empirical import known_mean

SCORED_LEVELS: Final = tuple(level for level in LEVELS if level <= 0.9)
"""Levels of the weighted quantile loss: 0.1 .. 0.9."""
PEAK_LEVELS: Final = (0.5, 0.95)
_INNER: Final = len(SCORED_LEVELS)
_LOW, _HIGH = LEVELS.index(0.1), LEVELS.index(0.9)
_OUTSIDE_WEIGHT: Final = 2 / 0.2  # Winkler's penalty of the central 80 % interval


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Some of the series to test: values (n, grid.size), and limits (n,) in the same unit, NaN if not known."""

    names: tuple[str, ...]
    grid: TimeGrid
    values: FloatMatrix
    limits: FloatMatrix


@dataclass(frozen=True, slots=True, eq=False)
class BacktestScores:
    """The scores of C forecasters (contenders) on n series at K times (origins); NaN if a series did not take part.

    - of_trial, (n, K): slots (number of actual values); scale (mean |actual|); naive (mean |y(t) - y(t - 24 h)| of the
      history); age_days; of the first day: real (has a peak), equal (has a second as high), windows (`window_starts`).
    - of_contender, (C, n, K): loss (mean pinball over SCORED_LEVELS and slots); error (mean |actual - median|); winkler
      (of the 80 % interval); hit, iou, capture, late_minutes (of WindowScores); claims (forecasts a peak); height
      ((forecast - actual) / actual 24-hour peak); windows_said (number of forecast peaks), windows_matched (of actual
      ones within an hour of them); peak_held_50, _95 (the actual 24-hour peak is at or below its forecast p50, p95).
    - covered, (C, n, K, L): number of slots at or below each of L quantiles; level_loss, (C, L): pinball sums; hourly,
      (C, 24, L): covered slots by UTC hour, out of hourly_slots, (24,); acf_24h (`daily_acf`), mean, limits, (n,).
    """

    plan: BacktestPlan
    contenders: tuple[str, ...]
    names: tuple[str, ...]
    origins: tuple[int, ...]
    of_trial: dict[str, FloatMatrix]
    of_contender: dict[str, FloatMatrix]
    covered: npt.NDArray[np.uint16]
    level_loss: Floats
    hourly: Floats
    hourly_slots: Floats
    acf_24h: FloatMatrix
    mean: FloatMatrix
    limits: FloatMatrix

    def index(self, contender: str) -> int:
        """Return the index of a contender (a forecaster in the back-test) by its name."""
        return self.contenders.index(contender)


TRIAL_FIELDS: Final = ("slots", "scale", "naive", "age_days", "real", "equal", "windows")
CONTENDER_FIELDS: Final = (
    "loss",
    "error",
    "winkler",
    "hit",
    "iou",
    "capture",
    "late_minutes",
    "claims",
    "height",
    "windows_said",
    "windows_matched",
    "peak_held_50",
    "peak_held_95",
)


def run(
    shards: Iterable[Shard],
    contenders: Sequence[Contender],
    plan: BacktestPlan,
    at: Sequence[int],
    progress: Progress | None = None,
) -> BacktestScores:
    """Forecast every shard with every forecaster (`contenders`) at the times `at` (Unix seconds); return the scores."""
    watch = progress or Silent()
    parts = [_of_shard(shard, contenders, plan, at, watch) for shard in shards]
    if not parts:
        nothing = np.empty((0, 0), dtype=np.float32)
        parts = [_ledger(Shard((), TimeGrid(0, 300, 0), nothing, nothing.sum(axis=1)), contenders, plan, at)]
    return join(parts)


def join(parts: Sequence[BacktestScores]) -> BacktestScores:
    """Join the scores of different series; all parts must have the same forecasters and times (origins)."""
    first = parts[0]
    return BacktestScores(
        plan=first.plan,
        contenders=first.contenders,
        names=tuple(name for part in parts for name in part.names),
        origins=first.origins,
        of_trial={k: np.concatenate([p.of_trial[k] for p in parts]) for k in TRIAL_FIELDS},
        of_contender={k: np.concatenate([p.of_contender[k] for p in parts], axis=1) for k in CONTENDER_FIELDS},
        covered=np.concatenate([p.covered for p in parts], axis=1),
        level_loss=np.sum([p.level_loss for p in parts], axis=0),
        hourly=np.sum([p.hourly for p in parts], axis=0),
        hourly_slots=np.sum([p.hourly_slots for p in parts], axis=0),
        acf_24h=np.concatenate([p.acf_24h for p in parts]),
        mean=np.concatenate([p.mean for p in parts]),
        limits=np.concatenate([p.limits for p in parts]),
    )


def _ledger(shard: Shard, contenders: Sequence[Contender], plan: BacktestPlan, at: Sequence[int]) -> BacktestScores:
    size, count, many = len(shard.names), len(at), len(contenders)
    return BacktestScores(
        plan=plan,
        contenders=tuple(c.name for c in contenders),
        names=shard.names,
        origins=tuple(at),
        of_trial={k: np.full((size, count), np.nan, dtype=np.float32) for k in TRIAL_FIELDS},
        of_contender={k: np.full((many, size, count), np.nan, dtype=np.float32) for k in CONTENDER_FIELDS},
        covered=np.zeros((many, size, count, len(LEVELS)), dtype=np.uint16),
        level_loss=np.zeros((many, len(LEVELS))),
        hourly=np.zeros((many, 24, len(LEVELS))),
        hourly_slots=np.zeros(24),
        acf_24h=daily_acf(shard.values, shard.grid),
        mean=known_mean(shard.values).astype(np.float32),
        limits=shard.limits.astype(np.float32),
    )


def _of_shard(
    shard: Shard, contenders: Sequence[Contender], plan: BacktestPlan, at: Sequence[int], progress: Progress
) -> BacktestScores:
    ledger = _ledger(shard, contenders, plan, at)
    first = np.where(np.isnan(shard.values).all(axis=1), 0, (~np.isnan(shard.values)).argmax(axis=1))
    born = shard.grid.start_seconds + first * shard.grid.step_seconds
    for column, moment in enumerate(at):
        at_origin = trial(shard.values, shard.grid, moment, plan)
        if len(at_origin.rows):
            age_days = (moment - born[at_origin.rows]) / DAY_SECONDS
            step, day = ledger.plan.step_seconds, ledger.plan.slots_per_day
            present, coarse = ~np.isnan(at_origin.actual), at_origin.past.coarse[at_origin.scored]
            columns = {
                "slots": present.sum(axis=1),
                "scale": known_mean(np.abs(at_origin.actual)),
                "naive": known_mean(np.abs(coarse[:, day:] - coarse[:, :-day])),
                "age_days": age_days,
                "real": amplitude(at_origin.actual[:, :day]),
                "equal": equal_peaks(at_origin.actual[:, :day], step),
                "windows": window_starts(at_origin.actual[:, :day], step).sum(axis=1),
            }
            for name, values in columns.items():
                ledger.of_trial[name][at_origin.rows, column] = values
            hour = _hours(at_origin, ledger.plan)
            np.add.at(ledger.hourly_slots, hour, present.sum(axis=0))
        for index, contender in enumerate(contenders):
            if len(at_origin.rows):
                answer = contender.answer(at_origin.past, plan.horizon).take(at_origin.scored)
                _note_answer(ledger, at_origin, (index, column), answer)
            progress.advance()
    return ledger


def _note_answer(ledger: BacktestScores, trial: BacktestTrial, at: tuple[int, int], answer: ContenderForecast) -> None:
    (place, column), rows = at, trial.rows
    error = trial.actual[..., None] - answer.quantiles
    losses = np.maximum(LEVEL_ARRAY * error, (LEVEL_ARRAY - 1) * error)
    below = error <= 0  # a gap is never below
    low, high = answer.quantiles[..., _LOW], answer.quantiles[..., _HIGH]
    outside = np.maximum(low - trial.actual, 0) + np.maximum(trial.actual - high, 0)
    # The first day's peaks and peak windows.
    step, day = ledger.plan.step_seconds, ledger.plan.slots_per_day
    actual, shape = trial.actual[:, :day], answer.shape[:, :day]
    window_scores = compare(actual, shape, step)
    starts = window_starts(shape, step) & answer.claims[:, None]
    # The highest value is that of the whole horizon: it says nothing of the first day where that is longer.
    highest = trial.highest if ledger.plan.horizon == day else np.full_like(trial.highest, np.nan)
    forecast_peak = np.where(np.isnan(answer.peak[:, MEDIAN]), shape.max(axis=1), answer.peak[:, MEDIAN])
    unknown = np.isnan(answer.peak[:, 0]) | np.isnan(highest)
    noted = {
        "loss": known_mean(losses[..., :_INNER].mean(axis=2)),
        "error": known_mean(np.abs(error[..., MEDIAN])),
        "winkler": known_mean(np.where(np.isnan(trial.actual), np.nan, high - low) + _OUTSIDE_WEIGHT * outside),
        "hit": window_scores.hit,
        "iou": window_scores.iou,
        "capture": window_scores.capture,
        "late_minutes": window_scores.late_minutes,
        "claims": answer.claims,
        "height": np.divide(
            forecast_peak - highest, highest, out=np.full(len(forecast_peak), np.nan), where=highest > 0
        ),
        "windows_said": starts.sum(axis=1),
        "windows_matched": count_matched_windows(window_starts(actual, step), starts, step),
        **{
            f"peak_held_{round(100 * q)}": np.where(unknown, np.nan, highest <= answer.peak[:, LEVELS.index(q)])
            for q in PEAK_LEVELS
        },
    }
    for name, values in noted.items():
        ledger.of_contender[name][place, rows, column] = values
    ledger.covered[place, rows, column] = below.sum(axis=1)
    ledger.level_loss[place] += np.nan_to_num(losses).sum(axis=(0, 1))
    np.add.at(ledger.hourly[place], _hours(trial, ledger.plan), below.sum(axis=0))


def _hours(trial: BacktestTrial, plan: BacktestPlan) -> npt.NDArray[np.intp]:
    times = trial.origin_seconds + plan.step_seconds * np.arange(plan.horizon)
    hours: npt.NDArray[np.intp] = times // HOUR_SECONDS % 24
    return hours


def daily_acf(values: FloatMatrix, grid: TimeGrid) -> FloatMatrix:
    """Return each series' autocorrelation of hourly means at 24 hours; NaN below two days or without variance."""
    factor = max(1, HOUR_SECONDS // grid.step_seconds)
    hourly = join_slots(values[:, values.shape[1] % factor :], factor)
    lag = max(1, DAY_SECONDS // (factor * grid.step_seconds))
    if hourly.shape[1] < 2 * lag:
        return np.full(len(values), np.nan, dtype=np.float32)
    away = hourly - known_mean(hourly)[:, None]
    both = away[:, lag:] * away[:, :-lag]
    variance = known_mean(away**2)
    share = np.divide(known_mean(both), variance, out=np.full(len(values), np.nan), where=variance > 0)
    acf: FloatMatrix = share.astype(np.float32)
    return acf
