"""The demo's metric source: bounds below what a pod bursts to make measures worse, and never better."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.kubernetes.intent import Address
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.changes.decide.regression_check import Measure, Objective
from cotenant.changes.model.change import Change, Write
from cotenant_lab.simulation.metric_source import SimulatedComparison
from cotenant_lab.simulation.usage_now import Curves
from tests.support.approximate import about

HOUR = 3600.0
FLAT = Curves({("shop", "deployment-web"): 0}, TimeGrid(0, 300, 288), {r: np.full((1, 288), 400.0) for r in Resource})


def change(before: int, after: int, name: str = "web") -> Change:
    """A Deployment whose request moves between these millicores, under a limit of one core."""
    path = "/spec/template/spec/containers/0/resources"
    old, new = ({path: {"requests": {"cpu": f"{m}m"}, "limits": {"cpu": "1"}}} for m in (before, after))
    write = Write(Address("apps/v1", "deployments", name, "shop"), "u", (), old, new)
    return Change("c", "b", "shop", "Deployment", name, "ann", (), "template", "r", (write,))


def measured(source: SimulatedComparison, moved: Change) -> dict[Measure, tuple[float, float]]:
    compared = source(moved, 10 * HOUR, 11 * HOUR, [Objective(Measure.LATENCY, "p99")])
    return {comparison.measure: (comparison.before or 0.0, comparison.after or 0.0) for comparison in compared}


def test_a_cut_below_what_bursts_need_waits_and_slows() -> None:
    measures = measured(SimulatedComparison(FLAT), change(1000, 230))
    # bursts are 1.15 x 400 = 460 millicores: half of one is above 230, so 0.25 x 0.5 waits and 20 / (1 - 0.4) ms pass
    assert measures[Measure.PRESSURE] == (0.0, about(0.125))
    assert measures[Measure.LATENCY] == (0.02, about(0.02 / 0.6))
    assert measures[Measure.THROTTLED] == (0.0, 0.0)


def test_the_bursting_workload_is_harmed_by_a_cut_that_its_history_allows() -> None:
    moved = change(1000, 700)
    calm, bursting = (SimulatedComparison(FLAT, name) for name in (("", ""), ("shop", "web")))
    assert measured(calm, moved)[Measure.LATENCY] == (0.02, 0.02)
    # it bursts to 1,000: 0.3 of that is above 700
    assert measured(bursting, moved)[Measure.LATENCY] == (0.02, about(0.02 / (1 - 0.8 * 0.3)))


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_no_measure_gets_better_by_a_lower_request(first: int, second: int) -> None:
    low, high = sorted((first, second))
    for before, after in measured(SimulatedComparison(FLAT), change(high, low)).values():
        assert after >= before


def test_what_has_no_curve_or_too_little_time_is_not_compared() -> None:
    source = SimulatedComparison(FLAT)
    assert list(source(change(2, 1, "other"), 10 * HOUR, 11 * HOUR, [Objective(Measure.LATENCY, "p99")])) == []
    assert list(source(change(2, 1), 10 * HOUR, 10 * HOUR + 60, [])) == []
    assert Measure.LATENCY not in {compared.measure for compared in source(change(2, 1), 10 * HOUR, 11 * HOUR, [])}
    assert source.trace(change(2, 1, "other"), 10 * HOUR, 11 * HOUR) == []
    (cpu, _) = source.trace(change(2, 1), 10 * HOUR, 11 * HOUR)
    assert set(cpu.usage) == {400.0} and cpu.start_seconds <= 9 * HOUR
