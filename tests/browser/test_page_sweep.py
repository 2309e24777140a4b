"""The sweep that benches make of every page and window, over a few pages in one: seconds instead of minutes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.support.page_sweep import WINDOWS, Fault, faults_of, visit

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
LAPTOP, *_ = WINDOWS
PATHS = ("", "recommendations", "findings", "reservations")


def test_the_pages_of_a_first_visit_have_no_fault(chromium: Browser, address: str, axe: str) -> None:
    page = visit(chromium, LAPTOP, address)
    try:
        assert list(faults_of(page, LAPTOP, PATHS, axe)) == []
    finally:
        page.context.close()


def test_a_sweep_finds_what_is_planted_in_a_page(chromium: Browser, address: str, axe: str) -> None:
    page = visit(chromium, LAPTOP, address)
    try:
        page.add_init_script("console.error('planted')")
        assert list(faults_of(page, LAPTOP, ["health"], axe)) == [Fault(LAPTOP, "health", "console", "planted")]
    finally:
        page.context.close()
