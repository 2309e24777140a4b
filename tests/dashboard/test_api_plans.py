"""Plans by script: the page's functions over HTTP, under the same rights, and a calendar that no name can act in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.moments import moment
from cotenant.base.people import Role
from cotenant.dashboard.rest.plans import calendar
from cotenant.scheduler_ext.reservations.model.plan import Plan, PlanOwner, Span, WindowSource
from tests.support import plans
from tests.support.access import Browser
from tests.support.plans import HOUR, SIX, Scene, person, window

pytestmark = [pytest.mark.server, pytest.mark.slow]

DAILY = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Scene, str]]:
    with plans.embedded(tmp_path) as cluster:
        cluster.plan()
        with cluster.served() as url:
            yield cluster, url


class Script:
    """A client with the session's token, as a script that logged in has."""

    def __init__(self, url: str) -> None:
        self._browser, self._root = Browser(url), "/api/v1/reservations"
        self._browser.get("/", page=True)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self._browser.get(self._root + path, **options)

    def post(self, path: str, body: Any, token: str | None = None) -> requests.Response:
        return self._browser.post(self._root + path, token, json=body)

    def put(self, path: str, body: Any) -> requests.Response:
        headers = {"X-CSRFToken": self._browser.cookie("_csrf_token"), "Origin": self._browser.address}
        address = self._browser.address + self._root + path
        return self._browser.session.put(address, json=body, headers=headers, timeout=30)


@pytest.fixture
def api(served: tuple[Scene, str]) -> Script:
    return Script(served[1])


def test_plans_are_listed_with_their_occurrences_and_one_with_its_history(
    served: tuple[Scene, str], api: Script
) -> None:
    served[0].plan("daily", source="Recurring", recurring=DAILY)
    daily, once = api.get("", params={"days": 2}).json()
    assert (daily["plan"]["name"], once["plan"]["status"]["phase"]) == ("daily", "Proposed")
    assert [w["start_seconds"] for w in daily["occurrences"]] == [SIX, SIX + 24 * HOUR]
    read = once["plan"]["generation"]
    assert api.post("/shop/web-peak/approve", {"scope": "Once", "generation": read}).status_code == 200
    body = api.get("/shop/web-peak").json()
    assert [d["event"] for d in body["history"]] == ["plan-approved", "plan-asked"]
    assert body["plan"]["approval"]["by"] == "administrator"


def test_a_script_approves_what_it_has_read_and_nothing_that_came_after(served: tuple[Scene, str], api: Script) -> None:
    cluster = served[0]
    cluster.plan("daily", source="Recurring", recurring=DAILY)
    read = api.get("/shop/daily").json()["plan"]["generation"]
    cluster.change("daily", "/spec/amount/count", 100)
    for more in ({}, {"dry_run": True}):
        refused = api.post("/shop/daily/approve", {"scope": "Series", "generation": read, **more})
        assert refused.status_code == 400 and "plan shop/daily has changed" in refused.json()["message"]
    assert "approval" not in cluster.spec("daily")
    body = {"scope": "Series", "generation": api.get("/shop/daily").json()["plan"]["generation"]}
    assert api.post("/shop/daily/approve", body).status_code == 200


@pytest.mark.parametrize("body", [{}, {"scope": "Series"}, {"generation": None, "reason": "sale"}])
def test_a_script_that_names_no_generation_approves_nothing_and_may_try(
    served: tuple[Scene, str], api: Script, body: dict[str, Any]
) -> None:
    # It may not have read the plan, or read it before somebody asked for a hundred times as much.
    refused = api.post("/shop/web-peak/approve", body)
    assert (refused.status_code, refused.json()["error"]) == (428, "UnseenVersion")
    assert "shop/web-peak does not name the generation" in refused.json()["message"] and refused.json()["fix"]
    assert "approval" not in served[0].spec("web-peak")
    tried = api.post("/shop/web-peak/approve", {**body, "dry_run": True})
    assert tried.status_code == 200 and "approval" not in served[0].spec("web-peak")
    # To reserve nothing is safe, whatever the plan has become.
    assert api.post("/shop/web-peak/reject", {"reason": "over"}).status_code == 200


