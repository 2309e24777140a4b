"""The embedded API server with one node, as tests of queues that send their own objects want it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final

from cotenant.base.kube import connect
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.queues.service.queue_view import read_view
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import Api
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api

NOW: Final = 1_795_100_000.0


class EmbeddedCluster:
    """A node of 16 cores, the kinds and the namespaces that a subclass names."""

    kinds: ClassVar[tuple[str, ...]] = ("elasticquotas.scheduling.sigs.k8s.io",)
    namespaces: ClassVar[tuple[str, ...]] = ("shop",)

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self.api: Api = embedded_api(server)
        self.kube = KubeSettings(kubeconfig=str(server.write_kubeconfig(folder / "kubeconfig")))
        for kind in self.kinds:
            install_crd(self.api, kind)
        for name in self.namespaces:
            self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        self.api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})

    def view(self) -> QueueView:
        """What the manager reads of it."""
        with closing(connect(self.kube)) as client:
            return read_view(client, Settings(), NOW, lambda view: view)
