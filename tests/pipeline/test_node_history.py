"""Node peaks learn from all days that were ever stored, whatever the window of the portraits is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as replace_setting

from cotenant.base.identity import NodeRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.forecasting.node_peaks.peak_records import block_maxima
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis, overview, stored_history
from cotenant.pipeline.analysis import BLOCK_SECONDS, Analysis, NodeMaxima
from cotenant.pipeline.nodes import node_history
from cotenant.pipeline.nodes.pod_hours import PROD
from cotenant.pipeline.nodes.reclaimable import pod_totals
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

CPU = Resource.CPU
SPEC = SyntheticSpec(nodes=3, workloads=5, days=28, seed=5)
SETTINGS = replace_setting(Settings(), forecasting=ForecastingSettings(booster_rows=0))
"""Without a booster, which takes most of the time and has no say in a node's peak."""


@pytest.fixture(scope="module")
def analysis(store: Store, cluster: SyntheticCluster) -> Analysis:
    return daily_analysis.analyse(store, SETTINGS, FixedClock(cluster.inventory.time_seconds), Silent())


@pytest.mark.slow
def test_days_before_the_window_are_tested_too(analysis: Analysis) -> None:
    # 14 days hold at most seven decisions' days of a week's record each with an outcome, 28 days three times as many.
    assert analysis.history.window.size == 14 * 288
    assert (analysis.prod_peaks[CPU].days >= 7).all()
    assert (analysis.prod_peaks[Resource.MEMORY].days >= 7).all()


def test_what_was_stored_is_gone_on_from_when_usage_and_gone_pods_are_forgotten(
    store: Store, cluster: SyntheticCluster, analysis: Analysis
) -> None:
    daily_analysis.publish(analysis, store, SETTINGS)
    assert store.keep(15) > 0
    store.write_inventory(replace(cluster.inventory, pods=tuple(p for p in cluster.inventory.pods if p.running)))
    history = stored_history.load(store, SETTINGS)
    totals = {CPU: analysis.pod_totals[CPU].prod}
    again = node_history.maxima_of_nodes(store, history, totals, SETTINGS.node_peak)[CPU]
    before = analysis.node_maxima[CPU]
    assert again.start_seconds == before.start_seconds
    assert np.array_equal(again.values, before.values, equal_nan=True)


@pytest.mark.slow
def test_a_day_of_pods_that_nobody_remembers_is_unknown(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), CLUSTER)
    cluster = fill(store, SyntheticSpec(nodes=2, workloads=4, days=17, seed=5), Silent())
    middle = cluster.spec.grid.end_seconds - 15 * DAY_SECONDS
    inventory = cluster.inventory
    # Half of what ran is no longer known, as after an update of a version that forgot gone pods with the window.
    store.write_inventory(replace(inventory, pods=inventory.pods[::2]))
    history = stored_history.load(store, SETTINGS)
    totals = {CPU: pod_totals(history, CPU).prod}
    maxima = node_history.maxima_of_nodes(store, history, totals, SETTINGS.node_peak)[CPU]
    assert maxima.start_seconds < middle
    assert np.isnan(maxima.before(middle)).all()
    assert np.isfinite(maxima.values[:, -4:]).any()


def test_maxima_lie_on_borders_of_six_hours_and_are_those_of_the_totals(
    cluster: SyntheticCluster, analysis: Analysis
) -> None:
    maxima, totals = analysis.node_maxima[CPU], analysis.pod_totals[CPU].prod
    assert maxima.start_seconds % (6 * 3600) == 0
    day = TimeGrid.from_span(maxima.end_seconds - DAY_SECONDS, maxima.end_seconds, FIVE_MINUTES_SECONDS)
    inside = slice(totals.grid.index_of(day.start_seconds), totals.grid.index_of(day.end_seconds))
    assert np.array_equal(maxima.values[:, -4:], block_maxima(totals.values[:, inside], 288), equal_nan=True)
    assert cluster.usage[Signal.CPU_USAGE_MEAN].grid.start_seconds <= maxima.start_seconds
    # The window's own blocks are counted from its 5-minute totals: only blocks that are over before it count as older.
    older = maxima.before(totals.grid.start_seconds).shape[1]
    assert maxima.start_seconds + older * 6 * 3600 <= totals.grid.start_seconds


