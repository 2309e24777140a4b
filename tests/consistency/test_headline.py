"""What the overview says first is one total on page, list, bar, report, note, command line and REST."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from cotenant.base.amount_text import amount
from cotenant.base.resource import GIB, Resource
from cotenant.base.settings.sections import NotifySettings
from cotenant.base.tables import filters
from cotenant.base.tables.filters import parse
from cotenant.base.text import percent
from cotenant.cli.analysis.notice import payload, summarise
from cotenant.cli.report.scan_report import ReportContents, page
from cotenant.dashboard.changes import select_bar
from cotenant.dashboard.home import numbers
from cotenant.dashboard.home import overview as page_overview
from cotenant.dashboard.home.page_data import overview_page
from cotenant.dashboard.pages import recommendations
from cotenant.dashboard.rest.wire import json_answer
from cotenant.dashboard.sources.namespace_filter import with_savings
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables.selection import Selection
from cotenant.recommender.model.list_totals import planned_savings
from cotenant.recommender.model.savings import Savings
from cotenant.recommender.model.views import RECLAIMABLE, RECOMMENDATIONS, Overview
from cotenant_lab.demo.demo import summary
from tests.consistency.settings import Scene
from tests.consistency.surfaces import Surfaces
from tests.support.command_line import cotenant as command
from tests.support.component_text import component_of, text_of
from tests.support.dashboard import QUICK

pytestmark = [pytest.mark.slow]
RATIOS = {
    "utilisation": "Utilisation",
    "requests_commitment": "Requests Commitment",
    "limits_commitment": "Limits Commitment",
}
"""The headline's ratios of a resource -> their titles."""
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def amounts_under(text: str, word: str, currency: str) -> tuple[float, float, float]:
    """Cores, GiB and money a month that stand under a word, read by a pattern of the test's own."""
    part = re.search(rf"{word} (.*?)(?=;|$|net |frees |raises |After |[.] )", text)
    clause = part.group(1) if part else ""
    cores = re.search(r"([\d,.]+) (m|cores?)\b", clause)
    size = re.search(r"([\d,.]+) ([KMGT]?i?B)\b", clause)
    money = re.search(rf"([\d,.]+) {currency}", clause)
    number = [float(hit.group(1).replace(",", "")) if hit else 0.0 for hit in (cores, size, money)]
    factor = (1 / 1000 if cores and cores.group(2) == "m" else 1.0, UNITS[size.group(2)] / GIB if size else 1.0, 1.0)
    return tuple(n * f for n, f in zip(number, factor, strict=True))  # type: ignore[return-value]


def agrees(text: str, want: Savings, currency: str) -> None:
    """The text's numbers are these, to the three digits that people read."""
    for word, side in (("frees", want.frees), ("raises", want.raises)):
        got = amounts_under(text, word, currency)
        assert got == pytest.approx((side.millicores / 1000, side.bytes / GIB, side.monthly or 0.0), rel=0.006), text


def summed(rows: list[dict[str, Any]], step: str) -> tuple[float, float, float, float]:
    """Millicores and bytes that fall and that rise: four sums over plain rows."""
    names = (f"cpu_{step}_total", f"memory_{step}_total")
    return tuple(  # type: ignore[return-value]
        sum(max(0.0, sign * (row[name] or 0)) for row in rows) for sign in (-1, 1) for name in names
    )


@pytest.fixture(scope="module")
def rows(shown: Scene) -> list[dict[str, Any]]:
    return [row for row in shown.store.read_table(RECOMMENDATIONS).rows() if shown.shows(row)]


@pytest.fixture(scope="module")
def document(shown: Scene) -> Overview:
    """What the page is drawn from under the setting's address."""
    drawn = overview_page(shown.view, f"?{shown.setting.search}" if shown.setting.search else "")
    assert drawn is not None
    return drawn.overview


def test_savings_are_the_sums_of_the_rows_that_are_chosen_and_may_be_read(
    document: Overview, rows: list[dict[str, Any]]
) -> None:
    assert document.savings is not None and rows
    for step, savings in (("step", document.savings.now), ("delta", document.savings.all_steps)):
        frees, raises = savings.frees, savings.raises
        assert (frees.millicores, frees.bytes, raises.millicores, raises.bytes) == summed(rows, step)


def test_sentence_tile_list_and_bar_say_these_sums(shown: Scene, document: Overview) -> None:
    assert document.savings is not None
    now, after, currency = document.savings.now, document.savings.all_steps, shown.currency
    search = f"?{shown.setting.search}" if shown.setting.search else ""
    contents = page_overview.contents(shown.view, search)
    of_now, _, of_all = text_of(component_of(contents, "overview-worth")).partition("Applying all steps")
    agrees(of_now, now, currency)
    drawn = overview_page(shown.view, search)
    assert drawn is not None
    ready = parse("&".join((numbers.READY, filters.encode(drawn.query))), drawn.advice.schema)
    # Of the recommendations that the tile counts and its link lists.
    agrees(of_all, planned_savings(drawn.advice, ready).all_steps, currency)
    snapshot = shown.view.source.snapshot()
    own = "&".join(part for part in shown.setting.search.split("&") if part.startswith("ns="))
    query = recommendations.LIST.query(own, snapshot.tables[RECOMMENDATIONS.name].schema)
    (sums,) = recommendations.totals(snapshot, query, currency)
    captions = [text_of(component_of(sums, name)).partition("net")[0] for name in ("total-now", "total-all-steps")]
    agrees(captions[0], now, currency)
    agrees(captions[1], after, currency)
    bar = select_bar.contents(shown.view, recommendations.LIST, own, Selection(everything=True))
    agrees(text_of(component_of(bar, "selection-all-steps")), after, currency)


