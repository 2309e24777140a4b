"""Drawers and pages of one container, workload, node and plan say the cells of the result tables."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from mcp.client import Client
from mcp.server.lowlevel import Server

from cotenant.base.amount_text import amount
from cotenant.base.identity import ContainerName, WorkloadRef
from cotenant.base.process.clock import FixedClock
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.table import Schema
from cotenant.base.text import percent
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.mcp_server import server_of
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.pages import nodes, portrait
from cotenant.dashboard.pages.recommendations import explain_container
from cotenant.dashboard.reservations import detail
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import (
    NODES,
    PLANS,
    RECLAIMABLE,
    RECOMMENDATION_LOG,
    RECOMMENDATIONS,
    WORKLOADS,
)
from tests.consistency.living import document_of
from tests.consistency.settings import Scene
from tests.consistency.surfaces import Surfaces
from tests.support import dashboard as support
from tests.support.command_line import cotenant as command
from tests.support.component_text import text_of

pytestmark = [pytest.mark.slow]
Row = Mapping[str, Any]
MOST = 6
"""Rows of a table whose drawers are opened: the first of it, and every surface of each."""


def stored(shown: Scene, schema: Schema) -> list[Row]:
    return list(shown.store.read_table(schema).rows())


def rows_of(shown: Scene, schema: Schema) -> list[Row]:
    """The first rows that the setting's person may read."""
    shown_rows = [row for row in stored(shown, schema) if "namespace" not in row or shown.shows(row)]
    assert shown_rows, schema.name
    return shown_rows[:MOST]


def amount_in(row: Row, column: str, resource: Resource) -> str:
    return amount(row[column], resource)


def test_the_page_of_a_node_says_the_row_of_the_node(shown: Scene) -> None:
    view = shown.view
    for row in rows_of(shown, NODES):
        text = text_of(nodes.below(view, (row["node"],), ""))
        for resource, name in ((Resource.CPU, "CPU"), (Resource.MEMORY, "Memory")):
            used = amount_in(row, f"{resource}_usage", resource)
            assert (
                f"{name} used now{used}" in text
                and f" of {amount_in(row, f'{resource}_allocatable', resource)}" in text
            )
        for band, title in (("batch", "Free for batch now"), ("mid", "Free for a day")):
            lent = [amount_in(row, f"{band}_{resource}", resource) for resource in Resource]
            assert f"{title}{' · '.join(lent)}" in text
        assert amount_in(row, "cpu_peak", Resource.CPU) in text.partition(PEAK_NAME)[2][:40]


def test_the_panels_of_a_node_say_each_amount_that_is_lent_with_its_terms(shown: Scene) -> None:
    """The sum at the end of a panel is the table's amount; "=" stands before it and nowhere else with this title."""
    view = shown.view
    for row in rows_of(shown, RECLAIMABLE):
        text = text_of(nodes.below(view, (row["node"],), ""))
        resource = Resource(row["resource"])
        free = {"batch": "free for batch", "mid": "free for a day"}[row["band"]]
        title = f"{'CPU' if resource is Resource.CPU else 'Memory'} {free}"
        assert f"={title}{amount_in(row, 'amount', resource)}" in text


def test_page_rest_and_tools_say_why_hours_of_a_node_are_not_drawn(shown: Scene) -> None:
    """A line of the past has gaps if and only if its code says why, and all three surfaces have the same code."""
    view, codes = shown.view, set()
    api = create_app(
        StoreSource(shown.store, support.QUICK), support.QUICK, FixedClock(shown.end_seconds), DashboardContext()
    )
    names = [row["node"] for row in rows_of(shown, NODES)]
    with ThreadPoolExecutor(1) as other_thread:
        answers = other_thread.submit(asyncio.run, histories(server_of(api), names)).result()
    for name in names:
        text, of_store = text_of(nodes.below(view, (name,), "")), view.source.node_history(name)
        for resource in Resource:
            row = of_store[resource.value]
            for band in ("batch", "mid"):
                code = row[f"{band}_reason"]
                codes.add((band, code))
                assert any(value is None for value in row[band]) == (code != "ok"), (name, resource, band)
                assert answers[name][resource.value][f"{band}_reason"] == code
                assert code == "ok" or f"{band.capitalize()}: {SENTENCES[Reason(code)]}" in text
    assert ("mid", Reason.PAST_BY_FORECAST.value) in codes  # with the default mode it rests on prod's forecast
    if shown.settings.recommender.reclaimable.cpu_policy == "forecast":
        assert ("batch", Reason.PAST_BY_FORECAST.value) in codes


async def histories(server: Server[dict[str, object]], names: list[str]) -> dict[str, dict[str, Row]]:
    async with Client(server) as client:
        answers = {name: await client.call_tool("node_history", {"node": name}) for name in names}
        return {name: document_of(response) for name, response in answers.items()}


