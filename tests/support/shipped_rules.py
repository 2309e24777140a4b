"""Alerts and panels of deploy/monitoring, as Prometheus is asked them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import yaml

from tests.support.prometheus import Server

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MONITORING / name).read_text()))


def alerts() -> list[dict[str, Any]]:
    return [rule for d in documents("rules.yaml") for group in d["spec"]["groups"] for rule in group["rules"]]


def panel_queries() -> list[str]:
    (config_map,) = documents("grafana.yaml")
    board = json.loads(config_map["data"]["cotenant.json"])
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def rule_files(folder: Path, extra: dict[str, Any] | None = None) -> list[Path]:
    """The rules of each object as Prometheus reads them."""
    specs = {d["metadata"]["name"]: d["spec"] for d in documents("rules.yaml")} | ({"extra": extra} if extra else {})
    for name, spec in specs.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    return [folder / f"{name}.yaml" for name in specs]


def scrape_of(name: str, port: int, bundle: Path | None = None) -> dict[str, Any]:
    """A program on loopback as a target of the job that monitors.yaml makes; bundle: the authority of its HTTPS."""
    job = {"job_name": f"cotenant/{name}", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    return job | ({"scheme": "https", "tls_config": {"ca_file": str(bundle)}} if bundle else {})


def drawn(server: Server, query: str) -> bool:
    """Whether a panel has a value to draw; a query that Prometheus refuses raises."""
    rows = server.api("query", query=query.replace("$__rate_interval", "10s"))["result"]
    return any(not math.isnan(float(row["value"][1])) for row in rows)


def evaluated(server: Server) -> bool:
    """Whether Prometheus has worked out every shipped alert; one that it cannot fails the test with its error."""
    rules = [rule for group in server.api("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in alerts()}
    assert [rule["lastError"] for rule in rules if rule["health"] == "err"] == []
    return all(rule["health"] == "ok" for rule in rules)


def raised(server: Server) -> set[str]:
    """Alerts whose condition holds now, whether or not for as long as they wait."""
    return {alert["labels"]["alertname"] for alert in server.api("alerts")["alerts"]}
