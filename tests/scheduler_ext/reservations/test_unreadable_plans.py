"""A plan that the API server takes and nobody can read hides no other plan: each list names it and shows the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cotenant.base.errors import UsageError
from cotenant.base.store import Store
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.reservations import board
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
from tests.support import plans
from tests.support.access import Browser
from tests.support.command_line import cotenant
from tests.support.component_text import text_of
from tests.support.dashboard import QUICK
from tests.support.plans import Scene

pytestmark = [pytest.mark.server]

HOURS: Final = {"duration": "2h", "timeZone": "Etc/UTC"}
SHAPELESS: Final[dict[str, dict[str, Any]]] = {
    # Five fields, as the definition asks, and no hour 25.
    "no-such-hour": {"source": "Recurring", "recurring": {**HOURS, "schedule": "0 25 * * *"}},
    # Spelled as a zone is, and no zone.
    "no-such-zone": {"source": "Recurring", "recurring": {**HOURS, "schedule": "0 18 * * *", "timeZone": "Mars/Base"}},
    # Stored before the definition compared both ends.
    "ends-before": {"window": {"start": "2026-11-20T13:00:00Z", "end": "2026-11-20T12:00:00Z"}},
    "never-ends": {"windows": [{"start": "2026-11-20T13:00:00Z", "end": "2026-11-20T13:00:00Z", "count": 1}]},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with plans.embedded(tmp_path_factory.mktemp("plans")) as plan_cluster:
        plan_cluster.plan("good")
        for name, spec in SHAPELESS.items():
            plan_cluster.plan(name, **spec)
        yield plan_cluster


def test_the_service_returns_the_readable_plan_and_names_the_others(cluster: Scene) -> None:
    listed = cluster.service().plans(cluster.who)
    assert [plan.name for plan in listed.plans] == ["good"]
    assert [plan.name for plan in listed.unreadable] == sorted(SHAPELESS)
    assert all(f"reservationplan shop/{plan.name}" in plan.reason for plan in listed.unreadable)
    assert listed.note.startswith("4 plans cannot be read and are not counted: ") and "and 1 more" in listed.note


def test_one_that_is_asked_for_by_name_is_an_error_with_its_field(cluster: Scene) -> None:
    with pytest.raises(UsageError, match="reservationplan shop/ends-before: window: the end is not after the start"):
        cluster.service().plan(cluster.who, PlanRef("shop", "ends-before"))


def test_a_preview_says_whose_capacity_it_does_not_count(cluster: Scene) -> None:
    preview = cluster.service().preview(cluster.who, PlanRef("shop", "good"))
    assert preview.notes[-1].startswith("4 plans cannot be read and are not counted: ")


def test_the_command_prints_what_it_can_read_and_exits_with_partial(cluster: Scene, tmp_path: Path) -> None:
    argv = ("reservations", "list", "-o", "json", "--kubeconfig", cluster.settings.kube.kubeconfig)
    done = cotenant(*argv, variables={"HOME": str(tmp_path)})
    assert (done.returncode, [row["plan"] for row in json.loads(done.stdout)]) == (4, ["good"])
    assert "partial: 4 plans cannot be read" in done.stderr


def test_the_page_lists_the_good_one_below_the_names_of_the_others(cluster: Scene, tmp_path: Path) -> None:
    source = StoreSource(Store((tmp_path / "empty").as_uri(), "embedded"), QUICK)
    view = View(
        source,
        QUICK,
        cluster.clock.now_seconds,
        DashboardContext(current_user=lambda: cluster.who, plans=cluster.service()),
    )
    text = text_of(board.live(view, "", board.plans_of_service(view)))
    assert "4 plans cannot be read and are not counted: reservationplan shop/ends-before" in text
    assert "good" in text and "1 plan waiting for approval" in text


def test_the_rest_api_lists_both(cluster: Scene) -> None:
    with cluster.served() as url:
        browser = Browser(url)
        browser.get("/", page=True)
        good, *others = browser.get("/api/v1/reservations").json()
    assert good["plan"]["name"] == "good"
    assert {other["plan"]["name"]: "unreadable" in other for other in others} == dict.fromkeys(SHAPELESS, True)
