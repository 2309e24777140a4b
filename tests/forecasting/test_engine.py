"""The room's front door: reasons, alignment, robustness against what real history looks like."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from cotenant.base.identity import NodeRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import LEVELS, Forecasts, WindowKind
from cotenant.base.usage.histogram import CPU_BUCKETS, HistogramBatch
from cotenant.base.usage.portrait import Pattern, Portraits
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast, forecast_and_learn
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.profiler import portrait
from cotenant.profiler.settings import PortraitSettings

DEFAULTS = ForecastingSettings()
START = 1_699_833_600
DAY = 288
MEDIAN = LEVELS.index(0.5)


def refs(count: int) -> tuple[NodeRef, ...]:
    return tuple(NodeRef(f"n{i}") for i in range(count))


def usage_of(values: np.ndarray, start: int = START) -> Usage[NodeRef]:
    values = np.atleast_2d(values).astype(np.float32)
    return Usage(refs(len(values)), TimeGrid(start, 300, values.shape[1]), values, Resource.CPU, Statistic.MEAN)


def portraits_of(values: np.ndarray, names: tuple[NodeRef, ...] = ()) -> Portraits[NodeRef]:
    """Histogram and maximum are all that a forecast reads of a portrait; the other columns are empty."""
    size = len(values)
    none, nan, times = np.zeros(size), np.full(size, np.nan), START + 300 * np.arange(values.shape[1])
    return Portraits(
        refs=names or refs(size),
        resource=Resource.CPU,
        step_seconds=300,
        end_seconds=START,
        histograms=HistogramBatch.empty(size, CPU_BUCKETS, 86_400).add(values, times),
        startup_max=nan,
        startup_samples=none,
        first_seconds=nan,
        last_seconds=nan,
        seen=none,
        square_sums=none,
        daily_maxima=np.fmax.reduce(values, axis=1, initial=np.nan)[:, None].astype(np.float64),
        daily_sums=none[:, None],
        daily_counts=none[:, None],
        slot_sums=np.zeros((size, 2, 48)),
        slot_counts=np.zeros((size, 2, 48)),
        slot_maxima=np.full((size, 7, 48), np.nan),
        pattern=(Pattern.UNKNOWN,) * size,
    )


NOBODY = portraits_of(np.empty((0, 0)))


def run(values: np.ndarray, portraits: Portraits[NodeRef] = NOBODY, start: int = START) -> Forecasts[NodeRef]:
    forecasts = forecast(usage_of(values, start), portraits, DEFAULTS)
    assert_lawful(forecasts)
    return forecasts


def assert_lawful(forecasts: Forecasts[NodeRef]) -> None:
    size = len(forecasts.refs)
    assert forecasts.quantiles.shape == (size, 48, len(LEVELS))
    assert forecasts.peak.shape == (size, len(LEVELS))
    assert forecasts.quantiles.dtype == forecasts.peak.dtype == np.float32
    for row, reason in enumerate(forecasts.reason):
        both = np.append(forecasts.quantiles[row], forecasts.peak[[row]], axis=0)
        if reason is Reason.NO_DATA:
            assert np.isnan(both).all()
        else:
            assert np.isfinite(both).all()
            assert (both >= 0).all()
            # P(highest of a day <= x) <= P(one value, or a mean, <= x): so at each level the highest is no lower.
            assert (forecasts.peak[row] >= forecasts.quantiles[row].max(axis=0)).all()
            if forecasts.fine is not None:
                assert (forecasts.peak[row] * (1 + 1e-6) >= forecasts.fine.paths()[row].max(axis=0)).all()
            assert (np.diff(both, axis=-1) >= 0).all()


def days(count: float, series: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    slots = np.arange(round(DAY * count))
    return np.abs(500 - 300 * np.cos(2 * np.pi * slots / DAY) + rng.normal(0, 30, (series, len(slots))))


def test_a_daily_series_gets_its_shape_its_peak_and_its_error() -> None:
    forecasts = run(days(14, 8))
    assert forecasts.grid == TimeGrid(START + 14 * 86_400, 1800, 48)
    assert set(forecasts.reason) == {Reason.OK}
    # Lowest at midnight, highest at noon (slot 24).
    assert np.abs(forecasts.level(0.5)[:, 24] - 800).max() < 60
    assert np.abs(forecasts.level(0.5)[:, 0] - 200).max() < 60
    for windows, error in zip(forecasts.windows, forecasts.error, strict=True):
        (peak,) = [w for w in windows if w.kind is WindowKind.PEAK]
        assert peak.start_seconds < START + 14 * 86_400 + 43_200 < peak.end_seconds
        assert error.relative_wql < 1
        assert error.origins == 5
    # The highest of 288 values around a noon of 800 with noise 30 lies some three deviations above.
    assert (forecasts.peak_level(0.5) > 820).all()
    assert (forecasts.peak_level(0.95) < 1000).all()


def test_a_peak_at_another_hour_each_day_is_announced() -> None:
    values = np.random.default_rng(5).normal(100, 2, (3, 14 * DAY))
    for day in range(14):
        start = day * DAY + 12 * (8 + (5 * day) % 12)
        values[:, start : start + 24] += 100
    forecasts = run(values)
    # The median of such days is even; each of them has a peak of twice the rest between 8 and 22 o'clock.
    assert set(forecasts.reason) == {Reason.OK}
    for row in range(3):
        peak = forecasts.peak_window(row)
        assert peak is not None and peak.end_seconds - peak.start_seconds == 7200
        assert 8 <= (peak.start_seconds - forecasts.grid.start_seconds) / 3600 <= 20


def test_a_total_s_peak_is_measured_against_what_is_allocatable() -> None:
    # 500 -+ 60: 0.24 of the mean, 12 % of 1,000 but 1.2 % of 10,000.
    values = 500 - 60 * np.cos(2 * np.pi * np.arange(14 * DAY) / DAY)[None]
    usage = usage_of(np.repeat(values, 3, axis=0))
    forecasts = forecast(usage, NOBODY, DEFAULTS, allocatable=np.array([1e3, 1e4, np.nan]))
    assert forecasts.reason == (Reason.OK, Reason.NO_PEAK, Reason.NO_PEAK)
    peak = forecasts.peak_window(0)
    assert peak is not None and peak.start_seconds < forecasts.grid.start_seconds + 43_200 < peak.end_seconds


def test_every_tested_model_s_loss_is_told_relative_to_the_first() -> None:
    forecasts = run(np.append(days(14, 3), np.full((1, 14 * DAY), np.nan), axis=0))
    assert forecasts.losses is not None and forecasts.losses.shape == (4, len(forecasts.members))
    # The first is the seasonal naive of the day, and what everything is relative to.
    assert forecasts.members[0] == "seasonal-naive-day"
    assert forecasts.losses[:3, 0] == pytest.approx(np.ones(3))
    # The last twelve hours do not know that the day has a shape, a seasonal naive does.
    assert (forecasts.losses[:3, forecasts.members.index("recent-12h")] > 1.5).all()
    for losses, model in zip(forecasts.losses[:3], forecasts.model, strict=False):
        assert forecasts.members[int(losses.argmin())] in model.split(" + ")
    assert np.isnan(forecasts.losses[3]).all()


def test_the_origin_is_the_last_whole_half_hour() -> None:
    forecasts = run(days(5)[:, :-4])
    assert forecasts.grid.start_seconds == START + 5 * 86_400 - 1800


def test_a_history_that_starts_at_odd_minutes_is_aligned_to_the_clock() -> None:
    forecasts = run(days(5), start=START + 600)
    assert forecasts.grid.start_seconds == START + 5 * 86_400


def test_no_sample_anywhere_is_no_data() -> None:
    forecasts = run(np.full((1, 5 * DAY), np.nan))
    assert forecasts.reason == (Reason.NO_DATA,)
    assert forecasts.windows == ((),)


def test_no_series_and_no_history_are_answered() -> None:
    assert run(np.empty((0, 14 * DAY))).refs == ()
    assert run(np.empty((2, 0))).reason == (Reason.NO_DATA,) * 2


@pytest.mark.parametrize("length", [1 / 24, 0.25, 1, 1.9])
def test_a_young_series_shows_its_portrait(length: float) -> None:
    values = np.full((1, round(DAY * length)), 400.0)
    forecasts = run(values, portraits_of(values))
    assert forecasts.reason == (Reason.FROM_PORTRAIT,)
    assert forecasts.model == ("portrait",)
    # The end of the bucket that holds 400 m, at most 5 % above.
    assert (forecasts.quantiles >= 400).all()
    assert (forecasts.quantiles <= 420.1).all()
    assert forecasts.error[0].origins == 0


def test_a_young_cluster_of_thousands_of_cores_is_forecast_at_its_own_height() -> None:
    usage = usage_of(3e6 + 4e5 * np.sin(2 * np.pi * np.arange(DAY) / DAY))
    portraits = portrait.build(usage.refs, np.array([0]), usage, PortraitSettings())
    forecasts = forecast(usage, portraits, DEFAULTS)
    assert forecasts.reason == (Reason.FROM_PORTRAIT,)
    # Buckets end at most 5 % above the samples in them; half of a sine's time is spent below its middle.
    assert forecasts.level(0.5)[0] == pytest.approx(np.full(48, 3e6), rel=0.05)
    assert 3.3e6 < forecasts.level(0.95)[0, 0] <= forecasts.peak_level(0.95)[0] == pytest.approx(3.4e6)


def test_a_portrait_is_found_by_name() -> None:
    values = np.array([[100.0] * 12, [800.0] * 12])
    forecasts = run(values, portraits_of(values[::-1], refs(2)[::-1]))
    # Buckets 8 and 32 end at 10 (1.05^9 - 1) / 0.05 = 110.27 and at 10 (1.05^33 - 1) / 0.05 = 800.6.
    assert forecasts.level(0.5)[0, 0] < 111
    assert forecasts.level(0.5)[1, 0] > 800


def test_a_young_series_without_portrait_shows_its_own_quantiles() -> None:
    forecasts = run(np.full((1, DAY), 400.0))
    assert forecasts.reason == (Reason.FROM_PORTRAIT,)
    assert (forecasts.quantiles == 400).all()


def test_three_days_are_enough_for_a_tested_forecast() -> None:
    forecasts = run(days(3, 3))
    assert set(forecasts.reason) == {Reason.OK}
    assert {e.origins for e in forecasts.error} == {1}


def test_a_silent_series_is_stale_and_shows_its_portrait() -> None:
    values = days(10)
    portraits = portraits_of(values)
    values[:, -DAY - 6 :] = np.nan
    assert run(values, portraits).reason == (Reason.STALE,)
    assert run(np.full((1, 10 * DAY), np.nan), portraits).reason == (Reason.STALE,)


@pytest.mark.parametrize("slots", [1, 24, DAY, 3 * DAY], ids=["5min", "2h", "24h", "3d"])
def test_a_scrape_gap_does_not_lower_the_forecast(slots: int) -> None:
    values = np.full((1, 14 * DAY), 500.0)
    values[:, 9 * DAY : 9 * DAY + slots] = np.nan
    forecasts = run(values)
    assert (forecasts.quantiles == 500).all()
    assert (forecasts.peak == 500).all()
    assert forecasts.reason == (Reason.NO_PEAK,)


@pytest.mark.parametrize("level", [0.0, 250.0])
def test_constant_and_dead_series_have_no_peak(level: float) -> None:
    forecasts = run(np.full((2, 14 * DAY), level))
    assert (forecasts.quantiles == level).all()
    assert (forecasts.peak == level).all()
    assert forecasts.reason == (Reason.NO_PEAK,) * 2


def test_nan_infinity_and_negative_values_count_as_gaps() -> None:
    dirty = days(14, 2)
    clean = dirty.copy()
    dirty[:, 100:110], dirty[:, 200:205], dirty[:, 300:320] = np.inf, -5.0, np.nan
    clean[:, 100:110], clean[:, 200:205], clean[:, 300:320] = np.nan, np.nan, np.nan
    np.testing.assert_array_equal(run(dirty).quantiles, run(clean).quantiles)


def test_an_outlier_burst_does_not_move_the_path() -> None:
    values = days(14, 4)
    burst = values.copy()
    burst[0, 2000:2006] = 1e7
    calm, other = run(values).level(0.5)[0], run(burst).level(0.5)[0]
    assert np.abs(calm - other).max() < 60


@pytest.mark.parametrize("poison", [1e9, np.nan])
def test_what_comes_after_the_window_is_not_read(poison: float) -> None:
    clean = days(15, 3).astype(np.float32)
    dirty = clean.copy()
    dirty[:, 14 * DAY :] = poison
    cut = [
        Usage(refs(3), TimeGrid(START, 300, 14 * DAY), v[:, : 14 * DAY], Resource.CPU, Statistic.MEAN)
        for v in (clean, dirty)
    ]
    forecasts, other = (forecast(u, NOBODY, DEFAULTS) for u in cut)
    np.testing.assert_array_equal(forecasts.quantiles, other.quantiles)
    np.testing.assert_array_equal(forecasts.peak, other.peak)
    assert forecasts.error == other.error


def test_a_level_shift_is_followed_within_days() -> None:
    values = days(14, 4)
    values[:, -2 * DAY :] *= 3
    forecasts = run(values)
    # Noon is now at 2400; yesterday and recent values know it, two weeks do not.
    assert (forecasts.level(0.5)[:, 24] > 1600).all()
    assert (forecasts.peak_level(0.9) > 2000).all()


def test_scaling_usage_scales_everything() -> None:
    forecasts, other = run(days(14, 5)), run(days(14, 5) * 1024)
    assert forecasts.model == other.model
    np.testing.assert_allclose(other.quantiles, forecasts.quantiles * 1024, rtol=1e-5)
    np.testing.assert_allclose(other.peak, forecasts.peak * 1024, rtol=1e-5)


def test_a_peak_is_never_below_the_path() -> None:
    values = days(14, 3)
    values[1, -DAY:] = np.linspace(100, 3000, DAY)
    forecasts = run(values)
    assert (forecasts.peak[:, 0] >= forecasts.level(0.5).max(axis=1)).all()


@pytest.mark.slow
def test_more_series_than_one_shard_holds_are_all_answered() -> None:
    forecasts = run(np.repeat(days(3), 1203, axis=0))
    assert len(forecasts.reason) == len(forecasts.model) == len(forecasts.error) == 1203
    # A shard shares what is pooled, so equal series get equal answers inside one.
    assert (forecasts.quantiles[:1000] == forecasts.quantiles[0]).all()
    assert (forecasts.quantiles[1000:] == forecasts.quantiles[1000]).all()
    np.testing.assert_allclose(forecasts.quantiles[1000], forecasts.quantiles[0], rtol=0.05)


def test_an_hourly_grid_is_refused() -> None:
    hourly = Usage(refs(1), TimeGrid(START, 3600, 1), np.ones((1, 1), np.float32), Resource.CPU, Statistic.MEAN)
    with pytest.raises(ValueError, match="half an hour"):
        forecast(hourly, NOBODY, DEFAULTS)


def test_history_days_bound_what_is_read() -> None:
    short = msgspec.structs.replace(DEFAULTS, history_days=7)
    old = days(14, 2)
    other = old.copy()
    other[:, : 6 * DAY] = 1e6
    forecasts, two = (forecast(usage_of(v), NOBODY, short) for v in (old, other))
    np.testing.assert_array_equal(forecasts.quantiles, two.quantiles)


def test_no_peak_is_above_what_the_pods_may_use_and_above_all_that_was_seen() -> None:
    rng = np.random.default_rng(7)
    wild = 1_000 * np.exp(rng.normal(0, 1.2, (40, 12))).repeat(DAY, axis=1)
    wild[0, : -2 * DAY] = np.nan  # two days old: it wears the spread of the others
    usage, portraits = usage_of(wild), portraits_of(wild)
    ceiling = np.full(40, np.nan)
    highest_seen = float(np.nanmax(wild[0]))
    free, _ = forecast_and_learn(usage, portraits, DEFAULTS, None)
    assert free.peak[0].max() > 1.5 * highest_seen
    for allowed in (1.2 * highest_seen, 0.5 * highest_seen):
        ceiling[0] = allowed
        bounded, _ = forecast_and_learn(usage, portraits, DEFAULTS, None, None, ceiling)
        assert bounded.peak[0].max() == pytest.approx(max(allowed, highest_seen), rel=1e-5)
        assert np.array_equal(bounded.peak[1:], free.peak[1:]), "nothing is known of the others"
