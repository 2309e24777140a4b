"""The analysis on a small synthetic cluster: results follow from the stored history, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.base.errors import NoData
from cotenant.base.inventory.partial_inventory import without_over
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.store.tables import rows_of
from cotenant.base.table import Table
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal
from cotenant.manager.decisions.results import RunResults, collect
from cotenant.pipeline import daily_analysis, day_margins, stored_history, tables
from cotenant.pipeline.analysis import Analysis
from cotenant.pipeline.nodes.reclaimable import peak_forecasts
from cotenant.pipeline.overview import overview as summarised
from cotenant.recommender.colocation.controller import _peak
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.views import (
    FORECASTS,
    NODES,
    RECLAIMABLE,
    RECOMMENDATIONS,
    WORKLOADS,
    Overview,
    portraits_of,
)
from cotenant.recommender.settings import CotenantSettings, RecommenderSettings
from cotenant.recommender.stored_recommendations import Explanations
from cotenant.recommender.strategies.cotenant import day_risk
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import outlooks_of
from cotenant.settings import Settings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec

SPEC = SyntheticSpec(nodes=8, workloads=60, days=8, seed=3)


@pytest.fixture(scope="module")
def analysis(store: Store, cluster: SyntheticCluster) -> Analysis:
    daily = daily_analysis.analyse(store, Settings(), FixedClock(cluster.inventory.time_seconds), Silent())
    store.write_document(FACTS, StoreFacts(demo=True))
    daily_analysis.publish(daily, store, Settings())
    return daily


@pytest.fixture(scope="module")
def overview(store: Store, analysis: Analysis) -> Overview:
    document = store.read_document("overview", Overview)
    assert document is not None
    return document


def test_a_store_stays_a_demo_s_whoever_writes_the_next_results(store: Store, analysis: Analysis) -> None:
    daily_analysis.publish(analysis, store, Settings())  # as `cotenant scan --offline` does, which knows of no demo
    marked = store.read_document("overview", Overview)
    store.write_document(FACTS, StoreFacts())
    daily_analysis.publish(analysis, store, Settings())
    plain = store.read_document("overview", Overview)
    store.write_document(FACTS, StoreFacts(demo=True))
    assert marked is not None and marked.demo
    assert plain is not None and not plain.demo


def test_what_is_stored_by_namespace_goes_with_its_namespace(store: Store, analysis: Analysis) -> None:
    (row, *_) = analysis.recommendations
    here = row.container.workload.namespace
    store.write_document("explain@gone", [row])
    store.write_table(Table.from_rows(portraits_of("gone"), []))
    daily_analysis.publish(analysis, store, Settings())
    assert Explanations(store).of_namespace("gone") == []
    assert row in Explanations(store).of_namespace(here)
    names = {name for name in store.folders(f"runs/{max(store.folders('runs'))}") if "@" in name}
    assert {"gone" in name for name in names} == {False}
    assert {f"explain@{here}.json", f"portraits@{here}.parquet"} <= names


def test_every_workload_container_and_node_has_its_row(store: Store, analysis: Analysis) -> None:
    inventory = analysis.history.inventory
    assert {w.ref for w in inventory.workloads} <= set(analysis.workloads.refs)
    assert len(store.read_table(WORKLOADS)) == len(analysis.workloads.refs)
    for row in store.read_table(WORKLOADS).rows():
        assert all((row[f"{r}_p95"] or 0) <= (row[f"{r}_max"] or 0) for r in Resource), "no p95 is above the highest"
    assert len(store.read_table(RECOMMENDATIONS)) == sum(len(w.containers) for w in without_over(inventory).workloads)
    assert len(store.read_table(NODES)) == len(inventory.nodes)
    # two resources for the cluster, each node and each workload; two bands for each node and resource
    assert len(store.read_table(FORECASTS)) == 2 * (1 + len(inventory.nodes) + len(analysis.workloads.refs))
    assert len(store.read_table(RECLAIMABLE)) == 2 * 2 * len(inventory.nodes)


def test_the_headline_ratios_follow_from_the_inventory_and_the_newest_hour(
    overview: Overview, cluster: SyntheticCluster
) -> None:
    inventory = cluster.inventory
    room = sum(n.allocatable[Resource.CPU] for n in inventory.nodes)
    # What the scheduler counts for the pods that run, as on the nodes.
    requested = sum(pod.requests.get(Resource.CPU, 0) for pod in inventory.pods if pod.end_seconds is None)
    assert overview.headline.cpu_requests_commitment == pytest.approx(requested / room)
    # Nodes report each slot unless a scrape failed; the sum over nodes of the last hour's mean is the usage now.
    used = np.nanmean(cluster.usage[Signal.NODE_CPU_USAGE_MEAN].values[:, -12:], axis=1).sum()
    assert overview.headline.cpu_utilisation == pytest.approx(used / room, rel=0.03)


def test_a_source_without_cpu_usage_is_as_new_as_its_memory(analysis: Analysis) -> None:
    memory, cpu = (analysis.cluster_totals[resource] for resource in (Resource.MEMORY, Resource.CPU))
    lost = replace(cpu, values=np.full_like(cpu.values, np.nan))
    end = int(memory.grid.times()[-1]) + memory.grid.step_seconds
    without = replace(analysis, cluster_totals={Resource.CPU: lost, Resource.MEMORY: memory})
    assert not np.isnan(memory.values[0, -1])
    assert summarised(without, demo=False, strategy="cotenant").time_seconds == end


def test_a_heat_cell_is_the_mean_of_its_weekday_and_hour(overview: Overview, analysis: Analysis) -> None:
    total = analysis.cluster_totals[Resource.CPU]
    room = sum(n.allocatable[Resource.CPU] for n in analysis.history.inventory.nodes)
    values = [
        float(v)
        for t, v in zip(total.grid.times(), total.values[0], strict=True)
        if np.isfinite(v) and (t // 86_400 + 3) % 7 == 2 and t // HOUR_SECONDS % 24 == 15  # a Wednesday, 15 h
    ]
    assert overview.heat[2][15] == pytest.approx(np.mean(values) / room)


def test_a_namespace_wastes_what_its_workloads_request_and_do_not_use(overview: Overview, analysis: Analysis) -> None:
    worst = overview.waste[0]
    means = dict(zip(analysis.workloads.refs, analysis.workloads.mean[Resource.CPU], strict=True))
    expected = 0.0
    for workload in analysis.history.inventory.workloads:
        if workload.ref.namespace == worst.namespace:
            requested = workload.replicas * sum(c.requests.get(Resource.CPU, 0) for c in workload.staying)
            expected += max(0.0, requested - float(np.nan_to_num(means[workload.ref], nan=requested)))
    assert worst.cpu_millicores == pytest.approx(expected, abs=1)
    assert [w.cpu_millicores for w in overview.waste] == sorted(
        (w.cpu_millicores for w in overview.waste), reverse=True
    )


def test_batch_amounts_can_be_recomputed_from_their_terms(analysis: Analysis) -> None:
    batch = [r for r in analysis.reclaimable if r.band == "batch"]
    assert batch
    for reclaimable in batch:
        taken = sum(amount for name, amount in reclaimable.terms.items() if name != "capacity")
        assert reclaimable.amount == max(0, reclaimable.terms["capacity"] - taken)


def test_nothing_is_reclaimed_on_old_metrics(store: Store, cluster: SyntheticCluster) -> None:
    later = FixedClock(cluster.inventory.time_seconds + HOUR_SECONDS)
    stale = daily_analysis.analyse(store, Settings(), later, Silent()).reclaimable
    assert {(r.amount, r.reason) for r in stale} == {(0, Reason.METRIC_EXPIRED)}


def test_every_recommendation_can_be_explained_from_the_store(store: Store, analysis: Analysis) -> None:
    namespaces = {r.container.workload.namespace for r in analysis.recommendations}
    stored = [r for ns in namespaces for r in store.read_document(f"explain@{ns}", list[Recommendation]) or []]
    assert {r.container for r in stored} == {r.container for r in analysis.recommendations}
    assert all(value.reason for r in stored for value in r.values)


def forecast_rows(analysis: Analysis) -> list[dict[str, Any]]:
    return [row for part in tables.forecast_parts(analysis) for row in rows_of(part, FORECASTS).rows()]


def test_the_same_history_gives_the_same_results(store: Store, analysis: Analysis) -> None:
    again = daily_analysis.analyse(store, Settings(), FixedClock(analysis.computed_seconds), Silent())
    assert again.recommendations == analysis.recommendations
    assert again.reclaimable == analysis.reclaimable
    assert forecast_rows(again) == forecast_rows(analysis)


def test_the_window_is_the_newest_days_of_what_is_stored(store: Store, cluster: SyntheticCluster) -> None:
    settings = Settings(profiler=Settings().profiler.__class__(window_days=2))
    history = stored_history.load(store, settings)
    # two days of 288 five-minute slots, ending where the history ends
    assert history.window.size == 2 * 288
    assert history.window.end_seconds == cluster.spec.grid.end_seconds


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="no usage of pods of cluster prod") as refused:
        daily_analysis.analyse(Store(tmp_path.as_uri(), "prod"), Settings(), FixedClock(0), Silent())
    assert "cotenant scan" in refused.value.fix


def test_every_surface_shows_the_same_peak_window(overview: Overview, analysis: Analysis) -> None:
    for resource in Resource:
        parts = (analysis.cluster_forecasts, analysis.node_forecasts)
        windows = [part[resource].peak_window(row) for part in parts for row in range(len(part[resource].refs))]
        rows = [row for row in forecast_rows(analysis) if row["resource"] == resource]
        assert [(row["peak_time"], row["peak_end"]) for row in rows if row["scope"] != "workload"] == [
            (w.start_seconds, w.end_seconds) if w else (None, None) for w in windows
        ]
    rows = [row for row in forecast_rows(analysis) if (row["scope"], row["resource"]) == ("workload", "cpu")]
    of_workloads = [row["peak_time"] for row in rows]
    assert any(of_workloads) and not all(of_workloads)
    assert [row["peak_time"] for part in analysis.rows[WORKLOADS.name] for row in part.rows()] == of_workloads
    nodes = analysis.node_forecasts[Resource.CPU]
    of_nodes = {ref.name: nodes.peak_window(row) for row, ref in enumerate(nodes.refs)}
    assert {o.node: o.series[Resource.CPU].peak_seconds for o in collect(analysis).nodes} == {
        name: w.start_seconds if w else None for name, w in of_nodes.items()
    }
    forecast = analysis.cluster_forecasts[Resource.CPU]
    window, peak = forecast.peak_window(0), overview.peak
    assert window is not None and peak is not None and peak.pronounced
    assert (peak.start_seconds, peak.end_seconds) == (window.start_seconds, window.end_seconds)
    assert peak.end_seconds - peak.start_seconds == 2 * HOUR_SECONDS
    (row,) = (r for r in tables.forecast_table(forecast).rows() if r["resource"] == "cpu")
    assert peak.height_millicores == overview.cpu.peak == row["peak"]
    # Five minutes of a day are no less busy than its busiest two hours, and the p95 no less than the median.
    assert peak.height_millicores >= window.height
    assert peak.above_mean == pytest.approx(window.height / float(forecast.level(0.5)[0].mean()) - 1, abs=1e-6)


def test_the_descheduler_gets_the_medians_of_workloads_where_it_is_on(analysis: Analysis) -> None:
    assert collect(analysis).workload_medians == ()
    results = msgspec.json.decode(msgspec.json.encode(collect(analysis, with_medians=True)), type=RunResults)
    foreseen = outlooks_of(lambda: results)
    workloads = analysis.workloads
    paths = workloads.medians[Resource.CPU]
    finite = [row for row in range(len(paths)) if np.isfinite(paths[row]).all()]
    assert finite and {workloads.refs[row] for row in finite} <= foreseen.keys()
    for row in finite:
        outlook = foreseen[workloads.refs[row]]
        assert outlook.start_seconds == workloads.grid.start_seconds
        # whole millicores, rounded up
        assert outlook.median[0] == tuple(np.ceil(paths[row].astype(float)).tolist())


def test_without_a_run_of_the_pipeline_no_workload_is_foreseen() -> None:
    def no_run() -> RunResults:
        raise NoData("the first run of the pipeline has not ended yet")

    assert outlooks_of(no_run) == {}


def test_the_managers_peaks_are_those_behind_the_amounts(analysis: Analysis) -> None:
    sent = msgspec.json.decode(msgspec.json.encode(collect(analysis)), type=RunResults)
    for resource in Resource:
        prod, totals = analysis.prod_peaks[resource], analysis.pod_totals[resource]
        behind = peak_forecasts(analysis.history, resource, prod, totals)
        received = {name: _peak(peak) for name, peak in sent.prod_peaks[resource].items()}
        assert {name: (p.peak, p.origins, p.system_peak, p.mid_peak) for name, p in received.items()} == {
            name: (p.peak, p.origins, p.system_peak, p.mid_peak) for name, p in behind.items()
        }
        assert any(p.mid_peak > 0 for p in received.values())
        assert len(received) == SPEC.nodes and all(p.system_peak > 0 for p in received.values())


def test_where_no_peak_is_expected_the_likeliest_hours_are_shown_as_mild(analysis: Analysis) -> None:
    forecast = analysis.cluster_forecasts[Resource.CPU]
    quiet = replace(forecast, windows=((),))
    even = replace(analysis, cluster_forecasts={**analysis.cluster_forecasts, Resource.CPU: quiet})
    peak, window = summarised(even, demo=True, strategy="cotenant").peak, forecast.peak_window(0)
    assert peak is not None and not peak.pronounced and window is not None
    assert peak.start_seconds == window.start_seconds


def test_the_margin_of_the_days_risk_falls_slowly_from_the_last_analysis_on(
    store: Store, analysis: Analysis, cluster: SyntheticCluster
) -> None:
    now = cluster.inventory.time_seconds
    own = RecommenderSettings(cotenant=CotenantSettings(cpu_day_risk=0.05))
    lean = Settings().forecasting.__class__(booster_rows=0)
    settings = Settings(recommender=own, forecasting=lean, profiler=Settings().profiler.__class__(window_days=8))
    of_day = {r.container: v for r in analysis.recommendations for v in r.values if v.resource is Resource.CPU}
    high, *_ = of_day
    stored = [
        replace(r, values=(replace(of_day[high], inputs={day_risk.MARGIN_INPUT: 50.0}),))
        for r in analysis.recommendations
        if r.container == high
    ]
    day_margins.write(store, settings, stored, now - DAY_SECONDS)
    again = daily_analysis.analyse(store, settings, FixedClock(now), Silent())
    margins = {
        r.container: float(v.inputs[day_risk.MARGIN_INPUT])
        for r in again.recommendations
        for v in r.values
        if day_risk.MARGIN_INPUT in v.inputs
    }
    assert margins[high] == pytest.approx(50 * 0.96)
    assert len(margins) > 50
    assert max(m for ref, m in margins.items() if ref != high) < 48
    daily_analysis.publish(again, store, settings)
    assert day_margins.read(store, settings, now)[high] == pytest.approx(50 * 0.96)
    other = Settings(recommender=RecommenderSettings(cotenant=CotenantSettings(cpu_day_risk=0.1)))
    assert day_margins.read(store, other, now) == {}
