"""Certificates are replaced again and again while callers call at 100 requests a second; no call is tried twice.

.venv/bin/python -m bench.admission.certificate_rotation [--calls 10000] [--server-calls 3000]

Half of the calls go over kept connections, half over new ones. The webhook's own authority rolls over step by step
(a successor joins, signs, is alone), and callers learn of each bundle after the step. The extender's files are written
one after another, so that pairs that do not fit lie there for a moment. Beside them a real API server calls the webhook
of quotas, which fails closed, through one roll-over of its authority.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

from bench.record import Row, above, below, record
from cotenant.admission.settings import AdmissionSettings
from cotenant.admission.webhook_server.certificates import CertificateController, FolderStore, Injector
from cotenant.scheduler_ext.extender.serve import server as extender_server
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.watch.feed import SnapshotFeed
from tests.admission.bodies import QUOTAS, pod, quota
from tests.admission.serving import review_of
from tests.admission.serving import serving as webhook_serving
from tests.cluster.accounts import account
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import ENFORCED, WEBHOOK, judges_quotas, running
from tests.scheduler_ext.extender.serving import client_tls
from tests.scheduler_ext.extender.serving import serving as extender_serving
from tests.support.rotation_load import (
    POLICY,
    STEPS_SECONDS,
    AheadClock,
    LoadOutcome,
    RollingAuthority,
    RotationLoad,
    replace_files,
)

WEBHOOK_STEPS = 18
EXTENDER_ROTATIONS = 20
ALONE: dict[str, Any] = {"certificate_check_seconds": 3600.0}
"""The webhook's own keeper looks too late to put its authority into the place of the one that rolls over here."""


def webhook(folder: Path, calls: int) -> LoadOutcome:
    with webhook_serving() as server:
        authority = RollingAuthority(folder, server.server.show)
        body = json.dumps(review_of("pods", pod())).encode()

        def ask(connection: http.client.HTTPConnection) -> None:
            connection.request("POST", "/mutate-pod", body)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["response"]["allowed"]) == (200, True)

        load = RotationLoad(lambda: server.connect(authority.trusted), ask, calls)
        return load.run(lambda _: authority.step(), WEBHOOK_STEPS)


def extender(folder: Path, calls: int) -> LoadOutcome:
    extender_server.RELOAD_SECONDS = 0.01  # type: ignore[misc]  # each of its looks may meet a half-written pair
    both = b""
    for name in ("first", "second"):
        issue(folder / name, "https://127.0.0.1:1")
        both += (folder / name / "server" / "ca.crt").read_bytes()
    for name in ("first", "second"):
        for side in ("server", "scheduler"):
            (folder / name / side / "ca.crt").write_bytes(both)
    shown = folder / "shown"
    shutil.copytree(folder / "first" / "server", shown)
    contexts = {name: client_tls(folder / name) for name in ("first", "second")}
    caller = ["first"]

    def rotate(number: int) -> None:
        caller[0] = ("second", "first")[number % 2]
        replace_files(folder / caller[0] / "server", shown)

    def ask(connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        assert (response.status, b"passed" in response.read()) == (200, True)

    with extender_serving(SnapshotFeed(), ExtenderSettings(certificate_folder=str(shown))) as server:
        return RotationLoad(lambda: server.connect(contexts[caller[0]]), ask, calls).run(rotate, EXTENDER_ROTATIONS)


def through_the_api_server(folder: Path, calls: int) -> LoadOutcome:
    """Quotas are created in dry runs, as fast as four callers get answers; the API server decides about connections."""
    outcome, lock, numbers = LoadOutcome(), threading.Lock(), iter(range(calls))
    components = Options(components=frozenset({"kube-controller-manager"}))
    with ControlPlane(folder / "cluster", components) as plane, running(plane, folder / "pki", **ALONE) as service:
        space = create_namespace(plane.api(), "rotation", ENFORCED)
        injector = Injector(plane.client(account(plane, WEBHOOK)), AdmissionSettings())
        clock = AheadClock()
        keeper = CertificateController(FolderStore(folder / "short"), POLICY, clock, service.server.show, injector)
        keeper.step()
        wait_for("quotas are judged", lambda: judges_quotas(plane.api(), space))

        def call() -> None:
            api = plane.api()
            for _ in numbers:
                try:
                    api.create(QUOTAS.format(space), quota("probe"), dryRun="All")
                    failure = ""
                except ApiError as error:
                    failure = str(error)
                with lock:
                    outcome.answered += not failure
                    outcome.failures += [failure] if failure else []

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number, ahead in enumerate(STEPS_SECONDS):
            due = (number + 1) * calls / (len(STEPS_SECONDS) + 1)
            wait_for("its turn", partial(outcome.has_ended, due), 3600)
            clock.ahead_seconds = ahead
            keeper.step()
        for thread in threads:
            thread.join()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        outcomes = {
            "webhook, 18 steps of its authority": webhook(folder / "webhook", calls),
            "extender, 20 replacements of its files": extender(folder / "extender", calls),
            "webhook called by a real API server, one roll-over": through_the_api_server(folder / "server", calls),
        }
    rows = [
        row
        for name, outcome in outcomes.items()
        for row in (
            below(f"failed calls: {name}", len(outcome.failures), "calls", 0, (outcome.failures or [""])[0][:120]),
            above(f"answered: {name}", outcome.answered, "calls", calls),
        )
    ]
    rows.append(Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""))
    command = " ".join([".venv/bin/python -m bench.admission.certificate_rotation", *sys.argv[1:]])
    record("certificate_rotation", command, rows)


if __name__ == "__main__":
    main()
