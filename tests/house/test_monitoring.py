"""Alerts, panels and scrapes: judged by the real promtool, over metrics that the programs really have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.cli.main import root
from tests.cluster import needing
from tests.house.rooms import ROOT
from tests.support.documented import commands
from tests.support.shipped_rules import alerts, documents, panel_queries, rule_files
from tools import write_chart_schema
from tools.write_metrics import declared, page, series

RUNBOOKS = ROOT / "docs" / "runbooks"
OWN_OF_PROMETHEUS = {"up": {"job", "pod"}}
TARGET_LABELS = {"job", "pod", "le"}
"""Labels that scraping adds."""
NAME = re.compile(r"\b(?:cotenant_\w+|up)\b(?=[{\[) ]|$)")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
PROGRAMS = ("admission", "cotenant", "dashboard", "enforcer", "scheduler_ext")
MEASURED = r"\.(?:labels|inc|set|observe|set_function|info)\("
HEADINGS = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]


def promtool(*arguments: str) -> str:
    needing.promtool()
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_of_metrics_is_what_the_programs_declare() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), "run: python -m tools.write_metrics > docs/metrics.md"


def test_every_declared_metric_is_on_the_page_and_measured_somewhere() -> None:
    """A metric that is declared and never set has no series: an alert over it would be silent for ever."""
    sources = {p: p.read_text() for program in PROGRAMS for p in (ROOT / program).rglob("*.py")}
    measured = {name for text in sources.values() for name in re.findall(rf"(\w+){MEASURED}", text)}
    names = {name for families in declared().values() for name, *_ in families}
    for path, text in sources.items():
        if "from prometheus_client import" not in text:
            continue
        literal = re.findall(r"(?:Counter|Gauge|Histogram)(?:MetricFamily)?\(\s*\"(cotenant_\w+)\"", text)
        assert {n for n in literal if not {n, f"{n}_total"} & names} == set(), path
        for attribute in re.findall(r"(?:self\.)?(\w+) = (?:Counter|Gauge|Histogram|Info)\(", text):
            assert attribute in measured, f"{path}: {attribute} is never measured"


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in alerts()), *panel_queries()])
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    labels_by_metric = {**series(declared()), **OWN_OF_PROMETHEUS}
    names = NAME.findall(query)
    assert names
    for name in names:
        assert name in labels_by_metric
        for matchers in re.findall(rf"\b{name}{{([^}}]*)}}", query):
            assert set(MATCHER.findall(matchers)) <= labels_by_metric[name] | TARGET_LABELS
    grouped = {label.strip() for part in re.findall(r"\bby \(([^)]*)\)", query) for label in part.split(",")}
    assert grouped <= set.union(*(labels_by_metric[name] for name in names)) | TARGET_LABELS


def test_prometheus_takes_every_rule_and_every_panels_query(tmp_path: Path) -> None:
    panels = [
        {"record": f"panel:{n}", "expr": query.replace("$__rate_interval", "5m")}
        for n, query in enumerate(panel_queries())
    ]
    assert len(panels) >= 20
    files = rule_files(tmp_path, {"groups": [{"name": "panels", "rules": panels}]})
    output = promtool("check", "rules", *map(str, files))
    assert output.count("SUCCESS") == len(files)
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


@pytest.mark.slow
def test_every_alert_fires_when_it_should_and_is_silent_otherwise(tmp_path: Path) -> None:
    cases = yaml.safe_load(Path(__file__).with_name("alert_cases.yaml").read_text())
    assert set(cases) == {rule["alert"] for rule in alerts()}
    rules = {rule["alert"]: rule for rule in alerts()}
    missing = {name for name, rule in rules.items() if rule["expr"].startswith("absent(")}
    worlds = ((set(rules) - missing, "fires"), (missing, "fires"), (set(rules), "silent"))
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values}
                for name, values in {n: v for alert in sorted(names) for n, v in cases[alert][which].items()}.items()
            ],
            "alert_rule_test": [
                {
                    "eval_time": cases[alert]["at"],
                    "alertname": alert,
                    "exp_alerts": [expected_alert(rules[alert], cases[alert]["labels"])] if which == "fires" else [],
                }
                for alert in sorted(names)
            ],
        }
        for names, which in worlds
    ]
    document = {"rule_files": [file.name for file in rule_files(tmp_path)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "cases.yaml"))


def expected_alert(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """The alert with its annotations filled in."""
    annotations = {
        key: re.sub(r"{{ \$labels\.(\w+) }}", lambda label_match: labels[label_match[1]], text)
        for key, text in rule["annotations"].items()
    }
    return {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": annotations}


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    index = (RUNBOOKS / "index.md").read_text()
    assert {rule["alert"] for rule in alerts()} == {p.stem for p in RUNBOOKS.glob("*.md")} - {"index"}
    for rule in alerts():
        file = ROOT / rule["annotations"]["runbook_url"]
        text = file.read_text()
        assert file.stem == rule["alert"] and f"({rule['alert']}.md) | {rule['labels']['severity']} |" in index
        assert re.findall(r"^## .*$", text, re.MULTILINE) == HEADINGS
        assert re.search(r"^Severity: (\w+)\.", text, re.MULTILINE)[1] == rule["labels"]["severity"]  # type: ignore[index]
        assert all(len(part.strip()) > 30 for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:])


def test_every_command_of_a_runbook_exists() -> None:
    shown = {command.words for file in RUNBOOKS.glob("*.md") for command in commands(file)}
    ours = sorted(
        {arguments[:1] + tuple(w for w in arguments[1:3] if w.islower() and w.isalpha()) for arguments in shown}
    )
    for arguments in ours:
        if arguments[0] == "cotenant":
            result = CliRunner().invoke(root, [*arguments[1:], "--help"])
            assert result.exit_code == 0 and " ".join(arguments) in result.output, arguments
    assert {arguments[0] for arguments in shown} == {"cotenant", "kubectl"}
    manifests = "".join(p.read_text() for p in (ROOT / "deploy").rglob("*.yaml"))
    for arguments in shown:
        for word in arguments if arguments[0] == "kubectl" else ():
            for name in re.findall(r"\bcotenant-[a-z-]+", word):
                assert f"ame: {name}" in manifests or f'"{name}"' in manifests or name in {"cotenant-status"}, arguments


def test_a_runbook_names_values_and_settings_that_the_charts_schema_takes() -> None:
    schema = write_chart_schema.schema()
    roots = set(schema["properties"]) | set(schema["$defs"]["Settings"]["properties"])
    checked = set()
    for file in RUNBOOKS.glob("*.md"):
        for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)`", file.read_text()):
            way = name.split(".")
            if way[0] in roots:
                assert leads(schema, schema, way) or leads(schema, schema["$defs"]["Settings"], way), (file.name, name)
                checked.add(name)
    assert {"networkPolicy.prometheusNamespace", "manager.features_off"} <= checked


def leads(schema: dict[str, Any], level: dict[str, Any], way: list[str]) -> bool:
    """Whether a path of names leads to a property."""
    for name in way:
        level = schema["$defs"][level["$ref"].rpartition("/")[2]] if "$ref" in level else level
        if name not in level.get("properties", {}):
            return False
        level = level["properties"][name]
    return True


def test_a_runbook_that_installs_or_uninstalls_says_how_with_helm() -> None:
    """`cotenant install` and `uninstall` leave alone what Helm installed."""
    for file in RUNBOOKS.glob("*.md"):
        text = file.read_text()
        if re.search(r"cotenant (un)?install\b", text):
            assert "helm upgrade" in text and "cotenant uninstall" not in text, file.name


def test_what_is_scraped_is_a_port_of_our_pods() -> None:
    pods = {}
    for file in (ROOT / "deploy").glob("*.yaml"):
        for body in yaml.safe_load_all(file.read_text()):
            template = ((body or {}).get("spec") or {}).get("template")
            if isinstance(template, dict):
                (container, *_) = template["spec"]["containers"]
                pods[template["metadata"]["labels"]["app.kubernetes.io/name"]] = {
                    p["name"] for p in container.get("ports", ())
                }
    for monitor in documents("monitors.yaml"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in pods[monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]]
