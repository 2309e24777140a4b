"""The week ahead on the Forecast page: drawn from a row, told in words, and named when it is missing."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import week as chart
from cotenant.dashboard.nodes import weekly
from cotenant.forecasting.settings import ForecastingSettings

MONDAY = 1_767_571_200


def row(**other: Any) -> dict[str, Any]:
    past = [1000.0 * (10 + h % 24) for h in range(20 * 24)]
    cells = {
        "resource": "cpu",
        "relative_loss": 0.83,
        "covered": 0.78,
        "daily_strength": 0.9,
        "weekly_strength": 0.25,
        "start": MONDAY,
        "q10": [9_000.0] * 168,
        "q50": [float(10_000 + h) for h in range(168)],
        "q90": [14_000.0] * 168,
        "past_start": MONDAY - 20 * 86_400,
        "observed": past,
        "trend": [21_500.0] * len(past),
        "daily": [1000.0 * (h % 24) - 11_500 for h in range(len(past))],
        "weekly": [0.0] * len(past),
        "rest": [1.0] * len(past),
    }
    return cells | other


def test_the_band_begins_where_the_last_week_ends() -> None:
    drawn = chart.ahead(weekly.week_of(row()))
    traces = {trace["name"]: trace for trace in drawn.figure["data"]}
    assert len(traces["Usage"]["x"]) == 168
    # one hour after the last known one
    assert traces["Forecast p50"]["x"][0] - traces["Usage"]["x"][-1] == 3_600_000
    assert traces["Forecast p50"]["y"][-1] == 10.167  # 10,000 + 167 millicores
    assert "highest at 10.2 cores" in drawn.summary


def test_a_part_without_movement_is_not_drawn() -> None:
    drawn = chart.component_chart(weekly.week_of(row()))
    assert [trace["name"] for trace in drawn.figure["data"]] == ["Trend", "Daily pattern", "Rest"]
    assert "too short" in drawn.summary
    with_week = chart.component_chart(weekly.week_of(row(weekly=[5.0] * 480)))
    assert [note["text"] for note in with_week.figure["layout"]["annotations"]] == [
        "Trend, cores",
        "Daily pattern, cores",
        "Weekly pattern, cores",
        "Rest, cores",
    ]
    assert "25 %" in with_week.summary


def test_axes_do_not_overlap_and_fill_the_chart() -> None:
    layout = chart.component_chart(weekly.week_of(row(weekly=[5.0] * 480))).figure["layout"]
    spans = sorted(tuple(layout[name]["domain"]) for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4"))
    assert all(high <= low for (_, high), (low, _) in itertools.pairwise(spans))
    # the uppermost leaves room for its name alone
    assert np.isclose(spans[-1][1], 1.0 - chart.GAP)


def test_how_it_did_is_told_or_that_it_could_not_be_tried() -> None:
    assert "error 0.83 x the error of repeating the week before" in weekly.error_sentence(row())
    untried = weekly.error_sentence(row(relative_loss=None))
    assert untried == "Too little history to test the forecast on a past week."


def test_a_series_without_a_week_says_who_has_one() -> None:
    text = json.dumps(weekly.body(None).to_plotly_json(), default=lambda part: part.to_plotly_json())
    assert "No forecast of the next week for this series." in text
    assert "the 10 workloads that use most CPU get a forecast of the next week" in text
    assert ForecastingSettings().week_workloads == 10, "the number in that sentence"


def test_memory_is_drawn_in_gib_and_without_parts_only_the_band() -> None:
    young = row(resource="memory", observed=[], trend=[], daily=[], weekly=[], rest=[], past_start=None)
    week = weekly.week_of(young | {"q50": [float(1 << 30)] * 168})
    assert week.resource is Resource.MEMORY
    assert week.parts == {}
    traces = {trace["name"]: trace for trace in chart.ahead(week).figure["data"]}
    assert traces["Forecast p50"]["y"][0] == 1.0  # 2^30 bytes
