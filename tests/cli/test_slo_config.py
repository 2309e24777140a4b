"""What slo-controller-config means on a node and what is wrong with it, as a user asks the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP, SYSTEM_NAMESPACE
from cotenant.cli.main import root
from tests.cluster.control_plane import ControlPlane

DATA = {
    "colocation-config": '{"enable": true}',
    "resource-threshold-config": json.dumps(
        {
            "clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 75},
            "nodeStrategies": [
                {
                    "name": "gpu",
                    "nodeSelector": {"matchLabels": {"pool": "gpu"}},
                    "cpuSuppressThresholdPercent": 50,
                }
            ],
        }
    ),
}


def config_map(data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": SLO_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "slo.yaml"
    path.write_text(yaml.safe_dump(config_map(DATA)))
    return path


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(root, list(arguments), env={"HOME": "/nonexistent", **env})


def layers(result: Result) -> dict[str, tuple[Any, str]]:
    """Field -> (value, layer) of the thresholds."""
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)["values"]
    return {v["field"]: (v["value"], v["layer"]) for v in values if v["key"] == "resource-threshold-config"}


def test_every_value_in_force_is_shown_with_the_layer_that_set_it(file: Path) -> None:
    arguments = ("explain", "node-slo", "n1", "--config-map", str(file), "-o", "json", "--labels")
    gpu = layers(run(*arguments, "pool=gpu,zone=a"))
    assert gpu["cpuSuppressThresholdPercent"] == (50, "nodeStrategies[0] gpu")
    assert gpu["memoryEvictThresholdPercent"] == (75, "clusterStrategy")
    assert gpu["cpuSuppressPolicy"] == ("cpuset", "built-in")
    other = layers(run(*arguments, "pool=web"))
    assert other["cpuSuppressThresholdPercent"] == (65, "built-in")


def test_the_explanation_is_readable_as_text(file: Path) -> None:
    done = run("explain", "node-slo", "n1", "--config-map", str(file), "--labels", "pool=gpu")
    assert done.exit_code == 0
    assert "  cpuSuppressThresholdPercent  50                nodeStrategies[0] gpu" in done.stdout.splitlines()


def test_a_good_file_passes_and_a_bad_key_fails_with_path_range_and_fix(file: Path, tmp_path: Path) -> None:
    good = run("config", "check", "slo-config", str(file))
    assert (good.exit_code, good.stdout) == (0, "")
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        yaml.safe_dump(config_map({**DATA, "cpu-burst-config": '{"clusterStrategy": {"cfsQuotaBurstPercent": 90}}'}))
    )
    done = run("config", "check", "slo-config", str(bad), "-o", "json")
    assert done.exit_code == 3
    assert json.loads(done.stdout) == [
        {
            "key": "cpu-burst-config",
            "severity": "critical",
            "path": "$.clusterStrategy.cfsQuotaBurstPercent",
            "value": "90",
            "problem": "is not a whole number from 100",
            "fix": "Set $.clusterStrategy.cfsQuotaBurstPercent to an allowed value or leave it out.",
        }
    ]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("kind: Secret\ndata: {a: b}", "does not contain a ConfigMap with data"),
        ("kind: ConfigMap\ndata: {colocation-config: {enable: true}}", "data.colocation-config is not a string"),
        ("kind: ConfigMap\nmetadata: [1]", "does not contain a ConfigMap with data"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_file_that_is_no_config_map_is_said_so(tmp_path: Path, text: str, phrase: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    done = run("config", "check", "slo-config", str(path))
    assert done.exit_code == 2
    assert phrase in done.stderr


def test_labels_that_are_none_are_refused(file: Path) -> None:
    done = run("explain", "node-slo", "n1", "--config-map", str(file), "--labels", "pool")
    assert done.exit_code == 2
    assert "key=value" in done.stderr


def test_labels_and_configuration_come_from_the_cluster(control_plane: ControlPlane, file: Path) -> None:
    api = control_plane.api()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "explained", "labels": {"pool": "gpu"}}}
    api.create("/api/v1/nodes", node)
    if not api.exists(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"):
        api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
    arguments = ("explain", "node-slo", "explained", "-o", "json")
    env = {"KUBECONFIG": str(control_plane.admin_kubeconfig)}
    absent = run(*arguments, **env)
    assert "(absent)" in json.loads(absent.stdout)["source"]
    maps = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
    api.create(maps, config_map(DATA))
    assert layers(run(*arguments, **env))["cpuSuppressThresholdPercent"] == (50, "nodeStrategies[0] gpu")
    api.delete(f"{maps}/{SLO_CONFIG_MAP}")
    assert layers(run(*arguments, "--config-map", str(file), **env))["memoryEvictThresholdPercent"] == (
        75,
        "clusterStrategy",
    )
    no_such_node = run("explain", "node-slo", "nobody", **env)
    assert no_such_node.exit_code == 1 and "there is no node nobody" in no_such_node.stderr