def test_critical_is_danger_alone_whatever_the_strategy_and_the_prices(rows: list[dict[str, Any]]) -> None:
    """A row of which every request and limit falls or stays is waste, however large: no reader sees it in red."""
    fields = [f"{resource}_{which}" for resource in ("cpu", "memory") for which in ("request", "limit")]
    asks_for_more = [
        any(row[name] is not None and row[name] > (row[f"{name}_now"] or 0) for name in fields) for row in rows
    ]
    assert {row["severity"] for row, more in zip(rows, asks_for_more, strict=True) if not more} <= {
        "good", "ok", "warning", "unknown",
    }  # fmt: skip


def test_what_can_be_lent_now_is_the_sum_of_the_nodes_wherever_it_is_said(shown: Scene, document: Overview) -> None:
    lent = list(shown.store.read_table(RECLAIMABLE).rows())
    text = text_of(page_overview.contents(shown.view, ""))
    for series, resource in ((document.cpu, Resource.CPU), (document.memory, Resource.MEMORY)):
        for band, total in (("batch", series.batch_now), ("mid", series.mid_now)):
            amounts = [
                row["amount"]
                for row in lent
                if (row["band"], row["resource"]) == (band, resource.value) and row["amount"] is not None
            ]
            assert math.isnan(total) if not amounts else total == sum(amounts)
            if amounts:
                assert amount(total, resource) in text
    if shown.setting.marks_nodes:  # the third node is switched off by its annotation: nothing of it is in the sums
        off = sorted({row["node"] for row in lent})[2]
        assert {row["amount"] for row in lent if row["node"] == off} <= {0, None}
    past = series_end(document)
    assert past is None or past == pytest.approx(document.cpu.batch_now, rel=1e-6)


def series_end(document: Overview) -> float | None:
    """The last value of the line of batch capacity so far; None where it is not known."""
    values = [value for value in document.cpu.batch[-1:] if math.isfinite(value)]
    return values[0] if values else None


def test_rest_and_tools_answer_with_the_document_that_the_page_is_drawn_from(shown: Scene) -> None:
    """Each field of it, and of the documents in it, is what the source has, for who asks and of the whole."""
    surfaces = Surfaces(shown)
    for answered, source in (
        (json.loads(surfaces._get(["overview"])[0]), shown.view.source),
        (surfaces._documents(["overview"])[0], StoreSource(shown.store, QUICK)),
    ):
        drawn = source.snapshot().overview
        assert drawn is not None
        advice = source.snapshot().tables[RECOMMENDATIONS.name]
        want = json.loads(bytes(json_answer(with_savings(drawn, advice)).body))
        assert {name: answered[name] for name in want} == want


def test_report_note_summary_and_clusters_say_the_cluster_s_totals(shown: Scene) -> None:
    """These four are of the whole cluster, whatever an address chooses."""
    stored_overview = shown.store.read_document("overview", Overview)
    assert stored_overview is not None and stored_overview.savings is not None
    table, currency = shown.store.read_table(RECOMMENDATIONS), shown.currency
    note = payload(summarise(stored_overview, table, None, currency), NotifySettings())
    lines = note["blocks"][1]["text"]["text"].split("\n")
    agrees(next(line for line in lines if line.startswith("Now")), stored_overview.savings.now, currency)
    agrees(
        next(line for line in lines if line.startswith("After all steps")), stored_overview.savings.all_steps, currency
    )
    report = page(ReportContents(stored_overview, table, {}, None, None, None, currency))
    tiles = re.findall(r'<div class="saving">(.*?)</div>', report)
    agrees(tiles[0].replace("<br>", "; "), stored_overview.savings.now, currency)
    agrees(tiles[1].replace("<br>", "; "), stored_overview.savings.all_steps, currency)
    texts, head = list(summary(stored_overview, currency)), stored_overview.headline
    for resource, name in zip(Resource, ("CPU", "Memory"), strict=True):
        ratios = {kind: percent(getattr(head, f"{resource}_{kind}")) for kind in RATIOS}
        text, used = ratios["requests_commitment"], ratios["utilisation"]
        assert f"{name if name == 'CPU' else 'memory':<7} requested {text}, used {used} of allocatable" in texts
        for kind, title in RATIOS.items():
            assert f"{name} {title}{ratios[kind]}" in text_of(numbers.headline(stored_overview))
            assert f'{name} {title.lower()}</div><div class="figure">{ratios[kind]}<' in report
    agrees(
        next(line for line in texts if line.startswith("recommendations now")), stored_overview.savings.now, currency
    )
    where = ("--store", shown.store.url, "--cluster", shown.setting.cluster)
    lent = command("get", "reclaimable", *where, variables={"HOME": str(shown.folder)}).stderr
    assert all(sentence in lent for sentence in stored_overview.worst_day_sentences)
    assert stored_overview.worst_day_sentences or shown.setting.name != "defaults"
    done = command(
        "status", "--all-clusters", "--store", shown.store.url, "-o", "json", variables={"HOME": str(shown.folder)}
    )
    assert done.returncode == 0, done.stderr
    (row,) = [load for load in json.loads(done.stdout) if load["cluster"] == shown.setting.cluster]
    # What is free for a day is partly free for batch too, so the column has the first alone, as Home's card.
    assert row["cpu_lendable"] == pytest.approx(stored_overview.cpu.batch_now, abs=1)
    assert row["cpu_saving"] == stored_overview.savings.all_steps.frees.millicores
    assert row["memory_saving"] == stored_overview.savings.all_steps.frees.bytes
