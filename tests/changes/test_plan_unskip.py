"""A skipped occurrence of a schedule happens after all: by service, by script and by command, each in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import moment
from cotenant.base.people import NotAllowed, Role
from cotenant.cli.main import root
from cotenant.scheduler_ext.reservations.acts import RestoreOccurrence
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
from tests.dashboard.test_api_plans import Script
from tests.support import plans
from tests.support.plans import HOUR, NAMESPACE, SIX, Scene, person

pytestmark = pytest.mark.server

DAY = 24 * HOUR
DAILY = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h"}
REF = PlanRef(NAMESPACE, "daily")
OWNER = person(Role.OWNER, NAMESPACE)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A plan that skips the next two of its occurrences."""
    with plans.embedded(tmp_path) as found:
        found.plan("daily", source="Recurring", recurring={**DAILY, "skip": [moment(SIX), moment(SIX + DAY)]})
        yield found


def skips(scene: Scene) -> list[str]:
    texts: list[str] = scene.spec("daily")["recurring"].get("skip", [])
    return texts


def test_it_is_in_the_schedule_again_and_the_other_stays_out(scene: Scene) -> None:
    service = scene.service()
    plan = service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX))
    assert plan.recurring is not None and plan.recurring.skip == (SIX + DAY,)
    assert skips(scene) == [moment(SIX + DAY)]
    # The one of the next day is still left out; the first is back.
    assert [w.start_seconds for w in service.next_windows(plan.recurring, 2)] == [SIX, SIX + 2 * DAY]
    assert [(row.event, row.actor) for row in scene.rows()][-1] == ("plan-skip-undone", OWNER.name)
    assert (
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX + DAY)).recurring is not None
        and skips(scene) == []
    )


def test_what_is_not_skipped_or_over_stays_as_it_is_and_a_viewer_may_not(scene: Scene) -> None:
    service = scene.service()
    with pytest.raises(UsageError, match="does not skip"):
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX + 60))
    with pytest.raises(NotAllowed):
        service.do(person(Role.VIEWER), RestoreOccurrence(plan=REF, start_seconds=SIX))
    scene.clock.seconds = SIX + 1
    with pytest.raises(UsageError, match="has already begun"):
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX))
    assert skips(scene) == [moment(SIX), moment(SIX + DAY)]


def test_by_script_it_takes_the_start(scene: Scene) -> None:
    with scene.served() as url:
        api = Script(url)
        assert api.post("/shop/daily/unskip", {"start": moment(SIX)}).status_code == 200
        refused = api.post("/shop/daily/unskip", {"start": moment(SIX)})
    assert refused.status_code == 400 and "does not skip" in refused.json()["message"]
    assert skips(scene) == [moment(SIX + DAY)]


def test_by_command_it_is_tried_first_and_skipped_again(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    more = ["--kubeconfig", scene.settings.kube.kubeconfig, "--start", moment(SIX)]

    def run(*words: str) -> str:
        done = CliRunner().invoke(root, ["reservations", *words, "shop/daily", *more])
        assert done.exit_code == 0, done.output
        return done.output

    assert "nothing was written" in run("unskip") and moment(SIX) in skips(scene)
    run("unskip", "--yes")
    assert skips(scene) == [moment(SIX + DAY)]
    run("skip", "--yes")
    assert skips(scene) == [moment(SIX), moment(SIX + DAY)]


@pytest.mark.parametrize(("words", "refusal"), [
    (["reject", "shop/daily"], "a rejection needs a reason"),
    (["plan", "shop/Deployment/web", "--pods", "1", "--start", moment(SIX), "--for", "30s"], "window length 30 s is"),
])  # fmt: skip
def test_a_command_that_tries_refuses_what_doing_it_would(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], refusal: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for yes in ([], ["--yes"]):
        command = ["reservations", *words, *yes, "--kubeconfig", scene.settings.kube.kubeconfig]
        done = CliRunner().invoke(root, command)
        assert done.exit_code == 2 and refusal in " ".join(done.output.split()), done.output
    assert "approval" not in scene.spec("daily")
