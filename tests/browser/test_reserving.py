"""The reservations page that acts: a plan from its peak to its score by mouse, by keys, forms, roles, both themes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from playwright.sync_api import Page, Request, Route, expect

from cotenant.base.kubernetes.moments import moment
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.reservations import callbacks as plan_acts
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.reservations.service.service import plan_service_of
from cotenant.settings import Settings
from tests.browser.conftest import CALLBACKS, Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, chart_of, pictured
from tests.cluster import accounts
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.dashboard.test_reservations_page import DAY, planned
from tests.dashboard.test_reservations_page import plan as row
from tests.manager.test_planning import LEAD as REAL_LEAD
from tests.manager.test_planning import SIX as REAL_SIX
from tests.manager.test_planning import Clock, Plans, landed, phases
from tests.manager.test_planning import live_plans as live_plans  # noqa: PLC0414 - the fixture
from tests.support import dashboard as support
from tests.support import plans
from tests.support.dashboard import Results
from tests.support.extent import full
from tests.support.plans import HOUR, SIX, Scene, condition, person, window
from tests.support.redraws import redraw_always

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
MOST_ACTIONS = 5


@dataclass
class Hand:
    """A person at the page: every click and every key is counted."""

    page: Page
    actions: int = 0

    def click(self, what: str) -> None:
        self.actions += 1
        self.page.locator(what).click()

    def button(self, name: str) -> None:
        self.actions += 1
        self.page.get_by_role("button", name=name, exact=True).click()

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.actions += 1
            self.page.keyboard.press(key)


def page_on(plane: ControlPlane, folder: Path, clock: Clock) -> Any:
    """The dashboard on a real cluster, for an approver with no more rights there than planners have; no results."""
    settings = msgspec.structs.replace(
        Settings(),
        kube=KubeSettings(kubeconfig=str(accounts.planner(plane, "planner-ann"))),
        actions=ActionSettings(ledger=str(folder / "ledger.db"), anchor=False),
        plans=msgspec.structs.replace(Settings().plans, cluster_budget_fraction=1.0),
    )
    source = StoreSource(Store((folder / "empty").as_uri(), "real"), support.QUICK)
    who = person(Role.APPROVER)
    context = DashboardContext(current_user=lambda: who, plans=plan_service_of(settings, clock=clock))
    return create_app(source, support.QUICK, clock, context)


def test_a_plan_approved_in_five_clicks_of_home_holds_room_its_pods_land_and_its_score_appears(
    live_plans: Plans,
    fake_nodes: Callable[..., list[str]],
    open_page: Open,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    (node,) = fake_nodes(1, cpu="7", memory="32Gi")
    live_plans.deployment(0, node)
    name, clock = live_plans.plan(), Clock(REAL_SIX - 6 * HOUR)
    with live_plans.keeper(clock, "reservations"), support.served(page_on(live_plans.plane, tmp_path, clock)) as url:
        live_plans.await_plan(name, "Proposed")
        page = open_page(url)
        hand = Hand(page)
        hand.click("#place-peaks")
        expect(page.locator("#plan-next")).to_contain_text("Waiting for approval.")
        hand.button("Preview")
        expect(page.locator("#plan-preview")).to_contain_text("2 of 2 pods")
        expect(page.locator("#plan-preview")).to_contain_text("Without the plan")
        hand.button("Approve")
        hand.button("Approve now")
        expect(page.locator("#plan-done")).to_contain_text(
            "Capacity for 2 pods will be reserved at Fri 05 Mar 17:40 UTC"
        )
        record_property("actions by mouse", hand.actions)
        # The place Peaks, Preview, Approve, and Approve now.
        assert hand.actions <= MOST_ACTIONS
        live_plans.await_plan(name, "Approved")
        assert live_plans.reservations() == []
        clock.seconds = REAL_SIX - REAL_LEAD
        wait_for("both are Available", lambda: phases(live_plans) == ["Available", "Available"], 60)
        expect(page.locator("#plan-standing")).to_contain_text("Reserved", timeout=60_000)
        expect(page.locator("#plan-done")).to_have_count(0)  # what it said of the time to come is over
        expect(page.locator("#plan-units tbody")).to_contain_text(node)
        assert page.locator(".scroll:has(#plan-units)").evaluate("e => e.scrollWidth - e.clientWidth") == 0
        expect(page.locator("#plans-figure")).to_contain_text("reserved: 2 of 2 available", timeout=60_000)
        clock.seconds = REAL_SIX + 1
        live_plans.await_plan(name, "Held")
        path = f"/apis/apps/v1/namespaces/{live_plans.namespace}/deployments/web"
        live_plans.api.patch(path, {"spec": {"replicas": 2}}, kind="merge")
        wait_for("the web pods land", lambda: landed(live_plans) == [node, node], 60)
        expect(page.locator("#plan-next")).to_contain_text("pods have used 2 Reservations", timeout=60_000)
        wait_for("their use is counted", lambda: live_plans.status_of(name)["progress"].get("mostUsed") == 2, 60)
        clock.seconds = REAL_SIX + 2 * HOUR
        expect(page.locator("#plan-next")).to_contain_text("of the reserved pod-time used", timeout=60_000)
        page.locator("#to-plan").click()
        expect(page.locator("#plan-score")).to_contain_text("2 of 2 pods used a reservation")
        expect(page.locator("#plan-line")).to_contain_text("ann: Approved by planner-ann")
    score = live_plans.status_of(name)["score"]
    assert (score["held"], score["used"], score["missed"]) == (2, 2, 0)
    ledger = Ledger(tmp_path / "ledger.db", reading=True)
    assert [row.event for row in ledger.entries()] == ["plan-asked", "plan-approved"]


def predicted_peak(first: int, after: int, name: str, **changed: Any) -> dict[str, Any]:
    """A predicted peak of the cluster's day: half hours from noon on."""
    peak = row(name, first, after, 4, **changed)
    moved = SIX - 6 * HOUR - DAY
    return peak | {key: int(peak[key] + moved) for key in ("start", "end", "path_start") if peak[key] is not None}


