"""Accepting in a browser: a first visit by mouse and by keys on a real API server, twice pressed, reloaded, refused."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Locator, Page, Request, Route, expect

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Grant, Person, Role
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest, Method
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.dashboard.changes import review as reviewing
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.browser.conftest import CALLBACKS, ON_A_SLOW_MACHINE, Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, settled
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support import acting
from tests.support.acting import Prepared, Scene
from tests.support.extent import full
from tests.support.hands import Hands
from tests.support.pictures import pictured
from tests.support.redraws import redraw_always

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))
OWNER = Person("olga", grants=(Grant(Role.OWNER),))
MOST_ACTIONS = 5
ROLLOUT_SECONDS = 60.0
NEXT = ("Guardrails", "Server dry run", "Method", "Confirm")
"""Headings of the steps after the first one."""


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def cluster(prepared_store: Prepared, tmp_path: Path) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


@pytest.fixture
def url(cluster: Scene) -> Iterator[str]:
    with acting.served(cluster) as address:
        yield address


def free(cluster: Scene, count: int = 1) -> list[WorkloadRef]:
    """Workloads that nothing blocks, as soon as there are so many: a rollback is followed by a rollout."""
    service, request = cluster.service(), ChangeRequest(cluster.workloads, Method.TEMPLATE)

    def enough() -> list[WorkloadRef]:
        reviews = service.dry_run(ADMIN, request)
        refs = [r.workload for r in reviews if not r.error and not r.blocked(()) and r.tried and r.tried.accepted]
        return refs[:count] if len(refs) >= count else []

    return wait_for(f"{count} workloads are free", enough, seconds=ROLLOUT_SECONDS, every=1)


def box(page: Page, ref: WorkloadRef) -> Locator:
    """The box of the workload's first row in the grid."""
    exactly = re.compile(f"^{re.escape(ref.name)}$")
    cell = page.locator(".ag-row [data-part=workload]", has_text=exactly).first
    number = cell.locator("xpath=ancestor::*[@row-index]").get_attribute("row-index")
    return page.locator(f".ag-pinned-left-cols-container .ag-row[row-index='{number}'] input")


def shown(page: Page, title: str) -> None:
    """The step is there and the cluster has answered."""
    expect(page.locator("#review-title")).to_have_text(title, timeout=60_000)
    expect(page.locator("#review-frame")).not_to_have_class(re.compile("waiting"), timeout=60_000)


def reviewed(page: Page, url: str, refs: list[WorkloadRef], **more: str) -> Page:
    page.goto(reviewing.href(f"{url}/", refs, **more))
    return page


def by_mouse(page: Page, ref: WorkloadRef) -> Hands:
    """From the first page to the outcome with the mouse alone; what is done stands whole on Confirm."""
    hands = Hands(page)
    hands.click(page.get_by_role("link", name="Right-size", exact=True))
    settled(page)
    hands.click(box(page, ref))
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    hands.click(page.locator("#review-selected"))
    shown(page, "Proposed changes")
    hands.click(page.locator("#review-last"))
    shown(page, "Confirm")
    hands.click(page.locator("#review-accept"))
    shown(page, "Result")
    return hands


def by_keys(page: Page) -> Hands:
    """The same without a mouse, for the first row of the list."""
    hands = Hands(page)
    hands.press("g r")
    settled(page)
    hands.press("j")
    hands.press("r")
    shown(page, "Proposed changes")
    hands.press("c")
    shown(page, "Confirm")
    hands.press("Control+Enter")
    shown(page, "Result")
    return hands


def states(cluster: Scene, ref: WorkloadRef) -> list[ChangeState]:
    """Of the workload's changes, as the ledger tells."""
    return [s.state for s in cluster.service().changes(ADMIN) if s.change.workload == str(ref)]


