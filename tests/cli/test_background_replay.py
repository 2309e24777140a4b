"""A stored history is replayed beside the dashboard that shows it: when, what is kept of it, why it came to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pytest

from cotenant.base.progress import Silent
from cotenant.base.store import Store
from cotenant.base.usage.backtest import WHAT_IF, ReplayProgress, WhatIf
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.cli.analysis.background_replay import STAGES, STOPPED, background_replay, due_seconds
from cotenant.experiment.outcome import RISKS_PERCENT
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support.overview import overview

DAY = DAY_SECONDS
BEGUN = 100 * DAY
PATIENCE_SECONDS = 600.0
AT_ONCE: Final[dict[str, Any]] = {"first_seconds": 0.0, "niceness": 0}
"""Without waiting for a first look, and not behind the other tests."""


@pytest.mark.parametrize(
    ("analysed", "last", "now", "due"),
    [
        (None, None, BEGUN, None),  # nothing was analysed yet
        (BEGUN, None, BEGUN, BEGUN),  # never replayed, never tried
        (BEGUN, BEGUN, BEGUN + 2 * DAY, None),  # these results were tried
        (BEGUN + DAY - 1, BEGUN, BEGUN + DAY - 1, None),  # a scan of the same day
        (BEGUN + DAY, BEGUN, BEGUN + DAY, BEGUN + DAY),
        (BEGUN + DAY, BEGUN + 600, BEGUN + DAY, None),  # the replay ended ten minutes after the results of its day,
        (BEGUN + DAY, BEGUN + 600, BEGUN + DAY + 600, BEGUN + DAY),  # so the next day's are replayed as much later
    ],
)
def test_results_are_replayed_once_and_at_most_once_a_day(
    analysed: int | None, last: int | None, now: int, due: int | None
) -> None:
    assert due_seconds(analysed, last, now) == due


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def store_of(folder: Path, days: int) -> Store:
    """Results of a cluster of one node with so many days of history; none for no day."""
    store = Store(folder.as_uri(), CLUSTER)
    if days:
        fill(store, SyntheticSpec(nodes=1, workloads=6, days=days, seed=3), Silent())
    store.write_document("overview", overview())
    return store


@pytest.mark.slow
def test_a_replay_reports_its_progress_and_is_kept_with_the_results(tmp_path: Path) -> None:
    store = store_of(tmp_path, days=15)
    progresses: set[ReplayProgress] = set()
    with background_replay(store, Lock(), **AT_ONCE) as job:
        until(lambda: progresses.add(job.progress) or job.progress)  # type: ignore[arg-type]
        until(lambda: progresses.add(job.progress) or job.progress is None)  # type: ignore[arg-type]
        assert job.reason == ""
        replay = store.read_document(WHAT_IF, WhatIf)
    assert replay is not None and [risk.risk_percent for risk in replay.risks] == [*RISKS_PERCENT]
    done = sorted(progress.done_runs for progress in progresses if progress)
    assert {progress.all_runs for progress in progresses if progress} == {STAGES} and done[0] < done[-1] < STAGES


@pytest.mark.slow
def test_a_replay_that_fails_or_is_stopped_says_why(tmp_path: Path) -> None:
    with background_replay(store_of(tmp_path / "empty", 0), Lock(), **AT_ONCE) as job:
        until(lambda: job.reason)
        assert job.reason.startswith("It failed: no usage of") and job.progress is None
    with background_replay(store_of(tmp_path / "stopped", 0), Lock(), **AT_ONCE) as job:
        until(lambda: job.progress)  # its process needs a second to begin
        job.stop()
        assert (job.progress, job.reason) == (None, STOPPED)
