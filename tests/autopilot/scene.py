"""An autopilot on a real control plane, with the manager's documented account: policies, rounds, a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from cotenant.autopilot.decide.floors import FloorForecast
from cotenant.autopilot.rounds.acts import ActConfig, ActOutcome, LedClient
from cotenant.autopilot.rounds.ledger_history import LedgerReader
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.autopilot.service import ClusterAutopilotService
from cotenant.base.errors import ClusterForbidden, NotLeader
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.bucket_ledger import open_ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import ShiftedClock
from cotenant.changes.decide.change_windows import is_open
from cotenant.changes.decide.regression_check import Compared
from cotenant.changes.model.change import ChangeStatus
from cotenant.recommender.model.recommendation import Recommendation, Trust
from cotenant.settings import Settings
from tests.changes.world import recommended
from tests.cluster.accounts import account, applier
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for

CRD = "autopilotpolicies.cotenant.dev"
APPROVER = Person("ann", grants=(Grant(Role.APPROVER),))
HOUR = 3600.0


@dataclass
class AutopilotScene:
    """One namespace, whose policies the manager's account follows; it may change workloads once `bound`."""

    plane: ControlPlane
    namespace: str
    folder: Path
    recommendations: list[Recommendation] = field(default_factory=list)
    forecasts: dict[WorkloadRef, FloorForecast] = field(default_factory=dict)
    ahead_seconds: float = 0.0
    leads: bool = True
    compared: tuple[Compared, ...] = ()
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        install_crd(self.plane.api(), CRD)
        self.kubeconfig = account(self.plane, "cotenant-manager", self.namespace)
        self.policies = f"/apis/cotenant.dev/v1alpha1/namespaces/{self.namespace}/autopilotpolicies"
        self.settings = msgspec.convert(
            {
                "autopilot": {
                    "enabled": True,
                    "ceiling": {"never_touch": ["LSE", "LSR"], "ways": ["InPlace", "RollOut"]},
                },
                "actions": {"ledger": str(self.folder / "ledger.db"), "soak_minutes": 5, "resize_seconds": 20},
                "manager": {"namespace": self.namespace, "write": True},
            },
            Settings,
        )
        self.reader = LedgerReader()

    def bind(self) -> None:
        """Let the manager change workloads here, as docs/autopilot.md has it."""
        group = "rbac.authorization.k8s.io"
        body = {
            "metadata": {"name": "cotenant-autopilot-act"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cotenant-applier"},
            "subjects": [{"kind": "ServiceAccount", "name": "cotenant-manager", "namespace": "cotenant"}],
        }
        self.plane.api().create(f"/apis/{group}/v1/namespaces/{self.namespace}/rolebindings", body)

    def policy(self, name: str = "nightly", **spec: Any) -> Json:
        """A policy, made."""
        kind = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "AutopilotPolicy"}
        return self.plane.api().create(self.policies, {**kind, "metadata": {"name": name}, "spec": spec})

    def status(self, name: str = "nightly") -> Json:
        """Status of a policy, as the server has it."""
        return self.plane.api().get(f"{self.policies}/{name}").get("status") or {}

    def recommend(self, workload: WorkloadRef, amount: int = 800, now: int = 1000, confidence: float = 0.95) -> None:
        """A stored recommendation of a workload's CPU request."""
        self.recommendations.append(replace(recommended(workload, amount, now), trust=Trust(confidence)))

    @contextmanager
    def access(self, _who: Person) -> Iterator[KubeClient]:
        """The manager's account, which writes while it leads."""
        with closing(self.plane.client(self.kubeconfig)) as client:
            led = LedClient.of(client, self._guard)
            with closing(led):
                yield led

    def rounds(self) -> Rounds:
        """Rounds of a process that has just started."""
        config = ActConfig(
            self.access,
            self.folder / "ledger.db",
            ShiftedClock(self.ahead_seconds),
            self.settings,
            anchor_namespace=self.namespace,
            compare=lambda *_: self.compared,
        )
        return Rounds(config, self._of_namespace, lambda: self.forecasts)

    def round(self) -> tuple[RoundReading, list[ChangeStatus], list[ActOutcome]]:
        """One round of a process that has just started: what was read, what moved, what was done."""
        rounds = self.rounds()
        reading = rounds.read(ShiftedClock(self.ahead_seconds).now_seconds())
        return reading, *rounds.carry_out(reading)

    def service(self) -> ClusterAutopilotService:
        """What people ask, here with an administrator's rights on the cluster."""

        @contextmanager
        def access(_who: Person) -> Iterator[KubeClient]:
            with closing(self.plane.client(self.approver())) as client:
                yield client

        clock = ShiftedClock(self.ahead_seconds)
        return ClusterAutopilotService(access, self.folder / "ledger.db", self.settings, clock, self._of_namespace)

    def approver(self) -> Path:
        """Kubeconfig of a person with the rights that docs/autopilot.md names for approvers."""
        applier(self.plane, self.namespace)
        group, api, name = "rbac.authorization.k8s.io", self.plane.api(), "cotenant-autopilot-approver"
        path = f"/apis/{group}/v1/namespaces/{self.namespace}/rolebindings"
        if not api.exists(f"{path}/{name}"):
            subject = {"apiGroup": group, "kind": "User", "name": "ann"}
            reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
            api.create(path, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
        file = self.plane.user("ann")
        client = self.plane.client(file)
        wait_for("the approver's rights", lambda: _may(client, f"{self.policies}"))
        client.close()
        return file

    def statuses(self) -> Sequence[ChangeStatus]:
        """Changes of the ledger, in their order."""
        with closing(open_ledger(self.folder / "ledger.db", reading=True)) as ledger:
            return tuple(self.reader.read(ledger).statuses.values())

    def events(self) -> list[str]:
        """Events of the ledger, in their order."""
        with closing(open_ledger(self.folder / "ledger.db", reading=True)) as ledger:
            return [row.event for row in ledger.entries()]

    def event_reasons(self, name: str) -> set[str]:
        """Reasons of the Events about an object of the namespace."""
        events = self.plane.api().items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return {event["reason"] for event in events if (event.get("regarding") or {}).get("name") == name}

    def _of_namespace(self, namespace: str) -> list[Recommendation]:
        return [
            recommendation
            for recommendation in self.recommendations
            if recommendation.container.workload.namespace == namespace
        ]

    def _guard(self) -> None:
        if not self.leads:
            raise NotLeader("another replica leads")


def shut_window(now_seconds: float) -> str:
    """Of the windows of two halves of the day the one that is shut now."""
    halves = ("daily 00:00-12:00 UTC", "daily 12:00-24:00 UTC")
    return next(window for window in halves if not is_open([window], now_seconds))


def _may(client: KubeClient, path: str) -> bool:
    try:
        client.list(path)
    except ClusterForbidden:
        return False
    return True
