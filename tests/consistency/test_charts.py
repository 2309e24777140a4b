"""What charts draw and captions name is what the store holds: the rows that lists, REST and exports are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dash import dcc, html

from cotenant.base.amount_text import amount
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.text import percent
from cotenant.base.usage.usage import HALF_HOUR_SECONDS, HOUR_SECONDS
from cotenant.base.usage.week import WEEKS
from cotenant.dashboard.figures import display
from cotenant.dashboard.home import overview as home
from cotenant.dashboard.home.page_data import overview_page
from cotenant.dashboard.pages import batch, forecast, health, nodes, portrait, what_if
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import (
    COVERAGE,
    COVERAGE_BY_DAY,
    EVENTS,
    FORECASTS,
    NODES,
    PORTRAITS,
    RECLAIMABLE,
    WORKLOADS,
    BandSeries,
)
from tests.consistency.settings import Scene
from tests.consistency.surfaces import WORKLOAD, Row, Surfaces, _walk
from tests.support.component_text import text_of
from tests.support.dashboard import replayed

pytestmark = [pytest.mark.slow]
SCALE = {Resource.CPU: 1000, Resource.MEMORY: GIB}
NAMES = {Resource.CPU: "CPU", Resource.MEMORY: "Memory"}
MOST = 4
"""Nodes and workloads whose charts are compared."""
Line = tuple[str, str, Any]
"""Name in the legend, axis, stored numbers as the chart writes them: all of them, or their end, is drawn."""


@dataclass(frozen=True)
class Drawn:
    """A chart as a page has it: its lines by their names in the legend, and its caption."""

    traces: Mapping[str, Mapping[str, Any]]
    caption: str

    def line(self, name: str, axis: str = "y") -> np.ndarray:
        return floats(self.traces[name][axis])

    def compare(self, lines: Sequence[Line], phrases: Sequence[str]) -> None:
        """Every line is the stored one, and is left out where nothing of it is known; the caption has the words."""
        for name, axis, stored in lines:
            want = floats(stored)
            if name in self.traces:
                got = self.line(name, axis)
                np.testing.assert_allclose(got, want[-len(got) :] if len(got) else want, rtol=1e-6, err_msg=name)
            else:
                assert not np.isfinite(want).any(), name
        assert [part for part in phrases if part not in self.caption] == [], self.caption


def floats(values: Any) -> np.ndarray:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def drawn(page: Any, id_: str) -> Drawn:
    """The chart of that id on a page, with the caption in its frame."""
    frames = [component for component in _walk(page) if isinstance(component, html.Figure)]
    (frame,) = [candidate for candidate in frames if id_ in [getattr(part, "id", "") for part in _walk(candidate)]]
    (graph,) = [component for component in _walk(frame) if isinstance(component, dcc.Graph)]
    (caption,) = [component for component in _walk(frame) if isinstance(component, html.Figcaption)]
    traces = {trace.get("name") or str(index): trace for index, trace in enumerate(graph.figure["data"])}
    return Drawn(traces, text_of(caption))


def in_unit(resource: Resource, stored: Any) -> np.ndarray:
    return floats(stored or []) / SCALE[resource]


def times_are(chart: Drawn, name: str, start: int, step: int, size: int) -> None:
    """A line's points end with the last of so many steps."""
    ends_at = start + step * (size - 1)
    assert list(chart.traces[name]["x"])[-1:] == [1000.0 * ends_at][: size or 0], name


def ends(line: np.ndarray, resource: Resource) -> str:
    values = line[np.isfinite(line)] * SCALE[resource]
    return display.between(values.min(), values.max(), resource)


def of_cluster(surfaces: Surfaces, resource: Resource) -> tuple[BandSeries, Row, float | None]:
    """Its line of the document, its forecast, and the sum of what its nodes lend now."""
    overview = surfaces.cluster.view.source.snapshot().overview
    assert overview is not None
    key = ("cluster", resource.value)
    (ahead,) = (row for row in surfaces.stored(FORECASTS) if (row["scope"], row["resource"]) == key)
    rows = (row for row in surfaces.stored(RECLAIMABLE) if (row["band"], row["resource"]) == ("batch", resource.value))
    lent = [row["amount"] for row in rows if row["amount"] is not None]
    return (overview.cpu if resource is Resource.CPU else overview.memory), ahead, sum(lent) if lent else None


def sum_of_nodes(surfaces: Surfaces, column: str, resource: Resource) -> np.ndarray:
    """The nodes' stored lines added up by the test itself; missing where one of them is."""
    rows = [floats(row[column]) for row in surfaces.stored(NODE_HISTORY) if row["resource"] == resource.value]
    return np.sum(rows, axis=0) / SCALE[resource]


def where_all_known(line: np.ndarray, sums: np.ndarray) -> None:
    is_known = np.isfinite(sums[-len(line) :])
    np.testing.assert_allclose(line[is_known], sums[-len(line) :][is_known], rtol=1e-6)


