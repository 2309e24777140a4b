"""What becomes of wants beyond cgroups is told once: in the action log, as a metric; in a dry run as what would be."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.logs.metrics import Metrics
from cotenant.enforcer.contract import Surface, SurfaceWant
from cotenant.enforcer.report.action_log import LOG_CAP_BYTES, LOG_FILE, ActionReporter, AgentMetrics

KEY = "vm/min_free_kbytes"


def want(value: str, key: str = KEY) -> SurfaceWant:
    return SurfaceWant(Surface.SYSCTL, key, value, "system", "the policy says so")


def logged(folder: Path) -> list[tuple[str, str, str]]:
    lines = [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]
    (folder / LOG_FILE).write_text("")
    return [(line["action"], line["outcome"], line["subject"]) for line in lines]


@pytest.fixture
def teller(tmp_path: Path, request: Any) -> ActionReporter:
    return ActionReporter(tmp_path, AgentMetrics(Metrics("0", "3")), None, "n1", getattr(request, "param", False))


def test_a_log_that_cannot_be_turned_over_is_told_of_and_written_again_once_it_can(
    teller: ActionReporter, tmp_path: Path
) -> None:
    (tmp_path / LOG_FILE).touch()
    os.truncate(tmp_path / LOG_FILE, LOG_CAP_BYTES + 1)
    (tmp_path / f"{LOG_FILE}.1" / "in the way").mkdir(parents=True)
    for value in "234":
        teller.surface(Surface.SYSCTL, [want(value)], [], 1.0)
        assert "the action log cannot be written" in teller.error
    shutil.rmtree(tmp_path / f"{LOG_FILE}.1")
    teller.surface(Surface.SYSCTL, [want("5")], [], 2.0)
    assert (teller.error, logged(tmp_path)) == ("", [("write", "written", f"sysctl/{KEY}")])


def test_only_changes_are_told(teller: ActionReporter, tmp_path: Path) -> None:
    for _ in range(3):
        teller.surface(Surface.SYSCTL, [want("1")], [], 0.0)
    assert logged(tmp_path) == [("write", "written", f"sysctl/{KEY}")]
    teller.surface(Surface.SYSCTL, [want("2")], [], 1.0)
    teller.surface(Surface.TRAFFIC, [], [], 1.0)
    assert logged(tmp_path) == [("write", "written", f"sysctl/{KEY}")]
    for _ in range(2):
        teller.surface(Surface.SYSCTL, [], [], 2.0)
    assert logged(tmp_path) == [("restore", "restored", f"sysctl/{KEY}")]


def test_what_fails_is_told_until_it_changes(teller: ActionReporter, tmp_path: Path) -> None:
    for wrong in ([f"{KEY}: Permission denied"], [f"{KEY}: Permission denied"], [], []):
        teller.surface(Surface.SYSCTL, [want("1")], wrong, 0.0)
    assert [outcome for _, outcome, _ in logged(tmp_path)] == ["failed", "written"]


def test_each_attempt_that_fails_is_counted_so_that_an_alert_sees_it_go_on(tmp_path: Path) -> None:
    metrics = AgentMetrics(Metrics("0", "3"))
    reporter = ActionReporter(tmp_path, metrics, None, "n1", False)
    for wrong in (["denied"], ["denied"], ["denied"], [], []):
        reporter.surface(Surface.SYSCTL, [want("1")], wrong, 0.0)
    counts = {
        outcome: metrics.registry.get_sample_value(
            "cotenant_enforcer_actions_total", {"strategy": "system", "knob": "sysctl", "outcome": outcome}
        )
        for outcome in ("failed", "written")
    }
    assert counts == {"failed": 3, "written": 1}


@pytest.mark.parametrize("teller", [True], indirect=True)
def test_a_dry_run_says_what_it_would_write(teller: ActionReporter, tmp_path: Path) -> None:
    teller.surface(Surface.SYSCTL, [want("1")], [], 0.0)
    (line,) = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert (line["outcome"], line["dry_run"], line["value"]) == ("would-write", True, "1")
