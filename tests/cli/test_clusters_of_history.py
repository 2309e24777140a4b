"""Back-tests and simulations of several stored histories at once: each cluster's own rows, with its name in front."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.base.usage.backtest import BACKTEST, WHAT_IF, BacktestReport, WhatIf
from cotenant_lab.simulation.demo import fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support.command_line import cotenant

pytestmark = pytest.mark.slow
DAYS = {"east": 17, "west": 17, "young": 3}
"""Of history; both commands need more than young has."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("store").as_uri()
    for seed, (name, days) in enumerate(DAYS.items()):
        fill(Store(place, name), SyntheticSpec(nodes=3, workloads=6, days=days, seed=seed + 3), Silent())
    return place


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        ("backtest", "--origins", "1", "--baselines", "B1"),
        ("backtest", "--reclaim"),
        ("simulate", "--trace", "stored", "--policy", "koordinator"),
    ],
)
def test_all_clusters_have_the_rows_of_each_and_one_without_enough_history_costs_its_own(
    url: str, arguments: tuple[str, ...]
) -> None:
    done = cotenant(*arguments, "--store", url, "--all-clusters", "-o", "json")
    assert done.returncode == 4, done.stderr
    verb = "simulated" if arguments[0] == "simulate" else "back-tested"
    assert f"partial: 1 of 3 clusters could not be {verb}: young" in done.stderr
    assert "error: cluster young: " in done.stderr
    assert "fix: " in done.stderr
    together = rows(done)
    assert {next(iter(row)) for row in together} <= {"cluster"}
    for name in ("east", "west"):
        alone = cotenant(*arguments, "--store", url, "--cluster", name, "-o", "json")
        assert alone.returncode == 0, alone.stderr
        own = [
            {key: value for key, value in row.items() if key != "cluster"} for row in together if row["cluster"] == name
        ]
        assert own == rows(alone)
    unnamed = cotenant(*arguments, "--store", url)
    assert (unnamed.returncode, "contains several clusters: east, west, young" in unnamed.stderr) == (2, True)


def test_what_the_pages_show_is_kept_with_each_cluster(url: str) -> None:
    for arguments in (
        ("backtest", "--origins", "1", "--baselines", "B1"),
        ("simulate", "--trace", "stored", "--risk", "1"),
    ):
        assert cotenant(*arguments, "--store", url, "--all-clusters", "-q").returncode == 4
    for name in ("east", "west"):
        report = Store(url, name).read_document(BACKTEST, BacktestReport)
        assert report is not None and name in report.title
        assert Store(url, name).read_document(WHAT_IF, WhatIf) is not None


def test_where_no_cluster_has_enough_history_each_says_so_once(url: str, tmp_path: Path) -> None:
    for name in ("young", "younger"):
        copytree(Path(url.removeprefix("file://")) / "young", tmp_path / name)
    done = cotenant("backtest", "--store", tmp_path.as_uri(), "--all-clusters", "-q")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("error: ") == 2
    assert "error: cluster younger: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        (("backtest", "--origins", "1", "--baselines", "B1"), BACKTEST),
        (("simulate", "--trace", "stored", "--policy", "cotenant", "--risk", "1"), WHAT_IF),
    ],
)
def test_a_store_that_takes_no_report_costs_no_row(
    url: str, tmp_path: Path, arguments: tuple[str, ...], document: str
) -> None:
    copytree(Path(url.removeprefix("file://")) / "east", tmp_path / "east", ignore=ignore_patterns("results"))
    (tmp_path / "east" / "results" / f"{document}.json").mkdir(parents=True)  # a file cannot take its place
    done = cotenant(*arguments, "--store", tmp_path.as_uri(), "-o", "json", "-q")
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert rows(done)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("backtest", "-o", "html"), "-o html writes the report of a single cluster"),
        (("simulate", "--trace", "stored", "--report", "r.html"), "--report covers a single cluster"),
        (("simulate",), "--all-clusters need --trace stored"),
        (("backtest", "--cluster", "east"), "--cluster east and --all-clusters exclude each other"),
    ],
)
def test_what_is_of_one_cluster_says_so(url: str, arguments: tuple[str, ...], text: str) -> None:
    done = cotenant(*arguments, "--all-clusters", *(() if arguments == ("simulate",) else ("--store", url)))
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_settings_of_several_clusters_do_not_ask_whose_a_synthetic_one_is(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("clusters: {east: {}, west: {}}\n")
    variables = {"COTENANT_CONFIG": str(config)}
    arguments = ("simulate", "--nodes", "2", "--pods", "10", "--days", "2", "--policy", "none", "-q")
    done = cotenant(*arguments, variables=variables)
    assert done.returncode == 0, done.stderr
    get_pods = cotenant("get", "pods", variables=variables)
    assert "fix: Name one: --cluster NAME, or all: --all-clusters." in get_pods.stderr
