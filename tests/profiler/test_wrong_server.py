"""One scan of a wrong server, or by a wrong clock, leaves the history as it was, and the next one misses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.base.errors import SourceUnfit
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.history import STATE_DOCUMENT
from cotenant.profiler.pull_state import PullState
from tests.profiler.conftest import Served, inventory_in, profiler_settings, pulled, store_in

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
AWAY_SECONDS = 6 * HOUR_SECONDS


@pytest.mark.parametrize(
    ("options", "later_seconds"),
    [({"labels": {"cluster": "typo"}}, AWAY_SECONDS), ({}, 365 * DAY_SECONDS)],
    ids=["labels", "clock"],
)
def test_a_pull_without_any_usage_is_refused_and_the_next_one_misses_nothing(
    served: Served, tmp_path: Path, options: dict[str, object], later_seconds: int
) -> None:
    store, cold = store_in(tmp_path / "store"), store_in(tmp_path / "cold")
    right, start = profiler_settings(served.server.url), served.end - AWAY_SECONDS
    pulled(store, start, right)
    before = inventory_in(store), store.read_document(STATE_DOCUMENT, PullState)
    wrong = profiler_settings(served.server.url, **options)
    # the server runs on this machine, whose clock is not that of the stored history: the error says both
    with pytest.raises(SourceUnfit, match=r"has no CPU usage of any container .* its clock says .*, this machine's"):
        pulled(store, start + later_seconds, wrong)
    assert (inventory_in(store), store.read_document(STATE_DOCUMENT, PullState)) == before
    pulled(store, served.end, right)
    pulled(cold, served.end, right)
    for signal in (Signal.CPU_USAGE_MEAN, Signal.MEMORY_LIMIT, Signal.RESTARTS):
        grid = TimeGrid.from_span(served.end - DAY_SECONDS, served.end, signal.spec.step_seconds)
        usage, expected = store.read(signal, grid), cold.read(signal, grid)
        assert usage.refs == expected.refs
        np.testing.assert_array_equal(usage.values, expected.values)
    assert inventory_in(store).events == inventory_in(cold).events


def test_a_clock_that_is_some_days_ahead_drops_no_event_and_no_gone_pod(served: Served, tmp_path: Path) -> None:
    store, settings = store_in(tmp_path), profiler_settings(served.server.url)
    pulled(store, served.end, settings)
    before = inventory_in(store)
    # the window of two days still reaches the newest samples; older events would lie before it by that clock
    record = pulled(store, served.end + 47 * HOUR_SECONDS, settings)
    assert any("a clock is wrong" in note for note in record.notes)
    after = inventory_in(store)
    assert after.events == before.events
    assert {p.name for p in after.pods} == {p.name for p in before.pods}
    state = store.read_document(STATE_DOCUMENT, PullState)
    assert state and max(state.until.values()) <= served.end
