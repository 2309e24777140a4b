"""Refusal by forecast: the peak within the pod's life, what the forecast cannot know, the words with the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import GIB
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.columns import SnapshotColumn
from cotenant.scheduler_ext.extender.load import prediction
from cotenant.scheduler_ext.extender.settings import ExtenderSettings, PredictionSettings
from cotenant.scheduler_ext.extender.watch.frame import SLOT_SECONDS
from tests.scheduler_ext.extender.worlds import ELSEWHERE, NOW, World, facts, moment, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
START = NOW - NOW % SLOT_SECONDS
"""Beginning of the half hour that NOW lies in."""
OFFSET = NOW - START


def new_pod(run: str = "", **more: Any) -> Any:
    """A pod that is estimated at 850 m."""
    annotations = {"cotenant.dev/expected-run-seconds": run} if run else {}
    return facts(pod_json("new", {"cpu": "1", "memory": "1Gi"}, labels=LS, annotations=annotations | more))


def refusal_text(cluster: World, pod: Any, seconds: float = NOW) -> str:
    snapshot = cluster.show(seconds).snapshot
    judged, _ = decide.check_nodes(
        snapshot, pod, snapshot.rows_of(["n1", ELSEWHERE]), moment(seconds), cluster.settings
    )
    texts = judged.refused().texts()
    return texts[0] if texts else ""


def peaking(at: int, peak: int = 6000, base: int = 1000) -> list[int]:
    return [peak if i == at else base for i in range(48)]


def clock(slot: int) -> str:
    seconds = int(START) + slot * SLOT_SECONDS
    return f"{seconds % 86400 // 3600:02d}:{seconds % 3600 // 60:02d}"


def forecast_cluster(cpu: list[int], **more: Any) -> World:
    return World().node("n1").metric("n1", cpu="1").forecast("n1", cpu, [GIB] * 48, **more)


def test_a_peak_within_the_pods_life_refuses_the_node_and_says_when() -> None:
    # 6,000 + 850 of 10,000 m = 68.5 -> 69 % (Go rounds half up), above 65
    assert refusal_text(forecast_cluster(peaking(6)), new_pod()) == f"cpu usage of 69 % forecast at {clock(6)} UTC"


def test_nodes_that_peak_differently_are_counted_as_one_refusal_with_its_range() -> None:
    both = (
        forecast_cluster(peaking(6)).node("n2").metric("n2", cpu="1").forecast("n2", peaking(9, peak=8000), [GIB] * 48)
    )
    snapshot = both.show(NOW).snapshot
    judged, _ = decide.check_nodes(
        snapshot, new_pod(), snapshot.rows_of(["n1", "n2", ELSEWHERE]), moment(NOW), both.settings
    )
    # 6,000 + 850 of 10,000 m = 69 %, 8,000 + 850 = 88.5 -> 89 %
    assert judged.counts() == {("prediction", f"cpu usage of 69 to 89 % forecast from {clock(6)} to {clock(9)} UTC"): 2}


def test_a_pod_that_ends_before_the_peak_may_stay() -> None:
    half_hours = 3 * SLOT_SECONDS - int(OFFSET)
    assert refusal_text(forecast_cluster(peaking(3)), new_pod(str(half_hours - 1))) == ""
    assert refusal_text(forecast_cluster(peaking(3)), new_pod(str(half_hours + 1))) != ""


def test_nobody_looks_further_than_the_horizon() -> None:
    # six hours from NOW end in half hour 12 (the present one is 0), unless NOW is the very beginning of one
    beyond = 12 if OFFSET == 0 else 13
    assert refusal_text(forecast_cluster(peaking(beyond + 1)), new_pod()) == ""
    near = forecast_cluster(peaking(2))
    near.settings = ExtenderSettings(prediction=PredictionSettings(horizon_hours=0.5))
    assert refusal_text(near, new_pod()) == ""


def test_the_moment_is_the_floor() -> None:
    low = World().node("n1").metric("n1", cpu="9").forecast("n1", [0] * 48, [0] * 48)
    assert refusal_text(low, new_pod()) == "cpu usage above 65 %"


def test_without_a_forecast_the_moment_alone_decides() -> None:
    assert refusal_text(World().node("n1").metric("n1", cpu="1"), new_pod()) == ""
    outdated = forecast_cluster(peaking(6), start=START - 48 * SLOT_SECONDS)
    assert refusal_text(outdated, new_pod()) == ""
    assert refusal_text(forecast_cluster(peaking(6), valid_until=START + 5 * SLOT_SECONDS), new_pod()) == ""


def test_what_was_placed_after_the_forecasts_history_is_added() -> None:
    calm = forecast_cluster(peaking(6, peak=5400))
    # 5,400 + 850 = 62.5 -> 63 passes
    assert refusal_text(calm, new_pod()) == ""
    calm.pod(pod_json("young", {"cpu": "1"}, labels=LS, node="n1", scheduled=START + 1))
    # 5,400 + 850 + 850 = 71 %
    assert refusal_text(calm, new_pod()) == f"cpu usage of 71 % forecast at {clock(6)} UTC"
    calm.pod(pod_json("young", {"cpu": "1"}, labels=LS, node="n1", scheduled=START - 3600))
    assert refusal_text(calm, new_pod()) == ""


def test_a_pods_own_prediction_goes_before_its_estimate() -> None:
    own = new_pod(**{"cotenant.dev/predicted-usage": '{"cpu": "100m", "memory": "1Gi"}'})
    # 6,000 + 100 = 61 %
    assert refusal_text(forecast_cluster(peaking(6)), own) == ""


def test_memory_ahead_is_looked_at_too() -> None:
    full = World().node("n1").metric("n1", cpu="1").forecast("n1", [0] * 48, [95 * GIB] * 48)
    # 95 Gi + 70 % of 1 Gi of 100 Gi = 95.7 -> 96 %; of equal peaks the first is named
    assert refusal_text(full, new_pod()) == f"memory usage of 96 % forecast at {clock(0)} UTC"


def test_a_view_that_outlives_a_half_hour_looks_ahead_from_now() -> None:
    early = forecast_cluster(peaking(1))
    assert refusal_text(early, new_pod("60"), NOW) == ""
    later = START + SLOT_SECONDS + 5
    early.metric("n1", cpu="1", updated=later)
    snapshot = early.show(NOW).snapshot
    judged, _ = decide.check_nodes(
        snapshot, new_pod("60"), snapshot.rows_of(["n1", ELSEWHERE]), moment(later), early.settings
    )
    assert judged.refused().texts() == [f"cpu usage of 69 % forecast at {clock(1)} UTC"]


@pytest.mark.parametrize("seconds", [0, 10**9])
def test_a_view_of_another_day_holds_no_forecast(seconds: float) -> None:
    snapshot = forecast_cluster([9000] * 48).show(NOW).snapshot
    part = prediction.window(snapshot, new_pod(), NOW + seconds, PredictionSettings())
    assert np.isfinite(prediction.peaks(snapshot, part, slice(None))).any() == (seconds == 0)


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.integers(0, 12_000), min_size=0, max_size=48), min_size=1, max_size=4),
    st.integers(0, 8 * 3600),
    st.integers(0, 3000),
)
def test_the_peak_is_the_one_that_a_loop_over_half_hours_finds(series: list[list[int]], run: int, cpu: int) -> None:
    many = World()
    for i, values in enumerate(series):
        many.node(f"n{i}").forecast(f"n{i}", values)
    snapshot = many.show().snapshot
    pod = new_pod(str(run) if run else "", **{"cotenant.dev/predicted-usage": f'{{"cpu": "{cpu}m", "memory": "0"}}'})
    judged = prediction.check_predicted_peak(snapshot, slice(None), pod, NOW, many.settings.prediction)
    life = min(run or 10**9, 6 * 3600)
    last = int((NOW + life) // SLOT_SECONDS - NOW // SLOT_SECONDS)
    for i, values in enumerate(series):
        ahead = values[: last + 1]
        percent = int((max(ahead, default=0) + cpu) / 10_000 * 100 + 0.5)
        expected = bool(ahead) and percent > 65
        assert bool(judged.codes[i]) is expected
        if expected:
            assert judged.percent[i] == percent
            assert judged.slot[i] - snapshot.first_slot == ahead.index(max(ahead))
    assert snapshot.column(SnapshotColumn.PLAIN_CPU).tolist() == [65] * len(series)
