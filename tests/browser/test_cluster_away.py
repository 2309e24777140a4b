"""The API server goes away while somebody looks: what acts on it is off with the reason, and comes back by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import FaultProxy
from tests.support import acting

PATIENCE_MILLISECONDS = 180_000


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


def test_the_buttons_of_an_open_page_go_off_with_the_reason_and_come_back_by_themselves(
    control_plane: ControlPlane,
    prepared_store: acting.Prepared,
    tmp_path: Path,
    open_page: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cotenant.changes.service.GLANCE_SECONDS", 1.0)  # people wait for 10 s
    with FaultProxy(control_plane, tmp_path, control_plane.admin_kubeconfig) as proxy:
        cluster = acting.Scene(prepared_store, acting.settings_of(tmp_path, proxy.kubeconfig, acting.ACTIONS))
        ref = cluster.workloads[0]
        with acting.served(cluster) as address:
            page = open_page(f"{address}/recommendations?open={ref.namespace}/{ref.kind}/{ref.name}/app", quiet=True)
            review = page.locator("#review-open")
            expect(review).to_have_attribute("href", re.compile("review"))
            proxy.refuse()
            expect(review).to_be_disabled(timeout=PATIENCE_MILLISECONDS)
            expect(review).to_have_attribute("title", re.compile("The API server does not answer"))
            # Hiding is a note in the ledger, which needs no cluster.
            expect(page.locator("#explanation").get_by_role("button", name="Snooze")).to_be_enabled()
            proxy.accept()
            expect(review).to_have_attribute("href", re.compile("review"), timeout=PATIENCE_MILLISECONDS)
