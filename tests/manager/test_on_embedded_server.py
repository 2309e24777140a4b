"""The same manager on the embedded API server that `cotenant demo` uses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from cotenant.base.controllers.feature import ControllerCondition, condition_of_error
from cotenant.base.controllers.loop import AlwaysLeads
from cotenant.base.controllers.sender import Sender
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import connect
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import ShiftedClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.contract.target import embedded_target
from tests.manager.scene import FORECASTS, RECOMMENDATIONS, SLO, Scene, deployed, results_of

pytestmark = pytest.mark.server


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    """A cluster on a server of this process, with one node."""
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        target = embedded_target(server)
        plane = SimpleNamespace(
            api=target.api,
            kubeconfig=kubeconfig,
            client=lambda other=None, **options: connect(KubeSettings(kubeconfig=str(other or kubeconfig), **options)),
        )
        target.admin.create("/api/v1/namespaces", {"metadata": {"name": "small"}})
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        target.admin.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        small_cluster = Scene(plane, "small", tmp_path)  # type: ignore[arg-type]
        small_cluster.account = kubeconfig  # that server knows no accounts
        yield small_cluster


def test_the_manager_does_its_work_on_the_embedded_server(small: Scene) -> None:
    small.report(["n1"])
    small.configure(colocation_config={"enable": True})
    manager = small.manager(features_off=[])
    manager.pipeline.accept(results_of(deployed(small), "n1"))
    try:
        manager.settle()
    finally:
        manager.stop()
    assert {state.condition for state in manager.board.states.values()} == {ControllerCondition.UP}
    assert small.lent(["n1"])
    assert small.api.exists(f"{SLO}/nodeslos/n1")
    assert small.api.exists(f"{FORECASTS}/n1")
    live = small.api.get(f"{RECOMMENDATIONS}/namespaces/small/recommendations/deployment-web")
    assert live["status"]["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "250m"


def test_an_object_that_a_rule_of_the_cluster_refuses_holds_up_no_other_and_rests(small: Scene) -> None:
    bounds = [{"type": "Container", "max": {"cpu": "1"}}]
    body = {"metadata": {"name": "bounds"}, "spec": {"limits": bounds}}
    small.api.create("/api/v1/namespaces/small/limitranges", body)
    sender = Sender(small.plane.client(small.account), AlwaysLeads(), lambda: 0.0)
    pods = [created_pod(name, cpu) for name, cpu in (("large", "2"), ("small", "1"), ("other", "1"))]
    errors = {outcome.intent.address.name: outcome.error for outcome in sender.send(pods)}
    assert errors["small"] is errors["other"] is None and isinstance(errors["large"], ClusterDenied)
    assert "maximum cpu usage per Container is 1, but limit is 2" in str(errors["large"])
    assert condition_of_error(errors["large"]) is ControllerCondition.DEGRADED
    assert sender.due(pods[:1]) == [] and sender.refusal(pods[:1]) is errors["large"]


def created_pod(name: str, cpu: str) -> Create:
    address = Address("v1", "pods", name, "small")
    container = {"name": "main", "image": "example.invalid/a:1", "resources": {"limits": {"cpu": cpu}}}
    return Create(address, address.manifest("Pod", spec={"containers": [container]}))


@pytest.mark.slow
@pytest.mark.parametrize(("shift_seconds", "ttl", "phase"), [(3600.0, "30m", ""), (-3600.0, "1s", "Failed")])
def test_a_reservation_ends_by_the_clock_of_the_server_that_wrote_its_beginning(
    small: Scene, shift_seconds: float, ttl: str, phase: str
) -> None:
    """With the manager's clock an hour ahead every Reservation of less than an hour would end at once, and for good."""
    for name in ("reservations.scheduling.koordinator.sh", "swapguards.cotenant.dev"):
        install_crd(small.api, name)
    reservations = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "template": {"metadata": {"namespace": "small"}, "spec": {"containers": [container]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "ttl": ttl,
    }
    small.api.create("/api/v1/namespaces", {"metadata": {"name": PLACEHOLDER_NAMESPACE}})
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "evening"},
    }
    created_at = small.api.create(reservations, {**reservation, "spec": spec})["metadata"]["creationTimestamp"]
    wait_for("the server's clock goes on", lambda: time.time() > datetime.fromisoformat(created_at).timestamp() + 2)
    settings = small.settings()
    off = [name for name in NAMES if name != "reservations"]
    settings = msgspec.structs.replace(settings, manager=msgspec.structs.replace(settings.manager, features_off=off))
    client = connect(KubeSettings(kubeconfig=str(small.account)))
    manager = Manager(client, settings, Metrics("0", "3"), Options(elect=False), ShiftedClock(shift_seconds))
    try:
        manager.settle()
    finally:
        manager.stop()
    status = small.api.get(f"{reservations}/evening").get("status") or {}
    assert status.get("phase") == "Failed" if phase else status.get("phase") != "Failed"
