"""EDGE: what people ask of the autopilot: status, preview, report, the switch, and who lets a policy act.

Reading needs the rights of a viewer. Act is switched on by an approver of the namespace, for the policy as it stands:
one that is changed afterwards observes until it is approved again. Every switch is a row of the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from autopilot.decide.history import ActState, acts_of
from autopilot.decide.policy import NamespacedPolicy, parse_policy
from autopilot.decide.queue import QueueEntry
from autopilot.rounds.cluster_state import NOT_PAUSED, policy_address, set_mode, set_switch
from autopilot.rounds.ledger_history import LedgerHistory, LedgerReader, append
from autopilot.rounds.reading import EVERYWHERE, PolicyReading, Recommended, RoundReading, RoundScope, read_round
from changes.audited_acts import AuditedActs
from changes.live_context import who as person_of
from changes.service import ClusterAccess
from cotenant.core.adapters.bucket_ledger import LedgerPlace
from cotenant.core.adapters.clock import Clock
from cotenant.core.adapters.kube import KubeClient, access_review
from cotenant.core.model.autopilot import (
    EVERYTHING,
    POLICIES,
    QUEUE,
    REPORT,
    STATUS,
    AutopilotEvent,
    AutopilotMode,
    QueueVerdict,
    accepted_by_autopilot,
)
from cotenant.core.model.changes.people import Right, Someone
from cotenant.core.model.errors import ClusterForbidden, NoData, UsageError
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.kubernetes.protocol import OWN_GROUP
from cotenant.core.model.resource import Resource
from cotenant.core.model.table import Table
from cotenant.core.model.usage.usage import DAY_SECONDS
from cotenant.core.settings.root import Settings

PATIENCE_SECONDS: Final = 90.0
"""How long a person waits for an act that is under way to give the ledger back."""


class AutopilotService:
    """The autopilot of one cluster. access: clients with the rights of the person who asks."""

    def __init__(
        self, access: ClusterAccess, ledger: LedgerPlace, settings: Settings, clock: Clock, recommended: Recommended
    ) -> None:
        """Nothing is asked yet."""
        self._access, self._settings, self._clock, self._recommended = access, settings, clock, recommended
        self._acts = AuditedActs(access, ledger, settings.manager.namespace if settings.actions.anchor else "")

    # --- looking ------------------------------------------------------------------------------------------------------
    def read(self, who: Someone, scope: RoundScope = EVERYWHERE) -> RoundReading:
        """A round that is decided now, of the namespaces that the person may read."""
        who.require(Right.READ)
        with self._access(who) as client:
            reading = read_round(
                client, self._history(), self._recommended, self._settings, self._clock.now_seconds(), scope
            )
        policies = tuple(one for one in reading.policies if who.may(Right.READ, one.policy.namespace))
        names = {str(one.policy) for one in policies}
        queue = tuple(entry for entry in reading.queue if entry.candidate.policy in names)
        return replace(reading, policies=policies, queue=queue)

    def report(self, who: Someone, days: float) -> Table:
        """What was proposed, changed and found in the last days, by namespace."""
        who.require(Right.READ)
        rows = report_rows(self._history(), self._clock.now_seconds() - days * DAY_SECONDS)
        return Table.from_rows(REPORT, [row for row in rows if who.may(Right.READ, row["namespace"])])

    # --- acting -------------------------------------------------------------------------------------------------------
    def pause(self, who: Someone, reason: str = "") -> str:
        """Stop every act from now on; what was written to the switch. The ledger's row comes after it."""
        who.require(Right.APPROVE)
        with self._access(who) as client:
            name = who.name or person_of(client).name
            value = f"paused by {name}{f': {reason}' if reason else ''}"
            set_switch(client, self._settings.manager.namespace, value)
        self._write(name, AutopilotEvent.PAUSED, EVERYTHING, {"words": value})
        return value

    def resume(self, who: Someone, workload: WorkloadRef | None = None, reason: str = "") -> None:
        """Go on with everything; with a workload, take back that it was left alone, rests or was given up."""
        if workload is None:
            who.require_everywhere(Right.APPROVE)
        else:
            who.require(Right.APPROVE, workload.namespace)
        with self._access(who) as client:
            name, anchor = who.name or person_of(client).name, self._settings.manager.namespace
            if workload is None:
                set_switch(client, anchor, NOT_PAUSED, dry_run=True)  # the row ends a stop: not without the right
            else:
                _require_switching(client, workload.namespace)
            self._write(name, AutopilotEvent.RESUMED, str(workload or EVERYTHING), {"words": reason})
            if workload is None:
                set_switch(client, anchor, NOT_PAUSED)

    def act(self, who: Someone, name: str, reason: str = "") -> NamespacedPolicy:
        """Let a policy (NAMESPACE/NAME) act as it stands. The ledger is written first, then spec.mode."""
        return self._switched(who, name, AutopilotMode.ACT, AutopilotEvent.ACT, reason)

    def observe(self, who: Someone, name: str, reason: str = "") -> NamespacedPolicy:
        """Take that back: it observes."""
        return self._switched(who, name, AutopilotMode.OBSERVE, AutopilotEvent.OBSERVE, reason)

    def _switched(
        self, who: Someone, name: str, mode: AutopilotMode, event: AutopilotEvent, reason: str
    ) -> NamespacedPolicy:
        namespace, _, short = name.partition("/")
        if not namespace or not short:
            raise UsageError(f"{name!r} is not NAMESPACE/NAME", fix="cotenant autopilot status lists the policies.")
        who.require(Right.APPROVE, namespace)
        with self._access(who) as client:
            person = who.name or person_of(client).name
            body = _live(client, namespace, short)
            body = {**body, "spec": {**(body.get("spec") or {}), "mode": mode.value}}
            policy = parse_policy(body)
            details = {"digest": policy.digest, "words": reason, "groups": list(who.groups)}
            set_mode(client, policy, mode.value, dry_run=True)  # who may not write the mode approves nothing
            self._write(person, event, str(policy), details)
            set_mode(client, policy, mode.value)
        return policy

    def _write(self, actor: str, event: AutopilotEvent, subject: str, body: dict[str, Any]) -> None:
        with self._acts.writing(f"{event} of {actor}", PATIENCE_SECONDS) as ledger:
            append(ledger, self._clock, actor, [(event, subject, body)])

    def _history(self) -> LedgerHistory:
        with self._acts.reading() as ledger:
            return LedgerReader().read(ledger)


