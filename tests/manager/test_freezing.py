"""While the API server is silent nothing is decided: what was published stays, and work goes on when it is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cotenant.base.controllers.feature import ControllerCondition
from tests.cluster.accounts import certified
from tests.cluster.faults import FaultProxy
from tests.cluster.waiting import wait_for
from tests.manager.scene import BATCH_CPU, Scene

Nodes = Callable[..., list[str]]


def test_features_freeze_without_the_api_server_and_go_on_when_it_is_back(
    scene: Scene, fake_nodes: Nodes, tmp_path: Path
) -> None:
    nodes = fake_nodes(2, cpu="16")
    scene.report(nodes)
    scene.configure(colocation_config={"enable": True})
    documented = certified(scene.plane, "cotenant-manager", scene.namespace)
    with (
        FaultProxy(scene.plane, tmp_path, documented) as fault_proxy,
        scene.manager(fault_proxy.kubeconfig, elect=False) as manager,
    ):

        def standing() -> ControllerCondition:
            return manager.board.states["colocation"].standing

        wait_for("batch resources", lambda: scene.lent(nodes))
        # the nodes have them before the round ends, and its end is told
        wait_for("the first round's end", lambda: "colocation" in manager.board.states)
        before = scene.allocatable(nodes)
        fault_proxy.refuse()
        wait_for("a frozen feature", lambda: standing() is ControllerCondition.UNREACHABLE)
        frozen = manager.rounds("colocation")
        scene.configure(colocation_config={"enable": False})
        wait_for("further tries", lambda: all(m.error is not None for m in manager.mirrors.values()))
        assert scene.allocatable(nodes) == before
        assert manager.rounds("colocation") == frozen
        fault_proxy.accept()
        wait_for("bare nodes", lambda: BATCH_CPU not in scene.allocatable(nodes)[nodes[0]], 60)
        wait_for("a working feature", lambda: standing() is ControllerCondition.UP)
