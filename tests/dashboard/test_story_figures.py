"""Charts of a workload and of forecasts: honest about gaps, peaks and far marks, bounded in points, told in words."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.histogram import CPU_BUCKETS, total_buckets_of
from cotenant.dashboard.figures import distribution, heat
from cotenant.dashboard.figures import story as chart
from cotenant.dashboard.figures.base import MAX_POINTS, Chart
from cotenant.dashboard.figures.distribution import coverage

HOUR = 3600
START = 1_700_006_400  # 2023-11-15 00:00 UTC, a Wednesday


def line(days: int = 14, **more: Any) -> chart.Line:
    count = 24 * days
    mean = np.array([4000 + 2000 * math.sin(k / 24 * 2 * math.pi) for k in range(count)])
    ahead = [START + HOUR * count + 1800 * k for k in range(48)]
    fields: dict[str, Any] = {
        "resource": Resource.CPU,
        "times": [START + HOUR * k for k in range(count)],
        "mean": mean,
        "highest": mean + 500,
        "request": np.full(count, 10_000.0),
        "ahead": ahead,
        "quantiles": {q: np.full(48, 1000.0 * float(q)) for q in ("0.1", "0.5", "0.9", "0.95")},
        **more,
    }
    return chart.Line(**fields)


def plotted(drawing: Chart) -> go.Figure:
    json.dumps(drawing.figure, allow_nan=False)  # JSON has no NaN: a gap must be null
    return go.Figure(drawing.figure)  # refuses any property plotly does not know


def trace_named(figure: go.Figure, name: str) -> Any:
    return next((t for t in figure.data if t.name == name), None)


def test_usage_request_proposal_and_limit_stand_in_cores() -> None:
    figure = plotted(chart.chart(line(proposed=8000, limit=12_000)))
    assert max(trace_named(figure, "Usage").y) == pytest.approx(6)
    assert max(trace_named(figure, "Highest 5 min").y) == pytest.approx(6.5)
    assert set(trace_named(figure, "Request").y) == {10}
    assert (list(trace_named(figure, "Proposed request").y), list(trace_named(figure, "Limit").y)) == ([8, 8], [12, 12])
    assert trace_named(figure, "p10–p90").fill == "tonexty"


def test_the_proposal_is_drawn_for_the_pods_of_each_hour_as_requests_are() -> None:
    # Five pods at night and ten by day of 1 core each ask for 5 and 10 cores; at 0.8 cores they would ask for 4 and 8.
    pods = np.where(np.arange(14 * 24) % 24 < 12, 5.0, 10.0)
    drawn = plotted(chart.chart(line(request=pods * 1000, proposed=8000, proposed_past=pods * 800)))
    requested, proposed = trace_named(drawn, "Request"), trace_named(drawn, "Proposed request")
    assert (
        dict(zip(proposed.x, proposed.y, strict=True)).keys() == dict(zip(requested.x, requested.y, strict=True)).keys()
    )
    assert set(proposed.y) == {4, 8}
    assert [p / r for p, r in zip(proposed.y, requested.y, strict=True)] == pytest.approx([0.8] * len(proposed.y))
    assert max(proposed.x) == max(requested.x)  # how many pods there will be nobody knows


def test_memory_is_drawn_in_gib() -> None:
    figure = plotted(chart.chart(line(resource=Resource.MEMORY, limit=12_000, proposed=2 * GIB)))
    assert list(trace_named(figure, "Proposed request").y) == [2, 2]
    assert figure.layout.yaxis.title.text == "GiB"


def test_a_limit_far_above_everything_is_told_and_not_drawn() -> None:
    # The highest of the others is the request, 10 cores: 20 cores are twice that and still drawn, 21 are not.
    assert trace_named(plotted(chart.chart(line(limit=20_000))), "Limit") is not None
    far = chart.chart(line(limit=21_000))
    assert trace_named(plotted(far), "Limit") is None
    assert "limit 21 cores (above the chart)" in far.summary


def test_a_gap_stays_a_gap() -> None:
    mean = line().mean.copy()
    mean[100:106] = np.nan
    drawn = trace_named(plotted(chart.chart(line(mean=mean))), "Usage")
    assert sum(v is None for v in drawn.y) == 6 and drawn.connectgaps is False


def test_near_events_share_a_mark_that_says_how_many() -> None:
    # 15 days in 90 slots are 4 h each: 0 h, 1 h and 3 h 59 share the first, 4 h has the next.
    times = [START, START + HOUR, START + 4 * HOUR - 60, START + 4 * HOUR]
    events = [(t, "oom-kill") for t in times] + [(START + HOUR, "deploy")]
    figure = plotted(chart.chart(line(events=events, ahead=[START + 15 * 86_400], quantiles={})))
    kills = trace_named(figure, "OOM kill")
    assert [k.strip() for k in kills.text] == ["×3", ""]
    assert list(kills.x) == [1000.0 * START, 1000.0 * (START + 4 * HOUR)]
    assert kills.customdata[0] == "3 OOM kills"
    assert list(figure.layout.yaxis2.categoryarray) == ["Deploy", "OOM kill"]
    assert trace_named(figure, "Restart") is None


def test_without_events_there_is_no_lane() -> None:
    assert "yaxis2" not in chart.chart(line()).figure["layout"]


def test_the_peak_window_is_shaded_and_named() -> None:
    start = START + 14 * 86_400
    shape = plotted(chart.chart(line(window=(start, start + 2 * HOUR)))).layout.shapes[0]
    assert (shape.x0, shape.x1, shape.label.text) == (1000.0 * start, 1000.0 * (start + 2 * HOUR), "peak")


def test_the_words_say_what_the_chart_shows() -> None:
    happened = [(START, "restart"), (START, "deploy")]
    summary = chart.chart(line(proposed=8000, limit=12_000, peak=1_200, events=happened)).summary
    # The mean of whole sine periods is its middle, 4 cores.
    assert summary == (
        "CPU: mean usage 4 cores, highest 6.5 cores, requested in the newest hour 10 cores, proposed 8 cores, "
        "limit 12 cores; 24 h peak, 5 min, p95: 1.2 cores; 1 deploy, 1 restart."
    )


def test_a_series_without_any_sample_is_still_a_figure() -> None:
    nothing = chart.chart(chart.Line(Resource.MEMORY, [], np.empty(0)))
    plotted(nothing)
    assert nothing.summary == "No memory usage in the history."


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9000), st.integers(0, 2**32 - 1))
def test_no_trace_has_more_points_than_it_may_and_peaks_survive(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).exponential(1000, count)
    events = [(START + 60 * k, "oom-kill") for k in range(count)]
    times = [START + HOUR * k for k in range(count)]
    usage_chart = chart.chart(
        chart.Line(Resource.CPU, times, values, highest=2 * values, request=values, events=events)
    )
    assert all(len(t["x"]) <= MAX_POINTS for t in usage_chart.figure["data"])
    drawn = next(t for t in usage_chart.figure["data"] if t["name"] == "Highest 5 min")["y"]
    assert max(drawn) == pytest.approx(2 * values.max() / 1000)


LADDER = [1000.0, 2000.0, 2500.0, 2600.0, 2900.0, 4000.0]


def spread(**stands: float) -> Chart:
    bounds = CPU_BUCKETS.starts[[20, 21, 40]]
    return distribution.chart(bounds, np.array([0.5, 0.3, 0.2]), LADDER, stands, Resource.CPU)


def test_bars_of_a_total_of_thousands_of_cores_are_as_wide_as_their_buckets() -> None:
    bounds = total_buckets_of(Resource.CPU).starts[[175, 200]]
    bars = plotted(distribution.chart(bounds, np.array([0.5, 0.5]), [3e6], {}, Resource.CPU)).data[0]
    assert bars.width == pytest.approx([0.010 * 1.05**175, 0.010 * 1.05**200])


def test_bars_are_as_wide_as_their_buckets() -> None:
    bars = plotted(spread()).data[0]
    # Bucket n begins at 10 x (1.05^n - 1) / 0.05 millicores and is 10 x 1.05^n wide: n = 20 is 0.02653 cores wide.
    assert bars.width[0] == pytest.approx(0.010 * 1.05**20)
    assert bars.x[0] == pytest.approx((10 * (1.05**20 - 1) / 0.05 + 10 * 1.05**20 / 2) / 1000)
    assert list(bars.y) == [50, 30, 20]


def test_the_ladder_has_every_rung_and_labels_do_not_overlap() -> None:
    rungs = plotted(spread()).data[1]
    assert list(rungs.customdata) == list(distribution.RUNGS)
    # The axis ends at 1.04 x 4 cores and a label needs 9 % of it, 0.37: p98 (2.6) stands too near to p95 (2.5).
    assert list(rungs.text) == ["p50", "p90", "p95", "", "p99", "max"]


def test_marks_stand_where_they_are_unless_far_away() -> None:
    marks_chart = spread(Request=5000.0, Proposed=3000.0, Limit=100_000.0)
    figure = plotted(marks_chart)
    assert [s.x0 for s in figure.layout.shapes] == [3, 5]
    assert [a.text for a in figure.layout.annotations] == ["Proposed", "Request"]
    assert "limit 100 cores" in marks_chart.summary


@given(st.lists(st.floats(0, 100), min_size=0, max_size=6))
def test_labels_that_are_near_stand_in_different_rows(places: list[float]) -> None:
    ordered = sorted(places)
    heights = distribution._heights(ordered, 100.0)
    for i, first in enumerate(ordered):
        for j in range(i):
            assert first - ordered[j] >= 2 * distribution.CLOSE * 100 or heights[i] != heights[j]


def test_no_usage_has_no_distribution_and_says_so() -> None:
    distribution_chart = distribution.chart(np.empty(0), np.empty(0), [math.nan] * 6, {}, Resource.MEMORY)
    plotted(distribution_chart)
    assert distribution_chart.summary == "No memory usage to show a distribution of."


def test_the_week_of_a_workload_names_amounts_and_the_unit_of_its_colours() -> None:
    values = np.full(168, 1000.0)
    values[24 + 15], values[6 * 24 + 4], values[0] = 9000.0, 50.0, np.nan
    amounts = heat.amounts(values.tolist(), Resource.CPU)
    assert plotted(amounts).data[0].z[0][0] is None
    scales = [plotted(heat.amounts(values.tolist(), of)).data[0].colorbar.title.text for of in Resource]
    assert scales == ["cores", "GiB"]
    assert "Tue 15:00 UTC at 9 cores" in amounts.summary and "Sun 04:00 UTC at 50 m" in amounts.summary


def test_coverage_counts_forecasts_and_says_how_many_are_too_sure() -> None:
    coverage_chart = coverage(np.array([0.95, 0.96, 0.97, 0.72, math.nan]))
    bars = plotted(coverage_chart).data[0]
    assert sum(bars.y) == 4
    # Sorted 0.72, 0.95, 0.96, 0.97: the median is 0.955, one is below 0.9.
    assert (
        "4 measured forecasts: at the median, 96 %" in coverage_chart.summary
        and "for 1 forecast less" in coverage_chart.summary
    )


def test_nothing_measured_is_said() -> None:
    coverage_chart = coverage(np.array([math.nan, math.nan]))
    plotted(coverage_chart)
    assert coverage_chart.summary == "Nothing was measured for 2 forecasts yet: too little history."
