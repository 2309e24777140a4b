"""`cotenant serve manager` as people start it: dry run first, a table of what is due, an audit of what was done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.manager.scene import BATCH_CPU, Scene

Nodes = Callable[..., list[str]]


def once(cluster: Scene, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """`cotenant serve manager --once -o json`: exit code, rows, stderr."""
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
    command += [
        "--set",
        f"manager.namespace={cluster.namespace}",
        "--set",
        "manager.features_off=[recommendations,forecasts,plans]",
    ]
    command += [
        "--log-format",
        "json",
        "serve",
        "manager",
        "--once",
        "-o",
        "json",
        "--kubeconfig",
        str(cluster.account),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_dry_run_shows_what_is_due_and_writes_nothing(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="16")
    cluster.report([node])
    cluster.configure(colocation_config={"enable": True})
    code, rows, text = once(cluster)
    assert code == 0
    assert "Dry run: nothing is written" in text
    mine = {row["feature"]: row for row in rows if row["object"].endswith(f"/{node}")}
    assert mine.keys() == {"colocation", "node-slo"}
    assert json.loads(mine["colocation"]["new"])["status"]["allocatable"][BATCH_CPU] == "8600"
    assert cluster.allocatable([node])[node] == {}
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/cotenant-manager"
    assert not cluster.api.exists(lease)


def test_a_run_that_writes_says_so_and_leaves_an_audit(cluster: Scene, fake_nodes: Nodes) -> None:
    (node,) = fake_nodes(1, cpu="16")
    cluster.report([node], system_cpu="1")
    cluster.configure(colocation_config={"enable": True})
    assert once(cluster, "--write")[0] == 0
    cluster.report([node], system_cpu="4")
    code, rows, text = once(cluster, "--write")
    assert code == 0
    assert "WRITES to the cluster" in text
    (row,) = (r for r in rows if r["object"] == f"nodes/{node}")
    # 16000 - 6400 (margin) - 4000 = 5600 in the place of 16000 - 6400 - 1000 = 8600.
    assert (json.loads(row["old"])[BATCH_CPU], json.loads(row["new"])["status"]["allocatable"][BATCH_CPU]) == (
        8600,
        "5600",
    )
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (line,) = (x for x in lines if x["msg"] == "wrote" and x["object"] == f"nodes/{node}")
    assert line["who"] == "cotenant-manager/colocation"
    assert "resourceDiffThreshold" in line["why"]
    assert {"old", "new", "ts", "verb"} <= line.keys()


@pytest.mark.soak
def test_an_unknown_feature_is_refused_with_the_known_ones(cluster: Scene) -> None:
    command = [
        sys.executable,
        "-c",
        "from cotenant.cli.main import run; run()",
        "--set",
        "manager.features_off=[colo]",
    ]
    command += ["serve", "manager", "--once", "--kubeconfig", str(cluster.account)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "no feature is named 'colo'" in done.stderr
    assert "colocation" in done.stderr
