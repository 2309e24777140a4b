"""The Changes page in a browser: found, told whole, taken back by mouse and by keys, judged; a ledger that is hurt."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.service import ClusterChangeService
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES, settled
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.support import acting
from tests.support.acting import Prepared, Scene
from tests.support.pictures import pictured
from tests.support.redraws import redraw_always

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))
VIEWER = Person("vic")


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared_store: Prepared) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


def change_service_of(cluster: Scene) -> ClusterChangeService:
    """A service whose clock stands where the dashboard's does."""
    return cluster.service(FixedClock(cluster.end_seconds))


def changed(cluster: Scene, count: int = 2) -> list[str]:
    """Ids of changes of one batch."""
    done = change_service_of(cluster).accept(ADMIN, ChangeRequest(cluster.acceptable()[:count], key="night-1"))
    assert [s.state for s in done] == [ChangeState.APPLIED] * count
    return [s.change.id for s in done]


GAP = """acts => { const [left, right] = [...acts.children].map(it => it.getBoundingClientRect());
    return right.left - left.right; }"""
"""Pixels between a dialog's two buttons, of which one acts."""


def opened_by_keys(page: Page) -> bool:
    """Press j and Enter, as often as a busy machine takes to have its rows; whether the drawer came."""
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    return page.locator("#change-told").count() > 0


@pytest.mark.soak
def test_a_change_is_found_by_mouse_told_whole_and_taken_back(open_page: Open, cluster: Scene) -> None:
    first, second = changed(cluster)
    with acting.served(cluster, lambda: ADMIN) as url:
        page = settled(open_page(f"{url}/changes"))
        expect(page.locator("#count-changes")).to_have_text("2 changes")
        expect(page.locator("#ledger-line")).to_contain_text("Audit log intact: 4 entries, none changed, none removed")
        page.locator(".ag-center-cols-container .ag-row").first.click()
        locator = page.locator("#change-told")
        expect(locator).to_contain_text("Applied")
        expect(locator).to_contain_text("Accepted; nothing written to the cluster yet")
        expect(locator.get_by_role("table", name="What moved")).to_be_visible()
        page.get_by_role("button", name="Roll back", exact=True).first.click()
        expect(page.locator("#change-what")).to_contain_text("in 1 workload")
        assert page.locator(".dialog-acts:has(#change-confirm)").evaluate(GAP) >= 8
        page.locator("#change-confirm").click()
        expect(page.locator("#said")).to_contain_text("rolled-back")
        expect(locator).to_contain_text("Rolled back")
        expect(page.locator("#ledger-line")).to_contain_text("6 entries")
        states = {s.change.id: s.state for s in cluster.service().changes(ADMIN)}
        assert sorted(states) == sorted([first, second])
        assert sorted(states.values()) == [ChangeState.APPLIED, ChangeState.ROLLED_BACK]


@pytest.mark.soak
def test_by_keys_alone_a_batch_is_taken_back(open_page: Open, cluster: Scene) -> None:
    changed(cluster)
    with acting.served(cluster, lambda: ADMIN) as url:
        page = open_page(f"{url}/")
        expect(page.locator("h1")).to_have_count(1)
        for key in ("g", "c"):
            page.keyboard.press(key)
        settled(page)
        wait_for("a row to be opened by keys", lambda: opened_by_keys(page), 60.0)
        expect(page.locator("#change-told")).to_contain_text("The JSON patch that was sent")
        batch_button = page.get_by_role("button", name="Roll back the batch (2)")
        batch_button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#change-what")).to_contain_text("in 2 workloads")
        page.locator("#change-confirm").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("rolled-back")
        expect(page.locator("#change-confirm")).to_be_hidden()
        page.locator("#change-told .scroll").first.focus()
        page.keyboard.press("Escape")
        page.wait_for_function("!location.search.includes('open')")
        assert {s.state for s in cluster.service().changes(ADMIN)} == {ChangeState.ROLLED_BACK}


def test_filters_are_in_the_address_and_exports_hold_the_same_rows(open_page: Open, cluster: Scene) -> None:
    first, _ = changed(cluster)
    cluster.service().roll_back(ADMIN, [first])
    with acting.served(cluster, lambda: ADMIN) as url:
        page = settled(open_page(f"{url}/changes?state=rolled-back"))
        expect(page.locator("#count-changes")).to_have_text("1 of 2 changes")
        expect(page.locator("#facets-changes")).to_contain_text("applied")
        link = page.locator("#export-json-changes").get_attribute("href")
        assert link is not None and "state=rolled-back" in link
        rows = page.request.get(f"{url}{link}").json()["rows"]
        assert [r["change"] for r in rows] == [first]


def test_whoever_may_not_sees_why_and_everybody_sees_what_others_do_at_once(open_page: Open, cluster: Scene) -> None:
    first, _ = changed(cluster)
    with acting.served(cluster, lambda: VIEWER) as url:
        page = settled(open_page(f"{url}/changes?open={first}"))
        expect(page.locator("#change-why")).to_contain_text("vic may not accept")
        for name in ("Roll back", "Verify now"):
            expect(page.get_by_role("button", name=name, exact=True).first).to_be_disabled()
        cluster.service().roll_back(ADMIN, [first])
        expect(page.locator("#change-told")).to_contain_text("Rolled back", timeout=60_000)


