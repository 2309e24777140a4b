"""A job that cannot be read says so in its status, once, and goes on when it is corrected."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from cotenant.base.kube import Writer, connect
from cotenant.base.kubernetes.intent import Outcome
from cotenant.base.kubernetes.protocol import SCHEDULING_GROUP
from cotenant.base.settings.sections import KubeSettings
from cotenant.manager.features import mirrors_of
from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import MigrationController
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

pytestmark = [pytest.mark.server]

JOBS: Final = f"/apis/{SCHEDULING_GROUP}/podmigrationjobs"


def test_a_job_that_names_no_pod_has_a_status_that_says_so_until_it_is_corrected(tmp_path: Path) -> None:
    now = time.time()  # the server dates what is created
    with EmbeddedServer() as server:
        api = embedded_api(server)
        for name in ("podmigrationjobs", "reservations"):
            install_crd(api, f"{name}.scheduling.koordinator.sh")
        install_crd(api, "swapguards.cotenant.dev")
        head = {"apiVersion": SCHEDULING_GROUP, "kind": "PodMigrationJob", "metadata": {"name": "move"}}
        api.create(JOBS, {**head, "spec": {"podRef": {"namespace": "shop", "name": ""}}})
        with closing(connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(tmp_path / "config"))))) as client:
            mirrors = mirrors_of(client, Settings(), ("migrations",), threading.Event())
            for mirror in mirrors.values():
                mirror.list_once()
            controller = MigrationController(mirrors, DeschedulerSettings(), MigrationArgs())
            decision = controller.decide({}, now)
            (intent,) = decision.intents
            Writer(client, "cotenant-manager").send(intent)
            controller.sent([Outcome(intent)])
            status = api.get(f"{JOBS}/move")["status"]
            assert (status["phase"], status["reason"]) == ("Pending", "Unreadable")
            assert "podRef names no pod" in status["message"]
            assert [(note.reason, note.warning) for note in decision.notes] == [("Unreadable", True)]
            assert controller.decide({}, now).intents == ()
            api.patch(f"{JOBS}/move", [{"op": "replace", "path": "/spec/podRef/name", "value": "web-1"}], "json")
            mirrors["migration-jobs"].list_once()
            assert controller.decide({}, now).notes == ()
