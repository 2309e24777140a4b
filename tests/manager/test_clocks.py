"""A clock that is off takes nobody's capacity: ours against the API server's and the nodes', ahead or behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path

import pytest

from cotenant.autopilot.controller import AutopilotController
from cotenant.autopilot.ladder_controller import LadderController
from cotenant.base.controllers.audit import Audit
from cotenant.base.controllers.clocks import nodes_disagree, server_disagrees, source_disagrees
from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.controllers.loop import AlwaysLeads, Changes, Feature, FeatureRunner, Hub, LoopContext
from cotenant.base.controllers.sender import Sender
from cotenant.base.kube import connect
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.kubernetes.moments import APART_SECONDS
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import ServerClock, ShiftedClock
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.manager.feature_status import Board
from cotenant.manager.run import Manager, Options
from cotenant.profiler.node_metric.controller import NodeMetricController
from cotenant.recommender.colocation.controller import ColocationController
from cotenant.scheduler_ext.load_taints.controller import LoadTaintController
from cotenant.scheduler_ext.queues.controller import QueueController
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerController
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import MigrationController
from cotenant.scheduler_ext.reservations.controller import ReservationController
from cotenant.scheduler_ext.reservations.plan_controller import PlanController
from tests.cluster.waiting import wait_for
from tests.manager.scene import Scene

NOW = 1_700_000_000.0
HOUR = 3600.0
Nodes = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("ours", "server", "reports", "phrase"),
    [
        (NOW, None, [NOW - HOUR], ""),  # no answer yet: nothing to be held against
        (NOW, NOW - 120, [], ""),  # what clocks differ by
        (NOW + HOUR, NOW, [NOW - 30], "60 minutes ahead of the API server's"),
        (NOW + HOUR, NOW, [NOW - 30], "set the clock of the manager's machine"),
        (NOW - HOUR, NOW, [NOW - 30], "60 minutes behind the API server's"),
        (NOW - HOUR, NOW, [NOW - 30], "set the clock of the manager's machine"),
        (NOW, NOW + HOUR, [NOW - 30], "set the clock of the API server's machine"),
        # six minutes: a report of the future proves a clock to be behind, an old one proves nothing
        (NOW - 360, NOW, [NOW - 30], "set the clock of the manager's machine"),
        (NOW, NOW - 360, [NOW - 30], "set the clock of the API server's machine"),
        (NOW + 360, NOW, [NOW - 30], "do not show which clock is right"),
        (NOW, NOW + HOUR, [], "do not show which clock is right"),
        (NOW, NOW + HOUR, [NOW, NOW + HOUR], "do not show which clock is right"),
    ],
)
def test_the_clock_that_is_off_is_named(ours: float, server: float | None, reports: list[float], phrase: str) -> None:
    text = server_disagrees(ours, server, reports)
    assert phrase in text
    assert bool(text) is bool(phrase)


@pytest.mark.parametrize(
    ("ahead", "phrase"),
    [
        ({}, ""),
        ({"a": -HOUR}, ""),  # one node may be wrong itself
        ({"a": -HOUR, "b": -HOUR}, "60 minutes ahead of those of 2 of 2 nodes"),
        ({"a": HOUR, "b": HOUR, "c": 0.0}, "60 minutes behind those of 2 of 3 nodes"),
        ({"a": HOUR, "b": HOUR, "c": 0.0, "d": 0.0}, ""),  # as many agree with us
        ({"a": HOUR, "b": -HOUR, "c": 0.0}, ""),
    ],
)
def test_many_nodes_that_agree_against_us_are_believed(ahead: dict[str, float], phrase: str) -> None:
    text = nodes_disagree(ahead)
    assert phrase in text
    assert bool(text) is bool(phrase)


@pytest.mark.parametrize(
    ("ahead", "phrase"),
    [
        (0.0, ""),
        (APART_SECONDS, ""),
        (HOUR, "Prometheus' clock is 60 minutes ahead of the manager's and the API server's"),
        (-HOUR, "Prometheus' clock is 60 minutes behind the manager's and the API server's"),
    ],
)
def test_a_metric_source_whose_clock_is_off_is_named(ahead: float, phrase: str) -> None:
    text = source_disagrees(ahead)
    assert phrase in text
    assert bool(text) is bool(phrase)


def test_a_servers_time_goes_on_by_a_clock_that_nobody_sets() -> None:
    clock = ServerClock()
    assert clock.now_seconds() is None
    clock.observe("no date")
    assert clock.now_seconds() is None
    before = time.monotonic()
    clock.observe("Tue, 14 Nov 2023 22:13:20 GMT")  # = NOW
    server_seconds = clock.now_seconds()
    assert server_seconds is not None
    assert NOW <= server_seconds <= NOW + time.monotonic() - before


@pytest.mark.parametrize("shift", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_manager_whose_clock_is_off_leaves_every_node_as_it_is_and_says_whose_clock(
    cluster: Scene, fake_nodes: Nodes, shift: float
) -> None:
    nodes = fake_nodes(3, cpu="16", memory="64Gi")
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    with cluster.manager(elect=False):
        wait_for("batch resources on each node", lambda: cluster.lent(nodes))
    before = cluster.allocatable(nodes)
    client = cluster.plane.client(cluster.account)
    off = Manager(client, cluster.settings(), Metrics("0", "3"), Options(elect=False), ShiftedClock(shift))
    with off:
        wait_for("a decision", lambda: "colocation" in off.board.states)

        def stale() -> bool:
            return off.board.states["colocation"].condition is ControllerCondition.STALE

        wait_for("a frozen feature", stale)
        # several rounds of a second each; an amount would be withdrawn in the first
        since_seconds = off.board.states["colocation"].since_seconds
        wait_for("time to go on", lambda: off._clock.now_seconds() > since_seconds + 4)
        assert stale()
        assert off.rounds("colocation") == 0
        message = off.board.states["colocation"].message
    assert cluster.allocatable(nodes) == before
    assert "the manager's clock" in message
    assert f"60 minutes {'ahead of' if shift > 0 else 'behind'} the API server's" in message
    assert "set the clock of the manager's machine" in message


class _SetClock:
    """A machine's clock that somebody sets."""

    def __init__(self, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds

    def now_seconds(self) -> float:
        return time.time() + self.ahead_seconds


@pytest.mark.parametrize("first", [0.0, HOUR], ids=["in the middle", "at the start"])
def test_amounts_stay_when_the_api_server_shares_the_managers_wrong_clock(
    cluster: Scene, fake_nodes: Nodes, first: float
) -> None:
    nodes = fake_nodes(3, cpu="16", memory="64Gi")
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    with cluster.manager(elect=False):
        wait_for("batch resources on each node", lambda: cluster.lent(nodes))
    before = cluster.allocatable(nodes)
    # without a server to be held against, as when both run on the machine whose clock is off
    options, clock = Options(elect=False, fast_forward=True), _SetClock(first)
    off = Manager(cluster.plane.client(cluster.account), cluster.settings(), Metrics("0", "3"), options, clock)
    with off:
        wait_for("a decision", lambda: off.rounds("colocation") >= 1)
        clock.ahead_seconds = HOUR
        rounds = off.rounds("colocation")
        # the report of one node goes on, the others' stand still
        cluster.report(nodes[:1], system_cpu="1001m")
        wait_for("three rounds by the wrong clock", lambda: off.rounds("colocation") >= rounds + 3)
        assert off.board.states["colocation"].condition.works
        # an hour is four times the 15 minutes after which a report is too old, and seconds have passed
        assert cluster.allocatable(nodes) == before


BY_AGE: set[type[Feature]] = {
    ColocationController,
    NodeMetricController,
    DeschedulerController,
    LoadTaintController,
    AutopilotController,
    LadderController,
}
"""Controllers that wait while two clocks disagree: what they read has no end, but grows old."""
BY_END: set[type[Feature]] = {ReservationController, PlanController, MigrationController, QueueController}
"""Controllers that end what has an end, as people or the API server wrote it."""


def test_each_controller_that_judges_by_the_time_waits_for_the_servers() -> None:
    assert all(kind.by_clock and not kind.by_server_time for kind in BY_AGE)
    assert all(kind.by_server_time and not kind.by_clock for kind in BY_END)


class _Ends(Feature):
    """Notes by which time it is asked to decide."""

    name = "ends"
    needs: tuple[str, ...] = ()
    interval_seconds: float = 1.0

    def __init__(self) -> None:
        self.times: list[float] = []

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - see Feature
        self.times.append(now_seconds)
        return ControllerDecision()

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        assert not outcomes  # it writes nothing


class _JumpingClock:
    """A clock that somebody sets."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now_seconds(self) -> float:
        return self.seconds


@pytest.mark.parametrize("shift", [HOUR, -HOUR, 5 * HOUR], ids=["ahead", "behind", "far ahead"])
@pytest.mark.parametrize("when", ["at the start", "at a hand-over", "in the middle"])
@pytest.mark.parametrize("by_clock", [True, False], ids=["by age", "by ends"])
def test_nothing_is_decided_by_a_doubtful_clock(shift: float, when: str, by_clock: bool, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    ours, server = _JumpingClock(NOW + shift if when == "at the start" else NOW), ServerClock()
    board, audit = Board("ns", Audit(Metrics("test", "3")), None), Audit(Metrics("test", "3"))
    feature = _Ends()
    feature.by_clock, feature.by_server_time = by_clock, not by_clock
    context = LoopContext(Hub({}, threading.Event()), AlwaysLeads(), ours, ManagerSettings(), audit, board, server)

    def runner() -> FeatureRunner:
        client = connect(KubeSettings(kubeconfig=str(file)))  # of which nothing is asked
        return FeatureRunner(feature, Sender(client, AlwaysLeads(), lambda: 0.0), context)

    first = runner()
    assert first.round().condition is ControllerCondition.STALE  # no answer has told the server's time
    assert feature.times == []
    server.observe(formatdate(NOW, usegmt=True))
    first.round()
    if when != "at the start":
        ours.seconds = NOW + shift
    (runner() if when == "at a hand-over" else first).round()
    # within what the two clocks may differ by, and the time that this test took
    assert all(abs(now - NOW) < APART_SECONDS for now in feature.times)
    # by age nothing is decided while the clocks disagree, by ends the server's time is gone by
    assert len(feature.times) == ((0 if when == "at the start" else 1) if by_clock else 2)
