"""A node's page in a browser: its CPUs appear by a button, without an accessibility fault; a refusal says so."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from cotenant.base.errors import ClusterForbidden
from cotenant.base.people import Grant, Person, Role
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import NODES
from tests.browser.conftest import Open
from tests.browser.test_browsing import at_node, serious
from tests.browser.test_narrow import misfits
from tests.browser.test_pages import THEMES
from tests.support import dashboard as support
from tests.support.dashboard import Results
from tests.support.machines import FixedTopologies

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.mark.parametrize("theme", THEMES)
def test_cpus_are_shown_on_demand_and_a_refusal_is_said(
    open_page: Open, demo_results: Results, axe: str, theme: str
) -> None:
    service = FixedTopologies()
    context = DashboardContext(topologies=service, current_user=lambda: Person("ann", grants=(Grant(Role.ADMIN),)))
    app = create_app(StoreSource(demo_results.store, support.QUICK), support.QUICK, context=context)
    node = str(demo_results.store.read_table(NODES).columns["node"][0])
    with support.served(app) as address:
        page = open_page(f"{address}/nodes/{node}", theme=theme, size={"width": 1366, "height": 768})
        at_node(page, node)
        button = page.locator("#node-cpus-ask")
        expect(button).to_be_visible()
        assert service.questions == 0
        button.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("img", name="socket 1, NUMA node 1: 4 cores, 8 CPUs")).to_be_visible()
        expect(page.get_by_role("table", name="Owners of the CPUs")).to_contain_text("etl/join")
        assert serious(page, axe) == []
        assert misfits(page) == []
        service.trouble = ClusterForbidden("you may not get noderesourcetopologies", fix="Ask for the role.")
        page.reload()
        page.locator("#node-cpus-ask").click()
        expect(page.locator("#node-cpus")).to_contain_text("you may not get noderesourcetopologies")
