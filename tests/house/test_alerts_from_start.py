"""Alerts about what never went well in a process, judged by promtool over the series that a new process really has."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.registry import CollectorRegistry

from cotenant.base.kube import connect
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.server.health import Health
from cotenant.dashboard.sources.source import StoreSource
from cotenant.enforcer.report.action_log import AgentMetrics
from cotenant.manager.run import Manager
from cotenant.settings import Settings
from tests.house.test_monitoring import expected_alert, promtool
from tests.support.shipped_rules import alerts

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("alert_cases_from_start.yaml").read_text())
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}
TARGET_LABELS = {"pod"}
SPARSE_MINUTES = 5
"""Between two samples of a series of days; a query looks back as far."""
AS_ZERO = "zero_"
"""Before the name of a series of zeros that stands for one of NaN."""

Series = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def at_start(tmp_path: Path) -> dict[Series, float]:
    """Every series of a manager, an agent and a dashboard in which nothing has happened yet, and its value."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    manager, agent = Metrics("t", "3"), Metrics("t", "3")
    Manager(connect(KubeSettings(kubeconfig=str(kubeconfig))), Settings(), manager)
    AgentMetrics(agent)
    settings = Settings().dashboard
    dashboard = Health(View(StoreSource(Store(tmp_path.as_uri(), "c"), settings), settings, lambda: 0.0))
    registries: list[CollectorRegistry] = [manager.registry, agent.registry, dashboard._registry]
    samples = [s for registry in registries for family in registry.collect() for s in family.samples]
    return {(s.name, frozenset(s.labels.items())): s.value for s in samples}


def parsed(series: str) -> Series:
    """promtool's notation of a series -> name and labels, without those that scraping adds."""
    labels = re.findall(r'(\w+)="([^"]*)"', series)
    return series.partition("{")[0], frozenset(pair for pair in labels if pair[0] not in TARGET_LABELS)


@pytest.mark.parametrize("case", CASES, ids=[case["alert"] for case in CASES])
def test_a_case_begins_with_what_a_new_process_shows(case: dict[str, Any], at_start: dict[Series, float]) -> None:
    for series, values in case["series"].items():
        text = values if isinstance(values, str) else values[0]
        if text.startswith("_"):
            assert parsed(series) not in at_start, series
        else:
            assert parsed(series) in at_start, series
            first, shown = float(re.split(r"[x+ ]", text)[0]), at_start[parsed(series)]
            assert first == shown or (math.isnan(first) and math.isnan(shown)), series


@pytest.mark.slow
def test_alerts_fire_for_what_fails_from_the_start(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for rule in alerts() if rule["alert"] in {case["alert"] for case in CASES}}
    nans = [
        {"record": series, "expr": f"{AS_ZERO}{series} / {AS_ZERO}{series}"}
        for case in CASES
        for series, values in case["series"].items()
        if values[:3] == "NaN"
    ]
    groups = [{"name": "nan", "rules": nans}, {"name": "alerts", "rules": list(rules.values())}]
    assert "SUCCESS" in judged(tmp_path, groups, [promtool_test(case, rules[case["alert"]]) for case in CASES])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval_hours", "silent_minute", "firing_minute"),
    [
        # Three hours at least: 180 minutes, and ten more that the rule waits, looking every ten minutes.
        (1, 180, 210),
        # 3 x 12 hours are 2,160 minutes.
        (12, 2160, 2190),
        # The longest that the setting takes, a day: 4,320 minutes.
        (24, 4320, 4350),
    ],
)
def test_the_pipelines_alert_waits_for_three_of_its_intervals(
    interval_hours: int, silent_minute: int, firing_minute: int, tmp_path: Path
) -> None:
    (rule,) = (rule for rule in alerts() if rule["alert"] == "CotenantPipelineStale")
    looks = firing_minute // SPARSE_MINUTES
    stages = [3600 * (look * SPARSE_MINUTES // 60 // interval_hours * interval_hours) for look in range(looks + 1)]
    interval = {'cotenant_task_interval_seconds{task="pipeline"}': f"{3600 * interval_hours}x{looks}"}
    success = 'cotenant_last_success_timestamp_seconds{task="pipeline"}'
    cases: list[dict[str, Any]] = [
        {"silent_at": f"{silent_minute}m", "at": f"{firing_minute}m", "series": interval | {success: f"0x{looks}"}},
        {"silent_at": f"{firing_minute}m", "series": interval | {success: " ".join(map(str, stages))}},
    ]
    worlds = [
        promtool_test(case | {"alert": rule["alert"], "labels": {}}, rule) | {"interval": f"{SPARSE_MINUTES}m"}
        for case in cases
    ]
    groups = [{"name": "alerts", "rules": [rule]}]
    assert "SUCCESS" in judged(tmp_path, groups, worlds, evaluated_every="10m")


def judged(
    folder: Path, groups: list[dict[str, Any]], worlds: list[dict[str, Any]], evaluated_every: str = "1m"
) -> str:
    """What promtool says of the rules in these worlds."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": evaluated_every, "tests": worlds}
    (folder / "cases.yaml").write_text(yaml.safe_dump(document))
    return promtool("test", "rules", str(folder / "cases.yaml"))


def promtool_test(case: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    """One of promtool's tests."""
    expectations: list[tuple[str, list[Any]]] = [(case["silent_at"], [])]
    if "at" in case:
        expectations.append((case["at"], [expected_alert(rule, case["labels"])]))
    return {
        "interval": "1m",
        "input_series": [
            written(series.replace("$N", str(number)), values)
            for series, values in case["series"].items()
            for number in range(case.get("copies", 1))
        ],
        "alert_rule_test": [
            {"eval_time": at, "alertname": case["alert"], "exp_alerts": exp} for at, exp in expectations
        ],
    }


def written(series: str, values: str | list[Any]) -> dict[str, str]:
    """A series in promtool's notation, which knows no NaN: zeros, by which a rule divides."""
    if not isinstance(values, str):
        first, again, times = values
        return {"series": series, "values": " ".join([first, *[again] * times])}
    if values.startswith("NaN"):
        return {"series": AS_ZERO + series, "values": values.replace("NaN ", "0")}
    return {"series": series, "values": values}
