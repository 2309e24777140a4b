"""The workflows of continuous integration and release, judged by zizmor without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
ZIZMOR = Path(sys.executable).with_name("zizmor")


def audit(folder: Path) -> subprocess.CompletedProcess[str]:
    """zizmor's strictest view of a folder of workflows."""
    command = [str(ZIZMOR), "--offline", "--no-progress", "--persona=auditor", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_zizmor_finds_nothing() -> None:
    done = audit(WORKFLOWS)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("pattern", "replacement", "rule"),
    [
        (r"(actions/checkout)@\w{40}", r"\1@v5", "unpinned-uses"),
        (r"permissions: \{\}\n", "", "excessive-permissions"),
        (r"with: \{persist-credentials: false\}", "", "artipacked"),
        (r'GITHUB_REF_NAME#v\}', "GITHUB_REF_NAME#v}${{ github.event.head_commit.message }}", "template-injection"),
    ],
)  # fmt: skip
def test_zizmor_sees_what_would_be_wrong(tmp_path: Path, pattern: str, replacement: str, rule: str) -> None:
    folder = tmp_path / ".github" / "workflows"
    shutil.copytree(WORKFLOWS, folder)
    text, count = re.subn(pattern, replacement, (folder / "release.yml").read_text())
    assert count
    (folder / "release.yml").write_text(text)
    done = audit(folder)
    assert done.returncode != 0 and f"[{rule}]" in done.stdout, done.stdout


def test_what_a_workflow_names_is_in_the_tree() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in sorted(WORKFLOWS.iterdir()):
        jobs = yaml.safe_load(path.read_text())["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        for step in steps:
            assert set(re.findall(r"^make ([a-z-]+)$", step.get("run", ""), re.MULTILINE)) <= targets
            assert (ROOT / step.get("with", {}).get("go-version-file", "Makefile")).is_file()
            assert step.get("run") != ".ci/run" or (ROOT / ".ci" / "run").stat().st_mode & 0o100
        assert {
            name
            for job in jobs.values()
            for name in [job.get("needs", [])]
            for name in ([name] if isinstance(name, str) else name)
        } <= set(jobs)
