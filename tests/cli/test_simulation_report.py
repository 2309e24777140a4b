"""The report of a simulation: every number of it is an outcome's, and it is one file that needs nothing else."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from bench.closed_loop.closed_loop_figure import MOST_VIOLATION_PERCENT, drawn
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.experiment.interference import Interference
from cotenant.experiment.outcome import STEP_SECONDS, Sharing, SharingOutcome, SharingScenario, SharingTimeline, what_if
from cotenant_lab.commands.simulation_report import ASSUMPTIONS, SimulationContents, amount, clock, curves, page
from cotenant_lab.simulation.nodes.incident_story import IncidentCost
from tests.support.approximate import about
from tests.support.command_line import cotenant

BEGIN = 1_795_046_400
"""A midnight, UTC."""


def outcome(sharing: Sharing, knob: float, seed: int, hours: float, short: float) -> SharingOutcome:
    """Two days of which the second lends twice as much; 10 cores of services."""
    steps = 2 * DAY_SECONDS // STEP_SECONDS
    columns = {field.name: np.full(steps, 10.0) for field in fields(SharingTimeline)}
    columns["time_seconds"] = BEGIN + STEP_SECONDS * np.arange(steps, dtype=np.float64)
    columns["offered_cores"] = np.repeat([5.0, 10.0], steps // 2)
    scenario = SharingScenario("synthetic", 4, 80, 2, seed)
    numbers = (0.5, hours, 0.9, 2, 1.0, short, 1.03)
    return SharingOutcome(scenario, sharing, knob, *numbers, timeline=SharingTimeline(**columns))


OUTCOMES = [
    outcome(way, knob, seed, hours + 10 * seed, short)
    for way, knob, hours, short in (
        (Sharing.COTENANT, 1.0, 600.0, 0.004),
        (Sharing.COTENANT, 5.0, 700.0, 0.01),
        (Sharing.KOORDINATOR, 60.0, 500.0, 0.006),
    )
    for seed in (1, 2)
]


def contents(outcomes: list[SharingOutcome]) -> SimulationContents:
    return SimulationContents(outcomes, (), Interference(), "cotenant simulate --seeds 2", BEGIN)


def test_a_column_of_which_nothing_is_known_is_left_out() -> None:
    assert "Deadlines met" in page(contents(OUTCOMES))
    unknown = [replace(sharing_outcome, deadlines_met_ratio=float("nan")) for sharing_outcome in OUTCOMES]
    assert "Deadlines met" not in page(contents(unknown))


def test_the_page_has_each_setting_once_its_mean_over_seeds_and_the_command_that_made_it() -> None:
    html = page(contents(OUTCOMES))
    # 600 + 10 and 600 + 20 are 615 on average
    assert [float(v) for v in re.findall(r'data-value="(6[0-9.]+|7[0-9.]+|5[0-9.]+)"', html)] == [615.0, 715.0, 515.0]
    assert html.count('<tr><td class="who">') == 3
    assert "cotenant simulate --seeds 2" in html
    assert all(sentence in html for sentence in ASSUMPTIONS)
    assert "://" not in html and "<script" not in html


def test_curves_are_means_over_seeds_in_the_order_of_violations_with_their_intervals() -> None:
    points, spread = curves(OUTCOMES)
    assert [*points["cotenant"]] == [(about(0.4), 615.0), (about(1.0), 715.0)]
    # drawn again, two seeds have means from 610 to 620
    assert spread["cotenant"][0] == (about(0.4), 610.0, 620.0)


def test_a_page_without_outcomes_says_so_in_its_lead() -> None:
    assert "Incidents, replayed" in page(contents([]))


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00:00"), (78.9, "0:01:18"), (36_000, "10:00:00")])
def test_a_clock_counts_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_cost_that_never_ends_is_not_a_number() -> None:
    assert amount(IncidentCost("normal again", float("inf"), "min", 10)) == "not before the run ended"
    assert amount(IncidentCost("lost", 1234.5, "core-hours")) == "1,234 core-hours"


def test_the_figure_has_a_chart_a_family_and_leaves_out_what_nobody_runs() -> None:
    def point(sharing: str, violation: float, hours: float, knob: float = 5.0) -> dict[str, object]:
        return {"sharing": sharing, "knob": knob, "violation_ratio": violation, "batch_core_hours": hours}

    beyond = 1.5 * MOST_VIOLATION_PERCENT / 100
    family = [point("oracle", 0, 100), point("cotenant", 0.01, 80, knob=1.0), point("cotenant", 0.02, 90)]
    svg = drawn({"one": family, "two": [*family, point("koordinator", beyond, 95)]})
    assert svg.startswith("<svg xmlns=") and svg.count('class="title"') == 2
    # three dots a chart and one a name of the legend, which has all four ways; a ring around the risk of an install
    assert svg.count("<circle") == 2 * (3 + 1) + 4
    assert svg.count('class="ring"') == 2
    assert "http://www.w3.org/2000/svg" in svg and svg.count("http") == 1


def test_the_stored_replay_has_means_by_day_and_lending_by_use_beside() -> None:
    replay = what_if([o for o in OUTCOMES if o.scenario.seed == 1], BEGIN)
    assert replay is not None and replay.by_use is not None
    assert [risk.risk_percent for risk in replay.risks] == [1.0, 5.0]
    assert [day.lent_cores for day in replay.risks[0].days] == [5.0, 10.0]
    assert [day.start_seconds for day in replay.risks[0].days] == [BEGIN, BEGIN + DAY_SECONDS]
    assert replay.risks[0].lent_cores == 7.5
    # of a day of which a third was replayed, and a day three times as long: (5 + 3 x 10) / 4 cores over time
    part = replace(
        replay.risks[0], days=tuple(replace(d, steps=n) for d, n in zip(replay.risks[0].days, (1, 3), strict=True))
    )
    assert part.lent_cores == 8.75
    assert (replay.capacity_cores, replay.by_use.batch_core_hours) == (10.0, 510.0)
    assert what_if([replace(OUTCOMES[-1])], BEGIN) is None


@pytest.mark.slow
def test_an_incident_is_told_in_the_terminal_and_in_the_report(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    line = "simulate --nodes 2 --pods 40 --days 2 --policy cotenant --incident memory-leak --risk 1 -q --report"
    done = cotenant(*line.split(), str(file))
    assert done.returncode == 0
    assert "What it cost" in done.stdout and "batch/etl-3" in done.stdout
    assert "services evicted, node: 0 pods" in done.stdout
    html = file.read_text()
    assert "A service leaks memory" in html and "batch/etl-3" in html
    assert "--incident memory-leak" in html and "--report" not in html
