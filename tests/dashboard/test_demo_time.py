"""What is said of a demo's results goes by the demo's clock, and without that by the end of their history."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.process.clock import FixedClock
from cotenant.dashboard.app import create_app
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.pages import batch as page
from cotenant.dashboard.sources.source import StoreSource
from tests.dashboard.test_states import text_of
from tests.support import dashboard as support
from tests.support.dashboard import Results

LATER_SECONDS = 2 * 3600
FIT = "fit?cores=0.1&gib=0.1&hours=1&deadline=6"


@pytest.fixture(scope="module")
def demo_results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return support.results(tmp_path_factory.mktemp("store"), spec=support.WEEK)


def api_document(demo_results: Results, clock: FixedClock | None, path: str) -> Any:
    app = create_app(StoreSource(demo_results.store, support.QUICK), support.QUICK, clock)
    with support.served(app) as address, urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=60) as response:
        return json.load(response)


def test_no_start_of_a_job_lies_before_the_time_to_which_the_demo_was_moved(demo_results: Results) -> None:
    now = demo_results.end_seconds + LATER_SECONDS
    document = api_document(demo_results, FixedClock(now), FIT)
    starts = [window["start_seconds"] for window in document["fit"]["windows"]]
    assert document["now"] == now
    assert starts and min(starts) >= now
    view = View(StoreSource(demo_results.store, support.QUICK), support.QUICK, lambda: float(now))
    text = text_of(page.answer(view, "cores=0.1&gib=0.1&hours=1&deadline=6"))
    assert display.moment(demo_results.end_seconds) not in text


def test_without_the_demo_s_clock_its_newest_sample_is_not_days_old(demo_results: Results, tmp_path: Path) -> None:
    """As `cotenant serve mcp` and `cotenant dashboard` in a second terminal beside the demo read its results."""
    jobs = {job["name"]: job for job in api_document(demo_results, None, "health")["status"]["jobs"]}
    assert jobs["Newest sample"]["age_seconds"] == 0
    assert api_document(demo_results, None, FIT)["now"] == demo_results.end_seconds
    real = support.results(tmp_path, spec=support.WEEK, demo=False)
    jobs = {job["name"]: job for job in api_document(real, None, "health")["status"]["jobs"]}
    # The synthetic history ends in November 2026; a machine's clock is at another moment.
    assert jobs["Newest sample"]["age_seconds"] != 0
