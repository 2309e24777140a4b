"""`cotenant simulate` as a user types it: on the synthetic cluster, a trace file and a stored history."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.base.usage.backtest import WHAT_IF, WhatIf
from cotenant.experiment.outcome import RISKS_PERCENT
from cotenant_lab.commands.simulate import replay_summary
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.simulation.peaks.peak_play import PeakOutcome
from cotenant_lab.simulation.peaks.peak_replay import PeakReplay
from cotenant_lab.simulation.peaks.replay_table import peak_replays
from cotenant_lab.synthetic import SyntheticSpec
from tests.support import command_line

MONDAY = 1_700_438_400
QUICK = ("--nodes", "4", "--pods", "80", "--days", "2")


def cotenant(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.cotenant("simulate", *arguments)


@pytest.mark.slow
def test_every_way_has_a_row_and_the_same_seed_the_same_rows() -> None:
    first = cotenant(*QUICK, "--policy", "none", "--policy", "cotenant", "--risk", "1", "--risk", "5", "-o", "json")
    assert first.returncode == 0, first.stderr
    rows = json.loads(first.stdout)
    assert [(r["sharing"], r["knob"]) for r in rows] == [("none", 0), ("cotenant", 1), ("cotenant", 5)]
    assert rows[0]["batch_core_hours"] == 0 < rows[1]["batch_core_hours"]
    assert "3 runs of 2 days on 4 nodes" in first.stderr
    again = cotenant(*QUICK, "--policy", "cotenant", "-o", "json", "--quiet")
    assert json.loads(again.stdout) == rows[1:2]
    assert not again.stderr


@pytest.mark.slow
def test_the_command_that_a_report_names_computes_its_numbers_again(tmp_path: Path) -> None:
    report = tmp_path / "my report.html"
    first = cotenant(
        *QUICK, "--policy", "cotenant", "--risk", "1", "--risk", "5", "--report", str(report), "-o", "json"
    )
    assert first.returncode == 0, first.stderr
    named_command = re.search(r"Made by <code>cotenant simulate ([^<]*)</code>", report.read_text())
    assert named_command
    again = cotenant(*shlex.split(html.unescape(named_command[1])), "-o", "json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)


def test_pods_of_a_trace_are_drawn_onto_nodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    slots = np.arange(16 * 288)
    values = np.clip(20 + 10 * np.sin(2 * np.pi * slots / 288) + rng.normal(0, 3, (5, len(slots))), 0, 100)
    columns = {
        "series_id": np.repeat([f"vm-{i}" for i in range(5)], len(slots)),
        "timestamp": pa.array(np.tile(1000 * (MONDAY + 300 * slots), 5), pa.timestamp("ms", tz="UTC")),
        "cpu_avg_pct": values.ravel(),
    }
    path = tmp_path / "azure_v1_vms.parquet"
    pq.write_table(pa.table(columns), path)
    arguments = ("--trace", str(path), "--nodes", "2", "--pods", "20", "--policy", "koordinator", "-o", "csv")
    done = cotenant(*arguments, "--days", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    # nodes of ten VMs of four cores on 80 %: 50 cores each, 48 hours; Koordinator lends at most 60 % of them
    assert 0 < float(row["batch_core_hours"]) <= 0.6 * 2 * 50 * 48
    longer = cotenant(*arguments, "--days", "9")
    assert longer.returncode == 1
    assert "the trace has 16.0 days, but 23 are needed: 14 days of history and" in longer.stderr
    assert "Give --days 2 or a longer trace." in longer.stderr
    unknown = tmp_path / "mine.parquet"
    path.rename(unknown)
    refused = cotenant("--trace", str(unknown))
    assert refused.returncode == 2
    assert "azure_v1_vms, bitbrains_rnd" in refused.stderr


@pytest.mark.slow
def test_the_stored_history_says_what_would_have_been(tmp_path: Path) -> None:
    store = Store(str(tmp_path), CLUSTER)
    fill(store, SyntheticSpec(nodes=3, workloads=25, days=17, seed=3), Silent())
    arguments = ("--trace", "stored", "--store", str(tmp_path), "--policy", "koordinator", "--policy", "cotenant",
             "--seeds", "2")  # fmt: skip
    done = cotenant(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    # 17 days less the 14 of history
    # cotenant at every risk of the page What if
    ours = [("cotenant", risk, 3, 3) for risk in RISKS_PERCENT]
    assert [(r["sharing"], r["knob"], r["nodes"], r["days"]) for r in rows] == 2 * [("koordinator", 60, 3, 3), *ours]
    replay = store.read_document(WHAT_IF, WhatIf)
    assert replay is not None and replay.by_use is not None
    # of the first seed; three days that begin within a UTC day are parts of four
    assert [(outcome.risk_percent, len(outcome.days)) for outcome in replay.risks] == [
        (risk, 4) for risk in RISKS_PERCENT
    ]
    assert "x the batch core-hours of Koordinator's formulas" in done.stderr


def test_a_replay_of_plans_has_a_row_a_service_and_a_summary_over_all_their_pods() -> None:
    without = PeakOutcome((600.0,) * 20, 0, 0, 0.0, 40.0, 50.0, 1000.0)
    reserved = replace(without, pending_seconds=(10.0,) * 19 + (40.0,), handed_over=19, idle=5.0)
    web, cart = (WorkloadRef("shop", "Deployment", name) for name in ("web", "cart"))
    calm = replace(without, pending_seconds=())
    replays = [PeakReplay(web, without, reserved), PeakReplay(cart, calm, replace(calm, idle=1.0))]
    first, second = peak_replays(replays).rows()
    # 19 of 20 pods took a Reservation; 5 of 1,000 core-hours stood idle
    assert (first["workload"], first["peak_pods"]) == ("shop/Deployment/web", 20)
    assert (first["reserved"], first["idle_of_cluster"]) == (0.95, 0.005)
    assert second["peak_pods"] == 0
    # 0.95 of 19 places beyond the first is 18.05, between the last 10 s and the 40 s: 10 + 0.05 * 30
    assert "2 services with forecast-driven plans: p95 wait of peak pods 12 s, 600 s without" in replay_summary(replays)
    assert "6 reserved core-hours idle" in replay_summary(replays)
    assert "none of which had a peak" in replay_summary(replays[1:])


@pytest.mark.soak
def test_plans_are_replayed_on_services_of_the_synthetic_cluster() -> None:
    done = cotenant("--reservations", "--nodes", "2", "--pods", "40", "--days", "2", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows
    for row in rows:
        assert row["workload"].split("/")[1] in ("Deployment", "StatefulSet")
        assert 0 <= row["reserved"] <= 1
        # two nodes cannot stand idle for more than all of their time
        assert 0 <= row["idle_of_cluster"] < 1
    assert f"{len(rows)} services" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--trace", "/nowhere.parquet"), "--trace /nowhere.parquet is not a file"),
        (("--store", "/nowhere"), "--store, --cluster and --all-clusters need --trace stored"),
        (("--incident", "flood"), "there is no incident 'flood'"),
        (("--policy", "borg"), "'borg' is not one of none, static-overcommit"),
        (("--reservations", "--policy", "none"), "--policy does not go with --reservations"),
        (("--reservations", "--seeds", "2"), "--seeds does not go with --reservations"),
        (("--reservations", "--trace", "a.parquet"), "--trace a.parquet has no workloads that could have a plan"),
    ],
)
def test_what_cannot_be_simulated_is_said_with_its_fix(arguments: tuple[str, ...], text: str) -> None:
    done = cotenant(*arguments)
    assert done.returncode == 2
    assert text in " ".join(done.stderr.split())
