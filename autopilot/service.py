"""EDGE: the autopilot for people: status, preview, report, the pause switch, and approval of policies.

Reading needs the rights of a viewer. An approver of the namespace approves a policy in its present version; a policy
that is edited afterwards only observes until it is approved again. Every act is a row of the ledger.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from cotenant.autopilot import model
from cotenant.autopilot.decide.floors import lent_peaks
from cotenant.autopilot.decide.history import ActState, acts_of
from cotenant.autopilot.decide.policy import NamespacedPolicy, parse_policy
from cotenant.autopilot.decide.records import proposals_between, proposed_amounts
from cotenant.autopilot.decide.round_order import for_manifests, round_totals
from cotenant.autopilot.policy_draft import DraftClient, draft_write, parse_draft, require_name, strip_server_fields
from cotenant.autopilot.rounds.cluster_state import FIELD_MANAGER, mode_write, policy_address, switch_write
from cotenant.autopilot.rounds.floors import floor_forecasts
from cotenant.autopilot.rounds.hindsight import WEEK_DAYS, WeekAfter, weeks_after
from cotenant.autopilot.rounds.ledger_history import LedgerHistory, LedgerReader, append, require_known
from cotenant.autopilot.rounds.reading import EVERYWHERE, Recommended, RoundReading, RoundScope, read_round
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.errors import ClusterForbidden, NoData, UnseenVersion, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer, access_review
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.base.ledger.bucket_ledger import LedgerPlace
from cotenant.base.people import Person, Right
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.progress import SILENT, Progress
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.changes.audited_acts import AuditedActs, ClusterAccess
from cotenant.changes.live_context import who as person_of
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, accepted_by_autopilot
from cotenant.changes.model.service import BundleForm, ChangeRequest, FieldMove
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.sent_writes import sent
from cotenant.changes.service import ChangeServiceConfig, ClusterChangeService
from cotenant.changes.shared_reading import SharedReading
from cotenant.changes.soak.stop_switch import NOT_PAUSED
from cotenant.recommender.model.confidence_columns import confidence_cells
from cotenant.recommender.settings import RecommenderSettings

PATIENCE_SECONDS: Final = 90.0
"""Time that a person's act waits for another one to unlock the ledger."""
NAMING: Final = (Reason.AUTOPILOT_STOPPED, Reason.AUTOPILOT_CLUSTER_IN_TROUBLE)
"""Reasons why nothing is changed whose sentences can name workloads of any namespace."""