def test_a_soaking_change_says_how_long_and_one_that_has_soaked_is_judged(
    open_page: Open, tmp_path: Path, prepared_store: Prepared
) -> None:
    with acting.embedded(tmp_path, prepared_store, replace(acting.ACTIONS, soak_minutes=30.0)) as soak_cluster:
        (id_,) = changed(soak_cluster, 1)
        with acting.served(soak_cluster, lambda: ADMIN, changes=change_service_of(soak_cluster)) as url:
            page = open_page(f"{url}/changes?open={id_}")
            expect(page.locator("#change-soak")).to_contain_text("soak time left; the change is verified afterwards.")
            expect(page.get_by_role("button", name="Verify now")).to_be_disabled()
    (tmp_path / "soaked").mkdir()
    with acting.embedded(tmp_path / "soaked", prepared_store) as soak_cluster:
        id_, _ = changed(soak_cluster)
        acting.settle_rollouts(soak_cluster)
        with acting.served(soak_cluster, lambda: ADMIN, changes=change_service_of(soak_cluster)) as url:
            page = settled(open_page(f"{url}/changes?open={id_}"))
            redraw_always(page, ("changes-news", "data"))
            page.get_by_role("button", name="Verify now").click()
            expect(page.locator("#change-told")).to_contain_text(re.compile("Verified: (no harm|regression)"))


@pytest.mark.soak
def test_a_hurt_ledger_is_said_with_its_first_wrong_row(open_page: Open, cluster: Scene) -> None:
    changed(cluster)
    path = cluster.settings.actions.ledger
    with acting.served(cluster, lambda: ADMIN) as url:
        page = settled(open_page(f"{url}/changes"))
        expect(page.locator("#ledger-line")).to_contain_text("Audit log intact")
        db = sqlite3.connect(path)
        db.executescript("DROP TRIGGER no_update; UPDATE entries SET actor = 'eve' WHERE seq = 3;")
        db.commit()
        expect(page.locator("#ledger-line")).to_contain_text("Audit log damaged: entry 3", timeout=60_000)
        db.executescript("DROP TRIGGER no_delete; UPDATE entries SET actor = 'jane' WHERE seq = 3;")
        db.execute("DELETE FROM entries WHERE seq > 3")
        db.commit()
        db.close()
        expect(page.locator("#ledger-line")).to_contain_text("Audit log damaged: entry 4", timeout=60_000)


@pytest.mark.parametrize("theme", THEMES)
def test_the_page_and_its_drawer_have_no_serious_accessibility_fault(
    open_page: Open, cluster: Scene, axe: str, theme: str, tmp_path: Path
) -> None:
    first, second = changed(cluster)
    cluster.service().roll_back(ADMIN, [first])
    with acting.served(cluster, lambda: ADMIN) as url:
        page = settled(open_page(f"{url}/changes", theme=theme))
        assert serious(page, axe) == []
        pictured(page, f"changes-{theme}", tmp_path)
        assert misfits(page) == []
        page.goto(f"{url}/changes?open={second}")
        expect(page.locator("#change-told")).to_contain_text("The JSON patch that was sent")
        assert serious(page, axe, "[role=dialog]") == []
        pictured(page, f"change-{theme}", tmp_path)


def test_without_a_service_the_page_says_how_to_get_one(open_page: Open, cluster: Scene) -> None:
    with acting.served(cluster, lambda: ADMIN, changes=None) as url:
        page = open_page(f"{url}/changes")
        expect(page.locator(".empty-headline")).to_contain_text("read-only")
        expect(page.locator(".command")).to_contain_text("cotenant dashboard --act")


def test_a_change_made_on_a_real_cluster_is_taken_back_from_the_page(
    open_page: Open, control_plane: ControlPlane, tmp_path: Path
) -> None:
    with acting.on_plane(control_plane, tmp_path) as real_cluster:
        ref = real_cluster.acceptable()[0]
        before = real_cluster.resources(ref)
        (done,) = real_cluster.service().accept(ADMIN, ChangeRequest((ref,)))
        assert real_cluster.resources(ref) != before
        with acting.served(real_cluster) as url:
            page = settled(open_page(f"{url}/changes?open={done.change.id}"))
            redraw_always(page, ("changes-news", "data"))
            page.get_by_role("button", name="Roll back", exact=True).first.click()
            page.locator("#change-confirm").click()
            expect(page.locator("#change-told")).to_contain_text("Rolled back", timeout=60_000)
        assert real_cluster.resources(ref) == before


@pytest.mark.soak
@pytest.mark.parametrize("theme", THEMES)
def test_the_health_page_shows_what_one_may_do_without_a_fault(
    open_page: Open, cluster: Scene, axe: str, theme: str
) -> None:
    with acting.served(cluster, lambda: ADMIN) as url:
        page = settled(open_page(f"{url}/health", theme=theme))
        expect(page.get_by_role("table", name="Your rights")).to_contain_text("Override a guardrail")
        matrix = page.get_by_role("table", name="What the cluster allows")
        expect(matrix).to_contain_text("patch deployments.apps")
        assert serious(page, axe) == []
