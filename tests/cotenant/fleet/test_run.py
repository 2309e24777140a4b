"""The fleet: the same blocks whoever computes them, finished work kept, an hour added without starting again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.apps.pipeline.fleet.blocks import Block, Hours
from cotenant.apps.pipeline.fleet.executors import Dask, Processes, Tls
from cotenant.apps.pipeline.fleet.plan import FleetShard, Share, make
from cotenant.apps.pipeline.fleet.run import Fleet
from cotenant.core.adapters.store import Store
from cotenant.core.model.errors import NoData, UsageError
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.forecast import LEVELS
from cotenant.core.model.usage.usage import HOUR_SECONDS
from cotenant.core.settings.root import Settings
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.peaks import daily_maxima
from tests.cluster.waiting import wait_for
from tests.support.fleet import START, filled, usage_of, values_of

pytestmark = pytest.mark.slow

TaskT = TypeVar("TaskT")
QUICK = Settings(forecasting=ForecastingSettings(history_days=3, booster_rows=0, origins=1))
"""Short histories without a booster: what is tested here is who computes, not how well."""
SERIES, DAYS, SIZE = 200, 4, 100
VALUES = values_of(SERIES, DAYS)


class Here:
    """Computes in this process: what every other executor must equal."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, work: Callable[[TaskT], str], tasks: Sequence[TaskT]) -> Iterator[str]:
        for task in tasks:
            self.done.append(work(task))
            yield self.done[-1]


def fleet(store: Store, size: int = SIZE) -> Fleet:
    return Fleet(store, QUICK, (Resource.CPU,), size)


def every(store: Store) -> Block:
    """Rows of all shards in order."""
    plan = make(store, QUICK, (Resource.CPU,), SIZE)
    parts = [store.read_block(plan.folder, shard.name) for shard in plan.shards]
    return {name: np.concatenate([part[0][name] for part in parts if part]) for name in (parts[0] or ({},))[0]}


