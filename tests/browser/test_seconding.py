"""A change that takes two people, in two real browsers: one accepts it, the other confirms or declines it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.people import Person
from cotenant.base.process.clock import FixedClock
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.dashboard.changes import review as reviewing
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.changes.test_seconding import reserved
from tests.support import access, acting
from tests.support.acting import Prepared, Scene
from tests.support.dashboard import served

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ROLES = [{"role": "approver", "group": "leads"}]
ADA = {"X-Forwarded-User": "ada", "X-Forwarded-Groups": "leads"}
BEA = {"X-Forwarded-User": "bea", "X-Forwarded-Groups": "leads"}


@dataclass(frozen=True)
class House:
    """A dashboard behind a proxy that says who one is, and a workload of class LSR."""

    cluster: Scene
    url: str
    name: str
    open_page: Open

    def page(self, person: dict[str, str], path: str) -> Page:
        """A browser of that person's own."""
        page = self.open_page("about:blank")
        page.context.set_extra_http_headers(person)
        page.goto(f"{self.url}/{path}")
        return page

    def accepted(self) -> Page:
        """Ada's browser once she has accepted the change."""
        page = self.page(ADA, f"{reviewing.PATH}?ids={self.name}&step=confirm&key=abcdef01")
        expect(page.locator("#review-facts")).to_contain_text("the accepted change waits for that person")
        page.locator("#review-accept").click()
        expect(page.locator("#review-outcome")).to_contain_text("waits for a second person", timeout=60_000)
        return page

    @property
    def change(self) -> str:
        """The id of the one change."""
        (change_status,) = self.cluster.service().changes(Person("x"))
        return change_status.change.id


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def house(prepared_store: Prepared, tmp_path: Path, open_page: Open) -> Iterator[House]:
    with acting.embedded(tmp_path, prepared_store) as cluster:
        ref = reserved(cluster, cluster.acceptable()[0])
        door, clock = kubeconfig_door(cluster.settings.kube), FixedClock(cluster.end_seconds)
        service = change_service_of(cluster.settings, cluster.store, door, clock)
        with served(
            acting.app_of(cluster, access=access.by_proxy("127.0.0.1/32", roles=ROLES), changes=service)
        ) as url:
            yield House(cluster, url, reviewing.name_of(ref), open_page)


def test_one_accepts_another_confirms_and_the_first_cannot(house: House, axe: str) -> None:
    first = house.accepted()
    first.goto(f"{house.url}/changes?open={house.change}")
    expect(first.get_by_role("button", name="Confirm", exact=True)).to_be_disabled()
    expect(first.locator("#change-why")).to_have_text("You accepted the change: somebody else has to confirm it.")
    second = house.page(BEA, f"changes?open={house.change}")
    expect(second.get_by_role("button", name="Confirm", exact=True)).to_be_enabled()
    assert serious(second, axe) == []
    second.get_by_role("button", name="Confirm", exact=True).click()
    expect(second.locator("#change-told")).to_contain_text("Confirmed by the second person", timeout=60_000)
    expect(second.locator("#change-told")).to_contain_text("Roll back")
    assert [s.state.value for s in house.cluster.service().changes(Person("x"))] == ["applied"]


@pytest.mark.soak
def test_the_second_person_declines_and_nothing_was_done(house: House) -> None:
    house.accepted()
    page = house.page(BEA, f"changes?open={house.change}")
    page.get_by_role("button", name="Decline", exact=True).click()
    expect(page.locator("#change-told")).to_contain_text("declined by bea", timeout=60_000)
    assert [s.state.value for s in house.cluster.service().changes(Person("x"))] == ["cancelled"]
