"""From usage to proposed plans: a daily peak is proposed before it comes, and nothing rests on what came later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.base.cluster import Autoscaler, Container, ContainerRole, Inventory, Workload
from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.forecasting.engine import forecast
from cotenant.profiler import portrait
from cotenant.scheduler_ext.reservations.plans import rehearsed_proposals
from cotenant.settings import Settings

DAY, STEP = 288, 300
START = 1_800_000_000 // 86_400 * 86_400
WEB, JOB, FLAT = (
    WorkloadRef("shop", kind, name) for kind, name in (("Deployment", "web"), ("Job", "sum"), ("Deployment", "flat"))
)
SETTINGS = Settings()


def usage(days: int) -> Usage[WorkloadRef]:
    """web: 1.9 cores, and 6 from 18:00 to 20:00 UTC; sum the same; flat: 1.9 cores always. A little noise on each."""
    hour = np.arange(days * DAY) % DAY / 12
    peak = np.where((hour >= 18) & (hour < 20), 6000.0, 1900.0)
    rows = np.stack([peak, peak, np.full(days * DAY, 1900.0)])
    noise = np.random.default_rng(7).normal(0, 30, rows.shape)
    grid = TimeGrid(START, STEP, days * DAY)
    return Usage((WEB, JOB, FLAT), grid, (rows + noise).astype(np.float32), Resource.CPU, Statistic.MEAN)


def inventory(*others: Container) -> Inventory:
    """Pods of half a core; web is autoscaled at 100 % of its request, between 2 and 20 pods. others: web's as well."""
    container = Container("app", {Resource.CPU: 500, Resource.MEMORY: 1 << 30})
    scaler = Autoscaler("web", 2, 20, {Resource.CPU: 100})
    workloads = (
        Workload(WEB, 4, (*others, container), autoscaler=scaler),
        Workload(JOB, 4, (container,)),
        Workload(FLAT, 4, (container,)),
    )
    return Inventory("test", START, (), workloads, ())


def proposed(used: Usage[WorkloadRef], settings: Settings = SETTINGS, *others: Container) -> tuple[Any, ...]:
    portraits = portrait.build(used.refs, np.arange(len(used.refs)), used, SETTINGS.portrait)
    ahead = forecast(used, portraits, SETTINGS.forecasting)
    return rehearsed_proposals.proposals(
        rehearsed_proposals.candidates(inventory(*others), used, ahead, settings), settings
    )[0]


def test_a_daily_peak_is_proposed_with_its_window_and_pods() -> None:
    proposals = {p.workload: p for p in proposed(usage(21))}
    web = proposals[WEB]
    assert web.per_pod == {"cpu": "500m", "memory": "1Gi"}
    # The usual 1.9 cores are 4 pods of half a core; the peak of 6 cores needs 8 more, and a noisy one 9.
    assert web.base_pods == 4
    assert web.count in (8, 9)
    assert web.window is not None
    assert web.window.start_seconds == START + 21 * 86_400 + 18 * 3600
    assert web.window.end_seconds == START + 21 * 86_400 + 20 * 3600
    assert web.coverage > 0.95


def test_capacity_is_kept_for_an_init_container_that_is_larger_than_the_others() -> None:
    migration = Container("migrate", {Resource.CPU: 2000, Resource.MEMORY: 1 << 29}, role=ContainerRole.INIT)
    web, plain = ({p.workload: p for p in proposed(usage(21), SETTINGS, *others)}[WEB] for others in ((migration,), ()))
    # the scheduler counts the larger of what runs at one time, and the running pod carries half a core as before
    assert web.per_pod == {"cpu": "2", "memory": "1Gi"}
    assert (web.base_pods, web.count) == (plain.base_pods, plain.count)


