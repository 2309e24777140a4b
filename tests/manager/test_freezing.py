"""While the API server is silent nothing is decided: what was published stays, and work goes on when it is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.logs.metrics import Metrics
from cotenant.manager.run import Manager, Options
from cotenant.profiler.settings import ProfilerSettings
from tests.cluster.accounts import certified
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, Scene

Nodes = Callable[..., list[str]]


def test_features_freeze_without_the_api_server_and_go_on_when_it_is_back(
    cluster: Scene, fake_nodes: Nodes, tmp_path: Path
) -> None:
    nodes = fake_nodes(2, cpu="16")
    cluster.report(nodes)
    cluster.configure(colocation_config={"enable": True})
    documented = certified(cluster.plane, "cotenant-manager", cluster.namespace)
    with (
        FaultProxy(cluster.plane, tmp_path, documented) as fault_proxy,
        cluster.manager(fault_proxy.kubeconfig, elect=False) as manager,
    ):

        def condition() -> ControllerCondition:
            return manager.board.states["colocation"].condition

        wait_for("batch resources", lambda: cluster.lent(nodes))
        # the nodes have them before the round ends, and its end is told
        wait_for("the first round's end", lambda: "colocation" in manager.board.states)
        before = cluster.allocatable(nodes)
        fault_proxy.refuse()
        wait_for("a frozen feature", lambda: condition() is ControllerCondition.UNREACHABLE)
        frozen = manager.rounds("colocation")
        cluster.configure(colocation_config={"enable": False})
        wait_for("further tries", lambda: all(m.error is not None for m in manager.mirrors.values()))
        assert cluster.allocatable(nodes) == before
        assert manager.rounds("colocation") == frozen
        fault_proxy.accept()
        wait_for("bare nodes", lambda: BATCH_CPU not in cluster.allocatable(nodes)[nodes[0]], 60)
        wait_for("a working feature", lambda: condition() is ControllerCondition.UP)


@pytest.mark.slow
def test_a_metric_source_that_is_away_is_no_working_feature_and_keeps_no_manager_from_being_ready(
    cluster: Scene, fake_nodes: Nodes
) -> None:
    """Without reports all batch capacity is withdrawn in the end: the alert on features that are down must fire."""
    fake_nodes(1)
    metrics = Metrics("test", "3")
    closed = msgspec.convert({"prometheus": {"url": "http://127.0.0.1:9"}}, ProfilerSettings)  # nobody answers there
    settings = msgspec.structs.replace(cluster.settings(features_off=[]), profiler=closed)
    manager = Manager(cluster.plane.client(cluster.account), settings, metrics, Options("test", False))
    with manager:
        for feature in ("node-metric", "recommendations", "forecasts"):
            wait_for(
                f"the state of {feature}",
                lambda feature=feature: cluster.state(feature).get("reason") == ControllerCondition.UNREACHABLE.value,
            )
            assert cluster.state(feature)["status"] == "False" and "127.0.0.1:9" in cluster.state(feature)["message"]
            up = metrics.registry.get_sample_value("cotenant_feature_up", {"feature": feature})
            assert up == 0.0
        wait_for("it is ready", lambda: manager.board.wrong() == "")
