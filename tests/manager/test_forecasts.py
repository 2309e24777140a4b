"""UsageForecasts are written at most hourly, and only when they moved or end soon."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.controllers.published import ExistingObject
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.models.own_kinds import UsageForecast
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import ManagerSettings
from cotenant.manager.decisions.forecasts import ForecastView, decide
from cotenant.manager.decisions.results import NodeOutlook, RunResults, SeriesOutlook

HOUR = 3600
START = 1_789_999_200  # 2026-09-21T14:00:00Z
SETTINGS = ManagerSettings()
NODES = {"n1": ExistingObject("v1", "Node", "n1", "u-1")}


def outlook(start: int = START, level: int = 1000, peak: int = 2000, **changes: Any) -> NodeOutlook:
    cpu = SeriesOutlook([level] * 48, [level + 500] * 48, peak, start + HOUR, "seasonal", "ok")
    memory = SeriesOutlook([level << 20] * 48, [(level + 500) << 20] * 48, (peak << 20) - 7, None, "naive", "no-peak")
    node_outlook = NodeOutlook(
        node="n1",
        start_seconds=start,
        step_seconds=1800,
        series={Resource.CPU: cpu, Resource.MEMORY: memory},
        settings_digest="aaaabbbbcccc",
        history_start_seconds=start - 28 * 86_400,
        history_end_seconds=start,
    )
    return msgspec.structs.replace(node_outlook, **changes)


def written(
    node_forecast: NodeOutlook, previous: dict[str, Any] | None, now: float | None = None
) -> dict[str, Any] | None:
    by_node = {} if previous is None else {"n1": msgspec.convert(previous, UsageForecast)}
    view = ForecastView(RunResults(node_forecast.start_seconds, nodes=(node_forecast,)), by_node, NODES)
    intents = decide(view, node_forecast.start_seconds + 60 if now is None else now, SETTINGS).intents
    assert all(isinstance(intent, Apply) for intent in intents)
    return dict(intents[0].body) if intents else None  # type: ignore[union-attr]


def first() -> dict[str, Any]:
    body = written(outlook(), None)
    assert body is not None
    return body


def test_a_new_node_gets_its_forecast_with_everything_a_reader_needs() -> None:
    spec = first()["spec"]
    assert (spec["start"], spec["validUntil"]) == ("2026-09-21T14:00:00Z", "2026-09-22T14:00:00Z")
    assert (len(spec["cpu"]["q50Millicores"]), len(spec["memory"]["q95Bytes"])) == (48, 48)
    # 2000 MiB less 7 bytes, rounded up to whole Mi; 2000 millicores are 2 cores.
    assert (spec["memory"]["peak"], spec["cpu"]["peak"]) == ("2000Mi", "2")
    assert spec["cpu"]["peakTime"] == "2026-09-21T15:00:00Z"
    assert "peakTime" not in spec["memory"]
    assert first()["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-1"}]


@pytest.mark.parametrize(
    ("later", "changes", "expected"),
    [
        (1, {}, False),  # nothing moved
        (1, {"level": 1200}, False),  # 200 of a peak of 2000: exactly the dead-band of 10 %
        (1, {"level": 1201}, True),
        (1, {"peak": 2200}, False),
        (1, {"peak": 2201}, True),
        (0.5, {"level": 9000}, False),  # sooner than an hour: not even when it moved
        (12, {}, False),  # 12 hours are left
        (13, {}, True),  # less than 12 hours are left
        (1, {"settings_digest": "ddddeeeeffff"}, True),
    ],
)
def test_it_is_written_again_when_it_moved_or_ends_soon(later: float, changes: dict[str, Any], expected: bool) -> None:
    again = outlook(START + int(later * HOUR), **changes)
    # decided at the start of the new forecast, so that exactly 24 - later hours of the published one are left
    assert (written(again, first(), now=again.start_seconds) is not None) is expected


def test_only_half_hours_that_both_cover_are_compared() -> None:
    # Published: half hours 0..47. New, two hours later: its last four are beyond what was published; they may differ.
    previous, again = first(), outlook(START + 2 * HOUR)
    cpu = again.series[Resource.CPU]
    beyond = msgspec.structs.replace(cpu, high=[*cpu.high[:44], *[9000] * 4])
    inside = msgspec.structs.replace(cpu, high=[*cpu.high[:43], *[9000] * 5])
    assert written(msgspec.structs.replace(again, series={**again.series, Resource.CPU: beyond}), previous) is None
    assert written(msgspec.structs.replace(again, series={**again.series, Resource.CPU: inside}), previous) is not None


def test_an_old_run_publishes_nothing() -> None:
    assert written(outlook(), None, now=START + 24 * HOUR) is None


def test_nodes_that_are_gone_and_objects_of_others_are_left_alone() -> None:
    foreign = first() | {"metadata": {"name": "n1"}}
    assert written(outlook(START + HOUR, level=9000), foreign) is None
    view = ForecastView(RunResults(START, nodes=(msgspec.structs.replace(outlook(), node="gone"),)), {}, NODES)
    assert decide(view, START, SETTINGS).intents == ()


series = st.lists(st.integers(0, 10**6), min_size=48, max_size=48)


@settings(max_examples=40)
@given(series, series, st.integers(0, 10**6), st.integers(0, 30))
def test_nothing_changed_means_nothing_written(median: list[int], high: list[int], peak: int, hours: int) -> None:
    cpu = SeriesOutlook(median, high, peak)
    memory = SeriesOutlook([m << 10 for m in median], [h << 10 for h in high], peak << 10)
    node_outlook = outlook(series={Resource.CPU: cpu, Resource.MEMORY: memory})
    previous = written(node_outlook, None)
    assert written(node_outlook, previous, now=START + hours * HOUR) is None


@settings(max_examples=40)
@given(st.lists(st.integers(0, 50_000), min_size=24, max_size=24))
def test_a_day_takes_at_most_one_write_per_node_and_hour(levels: list[int]) -> None:
    previous, writes = first(), 0
    for half_hour, level in enumerate(level for level in levels for _ in range(2)):
        at = START + (half_hour + 1) * 1800
        body = written(outlook(at, level=level, peak=2 * level), previous)
        writes, previous = writes + (body is not None), body or previous
    assert writes <= 24