class ClusterAutopilotService:
    """The autopilot of one cluster; `access` opens clients with the rights of the person who asks."""

    def __init__(
        self,
        access: ClusterAccess,
        ledger: LedgerPlace,
        settings: SettingSections,
        clock: Clock,
        recommended: Recommended,
        stored: Callable[[], Store] | None = None,
    ) -> None:
        """Send no request yet. `stored` opens the store whose usage shows the effect of proposals."""
        self._stored = stored
        self._access, self._settings, self._clock, self._recommended = access, settings, clock, recommended
        self._ledger, self._anchor = ledger, anchor_namespace(settings)
        self._acts = AuditedActs(access, ledger, self._anchor)
        self._shared = {in_window: SharedReading(clock, self._reader(in_window)) for in_window in (False, True)}
        self._rounds: dict[bool, tuple[RoundReading, dict[frozenset[str] | None, model.AutopilotRound]]] = {}
        """By in_window: the latest reading, and its tables by what a person reads. A page asks for them four times."""
        self._week = SharedReading(clock, self._report)

    # --- looking ------------------------------------------------------------------------------------------------------
    def read(self, who: Person, scope: RoundScope = EVERYWHERE) -> RoundReading:
        """Decide a round now and return its part about the namespaces that the person may read."""
        who.require(Right.READ)
        with self._access(who) as client:
            reading = self._decide_round(client, self._history(), self._clock.now_seconds(), scope)
        return visible_to(reading, who)

    def round(self, who: Person, in_window: bool = False) -> model.AutopilotRound:
        """Return a round for pages, read with the program's own rights and shared by all callers for some seconds."""
        who.require(Right.READ)
        reading = self._shared[in_window].answer()
        latest, rounds = self._rounds.get(in_window, (None, {}))
        if latest is not reading:
            rounds = {}
            self._rounds[in_window] = reading, rounds
        if who.reads not in rounds:
            rounds[who.reads] = self._round_for_people(visible_to(reading, who))
        return rounds[who.reads]

    def report(self, who: Person, days: float) -> Table:
        """Return by namespace what was proposed, changed and verified in the last `days`."""
        who.require(Right.READ)
        rows = self._week.answer() if days == WEEK_DAYS else self._report(self._clock.now_seconds(), days)
        return Table.from_rows(model.REPORT, [row for row in rows if who.may(Right.READ, row["namespace"])])

    def _report(self, now_seconds: float, days: float = WEEK_DAYS) -> list[dict[str, Any]]:
        history = self._history()
        # The effect of proposals whose following week ended in these days.
        weeks: Sequence[WeekAfter] = ()
        end = now_seconds - WEEK_DAYS * DAY_SECONDS
        proposals = proposals_between(history.notes, end - days * DAY_SECONDS, end)
        if proposals and self._stored is not None:
            weeks = weeks_after(self._stored(), proposals, self._settings.section(RecommenderSettings).prices)
        return report_rows(history, now_seconds - days * DAY_SECONDS, weeks)

    def policy(self, who: Person, name: str) -> model.StoredPolicy:
        """Return the policy in the cluster, with the spec and digest that an approver would approve."""
        namespace, short = _split(name)
        who.require(Right.READ, namespace)
        with self._access(who) as client:
            live = _live(client, namespace, short)
        try:
            acting = _as_mode(live, model.AutopilotMode.ACT)
        except UsageError as error:
            return model.StoredPolicy(name, strip_server_fields(live), refused=f"{error.message}. {error.fix}")
        return model.StoredPolicy(name, strip_server_fields(live), acting.text, acting.digest)

    def try_policy(self, who: Person, body: Mapping[str, Any], progress: Progress = SILENT) -> model.AutopilotRound:
        """Return a round, with every change window open, in which this policy replaces the stored one of its name."""
        draft, document = parse_draft(body)
        who.require(Right.REVIEW, draft.namespace)
        with self._access(who) as client:
            progress.stage(model.ROUND_STAGES[0], 1)
            history, now_seconds = self._history(), self._clock.now_seconds()
            scope = RoundScope((draft.namespace,), in_window=True, progress=progress)
            with closing(DraftClient.of(client, document)) as drafting:
                reading = self._decide_round(drafting, history, now_seconds, scope)
        reading = visible_to(reading, who)
        policies = tuple(policy for policy in reading.policies if str(policy.policy) == str(draft))
        return self._round_for_people(replace(reading, policies=policies, queue=tuple(reading.of(draft))))

    def bundle(self, who: Person, form: BundleForm, namespaces: Sequence[str] = ()) -> Mapping[str, str]:
        """Return files by path with the next changes of workloads that a GitOps tool manages; the ledger gets a row.

        `namespaces`: only these, all if empty; change windows do not apply. Raises NoData if no such workload would
        change, NotAllowed if the person may not review one that would.
        """
        candidates = for_manifests(self.read(who, RoundScope(namespaces, in_window=True)).queue)
        steps = {candidate.workload: candidate.first for candidate in candidates}
        if not steps:
            fix = "cotenant autopilot preview says why each workload waits."
            raise NoData("the autopilot would change no workload of a GitOps tool now", fix=fix)
        config = ChangeServiceConfig(
            self._access,
            self._ledger,
            self._clock,
            self._settings.section(ActionSettings),
            recommended=lambda workloads: [r for workload in workloads for r in steps[workload]],
            requested_millicores=lambda: 0,
            anchor_namespace=self._anchor,
            recommender=self._settings.section(RecommenderSettings),
        )
        request = ChangeRequest(tuple(steps), key=f"{AUTOPILOT_KEY_PREFIX}{secrets.token_hex(4)}")
        return ClusterChangeService(config).bundle(who, request, form)

    # --- acting -------------------------------------------------------------------------------------------------------
    def save_policy(
        self, who: Person, body: Mapping[str, Any], before: Mapping[str, Any] | None, reason: str = ""
    ) -> str:
        """Create the policy (`before` is None) or replace its spec, which ends an approval; return its name."""
        policy, document = parse_draft(body)
        who.require(Right.APPROVE, policy.namespace)
        with self._access(who) as client:
            person, live = who.name or person_of(client).name, client.get(policy_address(policy).path)
            intent = draft_write(policy, document, before, live)
            self._send(client, intent, dry_run=True)
            details = {"digest": policy.digest, "spec": policy.text, "words": reason, "groups": list(who.groups)}
            self._write(person, model.AutopilotEvent.EDITED, str(policy), details)
            self._send(client, intent)
        self._forget()
        return str(policy)

    def pause(self, who: Person, reason: str = "") -> str:
        """Pause all changes from now on, then add a row to the ledger; return the text of the pause switch."""
        who.require(Right.APPROVE)
        with self._access(who) as client:
            name = who.name or person_of(client).name
            value = f"paused by {name}{f': {reason}' if reason else ''}"
            self._send(client, switch_write(self._settings.section(ManagerSettings).namespace, value))
        self._forget()  # it is paused, whether the row can be written or not
        self._write(name, model.AutopilotEvent.PAUSED, model.EVERYTHING, {"words": value})
        return value

    def resume(self, who: Person, workload: WorkloadRef | None = None, reason: str = "") -> None:
        """Resume the autopilot, or only one workload that it leaves alone or would retry later."""
        if workload is None:
            who.require_everywhere(Right.APPROVE)
        else:
            who.require(Right.APPROVE, workload.namespace)
        with self._access(who) as client:
            name = who.name or person_of(client).name
            on = switch_write(self._settings.section(ManagerSettings).namespace, NOT_PAUSED)
            if workload is None:
                self._send(client, on, dry_run=True)  # the row ends a stop: not without the right
            else:
                if not access_review(client, "patch", model.POLICIES, OWN_GROUP.partition("/")[0], workload.namespace):
                    fix = f"Ask for ClusterRole cotenant-autopilot-approver in namespace {workload.namespace}."
                    raise ClusterForbidden(
                        f"you may not patch {model.POLICIES} in namespace {workload.namespace!r}", fix=fix
                    )
                require_known(workload, self._history(), self._recommended)
            self._write(name, model.AutopilotEvent.RESUMED, str(workload or model.EVERYTHING), {"words": reason})
            if workload is None:
                self._send(client, on)
        self._forget()

    def act(self, who: Person, name: str, reason: str = "", digest: str = "") -> NamespacedPolicy:
        """Approve a policy (NAMESPACE/NAME) to act: first in the ledger, then in its spec.mode.

        Raises UsageError if the policy no longer has this `digest`; "" approves whatever version it has.
        """
        return self._switch_mode(who, name, model.AutopilotMode.ACT, reason, digest)

    def observe(self, who: Person, name: str, reason: str = "") -> NamespacedPolicy:
        """Withdraw the approval of a policy, which then only observes."""
        return self._switch_mode(who, name, model.AutopilotMode.OBSERVE, reason)

    def switch(self, who: Person, name: str, mode: model.AutopilotMode, reason: str = "", digest: str = "") -> None:
        """Let a policy act or only observe, if it still has this `digest`; to act, the digest is required."""
        if mode is model.AutopilotMode.ACT and not digest:
            who.require(Right.APPROVE, _split(name)[0])
            raise UnseenVersion(
                f"the approval of AutopilotPolicy {name} does not contain the digest of the approved version",
                fix="Read the policy, then send its digest, so that no later version is approved.",
            )
        self._switch_mode(who, name, mode, reason, digest)

    def _switch_mode(
        self, who: Person, name: str, mode: model.AutopilotMode, reason: str, digest: str = ""
    ) -> NamespacedPolicy:
        namespace, short = _split(name)
        who.require(Right.APPROVE, namespace)
        with self._access(who) as client:
            person = who.name or person_of(client).name
            policy = _as_mode(_live(client, namespace, short), mode)
            if digest and digest != policy.digest:
                raise UsageError(
                    f"AutopilotPolicy {name} was changed after you opened it: its digest is {policy.digest}",
                    fix="Review it again, and approve its present version.",
                )
            details = {"digest": policy.digest, "words": reason, "groups": list(who.groups)}
            write = mode_write(policy, mode.value)
            self._send(client, write, dry_run=True)  # who may not write the mode approves nothing
            event = model.AutopilotEvent.ACT if mode is model.AutopilotMode.ACT else model.AutopilotEvent.OBSERVE
            self._write(person, event, str(policy), details)
            self._send(client, write)
        self._forget()
        return policy

    def lines_of(self, act: Callable[[model.AutopilotService], object]) -> Sequence[FieldMove]:
        """Return the fields that the call in `act` would write, by the server's dry run; the ledger gets no row."""
        tried = _TriedAutopilot(self._access, self._ledger, self._settings, self._clock, self._recommended)
        act(tried)
        return tried.lines

    def _send(self, client: KubeClient, intent: Intent, *, dry_run: bool = False) -> None:
        Writer(client, FIELD_MANAGER).send(intent, dry_run)

    def _write(self, actor: str, event: model.AutopilotEvent, subject: str, body: dict[str, Any]) -> None:
        with self._acts.writing(f"{event} of {actor}", PATIENCE_SECONDS) as ledger:
            append(ledger, self._clock, actor, [(event, subject, body)])

    def _history(self) -> LedgerHistory:
        with self._acts.reading() as ledger:
            return LedgerReader().read(ledger)

    def _reader(self, in_window: bool) -> Callable[[float], RoundReading]:
        """Return a function that reads a round shared by all callers; it reads only new rows of the ledger."""
        rows, scope = LedgerReader(), RoundScope(in_window=in_window)

        def read(now_seconds: float) -> RoundReading:
            with self._acts.reading() as ledger:
                history = rows.read(ledger)
            with self._access(Person("")) as client:
                return self._decide_round(client, history, now_seconds, scope)

        return read

    def _decide_round(
        self, client: KubeClient, history: LedgerHistory, now_seconds: float, scope: RoundScope
    ) -> RoundReading:
        """Decide a round, with the replica forecasts of the store."""
        stored = self._stored
        if stored is not None:
            scope = replace(scope, forecasts=lambda: floor_forecasts(stored()))
        return read_round(client, history, self._recommended, self._settings, now_seconds, scope)

    def _round_for_people(self, reading: RoundReading) -> model.AutopilotRound:
        """Return a round's tables, the reason of a halt, and the gaps of the policies."""
        halt = reading.halt
        return model.AutopilotRound(
            reading.now_seconds,
            status_table(reading),
            queue_table(reading),
            halt.words if halt else "",
            halt.reason if halt else None,
            self._settings.section(AutopilotSettings).enabled,
            tuple(f"{policy.policy}: {policy.gap}" for policy in reading.policies if policy.gap),
            round_totals(reading.queue),
        )

    def _forget(self) -> None:
        self._week.forget()
        for shared in self._shared.values():
            shared.forget()


