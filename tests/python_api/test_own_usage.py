"""Strategies, forecasts and back-tests of a DataFrame: the numbers that a scan of the same usage gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cotenant
from cotenant_lab.synthetic import SyntheticSpec
from tests.support import command_line
from tests.support.dashboard import results

SMALL = SyntheticSpec(nodes=3, workloads=10, days=16, seed=3)
"""A history that is just long enough for a back-test."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> cotenant.ClusterStore:
    return cotenant.open_store(results(tmp_path_factory.mktemp("store")).store.url)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("history")
    cotenant.demo_store(
        place, nodes=SMALL.nodes, workloads=SMALL.workloads, days=SMALL.days, seed=SMALL.seed, analyse=False
    )
    return place


def waves(days: int = 8, workloads: int = 2) -> pd.DataFrame:
    """Workloads with a noisy daily wave around 100 millicores, a value every 5 minutes."""
    times = pd.date_range("2026-11-02", periods=days * 288, freq="5min", tz="UTC")
    noise = np.random.default_rng(1).normal(0, 3, (workloads, len(times)))
    wave = 100 + 50 * np.sin(2 * np.pi * np.arange(len(times)) / 288)
    parts = [
        pd.DataFrame(
            {"time": times, "workload": f"wave-{i}", "container": "app", "cpu_usage_millicores": wave + noise[i]}
        )
        for i in range(workloads)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_usage_of_a_store_is_forecast_as_the_scan_did(store: cotenant.ClusterStore, resource: str) -> None:
    own = cotenant.forecast(store.usage(resource=resource), resource=resource)
    of_scan = store.forecasts("scope=workload", resource=resource)
    sampled = of_scan[of_scan["name"].isin(own["name"])]
    # 12,000 rows train the booster: of more than 62 series it draws, and the draw goes by the order of the series
    assert len(own) > 62
    assert own.groupby("namespace")["kind"].nunique().max() > 1
    of_store, peak = sampled.reset_index(drop=True), "peak_millicores" if resource == "cpu" else "peak_bytes"
    # the scan bounds a peak by what the limits of the pods allow, which a DataFrame of usage does not tell
    assert (of_store[peak].isna() == own[peak].isna()).all()
    assert (of_store[peak].fillna(0) <= own[peak].fillna(0)).all()
    assert (of_store[peak].fillna(0) == own[peak].fillna(0)).mean() > 0.9
    pd.testing.assert_frame_equal(own.drop(columns=peak), of_store.drop(columns=peak))


@pytest.mark.slow
def test_containers_are_summed_to_workloads_as_a_scan_does(store: cotenant.ClusterStore) -> None:
    containers = store.usage(per="container", where="ns=pay")
    own = cotenant.forecast(containers).set_index("name")
    totals = cotenant.forecast(store.usage(where="ns=pay", resource="cpu")).set_index("name")
    # a pod's end is taken from its last sample, so totals may differ in the hour after it and nowhere else
    assert (own["peak_millicores"] / totals["peak_millicores"]).dropna().between(0.99, 1.01).all()
    assert own["reason"].equals(totals["reason"])


@pytest.mark.slow
def test_krr_proposes_the_same_for_a_frame_as_for_the_store(store: cotenant.ClusterStore) -> None:
    of_store = store.recommend(strategy="krr-simple")
    own = cotenant.recommend(store.usage(per="container"), strategy="krr-simple")
    both = of_store.merge(own, on=["namespace", "kind", "workload", "container"], suffixes=("", "_own"))
    for amount, reason in (("cpu_request_millicores", "cpu_reason"), ("memory_request_bytes", "memory_reason")):
        # of an autoscaler, which withholds a value, a DataFrame tells nothing
        rows = both[both[reason].isin(["ok", "floor"])]
        assert len(rows) > 40
        assert rows[amount].equals(rows[f"{amount}_own"].rename(amount))
        assert rows["replicas"].equals(rows["replicas_own"].rename("replicas"))


@pytest.mark.slow
def test_a_back_test_of_the_stored_usage_has_the_scores_of_the_command_line(folder: Path) -> None:
    usage = cotenant.open_store(folder).usage(resource="cpu", since=0)
    own = cotenant.backtest(usage, origins=2, baselines=["B1"])
    arguments = ("backtest", "--store", folder.as_uri(), "--origins", "2", "--baselines", "B1", "-o", "json", "-q")
    done = command_line.cotenant(*arguments)
    assert done.returncode == 0, done.stderr
    expected = pd.DataFrame(json.loads(done.stdout)).astype(own.dtypes)
    assert {"all"} < set(own["stratum"])
    pd.testing.assert_frame_equal(own, expected)


def test_decisions_of_the_past_add_up_to_the_frontier(folder: Path) -> None:
    usage = cotenant.open_store(folder).node_usage(since=0)
    decisions = cotenant.reclaim_decisions(usage, risk_percent=(1, 30))
    curves = cotenant.reclaim_frontier(usage)
    ours = curves[curves["ours"]].set_index("setting")
    for risk, rows in decisions.groupby("risk_percent"):
        point = ours.loc[f"calibrated peak {risk / 100:g}"]
        # a decision counts when the day after it was measured; it is passed when the peak was above the expected one
        measured = rows[rows["actual_peak_millicores"].notna()]
        assert (measured["excess_millicores"] > 0).mean() == pytest.approx(point["violation_ratio"])
        limits = rows["expected_peak_millicores"] + rows["lent_millicores"]
        oracle = (limits - rows["actual_peak_millicores"]).sum()
        assert measured["lent_millicores"].sum() / oracle == pytest.approx(point["savings_ratio"])
    with pytest.raises(cotenant.NotEnoughHistory, match="a decision needs 14 days before it and one day after it"):
        cotenant.reclaim_decisions(usage[usage["time"] < usage["time"].min() + pd.Timedelta(days=5)])
    with pytest.raises(cotenant.FrameError, match="no column 'cpu_allocatable_millicores'"):
        cotenant.reclaim_frontier(usage.drop(columns="cpu_allocatable_millicores"))


@pytest.mark.parametrize(
    ("risks", "text"),
    [(1.0, "is not a sequence"), ("1", "is not a sequence"), ((), "is empty"), ((1, 1), "a risk twice"),
     ((0,), "risk_percent=0 is not between"), (("1",), "risk_percent='1' is not between")],
)  # fmt: skip
def test_a_risk_that_is_none_is_named(risks: Any, text: str) -> None:
    with pytest.raises(cotenant.UsageError, match=text) as refused:
        cotenant.reclaim_decisions(pd.DataFrame(), risk_percent=risks)
    assert "(0.1, 1, 5)" in refused.value.fix


def test_allocatable_amounts_in_cores_are_refused_and_not_taken_for_full_nodes() -> None:
    usage = waves(days=16, workloads=1).rename(columns={"workload": "node"})
    # around 100 millicores used of "4": every value lies above
    with pytest.raises(cotenant.FrameError, match="most values of cpu_usage_millicores exceed"):
        cotenant.reclaim_decisions(usage.assign(cpu_allocatable_millicores=4))
    highest = cotenant.reclaim_decisions(usage.assign(cpu_allocatable_millicores=400))["actual_peak_millicores"].max()
    # the first decision is after 14 days of 288 values
    assert highest == pytest.approx(usage["cpu_usage_millicores"].iloc[14 * 288 :].max())


def test_a_model_of_ones_own_competes_with_the_built_in_ones() -> None:
    class Tomorrow:
        """Knows the wave, and that means of six values with a deviation of 3 have one of 1.2."""

        name = "tomorrow"

        def quantiles(self, history: np.ndarray, grid: object, horizon: int) -> np.ndarray:
            start = grid.end_seconds  # type: ignore[attr-defined]
            phase = 2 * np.pi * ((start % 86_400) / 86_400 + (np.arange(horizon) + 0.5) / 48)
            path = 100 + 50 * np.sin(phase)
            paths = path[:, None] + np.linspace(-1.6, 2.5, len(cotenant.LEVELS))
            return cotenant.conform(np.tile(paths, (len(history), 1, 1)), history)

    assert cotenant.faults(Tomorrow()) == ()
    forecasts = cotenant.forecast(waves().drop(columns="container"), models=[Tomorrow()])
    losses = forecasts["losses"].str.extract(r"tomorrow ([0-9.]+)")[0].astype(float)
    # 1 is the loss of the seasonal naive of the day, which repeats yesterday with its noise
    assert (losses < 1).all()
    assert forecasts["losses"].str.contains("shift-14d").all()


class Broken:
    """Answers for one series and one half hour, whatever it is asked for."""

    name = "broken"

    def quantiles(self, *_: object) -> np.ndarray:
        return np.full((1, 1, 1), 1e9)


def test_a_broken_model_of_ones_own_costs_only_its_own_chance() -> None:
    usage = waves().drop(columns="container")
    losses = cotenant.forecast(usage, models=[Broken()])["losses"].str.extract(r"broken ([0-9.]+)")[0].astype(float)
    # the history's own quantiles stand in: for a wave of 50..150 they lose some times what yesterday's path does, and
    # 1e9 would lose millions of times as much
    assert (losses < 100).all()


def test_a_short_history_is_forecast_from_its_portrait_and_says_so() -> None:
    forecasts = cotenant.forecast(waves(days=1).drop(columns="container"))
    assert list(forecasts["reason"]) == ["from-portrait", "from-portrait"]
    # the wave stays within 50..150 and its noise within 5 deviations of 3
    assert forecasts["peak_millicores"].between(130, 165 * 1.3).all()


def test_krr_takes_the_95th_percentile_of_a_frames_usage() -> None:
    usage = waves(days=5)
    own = cotenant.recommend(usage, strategy="krr-simple").set_index("workload")
    for workload, rows in usage.groupby("workload"):
        # KRR: the p95 of the pod, rounded up to a whole millicore; no memory was measured, so none is proposed
        p95 = np.quantile(rows["cpu_usage_millicores"].astype(np.float32).to_numpy().astype(np.float64), 0.95)
        assert own.loc[workload, "cpu_request_millicores"] == np.ceil(p95)
        assert own.loc[workload, "memory_reason"] == "no-data"
        assert own.loc[workload, "replicas"] == 1


def test_finer_values_are_joined_to_five_minutes_and_coarser_ones_refused() -> None:
    usage = waves(days=1)
    minutes = usage.assign(time=usage["time"] - pd.Timedelta("4min"))
    fine = pd.concat([usage, minutes], ignore_index=True)
    assert len(cotenant.recommend(fine, strategy="krr-simple")) == 2
    coarse = usage[usage["time"].dt.minute % 10 == 0]
    with pytest.raises(cotenant.FrameError, match="every 600 s; recommendations need slots that divide 5 minutes"):
        cotenant.recommend(coarse)
    with pytest.raises(cotenant.FrameError, match="every 3600 s"):
        cotenant.recommend(usage[usage["time"].dt.minute == 0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda u: cotenant.forecast(u, resource="disk"), "resource='disk'"),
        (lambda u: cotenant.backtest(u, horizon="2h"), "horizon='2h'"),
        (lambda u: cotenant.backtest(u, origins=0), "origins=0"),
        (lambda u: cotenant.backtest(u, origins=1.5), "origins=1.5"),  # type: ignore[arg-type]
        (lambda u: cotenant.backtest(u, known_share=5), "known_share=5"),
        (lambda u: cotenant.backtest(u, known_share=-1), "known_share=-1"),
        (lambda u: cotenant.backtest(u, baselines="B1"), "baselines='B1' is not a sequence of texts"),
        (lambda u: cotenant.backtest(u, baselines=["B99"]), "no baseline 'B99'"),
        (lambda u: cotenant.backtest(u, baselines=1), "baselines=1 is not a sequence of texts"),  # type: ignore[arg-type]
        (lambda u: cotenant.backtest(u, baselines=(1,)), "no baseline '1'"),  # type: ignore[arg-type]
        (lambda u: cotenant.forecast(u, models="x"), "models='x' is not a sequence of models"),  # type: ignore[arg-type]
        (lambda u: cotenant.forecast(u, models=["x"]), "models holds 'x', which is not a forecast model"),  # type: ignore[list-item]
        (lambda u: cotenant.forecast(u, models=[Broken]), "Broken'>, which is not a forecast model"),  # type: ignore[list-item]
        (lambda u: cotenant.forecast(u, models=[Broken(), Broken()]), "models: another model has the name 'broken'"),
        (lambda u: cotenant.forecast(u, settings={}), "settings={} is not a file"),  # type: ignore[arg-type]
        (lambda u: cotenant.recommend(u, strategy=["vpa"]), "strategy=['vpa'] is not a string"),  # type: ignore[arg-type]
        (lambda _: cotenant.forecast_paths(None), "not a DataFrame of forecasts"),
        (lambda u: cotenant.recommend(u, strategy="best"), "no strategy is named 'best'"),
        (lambda u: cotenant.recommend(u.drop(columns="container")), "no column 'container'"),
        (lambda u: cotenant.forecast(u, settings="/nowhere.yaml"), "/nowhere.yaml"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_value_and_a_fix(call: object, text: str) -> None:
    with pytest.raises(cotenant.UsageError) as refused:
        call(waves(days=1))  # type: ignore[operator]
    assert text in refused.value.message
    assert refused.value.fix


@pytest.mark.parametrize("names", [("web-zz", "web-aa"), ("web-aa", "web-zz")])
def test_the_youngest_pod_tells_the_requests_of_now_whatever_its_name(names: tuple[str, str]) -> None:
    usage = waves(days=6, workloads=1)
    late = usage["time"] >= usage["time"].min() + pd.Timedelta("3D")
    usage["pod"] = np.where(late, names[1], names[0])
    usage["cpu_request_millicores"] = np.where(late, 300.0, 1000.0)
    # of a rollout three days ago, which also took the limit away
    usage["cpu_limit_millicores"] = np.where(late, np.nan, 2000.0)
    (row,) = cotenant.recommend(usage).to_dict("records")
    assert (row["replicas"], row["cpu_request_now_millicores"]) == (1, 300)
    assert pd.isna(row["cpu_limit_now_millicores"])


def test_a_pod_of_two_workloads_is_refused() -> None:
    usage = waves(days=1).assign(pod="same")
    with pytest.raises(cotenant.FrameError, match="pod default/same belongs to"):
        cotenant.recommend(usage)
