"""A store as DataFrames: the rows and numbers of the command line, typed, with units in names."""

from __future__ import annotations

import gc
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cotenant
from cotenant.base.cluster import Container, ContainerRole, PodPhase
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.table import Kind, Schema
from cotenant.base.usage.usage import Signal
from cotenant.changes.commands.recs_table import WORST_FIRST
from cotenant.pipeline import daily_analysis
from cotenant.python_api.tables import times_of
from cotenant.recommender.model.views import FINDINGS, FORECASTS, NODES, RECLAIMABLE, RECOMMENDATIONS, portraits_of
from cotenant.settings import Settings
from tests.support import command_line
from tests.support.dashboard import WEEK, Results, results

LISTED: dict[str, tuple[Schema, tuple[str, ...], bool]] = {
    "recommendations": (RECOMMENDATIONS, ("recs", "list", "--all"), False),
    "nodes": (NODES, ("get", "reclaimable"), False),
    "reclaimable": (RECLAIMABLE, ("get", "reclaimable", "--terms"), True),
    "findings": (FINDINGS, ("get", "findings"), False),
    "forecasts": (FORECASTS, ("get", "forecast", "--scope", "workload"), True),
}
"""Method -> its table, the command that lists the same, and whether a DataFrame holds one resource."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK)


@pytest.fixture(scope="module")
def store(stored: Results) -> cotenant.ClusterStore:
    return cotenant.open_store(stored.store.url)


def on_the_command_line(stored: Results, *arguments: str) -> list[dict[str, Any]]:
    done = command_line.cotenant(*arguments, "--store", stored.store.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def plain(value: Any) -> Any:
    """A cell of a DataFrame as JSON has it: missing = None, times as Unix seconds."""
    if isinstance(value, np.ndarray):
        return [None if np.isnan(v) else v for v in value.tolist()]
    if pd.isna(value):
        return None
    return int(value.timestamp()) if isinstance(value, pd.Timestamp) else value


@pytest.mark.slow
@pytest.mark.parametrize("method", LISTED)
def test_a_frame_has_the_rows_and_numbers_of_the_command_line(
    stored: Results, store: cotenant.ClusterStore, method: str
) -> None:
    schema, arguments, _ = LISTED[method]
    where = {"forecasts": "scope=workload", "recommendations": WORST_FIRST}.get(method, "")
    frame, rows = getattr(store, method)(where), on_the_command_line(stored, *arguments)
    rows = [row for row in rows if row.get("resource", "cpu") == "cpu"]
    assert len(rows) > 5
    # columns stand in the schema's order, a name may have its unit behind it
    assert [name.startswith(c.name) for name, c in zip(frame.columns, schema.columns, strict=True)] == [True] * len(
        schema.columns
    )
    cells = [[plain(value) for value in record] for record in frame.itertuples(index=False)]
    assert cells == [list(row.values()) for row in rows]


@pytest.mark.parametrize("method", LISTED)
def test_every_column_has_a_type_and_every_amount_its_unit(store: cotenant.ClusterStore, method: str) -> None:
    frame = getattr(store, method)()
    units = {Kind.MILLICORES: "_millicores", Kind.BYTES: "_bytes"}
    types = {Kind.TEXT: "str", Kind.NUMBER: "float64", Kind.RATIO: "float64", Kind.LIST: "object"}
    types[Kind.TIME] = "datetime64[s, UTC]"
    for name, column in zip(frame.columns, LISTED[method][0].columns, strict=True):
        assert str(frame[name].dtype) == types.get(column.kind, "Int64"), name
        assert name.endswith(units.get(column.kind, "")), name
    amounts = {"reclaimable": ["amount_millicores"], "forecasts": ["peak_millicores", "q95_millicores"]}
    assert set(amounts.get(method, ())) <= set(frame.columns)


def test_one_filter_grammar_selects_the_rows(store: cotenant.ClusterStore) -> None:
    every = store.recommendations()
    shop = store.recommendations("namespace=shop&sort=-cpu_delta_total")
    expected = every[every["namespace"] == "shop"].sort_values(
        "cpu_delta_total_millicores", ascending=False, kind="stable", na_position="last"
    )
    pd.testing.assert_frame_equal(shop, expected.reset_index(drop=True))
    assert 0 < len(shop) < len(every)
    with pytest.raises(cotenant.UsageError, match="unknown filter 'namespac'") as refused:
        store.recommendations("namespac=shop")
    assert refused.value.fix


def test_a_memory_frame_is_in_bytes_and_an_unknown_resource_is_refused(store: cotenant.ClusterStore) -> None:
    assert set(store.reclaimable(resource="memory")["resource"]) == {"memory"}
    assert "peak_bytes" in store.forecasts(resource="memory").columns
    with pytest.raises(cotenant.UsageError, match="resource='gpu'") as refused:
        store.reclaimable(resource="gpu")
    assert refused.value.fix == "Write 'cpu' or 'memory'."


@pytest.mark.parametrize("fine", [False, True])
def test_paths_are_those_of_the_command_line(stored: Results, store: cotenant.ClusterStore, fine: bool) -> None:
    paths = cotenant.forecast_paths(store.forecasts("scope=workload&ns=pay&workload=checkout"), fine=fine)
    arguments = ("get", "forecast", "pay/Deployment/checkout", *(["--fine"] if fine else []))
    rows = on_the_command_line(stored, *arguments)
    assert len(rows) == (288 if fine else 48)
    assert [int(time.timestamp()) for time in paths["time"]] == [row["time"] for row in rows]
    # the command line shows whole millicores, the DataFrame what is stored
    assert [int(value) for value in paths["q95_millicores"]] == [row["q95"] for row in rows]


def test_paths_of_nothing_are_an_empty_frame_and_of_other_frames_refused(store: cotenant.ClusterStore) -> None:
    empty = cotenant.forecast_paths(store.forecasts("workload=nobody"))
    assert len(empty) == 0
    assert list(empty.columns[-2:]) == ["q90_millicores", "q95_millicores"]
    with pytest.raises(cotenant.FrameError, match="not a DataFrame of forecasts"):
        cotenant.forecast_paths(store.findings())
    with pytest.raises(cotenant.FrameError, match="not a DataFrame of forecasts"):
        cotenant.forecast_paths(store.forecasts("workload=nobody").drop(columns="namespace"))


def test_portraits_hold_the_ladder_and_the_week_of_each_workload(stored: Results, store: cotenant.ClusterStore) -> None:
    frame = store.portraits("ns=pay")
    table = stored.store.read_table(portraits_of("pay"), {"resource": "cpu"})
    ladders = {(r["kind"], r["workload"]): r["ladder"] for r in table.rows()}
    names = ["p50", "p90", "p95", "p98", "p99", "maximum"]
    for row in frame.to_dict("records"):
        assert [row[f"{name}_millicores"] for name in names] == ladders[row["kind"], row["workload"]]
        assert row["hour_of_week_millicores"].shape == (168,)
        # shares of the buckets that hold weight sum to 1; lighter ones than 1e-6 are left out
        assert row["histogram_weights"].sum() == pytest.approx(1, abs=1e-3)
    assert len(frame) == len(ladders) == len(store.workloads("ns=pay"))


def test_an_explanation_gives_every_value_its_formula_and_inputs(store: cotenant.ClusterStore) -> None:
    why = store.explanations("pay/checkout", resource="memory")
    row = store.recommendations("ns=pay&workload=checkout&container=app").iloc[0]
    request = why[(why["container"] == "app") & (why["field"] == "request")].iloc[0]
    assert request["now_bytes"] == row["memory_request_now_bytes"]
    assert request["amount_bytes"] == row["memory_request_bytes"]
    assert request["reason"] == row["memory_reason"]
    assert request["inputs"]["observed_max"] == row["memory_observed_max_bytes"]
    with pytest.raises(cotenant.NoData, match="no recommendation for pay/chekout") as refused:
        store.explanations("pay/chekout")
    assert "checkout" in refused.value.fix


@pytest.mark.slow
def test_a_strategy_on_the_stored_history_proposes_what_the_scan_did(store: cotenant.ClusterStore) -> None:
    pd.testing.assert_frame_equal(store.recommend(), store.recommendations())
    assert set(store.recommend(strategy="krr-simple", where="ns=pay")["strategy"]) == {"krr-simple"}
    with pytest.raises(cotenant.SettingsError, match="'krr'"):
        store.recommend(strategy="krr")


@pytest.mark.slow
def test_the_request_of_a_workload_is_one_number_wherever_it_stands(tmp_path: Path) -> None:
    cluster_store = cotenant.demo_store(tmp_path, nodes=2, workloads=8, days=2, analyse=False)
    stored = Store(tmp_path.as_uri(), cluster_store.cluster)
    before = stored.read_inventory()
    assert before is not None
    workload = next(w for w in before.workloads if w.replicas > 1 and w.ref.kind == "Deployment")
    migrate = Container("migrate", {Resource.CPU: 20_000}, role=ContainerRole.INIT)
    changed = replace(workload, replicas=workload.replicas - 1, containers=(migrate, *workload.containers))
    waiting = next(p for p in before.pods if p.workload == workload.ref and p.running)
    stored.write_inventory(
        replace(
            before,
            workloads=tuple(changed if w.ref == workload.ref else w for w in before.workloads),
            pods=tuple(replace(p, phase=PodPhase.PENDING) if p is waiting else p for p in before.pods),
        )
    )
    daily_analysis.publish(
        daily_analysis.analyse(stored, Settings(), FixedClock(before.time_seconds), Silent()), stored, Settings()
    )
    keys = ["namespace", "kind", "workload"]
    listed = cluster_store.workloads().set_index(keys)
    of_usage = cluster_store.usage().groupby(keys).first()
    for column in ("cpu_request_millicores", "memory_request_bytes"):
        running = listed[column][(listed[column] > 0) & listed.index.isin(of_usage.index)]
        assert len(running) and (running == of_usage[column][running.index]).all()
    # each pod that runs asks for what its init container does, which is more than all that follows it
    mine = listed.loc[(workload.ref.namespace, workload.ref.kind, workload.ref.name)]
    assert mine["cpu_request_millicores"] == 20_000 * (workload.replicas - 1)
    used = mine["cpu_mean_millicores"] / mine["cpu_request_millicores"]  # of a mean in whole millicores
    assert mine["cpu_used_ratio"] == pytest.approx(used, rel=1e-3)


def test_the_folder_of_one_cluster_is_told_from_a_store(tmp_path: Path) -> None:
    cluster_store = cotenant.demo_store(tmp_path / "usage", nodes=1, workloads=3, days=1, analyse=False)
    for place in (tmp_path / "usage" / cluster_store.cluster, f"file://{tmp_path}/usage/{cluster_store.cluster}/"):
        with pytest.raises(cotenant.NoData, match="is the folder of one cluster, not a store") as refused:
            cotenant.open_store(place)
        assert refused.value.fix.endswith(f"{tmp_path}/usage, and {cluster_store.cluster} as the cluster.")
    assert cotenant.open_store(tmp_path / "usage").cluster == cluster_store.cluster


def test_a_place_without_a_history_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(cotenant.NoData, match="no history is stored") as refused:
        cotenant.open_store(tmp_path)
    assert "cotenant scan" in refused.value.fix


def test_a_history_without_results_gives_usage_and_says_that_results_are_missing(tmp_path: Path) -> None:
    store = cotenant.demo_store(tmp_path, nodes=2, workloads=8, days=2, analyse=False)
    assert len(store.usage(resource="cpu")) > 0
    with pytest.raises(cotenant.NoData, match="no recommendations of cluster demo yet"):
        store.recommendations()
    assert cotenant.open_store(tmp_path, "demo").cluster == "demo"
    with pytest.raises(cotenant.NotEnoughHistory, match=r"spans 2\.0 days; a back-test needs 15"):
        cotenant.backtest(store.usage(resource="cpu"))


def test_an_incomplete_history_is_given_with_a_warning(tmp_path: Path) -> None:
    cotenant.demo_store(tmp_path, nodes=2, workloads=8, days=1, analyse=False)
    stored = Store(tmp_path.as_uri(), "demo")
    record = replace(stored.read_quality()[-1], unread_seconds={Signal.CPU_USAGE_MEAN: 5400})
    stored.append_quality(record)
    # 5,400 s are 1.5 hours
    with pytest.warns(UserWarning, match=r"cluster demo could not read up to 1\.5 hours of a metric"):
        assert len(cotenant.open_store(tmp_path).usage(resource="cpu")) > 0


def test_a_stretch_of_usage_is_chosen_by_time_and_name(store: cotenant.ClusterStore) -> None:
    every = store.usage("pay/checkout", resource="cpu")
    start = every["time"].iloc[0] + pd.Timedelta("1h")
    hour = store.usage("pay/Deployment/checkout", resource="cpu", since=start, until=start + pd.Timedelta("1h"))
    # 12 slots of 5 minutes, the last one begins 5 minutes before the end
    assert list(hour["time"]) == list(pd.date_range(start, periods=12, freq="5min"))
    assert set(every["workload"]) == {"checkout"}
    numbers: tuple[Any, ...] = (np.int64(start.timestamp()), np.float32(0))
    for seconds in numbers:  # numbers of numpy are Unix seconds too
        since = store.usage("pay/checkout", resource="cpu", since=seconds)
        assert since["time"].iloc[0] == max(pd.Timestamp(float(seconds), unit="s", tz="UTC"), every["time"].iloc[0])
    pd.testing.assert_frame_equal(hour, every[every["time"].isin(hour["time"])].reset_index(drop=True))
    wrong: dict[str, dict[str, Any]] = {
        "no stored workload matches pay/chekout": {"workload": "pay/chekout"},
        "since='noon' is not a time": {"since": "noon"},
        "since='' is not a time": {"since": ""},
        "since=nan is not a time": {"since": np.nan},
        "until=NaT is not a time": {"until": pd.NaT},
        f"since={1000 * int(start.timestamp())} lies outside 1970..2100": {"since": 1000 * int(start.timestamp())},
        "has usage only from 2026": {"until": 0},
        "per='pod'": {"per": "pod"},
    }
    for text, arguments in wrong.items():
        with pytest.raises((cotenant.NoData, cotenant.UsageError), match=text) as refused:
            store.usage(**arguments)
        assert refused.value.fix


@pytest.mark.slow
def test_a_demo_without_a_folder_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = cotenant.demo_store(nodes=2, workloads=8, days=1, analyse=False)
    assert len(list(tmp_path.iterdir())) == 1
    del store
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [{"nodes": 0}, {"workloads": -1}, {"days": 1.5}, {"seed": -1}])
def test_a_demo_of_no_size_is_refused_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: dict[str, Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ((name, value),) = size.items()
    with pytest.raises(cotenant.UsageError, match=f"{name}={value} is not a whole number of at least"):
        cotenant.demo_store(**size)
    assert list(tmp_path.iterdir()) == []


def test_of_several_clusters_one_has_to_be_named(tmp_path: Path) -> None:
    cotenant.demo_store(tmp_path, nodes=2, workloads=8, days=1, analyse=False)
    (tmp_path / "other" / "usage").mkdir(parents=True)
    with pytest.raises(cotenant.UsageError, match="several clusters: demo, other") as refused:
        cotenant.open_store(tmp_path)
    assert "cluster=" in refused.value.fix


def test_clusters_answer_side_by_side_with_their_names_and_one_without_results_is_left_out(
    stored: Results, tmp_path: Path
) -> None:
    (folder,) = Path(stored.store.url.removeprefix("file://")).glob(stored.store.cluster)
    for name in ("east", "west"):
        copytree(folder, tmp_path / name)
    (tmp_path / "young" / "usage").mkdir(parents=True)
    clusters = cotenant.open_clusters(tmp_path)
    assert list(clusters) == ["east", "west", "young"]
    with pytest.warns(UserWarning, match="cluster young is left out"):
        frame = clusters.frame(lambda cluster_store: cluster_store.nodes())
    assert frame.columns[0] == "cluster"
    alone = clusters["west"].nodes()
    assert frame["cluster"].value_counts().to_dict() == {"east": len(alone), "west": len(alone)}
    pd.testing.assert_frame_equal(
        frame[frame["cluster"] == "west"].drop(columns="cluster").reset_index(drop=True), alone
    )
    with pytest.warns(UserWarning, match="cluster young is left out"):
        paths = cotenant.forecast_paths(clusters.frame(lambda cluster: cluster.forecasts("scope=cluster")))
    own = cotenant.forecast_paths(clusters["east"].forecasts("scope=cluster"))
    pd.testing.assert_frame_equal(paths[paths["cluster"] == "east"].drop(columns="cluster"), own)


def test_a_cluster_that_is_not_there_is_named_beside_those_that_are(tmp_path: Path) -> None:
    for name in ("east-1", "west-1"):
        (tmp_path / name / "usage").mkdir(parents=True)
    clusters = cotenant.open_clusters(tmp_path)
    with pytest.raises(KeyError) as missing:
        clusters["east1"]
    error = missing.value
    assert isinstance(error, cotenant.NoData)
    assert str(error) == "the store holds no cluster 'east1'; it holds east-1, west-1"
    assert error.fix == "Did you mean east-1?"
    assert "north" not in clusters and clusters.get("north") is None
    with pytest.raises(cotenant.NoData) as strange:
        clusters["north"]
    assert strange.value.fix == "Use one of the stored names; cotenant scan stores other clusters."


def test_a_moment_that_no_clock_has_is_a_missing_time_beside_the_others() -> None:
    """1e300 seconds and infinity are garbage of one row; 1,700,000,000 s is 2023-11-14 22:13:20."""
    times = times_of([1.7e9, np.inf, -np.inf, 1e300, np.nan])
    assert list(times.isna()) == [False, True, True, True, True]
    assert times[0] == pd.Timestamp("2023-11-14 22:13:20", tz="UTC")


@pytest.mark.parametrize("method", [*LISTED, "workloads", "portraits", "recommend", "usage"])
def test_a_filter_that_is_no_text_is_said_with_its_value_and_a_fix(store: cotenant.ClusterStore, method: str) -> None:
    with pytest.raises(cotenant.UsageError, match="where=5 is not a string") as refused:
        getattr(store, method)(where=5)
    assert refused.value.fix


def test_a_workload_that_is_no_text_has_no_explanation(store: cotenant.ClusterStore) -> None:
    with pytest.raises(cotenant.UsageError, match="workload=None is not a string"):
        store.explanations(None)  # type: ignore[arg-type]
