"""EDGE: moves of pods for dashboard and REST API: the protocol of `rebalance.model.move_service` on a cluster.

Thread-safe. The cluster is read with the program's own rights, and one reading serves all users for some seconds;
writes use the rights of the person. A request is written to the ledger before the cluster changes, its outcome
afterwards. A move can be approved only if the present rebalancing round plans it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from cotenant.base.errors import ClusterAbsent, ClusterConflict, ClusterForbidden, NoData, UsageError
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Create, Intent
from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.ledger.bucket_ledger import LedgerPlace
from cotenant.base.people import IdentitySource, Person, Right
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.table import Table
from cotenant.changes.audited_acts import ActEvents, AuditedActs, ClusterAccess, LedgerSubject, signature
from cotenant.changes.live_context import who as asked_who
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.sent_writes import Sent, sent
from cotenant.changes.shared_reading import SharedReading
from cotenant.scheduler_ext.extender.settings import ExtenderSettings, LoadAwareSettings
from cotenant.scheduler_ext.rebalance.arguments import (
    DEFAULT_ARGS,
    MigrationArgs,
    RebalanceArgs,
    arguments_from_settings,
)
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading, read
from cotenant.scheduler_ext.rebalance.emptying.arguments import DEFAULT_EMPTYING, EmptyingArgs, emptying_configured
from cotenant.scheduler_ext.rebalance.migration.job import address_of
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import JobMove, job_of
from cotenant.scheduler_ext.rebalance.model.move_service import (
    EMPTYING_FEATURE,
    FEATURE,
    TO_BE_EMPTIED,
    JobCarrier,
    MigrationJobs,
    MoveEvent,
    MoveHistoryEntry,
    MoveOutcome,
    namespace_of,
    visible_pods,
    visible_to,
)
from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings
from cotenant.scheduler_ext.rebalance.model.tables import JOBS, RebalanceReport
from cotenant.scheduler_ext.rebalance.moves.emptied_nodes import FIELD_MANAGER, OPEN_AGAIN, EmptiedNodes, outcome_of
from cotenant.scheduler_ext.rebalance.moves.jobs import (
    APPROVED_BY_ANNOTATION,
    carrier_of,
    job_rows,
    open_job_of,
    withdraw_job,
)
from cotenant.scheduler_ext.rebalance.rebalance_report import emptying_report_of, report_of

STATUS_CONFIG_MAP: Final = "cotenant-status"
HISTORY_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class MoveServiceConfig:
    """Dependencies of a `ClusterMoveService`. A copy of the ledger's last hash is in `anchor_namespace`, nowhere if "".

    `namespace` is the manager's. `configured` is False if the arguments are the built-in defaults. With
    `by_koordinator`, Koordinator's own descheduler executes the jobs.
    """

    access: ClusterAccess
    ledger: LedgerPlace
    clock: Clock
    load_aware: LoadAwareSettings
    anchor_namespace: str = ""
    namespace: str = SYSTEM_NAMESPACE
    arguments: RebalanceArgs = DEFAULT_ARGS
    emptying: EmptyingArgs = DEFAULT_EMPTYING
    configured: bool = False
    with_forecast: bool = True
    by_koordinator: bool = False


class ClusterMoveService:
    """Shows the planned moves, PodMigrationJobs and nodes to be emptied of one cluster, and carries out approvals."""

    def __init__(self, config: MoveServiceConfig) -> None:
        self._config = config
        self._acts = AuditedActs(config.access, config.ledger, config.anchor_namespace)
        clock, how = config.clock, {"with_forecast": config.with_forecast, "configured": config.configured}
        self._reading = SharedReading(clock, self._read)
        self._round = SharedReading(clock, lambda _: report_of(self._reading.answer(), config.arguments, **how))
        self._emptying = SharedReading(
            clock, lambda _: emptying_report_of(self._reading.answer(), config.emptying, **how)
        )
        self._jobs = SharedReading(clock, self._list_jobs)

    # --- looking ------------------------------------------------------------------------------------------------------
    def report(self, who: Person) -> RebalanceReport:
        """Return LowNodeLoad's round, at most two minutes old, with only the pods that the person may see."""
        who.require(Right.READ)
        return visible_to(self._round.answer(), who)

    def emptying(self, who: Person) -> RebalanceReport:
        """Return HighNodeLoad's round, at most two minutes old, with only the pods that the person may see."""
        who.require(Right.READ)
        return visible_to(self._emptying.answer(), who)

    def jobs(self, who: Person) -> MigrationJobs:
        """Return the PodMigrationJobs of pods that the person may see."""
        who.require(Right.READ)
        listed = self._jobs.answer()
        return replace(listed, jobs=visible_pods(listed.jobs, who))

    def history(self, who: Person) -> Sequence[MoveHistoryEntry]:
        """Return the ledger's latest entries about moves and emptied nodes that the person may see, newest first."""
        who.require(Right.READ)
        events = set(MoveEvent)
        with self._acts.reading() as ledger:
            rows = [
                row
                for row in ledger.entries()
                if row.event in events and who.may(Right.READ, namespace_of(row.subject))
            ]
        return [
            MoveHistoryEntry(
                row.seconds,
                row.actor,
                MoveEvent(row.event),
                row.subject,
                str(msgspec.json.decode(row.body).get("words", "")),
            )
            for row in reversed(rows[-HISTORY_ROWS:])
        ]

    def _read(self, now_seconds: float) -> RebalanceReading:
        with self._acts.client(Person("")) as client:
            return read(client, self._config.load_aware, now_seconds, self._config.namespace)

    def _list_jobs(self, now_seconds: float) -> MigrationJobs:
        with self._acts.client(Person("")) as client:
            rows = self._rows(client)
            table, carrier = Table.from_rows(JOBS, rows), self._carrier(client, FEATURE)
            emptier = self._carrier(client, EMPTYING_FEATURE) if carrier.carries else carrier
            return MigrationJobs(now_seconds, table, carrier, emptier)

    @staticmethod
    def _rows(client: KubeClient) -> list[dict[str, Any]]:
        """Return the cluster's jobs as rows; an empty list if their CRD is not installed."""
        try:
            return job_rows(client.list(address_of("").collection, dict[str, Any]))
        except ClusterAbsent:
            return []

    def _carrier(self, client: KubeClient, feature: str) -> JobCarrier:
        if self._config.by_koordinator and feature == FEATURE:
            return JobCarrier()
        try:
            status = client.get(Address("v1", "configmaps", STATUS_CONFIG_MAP, self._config.namespace).path)
        except ClusterForbidden as error:
            return JobCarrier(f"Whether the manager executes moves is unknown: {error.message}.", "cotenant doctor")
        return carrier_of(status, feature)

    # --- acting -------------------------------------------------------------------------------------------------------
    def preview(self, who: Person, pods: Sequence[str]) -> Sequence[MoveOutcome]:
        """Send the jobs of these pods as a server-side dry run; neither the cluster nor the ledger changes."""
        self._require(who, pods)
        with self._acts.client(who) as client:
            planned, by = self._load_planned_moves(client, who), who.name or asked_who(client).name
            return [planned.tried(pod, by) for pod in pods]

    def approve(self, who: Person, pods: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Create the PodMigrationJobs of these pods one by one; after a refusal the other pods still get theirs."""
        self._require(who, pods)
        with self._acts.acting(who, "approve moves", self._config.clock) as (client, subject):
            planned = self._load_planned_moves(client, who)
            outcomes = [planned.approved(subject(pod), reason.strip()) for pod in pods]
        self._forget_rounds()
        return outcomes

    def withdraw(self, who: Person, job: str, reason: str = "") -> MoveOutcome:
        """Delete a Pending job; the API server refuses the deletion if the job has changed since it was read."""
        who.require(Right.APPROVE)
        with self._acts.acting(who, "withdraw a move", self._config.clock) as (client, subject):
            body = client.get(address_of(job).path)
            pod = job_rows([body])[0]["pod"] if body is not None else ""
            if body is None or not who.may(Right.READ, namespace_of(pod)):
                raise NoData(f"PodMigrationJob {job} does not exist", fix="Nothing to do: the job is gone.")
            who.require(Right.APPROVE, namespace_of(pod))
            intent = withdraw_job(body)
            events = ActEvents(MoveEvent.ASKED, MoveEvent.WITHDRAWN, MoveEvent.REFUSED)
            subject(pod).carry_out(events, lambda: intent, Writer(client, FIELD_MANAGER).send, reason.strip())
        self._forget_rounds()
        return MoveOutcome(pod, job)

    def preview_nodes(self, who: Person, nodes: Sequence[str]) -> Sequence[MoveOutcome]:
        """Send the emptying taints of these nodes as a server-side dry run; neither cluster nor ledger changes."""
        begun_nodes = self._begun(who, nodes)
        with self._acts.client(who) as client:
            return [EmptiedNodes(client, begun_nodes).tried(node) for node in nodes]

    def approve_nodes(self, who: Person, nodes: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Taint these nodes one by one so that they are emptied; after a refusal the others are still tainted."""
        begun_nodes = self._begun(who, nodes)
        with self._acts.acting(who, "empty nodes", self._config.clock) as (client, subject):
            planned = EmptiedNodes(client, begun_nodes)
            outcomes = [planned.approved(subject(node), reason.strip()) for node in nodes]
        self._forget_rounds()
        return outcomes

    def withdraw_node(self, who: Person, node: str, reason: str = "") -> MoveOutcome:
        """Remove a node's emptying taint: moves under way continue, but the manager starts no new ones."""
        who.require_everywhere(Right.APPROVE)
        with self._acts.acting(who, "stop emptying a node", self._config.clock) as (client, subject):
            outcome = EmptiedNodes(client).withdrawn(subject(node), reason.strip())
        self._forget_rounds()
        return outcome

    def _begun(self, who: Person, nodes: Sequence[str]) -> frozenset[str]:
        """Return the nodes that the round starts to empty; NotAllowed, or UsageError if nothing would empty them."""
        if not nodes:
            raise UsageError("no node is chosen", fix="Name at least one node.")
        who.require_everywhere(Right.APPROVE)
        emptier = self._jobs.answer().emptier
        if not emptier.carries:
            raise UsageError(emptier.why_not, fix=emptier.command)
        rows = self._emptying.answer().emptying.rows()
        return frozenset(row["node"] for row in rows if row["decision"] == TO_BE_EMPTIED)

    def _forget_rounds(self) -> None:
        """Drop the cached readings, so that the next request reads the cluster with its new jobs and taints."""
        for reading in (self._reading, self._round, self._emptying, self._jobs):
            reading.forget()

    def _require(self, who: Person, pods: Sequence[str]) -> None:
        """Raise NotAllowed without the right to approve, or UsageError if nothing would execute the moves."""
        if not pods:
            raise UsageError("no move is chosen", fix="Name at least one pod as NAMESPACE/NAME.")
        for pod in pods:
            who.require(Right.APPROVE, namespace_of(pod))
        carrier = self._jobs.answer().carrier
        if not carrier.carries:
            raise UsageError(carrier.why_not, fix=carrier.command)

    def _load_planned_moves(self, client: KubeClient, who: Person) -> _PlannedMoves:
        moves = {row["pod"]: row for row in self.report(who).moves.rows() if row["decision"] == "move"}
        # On the loopback a person has the API server's name already; a login may have another one there.
        known_as = signature(who, client, who.name) if who.way is IdentitySource.OIDC else ""
        return _PlannedMoves(client, moves, self._rows(client), self._config.arguments.migration, known_as)


@dataclass(frozen=True, slots=True)
class _PlannedMoves:
    """A round's moves by pod and the cluster's job rows, with a person's client and the arguments of new jobs.

    `known_as` is the person's name at the API server if it differs from that in the ledger; it signs the jobs.
    """

    client: KubeClient
    moves: Mapping[str, Mapping[str, Any]]
    jobs: Sequence[Mapping[str, Any]]
    arguments: MigrationArgs
    known_as: str = ""

    def job(self, pod: str, by: str) -> Create:
        """Return the job that moves a pod; UsageError if the round no longer plans the move or another job has it."""
        if under_way := open_job_of(self.jobs, pod):
            raise UsageError(f"job {under_way} is already moving pod {pod}", fix="Wait until the job has ended.")
        row = self.moves.get(pod)
        if row is None:
            raise UsageError(f"pod {pod} is no longer planned to be moved", fix=OPEN_AGAIN)
        namespace, _, name = pod.partition("/")
        body = self.client.get(Address("v1", "pods", name, namespace).path) or {}
        meta, node = body.get("metadata") or {}, (body.get("spec") or {}).get("nodeName")
        if meta.get("deletionTimestamp") or node != row["source"]:
            raise UsageError(f"pod {pod} is no longer on node {row['source']}", fix=OPEN_AGAIN)
        move = JobMove(pod, str(meta.get("uid") or ""), row["source"], row["target"], row["reason"])
        taken = {str(job["job"]) for job in self.jobs}
        return job_of(move, self.arguments, {"annotations": {APPROVED_BY_ANNOTATION: by}}, taken)

    def tried(self, pod: str, by: str) -> MoveOutcome:
        """Send the pod's job as a dry run; `by` would sign it."""
        return outcome_of(pod, lambda: self._send(self.job(pod, self.known_as or by), dry_run=True))

    def approved(self, row: LedgerSubject, reason: str) -> MoveOutcome:
        """Create the job for the pod of the ledger row; the request and its outcome go to the ledger."""
        events = ActEvents(MoveEvent.ASKED, MoveEvent.APPROVED, MoveEvent.REFUSED)
        act = partial(row.carry_out, events, lambda: self.job(row.name, self.known_as or row.by), self._send, reason)
        return outcome_of(row.name, act)

    def _send(self, job: Intent, *, dry_run: bool = False) -> Sent:
        try:
            return sent(Writer(self.client, FIELD_MANAGER), job, dry_run=dry_run)
        except ClusterConflict as error:
            fix = "Check whether the existing job has ended: kubectl get podmigrationjobs."
            raise UsageError(f"PodMigrationJob {job.address.name} already exists for this pod", fix=fix) from error


def move_service_of(
    settings: SettingSections, access: ClusterAccess | None = None, clock: Clock | None = None
) -> ClusterMoveService:
    """Return a service of moves that uses the cluster and the ledger of the settings. It sends no request yet."""
    from cotenant.changes.access.kubeconfig_access import door_of

    own = settings.section(DeschedulerSettings)
    return ClusterMoveService(
        MoveServiceConfig(
            access=access or door_of(settings),
            ledger=ledger_location(settings.section(ActionSettings), os.environ),
            clock=clock or SystemClock(),
            load_aware=settings.section(ExtenderSettings).load_aware,
            anchor_namespace=anchor_namespace(settings),
            namespace=settings.section(ManagerSettings).namespace,
            arguments=arguments_from_settings(own.configuration).with_limits(own),
            emptying=emptying_configured(own.configuration).with_limits(own),
            configured=bool(own.configuration),
            with_forecast=own.mode == "forecast",
            by_koordinator=own.handled_by == "koordinator",
        )
    )
