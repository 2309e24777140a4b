"""The commands over stored results, as a user types them: one small synthetic cluster; the demo as a real process."""

from __future__ import annotations

import csv
import io
import json
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import command_line
from tests.support.command_line import LEAN
from tests.support.dashboard import WEEK, results

pytestmark = pytest.mark.server

COTENANT = Path(sys.executable).with_name("cotenant")
SMALL_DEMO = ("--nodes", "1", "--workloads", "12", "--days", "3")
"""One node: the load spikes of the demo are played second by second on each of up to three."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return results(tmp_path_factory.mktemp("store"), spec=WEEK).store.url


def cotenant(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.cotenant(*arguments, variables=LEAN)


@cache
def rows(url: str, output: str, *arguments: str) -> list[dict[str, Any]]:
    done = cotenant("scan", "--offline", "--quiet", "--store", url, "-o", output, *arguments)
    assert done.returncode == 0, done.stderr
    if output == "csv":
        return list(csv.DictReader(io.StringIO(done.stdout)))
    document_rows: list[dict[str, Any]] = json.loads(done.stdout) if output == "json" else yaml.safe_load(done.stdout)
    return document_rows


@pytest.mark.slow
def test_a_scan_shows_the_same_rows_in_every_format(url: str) -> None:
    as_json = rows(url, "json")
    assert len(as_json) > 40
    assert rows(url, "yaml") == as_json
    as_csv = rows(url, "csv")
    assert [r["container"] for r in as_csv] == [r["container"] for r in as_json]
    assert [r["cpu_request"] for r in as_csv] == [
        "" if r["cpu_request"] is None else str(r["cpu_request"]) for r in as_json
    ]


@pytest.mark.slow
def test_namespace_and_filter_choose_rows(url: str) -> None:
    everything = rows(url, "json")
    namespace = everything[0]["namespace"]
    expected = [r for r in everything if r["namespace"] == namespace and r["severity"] == "critical"]
    assert rows(url, "json", "-n", namespace, "--filter", "severity=critical") == expected


@pytest.mark.slow
def test_findings_above_the_threshold_end_with_code_3(url: str) -> None:
    worst = {r["severity"] for r in rows(url, "json")}
    assert "critical" in worst
    assert cotenant("scan", "--offline", "-q", "--store", url, "--fail-on", "severity=critical").returncode == 3
    done = cotenant("scan", "--offline", "-q", "--store", url, "--fail-on", "severity=awful")
    assert done.returncode == 2
    assert "severity=LEVEL" in done.stderr


@pytest.mark.slow
def test_patches_are_kubectl_lines_for_what_changes(url: str) -> None:
    done = cotenant("scan", "--offline", "-q", "--store", url, "-o", "patch")
    lines = done.stdout.splitlines()
    assert lines and all(line.startswith("kubectl patch ") for line in lines)


def test_explain_names_reason_formula_and_inputs(url: str) -> None:
    row = next(r for r in rows(url, "json") if r["cpu_action"] == "set")
    name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    text = cotenant("explain", name, "--store", url)
    assert text.returncode == 0, text.stderr
    assert f"[{row['cpu_reason']}]" in text.stdout
    assert "formula:" in text.stdout
    document = json.loads(cotenant("explain", name, "-c", row["container"], "--store", url, "-o", "json").stdout)
    assert document[0]["values"][0]["amount"] == row["cpu_request"]


def test_an_unknown_workload_gets_the_nearest_name(url: str) -> None:
    row = rows(url, "json")[0]
    done = cotenant("explain", f"{row['namespace']}/{row['workload']}x", "--store", url)
    assert done.returncode == 1
    assert f"Did you mean {row['namespace']}/{row['kind']}/{row['workload']}?" in done.stderr


def test_a_forecast_has_48_half_hours_with_ordered_quantiles(url: str) -> None:
    row = rows(url, "json")[0]
    name = f"{row['namespace']}/{row['kind']}/{row['workload']}"
    done = cotenant("get", "forecast", name, "--store", url, "-o", "json")
    assert done.returncode == 0, done.stderr
    path = json.loads(done.stdout)
    assert len(path) == 48
    assert all(p["q10"] <= p["q50"] <= p["q90"] <= p["q95"] for p in path)
    assert "model" in done.stderr
    done = cotenant("get", "forecast", name, "--fine", "--store", url, "-o", "json")
    fine = json.loads(done.stdout)
    assert [len(fine), fine[1]["time"] - fine[0]["time"]] == [288, 300]
    assert all(p["q10"] <= p["q50"] <= p["q90"] <= p["q95"] for p in fine)
    assert [p["q95"] for p in fine[::6]] != [p["q95"] for p in path]


def test_reclaimable_terms_of_one_node(url: str) -> None:
    nodes = json.loads(cotenant("get", "reclaimable", "--store", url, "-o", "json").stdout)
    assert len(nodes) == 6
    done = cotenant("get", "reclaimable", nodes[0]["node"], "--terms", "--store", url, "-o", "json")
    assert {(r["band"], r["resource"]) for r in json.loads(done.stdout)} == {
        ("batch", "cpu"), ("batch", "memory"), ("mid", "cpu"), ("mid", "memory"),
    }  # fmt: skip
    # What the risk has meant is said beside the table, on stderr; machines get it with the overview.
    text = cotenant("get", "reclaimable", "--store", url).stderr
    assert "CPU at a risk of 1 %: " in text and "Memory at a risk of 0.5 %: " in text
    assert "at a risk" not in done.stderr
    missing = cotenant("get", "reclaimable", "no-such-node", "--store", url)
    assert (missing.returncode, missing.stdout) == (1, "")


@pytest.mark.slow
def test_the_demo_prints_its_summary_and_leaves_its_history_in_the_cache_alone(tmp_path: Path) -> None:
    environment = {**LEAN, "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [COTENANT, "demo", "--once", *SMALL_DEMO, "-o", "json"],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    overview = json.loads(done.stdout)
    assert (overview["nodes"], overview["workloads"], overview["demo"]) == (1, 12, True)
    assert [path.name for path in tmp_path.iterdir()] == [".cache"]


def test_a_demo_on_a_taken_port_says_so_before_it_generates_anything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = command_line.cotenant("demo", "--no-browser", "--port", port, variables={"HOME": str(tmp_path)})
    assert done.returncode != 0 and "cannot listen on" in done.stderr and "--port" in done.stderr
    assert "Demo cluster" not in done.stderr


def test_a_scan_without_any_source_says_what_to_give(tmp_path: Path) -> None:
    done = command_line.cotenant("scan", variables={"HOME": str(tmp_path)})
    assert done.returncode == 2
    assert "--prometheus URL" in done.stderr
    assert done.stdout == ""
