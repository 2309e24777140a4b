"""A kubelet's text becomes columns: what it says, in any order of labels, and nothing that it does not say."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import PodContainerRef
from cotenant.profiler.recorder.exposition import container_ref, parse_resource_metrics

TEXT = b"""# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time of the container
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web-1"} 4.710169 1633253812125
container_cpu_usage_seconds_total{container="side",namespace="shop",pod="web-1"} 1e-05 1633253812126
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="shop",pod="web-1"} 1.7596416e+07 1633253812125
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="shop",pod="web-1"} 1.633253809720499e+09
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 357.35491 1633253809720
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 1.616273408e+09 1633253809720
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web-1"} 4.67812 1633253803935
# HELP scrape_error [ALPHA] 1 if there was an error while getting container metrics, 0 otherwise
scrape_error 0
"""


def test_each_metric_is_read_with_its_labels_values_and_times() -> None:
    exposition = parse_resource_metrics(TEXT)

    refs = [container_ref(labels) for labels in exposition.container_cpu.labels]
    assert refs == [PodContainerRef("shop", "web-1", "app"), PodContainerRef("shop", "web-1", "side")]
    assert exposition.container_cpu.values.tolist() == [4.710169, 1e-05]
    assert exposition.container_cpu.times.tolist() == [1633253812.125, 1633253812.126]
    assert exposition.container_memory.values.tolist() == [17_596_416]
    # Older kubelets give the start without a time of its own.
    assert exposition.container_starts.values.tolist() == [1633253809.720499]
    assert math.isnan(exposition.container_starts.times[0])
    # The comments before a metric without labels begin with its name as well, and are no samples.
    assert exposition.node_cpu.values.tolist() == [357.35491]
    assert exposition.node_memory.values.tolist() == [1_616_273_408]
    assert exposition.samples == 6
    assert exposition.malformed == 0


def test_what_is_no_amount_is_left_out_and_counted() -> None:
    line = b'container_memory_working_set_bytes{container="c",namespace="n",pod="p%d"} %s 1000\n'
    values = (b"12", b"NaN", b"+Inf", b"-1", b"many", b"7")

    exposition = parse_resource_metrics(b"".join(line % (i, value) for i, value in enumerate(values)))

    assert exposition.container_memory.values.tolist() == [12, 7]
    assert [container_ref(x).pod for x in exposition.container_memory.labels if container_ref(x)] == ["p0", "p5"]  # type: ignore[union-attr]
    assert exposition.malformed == 4


def test_an_empty_answer_has_no_samples() -> None:
    assert parse_resource_metrics(b"").samples == 0
    assert parse_resource_metrics(b"<html>404</html>").samples == 0


def test_the_end_of_the_text_and_of_a_line_may_be_missing_or_windows() -> None:
    first = b'container_cpu_usage_seconds_total{container="a",namespace="n",pod="p"} 1 1000'

    assert parse_resource_metrics(first).container_cpu.values.tolist() == [1]
    assert parse_resource_metrics(first + b"\r\n" + first.replace(b'"a"', b'"b"') + b"\r\n").samples == 2


def test_labels_that_name_no_container_name_none() -> None:
    assert container_ref(b'namespace="n",pod="p"') is None
    assert container_ref(b'container="",namespace="n",pod="p"') is None
    assert container_ref(b"\xff\xfe") is None
    assert container_ref(b'pod="p",container="c",uid="u",namespace="n"') == PodContainerRef("n", "p", "c")


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
SAMPLES = st.lists(
    st.tuples(
        NAMES,
        st.floats(0, 1e15, allow_nan=False),
        st.one_of(st.none(), st.integers(0, 2**45)),
    ),
    max_size=30,
)


@given(SAMPLES)
def test_what_an_exporter_writes_is_what_is_read(samples: list[tuple[str, float, int | None]]) -> None:
    lines = [
        f'container_cpu_usage_seconds_total{{container="c",namespace="n",pod="{pod}"}} {value!r}'
        + ("" if milliseconds is None else f" {milliseconds}")
        for pod, value, milliseconds in samples
    ]

    read = parse_resource_metrics("\n".join(lines).encode()).container_cpu

    assert [container_ref(labels) for labels in read.labels] == [
        PodContainerRef("n", pod, "c") for pod, _, _ in samples
    ]
    assert read.values.tolist() == [value for _, value, _ in samples]
    expected = [math.nan if milliseconds is None else milliseconds / 1000 for _, _, milliseconds in samples]
    np.testing.assert_array_equal(read.times, expected)