def of_home(surfaces: Surfaces) -> Iterator[Drawn]:
    """The band, whose last points are the tiles' and the nodes' numbers, and the bar of the request."""
    page, stored = overview_page(surfaces.cluster.view, surfaces.cluster.setting.search), surfaces.stored(NODES)
    assert page is not None
    for resource in Resource:
        series, ahead, lent = of_cluster(surfaces, resource)
        chart = drawn(home._band(page, resource), "band-figure")
        room, requested = (sum(row[f"{resource}_{what}"] for row in stored) for what in ("allocatable", "request"))
        lines = [
            ("Usage", "y", in_unit(resource, series.usage)),
            ("Requested", "y", in_unit(resource, series.request)),
            ("Allocatable", "y", np.full(2, room / SCALE[resource])),
            ("p95", "y", in_unit(resource, ahead["q95"])),
            ("Forecast p50", "y", in_unit(resource, ahead["q50"])),
            ("Batch could take", "customdata", in_unit(resource, series.batch)),
        ]
        # one number: the line's end, what the nodes request and use, the tile's share of what is allocatable
        share = {what: room * getattr(page.overview.headline, f"{resource}_{what}") for what in
                 ("requests_commitment", "utilisation")}  # fmt: skip
        assert requested == pytest.approx(share["requests_commitment"])
        assert chart.line("Requested")[-1] * SCALE[resource] == pytest.approx(requested)
        assert chart.line("Usage")[-1] * SCALE[resource] == pytest.approx(share["utilisation"])
        used = f"usage in the newest hour {amount(share['utilisation'], resource)}, of {amount(room, resource)}"
        phrases = [used, f"p95: {amount(ahead['peak'], resource)}"]
        chart.compare(lines, [*phrases, *([f"can take {amount(lent, resource)} now"] if lent is not None else [])])
        yield chart


def of_batch(surfaces: Surfaces) -> Iterator[Drawn]:
    """The lines are the sums of the nodes', the last point of the past is what is lent now, the caption names ends."""
    page = batch.day(surfaces.cluster.view)
    for resource in Resource:
        series, _, lent = of_cluster(surfaces, resource)
        chart, name = drawn(page, f"batch-{resource}"), "Batch, each node 95 % sure"
        for word, column in (("Batch so far", "batch"), ("Batch, median", "batch_likely"), (name, "batch_sure")):
            where_all_known(chart.line(word)[-len(series.ahead) :], sum_of_nodes(surfaces, column, resource))
        yield chart
        if lent is None:
            continue
        now = chart.line("Batch so far")[-1] * SCALE[resource]
        assert math.isnan(now) or now == pytest.approx(lent)
        sure = np.array([lent, *chart.line(name) * SCALE[resource]])
        least, most = (
            f" {word} {amount(get(sure), resource)} " for word, get in (("from", np.nanmin), ("to", np.nanmax))
        )
        chart.compare([], [least, most])


def of_nodes(surfaces: Surfaces) -> Iterator[Drawn]:
    rows = {(row["node"], row["resource"]): row for row in surfaces.stored(NODE_HISTORY)}
    for node in surfaces.stored(NODES)[:MOST]:
        page = nodes.below(surfaces.cluster.view, (node["node"],), surfaces.cluster.setting.search)
        for resource in Resource:
            row, chart = rows[node["node"], resource.value], drawn(page, f"hours-{resource}")
            columns = {name: in_unit(resource, row[name]) for name in ("total", "prod", "batch", "mid", "batch_likely",
                                                                      "batch_sure", "mid_likely")}  # fmt: skip
            columns["mid"] = np.concatenate([columns["mid"], columns["mid_likely"]])
            where = {"Whole node": ("y", "total"), "Prod usage": ("y", "prod"), "Batch": ("customdata", "batch"),
                     "Free for a day": ("y", "mid"), "Batch, median": ("customdata", "batch_likely"),
                     "Batch, 95 % sure": ("customdata", "batch_sure")}  # fmt: skip
            lines = [(name, axis, columns[column]) for name, (axis, column) in where.items()
                     if name in chart.traces or not name.startswith("Batch,")]  # fmt: skip
            total, lent = chart.line("Whole node"), chart.line("Batch", "customdata")
            phrases = [f"Uses {amount(total[np.isfinite(total)][-1] * SCALE[resource], resource)} in the newest hour",
                     f"of {amount(node[f'{resource}_allocatable'], resource)} allocatable"]  # fmt: skip
            phrases += (
                [f"batch could take {ends(lent, resource)} in the hours of the window"]
                if np.isfinite(lent).any()
                else []
            )
            chart.compare(lines, phrases)
            times_are(chart, "Whole node", row["start"], HOUR_SECONDS, len(row["total"]))
            if "Batch, median" in chart.traces:
                times_are(chart, "Batch, median", row["ahead"], HALF_HOUR_SECONDS, len(row["batch_likely"]))
            yield chart


