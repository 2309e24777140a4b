"""A webhook on a machine whose clock is wrong goes by the API server's: a manager that is there is waited for."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.admission.webhook_server.service import Certificates, WebhookService
from cotenant.base.kube import connect
from cotenant.base.kubernetes.moments import micro_moment
from cotenant.base.kubernetes.protocol import QUOTA_GATE
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import ShiftedClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.reservations.pod_gate import gates_of
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

PODS = "/api/v1/namespaces/shop/pods"
GUARD = "/apis/cotenant.dev/v1alpha1/swapguards"

pytestmark = [pytest.mark.server]


@pytest.mark.parametrize("ahead_seconds", [-600.0, 0.0, 600.0])
@pytest.mark.parametrize(("promised_seconds", "waits"), [(30.0, True), (-90.0, False)])
def test_gates_are_lifted_a_minute_after_a_promise_has_ended_by_the_time_of_the_api_server(
    tmp_path: Path, ahead_seconds: float, promised_seconds: float, waits: bool
) -> None:
    with EmbeddedServer() as server:
        api = embedded_api(server)
        install_crd(api, "swapguards.cotenant.dev")
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        container = {"name": "main", "image": "app"}
        spec = {"containers": [container], "schedulingGates": [{"name": QUOTA_GATE}]}
        api.create(PODS, {"metadata": {"name": "train"}, "spec": spec})
        until = micro_moment(time.time() + promised_seconds)
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "SwapGuard", "metadata": {"name": "swaps"}}
        api.create(GUARD, {**head, "spec": {"servedUntil": until, "queuesServedUntil": until}})
        kube = KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig")))
        with closing(connect(kube)) as client:
            certificates, settings = Certificates(tmp_path, True), AdmissionSettings(port=0)
            metrics, clock = Metrics("test", "3"), ShiftedClock(ahead_seconds)
            service = WebhookService(WebhookMirrors(client), settings, certificates, clock, metrics, "cotenant")
            service.watchdog.free_forgotten()
        assert gates_of(api.get(f"{PODS}/train")) == ((QUOTA_GATE,) if waits else ())