def same(a: Block, b: Block) -> bool:
    texts = {name for name in a if a[name].dtype == object}
    return a.keys() == b.keys() and all(
        (a[n] == b[n]).all() if n in texts else np.array_equal(a[n], b[n], equal_nan=True) for n in a
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Block:
    store = filled(tmp_path_factory.mktemp("expected").as_uri(), VALUES)
    fleet(store).run(Here())
    return every(store)


def test_a_pool_of_processes_computes_what_one_process_does(tmp_path: Path, expected: Block) -> None:
    store = filled(tmp_path.as_uri(), VALUES)
    summary = fleet(store).run(Processes(2))
    assert (summary.series, summary.shards, summary.computed, summary.joined) == (SERIES, 2, 2, True)
    assert same(every(store), expected)
    assert expected["quantiles"].shape == (SERIES, 48, len(LEVELS))
    assert np.isfinite(expected["quantiles"]).all()


def test_finished_shards_are_kept_and_a_change_of_input_or_settings_is_seen(tmp_path: Path) -> None:
    store, here = filled(tmp_path.as_uri(), VALUES), Here()
    assert fleet(store).run(here).computed == 2
    assert fleet(store).run(here).computed == 0
    changed = Fleet(store, Settings(forecasting=ForecastingSettings(history_days=3, booster_rows=0, origins=2)))
    assert changed._plan().digest != fleet(store)._plan().digest
    store.append(make(store, QUICK, (Resource.CPU,), SIZE).shards[0].signal, usage_of(VALUES[:1, :1] + 1))
    assert fleet(store).run(here).computed == 2
    assert len(store.folders("fleet")) == 1, "the older plan's blocks are removed once the newer run is finished"


def test_parts_of_an_indexed_job_join_to_the_same_rows(tmp_path: Path, expected: Block) -> None:
    store = filled(tmp_path.as_uri(), VALUES)
    first = fleet(store).run(Here(), Share(1, 2))
    assert (first.computed, first.missing, first.joined) == (1, 1, False)
    with pytest.raises(NoData, match="1 of 2 shards"):
        fleet(store).merge()
    fleet(store).run(Here(), Share(0, 2))
    assert fleet(store).merge().series == SERIES
    assert same(every(store), expected)


@pytest.mark.server
def test_a_run_killed_in_the_middle_goes_on_from_the_shards_it_finished(tmp_path: Path, expected: Block) -> None:
    store = filled(tmp_path.as_uri(), VALUES)
    plan = fleet(store)._plan()
    script = f"from tests.cotenant.fleet.test_run import *\nfleet(Store({store.url!r}, 'big')).run(Here())"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    wait_for("a finished shard", lambda: bool(store.block_names(plan.folder)) or child.poll() is not None)
    child.send_signal(signal.SIGKILL)
    child.wait()
    finished = len(store.block_names(plan.folder))
    assert finished, f"the run ended with {child.returncode} before a shard was there"
    here = Here()
    assert fleet(store).run(here).computed == len(here.done) == 2 - finished
    assert same(every(store), expected)


def kill_once(path: str) -> str:
    """A task that ends its worker the first time."""
    mark = Path(path)
    if not mark.exists():
        mark.write_text("begun")
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def test_a_killed_worker_of_the_pool_costs_only_what_it_was_doing(tmp_path: Path) -> None:
    (tmp_path / "calm").write_text("begun")
    tasks = [str(tmp_path / name) for name in ("calm", "killer")]
    assert sorted(Processes(1).run(kill_once, tasks)) == ["calm", "killer"]


def test_an_hour_is_added_with_peaks_as_from_the_whole_window(tmp_path: Path) -> None:
    hours = DAYS * 24
    store = filled(str((tmp_path / "grown").as_uri()), VALUES, hours - 3)
    fleet(store).run(Here())
    before = every(store)
    plan = make(store, QUICK, (Resource.CPU,), SIZE)
    for hour in (hours - 3, hours - 2, hours - 1):
        block = VALUES[:, hour * 12 : (hour + 1) * 12]
        store.append(plan.shards[0].signal, usage_of(block, hour * 12))
        summary = fleet(store).hour(Here())
    assert summary.end_seconds == START + hours * HOUR_SECONDS
    grown = {
        n: np.concatenate([(store.read_block(plan.folder, s.name) or ({}, {}))[0][n] for s in plan.shards])
        for n in before
    }
    whole = filled((tmp_path / "whole").as_uri(), VALUES)
    fleet(whole).run(Here())
    fresh = every(whole)
    # Maxima are float32 in both, so the peaks agree; a percentile may fall into the next bucket, 5 % away, at most.
    floor = fresh["quantiles"][:, :, LEVELS.index(0.5)].max(axis=1)[:, None]
    own_floor = grown["quantiles"][:, :, LEVELS.index(0.5)].max(axis=1)[:, None]
    free = (fresh["peak"] > floor).all(axis=1) & (grown["peak"] > own_floor).all(axis=1)
    assert free.mean() > 0.5
    assert np.allclose(grown["peak"][free], fresh["peak"][free], rtol=1e-5)
    assert np.allclose(grown["p95"], fresh["p95"], rtol=0.051)
    # The last hour ends at hour 0 of the day: shard 0 had its turn, so its paths are new; those of shard 1 moved on by
    # 3 hours = 6 half hours.
    rest = slice(SIZE, None)
    assert np.array_equal(grown["quantiles"][rest], np.roll(before["quantiles"][rest], -6, axis=1))
    assert np.allclose(grown["quantiles"][:SIZE], fresh["quantiles"][:SIZE], rtol=1e-5)


def test_the_same_hour_twice_changes_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path.as_uri(), VALUES, DAYS * 24 - 1)
    fleet(store).run(Here())
    plan = make(store, QUICK, (Resource.CPU,), SIZE)
    store.append(plan.shards[0].signal, usage_of(VALUES[:, -12:], VALUES.shape[1] - 12))
    fleet(store).hour(Here())
    once = store.read_block(plan.folder, plan.shards[0].name)
    fleet(store).hour(Here())
    twice = store.read_block(plan.folder, plan.shards[0].name)
    assert once and twice and same(once[0], twice[0]) and once[1] == twice[1]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_daily_maxima_from_hours_are_those_of_the_values(data: st.DataObject) -> None:
    hours = data.draw(st.integers(1, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.random((3, hours * 12)).astype(np.float32)
    values[rng.random(values.shape) < data.draw(st.sampled_from([0, 0.4, 0.6]))] = np.nan
    cut = data.draw(st.integers(0, hours))
    grown = Hours.of(values[:, : cut * 12]).then(Hours.of(values[:, cut * 12 :]), 72)
    assert np.array_equal(grown.daily(99), daily_maxima(values, 288), equal_nan=True)


@given(st.integers(1, 9), st.integers(0, 30))
def test_the_parts_of_a_job_are_a_partition(of: int, count: int) -> None:
    shards = [FleetShard(Resource.CPU, i, (None, None), 1) for i in range(count)]
    dealt = [shard.index for part in range(of) for shard in Share(part, of).of_shards(shards)]
    assert sorted(dealt) == list(range(count))


@pytest.mark.parametrize("text", ["", "1", "a/2", "2/2", "-1/2", "1/0", "1/2/3"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        Share.parse(text)


def test_a_tls_scheduler_without_files_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a CA"):
        list(Dask("tls://127.0.0.1:1", Tls()).run(str, [1]))


def test_no_history_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="no whole hour"):
        fleet(Store(tmp_path.as_uri(), "big")).run(Here())
    with pytest.raises(NoData, match="no finished run"):
        fleet(Store(tmp_path.as_uri(), "big")).hour(Here())
