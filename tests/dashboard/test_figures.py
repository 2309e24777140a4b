"""Charts as pure functions: valid for plotly, honest about gaps and peaks, and the same in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.resource import GIB, Resource
from cotenant.dashboard.figures import band, base, gantt, heat, lines, passage, room, waste
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.gantt import Bar
from cotenant.dashboard.figures.passage import Passage
from cotenant.dashboard.figures.room import CapacitySeries
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE
from cotenant.recommender.model.views import BandSeries, NamespaceWaste

HOUR = 3600
START = 1_700_006_400  # 2023-11-15 00:00 UTC, a Wednesday


def series(days: int = 10, scale: float = 1000.0) -> BandSeries:
    times = [START + HOUR * k for k in range(24 * days)]
    usage = [scale * (100 + 50 * math.sin(k / 24 * 2 * math.pi)) for k in range(len(times))]
    ahead = [times[-1] + HOUR + 1800 * k for k in range(48)]
    quantiles = {q: [scale * (80 + 100 * float(q) + k) for k in range(48)] for q in ("0.1", "0.5", "0.9", "0.95")}
    request, batch = [scale * 300] * len(times), [scale * (160 - u / scale) for u in usage]
    amounts = (scale * 400, ahead, quantiles, scale * 60, scale * 20, batch)
    return BandSeries(times, usage, request, *amounts, peak=round(scale * 230))


def plotted(chart: Chart) -> go.Figure:
    json.dumps(chart.figure, allow_nan=False)  # JSON has no NaN: a gap must be null
    return go.Figure(chart.figure)  # refuses any property plotly does not know


def trace(figure: go.Figure, name: str) -> go.Scatter:
    return next(t for t in figure.data if t.name == name)


def test_the_band_shows_a_week_of_history_and_the_forecast_in_cores() -> None:
    figure = plotted(band.chart(series(), Resource.CPU))
    usage = trace(figure, "Usage")
    # 7 days of hourly means: 7 * 24.
    assert len(usage.x) == 168
    assert max(usage.y) == pytest.approx(150)
    assert trace(figure, "Allocatable").y[0] == 400
    assert trace(figure, "p10–p90").fill == "tonexty"


def test_batch_stands_on_the_usage_of_its_hour() -> None:
    figure = plotted(band.chart(series(), Resource.CPU))
    # Batch may take what is left up to 160 cores, so usage and batch together are 160 in every hour.
    assert list(trace(figure, "Batch could take").y) == pytest.approx([160.0] * 168)


def test_what_batch_can_take_goes_on_above_the_median_and_what_is_sure_of_each_node_lies_below_it() -> None:
    likely, sure = [1000.0 * 50] * 48, [1000.0 * 40] * 48
    figure = plotted(band.chart(replace(series(), batch_ahead={LIKELY: likely, SURE: sure}), Resource.CPU))
    # The median begins with 80 + 50 = 130 cores and rises by one a half hour.
    assert list(trace(figure, "Batch can take, median").y[:2]) == [180, 181]
    assert list(trace(figure, "Batch, each node 95 % sure").y[:2]) == [170, 171]
    assert list(trace(figure, "Batch, each node 95 % sure").customdata[:2]) == [40, 40]


def test_a_gap_between_two_lines_is_not_filled_over() -> None:
    low, top = np.array([1.0, 1, np.nan, 2, 2]), np.array([3.0, 4, 5, 6, np.nan])
    filled = lines.area([0.0, 1, 2, 3, 4], low, top, base.TEAL)
    # there and back over slots 0 and 1, then over slot 3 alone: at 2 the one line has a gap, at 4 the other
    assert list(zip(filled["x"], filled["y"], strict=True)) == [
        (0, 3), (1, 4), (1, 1), (0, 1), (1, None), (3, 6), (3, 2), (3, None)
    ]  # fmt: skip


def test_memory_is_drawn_in_gib() -> None:
    figure = plotted(band.chart(series(scale=float(GIB)), Resource.MEMORY))
    assert trace(figure, "Allocatable").y[0] == 400
    assert figure.layout.yaxis.title.text == "GiB"


def test_a_gap_stays_a_gap() -> None:
    full_series = series()
    usage = [math.nan if 200 <= k < 206 else v for k, v in enumerate(full_series.usage)]
    holed = BandSeries(
        full_series.times,
        usage,
        full_series.request,
        full_series.allocatable,
        full_series.ahead,
        full_series.quantiles,
        0.0,
        0.0,
    )
    drawn = trace(plotted(band.chart(holed, Resource.CPU)), "Usage")
    assert sum(v is None for v in drawn.y) == 6
    assert drawn.connectgaps is False


def test_the_summary_says_what_the_band_shows() -> None:
    summary = band.chart(series(), Resource.CPU).summary
    assert "400 cores allocatable" in summary
    # The highest p95 of its half hours is 80 + 95 + 47 = 222 cores; the peak is of 5 minutes, and the same everywhere.
    assert summary.endswith("; 24 h peak, 5 min, p95: 230 cores.")
    assert "24 h peak" not in band.chart(replace(series(), peak=None), Resource.CPU).summary


def test_a_band_without_history_or_forecast_is_still_a_figure() -> None:
    nothing = BandSeries([], [], [], 0.0, [], {}, 0.0, 0.0)
    chart = band.chart(nothing, Resource.CPU)
    plotted(chart)
    assert chart.summary == "No cpu usage in the history."


@given(hnp.arrays(np.float64, st.integers(0, 5000), elements=st.floats(-1e6, 1e6) | st.just(math.nan)))
def test_thinning_keeps_the_highest_and_the_lowest_value(values: np.ndarray) -> None:
    positions = base.drawn_positions(values, 200)
    assert len(positions) <= 200 and list(positions) == sorted(set(positions))
    if not np.isnan(values).all():
        assert np.nanmax(values[positions]) == np.nanmax(values)
        assert np.nanmin(values[positions]) == np.nanmin(values)


def test_the_heat_map_names_the_busiest_and_the_quietest_hour() -> None:
    grid = np.full((7, 24), 0.3)
    grid[1, 15], grid[6, 4], grid[0, 0] = 0.9, 0.05, np.nan
    chart = heat.chart(grid.tolist())
    figure = plotted(chart)
    assert figure.data[0].z[0][0] is None
    assert figure.data[0].z[1][15] == pytest.approx(90)
    assert figure.data[0].colorbar.title.text == "% of allocatable"
    assert "Tue 15:00 UTC at 90 %" in chart.summary and "Sun 04:00 UTC at 5 %" in chart.summary


def test_a_week_never_seen_says_so() -> None:
    chart = heat.chart([[math.nan] * 24] * 7)
    plotted(chart)
    assert chart.summary == "No usage has been measured yet."


WASTE = [NamespaceWaste("a", 1000, 5 * GIB), NamespaceWaste("b", 9000, GIB), NamespaceWaste("<b>x</b>&", 4000, 0)]


def test_waste_ranks_by_the_resource_asked_for() -> None:
    assert [w.namespace for w in waste.most_wasteful(WASTE, Resource.CPU, 2)] == ["b", "<b>x</b>&"]
    assert [w.namespace for w in waste.most_wasteful(WASTE, Resource.MEMORY, 9)] == ["a", "b"]


def test_a_namespace_is_text_in_a_chart_whatever_it_is_called() -> None:
    bars = plotted(waste.chart(WASTE, Resource.CPU, 5)).data[0]
    assert bars.y[1] == bars.hovertext[1] == "&lt;b>x&lt;/b>&amp;"
    assert bars.customdata[1] == "<b>x</b>&"


def test_no_waste_is_said() -> None:
    assert waste.chart([], Resource.CPU, 5).summary == "There are no unused requests."


def test_days_on_an_axis_keep_space_for_their_words() -> None:
    day = lines.DAY_MILLISECONDS
    # 8 days: a mark each; 29 days: 29 / 9 = 3.2, a mark every fourth day
    assert [lines.over_time("cores", [0, days * day])["xaxis"]["dtick"] / day for days in (8, 29)] == [1, 4]


def test_a_change_and_the_way_back_a_minute_later_are_named_at_different_ends_of_their_lines() -> None:
    day = Passage(Resource.CPU, [0, 3600], np.array([1.0, 2.0]), 3600, 9000, back_seconds=3660, before=3.0, after=2.0)
    labels = [shape["label"] for shape in passage.chart(day).figure["layout"]["shapes"] if "label" in shape]
    ends = {label["text"]: (label["textposition"], label["yanchor"]) for label in labels}
    assert ends == {"change": ("end", "top"), "back": ("start", "bottom")}


EVERY_STATE = [Bar(f"ns/{phase}", START, START + HOUR, 1, "ok", phase) for phase in gantt.STATES]


ROOM = CapacitySeries(
    Resource.CPU, [START], np.ones(1), [START + HOUR], np.ones(1), np.ones(1), 1.0, np.ones(1), np.ones(1)
)


@pytest.mark.parametrize(
    "chart",
    [band.chart(series(), Resource.CPU), room.chart(ROOM, None), gantt.chart(EVERY_STATE, START)],
    ids=["bands", "lines", "bars"],
)
def test_names_below_a_chart_are_those_of_its_legend_and_no_two_look_alike(chart: Chart) -> None:
    signs = base.signs(chart.figure)
    in_legend = [t.name for t in plotted(chart).data if t.name and t.showlegend is not False]
    assert [sign.name for sign in signs] == in_legend and len(signs) > 4
    assert len({replace(sign, name="") for sign in signs}) == len(signs)


def test_a_name_below_a_chart_is_the_text_that_plotly_would_show() -> None:
    figure = {"data": [lines.line([1.0], np.ones(1), base.plain("<b>&"), base.RED)], "layout": {"showlegend": True}}
    assert [sign.name for sign in base.signs(figure)] == ["<b>&"]
    assert base.signs(figure | {"layout": {"showlegend": False}}) == []
