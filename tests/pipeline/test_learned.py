"""What forecasts learned is kept beside the results: it comes back as it was, or not at all."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cotenant.base.identity import NodeRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS, Statistic, TimeGrid, Usage
from cotenant.forecasting.backtest.engine import no_portraits
from cotenant.forecasting.engine import forecast_and_learn
from cotenant.forecasting.learned import Learned
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis, learned
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec
from tests.support.command_line import cotenant

SPEC = SyntheticSpec(nodes=4, workloads=20, days=4, seed=3)
SETTINGS = msgspec.structs.replace(ForecastingSettings(), booster_rows=3000, booster_minimum_series=20)
LEAN = msgspec.structs.replace(SETTINGS, booster_rows=0)


@pytest.fixture(scope="module", params=[SETTINGS, LEAN], ids=["with a booster", "members"])
def case(request: pytest.FixtureRequest) -> tuple[ForecastingSettings, Learned]:
    values = np.random.default_rng(0).gamma(2.0, 100.0, (30, 6 * 48)).astype(np.float32)
    refs = tuple(NodeRef(f"n{row}") for row in range(30))
    usage = Usage(refs, TimeGrid(1_699_833_600, 1800, 6 * 48), values, Resource.CPU, Statistic.MEAN)
    return request.param, forecast_and_learn(usage, no_portraits(Resource.CPU), request.param, None)[1]


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path.as_uri(), "prod")


def test_it_comes_back_to_the_bit(place: Store, case: tuple[ForecastingSettings, Learned]) -> None:
    settings, lessons = case
    learned.write(place, "workloads-cpu", lessons, settings)
    back = learned.read(place, "workloads-cpu", settings)
    assert back is not None
    assert (back.names, back.end_seconds) == (lessons.names, lessons.end_seconds)
    (fit,), (stored,) = lessons.fits, back.fits
    for part in ("scores", "booster_scores", "lifts", "errors"):
        np.testing.assert_array_equal(getattr(stored, part), getattr(fit, part))
    assert (stored.booster is None) == (settings is LEAN)
    if fit.booster and stored.booster:
        assert (stored.card, stored.booster.rows) == (fit.card, fit.booster.rows)
        for field in fields(fit.booster.trees):
            np.testing.assert_array_equal(
                getattr(stored.booster.trees, field.name), getattr(fit.booster.trees, field.name), strict=True
            )


def test_of_other_settings_another_form_or_another_group_there_is_nothing(
    place: Store, case: tuple[ForecastingSettings, Learned], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, lessons = case
    learned.write(place, "workloads-cpu", lessons, settings)
    assert learned.read(place, "workloads-memory", settings) is None
    assert learned.read(place, "workloads-cpu", msgspec.structs.replace(settings, origins=3)) is None
    monkeypatch.setattr(learned, "_FORM", "0")
    assert learned.read(place, "workloads-cpu", settings) is None


@pytest.mark.parametrize("file", ["workloads-cpu", "workloads-cpu-trees"])
@pytest.mark.parametrize("content", [b"", b"PAR1 no table PAR1"])
def test_a_damaged_file_is_as_if_there_were_none(
    place: Store, case: tuple[ForecastingSettings, Learned], file: str, content: bytes
) -> None:
    settings, lessons = case
    learned.write(place, "workloads-cpu", lessons, settings)
    (path,) = Path(place.url.removeprefix("file://")).rglob(f"{file}.parquet")
    path.write_bytes(content)
    assert learned.read(place, "workloads-cpu", settings) is None
    learned.write(place, "workloads-cpu", lessons, settings)
    assert learned.read(place, "workloads-cpu", settings) is not None


def test_series_and_trees_of_two_learnings_are_nothing(place: Store, case: tuple[ForecastingSettings, Learned]) -> None:
    settings, lessons = case
    learned.write(place, "workloads-cpu", lessons, settings)
    (trees,) = Path(place.url.removeprefix("file://")).rglob("workloads-cpu-trees.parquet")
    older = trees.read_bytes()
    later = replace(lessons, end_seconds=lessons.end_seconds + HOUR_SECONDS)
    learned.write(place, "workloads-cpu", later, settings)
    assert learned.read(place, "workloads-cpu", settings) is not None
    # What a process leaves that ends after the first of its two writes.
    trees.write_bytes(older)
    assert learned.read(place, "workloads-cpu", settings) is None


@pytest.mark.slow
def test_a_later_analysis_goes_on_from_it(store: Store, cluster: SyntheticCluster) -> None:
    settings, clock = Settings(), FixedClock(cluster.inventory.time_seconds)
    first = daily_analysis.analyse(store, settings, clock, Silent())
    daily_analysis.publish(first, store, settings)
    end = first.history.window.end_seconds // 1800 * 1800
    # two resources of workloads, nodes, prod's pods and the cluster
    assert len(first.learned) == 8
    assert first.learned_seconds == end
    second = daily_analysis.analyse(store, settings, clock, Silent())
    assert second.learned == {}
    assert second.learned_seconds == end
    for resource in Resource:
        np.testing.assert_array_equal(second.workloads.medians[resource], first.workloads.medians[resource])
    anew = msgspec.structs.replace(settings.forecasting, relearn_hours=0.0)
    third = daily_analysis.analyse(store, msgspec.structs.replace(settings, forecasting=anew), clock, Silent())
    assert len(third.learned) == 8


@pytest.mark.slow
def test_a_scan_says_how_old_its_back_tests_are_and_makes_them_anew_when_they_are_too_old(
    store: Store, cluster: SyntheticCluster
) -> None:
    settings = Settings()
    analysis = daily_analysis.analyse(store, settings, FixedClock(cluster.inventory.time_seconds), Silent())
    daily_analysis.publish(analysis, store, settings)

    def scanned_after(hours: float) -> str:
        """What an offline scan says where all was learned so many hours before the end of the history."""
        for group in store.block_names("learned-forecasts"):
            own = learned.settings_of(group, settings.forecasting)
            if (lessons := learned.read(store, group, own)) is not None:
                older = replace(lessons, end_seconds=lessons.end_seconds - round(hours * HOUR_SECONDS))
                learned.write(store, group, older, own)
        done = cotenant("scan", "--offline", "--store", store.url, "--cluster", store.cluster, "-o", "csv")
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "back-tests of 3 h ago; new back-tests are made after 12 h" in scanned_after(3)
    # 3 and 9 hours: as old as the setting
    assert "back-tests of the history up to now" in scanned_after(9)
