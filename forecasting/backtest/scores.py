"""Aggregates a back-test's scores with intervals: relative loss, coverage, calibration, peaks; by stratum. Pure.

relWQL: for each series and origin the ratio of a contender's mean pinball loss (levels 0.1 .. 0.9) to a NAMED
baseline's (which is the ratio of weighted quantile losses, as both have the same scale), clamped to 0.01..100; its
geometric mean over a series' origins, then over series. Series without usage or without loss of the baseline are
dropped and counted. Intervals are 95 %, by a paired bootstrap over series, or over origins if there are fewer than 20
series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import Flags, Floats
from cotenant.forecasting.backtest.run import BacktestScores
from cotenant.forecasting.empirical import known_mean

DRAWS: Final = 1000
FEWEST_SERIES: Final = 20
_DRAWN_AT_ONCE: Final = 2_000_000  # numbers drawn at once: bounds memory
RATIO_LIMIT: Final = float(np.log(100))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean value, its 95 % interval, the number of series and trials that it is based on, and of series left out."""

    value: float
    low: float
    high: float
    series: int
    trials: int
    dropped: int = 0


NOTHING: Final = Interval(float("nan"), float("nan"), float("nan"), 0, 0)


def bootstrap(values: Floats, seed: int = 0) -> Interval:
    """Return the mean over series of the mean over forecast times of values (n, K), without NaN, and its 95 % interval.

    Whole series are drawn with replacement, because a series' forecasts depend on each other. With fewer than
    FEWEST_SERIES series, forecast times are drawn instead, each for all series at once.
    """
    has_data = ~np.isnan(values).all(axis=1)
    scored = values[has_data]
    if not len(scored):
        return NOTHING
    present = ~np.isnan(scored)
    filled = np.where(present, scored, 0.0).astype(np.float64)
    rng = np.random.default_rng(seed)
    per_series = filled.sum(axis=1) / present.sum(axis=1)
    if len(scored) >= FEWEST_SERIES:
        portions = np.array_split(np.arange(DRAWS), max(1, DRAWS * len(scored) // _DRAWN_AT_ONCE))
        drawn = (rng.integers(0, len(scored), (len(portion), len(scored))) for portion in portions)
        draw_means = np.concatenate([per_series[rows].mean(axis=1) for rows in drawn])
    else:
        # Draws of origins: the mean over series of the mean over the drawn origins.
        origins = present.shape[1]
        picked = rng.integers(0, origins, (DRAWS, origins))
        times = np.array([np.bincount(draw, minlength=origins) for draw in picked]).T
        count = present.astype(np.float64) @ times
        means = np.divide(filled @ times, count, out=np.full(count.shape, np.nan), where=count > 0)
        some = (~np.isnan(means)).sum(axis=0)
        draw_means = np.divide(np.nansum(means, axis=0), some, out=np.full(DRAWS, np.nan), where=some > 0)
    low, high = np.nanquantile(draw_means, [0.025, 0.975])
    return Interval(float(per_series.mean()), float(low), float(high), len(scored), int(present.sum()))


def log_ratio(ledger: BacktestScores, contender: str, baseline: str) -> Floats:
    """Return an array (n, K) by series and forecast time: log(contender's / baseline's loss); negative is better.

    NaN if the baseline's loss is 0 or the actual day is 0 throughout. Clamped to RATIO_LIMIT, so that one series that a
    forecaster predicts exactly does not decide the mean.
    """
    own, base = (ledger.of_contender["loss"][ledger.index(name)].astype(np.float64) for name in (contender, baseline))
    usable = (base > 0) & (ledger.of_trial["scale"] > 0)
    ratio = np.divide(np.maximum(own, np.finfo(np.float32).tiny), base, out=np.full(own.shape, np.nan), where=usable)
    logs: Floats = np.clip(np.log(ratio), -RATIO_LIMIT, RATIO_LIMIT)
    return logs


def relative(ledger: BacktestScores, contender: str, baseline: str, mask: Flags | None = None) -> Interval:
    """Return `contender`'s WQL / the baseline's, a geometric mean over the trials (n, K) or series (n,) of `mask`."""
    chosen = _mask(ledger, mask)
    logs = np.where(chosen, log_ratio(ledger, contender, baseline), np.nan)
    tried = (chosen & ~np.isnan(ledger.of_contender["loss"][ledger.index(baseline)])).any(axis=1)
    return _exp(bootstrap(logs), int((tried & np.isnan(logs).all(axis=1)).sum()))


def against(ledger: BacktestScores, contender: str, other: str, baseline: str, mask: Flags | None = None) -> Interval:
    """Return `contender`'s relative WQL divided by that of `other`, paired by trial; below 1, `contender` is better."""
    log_difference = log_ratio(ledger, contender, baseline) - log_ratio(ledger, other, baseline)
    return _exp(bootstrap(np.where(_mask(ledger, mask), log_difference, np.nan)), 0)


def _exp(log_interval: Interval, dropped: int) -> Interval:
    value, low, high = np.exp([log_interval.value, log_interval.low, log_interval.high])
    return Interval(float(value), float(low), float(high), log_interval.series, log_interval.trials, dropped)


def _mask(ledger: BacktestScores, mask: Flags | None) -> Flags:
    if mask is None:
        return np.ones((len(ledger.names), len(ledger.origins)), dtype=bool)
    return np.broadcast_to(mask[:, None] if mask.ndim == 1 else mask, (len(ledger.names), len(ledger.origins)))


def pooled_wql(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> float:
    """Return 2 x total pinball loss / total |actual| over the trials of `mask`."""
    loss, scale = ledger.of_contender["loss"][ledger.index(contender)], ledger.of_trial["scale"]
    slots = ledger.of_trial["slots"]
    used = _mask(ledger, mask) & ~np.isnan(loss)
    total = float((slots * scale)[used].sum(dtype=np.float64))
    return 2 * float((slots * loss)[used].sum(dtype=np.float64)) / total if total > 0 else float("nan")


def mase(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> float:
    """Return the mean over series of the mean over forecast times: |median's error| / naive error of the history."""
    error, naive = ledger.of_contender["error"][ledger.index(contender)], ledger.of_trial["naive"]
    ratio = np.divide(error, naive, out=np.full(error.shape, np.nan), where=naive > 0)
    return _mean_of_series(np.where(_mask(ledger, mask), ratio, np.nan))


def coverage(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> Floats:
    """Return for each of L levels the share of actual values at or below that quantile, on the trials of `mask`."""
    used = _mask(ledger, mask)
    below = ledger.covered[ledger.index(contender)][used].sum(axis=0, dtype=np.float64)
    slots = float(np.nan_to_num(ledger.of_trial["slots"])[used].sum(dtype=np.float64))
    return below / slots if slots else np.full(len(LEVELS), np.nan)


def hourly_coverage(ledger: BacktestScores, contender: str) -> Floats:
    """Return an array (24, L): by UTC hour, the share of slots at or below each quantile, over all trials; NaN = none.

    It shows a forecast that is right on average and wrong at one time of day.
    """
    slots = ledger.hourly_slots[:, None]
    shares: Floats = np.divide(
        ledger.hourly[ledger.index(contender)], slots, out=np.full((24, len(LEVELS)), np.nan), where=slots > 0
    )
    return shares


def worst_decile(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> Floats:
    """Return for each of L levels the mean coverage of the tenth of the series with the lowest coverage."""
    used = _mask(ledger, mask)
    below = np.where(used[..., None], ledger.covered[ledger.index(contender)], 0).sum(axis=1, dtype=np.float64)
    slots = np.where(used, np.nan_to_num(ledger.of_trial["slots"]), 0).sum(axis=1, dtype=np.float64)
    share = np.sort(below[slots > 0] / slots[slots > 0][:, None], axis=0)
    return share[: max(1, len(share) // 10)].mean(axis=0) if len(share) else np.full(len(LEVELS), np.nan)


def pinball_by_level(ledger: BacktestScores, contender: str) -> Floats:
    """Return the mean pinball loss at each of L levels over all slots, in the unit of the values."""
    slots = float(np.nan_to_num(ledger.of_trial["slots"]).sum(dtype=np.float64))
    losses: Floats = ledger.level_loss[ledger.index(contender)] / max(slots, 1.0)
    return losses


def winkler(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> float:
    """Return the mean Winkler score of the 80 % interval, relative to the mean actual value."""
    scale = ledger.of_trial["scale"]
    score = ledger.of_contender["winkler"][ledger.index(contender)]
    used = _mask(ledger, mask) & ~np.isnan(score)
    total = float(scale[used].sum(dtype=np.float64))
    return float(score[used].sum(dtype=np.float64)) / total if total > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class PeakScores:
    """Scores of forecast peaks on trials that have a peak: means over series of the mean over forecast times.

    height_50, height_90: quantiles over trials of (forecast - actual) / actual 24-hour peak; late_minutes: without
    sign; equal: share of these days that have several peaks of the same height; window_*: precision and recall of all
    peaks of these days, matched if within an hour. On days without a peak as well: abstain_*: precision and recall of
    the answer "no peak"; covered_95: share of actual peaks at or below the 0.95 level of the peak head.
    """

    hit: Interval
    capture: Interval
    iou: float
    late_minutes: float
    height_50: float
    height_90: float
    abstain_precision: float
    abstain_recall: float
    equal: float
    covered_95: float
    window_precision: float
    window_recall: float


def peaks(ledger: BacktestScores, contender: str, mask: Flags | None = None) -> PeakScores:
    """Return the scores of the peak windows that `contender` forecast, on the trials of `mask` that can be judged.

    Hit, capture and the other measures of a window count only days that really have a peak; precision and recall of
    abstaining compare days without a peak with days on which the forecaster expects none. Terms: `PeakScores`.
    """
    of = {name: values[ledger.index(contender)] for name, values in ledger.of_contender.items()}
    used = _mask(ledger, mask) & ~np.isnan(of["claims"])
    real, claims = ledger.of_trial["real"] > 0, of["claims"] > 0
    moving = used & real

    def within(values: Floats) -> Floats:
        return np.where(moving, values, np.nan)

    heights = of["height"][moving & ~np.isnan(of["height"])]
    low, high = np.quantile(heights, [0.5, 0.9]) if heights.size else (np.nan, np.nan)
    quiet, silent = used & ~real, used & ~claims
    return PeakScores(
        hit=bootstrap(within(of["hit"])),
        capture=bootstrap(within(of["capture"])),
        iou=_mean_of_series(within(of["iou"])),
        late_minutes=_mean_of_series(np.abs(within(of["late_minutes"]))),
        height_50=float(low),
        height_90=float(high),
        abstain_precision=_share(quiet & silent, silent),
        abstain_recall=_share(quiet & silent, quiet),
        equal=_share(moving & (ledger.of_trial["equal"] > 0), moving),
        covered_95=_mean_of_series(np.where(used, of["peak_held_95"], np.nan)),
        window_precision=_quotient(of["windows_matched"], of["windows_said"], moving),
        window_recall=_quotient(of["windows_matched"], ledger.of_trial["windows"], moving),
    )


def _share(part: Flags, denominator: Flags) -> float:
    return float(part.sum() / denominator.sum()) if denominator.any() else float("nan")


def _quotient(part: Floats, denominator: Floats, used: Flags) -> float:
    total = float(denominator[used].sum(dtype=np.float64))
    return float(part[used].sum(dtype=np.float64)) / total if total else float("nan")


def _mean_of_series(values: Floats) -> float:
    means = known_mean(values)
    finite = means[~np.isnan(means)]
    return float(finite.mean()) if finite.size else float("nan")


# --- strata ---

_OF_ACF: Final[Mapping[str, Callable[[Floats], Flags]]] = {
    "ACF24 > 0.5": lambda acf: acf > 0.5,
    "ACF24 0.2-0.5": lambda acf: (acf >= 0.2) & (acf <= 0.5),
    "ACF24 < 0.2": lambda acf: acf < 0.2,
}
_OF_AGE: Final = {"age < 1 d": (0.0, 1.0), "age 1-3 d": (1.0, 3.0), "age 3-7 d": (3.0, 7.0), "age > 7 d": (7.0, np.inf)}
IDLE_SHARE: Final = 0.01


def strata(ledger: BacktestScores) -> dict[str, Flags]:
    """Return the trials (series, times) of each non-empty stratum by autocorrelation at 24 h, limit usage or age."""
    shape = (len(ledger.names), len(ledger.origins))
    age, share = ledger.of_trial["age_days"], ledger.mean / ledger.limits
    masks = {name: np.broadcast_to(test(ledger.acf_24h)[:, None], shape) for name, test in _OF_ACF.items()}
    masks["idle (mean < 1 % of limit)"] = np.broadcast_to((share < IDLE_SHARE)[:, None], shape)
    masks["active (mean >= 1 % of limit)"] = np.broadcast_to((share >= IDLE_SHARE)[:, None], shape)
    masks |= {name: (age >= low) & (age < high) for name, (low, high) in _OF_AGE.items()}
    scored = ~np.isnan(ledger.of_trial["slots"])
    return {name: mask & scored for name, mask in masks.items() if (mask & scored).any()}