@pytest.mark.parametrize("resource", list(Resource))
def test_the_portrait_of_a_workload_says_its_row(shown: Scene, resource: Resource) -> None:
    view, log = shown.view, stored(shown, RECOMMENDATION_LOG)
    assert log
    for row in rows_of(shown, WORKLOADS):
        ref = WorkloadRef(row["namespace"], row["kind"], row["workload"])
        text = text_of(portrait.contents(view, ref, f"?show={resource.value}"))
        for tile, column in (("Requested", "request"), ("p95", "p95"), ("Highest", "max")):
            assert f"{tile}{amount_in(row, f'{resource}_{column}', resource)}" in text, (ref, tile)
        assert (
            f"){display.percent(row[f'{resource}_used_ratio'])}" in text.partition("Used of the request (")[2][:40]
        ), ref
        assert f"Trouble{row['oom_kills'] or 0:,} OOM kill" in text, ref
        if resource is Resource.CPU and row["peak_cpu"] is not None:
            assert f"{PEAK_NAME}{amount_in(row, 'peak_cpu', resource)}" in text, ref
        for entry in log:
            if (entry["namespace"], entry["kind"], entry["workload"]) == (ref.namespace, ref.kind, ref.name):
                cells = [amount_in(entry, f"{of}_{what}", of) for of in Resource for what in ("request", "limit")]
                assert f"{display.moment(entry['time'])}{entry['container']}{''.join(cells)}" in text, ref


def test_the_drawer_of_a_recommendation_says_its_row(shown: Scene) -> None:
    changes, view = 0, shown.view
    for row in rows_of(shown, RECOMMENDATIONS):
        name = ContainerName(row["namespace"], row["kind"], row["workload"], row["container"])
        text = text_of(explain_container(view, name, ""))
        for resource, title in ((Resource.CPU, "CPU request"), (Resource.MEMORY, "Memory request")):
            now, then = row[f"{resource}_request_now"], row[f"{resource}_request"]
            present = "not set" if now is None else amount(now, resource)
            assert title in text and present in text.partition(title)[2][:60], (name, title)
            if then is not None and then != now:
                assert f"{present}→{amount(then, resource)}" in text, (name, title)
                changes += 1
    assert changes


def test_page_command_rest_and_tools_say_what_a_cpu_request_has_meant_and_how_much_was_measured(shown: Scene) -> None:
    """One explanation; sentences are read by patterns of the test's own: whole minutes of a pod's mean day."""
    surfaces, meant, measured = Surfaces(shown), 0, 0
    for row in rows_of(shown, RECOMMENDATIONS):
        name = ContainerName(row["namespace"], row["kind"], row["workload"], row["container"])
        path = f"explain?{urlencode(name._asdict())}"
        of_rest, (of_tool,) = json.loads(surfaces._get([path])[0]), surfaces._documents([path])
        where = ("--store", shown.store.url, "--cluster", shown.setting.cluster)
        address = ("explain", "/".join(name[:3]), "--container", name.container)
        printed, process = (command(*address, *where, *form) for form in (("-o", "json"), ()))
        assert [of_rest] == [of_tool] == json.loads(printed.stdout)
        drawer = text_of(explain_container(shown.view, name, ""))
        page, tried = text_of(portrait.contents(shown.view, name.workload_ref, "")), of_rest["backtest"]
        for text in (page, " ".join(process.stdout.split())):
            for share in re.findall(r"The pods were measured in \S+ % of the time in which they ran", text + drawer):
                assert share in json.dumps(of_rest, ensure_ascii=False)
                measured += 1
            if tried and tried["cpu_pod_days"] and tried["short_pod_days"]:
                pod_days, minutes = tried["cpu_pod_days"], round(tried["short_minutes"] / tried["cpu_pod_days"])
                days = f"on {tried['short_pod_days']:,} of {pod_days:,} pod-day{'s' * (pod_days > 1)}, for "
                assert f"{days}{minutes or 'less than a'} minute" in text, (name, days, minutes)
                meant += 1
    assert (meant and measured) or shown.setting.name != "defaults"


def test_the_panel_of_a_plan_says_its_row(shown: Scene) -> None:
    view = shown.view
    rows = [row for row in stored(shown, PLANS) if shown.shows(row)]
    for row in rows[:MOST]:
        text = text_of(detail.selected_panel(view, f"?open={row['namespace']}/{row['kind']}/{row['workload']}"))
        covered, hits = row["coverage"], row["hit_ratio"]
        assert f"Coverage{'not back-tested' if covered is None else f'{percent(covered)} of the needed'}" in text
        assert f"Used{'not back-tested' if hits is None else f'{percent(hits)} of the reserved'}" in text
