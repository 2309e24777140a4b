"""The threat model in SECURITY.md: each of its lines names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lines() -> list[tuple[str, list[str]]]:
    """What somebody has, and the tests that the line names."""
    section = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Threat model")[2]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    return [(row[0].strip(), re.findall(r"`(tests/[^`]+)`", row[2])) for row in cells]


def test_each_line_of_the_threat_model_names_files_of_tests_that_are_there() -> None:
    found = lines()
    assert len(found) >= 10
    for who, tests in found:
        assert tests, who
        for test in tests:
            assert "\ndef test_" in (ROOT / test).read_text(encoding="utf-8"), (who, test)
