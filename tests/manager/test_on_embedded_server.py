"""The same manager on the embedded API server that `cotenant demo` uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cotenant.base.controllers.feature import ControllerCondition
from cotenant.base.kube import connect
from cotenant.base.settings.sections.kube import KubeSettings
from cotenant.simulation.api_server import EmbeddedServer
from tests.contract.target import embedded_target
from tests.manager.scene import FORECASTS, RECOMMENDATIONS, SLO, Scene, deployed, results_of

pytestmark = pytest.mark.server


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    """A scene on a server of this process, with one node."""
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        target = embedded_target(server)
        plane = SimpleNamespace(
            api=target.api,
            kubeconfig=kubeconfig,
            client=lambda other=None, **given: connect(KubeSettings(kubeconfig=str(other or kubeconfig), **given)),
        )
        target.admin.create("/api/v1/namespaces", {"metadata": {"name": "small"}})
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        target.admin.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        scene = Scene(plane, "small", tmp_path)  # type: ignore[arg-type]
        scene.account = kubeconfig  # that server knows no accounts
        yield scene


def test_the_manager_does_its_work_on_the_embedded_server(small: Scene) -> None:
    small.report(["n1"])
    small.configure(colocation_config={"enable": True})
    manager = small.manager(features_off=[])
    manager.pipeline.accept(results_of(deployed(small), "n1"))
    try:
        manager.settle()
    finally:
        manager.stop()
    assert {state.standing for state in manager.board.states.values()} == {ControllerCondition.UP}
    assert small.lent(["n1"])
    assert small.api.exists(f"{SLO}/nodeslos/n1")
    assert small.api.exists(f"{FORECASTS}/n1")
    found = small.api.get(f"{RECOMMENDATIONS}/namespaces/small/recommendations/deployment-web")
    assert found["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "250m"
