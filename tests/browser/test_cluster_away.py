"""The API server goes away while somebody looks: what acts on it is off with the reason, and comes back by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.sim.api_server import EmbeddedServer
from tests.browser.conftest import Open
from tests.support import acting

PATIENCE_MILLISECONDS = 180_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


def test_the_buttons_of_an_open_page_go_off_with_the_reason_and_come_back_by_themselves(
    made: acting.Prepared, tmp_path: Path, open_page: Open
) -> None:
    with acting.embedded(tmp_path, made) as scene, acting.served(scene) as address:
        name = "/".join((scene.workloads[0].namespace, scene.workloads[0].kind, scene.workloads[0].name))
        page = open_page(f"{address}/recommendations?open={name}/app", quiet=True)
        review = page.locator("#review-open")
        expect(review).to_have_attribute("href", re.compile("review"))
        assert scene.server is not None
        scene.server.stop()
        expect(review).to_be_disabled(timeout=PATIENCE_MILLISECONDS)
        expect(review).to_have_attribute("title", re.compile("The API server does not answer"))
        expect(page.locator("#drawer, #explanation").get_by_role("button", name="Snooze").first).to_be_enabled()
        with EmbeddedServer() as back:
            back.write_kubeconfig(Path(scene.settings.kube.kubeconfig))
            expect(review).to_have_attribute("href", re.compile("review"), timeout=PATIENCE_MILLISECONDS)
