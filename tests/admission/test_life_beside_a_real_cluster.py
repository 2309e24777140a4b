"""The webhooks beside a real API server: certificates, rights, what holds without them, their process."""

from __future__ import annotations

import http.client
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.authority import CertificatePolicy
from cotenant.admission.webhook_server.certificates import CertificateController, FolderStore, Injector, SecretStore
from cotenant.admission.webhook_server.service import WebhookService
from cotenant.base.process.clock import SystemClock
from tests.admission.bodies import PODS, QUOTAS, pod, quota
from tests.cluster.accounts import account
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import ENFORCED, WEBHOOK, judges_quotas, prepare, register, running, unregister
from tests.support.rotation_load import AheadClock

pytestmark = pytest.mark.server


def test_replicas_agree_on_one_certificate_in_the_secret(control_plane: ControlPlane, webhook: WebhookService) -> None:
    settings = AdmissionSettings()
    stores = [SecretStore(control_plane.client(account(control_plane, WEBHOOK)), settings) for _ in range(4)]
    shown: list[Any] = []
    policy = CertificatePolicy(("another.name",))
    keepers = [CertificateController(store, policy, SystemClock(), shown.append, None) for store in stores]
    replica_material, version = stores[0].read()
    assert replica_material is not None
    threads = [threading.Thread(target=keeper.step) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(shown) == 4 and len({pair.certificate for pair in shown}) == 1
    material, now = stores[0].read()
    assert material is not None and material.authority == replica_material.authority and now != version


def test_an_authority_rolls_over_without_a_failed_call(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Failed calls are seen because the quota webhook fails closed in this namespace."""
    with running(control_plane, tmp_path) as service:
        api = control_plane.api()
        enforce(api, namespace)
        # An hour of life and a minute of overlap: an authority is due after 40 minutes, and what is issued for the next
        # minutes is valid now already, being backdated by an hour.
        policy = CertificatePolicy(("127.0.0.1",), 1 / 24, 1 / 24, 60)
        injector = Injector(control_plane.client(account(control_plane, WEBHOOK)), AdmissionSettings())
        clock = AheadClock()
        keeper = CertificateController(FolderStore(tmp_path / "short"), policy, clock, service.server.show, injector)
        first = keeper.step()
        settled(api, namespace)
        failures: list[str] = []
        answered: list[int] = []
        stop = threading.Event()

        def call() -> None:
            mine = control_plane.api()
            while not stop.is_set():
                try:
                    mine.create(QUOTAS.format(namespace), quota("probe"), dryRun="All")
                    answered.append(1)
                except ApiError as error:
                    failures.append(str(error))

        caller = threading.Thread(target=call)
        caller.start()
        materials = [first]
        try:
            for ahead in (2460.0, 2530.0, 2600.0):  # the next authority joins, signs, the former leaves
                clock.ahead_seconds = ahead
                materials.append(keeper.step())
                before = len(answered)
                wait_for("ten more answers", lambda before=before: len(answered) > before + 10 or failures)
        finally:
            stop.set()
            caller.join(60)
        assert failures == []
        assert materials[1].following is not None
        assert materials[2].authority == materials[1].following and materials[2].former == first.authority.certificate
        assert materials[3].bundle == materials[2].authority.certificate


def enforce(api: Api, namespace: str) -> None:
    """The namespace's quotas wait for the webhook."""
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": ENFORCED}})
    settled(api, namespace)


def settled(api: Api, namespace: str) -> None:
    """The API server has read the present configuration: it is answered in our words."""
    wait_for("quotas are judged", lambda: judges_quotas(api, namespace))


def test_without_the_webhook_pods_are_created_and_enforced_quotas_wait(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    api = control_plane.api()
    with running(control_plane, tmp_path) as service:
        enforce(api, namespace)
        service.server.stop()
        for number in range(5):
            api.create(PODS.format(namespace), pod(f"p{number}", {"koordinator.sh/qosClass": "BE"}))
        with pytest.raises(ApiError, match="failed calling webhook") as refused:
            api.create(QUOTAS.format(namespace), quota("q"))
        assert refused.value.status == 500
        api.create(QUOTAS.format("default"), quota("unenforced"), dryRun="All")


def test_the_rights_that_we_ship_are_enough(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api()
    with running(control_plane) as service:
        assert service.keeper.error is None
        assert service.app.checks.report("readyz")[0]
        path = QUOTAS.format(namespace)
        api.create(path, quota(namespace[-50:].lstrip("-")))
        api.delete(f"{path}/{namespace[-50:].lstrip('-')}")  # counts pods


def test_the_command_serves_until_it_is_ended(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """In a process of its own, with a certificate in a folder; called by the API server, which keeps its connections
    open; ended as a pod is, within what Kubernetes grants many times over."""
    settings = AdmissionSettings()
    prepare(control_plane, settings)
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
    command += ["--set", "admission.certificate_check_seconds=0.5", "serve", "webhook", "--port", "0"]
    command += ["--kubeconfig", str(account(control_plane, WEBHOOK)), "--cert-dir", str(tmp_path), "--self-signed"]
    process = subprocess.Popen([*command, "--url", "https://127.0.0.1"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "serving webhooks on" in line)
        port = int(line.split("127.0.0.1:")[1].split()[0])
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))

        def ready() -> bool:
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
            connection.close()
            return status == 200

        wait_for("the process is ready", ready)
        register(control_plane.admin_client(), settings, f"https://127.0.0.1:{port}")
        wait_for("the API server calls it", lambda: renamed_on_arrival(control_plane.api(), namespace))
        callers = [threading.Thread(target=renamed_on_arrival, args=(control_plane.api(), namespace)) for _ in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        unregister(control_plane)
        process.kill()
        process.wait(30)


def renamed_on_arrival(api: Api, namespace: str) -> bool:
    """Whether a pod passes through us: an old resource name is translated without any profile."""
    labels, old = {"koordinator.sh/qosClass": "BE"}, {"koordinator.sh/batch-cpu": "1000"}
    body = pod("old", labels, {"priorityClassName": "koord-batch"}, requests=old, limits=old)
    live = api.create(PODS.format(namespace), body, dryRun="All")
    return live["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}


def test_a_certificate_of_our_own_needs_a_folder_when_asked_for() -> None:
    command = [
        sys.executable,
        "-c",
        "from cotenant.cli.main import run; run()",
        "serve",
        "webhook",
        "--self-signed",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "--self-signed needs --cert-dir" in done.stderr