def status_table(reading: RoundReading) -> Table:
    """One row a policy."""
    return Table.from_rows(STATUS, [_status(reading, one) for one in reading.policies])


def queue_table(reading: RoundReading) -> Table:
    """One row a workload, as the queue has them."""
    return Table.from_rows(QUEUE, [_entry(entry) for entry in reading.queue])


def report_rows(history: LedgerHistory, since_seconds: float) -> list[dict[str, Any]]:
    """Rows of the report, by namespace. Of proposals each workload's last one counts."""
    rows: dict[str, dict[str, Any]] = {}

    def row(namespace: str) -> dict[str, Any]:
        zeros = {column.name: 0 for column in REPORT.columns if column.name != "namespace"}
        return rows.setdefault(namespace, {"namespace": namespace, **zeros})

    notes = [note for note in history.notes if note.seconds >= since_seconds]
    proposals = {note.subject: note for note in notes if note.event is AutopilotEvent.PROPOSED}
    for note in proposals.values():
        counts = row(note.subject.partition("/")[0])
        counts["proposed"] += 1
        for resource in Resource:
            counts[f"{resource.value}_proposed"] -= int(note.details.get(f"{resource.value}_delta", 0))
    for note in notes:
        if note.event is AutopilotEvent.LEFT_ALONE:
            row(note.subject.partition("/")[0])["left_alone"] += 1
    states = {ActState.HELD: "held", ActState.HARMFUL: "regressed"}
    for act in acts_of(history.standings.values()):
        if act.accepted_seconds >= since_seconds:
            counts = row(act.workload.namespace)
            counts["changed"] += 1
            if column := states.get(act.state):
                counts[column] += 1
    for standing in history.standings.values():
        if accepted_by_autopilot(standing) and standing.accepted_seconds >= since_seconds and standing.state.in_force:
            counts = row(standing.change.namespace)
            counts["cpu_freed"] += standing.change.saved_millicores
            counts["memory_freed"] += standing.change.saved_bytes
    return [rows[name] for name in sorted(rows)]


def _require_switching(client: KubeClient, namespace: str) -> None:
    """ClusterForbidden unless the person may switch policies of the namespace."""
    if not access_review(client, "patch", POLICIES, OWN_GROUP.partition("/")[0], namespace):
        raise ClusterForbidden(
            f"you may not patch {POLICIES} in namespace {namespace!r}",
            fix="Ask for ClusterRole cotenant-autopilot-approver in that namespace.",
        )


def _live(client: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    body = client.get(policy_address(NamespacedPolicy(namespace, name)).path)
    if body is None:
        raise NoData(f"there is no AutopilotPolicy {namespace}/{name}", fix="kubectl get autopilotpolicies -A")
    return body


def _status(reading: RoundReading, one: PolicyReading) -> dict[str, Any]:
    return {
        "namespace": one.policy.namespace,
        "policy": one.policy.name,
        "asked": one.policy.spec.mode,
        "mode": one.does.value,
        "workloads": len(reading.of(one.policy)),
        "queued": reading.queued(one.policy),
        "under_way": reading.under_way(one.policy),
        "narrowed": ", ".join(one.narrowed),
        "reason": reading.reason(one),
    }


def _entry(entry: QueueEntry) -> dict[str, Any]:
    candidate = entry.candidate
    return {
        "place": entry.place,
        "decision": entry.verdict.value,
        "namespace": candidate.workload.namespace,
        "kind": candidate.workload.kind,
        "workload": candidate.workload.name,
        "policy": candidate.policy.rpartition("/")[2],
        "cpu": candidate.moved.get(Resource.CPU, 0),
        "memory": candidate.moved.get(Resource.MEMORY, 0),
        "confidence": candidate.confidence,
        "score": candidate.score,
        "reason": "" if entry.verdict is not QueueVerdict.WAIT else entry.reason.value,
        "words": entry.words,
    }
