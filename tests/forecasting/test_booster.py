"""The booster: learns what members leave on the table, and the same from the same rows."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import msgspec
import numpy as np
import pytest

from cotenant.base.usage.forecast import LEVELS
from cotenant.forecasting.boosting.booster import (
    TRAINED_LEVELS,
    Booster,
    BoosterInput,
    _fit_models,
    feature_names,
    features,
    scale_of,
    train,
)
from cotenant.forecasting.boosting.trees import LEAVES, of_models
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.settings import ForecastingSettings

DEFAULTS = msgspec.structs.replace(ForecastingSettings(), booster_rows=5000)
STANDARD = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816, 1.6449, 2.0537])
MEMBERS, SERIES = 3, 60


def moment_of(seed: int, scale: float = 1.0) -> tuple[BoosterInput, np.ndarray]:
    """Three members around 1000; the second knows the truth to within 10, and the choice follows the first."""
    rng = np.random.default_rng(seed)
    truth = 1000 + 100 * rng.normal(0, 1, (SERIES, 48))
    centres = np.stack([np.full_like(truth, 1000.0), truth + 10 * rng.normal(0, 1, truth.shape), truth * 0 + 900])
    forecasts = (centres[..., None] + 100 * STANDARD).astype(np.float32) * np.float32(scale)
    history = (1000 + 100 * rng.normal(0, 1, (SERIES, 480))).astype(np.float32) * np.float32(scale)
    moment = BoosterInput(history, forecasts, forecasts[0], np.full(SERIES, 100.0 * scale))
    return moment, (truth * scale).astype(np.float32)


@cache
def trained(settings: ForecastingSettings = DEFAULTS, scale: float = 1.0) -> Booster | None:
    moments, actual = zip(*(moment_of(seed, scale) for seed in range(3)), strict=True)
    return train(moments, np.stack(actual), settings)


def quantiles(booster: Booster, moment: BoosterInput) -> np.ndarray:
    return booster.quantiles(moment, scale_of(moment.path, moment.base))


def test_it_finds_the_member_that_knows() -> None:
    booster, (moment, actual) = trained(), moment_of(99)
    assert booster is not None
    values = quantiles(booster, moment)
    assert values.shape == moment.path.shape
    assert (np.diff(values, axis=-1) >= 0).all()
    # The choice errs by 100, the second member by 10: much of that must be gained on unseen days.
    assert pinball(actual, values).mean() < 0.5 * pinball(actual, moment.path).mean()


def test_the_same_rows_give_the_same_booster() -> None:
    moment = moment_of(99)[0]
    values, other = (quantiles(booster, moment) for booster in (trained(), trained.__wrapped__()) if booster)
    np.testing.assert_array_equal(values, other)


def test_units_do_not_matter() -> None:
    booster, other = trained(), trained(scale=1024.0)
    assert booster is not None
    assert other is not None
    np.testing.assert_allclose(
        quantiles(other, moment_of(99, 1024.0)[0]), 1024 * quantiles(booster, moment_of(99)[0]), rtol=1e-5
    )


def test_rows_are_capped_and_counted() -> None:
    booster = trained()  # of 3 x 60 x 48 = 8,640
    assert booster is not None
    assert (booster.rows, booster.series) == (5000, SERIES)


@pytest.mark.parametrize("change", [{"booster_rows": 0}, {"booster_minimum_series": SERIES + 1}, {"booster_rows": 100}])
def test_too_little_to_learn_from_trains_nothing(change: dict[str, int]) -> None:
    assert trained.__wrapped__(msgspec.structs.replace(DEFAULTS, **change)) is None
    assert train([], np.empty((0, SERIES, 48), np.float32), DEFAULTS) is None


def test_a_thinned_moment_is_a_part_of_the_whole() -> None:
    booster, (moment, _) = trained(), moment_of(7)
    assert booster is not None
    scale = scale_of(moment.path, moment.base)
    np.testing.assert_array_equal(booster.quantiles(moment.thinned(4), scale), booster.quantiles(moment, scale)[:, ::4])


def test_every_column_has_a_name_and_a_finite_value() -> None:
    moment = moment_of(1)[0]
    moment.history[3] = np.nan
    columns = features(moment, np.full(SERIES, 1e-30))
    assert columns.shape[1] == len(feature_names(["a", "b", "c"]))
    assert np.isfinite(columns).all()


def test_levels_above_the_trained_lie_as_in_the_choice() -> None:
    booster, (moment, _) = trained(), moment_of(5)
    assert booster is not None
    values = quantiles(booster, moment)
    upper, high = LEVELS.index(0.98), LEVELS.index(0.9)
    # But where putting the levels in order lifted one of them.
    same = np.isclose(
        values[..., upper] - values[..., high], moment.path[..., upper] - moment.path[..., high], atol=0.01
    )
    assert same.mean() > 0.95


@pytest.mark.parametrize("target", ["steps", "constant"])
def test_trees_predict_what_the_library_that_grew_them_predicts(target: str) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor  # a second of every collection

    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (2000, 5)).astype(np.float32)
    values = np.zeros(2000) if target == "constant" else np.sign(rows[:, 0]) * rows[:, 1] + rng.normal(0, 0.1, 2000)
    models = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=8, max_leaf_nodes=LEAVES, early_stopping=False
        ).fit(rows, values)
        for level in (0.1, 0.9)
    ]
    trees = of_models(models)
    # rows that were learned from lie next to thresholds; others anywhere
    for inputs in (rows, rng.normal(0, 3, (20_000, 5)).astype(np.float32)):
        np.testing.assert_array_equal(trees.predict(inputs), np.stack([m.predict(inputs) for m in models], axis=-1))


def test_rows_are_put_into_bins_once_and_every_level_is_as_if_it_were_trained_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper

    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1, (3000, 4)).astype(np.float32)
    values = np.abs(rows[:, 0]) * rng.normal(0, 1, 3000)
    binned = []
    fit = _BinMapper.fit
    monkeypatch.setattr(_BinMapper, "fit", lambda *arguments, **more: binned.append(1) or fit(*arguments, **more))
    models = _fit_models(rows, values, threads=1)
    assert len(models) == len(TRAINED_LEVELS)
    assert len(binned) == 1  # scikit-learn calls what shares the bins
    for level, model in zip(TRAINED_LEVELS, models, strict=True):
        alone = HistGradientBoostingRegressor(**{**model.get_params(), "quantile": level}).fit(rows, values)
        np.testing.assert_array_equal(model.predict(rows), alone.predict(rows))


def test_the_engine_is_imported_without_scikit_learn() -> None:
    code = """
import sys, cotenant.forecasting.engine
print(sorted({name.split(".")[0] for name in sys.modules} & {"sklearn", "statsmodels", "pandas"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_it_is_trained_without_pandas() -> None:
    code = """
import sys, numpy as np
from cotenant.forecasting.boosting.booster import _fit_models
rows = np.random.default_rng(0).normal(0, 1, (200, 3)).astype(np.float32)
models = _fit_models(rows, rows[:, 0].astype(np.float64), threads=1)
assert models[0].predict(rows[:5]).shape == (5,)
assert "sklearn" in sys.modules and "pandas" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
