"""`cotenant backtest` as a user types it: on a trace in a file, and on a stored synthetic cluster."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.backtest import (
    BACKTEST,
    POLICY_TRIAL,
    BacktestReport,
    Frontier,
    FrontierCurve,
    FrontierPoint,
    PolicyTrial,
)
from cotenant.cli.report.backtest_drawings import Axes, frontier, lines
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support import command_line

MONDAY = 1_700_438_400
B1, B14 = "B1 seasonal naive day (empirical residuals)", "B14 strong selection"


def cotenant(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.cotenant("backtest", *arguments)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four series on half hours, 17 days: a noisy daily wave each, limit 200."""
    rng = np.random.default_rng(4)
    slots = np.arange(17 * 48)
    values = 100 + 60 * np.sin(2 * np.pi * slots / 48) + rng.normal(0, 5, (4, len(slots)))
    path = tmp_path_factory.mktemp("trace") / "waves.parquet"
    columns = {
        "series_id": np.repeat([f"wave-{i}" for i in range(4)], len(slots)),
        "timestamp": pa.array(np.tile(1000 * (MONDAY + 1800 * slots), 4), pa.timestamp("ms", tz="UTC")),
        "cpu": values.ravel(),
        "memory": values.ravel() * 2,
        "limit": np.full(values.size, 200.0),
    }
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.fixture(scope="module")
def scores(trace: str) -> list[dict[str, Any]]:
    done = cotenant(trace, "--column", "cpu", "--limit-column", "limit", "--origins", "3", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "Back-test" in done.stderr
    assert "x that of B14, 95 % interval" in done.stderr
    score_rows: list[dict[str, Any]] = json.loads(done.stdout)
    return score_rows


def of(scores: list[dict[str, Any]], contender: str, stratum: str = "all") -> dict[str, Any]:
    return next(r for r in scores if (r["contender"], r["stratum"]) == (contender, stratum))


def test_scores_of_a_trace_against_named_baselines(scores: list[dict[str, Any]]) -> None:
    assert of(scores, B1)["rel_wql"] == 1.0
    assert of(scores, B14)["vs_b14"] == 1.0
    ours = of(scores, "cotenant")
    assert (ours["series"], ours["trials"], ours["dropped"]) == (4, 12, 0)
    # A wave with independent noise: yesterday's noise doubles the variance, so sqrt(2) times the loss of the profile.
    assert ours["rel_wql"] < 0.9
    assert ours["rel_wql_low"] <= ours["rel_wql"] <= ours["rel_wql_high"]
    # The peak of a clean wave is found: 2 hours around noon of its phase.
    assert ours["capture"] > 0.97
    assert ours["coverage_95"] > 0.85


def test_strata_of_the_trace(scores: list[dict[str, Any]]) -> None:
    strata = {r["stratum"] for r in scores}
    # Waves have a season, use half of their limit, and are over a week old at every origin.
    assert strata == {"all", "ACF24 > 0.5", "active (mean >= 1 % of limit)", "age > 7 d"}
    assert of(scores, B14, "ACF24 > 0.5")["rel_wql"] == of(scores, B14)["rel_wql"]


@pytest.mark.slow
def test_csv_and_table_carry_the_same_rows_and_a_seed_the_same_numbers(
    trace: str, scores: list[dict[str, Any]], tmp_path: Path
) -> None:
    arguments = (trace, "--column", "cpu", "--limit-column", "limit", "--quiet", "--origins")
    again = cotenant(*arguments, "3", "-o", "csv", "--output-file", str(tmp_path / "scores.csv"))
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text())))
    assert [float(r["rel_wql_low"]) for r in rows] == [r["rel_wql_low"] for r in scores]
    shown = cotenant(*arguments, "1", "--baselines", "B1,B2")
    assert "B2 seasonal naive week" in shown.stdout
    assert "B14" not in shown.stdout.replace("VS-B14", "")


class Cells(HTMLParser):
    """The exact values in a page's cells, and the tags that it uses."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.values += [v for name, v in attrs if name == "data-value" and v is not None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Sixteen days of a synthetic cluster."""
    stored = Store(tmp_path_factory.mktemp("stored").as_uri(), CLUSTER)
    fill(stored, SyntheticSpec(nodes=3, workloads=12, days=16, seed=5), Silent())
    return stored


@pytest.mark.slow
def test_a_stored_history_is_scored_and_its_report_kept(store: Store) -> None:
    done = cotenant("--store", store.url, "--origins", "2", "--baselines", "B14", "-o", "html")
    assert done.returncode == 0, done.stderr
    report = store.read_document(BACKTEST, BacktestReport)
    assert report is not None
    assert report.html == done.stdout
    assert report.summary == "12 workloads, 2 origins"
    page = Cells()
    page.feed(done.stdout)
    assert {"svg", "table", "style"} <= page.tags
    assert not page.tags & {"script", "link", "img", "iframe"}
    # Cells carry exact values: B14's loss relative to itself among them.
    assert "1.0" in page.values
    assert B14 in done.stdout