def of_workloads(surfaces: Surfaces) -> Iterator[Drawn]:
    """Each workload's line, distribution and week, and its events."""
    portraits = {(*(row[name] for name in WORKLOAD), row["resource"]): row for row in surfaces.stored(PORTRAITS)}
    forecasts = {
        (row["namespace"], row["kind"], row["name"], row["resource"]): row for row in surfaces.stored(FORECASTS)
    }
    busy = sorted(surfaces.stored(WORKLOADS), key=lambda row: -(row["oom_kills"] or 0))
    for workload_row in [row for row in busy if surfaces.cluster.shows(row)][:MOST]:
        key = tuple(workload_row[name] for name in WORKLOAD)
        for resource in Resource:
            row, ahead = portraits[(*key, resource.value)], forecasts[(*key, resource.value)]
            page = portrait.contents(surfaces.cluster.view, WorkloadRef(*key), f"?show={resource}")
            chart = drawn(page, "story-figure")
            names = {"Usage": row["mean"], "Highest 5 min": row["highest"], "Request": row["request"],
                     "Forecast p50": ahead["q50"], "p95": ahead["q95"]}  # fmt: skip
            lines = [(name, "y", in_unit(resource, stored)) for name, stored in names.items()]
            usage = floats(row["mean"])
            phrases = [f"mean usage {amount(np.nanmean(usage), resource)}"] if np.isfinite(usage).any() else []
            phrases += [f"p95: {amount(ahead['peak'], resource)}"] if ahead["peak"] is not None else []
            if "Request" in chart.traces:
                values = floats(row["request"])
                phrases.append(f"requested in the newest hour {amount(values[np.isfinite(values)][-1], resource)}")
            chart.compare(lines, phrases)
            if "Usage" in chart.traces:
                times_are(chart, "Usage", row["start"], HOUR_SECONDS, len(row["mean"]))
            if "Proposed request" in chart.traces and len(row["pods"] or ()):
                # of the pods of each hour, as the request is, and of those of now in the caption
                each = chart.line("Proposed request") / floats(row["pods"])[-len(chart.line("Proposed request")) :]
                assert np.nanmax(each) == pytest.approx(np.nanmin(each))
                assert (
                    f"proposed {amount(np.nanmax(each) * SCALE[resource] * workload_row['replicas'], resource)}"
                    in chart.caption
                )
            events = [e["event"] for e in surfaces.stored(EVENTS) if tuple(e[name] for name in WORKLOAD) == key]
            for event, word in (("deploy", "Deploy"), ("restart", "Restart"), ("oom-kill", "OOM kill")):
                marks = chart.traces.get(word, {"customdata": []})["customdata"]
                assert sum(int(text.split()[0]) for text in marks) == events.count(event)
            yield chart
            if row["bounds"]:
                spread = drawn(page, "spread-figure")
                rungs = floats(row["ladder"])
                spread.compare(
                    [("Share of time", "y", 100 * floats(row["weights"])),
                     ("Quantiles", "x", rungs[np.isfinite(rungs)] / SCALE[resource])],
                    [f"p95 {amount(rungs[2], resource)}", f"max {amount(rungs[5], resource)}"],
                )  # fmt: skip
                starts = floats([pair[0] for pair in spread.traces["Share of time"]["customdata"]])
                np.testing.assert_allclose(starts, in_unit(resource, row["bounds"]))
                cells = [floats(day) for day in drawn(page, "week-figure").traces["0"]["z"]]
                np.testing.assert_allclose(np.concatenate(cells), in_unit(resource, row["heat"]), rtol=1e-6)


