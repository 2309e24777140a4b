"""The week of each measure that could guard a workload's changes, drawn where a person says yes to it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.regression_check import Measure, Objective
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.found import FoundObjective, Guards, ObjectiveWeek, decide_objective, false_alarm_ratio
from cotenant.dashboard.changes.guards import chart, contents

END = 1_700_000_000 - 1_700_000_000 % 3600
WEB = WorkloadRef("shop", "Deployment", "web")
SETTINGS = ActionSettings()


def objective_of(
    values: list[float | None], measure: Measure = Measure.ERRORS, ceiling: float | None = 0.02
) -> FoundObjective:
    hours = np.array([np.nan if value is None else value for value in values])
    return decide_objective(ObjectiveWeek(Objective(measure, "max(up)", "Sloth shop/web", ceiling), hours), SETTINGS)


def traces(objective: FoundObjective) -> dict[str, Any]:
    return {trace["name"]: trace for trace in chart(objective, SETTINGS, END).figure["data"]}


def test_the_picture_marks_the_hours_that_count_as_harm_and_draws_the_bound() -> None:
    values: list[float | None] = [0.01] * 40
    values[20], values[30] = 0.05, None
    drawn = traces(objective_of(values))
    harm = drawn["Would have counted as harm"]
    # Hour 20 of 40, of which the last ends at END: 19 hours before it.
    assert harm["x"] == [1000.0 * (END - 19 * 3600)] and harm["y"] == pytest.approx([5.0])
    bounds = drawn["Limit after a change"]["y"]
    # The promise of 2 % is the bound, also after the hour that broke it, since it is kept again; there is none of the
    # first hour, of the hour without a value, and of the one after it.
    assert [k for k, bound in enumerate(bounds) if bound is None] == [0, 30, 31]
    assert [bound for bound in bounds if bound is not None] == pytest.approx([2.0] * 37)
    assert (
        "objective at most 2.0 %; 1 hour would have counted as harm"
        in chart(objective_of(values), SETTINGS, END).summary
    )


@pytest.mark.parametrize("measure", [Measure.ERRORS, Measure.LATENCY])
@pytest.mark.parametrize("ceiling", [None, 0.02])
def test_as_many_hours_are_marked_as_the_sentence_counts(measure: Measure, ceiling: float | None) -> None:
    values = np.random.default_rng(7).uniform(0.001, 0.04, 168)
    objective = objective_of([float(value) for value in values], measure, ceiling)
    marked = len(traces(objective)["Would have counted as harm"]["x"])
    assert marked > 0
    assert false_alarm_ratio(measure, values, SETTINGS, ceiling) == pytest.approx(marked / 167)


def test_a_command_is_offered_for_what_is_not_used_yet_and_the_reason_for_what_is_of_no_use() -> None:
    good = objective_of([0.01] * 40, ceiling=None)
    used = FoundObjective(**{**{name: getattr(good, name) for name in good.__slots__}, "is_used": True})
    bad = objective_of([0.9] * 40, ceiling=None)
    guards = Guards(WEB, {Measure.LATENCY: "p99"}, (), (good, used, bad), ("slos <b> may not be listed",))
    text = json.dumps(
        contents(guards, SETTINGS, END).to_plotly_json(), default=lambda component: component.to_plotly_json()
    )
    assert text.count("kubectl annotate -n shop deployment/web") == 2  # shown, and copied
    assert "In use: an annotation of the workload, or an object of its namespace, names this metric." in text
    assert "This metric cannot be used: more than half of the requests fail in the median hour." in text
    assert "slos <b> may not be listed" in text and "p99" in text