@pytest.fixture
def acting(tmp_path: Path, demo_results: Results) -> Iterator[tuple[Scene, str]]:
    """Plans in every phase beside predicted peaks, on the embedded API server; the address of its dashboard."""
    rows = [
        predicted_peak(12, 16, "web", namespace="shop"),
        predicted_peak(30, 44, "index", reason="no-skill"),
        predicted_peak(14, 20, "checkout"),
    ]
    source = planned(StoreSource(demo_results.store, support.QUICK), rows)
    with plans.embedded(tmp_path) as cluster:
        filled(cluster)
        with cluster.served(source) as url:
            yield cluster, url


def filled(cluster: Scene) -> None:
    """A plan that waits for somebody, and one in each other state."""
    expected = {"hitRatio": 0.84, "occurrences": 7, "idleCoreHours": 0.6, "missedPods": 0.1, "cost": 0.2}
    waits = condition("Approved", "Waiting for approval.", reason="Waiting")
    cluster.plan("deployment-web", source="Forecast", status={"conditions": [waits], "expected": expected})
    daily = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h"}
    yes = {"decision": "Approved", "by": "bob"}
    cluster.plan(
        "daily", source="Recurring", recurring=daily, approval=yes, owner=owner("api"), status={"phase": "Approved"}
    )
    early = window(SIX - 7 * HOUR, 4)
    units = [
        {"name": "held-0", "nodeName": "n1", "phase": "Succeeded", "usedBy": "shop/<img src=x onerror=alert(1)>"},
        {"name": "held-1", "nodeName": "n1", "phase": "Available"},
    ]
    held_status = {
        "phase": "Held",
        "window": early,
        "reserveAt": moment(SIX - 8 * HOUR),
        "reservations": units,
        "count": 2,
    }
    cluster.plan("held", owner=owner("rank"), window=early, status=held_status)
    over = condition("Reserved", "cpu: 71.0 % of the cluster would be held by plans, 10 % is allowed.")
    cluster.plan("failed", owner=owner("feed"), status={"phase": "Failed", "conditions": [over]})


def owner(name: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}