@pytest.fixture(scope="module")
def on_plane(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with acting.on_plane(control_plane, tmp_path_factory.mktemp("plane")) as real_cluster:
        yield real_cluster


@pytest.fixture(scope="module")
def plane_url(on_plane: Scene) -> Iterator[str]:
    with acting.served(on_plane) as url:
        yield url


def test_a_first_visit_by_mouse_accepts_in_five_actions_on_a_real_cluster(
    on_plane: Scene, plane_url: str, open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    (ref,) = free(on_plane)
    before = on_plane.resources(ref)
    hands = by_mouse(settled(open_page(plane_url)), ref)
    expect(hands.page.locator("#review-outcome")).to_contain_text(str(ref))
    record_property("actions by mouse", hands.actions)
    assert states(on_plane, ref) == [ChangeState.APPLIED] and on_plane.resources(ref) != before
    # The list, a box, Review, To confirm, Accept.
    assert (hands.actions, hands.did) == (MOST_ACTIONS, ["click"] * 5)
    redraw_always(hands.page, ("review-poll", "n_intervals"))
    hands.page.get_by_role("button", name="Roll back all").click()
    expect(hands.page.locator("#review-outcome")).to_contain_text("rolled-back", timeout=60_000)
    assert on_plane.resources(ref) == before


def test_a_first_visit_by_keys_accepts_in_five_actions_on_a_real_cluster(
    on_plane: Scene, plane_url: str, open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    service = on_plane.service()
    # An attempt that failed may have left a change in force and rows hidden
    service.roll_back(ADMIN, [status.change.id for status in service.changes(ADMIN) if status.state.in_force])
    service.recall(ADMIN, on_plane.workloads)
    ref = free(on_plane, 2)[1]
    others = [workload_ref for workload_ref in every_workload(on_plane) if workload_ref != ref]
    service.snooze(ADMIN, others, 1, "so that this one is the first row")
    hands = by_keys(settled(open_page(plane_url)))
    expect(hands.page.locator("#review-outcome")).to_contain_text(str(ref))
    record_property("actions by keys", hands.actions)
    record_property("keys pressed", hands.presses)
    assert states(on_plane, ref).count(ChangeState.APPLIED) == 1
    # g r is one shortcut of two keys.
    assert hands.did == ["g r", "j", "r", "c", "Control+Enter"]
    assert (hands.actions, hands.presses) == (MOST_ACTIONS, 6)


def test_the_key_of_the_review_works_while_the_ticked_box_has_the_focus(
    cluster: Scene, url: str, open_page: Open
) -> None:
    (ref,) = free(cluster)
    page = settled(open_page(f"{url}/recommendations"))
    ticked = box(page, ref)
    ticked.click()
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    ticked.focus()
    page.keyboard.press("r")
    shown(page, "Proposed changes")
    assert ref.name in page.url


@pytest.mark.parametrize("by_key", [True, *full(False)])
def test_the_review_waits_until_the_newest_tick_is_drawn(
    cluster: Scene, url: str, open_page: Open, by_key: bool
) -> None:
    refs = free(cluster, 2)
    page = settled(open_page(f"{url}/recommendations"))
    box(page, refs[0]).click()
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    late, sent = list[Route](), list[Route]()

    def send(route: Route) -> None:
        if of_the_bar(route.request) and not sent:
            late.append(route)
        else:
            route.continue_()

    page.route(CALLBACKS, send)
    with page.expect_request(of_the_bar):
        box(page, refs[1]).click()
    page.keyboard.press("r") if by_key else page.locator("#review-selected").click()
    assert late
    sent += late  # what is asked from now on is answered at once
    for route in sent:
        route.continue_()
    shown(page, "Proposed changes")
    assert set(reviewing.parse_terms(page.evaluate("location.search")).workloads) == set(refs)


def test_the_bar_does_not_say_that_nothing_is_selected_until_the_server_answers(
    cluster: Scene, url: str, open_page: Open
) -> None:
    page = settled(open_page(f"{url}/recommendations"))
    sums, bar = page.locator(".selection-sums"), page.locator(".selection-line")
    expect(sums).to_contain_text("No row is selected")
    late = list[Route]()
    page.route(CALLBACKS, lambda route: late.append(route) if of_the_bar(route.request) else route.continue_())
    with page.expect_request(of_the_bar):
        box(page, free(cluster)[0]).click()
    expect(bar).to_have_attribute("data-waiting", "1 selected…")
    expect(sums).to_be_hidden()
    assert late
    page.unroute(CALLBACKS)  # which lets go on what was held
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    expect(sums).to_be_visible()
    assert bar.get_attribute("data-waiting") is None


def of_the_bar(request: Request) -> bool:
    """Whether the browser asks for the bar above the list."""
    return re.search(r'"output":\s*"selection-bar\.children"', request.post_data or "") is not None


def every_workload(cluster: Scene) -> list[WorkloadRef]:
    rows = cluster.store.read_table(RECOMMENDATIONS).rows()
    return sorted({WorkloadRef(r["namespace"], r["kind"], r["workload"]) for r in rows})


@ON_A_SLOW_MACHINE
@pytest.mark.soak
def test_the_long_way_by_keys_shows_every_step_and_leads_to_the_same(cluster: Scene, url: str, open_page: Open) -> None:
    (ref,) = free(cluster)
    cluster.service().snooze(
        ADMIN, [workload_ref for workload_ref in every_workload(cluster) if workload_ref != ref], 1, "later"
    )
    page = settled(open_page(f"{url}/recommendations"))
    hands = Hands(page)
    for shortcut in ("j", "r"):
        hands.press(shortcut)
    shown(page, "Proposed changes")
    for title in NEXT:
        hands.press("Enter")
        shown(page, title)
    hands.press("Control+Enter")
    shown(page, "Result")
    # A row, Review, four times Enter, Accept.
    assert hands.actions == 7 and states(cluster, ref) == [ChangeState.APPLIED]


def test_a_second_click_a_reload_and_back_change_nothing_more(cluster: Scene, url: str, open_page: Open) -> None:
    (ref,) = free(cluster)
    page = reviewed(open_page(f"{url}/recommendations"), url, [ref], step="confirm")
    shown(page, "Confirm")
    confirming = page.evaluate("location.href")
    page.locator("#review-accept").dblclick()
    shown(page, "Result")
    version = cluster.live(ref)["metadata"]["resourceVersion"]
    page.reload()
    shown(page, "Result")
    expect(page.locator("#review-outcome-words")).to_have_text("1 applied.")
    # The same address in another tab: under this key it is done already.
    page.goto(confirming)
    shown(page, "Result")
    assert states(cluster, ref) == [ChangeState.APPLIED]
    assert cluster.live(ref)["metadata"]["resourceVersion"] == version


def test_a_share_of_a_gpu_is_accepted_from_the_findings_with_old_and_new(
    cluster: Scene, url: str, open_page: Open
) -> None:
    acting.offer_gpu(cluster)
    with acting.oversized_gpu(cluster) as ranker:
        page = settled(open_page(f"{url}/findings"))
        expect(page.locator("#shares-count")).to_have_text("1 share of GPUs")
        box(page, cluster.workloads[1]).click()
        expect(page.locator("#shares-why")).to_have_text("None of the ticked rows proposes a share of a GPU.")
        box(page, ranker.workload).click()
        expect(page.locator("#shares-bar")).to_contain_text("1 share of GPUsof the ticked rows, in 1 workload")
        hands = Hands(page)
        hands.click(page.locator("#review-shares"))
        shown(page, "Proposed changes")
        expect(page.get_by_role("row", name=re.compile("GPU share"))).to_contain_text("nvidia.com/gpu: 1")
        hands.press("c")
        shown(page, "Confirm")
        written = page.locator("#review-changes")
        for line in ("gpu-core limit: not set → 40", "gpu-memory-ratio limit: not set → 50", "gpu limit: 1 → not set"):
            expect(written).to_contain_text(line)
        hands.press("Control+Enter")
        shown(page, "Result")
        assert states(cluster, ranker.workload) == [ChangeState.APPLIED]
        assert cluster.resources(ranker.workload)[0]["limits"]["koordinator.sh/gpu-core"] == "40"


@pytest.mark.soak
def test_steps_live_in_the_address_and_back_leads_through_them(cluster: Scene, url: str, open_page: Open) -> None:
    (ref,) = free(cluster)
    page = reviewed(open_page(f"{url}/recommendations"), url, [ref])
    shown(page, "Proposed changes")
    page.get_by_role("button", name=re.compile("Dry run$")).click()
    shown(page, "Server dry run")
    expect(page.locator(".facts")).to_contain_text("accepted")
    page.go_back()
    shown(page, "Proposed changes")
    page.go_forward()
    shown(page, "Server dry run")
    page.reload()
    shown(page, "Server dry run")
    key = reviewing.parse_terms(page.evaluate("location.search")).key
    assert len(key) == 16
    page.locator("#review-next").click()
    shown(page, "Method")
    assert reviewing.parse_terms(page.evaluate("location.search")).key == key


def test_all_that_match_are_chosen_by_the_filter_and_reviewed_by_name(
    cluster: Scene, url: str, open_page: Open
) -> None:
    page = settled(open_page(f"{url}/recommendations?kind=Deployment"))
    page.locator("#select-all").click()
    rows = [r for r in cluster.store.read_table(RECOMMENDATIONS).rows() if r["kind"] == "Deployment"]
    expect(page.locator("#selection-count")).to_have_text(f"All {len(rows)} matching")
    page.locator("#review-selected").click()
    shown(page, "Proposed changes")
    # The filter is the whole selection: no name of a row is in the address.
    first = reviewing.parse_terms(page.evaluate("location.search"))
    assert first.everything and not first.workloads
    page.locator("#review-next").click()
    shown(page, "Guardrails")
    terms = reviewing.parse_terms(page.evaluate("location.search"))
    names = {(r["namespace"], r["kind"], r["workload"]) for r in rows}
    assert {(w.namespace, w.kind, w.name) for w in terms.workloads} == names and not terms.everything


@pytest.mark.soak
def test_what_is_snoozed_leaves_the_list_and_comes_back_with_its_reason(
    cluster: Scene, url: str, open_page: Open
) -> None:
    page = settled(open_page(f"{url}/recommendations"))
    ref = cluster.workloads[0]
    count = page.locator("#count-recommendations").text_content()
    box(page, ref).click()
    redraw_always(page, ("cluster-away", "data"))
    page.get_by_role("button", name="Snooze").first.click()
    dialog = page.get_by_role("dialog", name="Snooze")
    expect(dialog).to_contain_text(str(ref))
    dialog.get_by_role("button", name="Hide", exact=True).click()
    expect(dialog.get_by_role("alert").first).to_contain_text("the reason is missing")
    dialog.get_by_label("Why").fill("<b>after</b> the release")
    dialog.get_by_role("button", name="Hide", exact=True).click()
    expect(page.locator("#said")).to_contain_text("1 workload hidden from the list for 7 days")
    expect(page.locator("#count-recommendations")).not_to_have_text(count or "")
    page.locator("#show-postponed").click()
    cell = page.locator(".ag-row[row-index='0'] .ag-cell[col-id=postponed_why]")
    expect(cell).to_contain_text("<b>after</b> the release")
    page.locator(".ag-row[row-index='0'] .ag-cell[col-id=workload]").click()
    page.get_by_role("button", name="Show again").click()
    expect(page.locator("#said")).to_contain_text("is shown again")
    assert cluster.service().postponed() == {}


def test_a_failed_rule_is_passed_over_with_a_reason_that_the_ledger_keeps(
    prepared_store: Prepared, tmp_path: Path, open_page: Open
) -> None:
    strict = replace(acting.ACTIONS, guardrails=GuardrailSettings(minimum_days=60))
    with acting.embedded(tmp_path, prepared_store, strict) as strict_cluster, acting.served(strict_cluster) as url:
        ref = strict_cluster.workloads[0]
        looks = strict_cluster.service().review(ADMIN, ChangeRequest((ref,)))
        rules = [rule.name for rule in looks[0].blocked(())]
        assert "history" in rules
        page = reviewed(open_page(f"{url}/recommendations"), url, [ref], step="confirm", method="template")
        shown(page, "Confirm")
        expect(page.locator("#left-out")).to_contain_text("history")
        expect(page.locator("#review-accept")).to_be_disabled()
        page.get_by_role("button", name=re.compile("Guardrails$")).click()
        shown(page, "Guardrails")
        for rule in rules:
            page.get_by_role("switch", name=re.compile(f"Override {rule} ")).check(force=True)
            expect(page.locator(".rule", has_text=rule).get_by_text("overridden", exact=True)).to_be_visible()
            shown(page, "Guardrails")
        page.get_by_role("button", name=re.compile("Confirm$")).click()
        shown(page, "Confirm")
        expect(page.locator("#review-why")).to_have_text("Give a reason for the override in step 2.")
        page.get_by_role("button", name=re.compile("Guardrails$")).click()
        shown(page, "Guardrails")
        page.get_by_label("Reason for the override").fill("load test tonight")
        page.locator("#review-last").click()
        shown(page, "Confirm")
        page.locator("#review-accept").click()
        shown(page, "Result")
        (done,) = strict_cluster.service().changes(ADMIN)
        assert done.change.guardrails["history"].endswith("; because: load test tonight")


@pytest.mark.soak
def test_who_may_not_pass_over_or_accept_is_told_which_role_it_takes(
    prepared_store: Prepared, tmp_path: Path, open_page: Open
) -> None:
    strict = replace(acting.ACTIONS, guardrails=GuardrailSettings(minimum_days=60))
    with acting.embedded(tmp_path, prepared_store, strict) as strict_cluster:
        ref = strict_cluster.workloads[0]
        with acting.served(strict_cluster, lambda: OWNER) as url:
            page = reviewed(open_page(f"{url}/recommendations"), url, [ref], step="guardrails")
            shown(page, "Guardrails")
            expect(page.get_by_role("switch").first).to_be_disabled()
            expect(page.locator(".rule").first).to_contain_text("olga may not override")
        with acting.served(strict_cluster, lambda: Person("vera")) as url:
            page = settled(open_page(f"{url}/recommendations"))
            expect(page.locator("#review-selected")).to_be_disabled()
            expect(page.locator("#selection-why")).to_contain_text("vera may not review: this needs role owner")
            expect(page.locator("#said")).to_be_empty()
            page.goto(f"{url}/recommendations/review?ids={reviewing.name_of(ref)}")
            expect(page.locator(".empty")).to_contain_text("vera may not review")


def test_files_are_written_instead_and_the_cluster_stays_as_it_is(cluster: Scene, url: str, open_page: Open) -> None:
    (ref,) = free(cluster)
    before = cluster.live(ref)["metadata"]["resourceVersion"]
    page = reviewed(open_page(f"{url}/recommendations"), url, [ref], step="method")
    shown(page, "Method")
    page.get_by_role("radio", name="GitOps bundle").check()
    expect(page.locator("#review-form")).to_be_visible()
    page.locator("#review-next").click()
    shown(page, "Confirm")
    with page.expect_download() as download:
        page.locator("#review-bundle").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        names = archive.namelist()
    assert "PULL_REQUEST.md" in names and len(names) > 1
    expect(page.locator("#review-files summary").first).to_be_visible()
    page.get_by_role("button", name=re.compile("Method$")).click()
    shown(page, "Method")
    # The step is drawn anew for the other form: a click before that would go to a button that leaves the page.
    with page.expect_response(lambda response: "review-body.children" in (response.request.post_data or "")):
        page.get_by_role("radio", name="Commands to copy").check()
    shown(page, "Method")
    page.locator("#review-next").click()
    shown(page, "Confirm")
    page.locator("#review-bundle").click()
    expect(page.locator("#review-files")).to_contain_text("kubectl")
    assert cluster.live(ref)["metadata"]["resourceVersion"] == before and states(cluster, ref) == []


def test_a_commit_is_chosen_shown_and_made_on_a_branch(
    prepared_store: Prepared, open_page: Open, tmp_path: Path
) -> None:
    folder = tmp_path / "deploy"
    actions = replace(acting.ACTIONS, git_repository=str(folder))
    with acting.embedded(tmp_path, prepared_store, actions) as git_cluster, acting.served(git_cluster) as url:
        (ref,) = free(git_cluster)
        acting.git_repository(git_cluster, folder, ref)
        page = reviewed(open_page(f"{url}/recommendations"), url, [ref], step="method")
        shown(page, "Method")
        page.get_by_role("radio", name="GitOps bundle").check()
        with page.expect_response(lambda response: "review-body.children" in (response.request.post_data or "")):
            page.locator("#review-form").get_by_text("commit on a branch").click()
        shown(page, "Method")
        page.locator("#review-next").click()
        shown(page, "Confirm")
        expect(page.locator("#review-step .diff")).to_contain_text(f"+++ b/{ref.name}.yaml")
        assert acting.git(folder, "branch") == "* main\n"
        page.locator("#review-bundle").click()
        expect(page.locator("#review-answer")).to_contain_text("on the new branch cotenant/")
        assert f"{ref.name}.yaml" in acting.git(folder, "log", "-1", "--stat", "--all", "--not", "main")


@pytest.mark.parametrize("theme", THEMES)
def test_every_step_has_no_serious_accessibility_fault(
    cluster: Scene, url: str, open_page: Open, axe: str, theme: str, tmp_path: Path
) -> None:
    (ref,) = free(cluster)
    page = settled(open_page(f"{url}/recommendations", theme=theme))
    box(page, ref).click()
    expect(page.locator("#selection-count")).to_have_text("1 selected")
    violations = {"list": serious(page, axe)}
    pictured(page, f"selected-{theme}", tmp_path)
    page.get_by_role("button", name="Snooze").first.click()
    expect(page.get_by_role("dialog", name="Snooze")).to_be_visible()
    page.wait_for_timeout(300)  # it fades in; contrast is judged where it stands
    violations["snooze"] = serious(page, axe, "[role=dialog]")
    page.keyboard.press("Escape")
    page.locator("#review-selected").click()
    shown(page, "Proposed changes")
    violations["diff"] = serious(page, axe)
    pictured(page, f"review-diff-{theme}", tmp_path)
    assert misfits(page) == []
    for title in NEXT:
        page.locator("#review-next").click()
        shown(page, title)
        violations[title] = serious(page, axe, "#review-frame")
    pictured(page, f"review-confirm-{theme}", tmp_path)
    page.locator("#review-accept").click()
    shown(page, "Result")
    violations["done"] = serious(page, axe, "#review-frame")
    assert {name: faults for name, faults in violations.items() if faults} == {}
