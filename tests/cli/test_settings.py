"""`cotenant config`: origins, secrets, validation, the page and the schema."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.base.settings.docs import schema, settings_markdown
from cotenant.cli.main import root
from cotenant.settings import Settings


def invoke(*args: str, env: dict[str, str] | None = None) -> Any:
    return CliRunner().invoke(root, ["config", *args], env={"HOME": "/nonexistent", **(env or {})})


def test_show_says_who_set_each_value(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("dashboard:\n  port: 8051\n  base_path: /a/\n")
    env = {"COTENANT_DASHBOARD__BASE_PATH": "/b/"}
    result = invoke("show", "dashboard", "--changed", "-o", "json", "--config", str(file), env=env)
    assert [(r["setting"], r["value"], r["origin"], r["place"]) for r in json.loads(result.stdout)] == [
        ("dashboard.port", "8051", "file", f"{file} line 2"),
        ("dashboard.base_path", "/b/", "env", "COTENANT_DASHBOARD__BASE_PATH"),
    ]


@pytest.mark.slow
def test_show_is_the_same_rows_in_every_format() -> None:
    rows = json.loads(invoke("show", "-o", "json").stdout)
    assert rows == yaml.safe_load(invoke("show", "-o", "yaml").stdout)
    in_csv = list(csv.DictReader(io.StringIO(invoke("show", "-o", "csv").stdout)))
    assert [r["setting"] for r in in_csv] == [r["setting"] for r in rows]
    lines = invoke("show", "--no-headers").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [r["setting"] for r in rows]


@pytest.mark.slow
def test_show_never_prints_a_secret() -> None:
    env = {
        "COTENANT_PROFILER__PROMETHEUS__HEADERS": "{Authorization: Bearer s3cret}",
        "COTENANT_PROFILER__PROMETHEUS__URL": "https://me:s3cret@prom.example/x",
    }
    for output in ("table", "wide", "json", "yaml", "csv"):
        shown = invoke("show", "-o", output, env=env)
        assert shown.exit_code == 0
        assert "s3cret" not in shown.stdout + shown.stderr
    assert "prom.example" in shown.stdout


def test_validate_accepts_and_refuses_a_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("dashboard: {port: 8051}\n")
    good = invoke("validate", str(file))
    assert (good.exit_code, good.stdout) == (0, "")
    assert "valid: 1 of" in good.stderr
    file.write_text("dashboard: {port: 99999}\n")
    bad = invoke("validate", str(file))
    assert (bad.exit_code, bad.stdout) == (2, "")
    assert f"{file} line 1: dashboard.port is '99999', it must be whole number, >= 0, <= 65535" in bad.stderr


@pytest.mark.parametrize(
    ("text", "message", "listed_name"),
    [
        ("recommender: {strategy: vpaa}", "no strategy is named 'vpaa'", "krr-simple-limit"),
        ("forecasting: {plugins: [oracle]}", "no forecaster is named 'oracle'", "cotenant.forecasters"),
        ("forecasting: {holidays: XX}", "XX", "country"),
        ("actions: {windows: [nights]}", "'nights' is not a change window", "mon-fri 20:00-06:00"),
        ("autopilot: {ceiling: {windows: [daily 01:00-05:00 Berlin]}}", "'Berlin' is not a time zone", "Europe/Berlin"),
        ("manager: {features_off: [colo]}", "no feature is named 'colo'", "colocation"),
        ("enforcer: {strategies_off: [burst]}", "names 'burst': no such strategy", "cpu-burst"),
        ("clusters: {east: {recommender: {strategy: vpaa}}}", "no strategy is named 'vpaa'", "krr-simple-limit"),
    ],
)
def test_validate_refuses_what_nothing_can_use_and_says_what_there_is(
    tmp_path: Path, text: str, message: str, listed_name: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"{text}\n")
    refused = invoke("validate", str(file))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{file} line 1" in refused.stderr and message in refused.stderr and listed_name in refused.stderr


def test_schema_and_docs_are_the_generated_ones() -> None:
    assert json.loads(invoke("schema").stdout) == schema(Settings)
    assert invoke("docs").stdout == settings_markdown(Settings)