class _TriedAutopilot(ClusterAutopilotService):
    """A service whose acts are only dry runs, which collect what they would write in `lines`."""

    lines: tuple[FieldMove, ...] = ()

    def _send(self, client: KubeClient, intent: Intent, *, dry_run: bool = False) -> None:
        if not dry_run:
            self.lines += sent(Writer(client, FIELD_MANAGER), intent, dry_run=True).lines

    def _write(self, actor: str, event: model.AutopilotEvent, subject: str, body: dict[str, Any]) -> None:
        """Write no row, since nothing is done."""


def visible_to(reading: RoundReading, who: Person) -> RoundReading:
    """Return the part of a round about the namespaces that the person may read.

    A halt's sentence that may name workloads of other namespaces is replaced by the general sentence of its reason.
    """
    policies = tuple(policy for policy in reading.policies if who.may(Right.READ, policy.policy.namespace))
    names = {str(policy.policy) for policy in policies}
    queue = tuple(entry for entry in reading.queue if entry.candidate.policy in names)
    halt = reading.halt
    if halt and halt.reason in NAMING and who.reads is not None:
        halt = replace(halt, words=SENTENCES[halt.reason])
    return replace(reading, policies=policies, queue=queue, halt=halt)


def status_table(reading: RoundReading) -> Table:
    """Return the table STATUS of `cotenant autopilot status`, one row per policy."""
    rows = [
        {
            "namespace": policy.policy.namespace,
            "policy": policy.policy.name,
            "asked": policy.policy.spec.mode,
            "mode": policy.does.value,
            "workloads": len(reading.of(policy.policy)),
            "queued": reading.queued(policy.policy),
            "under_way": reading.under_way(policy.policy),
            "narrowed": ", ".join(policy.narrowed),
            "reason": reading.reason(policy),
        }
        for policy in reading.policies
    ]
    return Table.from_rows(model.STATUS, rows)


