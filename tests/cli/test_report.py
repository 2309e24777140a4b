"""The HTML report says what the rows say, needs nothing else, and no name in it is anything but text."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.table import Table
from cotenant.base.text import visible
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.cli.report.scan_drawings import band, bar, heat, sparkline
from cotenant.cli.report.scan_report import MOST_ROWS, ReportContents, page
from cotenant.recommender.model.recommendation import Action, Backtest, Clamp, Field, Recommendation, Trust, Value
from cotenant.recommender.model.views import FINDINGS, RECOMMENDATIONS, WORKLOADS, BandSeries
from tests.support.overview import overview

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>1</script>",
    "a\u202eb\u2066c\x00\x1b[31m",
    "&lt;b&gt;",
    "--><!--",
    "${7*7}{{7*7}}",
]


class Parsed(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def texts(self) -> str:
        return "".join(self.words)

    def fields(self) -> dict[str, dict[str, tuple[str, str]]]:
        """container -> field -> (now, proposed), as the page holds them."""
        by_container: dict[str, dict[str, tuple[str, str]]] = {}
        container = ""
        for _, attributes in self.tags:
            container = attributes.get("data-container") or container
            if name := attributes.get("data-field"):
                now, proposed = attributes["data-now"], attributes["data-value"]
                by_container.setdefault(container, {})[name] = (now or "", proposed or "")
        return by_container


def row(name: str = "web", **more: Any) -> dict[str, Any]:
    base = {
        "namespace": "shop", "kind": "Deployment", "workload": name, "container": "app", "replicas": 3,
        "severity": "critical", "cpu_request_now": 1000, "cpu_request": 250, "memory_request_now": None,
        "memory_request": GIB, "memory_limit_now": 2 * GIB, "memory_limit": GIB, "cpu_limit_now": 2000,
        "cpu_action": "set", "memory_action": "set", "memory_limit_action": "set", "cpu_limit_action": "unset",
        "cpu_delta_total": -2250, "cpu_reason": "ok", "memory_reason": "oom-bump", "freed_month": 12.0,
        "confidence": 0.8,
    }  # fmt: skip
    return {**base, **more}


def contents(*rows: dict[str, Any], **more: Any) -> ReportContents:
    report_contents = ReportContents(overview(), Table.from_rows(RECOMMENDATIONS, rows), {}, None, None, None, "EUR")
    return replace(report_contents, **more)


def recommendation(name: str = "web", text: str = "x") -> Recommendation:
    value = Value(
        Resource.CPU, Field.REQUEST, 1000, 250, Action.SET, Reason.OK, formula=text, clamps=(Clamp(text, 1, 2),),
        overrides=(text,),
    )  # fmt: skip
    ref = ContainerRef(WorkloadRef("shop", "Deployment", name), "app")
    advice = Recommendation(ref, "cotenant", 3, (value,), 0, "d", 0, notes=(text,))
    tried = Backtest(7, 3.0, 40.0, 0, 2, 1, 2250, 0)
    return replace(advice, backtest=tried, trust=Trust(0.8, (text,)))


def test_every_amount_on_the_page_is_the_rows_own() -> None:
    parsed = Parsed(page(contents(row(), row("db", cpu_request=None, cpu_action="withheld"))))
    assert parsed.fields() == {
        "shop/Deployment/web/app": {
            "cpu_request": ("1000", "250"), "cpu_limit": ("2000", ""),
            "memory_request": ("", str(GIB)), "memory_limit": (str(2 * GIB), str(GIB)),
        },
        "shop/Deployment/db/app": {
            "cpu_request": ("1000", ""), "cpu_limit": ("2000", ""),
            "memory_request": ("", str(GIB)), "memory_limit": (str(2 * GIB), str(GIB)),
        },
    }  # fmt: skip
    page_texts = parsed.texts()
    assert "request 1 → 250m" in page_texts
    assert "limit 2 → unset" in page_texts
    assert "no statement" in page_texts
    assert SENTENCES[Reason.OOM_BUMP] in page_texts


def test_a_back_test_is_told_beside_the_present_values_and_its_lack_is_told_too() -> None:
    advice = recommendation()
    text = Parsed(page(contents(row(), recommendations={advice.container: advice}))).texts()
    assert "0 OOM kills (2 with the present values)" in text
    assert "3 min throttled (40 with the present values)" in text
    assert "1 pod-day with memory above the new request but not the old one" in text
    assert "x: 1m → 2m" in text  # the rule that moved it
    assert "frees 12.00 EUR a month" in text
    assert "raises 12.00 EUR a month" in Parsed(page(contents(row(freed_month=0.0, raised_month=12.0)))).texts()
    assert "not tried" in Parsed(page(contents(row()))).texts()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_anything_but_text(name: str) -> None:
    advice = recommendation(name, name)
    finding = {
        "finding": name, "severity": name, "namespace": name, "kind": name, "workload": name, "container": name,
        "evidence": name,
    }  # fmt: skip
    hostile = row(name, namespace=name, kind=name, container=name, cpu_reason=name)
    usage = {"namespace": name, "kind": name, "workload": name, "sparkline": [1.0]}
    text = page(
        contents(
            hostile, row(name),
            overview=overview(name, source=name, notes=(name,)),
            recommendations={advice.container: advice},
            workloads=Table.from_rows(WORKLOADS, [usage]),
            findings=Table.from_rows(FINDINGS, [finding]),
            quality=QualityRecord(0, name, 60, 1, 1, defects={Defect.NEGATIVE: 2}),
            currency=name,
        )
    )  # fmt: skip
    parsed = Parsed(text)
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "iframe", "object", "link", "a", "form", "input", "b>"}
    assert not [a for _, attributes in parsed.tags for a in attributes if a.startswith("on")]
    assert [tag for tag, _ in parsed.tags].count("style") == 1
    assert visible(name) in parsed.texts()
    assert not set(text) & set("\u202e\u2066\x00\x1b")


def test_the_page_asks_nobody_for_anything() -> None:
    text = page(contents(row()))
    assert "default-src 'none'" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_a_page_of_many_rows_says_what_it_leaves_out() -> None:
    rows = [row(f"w{i}", severity="good") for i in range(MOST_ROWS + 7)] + [row("worst")]
    parsed = Parsed(page(contents(*rows)))
    assert f"The {MOST_ROWS} most severe of {MOST_ROWS + 8} rows" in parsed.texts()
    assert len(parsed.fields()) == MOST_ROWS
    assert next(iter(parsed.fields())) == "shop/Deployment/worst/app"


def test_a_page_without_anything_is_a_page() -> None:
    empty = contents(overview=None)
    assert "No container was selected." in Parsed(page(empty)).texts()
    nothing = contents(findings=Table.from_rows(FINDINGS, []))
    assert "There are no findings." in Parsed(page(nothing)).texts()


def test_what_is_unknown_is_called_unknown() -> None:
    text = Parsed(page(contents())).texts()
    assert "Memory limits commitmentunknown" in text  # NaN
    assert "CPU limits commitment150 %" in text


def test_a_gap_breaks_a_line_and_an_empty_series_is_said() -> None:
    # from 0 to 120 in two steps; 23 is the ground, 2 the top: 1 of 2 is 23 - 21 / 2 = 12.5
    assert 'd="M0.0 12.5M120.0 2.0"' in sparkline([1.0, None, 2.0], "")
    assert "no usage" in sparkline([None, float("nan")], "")
    assert 'd="M0.0 23.0"' in sparkline([0.0], "")
    empty = BandSeries([], [], [], 0.0, [], {}, 0.0, 0.0)
    assert "No usage is stored." in band(empty, 1.0, "")
    assert "<rect" not in heat([[float("nan")] * 24] * 7, "")
    assert 'width="100.0"' in bar(7.0, "critical", "")
    assert 'width="0.0"' in bar(float("nan"), "accent", "")