def test_a_plan_is_made_previewed_edited_and_rejected_by_script(served: tuple[Scene, str], api: Script) -> None:
    cluster = served[0]
    body = {"workload": "shop/Deployment/web", "pods": 3, "start": moment(SIX), "end": moment(SIX + HOUR)}
    response = api.post("", body)
    assert response.status_code == 201
    name, generation = response.json()["plan"]["name"], response.json()["plan"]["generation"]
    assert api.get(f"/shop/{name}/preview").json()["held_core_hours"] == 6.0
    changed = {key: value for key, value in body.items() if key != "workload"} | {"pods": 5, "generation": generation}
    assert api.put(f"/shop/{name}", changed).status_code == 200
    assert cluster.spec(name)["amount"]["count"] == 5
    assert api.put(f"/shop/{name}/policy", {"auto": True, "minimum_hit_ratio": 0.5}).status_code == 200
    assert api.post(f"/shop/{name}/reject", {}).json()["message"] == "a rejection needs a reason"
    assert api.post(f"/shop/{name}/reject", {"reason": "over"}).status_code == 200
    assert cluster.spec(name)["approval"]["decision"] == "Rejected"


def test_one_occurrence_is_skipped_by_script(served: tuple[Scene, str], api: Script) -> None:
    served[0].plan("daily", source="Recurring", recurring=DAILY)
    assert api.post("/shop/daily/skip", {"start": moment(SIX)}).status_code == 200
    assert served[0].spec("daily")["recurring"]["skip"] == [moment(SIX)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"workload": "web", "pods": 1, "start": moment(SIX), "end": moment(SIX + HOUR)}, "is not NAMESPACE/KIND/NAME"),
        ({"workload": "shop/Deployment/web", "pods": "many"}, "Expected `int`"),
        ({"workload": "shop/Deployment/web", "pods": 1, "podz": 2}, "unknown field"),
        ({"workload": "shop/Deployment/web", "pods": 1}, "needs a window or a schedule"),
        ({"workload": "shop/Deployment/web", "pods": 1, "start": "noon"}, "is not a time"),
    ],
)
def test_a_body_that_cannot_be_is_refused_in_words(api: Script, body: dict[str, Any], message: str) -> None:
    response = api.post("", body)
    assert response.status_code == 400
    assert message in response.json()["message"]


def test_roles_and_tokens_hold_here_too(served: tuple[Scene, str], api: Script) -> None:
    cluster, _ = served
    cluster.who = person(Role.OWNER)
    refused = api.post("/shop/web-peak/approve", {})
    assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
    cluster.who = person(Role.APPROVER)
    assert api.post("/shop/web-peak/approve", {}, token="no").status_code == 403
    assert "approval" not in cluster.spec("web-peak")
    assert api.get("/shop/gone").status_code == 404


def test_the_calendar_holds_an_event_an_occurrence(served: tuple[Scene, str], api: Script) -> None:
    served[0].plan("daily", source="Recurring", recurring=DAILY)
    response = api.get("/calendar.ics", params={"days": 2})
    assert response.headers["content-type"].startswith("text/calendar")
    lines = response.text.split("\r\n")
    # Two of the schedule, one by hand; 18:00 UTC of 25 February 2027.
    assert lines.count("BEGIN:VEVENT") == 3 and lines.count("DTSTART:20270225T180000Z") == 2
    assert lines[0] == "BEGIN:VCALENDAR" and lines[-2] == "END:VCALENDAR"


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120))
@example("\r\n")
def test_no_name_adds_a_line_to_the_calendar_and_no_line_is_too_long(name: str) -> None:
    plan = Plan("shop", name, WindowSource.MANUAL, PlanOwner("Deployment", name), {}, 1, window=Span(SIX, SIX + HOUR))
    text = calendar([(plan, [Span(SIX, SIX + HOUR)])], SIX)
    lines = text.split("\r\n")
    assert max(len(line.encode()) for line in lines) <= 75
    unfolded = text.replace("\r\n ", "").split("\r\n")
    assert [line.split(":")[0] for line in unfolded if line] == [
        "BEGIN", "VERSION", "PRODID", "CALSCALE", "BEGIN", "UID", "DTSTAMP", "DTSTART", "DTEND", "SUMMARY",
        "DESCRIPTION", "END", "END",
    ]  # fmt: skip
    assert window(SIX)["start"] == "2027-02-25T18:00:00Z"
