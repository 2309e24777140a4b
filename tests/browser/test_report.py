"""The HTML report in a real Chromium: no error, nothing asked of the network, accessible in both themes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.cli.report.scan_report import page as report
from tests.browser.conftest import Open
from tests.cli.test_report import contents, recommendation, row
from tests.support.extent import full
from tests.support.overview import overview

pytestmark = pytest.mark.browser


@pytest.fixture
def file(tmp_path: Path) -> str:
    proposal = recommendation()
    rows = [row(), row("calm", severity="good"), row("later", severity="warning"), row("thin", severity="unknown")]
    text = report(
        contents(*rows, recommendations={proposal.container: proposal}, overview=overview("<script>fail()</script>"))
    )
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    return (tmp_path / "report.html").as_uri()


@pytest.mark.parametrize("theme", ["light", *full("dark")])
def test_the_report_is_accessible_and_asks_nobody(open_page: Open, axe: str, theme: str, file: str) -> None:
    texts: list[str] = []
    page = open_page(file, theme=theme)
    page.on("request", lambda request: texts.append(request.url))
    page.reload()
    assert texts == [file]
    page.get_by_text("How it was computed").first.click()
    assert page.get_by_text("frees 9 cores, 48.00 EUR a month", exact=True).is_visible()
    session = page.context.new_cdp_session(page)  # the page's own policy forbids scripts; the debugger is not the page
    session.send("Page.setBypassCSP", {"enabled": True})
    page.reload()
    page.evaluate(axe)
    shown = page.evaluate("async () => (await axe.run()).violations")
    bad = [v for v in shown if v["impact"] in ("serious", "critical")]
    assert bad == [], json.dumps(bad, indent=1)[:4000]


def test_the_report_fits_a_narrow_window(open_page: Open, file: str) -> None:
    page = open_page(file, size={"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
