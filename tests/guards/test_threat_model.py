"""The threat model in SECURITY.md: each of its lines names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

from tools.scan_dashboard import weaknesses

ROOT = Path(__file__).resolve().parents[2]


def lines() -> list[tuple[str, list[str]]]:
    """What somebody has, and the tests that the line names."""
    section = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Threat model")[2]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    return [(row[0].strip(), re.findall(r"`(tests/[^`]+)`", row[2])) for row in cells]


def test_each_line_of_the_threat_model_names_files_of_tests_that_are_there() -> None:
    threats = lines()
    assert len(threats) >= 10
    for who, tests in threats:
        assert tests, who
        for test in tests:
            assert "\ndef test_" in (ROOT / test).read_text(encoding="utf-8"), (who, test)


def test_of_a_scanners_report_all_counts_but_the_two_cookies_of_the_loopback() -> None:
    def finding(info: str, path: str = "/") -> dict[str, str]:
        return {"method": "GET", "path": path, "info": info}

    readable = [finding(f"HttpOnly flag is not set in the cookie : {name}") for name in ("_csrf_token", "x")]
    secure = [finding("Secure flag is not set in the cookie : cotenant_session")]
    cookies = {"Secure Flag cookie": secure, "HttpOnly Flag cookie": readable}
    report = {
        "vulnerabilities": {**cookies, "XSS": [finding("via sort", "/api/v1/nodes")]},
        "anomalies": {"Internal Server Error": [finding("500", "/api/v1/pods")]},
    }
    assert list(weaknesses(report)) == [
        "HttpOnly Flag cookie: GET /: HttpOnly flag is not set in the cookie : x",
        "XSS: GET /api/v1/nodes: via sort",
        "Internal Server Error: GET /api/v1/pods: 500",
    ]
