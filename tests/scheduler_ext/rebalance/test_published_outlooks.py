"""Forecasts of workloads in one ConfigMap: what is read is what was published, and it stays small."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import MIB
from cotenant.scheduler_ext.rebalance.load import WorkloadOutlook
from cotenant.scheduler_ext.rebalance.published_outlooks import KEY, MOST_BYTES, outlooks_config_map, outlooks_in

series = st.lists(st.integers(0, 10**6).map(float), max_size=48).map(tuple)
refs = st.builds(
    WorkloadRef, st.text(min_size=1, max_size=8), st.sampled_from(["Deployment", "Pod"]), st.text(max_size=8)
)
outlooks = st.builds(
    lambda start, cpu, memory, replicas: WorkloadOutlook(start, (cpu, tuple(x * MIB for x in memory)), tuple(replicas)),
    st.integers(0, 2**32), series, series, st.lists(st.integers(0, 5000), max_size=48),
)  # fmt: skip


@pytest.mark.slow
@given(st.dictionaries(refs, outlooks, max_size=5))
def test_what_was_published_is_read_back(forecasts: dict[WorkloadRef, WorkloadOutlook]) -> None:
    assert outlooks_in(outlooks_config_map(forecasts, "ns").body) == forecasts


def test_of_many_workloads_those_that_use_most_are_published() -> None:
    noise = random.Random(7)
    forecasts = {
        WorkloadRef("n", "Deployment", f"w{number}"): WorkloadOutlook(
            0, (tuple(float(noise.randrange(number, number + 900)) for _ in range(48)), ())
        )
        for number in range(400)
    }
    full_size = len(base64.b64decode(outlooks_config_map(forecasts, "ns").body["binaryData"][KEY]))
    part = outlooks_in(outlooks_config_map(forecasts, "ns", full_size // 2).body)
    peaks = {ref: max(outlook.median[0]) for ref, outlook in forecasts.items()}
    assert 100 < len(part) < 200
    assert min(peaks[ref] for ref in part) >= max(peak for ref, peak in peaks.items() if ref not in part)
    # 5,000 of them are published whole: 48 numbers of ten bits, and a name
    assert 5000 / 400 * full_size < MOST_BYTES


@pytest.mark.parametrize("text", ["AAAA", base64.b64encode(b"no").decode(), "#"])
def test_what_is_no_forecast_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        outlooks_in({"binaryData": {KEY: text}})
    assert outlooks_in(None) == {} == outlooks_in({"data": {}})
