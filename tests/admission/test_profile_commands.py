"""`cotenant config profiles compile` as a user calls it, on files; tests/admission has the same on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.cli.main import root

PROFILES = sorted(str(file) for file in (Path(__file__).parents[2] / "deploy" / "profiles").glob("*.yaml"))
HEAD = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Three profiles: one that compiles, one in part, one that cannot be read; in a List, as kubectl writes them."""
    specs = {
        "whole": {"qosClass": "BE"},
        "part": {"patch": {"spec": {"containers": []}}, "namespaceSelector": {"matchLabels": {"a": "b"}}},
        "broken": {"qosClass": "BEST"},
    }
    items = [{**HEAD, "metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]
    path = tmp_path / "profiles.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def test_shipped_profiles_become_objects_that_kubectl_can_apply() -> None:
    result = CliRunner().invoke(root, ["config", "profiles", "compile", *PROFILES, "-o", "yaml"])
    bodies = list(yaml.safe_load_all(result.stdout))
    assert result.exit_code == 0 and result.stderr == ""
    assert {body["apiVersion"] for body in bodies} == {"admissionregistration.k8s.io/v1"}
    assert (
        sum(body["kind"] == "MutatingAdmissionPolicy" for body in bodies) == 10
    )  # 8 profiles, and two policies for all
    listed = CliRunner().invoke(root, ["config", "profiles", "compile", *PROFILES, "-o", "json"])
    assert json.loads(listed.stdout)["items"] == bodies


def test_what_is_lost_is_a_table_and_exit_code_4(file: str) -> None:
    result = CliRunner().invoke(root, ["config", "profiles", "compile", file])
    rows = [line.split(maxsplit=3) for line in result.stdout.splitlines()[1:]]
    assert result.exit_code == 4
    assert [row[:3] for row in rows] == [
        ["whole", "compiled"],
        ["broken", "left-out", "spec"],
        ["part", "partial", "patch.spec.containers"],
    ]
    assert "what the webhook does for all pods, but no policy can" in result.stderr
    assert "another profile whose PriorityClass does not exist" in result.stderr


def test_with_policies_on_stdout_losses_are_on_stderr(file: str) -> None:
    result = CliRunner().invoke(root, ["config", "profiles", "compile", file, "-o", "yaml", "--api-version", "v1beta1"])
    assert result.exit_code == 4
    assert "broken: spec:" in result.stderr and "part: patch.spec.containers:" in result.stderr
    names = {body["metadata"]["name"] for body in yaml.safe_load_all(result.stdout)}
    assert names == {
        "cotenant-batch-resources",
        "cotenant-limit-range-defaults",
        "cotenant-profile-part",
        "cotenant-profile-whole",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["deploy/webhooks.yaml"], "Service is not a ClusterColocationProfile"),
        (["nowhere.yaml"], "nowhere.yaml cannot be read"),
        ([PROFILES[0], "--api-version", "v2"], "v2 is neither v1 nor v1beta1"),
    ],
)
def test_wrong_words_are_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(root, ["config", "profiles", "compile", *arguments])
    assert result.exit_code == 2 and message in result.stderr
