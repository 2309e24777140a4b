"""A summary says the figures of the rows, cannot be read as mark-up, and fits what Slack takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.chat import HEADER_CHARACTERS, SECTION_CHARACTERS, escape_slack_text
from cotenant.base.errors import UsageError
from cotenant.base.resource import GIB
from cotenant.base.settings.sections import NotifySettings
from cotenant.base.table import Table
from cotenant.cli.analysis.notice import Summary, Worst, address, payload, summarise, worth_sending
from cotenant.recommender.model.savings import RequestTotals, Savings
from cotenant.recommender.model.views import FINDINGS, RECOMMENDATIONS
from tests.support.overview import overview

HOSTILE = "<!channel> <https://evil.example|click> &lt; `x` \u202e"


def row(name: str = "web", severity: str = "critical", **more: Any) -> dict[str, Any]:
    base = {
        "namespace": "shop", "kind": "Deployment", "workload": name, "container": "app", "severity": severity,
        "cpu_request_now": 1000, "cpu_request": 250, "memory_request_now": 2 * GIB, "memory_request": GIB,
        "cpu_delta_total": -1500, "memory_delta_total": -2 * GIB, "freed_month": 10.0,
    }  # fmt: skip
    return {**base, **more}


def summary_of(*rows: dict[str, Any], findings: list[dict[str, Any]] | None = None) -> Summary:
    table = None if findings is None else Table.from_rows(FINDINGS, findings)
    return summarise(overview("prod"), Table.from_rows(RECOMMENDATIONS, rows), table, "EUR")


def texts(message: dict[str, Any]) -> str:
    return "\n".join([message["text"], *(block["text"]["text"] for block in message["blocks"])])


def test_the_figures_are_those_of_the_rows() -> None:
    calm = row("calm", "good", cpu_delta_total=500, memory_delta_total=None, freed_month=0.0, raised_month=2.5)
    summary = summary_of(calm, row(), findings=[{"finding": "idle-node", "severity": "warning"}])
    # web frees 1,500m, calm raises 500m: apart, each a positive number; 10.00 and 2.50 a month
    assert summary.all_steps == Savings(RequestTotals(1500, 2 * GIB, 10.0), RequestTotals(500, 0, 2.5))
    assert summary.severities == {"critical": 1, "good": 1}
    assert summary.findings == {"idle-node": 1}
    assert [w.container for w in summary.worst] == ["shop/Deployment/web/app", "shop/Deployment/calm/app"]
    plain = payload(summary, NotifySettings(format="json"))
    assert json.loads(json.dumps(plain))["worst"][0]["cpu_request"] == 250
    assert len(plain["worst"]) == 1  # calm is below the minimum severity


def test_slack_reads_counts_savings_and_the_worst_rows() -> None:
    text = texts(payload(summary_of(row(), row("idle", "good")), NotifySettings()))
    assert "cotenant: prod" in text
    assert "1 critical, 1 good" in text
    assert "After all steps: *frees 3 cores, 4 GiB, 20.00 EUR a month*" in text
    assert "`shop/Deployment/web/app` CPU 1 → 250m, memory 2.0Gi → 1.0Gi" in text


def test_names_are_no_links_mentions_or_code_marks_in_slack() -> None:
    message = payload(summary_of(row(HOSTILE)), NotifySettings())
    text = texts(message)
    assert "<" not in text
    assert ">" not in text
    assert "&lt;!channel&gt; &lt;https://evil.example|click&gt; &amp;lt; 'x' \\u202e" in text
    assert text.count("`") == 2  # ours
    assert all(block["text"].get("verbatim", True) for block in message["blocks"])


@given(st.text(max_size=400), st.integers(20, 200))
def test_escaping_is_bounded_and_never_ends_inside_an_escape(text: str, most: int) -> None:
    escaped = escape_slack_text(text, most)
    assert len(escaped) <= most
    assert not set(escaped) & set("<>`")
    for part in escaped.split("&")[1:]:
        assert part.startswith(("amp;", "lt;", "gt;"))


@given(st.integers(0, 20), st.text("<&>`a", min_size=1, max_size=300))
def test_a_message_stays_within_slacks_limits(rows: int, name: str) -> None:
    message = payload(summary_of(*[row(name)] * 20), NotifySettings(rows=rows))
    assert len(message["blocks"]) <= 50
    for block in message["blocks"]:
        assert 0 < len(block["text"]["text"]) <= (HEADER_CHARACTERS if block["type"] == "header" else 3000)
    assert SECTION_CHARACTERS <= 3000


@pytest.mark.parametrize(("least", "sent"), [("good", True), ("ok", True), ("warning", False), ("critical", False)])
def test_nothing_is_worth_sending_below_the_minimum_severity(least: Any, sent: bool) -> None:
    assert worth_sending(summary_of(row(severity="ok")), NotifySettings(minimum_severity=least)) is sent
    assert not worth_sending(summary_of(row(severity="unknown")), NotifySettings(minimum_severity=least))
    severe = summary_of(row(severity="ok"), findings=[{"finding": "unschedulable-request", "severity": "critical"}])
    assert worth_sending(severe, NotifySettings(minimum_severity=least))


def test_an_address_comes_from_the_option_a_file_or_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "address"
    file.write_text("https://hooks.example/T0/secret\n")
    assert address("https://other.example/x", NotifySettings(url_file=str(file))) == "https://other.example/x"
    assert address(str(file), NotifySettings()) == "https://hooks.example/T0/secret"
    assert address(None, NotifySettings(url_file=str(file))) == "https://hooks.example/T0/secret"
    assert address(None, NotifySettings()) == ""


def test_a_file_without_an_address_is_refused_without_showing_what_it_holds(tmp_path: Path) -> None:
    for content in (b"hooks.example/T0/secret", b"", b"\xff\xfe", b"ftp://h/secret"):
        (tmp_path / "address").write_bytes(content)
        with pytest.raises(UsageError) as caught:
            address(str(tmp_path / "address"), NotifySettings())
        assert "secret" not in caught.value.message
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        address(str(tmp_path / "none"), NotifySettings())


def test_a_summary_without_savings_says_none() -> None:
    summary = summary_of(row(freed_month=None))
    assert summary.all_steps.frees.monthly is None
    assert "month" not in texts(payload(summary, NotifySettings()))
    assert isinstance(summary.worst[0], Worst)