def at_plans(page: Page) -> Page:
    """Board drawn, rows there, nothing loading."""
    expect(page.locator("#plan-next")).to_be_visible()
    expect(page.locator("#plans-figure .main-svg").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.wait_for_function("document.querySelector('.ag-row[row-index=\"0\"] .ag-cell')?.textContent")
    return page


@pytest.mark.parametrize("cpu_slowdown", [1, *full(4)])
def test_a_first_visit_by_keys_alone_approves_a_plan_in_five_keys(
    open_page: Open, acting: tuple[Scene, str], record_property: Callable[[str, object], None]
) -> None:
    cluster, url = acting
    page = open_page(url)
    expect(page.locator("h1")).to_be_visible()
    hand = Hand(page)
    hand.keys("g", "v")
    at_plans(page)
    hand.keys("p")
    expect(page.locator("#plan-preview")).to_be_focused()
    expect(page.locator("#plan-preview")).to_contain_text("4 of 4 pods: n1 (4)")
    hand.keys("a")
    expect(page.locator("#plan-approve-now")).to_be_focused()
    hand.keys("Enter")
    expect(page.locator("#plan-done")).to_contain_text("will be reserved at Thu 25 Feb 17:40 UTC")
    expect(page.locator("#said")).to_contain_text("Approved plan shop/deployment-web for the next occurrence.")
    record_property("keys pressed", hand.actions)
    # g v leads to the plans; Preview, Approve, and Enter on what asks once more.
    assert hand.actions <= MOST_ACTIONS
    assert cluster.spec("deployment-web")["approval"]["scope"] == "Once"
    assert cluster.spec("deployment-web")["approval"]["by"] == "administrator"  # of the API server's users


NARROW: Final = {"width": 1366, "height": 768}
LOOK: Final = '"changedPropIds":["plans-tick.n_intervals"]'
COVERED: Final = """() => {
    const box = document.getElementById("said").getBoundingClientRect();
    return [...document.querySelectorAll("main button, main .page-head a")].filter((it) => {
        const own = it.getBoundingClientRect();
        return it.checkVisibility() && own.left < box.right && box.left < own.right
            && own.top < box.bottom && box.top < own.bottom;
    }).map((it) => it.textContent);
}"""


def test_what_an_act_answered_covers_no_button_and_goes_without_a_call_of_its_own(
    open_page: Open, acting: tuple[Scene, str]
) -> None:
    cluster, url = acting
    page = at_plans(open_page(f"{url}/reservations", size=NARROW))
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("button", name="Approve now", exact=True).click()
    expect(page.locator("#said")).to_contain_text("Approved plan shop/deployment-web")
    assert page.evaluate(COVERED) == []
    page.get_by_role("button", name="New plan").click(timeout=5_000)  # refused while something lies above it
    expect(page.locator("#plan-done")).to_be_visible()
    looks: list[str] = []
    page.on("request", lambda it: looks.append(it.post_data or "") if LOOK in (it.post_data or "") else None)
    with page.expect_request(lambda it: LOOK in (it.post_data or "")):
        cluster.clock.seconds += plan_acts.AFTER_SECONDS
    expect(page.locator("#plan-done")).to_have_count(0)
    # Every look asks once: as many calls as different counts of ticks.
    counts = [re.findall(r'"id":"plans-tick","property":"n_intervals","value":(\d+)', body)[0] for body in looks]
    assert len(counts) == len(set(counts)) > 0


def test_the_board_shows_each_phase_by_pattern_and_words_and_the_week_says_what_it_rests_on(
    open_page: Open, acting: tuple[Scene, str]
) -> None:
    _, url = acting
    page = at_plans(open_page(f"{url}/reservations"))
    expect(page.locator("#live-plans tbody tr")).to_have_count(5)
    expect(page.locator("#live-plans tbody tr").first).to_contain_text("held")  # what runs now is on top
    expect(page.locator("#live-plans tbody tr").nth(1)).to_have_attribute("data-plan", "shop/daily")  # then what comes
    expect(page.locator("#live-plans tbody tr").nth(2)).to_have_attribute("data-plan", "shop/deployment-web")
    expect(page.locator("#plan-counts")).to_contain_text("4 plans: 1 reserved in the window, 1 approved, 1 waiting")
    expect(page.locator("#live-plans")).to_contain_text("no plan in the cluster yet")
    opened = page.locator("#live-plans tr[aria-current=true]")
    expect(opened).to_have_attribute("data-plan", "shop/deployment-web")
    page.locator("#live-plans tbody tr").nth(4).locator("td").nth(2).click()
    expect(opened).to_have_count(1)
    expect(opened).to_have_attribute("data-plan", "shop/failed")
    expect(page.locator("#plan-hand")).to_contain_text("failed")
    page.locator("#live-plans tbody tr").nth(2).locator("a").first.press("Enter")
    expect(opened).to_have_attribute("data-plan", "shop/deployment-web")
    names = page.evaluate(f"{chart_of(page, 'plans-figure')}.data.map(t => t.name).filter(Boolean)")
    assert names == [
        "Proposed (hatched)", "Not proposed (dotted)", "Approved (hatched back)", "Reserved (filled)",
        "Failed or missed (grid)", "Start − lead (line)",
    ]  # fmt: skip
    expect(page.locator("#plans-figure")).to_contain_text("held: 2 of 2 available, 1 used")
    expect(page.locator("#plans-figure")).to_contain_text("failed: cpu: 71.0 %")
    assert page.locator("img[src=x]").count() == 0
    page.locator("#plans-7d").click()
    expect(page.locator("#plan-day h2")).to_have_text("The next 7 days")
    expect(page.locator("#plan-day")).to_contain_text("Forecasts cover one day")
    # Today's occurrence and those of the next six days.
    expect(page.locator("#plan-day figcaption").first).to_contain_text("7 windows approved")
    assert page.url.endswith("&show=7d")


@pytest.mark.soak
def test_what_is_typed_is_checked_in_words_and_an_edit_is_kept(open_page: Open, acting: tuple[Scene, str]) -> None:
    cluster, url = acting
    page = at_plans(open_page(f"{url}/reservations?open=shop/ReservationPlan/deployment-web"))
    page.get_by_role("button", name="Edit", exact=True).click()
    edit = page.locator("#edit-fields")
    edit.get_by_label("Quantile").fill("1.2")
    edit.get_by_label("Pods", exact=True).fill("6")
    page.get_by_role("button", name="Preview these").click()
    expect(page.locator("#plan-edit-preview")).to_contain_text("quantile 1.2 is out of its range")
    edit.get_by_label("Quantile").fill("0.95")
    page.get_by_role("button", name="Preview these").click()
    expect(page.locator("#plan-edit-preview")).to_contain_text("6 of 6 pods")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#plan-done")).to_have_text("Changed plan shop/deployment-web.")
    spec = cluster.spec("deployment-web")
    assert (spec["quantile"], spec["amount"]["count"]) == (0.95, 6)


def test_an_answer_to_a_form_that_is_gone_is_no_error(open_page: Open, acting: tuple[Scene, str]) -> None:
    """What another choice would write is asked at once, and may be answered after the form has done its work."""
    _, url = acting
    page = at_plans(open_page(f"{url}/reservations?open=shop/ReservationPlan/deployment-web"))
    late: list[Route] = []
    page.route(
        CALLBACKS,
        lambda route: late.append(route) if of_the_lines(route.request) else route.continue_(),
    )
    page.get_by_role("button", name="Approve", exact=True).click()
    with page.expect_request(of_the_lines):
        page.get_by_text("Every occurrence").click()
    page.get_by_role("button", name="Approve now", exact=True).click()
    expect(page.locator("#plan-done")).to_contain_text("Approved plan shop/deployment-web for every occurrence")
    expect(page.locator("#plan-approve-lines")).to_have_count(0)
    assert late
    for route in late:
        with page.expect_event("requestfinished", lambda it, own=route.request: it == own):
            route.continue_()
    page.wait_for_timeout(500)  # the renderer has taken it by then; an error in it fails the test at its end


def of_the_lines(request: Request) -> bool:
    """Whether the browser asks what an approval would write."""
    return re.search(r'"output":\s*"plan-approve-lines\.children"', request.post_data or "") is not None


def test_a_plan_is_rejected_with_a_reason_and_one_occurrence_skipped(
    open_page: Open, acting: tuple[Scene, str]
) -> None:
    cluster, url = acting
    page = at_plans(open_page(f"{url}/reservations?open=shop/ReservationPlan/deployment-web"))
    redraw_always(page, ("cluster-away", "data"))
    page.keyboard.press("r")
    expect(page.locator("#plan-reject-reason")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#plan-work-said")).to_contain_text("a rejection needs a reason")
    page.keyboard.type("sale is over")
    page.keyboard.press("Enter")
    expect(page.locator("#plan-done")).to_contain_text("Rejected plan shop/deployment-web")
    assert cluster.spec("deployment-web")["approval"]["reason"] == "sale is over"
    page.goto(f"{url}/reservations?open=shop/ReservationPlan/daily")
    at_plans(page)
    redraw_always(page, ("cluster-away", "data"))
    page.get_by_role("button", name="Skip", exact=True).click()
    page.get_by_label("Fri 26 Feb 18:00 UTC").check()
    page.get_by_role("button", name="Skip it").click()
    expect(page.locator("#plan-done")).to_contain_text(
        "Skipped the occurrence of plan shop/daily that begins at Fri 26 Feb"
    )
    assert cluster.spec("daily")["recurring"]["skip"] == [moment(SIX + 24 * HOUR)]


def test_a_plan_by_hand_shows_its_next_three_occurrences_and_is_made(
    open_page: Open, acting: tuple[Scene, str]
) -> None:
    cluster, url = acting
    page = at_plans(open_page(f"{url}/reservations"))
    page.keyboard.press("n")
    expect(page.locator("#new-fields").get_by_label("Workload", exact=True)).to_be_focused()
    page.keyboard.type("shop/Deployment/web")
    page.locator("#new-fields").get_by_label("Time zone").fill("Europe/Berlin")
    # 25 February 2027 is a Thursday; 18:00 in Berlin is 17:00 UTC, and the weekend has none.
    expect(page.locator("#new-next")).to_have_text(
        "Next: Thu 25 Feb 17:00 UTC, Fri 26 Feb 17:00 UTC, Mon 01 Mar 17:00 UTC"
    )
    page.locator("#new-fields").get_by_label("Schedule", exact=True).fill("0 99 * * *")
    expect(page.locator("#new-next")).to_contain_text("cannot be read")
    page.locator("#new-fields").get_by_label("Schedule", exact=True).fill("0 18 * * 5")
    expect(page.locator("#new-next")).to_contain_text("Next: Fri 26 Feb 17:00 UTC, Fri 05 Mar")
    page.get_by_role("button", name="Preview it").click()
    expect(page.locator("#plan-preview")).to_contain_text("1 of 1 pod: n1 (1)")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.locator("#plan-done")).to_contain_text("Created plan shop/deployment-web-schedule.")
    expect(page.locator("#live-plans")).to_contain_text("deployment-web-schedule")
    spec = cluster.spec("deployment-web-schedule")
    assert spec["recurring"] == {"schedule": "0 18 * * 5", "timeZone": "Europe/Berlin", "duration": "2h"}


@pytest.mark.soak
def test_a_policy_is_set_with_its_limits(open_page: Open, acting: tuple[Scene, str]) -> None:
    cluster, url = acting
    page = at_plans(open_page(f"{url}/reservations?open=shop/ReservationPlan/deployment-web"))
    page.keyboard.press("y")
    page.get_by_label("Minimum share used, %").fill("80")
    page.get_by_label("Most idle core-hours a day").fill("4")
    page.get_by_role("switch").click()
    page.get_by_role("button", name="Save the policy").click()
    expect(page.locator("#plan-done")).to_contain_text("now is approved within its limits")
    assert cluster.spec("deployment-web")["policy"] == {
        "autoApprove": True, "minimumHitRatio": 0.8, "maximumIdleCoreHours": 4,
    }  # fmt: skip


def test_what_an_owner_may_not_do_stands_there_disabled_and_says_why(
    open_page: Open, acting: tuple[Scene, str]
) -> None:
    cluster, url = acting
    cluster.who = person(Role.OWNER)
    page = at_plans(open_page(f"{url}/reservations"))
    buttons = page.locator("#plan-acts button")
    expect(buttons).to_have_count(6)
    assert [b.text_content() for b in buttons.all() if b.is_enabled()] == ["Preview", "Skip", "Edit"]
    why = "ann may not approve in namespace shop: this needs role approver or admin."
    expect(page.locator("#plan-why-not")).to_contain_text(why)
    page.keyboard.press("a")
    expect(page.locator("#plan-work")).to_be_empty()


@pytest.mark.soak
@pytest.mark.parametrize("theme", THEMES)
def test_board_forms_and_a_plan_s_page_have_no_serious_accessibility_fault(
    open_page: Open, acting: tuple[Scene, str], axe: str, theme: str, tmp_path: Path
) -> None:
    _, url = acting
    page = at_plans(open_page(f"{url}/reservations", theme=theme))
    pictured(page, f"reserving-{theme}", tmp_path)
    assert misfits(page) == []
    page.keyboard.press("n")
    expect(page.locator("#new-fields").get_by_label("Workload", exact=True)).to_be_focused()
    for name, opened in (("Preview", "plan-preview"), ("Approve", "plan-approve-now"), ("Edit", "edit-fields"),
                         ("Skip", "plan-skip-now"), ("Auto-approve", "plan-policy-now")):  # fmt: skip
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(f"#{opened}")).to_be_visible()
        if theme == "light" or name in ("Preview", "Edit"):  # the dark theme differs in its colours alone
            assert serious(page, axe, "html" if name == "Preview" else "#plan-work") == [], name
    page.goto(f"{url}/reservations/shop/held")
    expect(page.locator("#plan-line")).to_be_visible()
    assert serious(page, axe) == []
    pictured(page, f"plan-{theme}", tmp_path)
