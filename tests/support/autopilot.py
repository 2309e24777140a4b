"""An autopilot on the embedded API server with its ledger: two workloads, one policy that observes; no manager.

with autopilot.embedded(tmp_path) as scene:
    scene.service().pause(APPROVER, "incident")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.autopilot.service import ClusterAutopilotService, autopilot_service_of
from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Role
from cotenant.base.store import Store
from cotenant.changes.soak.stop_switch import PAUSED_KEY, SWITCH_CONFIG_MAP
from cotenant.recommender.model.recommendation import Recommendation, Trust
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.changes.world import RESOURCES, recommended
from tests.cluster.api import Api, Json
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.support.plans import TestClock, person

NAMESPACE: Final = "shop"
POLICY: Final = f"{NAMESPACE}/nightly"
NOW: Final = 1_795_100_000.0
"""A Thursday, 12:53 UTC."""
HERE: Final = "/apis/cotenant.dev/v1alpha1/namespaces/shop/autopilotpolicies"
SWITCH: Final = f"/api/v1/namespaces/koordinator-system/configmaps/{SWITCH_CONFIG_MAP}"
SPEC: Final[Json] = {"mode": "Observe", "windows": ["mon-sun 20:00-06:00 Etc/UTC"], "neverTouch": ["SingleReplica"]}
APPROVER: Final = person(Role.APPROVER)
VIEWER: Final = person(Role.VIEWER)


@dataclass
class EmbeddedAutopilot:
    """What `embedded` makes. shop/web of two replicas should go from 1000m to 800m, shop/single of one as well."""

    server: EmbeddedServer
    api: Api
    settings: Settings
    clock: TestClock
    recommendations: list[Recommendation]

    def service(self, stored: Callable[[], Store] | None = None) -> ClusterAutopilotService:
        """On the scene's cluster and ledger. stored: opens the results of a scan."""
        return autopilot_service_of(self.settings, self._of_namespace, clock=self.clock, stored=stored)

    def policy(self) -> Json:
        """The policy as the server has it."""
        return dict(self.api.get(f"{HERE}/nightly"))

    def paused(self) -> str:
        """What the switch says; "" where there is none."""
        return str(self.api.get(SWITCH)["data"][PAUSED_KEY]) if self.api.exists(SWITCH) else ""

    def events(self) -> list[tuple[str, str]]:
        """(event, subject) of each row of the ledger."""
        if not Path(self.settings.actions.ledger).exists():
            return []
        ledger = Ledger(Path(self.settings.actions.ledger), reading=True)
        try:
            return [(row.event, row.subject) for row in ledger.entries()]
        finally:
            ledger.close()

    def _of_namespace(self, namespace: str) -> list[Recommendation]:
        return [
            recommendation
            for recommendation in self.recommendations
            if recommendation.container.workload.namespace == namespace
        ]


@contextmanager
def embedded(folder: Path) -> Iterator[EmbeddedAutopilot]:
    """A cluster with one ready node, two Deployments and a policy."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        install_crd(api, "autopilotpolicies.cotenant.dev")
        for namespace in (NAMESPACE, "koordinator-system"):
            api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": ready})
        workloads = [_deployment(api, "web", 2), _deployment(api, "single", 1)]
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "AutopilotPolicy", "metadata": {"name": "nightly"}}
        api.create(HERE, {**head, "spec": SPEC})
        document = {
            "kube": {"kubeconfig": str(server.write_kubeconfig(folder / "kubeconfig"))},
            "actions": {"ledger": str(folder / "ledger.db"), "anchor": False},
            "autopilot": {"enabled": True},
        }
        settings = msgspec.convert(document, Settings)
        advice = [replace(recommended(workload), trust=Trust(0.95)) for workload in workloads]
        yield EmbeddedAutopilot(server, api, settings, TestClock(NOW), advice)


def _deployment(api: Api, name: str, replicas: int) -> WorkloadRef:
    labels = {"app": name}
    containers = [{"name": "app", "image": "i", "resources": RESOURCES}]
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", {"metadata": {"name": name}, "spec": spec})
    return WorkloadRef(NAMESPACE, "Deployment", name)