def test_what_was_rehearsed_holds_for_the_time_of_back_tests() -> None:
    portraits = portrait.build(usage(21).refs, np.arange(len(usage(21).refs)), usage(21), SETTINGS.portrait)
    candidates = rehearsed_proposals.candidates(
        inventory(), usage(21), forecast(usage(21), portraits, SETTINGS.forecasting), SETTINGS
    )
    proposed_now, rehearsed = rehearsed_proposals.proposals(candidates, SETTINGS)
    assert {workload.workload for workload in rehearsed.of} == {size.workload for size in candidates.sizes}
    # what was found before is taken as it is: an account that no rehearsal would give shows in the proposal
    odd = replace(
        rehearsed, of=tuple(replace(workload, tested=replace(workload.tested, tau=0.95)) for workload in rehearsed.of)
    )
    again, rehearsals = rehearsed_proposals.proposals(candidates, SETTINGS, odd)
    assert {p.quantile for p in again} == {0.95}
    assert rehearsals == odd
    hours = SETTINGS.forecasting.relearn_hours
    old = replace(
        odd, of=tuple(replace(workload, end_seconds=workload.end_seconds - round(hours * 3600)) for workload in odd.of)
    )
    of_others = replace(odd, settings_digest="of other settings")
    for before in (old, of_others):
        assert rehearsed_proposals.proposals(candidates, SETTINGS, before) == (proposed_now, rehearsed)


def test_a_peak_too_short_for_a_plan_is_not_called_even_usage() -> None:
    longer = msgspec.structs.replace(
        SETTINGS, plans=msgspec.structs.replace(SETTINGS.plans, minimum_window_minutes=240)
    )
    web = next(p for p in proposed(usage(21), longer) if p.workload == WEB)
    assert (web.window, web.reason) == (None, "no-window")


def test_kinds_whose_pods_come_and_go_otherwise_and_flat_workloads_are_not_proposed() -> None:
    proposals = proposed(usage(21))
    assert [p.workload for p in proposals if p.ready and p.workload != WEB] == []
    with pytest.raises(NoData, match="shop/Job/sum"):
        rehearsed_proposals.rehearsal(inventory(), usage(21), JOB, SETTINGS)


def test_a_rehearsed_day_rests_on_nothing_that_came_later() -> None:
    clean_usage, poisoned = usage(21), usage(21)
    cut = 17 * DAY
    values = poisoned.values.copy()
    values[:, cut:] = np.float32(1e6)
    poisoned = replace(poisoned, values=values)
    _, before = rehearsed_proposals.rehearsal(inventory(), clean_usage, WEB, SETTINGS)
    _, after = rehearsed_proposals.rehearsal(inventory(), poisoned, WEB, SETTINGS)
    # The rehearsal is of the days 14 to 20; what was said of the days up to 17 was said before the poison.
    rehearsed_slots = slice(0, 3 * DAY)
    assert np.isfinite(before.quantiles[rehearsed_slots]).all()
    np.testing.assert_array_equal(before.quantiles[rehearsed_slots], after.quantiles[rehearsed_slots])


def test_a_table_row_shows_the_amounts_of_one_pod_and_the_paths() -> None:
    rows = list(rehearsed_proposals.table(proposed(usage(21))).rows())
    web = next(row for row in rows if row["workload"] == "web")
    assert (web["cpu"], web["memory"]) == (500, 1 << 30)
    assert max(web["wanted"]) == web["pods"]
    assert len(web["wanted"]) == len(web["median"]) == 48


def test_every_window_of_the_day_is_proposed_and_the_row_has_them_in_turn() -> None:
    web = next(p for p in proposed(usage(21)) if p.workload == WEB)
    assert web.window in [peak.span for peak in web.windows]
    assert max(peak.count for peak in web.windows) == web.count
    row = next(row for row in rehearsed_proposals.table((web,)).rows())
    assert list(row["windows"][:2]) == [web.windows[0].span.start_seconds, web.windows[0].span.end_seconds]
    assert len(row["windows"]) == 3 * len(web.windows)


@pytest.mark.slow
def test_standby_is_as_small_as_the_rehearsal_allows_and_never_above_the_setting() -> None:
    plain = SETTINGS.plans
    lax = msgspec.structs.replace(SETTINGS, plans=msgspec.structs.replace(plain, waiting_fraction=1.0))
    none = msgspec.structs.replace(SETTINGS, plans=msgspec.structs.replace(plain, standby_pods=0))
    used = usage(21)
    assert {p.standby for settings in (lax, none) for p in proposed(used, settings)} == {0}
    assert all(0 <= p.standby <= plain.standby_pods for p in proposed(used))
