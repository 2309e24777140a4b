"""Reservation plans on the embedded API server, a service to act on them, and a dashboard in front.

    with plans.embedded(tmp_path) as scene:
        scene.plan("web-peak", status={"phase": "Proposed", ...})
        with scene.served() as url: ...

Nothing keeps plans there: a test writes the status that the manager would. A clock that the test sets is everybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kubernetes.moments import moment
from cotenant.base.ledger.chain import LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import ResultSource, StoreSource
from cotenant.scheduler_ext.reservations.acts import ApprovePlan
from cotenant.scheduler_ext.reservations.model.plan import DecisionScope, Plan
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef, PlanService
from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService, plan_service_of
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import Api, Json
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.support import dashboard as support

PLANS = "/apis/cotenant.dev/v1alpha1"
SIX = 1_803_578_400.0
"""18:00 UTC of a day: start of the window unless a test says another."""
HOUR = 3600.0
LEAD = 1150
NAMESPACE = "shop"


class TestClock:
    """A clock that stands where the test puts it."""

    __test__ = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now_seconds(self) -> float:
        return self.seconds


def person(role: Role, *namespaces: str, name: str = "ann") -> Person:
    """Somebody with one role."""
    return Person(name, grants=(Grant(role, namespaces),))


@dataclass
class Scene:
    """A server with one namespace, one node of 16 cores and a Deployment `web` whose pods ask for 2 cores."""

    api: Api
    settings: Settings
    folder: Path
    clock: TestClock = field(default_factory=lambda: TestClock(SIX - 6 * HOUR))
    who: Person = field(default_factory=lambda: person(Role.ADMIN))

    def plan(self, name: str = "web-peak", status: Json | None = None, **spec: Any) -> str:
        """Write a plan, with the status that the manager would give it."""
        spec_body = {
            "source": "Manual",
            "owner": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "amount": {"perPod": {"cpu": "2", "memory": "1Gi"}, "count": 4},
            **spec,
        }
        if spec_body["source"] != "Recurring" and "window" not in spec_body:
            spec_body["window"] = window()
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ReservationPlan", "metadata": {"name": name}}
        self.api.create(f"{PLANS}/namespaces/{NAMESPACE}/reservationplans", {**head, "spec": spec_body})
        self.say(name, status or {})
        return name

    def say(self, name: str, status: Json) -> None:
        """The status as the manager writes it."""
        proposed = {"phase": "Proposed", "window": window(), "reserveAt": moment(SIX - LEAD), "leadSeconds": LEAD}
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "ReservationPlan", "metadata": {"name": name}}
        body = {**head, "status": {**proposed, "count": 4, **status}}
        self.api.patch(f"{self.path(name)}/status", body, "apply", fieldManager="cotenant-manager", force="true")

    def change(self, name: str, pointer: str, value: Any) -> None:
        """Somebody else changes a field."""
        self.api.patch(self.path(name), [{"op": "add", "path": pointer, "value": value}], "json")

    def path(self, name: str) -> str:
        return f"{PLANS}/namespaces/{NAMESPACE}/reservationplans/{name}"

    def spec(self, name: str) -> Json:
        return dict(self.api.get(self.path(name))["spec"])

    def service(self) -> ClusterPlanService:
        """A service of its own on the scene's ledger."""
        return plan_service_of(self.settings, clock=self.clock)

    def rows(self) -> list[LedgerRow]:
        """The ledger."""
        ledger = Ledger(Path(self.settings.actions.ledger), reading=True)
        try:
            return list(ledger.entries())
        finally:
            ledger.close()

    def app(self, source: ResultSource | None = None, current_user: Callable[[], Person] | None = None) -> Any:
        """The dashboard with the service, on these results or on none."""
        own = StoreSource(Store((self.folder / "empty").as_uri(), "embedded"), support.QUICK)
        context = DashboardContext(current_user=current_user or (lambda: self.who), plans=self.service())
        return create_app(source or own, support.QUICK, self.clock, context)

    def served(
        self, source: ResultSource | None = None, current_user: Callable[[], Person] | None = None
    ) -> AbstractContextManager[str]:
        """The same behind a real server; gives its address."""
        return support.served(self.app(source, current_user))


def approval(
    service: PlanService, who: Person, ref: PlanRef, scope: DecisionScope = DecisionScope.SERIES, reason: str = "",
    standby: int | None = None,
) -> ApprovePlan:  # fmt: skip
    """The approval of a plan as it is read now."""
    generation = service.plan(who, ref).generation
    return ApprovePlan(plan=ref, scope=scope, reason=reason, standby=standby, generation=generation)


def approve(
    service: PlanService, who: Person, ref: PlanRef, scope: DecisionScope = DecisionScope.SERIES, reason: str = "",
    standby: int | None = None,
) -> Plan:  # fmt: skip
    """Approve a plan as it is read now."""
    plan: Plan = service.do(who, approval(service, who, ref, scope, reason, standby))
    return plan


def window(start: float = SIX, hours: float = 2.0) -> Json:
    """As in a plan."""
    return {"start": moment(start), "end": moment(start + hours * HOUR)}


def condition(kind: str, message: str, *, true: bool = False, reason: str = "Told") -> Json:
    """A condition of a status."""
    return {"type": kind, "status": str(true), "reason": reason, "message": message,
            "lastTransitionTime": moment(SIX - 2 * HOUR)}  # fmt: skip


@contextmanager
def embedded(folder: Path) -> Iterator[Scene]:
    """On the embedded API server; its ledger in the folder."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        install_crd(api, "reservationplans.cotenant.dev")
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", {"metadata": {"name": "web"}, "spec": spec})
        settings = msgspec.structs.replace(
            Settings(),
            kube=KubeSettings(kubeconfig=str(kubeconfig)),
            actions=ActionSettings(ledger=str(folder / "ledger.db"), anchor=False),
            plans=msgspec.structs.replace(Settings().plans, cluster_budget_fraction=1.0),
        )
        yield Scene(api, settings, folder)
