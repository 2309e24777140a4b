"""Effect that proposals would have had in the week after them, from stored usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.autopilot.decide.history import LedgerNote
from cotenant.autopilot.decide.records import ProposedValue, ProposedWorkload, encoded_values, proposals_between
from cotenant.autopilot.model import AutopilotEvent
from cotenant.autopilot.rounds.hindsight import SIGNALS, weeks_after
from cotenant.autopilot.rounds.ledger_history import LedgerHistory
from cotenant.autopilot.service import report_rows
from cotenant.base.cluster import Container, Inventory, Pod, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.settings import PriceSettings
from tests.autopilot.test_candidates import WEB, recommendation, request
from tests.support.store import MIDNIGHT

SHEET = PriceSettings(per_core_hour=0.1, per_gib_hour=0.01)
WEEK = 7 * DAY_SECONDS


def proposed(*values: ProposedValue, workload: WorkloadRef = WEB, seconds: float = MIDNIGHT + 1800) -> ProposedWorkload:
    return ProposedWorkload(workload, seconds, values)


def value(resource: Resource, which: Field, now: int | None, amount: int | None) -> ProposedValue:
    return ProposedValue("app", resource, which, now, amount)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two pods for nine days, 400m and 1 GiB each."""
    store = Store(tmp_path.as_uri(), "prod")
    amounts = {Signal.MEMORY_WORKING_SET_MAX: float(GIB), Signal.CPU_THROTTLED_MEAN: 0.0}
    for signal in SIGNALS:
        grid = TimeGrid(MIDNIGHT, signal.spec.step_seconds, 9 * DAY_SECONDS // signal.spec.step_seconds)
        refs = tuple(PodContainerRef("shop", name, "app") for name in ("a", "b"))
        values = np.full((2, grid.size), amounts.get(signal, 400.0), dtype=np.float32)
        store.append(signal, Usage(refs, grid, values, signal.spec.resource, signal.spec.statistic))
    container = Container("app", {Resource.CPU: 1000, Resource.MEMORY: 2 * GIB}, {})
    pods = tuple(Pod("shop", name, WEB, "n1", MIDNIGHT) for name in ("a", "b"))
    store.write_inventory(Inventory("prod", MIDNIGHT + 9 * DAY_SECONDS, (), (Workload(WEB, 2, (container,)),), pods))
    return store


def test_a_week_later_a_proposal_is_told_in_cores_gib_and_money(store: Store) -> None:
    cut = proposed(
        value(Resource.CPU, Field.REQUEST, 1000, 700), value(Resource.MEMORY, Field.REQUEST, 2 * GIB, 3 * GIB // 2)
    )
    (week,) = weeks_after(store, [cut], SHEET)
    # two pods: 2 x 300m and 2 x 0.5 GiB
    assert week.freed[Resource.CPU] == pytest.approx(600) and week.freed[Resource.MEMORY] == pytest.approx(GIB)
    # 0.6 cores x 0.1 + 1 GiB x 0.01, for 730 hours
    assert week.money == pytest.approx((0.06 + 0.01) * 730)
    assert (week.kills, week.throttled_minutes) == (0, 0.0)


def test_harm_that_the_present_values_did_not_do_is_counted(store: Store) -> None:
    limits = proposed(
        value(Resource.CPU, Field.LIMIT, 1000, 300), value(Resource.MEMORY, Field.LIMIT, 2 * GIB, GIB // 2)
    )
    (week,) = weeks_after(store, [limits], SHEET)
    # each of two pods is killed on each of seven days, and is above 300m all the time; the last hour of the week's
    # end belongs to no whole slot of it
    assert week.kills == 2 * 7
    assert week.throttled_minutes == pytest.approx(2 * 7 * 24 * 60, rel=0.01)


def test_what_nothing_is_known_of_is_left_out(store: Store, tmp_path: Path) -> None:
    other = proposed(value(Resource.CPU, Field.REQUEST, 1, 2), workload=WorkloadRef("shop", "Deployment", "gone"))
    later = proposed(value(Resource.CPU, Field.REQUEST, 1, 2), seconds=MIDNIGHT + 20 * DAY_SECONDS)
    assert weeks_after(store, [other, later], SHEET) == []
    assert weeks_after(Store((tmp_path / "none").as_uri(), "prod"), [other], SHEET) == []


def note(seconds: float, details: dict[str, Any]) -> LedgerNote:
    return LedgerNote(AutopilotEvent.PROPOSED, str(WEB), seconds, "manager", details)


def test_the_last_proposal_of_a_time_counts_and_older_rows_name_no_amounts() -> None:
    step = recommendation(request(Resource.CPU, 1000, 800), request(Resource.MEMORY, GIB, GIB))
    text = encoded_values([step])
    notes = [note(1.0, {"values": "[]"}), note(2.0, {"values": text}), note(3.0, {}), note(9.0, {"values": text})]
    (only,) = proposals_between(notes, 1.0, 9.0)
    # what does not move is not named
    assert only == proposed(value(Resource.CPU, Field.REQUEST, 1000, 800), seconds=2.0)


def test_the_report_adds_the_weeks_up_by_namespace(store: Store) -> None:
    cut = proposed(value(Resource.CPU, Field.REQUEST, 1000, 700))
    (row,) = report_rows(LedgerHistory({}, ()), 0.0, weeks_after(store, [cut], SHEET))
    assert (row["namespace"], row["weeks"], row["week_cpu"], row["week_kills"]) == ("shop", 1, 600, 0)
    assert row["week_money"] == pytest.approx(0.06 * 730)