def of_forecasts(surfaces: Surfaces) -> Iterator[Drawn]:
    """The cluster's line and its week, and how many forecasts covered how much."""
    view, rows = surfaces.cluster.view, surfaces.stored(FORECASTS)
    _, ahead, _ = of_cluster(surfaces, Resource.CPU)
    chart = drawn(forecast.band(view, ""), "foreseen-figure")
    lines = [(name, "y", in_unit(Resource.CPU, ahead[q])) for name, q in (("p95", "q95"), ("Forecast p50", "q50"))]
    chart.compare(lines, [f"p95: {amount(ahead['peak'], Resource.CPU)}"])
    # a 5-minute peak is not below any half hour
    assert np.nanmax(chart.line("p95")) * 1000 <= ahead["peak"] * (1 + 1e-3)
    note = text_of(forecast.band(view, ""))
    assert f"{amount(ahead['peak'], Resource.CPU)} (p50: {amount(ahead['peak_median'], Resource.CPU)})" in note
    (week,) = (row for row in surfaces.stored(WEEKS) if (row["scope"], row["resource"]) == ("cluster", "cpu"))
    by_hour = floats(ahead["q50"]).reshape(-1, 2).mean(axis=1)  # the same hours have one forecast
    assert floats(week["q50"][: len(by_hour)]) == pytest.approx(by_hour, rel=1e-5)
    names = {"Usage": week["observed"], "Forecast p50": week["q50"]}
    most, least = (amount(end(week["q50"]), Resource.CPU) for end in (max, min))
    drawn(forecast.ahead(view, ""), "week-figure").compare(
        [(name, "y", in_unit(Resource.CPU, line)) for name, line in names.items()],
        [f"median highest at {most}", f"lowest at {least}"],
    )
    reads = surfaces.cluster.setting.reads
    covered = floats(
        [row["coverage_95"] for row in rows if reads is None or not row["namespace"] or row["namespace"] in reads]
    )
    shares = covered[np.isfinite(covered)]
    quality = drawn(forecast.quality(view, ""), "coverage-figure")
    yield from (chart, quality)
    assert sum(quality.traces["0"]["y"]) == len(shares)
    if shares.size:
        median_share = f"{percent(float(np.median(shares)))} of the values"
        quality.compare([], [f"Of {shares.size:,} measured", median_share, f"{int((shares < 0.9).sum()):,} below 90 %"])


def of_health(surfaces: Surfaces) -> Iterator[Drawn]:
    """The days, and the gaps by namespace below them, of the namespaces that the person may read."""
    days, (cards,) = surfaces.stored(COVERAGE_BY_DAY), health._coverage(surfaces.cluster.view.source.upkeep(), "")
    gaps, text = surfaces.may_read(COVERAGE, surfaces.stored(COVERAGE)), text_of(cards)
    lines = [
        f"{row['namespace']}{row['series']:,}{display.share(row['coverage'])}"
        f"{display.duration(row['longest_gap_seconds'] or 0)}{display.moment(row['newest'])}"
        for row in gaps
    ]
    assert sum(line in text for line in lines) == min(len(gaps), health.NAMESPACES_SHOWN)
    chart = drawn(cards, "days-figure")
    chart.compare([("0", "y", 100 * floats([day["coverage"] for day in days]))], [f"{len(days)} days; "])
    assert [x / 1000 for x in chart.traces["0"]["x"]] == [day["day"] for day in days]
    yield chart


def of_replays(surfaces: Surfaces) -> Iterator[Drawn]:
    """At each risk the tiles are the means and sums of what the charts draw by day."""
    replay, by_day = replayed(surfaces.cluster.end_seconds), {"Services": "online_cores", "Batch": "batch_cores",
                                                        "Lent to batch": "lent_cores"}  # fmt: skip
    for index, chosen in enumerate(replay.risks):
        page = what_if.outcome(replay, index)
        days, short, curve = (drawn(page, f"what-if-{name}") for name in ("days", "short", "curve"))
        mean = {name: f"{days.line(name).mean():,.0f}" for name in by_day}
        used = (
            f"services use {mean['Services']}, {mean['Lent to batch']} are lent to batch, which uses {mean['Batch']}, "
        )
        lines = [(name, "y", [getattr(day, column) for day in chosen.days]) for name, column in by_day.items()]
        days.compare(lines, [f"{used}of a capacity of 100"])
        hours, shares = days.line("Batch").sum() * 24, short.line("Node-time short, %")  # of whole days
        assert f"Lent to batch{mean['Lent to batch']} cores" in text_of(page)
        assert f"Batch work done{hours:,.0f} core-hours" in text_of(page)
        assert (curve.line("Chosen")[0], curve.line("Chosen", "x")[0]) == pytest.approx((hours, shares.mean()))
        phrase = f"Node-time short of capacity: {percent(chosen.short, 2)} on average, at most {shares.max():.2f} %"
        short.compare([("Node-time short, %", "y", [100 * day.short for day in chosen.days])], [phrase])
        curve.compare([("By risk", "x", [100 * risk.short for risk in replay.risks])], [])
        yield from (days, short, curve)


CHARTS: Sequence[Callable[[Surfaces], Iterator[Drawn]]] = (
    of_home, of_batch, of_nodes, of_workloads, of_forecasts, of_health, of_replays,
)  # fmt: skip


@pytest.fixture(scope="module")
def surfaces(shown: Scene) -> Surfaces:
    return Surfaces(shown)


@pytest.mark.parametrize("charts", CHARTS, ids=lambda draw: draw.__name__.removeprefix("of_"))
def test_charts_draw_what_the_store_holds_and_captions_name_what_is_drawn(
    surfaces: Surfaces, charts: Callable[[Surfaces], Iterator[Drawn]]
) -> None:
    compared = list(charts(surfaces))
    assert compared and all(chart.traces and chart.caption for chart in compared)