def queue_table(reading: RoundReading) -> Table:
    """Return the table QUEUE with one row per workload, in the order in which the autopilot changes them."""
    rows = []
    for entry in reading.queue:
        candidate, floor = entry.candidate, reading.floors.get(entry.candidate.workload)
        row = {
            "place": entry.place,
            "decision": entry.verdict.value,
            "namespace": candidate.workload.namespace,
            "kind": candidate.workload.kind,
            "workload": candidate.workload.name,
            "policy": candidate.policy.rpartition("/")[2],
            **{f"{resource.value}_frees": candidate.savings.frees.amount(resource) for resource in Resource},
            **{f"{resource.value}_raises": candidate.savings.raises.amount(resource) for resource in Resource},
            **confidence_cells(candidate.trust),
            "score": candidate.score,
            "gitops": candidate.gitops,
            "reason": "" if entry.verdict is not model.QueueVerdict.WAIT else entry.reason.value,
            "words": entry.words,
        }
        if floor:
            row |= {"floor": floor.floor, "floor_from": floor.start_seconds, "floor_until": floor.end_seconds}
        rows.append(row)
    return Table.from_rows(model.QUEUE, rows)


def report_rows(history: LedgerHistory, since_seconds: float, weeks: Iterable[WeekAfter] = ()) -> list[dict[str, Any]]:
    """Return the rows of the report by namespace; only the last proposal of each workload counts."""
    rows: dict[str, dict[str, Any]] = {}

    def row(namespace: str) -> dict[str, Any]:
        zeros = {column.name: 0 for column in model.REPORT.columns if column.name != "namespace"}
        return rows.setdefault(namespace, {"namespace": namespace, **zeros})

    notes = [note for note in history.notes if note.seconds >= since_seconds]
    proposals = {note.subject: note for note in notes if note.event is model.AutopilotEvent.PROPOSED}
    for note in proposals.values():
        counts = row(note.subject.partition("/")[0])
        counts["proposed"] += 1
        for name, amount in proposed_amounts(note).items():
            counts[name] += amount
    for note in notes:
        if note.event is model.AutopilotEvent.LEFT_ALONE:
            row(note.subject.partition("/")[0])["left_alone"] += 1
    for lent in lent_peaks(notes):
        counts = row(lent.workload.namespace)
        counts["floors"] += 1
        counts["floor_replicas"] += lent.floor - lent.own
    states = {ActState.KEPT: "held", ActState.HARMFUL: "regressed"}
    for act in acts_of(history.statuses.values()):
        if act.accepted_seconds >= since_seconds:
            counts = row(act.workload.namespace)
            counts["changed"] += 1
            if column := states.get(act.state):
                counts[column] += 1
    for status in history.statuses.values():
        if accepted_by_autopilot(status) and status.accepted_seconds >= since_seconds and status.state.in_force:
            counts = row(status.change.namespace)
            frees, raises = status.change.savings.frees, status.change.savings.raises
            for resource in Resource:
                counts[f"{resource.value}_freed"] += frees.amount(resource)
                counts[f"{resource.value}_raised"] += raises.amount(resource)
    for week in weeks:
        counts = row(week.workload.namespace)
        counts["weeks"] += 1
        counts["week_cpu"] += round(week.freed[Resource.CPU])
        counts["week_memory"] += round(week.freed[Resource.MEMORY])
        counts["week_money"] += week.money
        counts["week_kills"] += week.kills
        counts["week_throttled"] += week.throttled_minutes
    return [rows[name] for name in sorted(rows)]


