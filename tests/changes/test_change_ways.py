"""The service's other ways: methods that are offered, bundles, canaries with the watcher, hiding; by role."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cotenant.base.errors import NoData, UsageError
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, NotAllowed, Person, Role
from cotenant.base.process.clock import SystemClock
from cotenant.changes.commands.watcher_output import peaks_of
from cotenant.changes.decide.gitops.bundle import PULL_REQUEST
from cotenant.changes.model.change import ChangeState
from cotenant.changes.model.service import BundleForm, ChangeRequest, Method
from cotenant.changes.soak.watcher import News
from cotenant.recommender.model.views import Overview
from tests.support import acting

pytestmark = pytest.mark.server

ADMIN = Person("jane", grants=(Grant(Role.ADMIN),))
VIEWER = Person("joe")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared: acting.Prepared) -> Iterator[acting.Scene]:
    with acting.embedded(tmp_path, prepared) as embedded:
        yield embedded


def rows(cluster: acting.Scene) -> list[tuple[str, str, str]]:
    ledger = Ledger(Path(cluster.settings.actions.ledger), reading=True)
    entries = [(e.event, e.actor, e.body) for e in ledger.entries()]
    ledger.close()
    return entries


@pytest.mark.slow
def test_a_review_offers_what_can_be_had_and_a_bundle_changes_nothing(cluster: acting.Scene) -> None:
    service, ref = cluster.service(), cluster.workloads[0]
    before = cluster.live(ref)
    (review,) = service.review(ADMIN, ChangeRequest((ref,)))
    assert review.suggested in set(Method) and Method.TEMPLATE not in review.impossible
    files = service.bundle(ADMIN, ChangeRequest((ref,), key="k1"), BundleForm.KUSTOMIZE)
    assert PULL_REQUEST in files and len(files) > 1 and cluster.live(ref) == before
    ((event, actor, body),) = rows(cluster)
    assert (event, actor) == ("bundled", "jane") and json.loads(body)["workloads"] == [str(ref)]
    with pytest.raises(UsageError, match="a bundle cannot be applied"):
        service.accept(ADMIN, ChangeRequest((ref,), method=Method.BUNDLE))
    with pytest.raises(NotAllowed):
        service.bundle(VIEWER, ChangeRequest((ref,)), BundleForm.SSA)
    with pytest.raises(NoData):
        service.bundle(ADMIN, ChangeRequest((msgspec.structs.replace(ref, name="nobody"),)), BundleForm.SSA)


def test_a_canary_goes_on_by_the_service_s_own_watcher(cluster: acting.Scene) -> None:
    service, refs, news = cluster.service(), cluster.acceptable()[:2], list[News]()
    done = service.accept(ADMIN, ChangeRequest(refs, canary=0.5, key="k1"))
    assert [change_status.state for change_status in done] == [ChangeState.APPLIED, ChangeState.WAITING]
    acting.settle_rollouts(cluster)
    service.watcher(news.extend, lambda _now: []).step()
    states = [change.state for change in service.changes(ADMIN)]
    assert set(states) <= {ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.REGRESSED}
    assert ChangeState.WAITING not in states and service.ledger().bad_row == 0


def test_hiding_takes_the_right_and_a_reason_and_is_the_last_word(cluster: acting.Scene) -> None:
    service, ref = cluster.service(), cluster.workloads[0]
    with pytest.raises(NotAllowed):
        service.snooze(VIEWER, [ref], None, "x")
    service.snooze(ADMIN, [ref], 7.0, "after the sale")
    assert service.postponed()[ref].actor == "jane"
    service.recall(ADMIN, [ref])
    assert service.postponed() == {} and [event for event, *_ in rows(cluster)] == ["postponed", "recalled"]


class Machine(SystemClock):
    """The clock of a machine that is wrong."""

    ahead_seconds = 0.0

    def now_seconds(self) -> float:
        return time.time() + self.ahead_seconds


@pytest.mark.parametrize("ahead_seconds", [3600.0, -3600.0])
def test_a_snooze_ends_by_the_servers_time_whatever_ours_says_and_wherever_it_jumps(
    cluster: acting.Scene, ahead_seconds: float
) -> None:
    clock, ref = Machine(), cluster.workloads[0]
    clock.ahead_seconds = ahead_seconds
    service = cluster.service(clock)
    service.snooze(ADMIN, [ref], 1 / 48, "for half an hour")
    until = service.postponed()[ref].until_seconds
    # 1 / 48 of a day is 1,800 s; two clocks that are not far apart differ by at most two minutes
    assert until is not None and abs(until - time.time() - 1800) < 120
    clock.ahead_seconds = -ahead_seconds
    assert ref in service.postponed()


def test_a_peak_is_told_when_it_is_near(cluster: acting.Scene) -> None:
    overview = cluster.store.read_document("overview", Overview)
    assert overview is not None and overview.peak is not None
    ahead = peaks_of(cluster.store)
    start = overview.peak.start_seconds
    # Two hours before by the settings.
    (news,) = ahead(start - 7200)
    assert "peak expected" in news.title and overview.peak.led_by in news.words
    assert ahead(start - 7201) == [] and ahead(start) == [] and peaks_of(None)(start - 60) == []
