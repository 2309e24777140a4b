"""The demo as `make demo` starts it: the workloads that docs/demo.md sends its reader to do what is said of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.settings.load import load
from cotenant.base.store import Store
from cotenant.recommender.model.views import Overview
from cotenant.scheduler_ext.cluster_size.report import REPORT, SizeReport
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER
from tests.cluster.waiting import wait_for

pytestmark = [pytest.mark.server, pytest.mark.soak]

COTENANT = str(Path(sys.executable).with_name("cotenant"))
PATIENCE = 900.0
"""Seconds until the demo is up; a minute on a machine that has nothing else to do."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The settings file of a running demo of the size that people see."""
    home = tmp_path_factory.mktemp("home")
    env = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("demo")), "HOME": str(home)}
    log = home / "demo.log"
    with log.open("w") as out:
        command = [COTENANT, "demo", "--port", "0", "--no-browser"]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        yield _said(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _said(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if match := re.search(r"COTENANT_CONFIG=(\S+)", log.read_text()):
            return match[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "code", "phrase"),
    [
        ("pay/checkout", 0, "the API server would accept the change"),
        ("feed/rank", 0, "the API server would accept the change"),
        ("pay/vault", 3, "stopped by qos-class; --override RULE"),  # 3: a guardrail stopped all of it
    ],
)
def test_a_workload_of_the_tour_comes_out_of_its_guardrails_as_the_tour_says(
    config: str, workload: str, code: int, phrase: str
) -> None:
    env = {**os.environ, "COTENANT_CONFIG": config}
    done = subprocess.run([COTENANT, "recs", "apply", workload], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, phrase in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "no setting any more" not in done.stderr, "the demo's own settings file names no constant"


@pytest.mark.slow
def test_a_pronounced_peak_is_ahead_on_the_first_screen(config: str) -> None:
    settings = load(Settings(), Path(config), {}, {}).settings
    overview = Store(settings.store.url, CLUSTER).read_document("overview", Overview)
    assert overview is not None and overview.peak is not None
    assert overview.peak.pronounced


@pytest.mark.slow
def test_the_doctor_counts_the_age_of_the_history_by_the_clock_of_the_demo(config: str) -> None:
    env = {**os.environ, "COTENANT_CONFIG": config}
    done = subprocess.run([COTENANT, "doctor", "-o", "json"], env=env, capture_output=True, text=True, check=False)
    (history,) = [finding for finding in json.loads(done.stdout) if finding["probe"] == "history"]
    # minutes by the demo's clock, which begins where the history ends; by the machine's it is days or years
    assert history["state"] == "ok" and "newest 0." in history["found"], history


@pytest.mark.slow
def test_status_knows_the_plans_of_the_demo_s_own_cluster(config: str) -> None:
    env = {**os.environ, "COTENANT_CONFIG": config}
    done = subprocess.run([COTENANT, "status"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and re.search(r"\d plans for approval", done.stdout), done.stdout + done.stderr


@pytest.mark.slow
def test_the_question_which_nodes_could_leave_is_answered_by_itself(config: str) -> None:
    settings = load(Settings(), Path(config), {}, {}).settings
    store = Store(settings.store.url, CLUSTER)
    wait_for("an answer", lambda: store.read_document(REPORT, SizeReport), 300)
    report = store.read_document(REPORT, SizeReport)
    assert report is not None and report.gaps == ()
    assert all(sized.size is not None and sized.size.nodes_now == 60 for sized in report.levels)
