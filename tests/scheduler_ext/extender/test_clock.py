"""A machine whose clock is off judges nodes' reports by the cluster's time: none looks old, none is new for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.base.controllers.clocks import believed_ahead_seconds
from cotenant.base.kube import connect
from cotenant.base.kubernetes.moments import moment
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.extender import decide
from cotenant.scheduler_ext.extender.serve.server import ExtenderService
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant_lab.simulation.api_server import EmbeddedServer
from cotenant_lab.simulation.definitions import define
from cotenant_lab.simulation.local_client import LocalClient
from tests.cluster.waiting import wait_for

NOW, HOUR = 1_700_000_000.0, 3600.0
YOUNG, OLD = 30.0, 1200.0
"""Ages of reports in seconds: the second is past the 180 s after which load rules leave a node alone."""


@pytest.mark.parametrize(
    ("server", "reports", "ahead"),
    [
        (None, [], 0.0),  # the server has not answered yet
        (NOW + 120, [], 0.0),  # what clocks differ by
        (NOW + HOUR, [], HOUR),
        (NOW - HOUR, [], -HOUR),
        # the reports agree with the server
        (NOW + HOUR, [NOW + HOUR - YOUNG], HOUR),
        (NOW - HOUR, [NOW - HOUR - YOUNG], -HOUR),
        # with this machine alone: the server's clock is the one that is off
        (NOW + HOUR, [NOW - YOUNG], 0.0),
        (NOW - HOUR, [NOW - YOUNG], 0.0),
        # with both, or none
        (NOW + HOUR, [NOW - YOUNG, NOW + HOUR - YOUNG], HOUR),
        (NOW + HOUR, [NOW - 9 * HOUR], HOUR),
    ],
)
def test_reports_are_judged_by_the_servers_time_unless_they_agree_with_ours_alone(
    server: float | None, reports: list[float], ahead: float
) -> None:
    assert believed_ahead_seconds(NOW, server, reports) == ahead


def put(hand: LocalClient, path: str, kind: str, name: str, **parts: object) -> None:
    """Create an object of a whole cluster, and its status."""
    version = path.removeprefix("/apis/").removeprefix("/api/")
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": parts.get("spec", {})}
    assert hand.create(f"{path}/{kind.lower()}s", body)
    assert hand.told(body, parts["status"])  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [HOUR, 0.0, -HOUR], ids=["behind", "right", "ahead"])
@pytest.mark.parametrize("age", [YOUNG, OLD], ids=["young", "old"])
def test_an_extender_whose_clock_is_off_follows_its_load_rules_as_one_whose_is_right(
    age: float, ahead: float, tmp_path: Path
) -> None:
    clock = ShiftedClock(ahead)
    with EmbeddedServer(clock=clock) as server:
        hand = LocalClient(server.api)
        define(hand)
        amounts = {"cpu": "32", "memory": "64Gi"}
        used = {"nodeUsage": {"resources": {"cpu": "4", "memory": "8Gi"}}}
        policy = {"metricCollectPolicy": {"reportIntervalSeconds": 60}}
        for name in ("a", "b"):
            put(hand, "/api/v1", "Node", name, status={"allocatable": amounts, "capacity": amounts})
            report = {"updateTime": moment(clock.now_seconds() - age), "nodeMetric": used}
            put(hand, "/apis/slo.koordinator.sh/v1alpha1", "NodeMetric", name, spec=policy, status=report)
        # one that nobody has filled yet
        put(hand, "/apis/slo.koordinator.sh/v1alpha1", "NodeMetric", "c", spec=policy, status={})
        client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig"))))
        settings = ExtenderSettings(watcher="thread", port=0)
        service = ExtenderService(client, settings, SystemClock(), Metrics("test", "3"))
        with service:
            wait_for("a view", lambda: len(service.view.snapshot.names) == 2 and not service.view.snapshot.problem())
            posture = decide.posture(service.view.snapshot, service.app._now(), settings)
            far = service.view.snapshot.clock_ahead_seconds
    assert far == pytest.approx(ahead, abs=5)
    # by the right time the first are 30 s old; the others are old whichever way this machine's clock is off
    assert posture.load_off == ("" if age == YOUNG else "most nodes do not report their usage")
