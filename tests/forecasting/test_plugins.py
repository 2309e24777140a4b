"""A forecaster of somebody's own: the documented example, installed and competing, and others that misbehave."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.base.errors import SettingsError
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, TimeGrid
from cotenant.forecasting.base import Forecaster
from cotenant.forecasting.forecaster_contract import faults
from cotenant.forecasting.members import MEMBERS
from cotenant.forecasting.plugins import Guarded, members
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.forecasting.test_every_member import assert_contract, days, grid_of
from tests.support.command_line import cotenant

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "forecaster-plugin"
NAME = "example-median-week"


def example() -> Forecaster:
    spec = importlib.util.spec_from_file_location("example", EXAMPLE / "cotenant_example_forecaster.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    forecaster: Forecaster = module.ExampleMedianWeek()
    return forecaster


class Answers:
    """A forecaster that answers what it is told to."""

    name = "answers"

    def __init__(self, function: Any) -> None:
        self.answer = function

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Any:  # noqa: ARG002 - the contract
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(history, horizon) if callable(self.answer) else self.answer


def changing(history: FloatMatrix, horizon: int) -> Any:
    history[:] = 0
    return np.zeros((len(history), horizon, len(LEVELS)))


def crowded(history: FloatMatrix, horizon: int) -> Any:
    return np.full((len(history), horizon, len(LEVELS)), len(history))


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.name)
def test_the_built_in_members_keep_what_is_asked_of_plug_ins(member: Forecaster) -> None:
    assert faults(member) == ()


def test_the_documented_example_keeps_the_contract_and_knows_the_hour() -> None:
    model = example()
    assert faults(model) == ()
    history = np.tile(np.arange(48.0), 7)[None]
    # Seven days alike: every quantile of half hour h is h.
    quantiles = model.quantiles(history.astype(np.float32), grid_of(7 * 48), 60)
    assert quantiles[0, :, LEVELS.index(0.5)].tolist() == [*range(48), *range(12)]


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda h, n: np.zeros((len(h), n)), "not (series, horizon, levels)"),
        (lambda h, n: np.full((len(h), n, len(LEVELS)), np.inf), "not finite"),
        (lambda h, n: np.full((len(h), n, len(LEVELS)), -1.0), "below 0"),
        (lambda h, n: np.tile(np.arange(len(LEVELS))[::-1], (len(h), n, 1)), "a higher quantile level is below"),
        (changing, "modifies the history"),
        (crowded, "depends on the other series"),
    ],
)
def test_what_a_model_does_not_keep_is_named(function: Any, fault: str) -> None:
    assert any(fault in sentence for sentence in faults(Answers(function)))


@pytest.mark.parametrize(
    "function",
    [
        RuntimeError("no"),
        None,
        np.zeros((3, 2)),
        changing,
        lambda h, n: np.full((len(h), n, len(LEVELS)), np.inf),
        lambda h, n: np.tile(np.arange(len(LEVELS))[::-1] - 5.0, (len(h), n, 1)),
    ],
)
def test_whatever_a_plug_in_does_its_place_holds_a_lawful_answer(function: Any) -> None:
    history = days(14).astype(np.float32)
    before = history.copy()
    values = Guarded(Answers(function), "mine").quantiles(history, grid_of(14 * 48), 48)
    assert_contract(values, 3)
    np.testing.assert_array_equal(history, before)


def test_names_that_are_taken_or_not_installed_are_refused() -> None:
    assert members(()) == MEMBERS
    with pytest.raises(SettingsError, match="is used twice"):
        members(("recent-3h",))
    with pytest.raises(SettingsError, match="no forecaster is named 'mine'"):
        members(("mine",))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the example installed by pip, offline."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")  # building leaves files beside the source
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "site"),
        str(folder / "source"),
    ]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    yield folder / "site"


@pytest.mark.slow
def test_an_installed_forecaster_competes_with_the_built_in_ones(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    store = Store((tmp_path / "store").as_uri(), CLUSTER)
    fill(store, SyntheticSpec(nodes=4, workloads=30, days=9, seed=9), Silent())
    options = ["--store", store.url, "--set", f"forecasting.plugins={NAME}"]

    def run(*command: str) -> str:
        done = cotenant(*command, variables={"COTENANT_FORECASTING__BOOSTER_ROWS": "0"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("scan", "--offline", "-q", *options)
    rows = json.loads(run("get", "forecast", "--scope", "workload", "-o", "json", "--store", store.url))
    compared = [row["losses"] for row in rows if row["losses"]]
    assert len(compared) > 20 and all(NAME in losses for losses in compared)
    # It is no worse than its rivals everywhere, so somebody is served by it.
    assert any(NAME in row["model"] for row in rows)
