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
def cluster(tmp_path: Path) -> Iterator[Scene]:
    """A plan that skips the next two of its occurrences."""
    with plans.embedded(tmp_path) as embedded:
        embedded.plan("daily", source="Recurring", recurring={**DAILY, "skip": [moment(SIX), moment(SIX + DAY)]})
        yield embedded


def skips(cluster: Scene) -> list[str]:
    texts: list[str] = cluster.spec("daily")["recurring"].get("skip", [])
    return texts


def test_it_is_in_the_schedule_again_and_the_other_stays_out(cluster: Scene) -> None:
    service = cluster.service()
    plan = service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX))
    assert plan.recurring is not None and plan.recurring.skip == (SIX + DAY,)
    assert skips(cluster) == [moment(SIX + DAY)]
    # The one of the next day is still left out; the first is back.
    assert [w.start_seconds for w in service.next_windows(plan.recurring, 2)] == [SIX, SIX + 2 * DAY]
    assert [(row.event, row.actor) for row in cluster.rows()][-1] == ("plan-skip-undone", OWNER.name)
    assert (
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX + DAY)).recurring is not None
        and skips(cluster) == []
    )


def test_what_is_not_skipped_or_over_stays_as_it_is_and_a_viewer_may_not(cluster: Scene) -> None:
    service = cluster.service()
    with pytest.raises(UsageError, match="does not skip"):
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX + 60))
    with pytest.raises(NotAllowed):
        service.do(person(Role.VIEWER), RestoreOccurrence(plan=REF, start_seconds=SIX))
    cluster.clock.seconds = SIX + 1
    with pytest.raises(UsageError, match="has already begun"):
        service.do(OWNER, RestoreOccurrence(plan=REF, start_seconds=SIX))
    assert skips(cluster) == [moment(SIX), moment(SIX + DAY)]


def test_by_script_it_takes_the_start(cluster: Scene) -> None:
    with cluster.served() as url:
        api = Script(url)
        assert api.post("/shop/daily/unskip", {"start": moment(SIX)}).status_code == 200
        refused = api.post("/shop/daily/unskip", {"start": moment(SIX)})
    assert refused.status_code == 400 and "does not skip" in refused.json()["message"]
    assert skips(cluster) == [moment(SIX + DAY)]


def test_by_command_it_is_tried_first_and_skipped_again(
    cluster: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    more = ["--kubeconfig", cluster.settings.kube.kubeconfig, "--start", moment(SIX)]

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(root, ["reservations", *arguments, "shop/daily", *more])
        assert done.exit_code == 0, done.output
        return done.output

    assert "nothing was written" in run("unskip") and moment(SIX) in skips(cluster)
    run("unskip", "--yes")
    assert skips(cluster) == [moment(SIX + DAY)]
    run("skip", "--yes")
    assert skips(cluster) == [moment(SIX), moment(SIX + DAY)]


@pytest.mark.parametrize(("arguments", "refusal"), [
    (["reject", "shop/daily"], "a rejection needs a reason"),
    (["plan", "shop/Deployment/web", "--pods", "1", "--start", moment(SIX), "--for", "30s"], "window length 30 s is"),
])  # fmt: skip
def test_a_command_that_tries_refuses_what_doing_it_would(
    cluster: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], refusal: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for yes in ([], ["--yes"]):
        command = ["reservations", *arguments, *yes, "--kubeconfig", cluster.settings.kube.kubeconfig]
        done = CliRunner().invoke(root, command)
        assert done.exit_code == 2 and refusal in " ".join(done.output.split()), done.output
    assert "approval" not in cluster.spec("daily")
