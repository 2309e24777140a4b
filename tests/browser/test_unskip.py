"""A skipped occurrence is brought back on the page, by mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from cotenant.base.kubernetes.moments import moment
from tests.browser.conftest import Open
from tests.support import plans
from tests.support.plans import HOUR, SIX

pytestmark = pytest.mark.server

DAILY = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h"}


def test_a_skipped_occurrence_is_brought_back_where_it_was_skipped(tmp_path: Path, open_page: Open) -> None:
    with plans.embedded(tmp_path) as cluster:
        cluster.plan("daily", source="Recurring", recurring={**DAILY, "skip": [moment(SIX), moment(SIX + 24 * HOUR)]})
        with cluster.served() as url:
            page = open_page(f"{url}/reservations/shop/daily")
            page.get_by_role("button", name="Skip", exact=True).click()
            form = page.get_by_role("region", name="Bring back")
            expect(form.get_by_role("radio")).to_have_count(2)
            form.get_by_role("radio").nth(1).check()
            form.get_by_role("button", name="Bring it back").click()
            expect(page.locator("#plan-acted")).to_contain_text("is no longer skipped")
            assert cluster.spec("daily")["recurring"]["skip"] == [moment(SIX)]
