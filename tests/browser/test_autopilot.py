"""The page Autopilot in a browser: a policy edited, previewed and saved by keyboard, let act, and everything paused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import SIDEWAYS, TELEPHONE, misfits
from tests.browser.test_pages import THEMES, settled
from tests.support import autopilot
from tests.support import dashboard as support
from tests.support.autopilot import APPROVER
from tests.support.dashboard import Results
from tests.support.pictures import pictured

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
SIZE = {"width": 1366, "height": 768}


def begin_an_objective_and_drop_it(page: Page, text: Locator) -> None:
    """By the form; the YAML follows both."""
    page.get_by_text("Objectives: a change that breaks").click()
    promise = page.get_by_role("group", name="Objective 1").get_by_label("Name")
    promise.fill("errors")
    promise.press("Tab")
    expect(text).to_have_value(re.compile(r"objectives:\s+- \{name: errors\}"))
    promise.fill("")
    promise.press("Tab")
    expect(text).not_to_have_value(re.compile("objectives"))


@pytest.mark.parametrize("theme", THEMES)
def test_a_person_previews_tonight_lets_a_policy_act_and_pauses_everything(
    open_page: Open, demo_results: Results, axe: str, theme: str, tmp_path: Path
) -> None:
    with autopilot.embedded(tmp_path) as embedded_autopilot:
        context = DashboardContext(autopilot=embedded_autopilot.service(), current_user=lambda: APPROVER)
        app = create_app(
            StoreSource(demo_results.store, support.QUICK), support.QUICK, embedded_autopilot.clock, context
        )
        with support.served(app) as address:
            page = settled(open_page(f"{address}/autopilot", theme=theme, size=SIZE))
            queue = page.get_by_role("table", name="Queue")
            expect(queue).to_contain_text("the next change window opens")
            page.get_by_role("link", name="Tonight").click()
            expect(queue).to_contain_text("propose")
            assert misfits(page) == [] and serious(page, axe) == []
            pictured(page, f"autopilot-{theme}", tmp_path)

            # the editor, by keyboard: what is previewed is what is saved
            page.get_by_role("link", name="shop/nightly").press("Enter")
            text, memory = page.get_by_label("As YAML"), page.get_by_role("checkbox", name="memory", exact=True)
            text.fill(text.input_value().replace("mode: Observe", "mode: Observe\n  resources: [cpu]"))
            cpu = page.get_by_role("checkbox", name="CPU", exact=True)
            expect(cpu).to_be_checked()
            expect(memory).not_to_be_checked()
            # the form: the YAML follows it
            cpu.uncheck()
            memory.check()
            expect(text).to_have_value(re.compile(r"resources: \[memory\]"))
            begin_an_objective_and_drop_it(page, text)
            page.get_by_role("button", name="Preview tonight").press("Enter")
            expect(page.get_by_role("table", name="Tonight's queue")).to_contain_text("nothing allowed")
            assert serious(page, axe) == [] and embedded_autopilot.events() == []
            page.get_by_role("button", name="Save this policy").press("Enter")
            expect(page.locator("#policy-saved")).to_contain_text("Saved shop/nightly")
            assert embedded_autopilot.policy()["spec"]["resources"] == ["memory"]
            # The page is drawn anew; a button that is replaced between focus and Enter takes no key.
            expect(page.get_by_role("table", name="Queue", exact=True)).to_contain_text("nothing allowed")

            page.get_by_role("button", name="Let it act: shop/nightly").press("Enter")
            confirm = page.locator("#autopilot-confirm")
            expect(confirm).to_be_focused()
            expect(page.get_by_text("The policy that you approve, with digest")).to_be_visible()
            confirm.press("Enter")
            expect(page.locator("#autopilot-done")).to_contain_text(
                "shop/nightly may change workloads from the next run on."
            )
            expect(page.get_by_role("table", name="Policies")).to_contain_text("Act")

            page.get_by_role("button", name="Pause").press("Enter")
            expect(confirm).to_be_focused()
            assert embedded_autopilot.paused() == "", "so far nothing is done"
            page.get_by_label("Reason, for the ledger").fill("incident")
            confirm.click()
            expect(page.locator("#autopilot-top")).to_contain_text("halted")
            assert embedded_autopilot.paused() == "paused by ann: incident"
            page.set_viewport_size(TELEPHONE)
            assert page.evaluate(SIDEWAYS) == []
        acts = ["autopilot-edited", "autopilot-act", "autopilot-paused"]
        assert [event for event, _ in embedded_autopilot.events()] == acts
