"""What people write into a file may be anything; it is read, or the error says what is wrong with it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cotenant.base.commands.files import documents
from cotenant.base.errors import UsageError
from cotenant.cli.main import root
from cotenant.scheduler_ext.extender.commands.why import template_of

BROKEN = {
    "a day that no calendar has": "kind: Reservation\nwhen: 2026-13-45\n",
    "a sign beyond Unicode": 'kind: "\\U00FFFFFF"\n',
    "too deep": "[" * 1_000,
    "not closed": "a: [",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("arguments", [("config", "convert", "reservation"), ("config", "check", "slo-config")])
def test_what_is_no_yaml_is_said_to_be_none(file: Path, text: str, arguments: tuple[str, ...]) -> None:
    file.write_text(text)
    done = CliRunner().invoke(root, [*arguments, str(file)])
    assert done.exit_code == 2
    assert f"{file} is not YAML" in done.stderr
    with pytest.raises(UsageError, match="is not YAML"):
        template_of(file, "shop")


def test_no_file_and_an_empty_one_are_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        documents(str(file))
    monkeypatch.setattr("sys.stdin", io.StringIO("---\n---\n"))
    with pytest.raises(UsageError, match="contains no object"):
        documents("-")


META, SPEC = "metadata: {labels: {app: web}}", "spec: {containers: [{name: web}]}"
POD = f"{META}\n{SPEC}"
TEMPLATE = f"spec: {{template: {{{META}, {SPEC}}}}}"


@pytest.mark.parametrize(
    "text",
    [
        f"kind: Pod\n{POD}",
        f"kind: Deployment\nmetadata: {{name: web, namespace: pay}}\n{TEMPLATE}",
        f"kind: CronJob\nmetadata: [web]\nspec: {{jobTemplate: {{{TEMPLATE}}}}}",
    ],
)
def test_the_pod_of_a_manifest_is_found_where_its_kind_keeps_it(file: Path, text: str) -> None:
    file.write_text(text)
    template = template_of(file, "shop")
    metadata = {"name": "web", "namespace": "pay"} if "Deployment" in text else {"name": "", "namespace": "shop"}
    assert template["metadata"] == {**metadata, "labels": {"app": "web"}}
    assert template["spec"] == {"containers": [{"name": "web"}]}


@pytest.mark.parametrize("text", ["spec: 5", "spec: containers", "[1]", "kind: ConfigMap", "spec: {template: 1}"])
def test_a_manifest_without_a_pod_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match="neither a pod nor a pod template"):
        template_of(file, "shop")


def test_of_several_objects_none_is_taken_for_the_one_that_is_meant(file: Path) -> None:
    file.write_text(f"{POD}\n---\n{POD}")
    with pytest.raises(UsageError, match="holds several objects"):
        template_of(file, "shop")
