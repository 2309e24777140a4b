"""`make audit` passes only when every package was asked about and none has a known vulnerability."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.audit import judged

ROOT = Path(__file__).resolve().parents[2]
CLEAN: dict[str, Any] = {"name": "alpha", "version": "1.0", "vulns": []}
BAD: dict[str, Any] = {"name": "beta", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
SKIPPED: dict[str, Any] = {"name": "gamma", "skip_reason": "Dependency not found on PyPI: gamma (3.0)"}


def test_packages_that_nobody_could_be_asked_about_fail_the_audit() -> None:
    audit = judged({"dependencies": [SKIPPED, {**SKIPPED, "name": "delta"}], "fixes": []})
    assert not audit.passed
    assert audit.lines() == [
        "audit failed: no answer about 2 of 2 packages (gamma, delta): Dependency not found on PyPI"
    ]


@pytest.mark.parametrize(
    ("packages", "passed", "line"),
    [
        ([CLEAN], True, "no known vulnerabilities in 1 packages; each was asked about"),
        ([CLEAN, SKIPPED], False, "no answer about 1 of 2 packages"),
        ([CLEAN, BAD], False, "beta: PYSEC-1"),
        ([], False, "names no package at all"),
    ],
)
def test_only_a_whole_clean_answer_passes(packages: list[dict[str, Any]], passed: bool, line: str) -> None:
    audit = judged({"dependencies": packages, "fixes": []})
    assert audit.passed is passed and any(line in text for text in audit.lines())


def test_every_lock_of_the_repository_is_audited() -> None:
    done = subprocess.run(
        ["make", "-n", "audit"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    (line,) = (line for line in done.stdout.splitlines() if "tools.audit" in line)
    locks = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "locks").glob("*.txt"))
    assert len(locks) >= 5 and [part for part in line.split() if part.startswith("locks/")] == locks


def test_a_service_that_does_not_answer_fails_the_audit(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"idna==3.10 --hash=sha256:{'0' * 64}\n")
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")
    env = {**{k: v for k, v in os.environ.items() if k.lower() != "no_proxy"}, **nowhere}
    done = subprocess.run(
        [sys.executable, "-m", "tools.audit", str(lock)],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "could not be asked" in done.stdout, done.stdout + done.stderr