def test_maxima_of_another_run_fill_the_nodes_and_blocks_that_both_have() -> None:
    border = 6 * 3600
    mine = NodeMaxima((NodeRef("a"), NodeRef("b")), border, np.full((2, 3), np.nan))
    mine.take(NodeMaxima((NodeRef("b"), NodeRef("c")), 0, np.array([[1.0, 2.0], [3.0, 4.0]])))
    assert np.array_equal(mine.values, [[np.nan, np.nan, np.nan], [2.0, np.nan, np.nan]], equal_nan=True)


def used_by_prod(store: Store, analysis: Analysis, start_seconds: int) -> dict[str, np.ndarray]:
    """CPU of prod's pods by node in six stored hours, summed pod by pod."""
    grid = TimeGrid.from_span(start_seconds, start_seconds + BLOCK_SECONDS, FIVE_MINUTES_SECONDS)
    usage = store.read(Signal.CPU_USAGE_MEAN, grid)
    node_of = {(p.namespace, p.name): p.node for p in analysis.history.inventory.pods if p.effective_priority in PROD}
    sums = {node.name: np.zeros(grid.size) for node in analysis.history.inventory.nodes}
    for ref, row in zip(usage.refs, usage.values, strict=True):
        if (ref.namespace, ref.pod) in node_of:
            sums[node_of[ref.namespace, ref.pod]] += np.nan_to_num(row)
    return sums


@pytest.mark.parametrize("days_ago", [3, 13])
def test_how_long_the_worst_day_lasted_is_read_from_the_usage_of_then(
    store: Store, analysis: Analysis, days_ago: int
) -> None:
    """Also of a day before the window of the analysis, which ends with the whole hours of the demo's last day."""
    peaks, window = analysis.prod_peaks[CPU], analysis.history.window
    assert peaks.tested is not None
    shape = peaks.tested.peaks.shape
    column = shape[1] - 4 * days_ago
    start = window.end_seconds - 4 * days_ago * BLOCK_SECONDS
    # No peak is passed but in one block, in which each node had kept half of what was then its highest use.
    in_force = np.full(shape, np.inf)
    in_force[:, column] = peaks.tested.highest[:, column] / 2
    tested = replace(peaks.tested, peaks=np.where(np.isfinite(in_force), in_force, 1e12))
    short_window = TimeGrid.from_span(window.end_seconds - 7 * DAY_SECONDS, window.end_seconds, window.step_seconds)
    prod = analysis.pod_totals[CPU].prod
    totals = replace(prod, grid=short_window, values=prod.values[:, -short_window.size :])
    day = node_history.worst_days(
        store,
        analysis.history,
        {CPU: totals},
        analysis.node_maxima,
        {CPU: replace(peaks, tested=tested)},
    )[CPU]
    used = used_by_prod(store, analysis, start)
    names = [ref.name for ref in peaks.refs]
    each = [300 * (used[n] > bound).sum() for n, bound in zip(names, in_force[:, column].tolist(), strict=True)]
    assert (day.start_seconds, day.short_nodes) == (start, len(names))
    assert day.mean_short_seconds == pytest.approx(np.mean(each))
    assert 0 < np.mean(each) <= BLOCK_SECONDS


def test_the_overview_has_the_worst_day_in_numbers_and_words(analysis: Analysis) -> None:
    # Six-hourly decisions from the first that has half of its seventh day (6.5 days) to a day before the end (27): 83,
    # which are 20 whole days.
    page = overview.overview(analysis, demo=False, strategy="balanced")
    assert set(page.worst_days) == {"cpu", "memory"}
    assert [day.tested_days for day in page.worst_days.values()] == [20, 20]
    assert [worst_day_sentence.partition(" at a risk ")[0] for worst_day_sentence in page.worst_day_sentences] == [
        "CPU",
        "Memory",
    ]