@pytest.mark.slow
def test_reclaim_policies_are_compared_on_the_stored_history_and_kept(store: Store, tmp_path: Path) -> None:
    done = cotenant("--reclaim", "--store", store.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "Decisions" in done.stderr
    rows = {row["policy"]: row for row in json.loads(done.stdout)}
    risks = [f"forecast, risk {risk} %" for risk in ("0.1", "0.5", "1", "5")]
    assert list(rows) == ["usage", "maxUsageRequest", *risks, "highest of 14 days"]
    # two of 16 days lie before the window; a day is the last one's horizon, and the last hours are no block yet
    assert {row["tested_days"] for row in rows.values()} == {1.25}
    assert rows["usage"]["verdict"] == "in force"
    # a forecast with so few tests is not proven: it lends no more than usage
    assert all(rows[name]["batch_cpu"] <= rows["usage"]["batch_cpu"] for name in risks)
    assert rows["maxUsageRequest"]["batch_memory"] <= rows["usage"]["batch_memory"]
    policy_trial = store.read_document(POLICY_TRIAL, PolicyTrial)
    assert policy_trial is not None
    assert policy_trial.in_force == {Resource.CPU: "usage", Resource.MEMORY: "usage"}
    lent = policy_trial.score(Resource.CPU, "usage")
    assert lent is not None and int(lent.amount) == rows["usage"]["batch_cpu"]
    file = tmp_path / "policies.html"
    again = cotenant("--reclaim", "--store", store.url, "-q", "-o", "html", "--output-file", str(file))
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    page = Cells()
    page.feed(file.read_text())
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert str(rows["usage"]["cpu_violation"]) in page.values


def test_too_few_days_for_reclaim_policies_are_named(tmp_path: Path) -> None:
    short = Store(tmp_path.as_uri(), CLUSTER)
    fill(short, SyntheticSpec(nodes=2, workloads=4, days=3, seed=5), Silent())
    done = cotenant("--reclaim", "--store", short.url)
    assert done.returncode == 1
    assert "not enough history: 3.0 days" in done.stderr
    assert "15 are needed" in done.stderr
    assert short.read_document(POLICY_TRIAL, PolicyTrial) is None


def test_what_cannot_be_done_is_said_with_its_exit_code(trace: str, tmp_path: Path) -> None:
    cases = [
        ((trace,), 2, "has 3 numeric columns", "--column: cpu, memory, limit."),
        ((trace, "--column", "disk"), 2, "no numeric column 'disk'", "Name one of cpu, memory, limit."),
        ((trace, "--column", "cpu", "--baselines", "B99"), 2, "no baseline 'B99'", "The baselines are B1,"),
        ((trace, "--store", "file:///nowhere"), 2, "exclude each other", "Leave out TRACE"),
        (("--column", "cpu"), 2, "apply only to a TRACE", "Name a trace"),
        ((trace, "--reclaim"), 2, "needs the stored history", "Leave out all but"),
        ((str(tmp_path / "no.parquet"),), 2, "no Parquet file at", "Name a file"),
        (
            (trace, "--column", "cpu", "--horizon", "7d"),
            1,
            "spans 17.0 days; a back-test needs 21",
            "Keep more history",
        ),
        (("--store", tmp_path.as_uri()), 1, "no history is stored at", "Run cotenant scan"),
    ]
    for arguments, code, text, fix in cases:
        done = cotenant(*arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert text in done.stderr
        assert fix in done.stderr
        assert done.stdout == ""


def test_a_frontier_draws_each_predictor_with_ours_first() -> None:
    static = FrontierCurve("max of 14 d <b>", (FrontierPoint(0.01, 0.91),))
    ours = FrontierCurve("cotenant", (FrontierPoint(0.01, 0.94), FrontierPoint(0.05, 0.97)), ours=True)
    drawn = frontier(Frontier("groups of ten", (static, ours)))
    # Ours takes the first colour: a line of two points; the static predictor is a dot; names are escaped.
    assert drawn.index("cotenant") < drawn.index("max of 14 d &lt;b&gt;")
    assert drawn.count('<path class="s0"') == 1
    assert '<circle class="d1"' in drawn
    assert "<b>" not in drawn
    # What would squeeze the others into a corner is named instead.
    borg = FrontierCurve("borg", (FrontierPoint(0.0, 0.11),))
    page_text = frontier(Frontier("groups of ten", (ours, borg)))
    assert "Outside the drawing: borg (0.0 % of decisions exceeded, 11 % of the savings)." in page_text
    assert "No values to draw" in lines({"empty": []}, Axes("x", "y"), "nothing")


def test_lines_stay_inside_their_drawing() -> None:
    drawn = lines({"a": [(0.0, -3.0), (7.0, 1e6)]}, Axes("x", "y"), "label")
    points = [part.split('"')[0] for part in drawn.split('cx="')[1:]]
    assert points == ["52.0", "538.5"]  # 0 of 0..8 at the left edge 52; 7/8 of the 556 to the right edge: 52 + 486.5