def _split(name: str) -> tuple[str, str]:
    namespace, _, short = name.partition("/")
    if not namespace or not short:
        raise UsageError(f"{name!r} is not NAMESPACE/NAME", fix="cotenant autopilot status lists the policies.")
    require_name(namespace, "namespace")
    require_name(short, "name")
    return namespace, short


def _as_mode(body: Mapping[str, Any], mode: model.AutopilotMode) -> NamespacedPolicy:
    return parse_policy({**body, "spec": {**(body.get("spec") or {}), "mode": mode.value}})


def _live(client: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    body = client.get(policy_address(NamespacedPolicy(namespace, name)).path)
    if body is None:
        raise NoData(f"there is no AutopilotPolicy {namespace}/{name}", fix="cotenant autopilot status lists all.")
    return body


def autopilot_service_of(
    settings: SettingSections,
    recommended: Recommended,
    access: ClusterAccess | None = None,
    clock: Clock | None = None,
    stored: Callable[[], Store] | None = None,
) -> ClusterAutopilotService:
    """Return the autopilot on the cluster and ledger of the settings; no request is sent yet.

    `recommended` returns a namespace's stored recommendations; `stored` opens the store, whose usage the report reads.
    """
    from cotenant.changes.access.kubeconfig_access import door_of

    ledger = ledger_location(settings.section(ActionSettings), os.environ)
    door = access or door_of(settings)
    return ClusterAutopilotService(door, ledger, settings, clock or SystemClock(), recommended, stored)
