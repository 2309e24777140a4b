"""One store, one saving: every surface says the same of what is freed and raised, now and after all steps."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.settings.sections import NotifySettings
from cotenant.base.tables.filters import parse
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.cli.analysis.notice import payload, summarise
from cotenant.cli.report.scan_report import ReportContents, page
from cotenant.dashboard.changes import select_bar
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home import numbers, overview
from cotenant.dashboard.home.page_data import overview_page
from cotenant.dashboard.pages import recommendations
from cotenant.dashboard.sources.source import StoreSource
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.selection import Selection
from cotenant.pipeline import tables
from cotenant.recommender.model.list_totals import next_review, planned_savings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import PlannedSavings, Savings, When
from cotenant.recommender.model.savings_text import saving_text
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.views import RECOMMENDATIONS, Overview
from cotenant_lab.demo.demo import summary
from tests.support import dashboard as support
from tests.support.approximate import about
from tests.support.command_line import cotenant
from tests.support.component_text import component_of, text_of
from tests.support.dashboard import Results

CURRENCY = "USD"
PRICE_CORE, PRICE_GIB, HOURS = 0.031611, 0.004237, 730
NUMBER = r"([\d,.]+)"
PHRASES = re.compile(
    rf"(frees|raises) (?:{NUMBER} (m|cores?))?(?:, )?(?:{NUMBER} ([KMGT]iB|B))?(?: where more is needed)?"
    rf"(?:, )?(?:{NUMBER} {CURRENCY} a month)?"
)
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True)
class Said:
    """What a text says under one word; in cores, GiB and money."""

    cores: float = 0.0
    gib: float = 0.0
    money: float = 0.0


def parsed(text: str) -> dict[str, Said]:
    """What a text says under "frees" and under "raises": read by a pattern of its own."""
    hits: dict[str, Said] = {}
    for word, cores, unit, size, of, money in PHRASES.findall(text):
        number = float(cores.replace(",", "")) / (1000 if unit == "m" else 1) if cores else 0.0
        gib = float(size.replace(",", "")) * UNITS[of] / GIB if size else 0.0
        hits.setdefault(word, Said(number, gib, float(money.replace(",", "")) if money else 0.0))
    return hits


def agrees(text: str, want: Savings) -> None:
    """The text's numbers are the savings', to the three digits that people read."""
    hits = parsed(text)
    for word, side in (("frees", want.frees), ("raises", want.raises)):
        amounts = hits.get(word, Said())
        assert amounts.cores == pytest.approx(side.millicores / 1000, rel=0.006), (word, text)
        assert amounts.gib == pytest.approx(side.bytes / GIB, rel=0.006), (word, text)
        assert amounts.money == pytest.approx(side.monthly or 0.0, rel=0.006), (word, text)
    assert not re.search(r"(frees|raises) [-−+]", text)


@pytest.fixture(scope="module")
def view(demo_results: Results) -> View:
    clock = FixedClock(demo_results.end_seconds)
    return View(StoreSource(demo_results.store, support.QUICK, clock), support.QUICK, clock.now_seconds)


@pytest.fixture(scope="module")
def rows(demo_results: Results) -> list[dict[str, Any]]:
    return list(demo_results.store.read_table(RECOMMENDATIONS).rows())


@pytest.fixture(scope="module")
def planned(rows: list[dict[str, Any]]) -> dict[When, dict[str, float]]:
    """The sums by a few lines of their own, from the stored rows: (cores, GiB) that fall and that rise."""

    def summed(cpu: str, memory: str) -> dict[str, float]:
        return {
            f"{word} {unit}": sum(max(0.0, sign * (row[name] or 0)) for row in rows) / scale
            for name, unit, scale in ((cpu, "cores", 1000), (memory, "gib", GIB))
            for word, sign in (("frees", -1), ("raises", 1))
        }

    return {
        When.NOW: summed("cpu_step_total", "memory_step_total"),
        When.ALL_STEPS: summed("cpu_delta_total", "memory_delta_total"),
    }


@pytest.fixture(scope="module")
def stored(demo_results: Results) -> PlannedSavings:
    document = demo_results.store.read_document("overview", Overview)
    assert document is not None and document.savings is not None
    return document.savings


def of(planned: PlannedSavings, when: When) -> Savings:
    return planned.now if when is When.NOW else planned.all_steps


@pytest.mark.parametrize("when", When)
def test_the_stored_savings_are_the_sums_of_the_stored_rows(
    stored: PlannedSavings, planned: dict[When, dict[str, float]], when: When
) -> None:
    summed, want = of(stored, when), planned[when]
    for word, side in (("frees", summed.frees), ("raises", summed.raises)):
        assert side.millicores / 1000 == pytest.approx(want[f"{word} cores"], rel=1e-9)
        assert side.bytes / GIB == pytest.approx(want[f"{word} gib"], rel=1e-9)
        # Every row is at one price: cores and GiB times the price sheet are the money, also of jobs and missing
        # requests, so that money counts what cores and GiB count.
        money = HOURS * (PRICE_CORE * want[f"{word} cores"] + PRICE_GIB * want[f"{word} gib"])
        assert side.monthly == pytest.approx(money, rel=0.001)
    assert min(summed.frees.millicores, summed.raises.bytes) > 0  # else the test shows nothing


def test_a_limit_without_a_request_is_counted_alike_in_every_column() -> None:
    ref = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")
    value = Value(Resource.CPU, Field.REQUEST, None, 400, Action.SET, Reason.OK)
    recommendation = Recommendation(ref, "cotenant", 3, (value,), 0, "", 0, present_limits={Resource.CPU: 1_200})
    (row,) = tables.recommendations([recommendation], GuardrailSettings()).rows()
    # The API server requests the limit of 1200m for each of three pods; 400m are left of it.
    assert (row["cpu_request_now"], row["cpu_delta_total"]) == (None, -3 * 800)


def test_sentence_tile_list_bar_and_address_say_the_same(view: View, stored: PlannedSavings) -> None:
    shown = overview_page(view, "")
    assert shown is not None
    contents = overview.contents(view, "")
    now, _, after = text_of(component_of(contents, "overview-worth")).partition("Applying all steps")
    agrees(now, stored.now)  # nothing but what is ready has a step now
    agrees(after, shown.ready_savings.all_steps)
    assert shown.ready_savings == planned_savings(shown.advice, parse(numbers.READY, shown.advice.schema))
    snapshot = view.source.snapshot()
    query = recommendations.LIST.query("", snapshot.tables[RECOMMENDATIONS.name].schema)
    (sums,) = recommendations.totals(snapshot, query, CURRENCY)
    agrees(text_of(component_of(sums, "total-now")).partition("net")[0], stored.now)
    agrees(text_of(component_of(sums, "total-all-steps")).partition("net")[0], stored.all_steps)
    bar = select_bar.contents(view, recommendations.LIST, "", Selection(everything=True))
    agrees(text_of(component_of(bar, "selection-all-steps")), stored.all_steps)


def test_the_tile_counts_what_is_ready_and_names_what_needs_a_second_person(
    view: View, rows: list[dict[str, Any]]
) -> None:
    ready = sum(row["ready"] in ("whole", "first-step") for row in rows)
    second = sum(row["ready"] == Ready.SECOND_PERSON for row in rows)
    assert ready and second
    text = text_of(overview.contents(view, ""))
    assert f"{ready} recommendations; {second} need a second person" in text


@pytest.mark.parametrize("ready", ["first-step", "second-person", "blocked", "nothing"])
def test_the_bar_says_what_a_review_writes_and_what_it_leaves_out_and_why(
    view: View, rows: list[dict[str, Any]], ready: str
) -> None:
    advice = view.source.snapshot().tables[RECOMMENDATIONS.name]
    matching = [row for row in rows if row["ready"] == ready]
    first = {(row["namespace"], row["kind"], row["workload"]): None for row in matching}
    refs = choosing.workloads(advice, recommendations.LIST.query(f"ready={ready}", advice.schema))
    assert {(ref.namespace, ref.kind, ref.name) for ref in refs} == set(first)
    written = next_review(advice, refs)
    # By rows alone: a workload is written when some row of it may be, and then with all its containers.
    mine = [row for row in rows if (row["namespace"], row["kind"], row["workload"]) in first]
    going = {(r["namespace"], r["workload"]) for r in mine if r["ready"] in ("whole", "first-step")}
    assert written.workloads == len(going) and sum(written.left.values()) == len(refs) - len(going)
    assert written.savings.frees.millicores == sum(max(0, -(row["cpu_step_total"] or 0)) for row in mine)
    if ready == "second-person":
        assert written.left == {"needs a second person's confirmation": len(refs)}
    if ready == "blocked":
        assert all(reason.startswith("stopped by ") for reason in written.left)


@pytest.mark.parametrize("namespaces", ["ns=pay", "ns=shop&ns=etl", "ns!=pay"])
def test_a_choice_of_namespaces_is_one_number_on_page_list_and_rest(
    view: View, rows: list[dict[str, Any]], namespaces: str
) -> None:
    shown = overview_page(view, f"?{namespaces}")
    assert shown is not None and shown.overview.savings is not None
    planned = planned_savings(shown.advice, shown.query)
    assert shown.overview.savings == planned
    names = {part.partition("=")[2] for part in namespaces.split("&")}
    mine = [row for row in rows if (row["namespace"] in names) != ("!=" in namespaces)]
    assert planned.all_steps.frees.millicores == sum(max(0, -(row["cpu_delta_total"] or 0)) for row in mine)
    assert planned.now.raises.bytes == sum(max(0, row["memory_step_total"] or 0) for row in mine)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        text: str = response.read().decode()
    return text


def test_rest_exports_and_command_line_have_the_same_numbers(
    demo_results: Results, address: str, stored: PlannedSavings
) -> None:
    document = json.loads(fetched(f"{address}/api/v1/overview"))
    for name, want in (("now", stored.now), ("all_steps", stored.all_steps)):
        got = document["savings"][name]
        assert (got["frees"]["millicores"], got["raises"]["bytes"]) == (want.frees.millicores, want.raises.bytes)
        assert got["frees"]["monthly"] == pytest.approx(want.frees.monthly)
    assert document["saving_cpu_millicores"] == stored.all_steps.frees.millicores

    def freed(rows: list[Mapping[str, Any]]) -> tuple[float, float]:
        cells = [float(row["cpu_delta_total"] or 0) for row in rows]
        return sum(max(0.0, -cell) for cell in cells), sum(float(row["raised_step"] or 0) for row in rows)

    monthly = stored.now.raises.monthly
    assert monthly is not None
    both = (float(stored.all_steps.frees.millicores), about(monthly))
    exported = csv.DictReader(io.StringIO(fetched(f"{address}/api/v1/recommendations?format=csv&limit=1000")))
    assert freed(list(exported)) == both
    assert freed(json.loads(fetched(f"{address}/api/v1/recommendations?limit=1000"))["rows"]) == both
    done = cotenant("recs", "list", "--all", "--store", demo_results.store.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert freed(json.loads(done.stdout)) == both


def test_note_report_and_summary_say_the_same(demo_results: Results, stored: PlannedSavings) -> None:
    table, document = (
        demo_results.store.read_table(RECOMMENDATIONS),
        demo_results.store.read_document("overview", Overview),
    )
    assert document is not None
    note = payload(summarise(document, table, None, CURRENCY), NotifySettings())
    lines = note["blocks"][1]["text"]["text"].split("\n")
    agrees(next(line for line in lines if line.startswith("Now")), stored.now)
    agrees(next(line for line in lines if line.startswith("After all steps")), stored.all_steps)
    plain = payload(summarise(document, table, None, CURRENCY), NotifySettings(format="json"))
    assert plain["all_steps"]["raises"]["bytes"] == stored.all_steps.raises.bytes
    report = page(ReportContents(document, table, {}, None, None, None, CURRENCY))
    tiles = re.findall(r'data-when="(\w+)".*?<div class="saving">(.*?)</div>', report)
    assert [when for when, _ in tiles] == ["now", "all_steps"]
    for (_, text), want in zip(tiles, (stored.now, stored.all_steps), strict=True):
        agrees(text.replace("<br>", "; "), want)
    texts = list(summary(document, CURRENCY))
    assert any(
        line == f"recommendations now: {saving_text(stored.now, CURRENCY)}"
        or line.startswith(f"recommendations now: {saving_text(stored.now, CURRENCY)};")
        for line in texts
    )
    agrees(next(line for line in texts if line.startswith("after all steps")).partition("; net")[0], stored.all_steps)
