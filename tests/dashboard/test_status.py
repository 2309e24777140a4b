"""How things stand with the data: jobs and their age, pulls, lost days, versions; page and API say the same."""

from __future__ import annotations

import json
import math
import urllib.request
from pathlib import Path

import pytest

from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.dashboard.sources.source import StoreSource, Upkeep
from cotenant.dashboard.sources.status import PULLS_SHOWN, status
from cotenant.profiler.recorder.status import NodeSource, RecorderStatus
from cotenant.recommender.model.views import COVERAGE, COVERAGE_BY_DAY
from tests.support import dashboard as support
from tests.support.dashboard import Results

pytestmark = pytest.mark.server


def pull(time: int, **more: object) -> QualityRecord:
    return QualityRecord(time, "prom", 30.0, 10, 1000, **more)  # type: ignore[arg-type]


def test_a_pull_with_a_failed_query_is_no_success() -> None:
    failed = pull(200, defects={Defect.QUERY_FAILED: 1})
    health = status(None, Upkeep((pull(100), failed)), 160.0)
    assert [(job.name, job.last_seconds, job.age_seconds) for job in health.jobs] == [
        ("Pull of usage", 100, 60.0),
        ("Newest sample", None, None),
        ("Analysis", None, None),
    ]
    assert [p.time_seconds for p in health.pulls] == [200, 100]


def test_only_the_last_pulls_are_told_and_ages_are_never_negative() -> None:
    health = status(None, Upkeep(tuple(pull(k) for k in range(50))), 0.0)
    assert [p.time_seconds for p in health.pulls] == list(range(49, 49 - PULLS_SHOWN, -1))
    assert health.jobs[0].age_seconds == 0.0


def test_a_recorder_says_since_when_and_from_where() -> None:
    recording = RecorderStatus(
        100.0, 4000.0, 3900, nodes={NodeSource.KUBELET: 2, NodeSource.NONE: 1}, troubles={"n": "403"}
    )
    health = status(None, Upkeep(recording=recording), 4010.0)
    assert health.recording[:2] == [
        "recording since 1970-01-01 00:01 UTC, stored up to 1970-01-01 01:05 UTC",
        "the recorder (2 nodes from kubelet)",
    ]
    assert "node n: 403" in health.recording
    assert status(None, Upkeep(), 0.0).recording == []


def test_unknown_coverage_is_null_and_not_nan() -> None:
    health = status(None, Upkeep(), 0.0)
    assert health.coverage is None
    assert "Python" not in health.versions and health.versions["python"].startswith("3.")


def test_a_day_that_cannot_be_read_is_told_as_lost(demo_results: Results, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    usage = demo_results.store.read(
        Signal.CPU_USAGE_MEAN,
        TimeGrid.from_span(demo_results.end_seconds - 7200, demo_results.end_seconds, FIVE_MINUTES_SECONDS),
    )
    store.append(Signal.CPU_USAGE_MEAN, usage)
    (day,) = (tmp_path / "c" / "usage" / Signal.CPU_USAGE_MEAN.value).iterdir()
    day.write_bytes(day.read_bytes()[:100])
    store.span(Signal.CPU_USAGE_MEAN)  # meets the damage and sets the file aside
    ((signal, start, path),) = StoreSource(store, support.QUICK).upkeep().lost
    assert signal == Signal.CPU_USAGE_MEAN.value
    assert start == demo_results.end_seconds // 86_400 * 86_400
    assert "corrupt" in path


def test_the_api_tells_what_the_page_tells(demo_results: Results, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "c")
    store.append_quality(pull(demo_results.end_seconds, defects={Defect.NEGATIVE: 3}))
    rows = [
        {
            "namespace": "pay",
            "series": 3,
            "coverage": 0.5,
            "longest_gap_seconds": 600,
            "newest": demo_results.end_seconds,
        }
    ]
    store.write_table(Table.from_rows(COVERAGE, rows))
    store.write_table(Table.from_rows(COVERAGE_BY_DAY, [{"day": 0, "series": 3, "coverage": 0.5, "gap_seconds": 0}]))
    source = StoreSource(store, support.QUICK)
    with support.served(support.app_on(source, now_seconds=demo_results.end_seconds + 90)) as address:
        document = json.loads(urllib.request.urlopen(f"{address}/api/v1/health", timeout=120).read())
    assert document["status"]["jobs"][0]["age_seconds"] == 90
    assert document["status"]["pulls"][0]["defects"] == {"negative": 3}
    assert "negative" in document["status"]["sentences"]
    assert document["coverage"] == [{**rows[0], "coverage": 0.5}]
    assert document["coverage_by_day"][0]["coverage"] == 0.5
    assert not any(isinstance(v, float) and math.isnan(v) for v in document["status"].values())
