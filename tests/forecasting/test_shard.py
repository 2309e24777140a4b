"""One shard: the booster's card, what a young shard does without one, and coverage after the level moved."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest

from cotenant.base.settings.base import digest
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.members import MEMBERS
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.shard import ShardForecast, forecast_shard

DEFAULTS = ForecastingSettings()
CHEAP = msgspec.structs.replace(DEFAULTS, booster_rows=0)
START = 1_699_833_600
UPPER = LEVELS.index(0.95)


def daily(series: int, days: int, seed: int = 0, noise: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    slots = np.arange(48 * days)
    height, phase = rng.uniform(100, 1000, (series, 1)), rng.uniform(0, 48, (series, 1))
    shape = 1.5 + np.sin(2 * np.pi * (slots - phase) / 48)
    return (height * shape * np.exp(noise * rng.normal(0, 1, (series, len(slots))))).astype(np.float32)


def shard_forecast(history: np.ndarray, settings: ForecastingSettings = CHEAP) -> ShardForecast:
    return forecast_shard(history, TimeGrid(START, 1800, history.shape[1]), settings, MEMBERS)


@cache
def with_booster() -> ShardForecast:
    return shard_forecast(daily(80, 14), DEFAULTS)


def test_the_card_says_what_the_booster_learned_from() -> None:
    card = with_booster().fit.card
    assert card is not None
    # Five rehearsed days before the origin; it learns from all but the newest, 80 x 48 x 4 = 15,360 rows, of which it
    # draws as many as the settings let it have.
    assert card.trained_seconds == START + 14 * 86_400
    assert card.first_seconds == card.trained_seconds - 5 * 86_400
    assert card.last_seconds == card.trained_seconds - 86_400
    assert (card.rows, card.series) == (12_000, 80)
    assert card.settings_digest == digest(DEFAULTS)
    assert 0.3 < card.relative_loss < 3
    assert 0 <= card.weight <= 1


def test_few_series_do_without() -> None:
    assert shard_forecast(daily(10, 14), DEFAULTS).fit.card is None


def test_a_path_is_lawful_with_and_without_the_booster() -> None:
    for shard in (with_booster(), shard_forecast(daily(12, 14)), shard_forecast(daily(12, 2))):
        assert np.isfinite(shard.path).all()
        assert (shard.path >= 0).all()
        assert (np.diff(shard.path, axis=-1) >= 0).all()


def test_the_booster_does_not_read_what_comes_after() -> None:
    clean = daily(60, 15)
    dirty = clean.copy()
    dirty[:, 14 * 48 :] = 1e9
    forecast, other = (shard_forecast(h[:, : 14 * 48], DEFAULTS) for h in (clean, dirty))
    np.testing.assert_array_equal(forecast.path, other.path)
    assert forecast.fit.card == other.fit.card


def test_every_series_names_what_serves_it() -> None:
    names = {m.name for m in MEMBERS} | {"booster"}
    for model in with_booster().model:
        assert set(model.split(" + ")) <= names


def test_steady_series_are_covered_as_promised() -> None:
    history = daily(150, 16, seed=1)
    shard = shard_forecast(history[:, : 14 * 48])
    covered = (history[:, 14 * 48 : 15 * 48] <= shard.path[:, :, UPPER]).mean()
    # 7,200 slots; days share nothing, so 3 standard errors are 0.008, and the typical lift leans upwards.
    assert 0.94 < covered < 0.98


@pytest.mark.parametrize("hours", [12, 24])
def test_a_day_after_a_level_shift_the_band_covers_again(hours: int) -> None:
    history = daily(60, 16, seed=2)
    history[:, 14 * 48 - 2 * hours :] *= 1.5
    shard = shard_forecast(history[:, : 14 * 48])
    covered = (history[:, 14 * 48 : 15 * 48] <= shard.path[:, :, UPPER]).mean()
    assert covered >= (0.93 if hours == 24 else 0.8)
