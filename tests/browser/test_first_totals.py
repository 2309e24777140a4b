"""The first page's totals on the screen are those of the list, the bar, REST and the command line, whatever is set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.process.clock import FixedClock
from cotenant.base.resource import GIB
from cotenant.changes.decide.patches import kubectl_command
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from tests.browser.conftest import Open
from tests.browser.test_pages import api, settled
from tests.consistency.settings import SETTINGS, Scene, analysed_cluster
from tests.consistency.test_headline import UNITS, amounts_under
from tests.support import dashboard as support
from tests.support.command_line import cotenant as command
from tests.support.extent import full
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
BY_NAME = {one.name: one for one in SETTINGS}
SHOWN = ("policy-request-prices-zone", "policy-forecast-chosen-namespaces", "caps-strategy-of-a-peer-reader")
"""Three settings that are no default: a price sheet, a choice of namespaces, caps and a peer's strategy among them."""
FURTHER = ("defaults", "policy-max-usage-request-marked-nodes", "second-cluster-time-range")
TWO_SIDES = ("frees", "raises")


@pytest.fixture(scope="module", params=[*SHOWN, *full(*FURTHER)])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return analysed_cluster(BY_NAME[request.param], tmp_path_factory.mktemp("totals"))


@pytest.fixture(scope="module")
def url(shown: Scene) -> Iterator[str]:
    """A dashboard of this cluster's store behind a real server."""
    clock = FixedClock(shown.end_seconds)
    context = DashboardContext(kubectl_command, manifest, prices=shown.settings.recommender.prices)
    with support.served(create_app(StoreSource(shown.store, support.QUICK), support.QUICK, clock, context)) as address:
        yield address


def text(page: Page, where: str) -> str:
    """What a person reads there; an expectation of Playwright waits until it is drawn."""
    expect(page.locator(where)).to_contain_text(re.compile(r"\d"))
    return (page.locator(where).text_content() or "").replace("\n", " ")


def rows_of_command(shown: Scene, chosen: str) -> list[dict[str, Any]]:
    """Rows that the command line prints as JSON under the same choice of namespaces."""
    where = ("--store", shown.store.url, "--cluster", shown.setting.cluster)
    only = ("--filter", chosen) if chosen else ()
    done = command("recs", "list", *only, *where, "-o", "json", variables={"HOME": str(shown.folder)})
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def sides(rows: list[dict[str, Any]], step: str, money: tuple[str, str]) -> tuple[list[float], list[float]]:
    """[cores, GiB, money a month] that fall and that rise: sums over plain rows.

    cpu_STEP_total and memory_STEP_total are after - before, so that a cut is negative; the columns of money are
    positive on both sides.
    """
    totals: list[list[float]] = []
    for sign, column in zip((-1, 1), money, strict=True):
        cpu, memory = (sum(max(0.0, sign * (row[f"{r}_{step}_total"] or 0)) for row in rows) for r in ("cpu", "memory"))
        totals.append([cpu / 1000, memory / GIB, sum(row[column] or 0.0 for row in rows)])
    return totals[0], totals[1]


def amounts(text: str) -> tuple[float, float]:
    """Cores and GiB of a tile such as "90.1 cores · 120 GiB"."""
    cores = re.search(r"([\d,.]+) (m|cores?)\b", text)
    size = re.search(r"([\d,.]+) ([KMGT]?i?B)\b", text)
    assert cores and size, text
    factor = 0.001 if cores[2] == "m" else 1.0
    return factor * float(cores[1].replace(",", "")), float(size[1].replace(",", "")) * UNITS[size[2]] / GIB


def test_the_totals_on_the_screen_are_those_of_the_list_the_bar_rest_and_the_command_line(
    open_page: Open, shown: Scene, url: str, tmp_path: Any
) -> None:
    search = f"?{shown.setting.search}" if shown.setting.search else ""
    chosen = "&".join(part for part in shown.setting.search.split("&") if part.startswith("ns="))
    page = settled(open_page(url + "/" + search))
    worth = text(page, "#overview-worth")
    of_now, _, _ = worth.partition("Applying all steps")  # of what is ready; nothing else has a step now
    on_screen: dict[str, list[str]] = {"now": [of_now], "all": []}
    lendable = amounts(f"{text(page, '#card-lend h2')} {text(page, '#card-lend .card-detail')}")
    pictured(page, f"totals-{shown.setting.name}", tmp_path)

    settled(page).goto(f"{url}/recommendations{search}")
    settled(page)
    on_screen["now"].append(text(page, "#total-now .total-value"))
    on_screen["all"].append(text(page, "#total-all-steps .total-value"))
    page.locator("#select-all").click()
    on_screen["all"].append(text(page, "#selection-all-steps"))

    of_rest = api(page, f"{url}/api/v1/recommendations?limit=5000{f'&{chosen}' if chosen else ''}")["rows"]
    of_command = rows_of_command(shown, chosen)
    assert of_rest, "no recommendation to sum"
    # Both programs' rows give one sum; people read it to three digits, so 0.6 % off at most.
    for step, when, money in (("step", "now", ("freed_step", "raised_step")),
                              ("delta", "all", ("freed_month", "raised_month"))):  # fmt: skip
        want = sides(of_rest, step, money)
        for ours, theirs in zip(sides(of_command, step, money), want, strict=True):
            assert ours == pytest.approx(theirs)
        for sentence in on_screen[when]:
            for word, side in zip(TWO_SIDES, want, strict=True):
                assert amounts_under(sentence, word, shown.currency) == pytest.approx(tuple(side), rel=0.006), (
                    when,
                    sentence,
                )

    # What can be lent is of all nodes, whatever namespaces are chosen: the sum of the nodes' amounts for batch.
    nodes = api(page, f"{url}/api/v1/nodes?limit=5000")["rows"]
    cores, gib = (sum(row[f"batch_{r}"] or 0 for row in nodes) for r in ("cpu", "memory"))
    assert lendable == pytest.approx((cores / 1000, gib / GIB), rel=0.006)
    overview = api(page, f"{url}/api/v1/overview")
    assert overview["cpu"]["batch_now"] == pytest.approx(cores)
