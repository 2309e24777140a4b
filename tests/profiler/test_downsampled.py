"""A long-term store that downsamples is asked for samples alone, and who has no others is told so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import numpy as np
import pytest

from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.sampling.intervals import SAMPLES_LABEL, IntervalReader, raw_start_seconds
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from tests.cluster import needing
from tests.profiler.conftest import pulled, store_in
from tests.support.prometheus import blocks_from
from tests.support.thanos import thanos_over_bucket

END = 1_795_046_400
RAW_START = END - DAY_SECONDS
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"


def history(start: int, end: int, folder: Path) -> Path:
    """Blocks of one container that is scraped every 30 s: 0.2 core, in the first half minute of each quarter of an hour
    2 cores; 100 MB, in one sample of each hour 500 MB."""
    times = np.arange(END - 3 * DAY_SECONDS + 17, END, 30)
    cores = np.where((times - times[0]) % 900 == 30, 2.0, 0.2)
    used = np.concatenate([[0.0], np.cumsum(cores * 30)[:-1]])
    memory = np.where((times - times[0]) % 3600 == 1800, 5e8, 1e8)
    chosen = (times >= start) & (times < end)
    with (folder / "m.om").open("w") as text:
        for name, kind, values in ((CPU, "counter", used), (MEMORY, "gauge", memory)):
            text.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
            label = f'{name}{{namespace="a",pod="p",container="c"}}'
            text.writelines(f"{label} {v:.4f} {t}\n" for t, v in zip(times[chosen], values[chosen], strict=True))
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    return folder / "data"


@pytest.mark.soak
@pytest.mark.parametrize("options", [(), ("--query.auto-downsampling",)], ids=["as-installed", "auto-downsampling"])
@pytest.mark.parametrize("are_samples_gone", [True, False], ids=["older-samples-gone", "all-samples-there"])
def test_a_thanos_that_downsamples_gives_the_samples_it_has(
    options: tuple[str, ...], are_samples_gone: bool, tmp_path: Path
) -> None:
    needing.thanos()
    all_of_it, late = tmp_path / "whole", tmp_path / "late"
    all_of_it.mkdir()
    late.mkdir()
    start = RAW_START if are_samples_gone else 0
    data = history(0, END, all_of_it), history(start, END, late)
    with thanos_over_bucket(tmp_path, data[:1], data[1:], *options) as querier:
        store = store_in(tmp_path / "store")
        record = pulled(store, END, ProfilerSettings(window_days=3, prometheus=PrometheusSettings(url=querier.url)))
    texts = [note for note in record.notes if "downsampled" in note]
    assert len(texts) == (1 if are_samples_gone else 0)
    # Read by its samples; left to itself, Thanos answers a question of hourly steps from values of 5 minutes.
    assert {scrape.interval_seconds for scrape in record.scrapes} == {30}
    grid = TimeGrid.from_span(END - 3 * DAY_SECONDS, END, 300)
    days = 1 if are_samples_gone else 3
    for signal, highest in (
        # A minute and a half holds the half minute of 2 cores: (0.5 x 2 + 1 x 0.2) / 1.5 = 0.8 core and more.
        (Signal.CPU_USAGE_MAX, 800.0),
        (Signal.MEMORY_WORKING_SET_MAX, 5e8),
    ):
        (values,) = store.read(signal, grid).values
        finite = int(np.isfinite(values).sum())
        assert days * 288 - 8 <= finite <= days * 288 + 8, signal
        assert np.nanmax(values) >= highest, signal


@contextmanager
def answering(raw_start: int, downsampled_start: int, refuse: bool = False) -> Iterator[tuple[Client, list[str]]]:
    """A client of a server with one series, sampled every 30 s from raw_start on and downsampled before; and the
    resolutions that it was asked at."""
    texts: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            resolution = form["max_source_resolution"][0]
            texts.append(resolution)
            start, end, step = (round(float(form[name][0])) for name in ("start", "end", "step"))
            begin, samples = (raw_start, 120) if resolution == "0s" else (downsampled_start, 12)
            lived = [t for t in range(start, end + 1, step) if t - HOUR_SECONDS >= begin]
            # The question about slow series, of three hours, finds none.
            slow = ":3660s]" in form["query"][0]
            series = [{"metric": {SAMPLES_LABEL: str(samples)}, "values": [[t, "1"] for t in lived]}]
            result = series if lived and not slow else []
            body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
            self.send_response(400 if refuse and resolution != "0s" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = Client(PrometheusSettings(url=f"http://127.0.0.1:{server.server_port}", retries=0))
        try:
            yield client, texts
        finally:
            client.close()
            server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw_days", "downsampled_days", "is_noted", "looks"),
    [
        # Days before the end from which on there are samples, and values of five minutes.
        (3, 3, False, 0),  # all of the window
        (1, 3, True, 1),
        (2, 3, True, 1),
        (1, 1, False, 1),  # a young cluster
        (1, 0, False, 1),
        (0, 3, False, 0),  # no samples at all: the survey says so
    ],
)
def test_the_day_before_the_first_samples_is_looked_at_once(
    raw_days: int, downsampled_days: int, is_noted: bool, looks: int
) -> None:
    start = END - 3 * DAY_SECONDS
    with answering(END - raw_days * DAY_SECONDS, END - downsampled_days * DAY_SECONDS) as (client, texts):
        reader = IntervalReader(client, {})
        _, scrapes = reader.read(start, END, 60, NamespaceShard())
    # END is the 19th of November.
    moment = f"before 2026-11-{19 - raw_days} 00:00 UTC the server has only values of 5 minutes"
    assert [note.startswith(moment) for note in reader.notes] == [True] * is_noted
    assert texts.count("300s") == looks
    assert set(texts) <= {"0s", "300s"}
    # A sample each 30 s: 120 in an hour.
    assert {s.interval_seconds for s in scrapes} == ({30} if raw_days else set())
    assert all(s.start_seconds >= END - raw_days * DAY_SECONDS for s in scrapes)


def test_a_server_that_refuses_the_look_loses_nothing() -> None:
    with answering(RAW_START, 0, refuse=True) as (client, _):
        reader = IntervalReader(client, {})
        _, scrapes = reader.read(END - 3 * DAY_SECONDS, END, 60, NamespaceShard())
    assert reader.notes == ()
    assert {s.interval_seconds for s in scrapes} == {30}


def test_the_start_of_the_samples_is_the_start_of_the_first_hour_that_has_some() -> None:
    assert raw_start_seconds({}) is None
    assert raw_start_seconds({END: {}, END + HOUR_SECONDS: {}}) is None
    # The hour that ends at END + 2 h begins at END + 1 h.
    hourly = {END: {}, END + 2 * HOUR_SECONDS: {30: 4}, END + 3 * HOUR_SECONDS: {}}
    assert raw_start_seconds(hourly) == END + HOUR_SECONDS
