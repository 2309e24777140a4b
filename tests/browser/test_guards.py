"""What could guard a workload's changes, seen on its page: the last week, and the command to copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from playwright.sync_api import expect

from cotenant.changes.access.kubeconfig_access import door_of
from cotenant.changes.objectives.search import guard_finder
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_narrow import misfits
from tests.changes.test_declared_objectives import own_selectors, requests_around
from tests.contract.target import embedded_api
from tests.support import acting, slo_objects
from tests.support.prometheus import Server

WAIT: Final = 120_000
"""Milliseconds for some twenty questions to Prometheus."""
pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_a_measure_is_shown_with_its_week_and_the_command_that_uses_it(
    open_page: Open, axe: str, tmp_path: Path
) -> None:
    with acting.embedded(tmp_path, acting.prepared(tmp_path / "store")) as cluster:
        assert cluster.server is not None
        ref = next(workload for workload in cluster.workloads if workload.kind == "Deployment")
        api = embedded_api(cluster.server)
        slo_objects.serve(api)
        slo_objects.create(api, slo_objects.sloth(ref.namespace, "promise", slo_objects.events(*own_selectors(ref))))
        # Requests fail from an hour before the dashboard's time on.
        with Server(requests_around(ref, cluster.end_seconds - 3600, tmp_path)) as prometheus:
            source = msgspec.structs.replace(cluster.settings.profiler.prometheus, url=prometheus.url)
            profiler = msgspec.structs.replace(cluster.settings.profiler, prometheus=source)
            settings = msgspec.structs.replace(cluster.settings, profiler=profiler)
            with acting.served(cluster, guards=guard_finder(door_of(cluster.settings), settings)) as address:
                page = open_page(f"{address}/workload/{ref.namespace}/{ref.kind}/{ref.name}")
                panel = page.locator(".panel", has=page.get_by_role("heading", name="Guards", exact=True))
                panel.get_by_role("button", name="Look for guards").click(timeout=WAIT)
                locator = panel.locator("#guards-found section")
                promise = locator.filter(has=page.get_by_role("heading", name=f"Sloth {ref.namespace}/promise"))
                own = locator.filter(has=page.get_by_role("heading", name="failed requests: JVM (Micrometer)"))
                expect(own.locator("code")).to_contain_text("kubectl annotate", timeout=WAIT)
                # One of 30 hours: the last, in which five in a hundred failed and two are promised at most.
                harm = re.compile(r"objective at most 2\.0 %; 1 hour would have counted as harm")
                expect(promise).to_contain_text(harm)
                expect(promise).to_contain_text("In use: an annotation")
                expect(promise.locator(".scatterlayer .trace")).not_to_have_count(0)
                assert serious(page, axe, "#guards-found") == []
                assert misfits(page) == []
