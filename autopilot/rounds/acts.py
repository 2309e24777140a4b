"""EDGE: makes the changes of a round by the code that accepts a person's changes, and continues earlier changes.

Before every change the pause switch is read; if that fails, nothing is changed. All writes are sent under the Lease.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Self

import msgspec

from cotenant.autopilot.decide.policy import read_policy
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry, ended_rests, withheld
from cotenant.autopilot.model import METHODS
from cotenant.autopilot.rounds.cluster_state import policy_address
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.settings import Way
from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, CotenantError, NotLeader, StoreBusy
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kube import KubeClient
from cotenant.base.kube.connection import ApiRequest, ApiResponse
from cotenant.base.ledger.bucket_ledger import ledger_turn, open_ledger
from cotenant.base.people import Grant, Person, Role
from cotenant.base.settings.base import SettingSections
from cotenant.base.settings.sections import ManagerSettings
from cotenant.changes.accept import Actions, Guard, allow_every_write
from cotenant.changes.api_advice import describe_with_advice
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.change_windows import is_open
from cotenant.changes.decide.lifecycle import due
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.live_context import who as person_of
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, ChangeState, ChangeStatus, accepted_by_autopilot
from cotenant.changes.model.service import ChangeRequest, WorkloadReview
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.service import ActDependencies, ChangeServiceConfig, ClusterChangeService
from cotenant.changes.soak.reconcile import pace_of
from cotenant.changes.soak.stop_switch import read_switch
from cotenant.changes.soak.watcher import Watcher, WatchScope
from cotenant.recommender.settings import RecommenderSettings

PATIENCE_SECONDS: Final = 20.0
"""Time that a due write waits for another process to unlock the ledger."""


class LedClient(KubeClient):
    """A Kubernetes client that calls `guard` before each try of a write; `guard` raises NotLeader on other replicas."""

    guard: Callable[[], None]

    @classmethod
    def of(cls, client: KubeClient, guard: Callable[[], None]) -> Self:
        """Return a LedClient with the account of `client` and a connection of its own."""
        led = cls(client.access, client.settings, reload=client._reload)
        led.guard = guard
        return led

    def request(
        self, verb: str, request: ApiRequest, *, repeatable: bool = False, before: Callable[[], None] | None = None
    ) -> ApiResponse:
        """Send a request; `guard` is called before each write, but not before reads."""

        def require_lead() -> None:
            self.guard()
            if before is not None:
                before()

        return super().request(
            verb, request, repeatable=repeatable, before=before if request.method == "GET" else require_lead
        )


class ActWithheld(CotenantError):
    """Raised if the pause switch, a change window or the policy forbids a write that the round has decided."""


@dataclass(frozen=True, slots=True)
class ActConfig(ActDependencies):
    """Settings and services that a round's changes need; `access` opens clients that write only under the Lease."""

    settings: SettingSections


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """The outcome of one entry of the queue: the accepted changes, or why none was accepted.

    `paused`: the pause switch, a change window or a locked ledger interrupted it, so that it counts as no refusal.
    `is_forbidden`: the manager lacks a right.
    """

    workload: WorkloadRef
    changes: tuple[ChangeStatus, ...] = ()
    words: str = ""
    paused: bool = False
    is_forbidden: bool = False


class Acts:
    """Makes the changes that rounds decide for one cluster. Not thread-safe."""

    def __init__(self, config: ActConfig) -> None:
        self._config = config

    def carry_out(self, reading: RoundReading, entries: Sequence[QueueEntry]) -> Iterator[ActOutcome]:
        """Change one workload after another and yield each outcome; a pause, checked before each one, ends it."""
        for entry in entries:
            if why := self.paused():
                yield ActOutcome(entry.candidate.workload, words=why, paused=True)
                return
            yield self._act(reading, entry)

    def paused(self) -> str:
        """Return why nothing may be changed now, "" if changes are allowed. An unreadable switch is a reason."""
        try:
            with self._config.access(Person("")) as client:
                return read_switch(client, self._config.settings.section(ManagerSettings).namespace)
        except CotenantError as error:
            return f"the pause switch could not be read: {error.message}"

    def guard(self, reading: RoundReading) -> Guard:
        """Return the guard called before each write of a round's changes; it raises ActWithheld to prevent the write.

        Before every write it reads the pause switch. Before the first write of a change it also checks the change
        windows and reads the policy again.
        """
        candidates = {str(entry.candidate.workload): entry.candidate for entry in reading.queue}
        actions, clock = self._config.settings.section(ActionSettings), self._config.clock

        def check_write(workload: str, done: int) -> None:
            why = self.paused()
            if not why and not done:
                candidate = candidates.get(workload)
                why = withheld(candidate, actions, clock.now_seconds())
                if not why and candidate is not None:
                    why = self._policy_change_reason(reading, candidate)
            if why:
                raise ActWithheld(why)

        return check_write

    def _policy_change_reason(self, reading: RoundReading, candidate: QueueCandidate) -> str:
        """Return how the cluster's policy differs from the round's, or why it cannot be read; "" if it is the same."""
        policy = reading.force[candidate.policy].policy
        try:
            with self._config.access(Person("")) as client:
                live = client.get(policy_address(policy).path)
        except CotenantError as error:
            return f"policy {policy} could not be read again: {error.message}"
        is_same = live is not None and read_policy(live).digest == policy.digest
        return "" if is_same else f"policy {policy} was changed after the round was decided"

    def watch(self, reading: RoundReading) -> list[ChangeStatus]:
        """Settle, verify, continue and roll back earlier changes that are due; return those whose state changed.

        While the autopilot is paused or halted, the second parts of canaries wait.
        """
        ours = [s for s in reading.history.statuses.values() if accepted_by_autopilot(s)]
        may_change = not (reading.halt or self.paused())
        namespaces = sorted({s.change.namespace for s in ours})
        return [moved for name in namespaces for moved in self._process_namespace(name, ours, reading, may_change)]

    def _process_namespace(
        self, namespace: str, ours: Sequence[ChangeStatus], reading: RoundReading, may_change: bool
    ) -> list[ChangeStatus]:
        """Do what is due in a namespace by its most careful policy, else by the settings; return what moved.

        The second part of a canary is cancelled if no policy acts on its workload any more.
        """
        inside = [effective for effective in reading.force.values() if effective.policy.namespace == namespace]
        own = self._config.settings.section(ActionSettings)
        soak = max((effective.settings.soak_minutes for effective in inside), default=own.soak_minutes)
        groups = [own.windows, *(group for effective in inside for group in effective.limits.window_groups)]
        is_all_open = all(is_open(group, reading.now_seconds) for group in groups)
        settings = msgspec.structs.replace(own, soak_minutes=soak, auto_rollback=True)
        may_change = may_change and is_all_open
        inside_here = [s for s in ours if s.change.namespace == namespace]
        ended: list[ChangeStatus] = []
        rests = ended_rests(inside_here, [entry.candidate for entry in reading.queue], reading.unread)
        if rests:
            with self._open_actions(settings) as actions:
                now = actions.journal.statuses()
                still = [now[rest.change.id] for rest in rests if now[rest.change.id].state is ChangeState.WAITING]
                ended = [actions.cancel(rest, "no policy acts on the workload any more") for rest in still]
        if not due(inside_here, self._config.clock.now_seconds(), pace_of(settings, may_change)):
            return ended
        scope = WatchScope(
            lambda status: accepted_by_autopilot(status) and status.change.namespace == namespace,
            may_change,
            rechecks=False,
        )
        watcher = Watcher(lambda: self._open_actions(settings, self.guard(reading)), lambda _news: None, scope=scope)
        return [*ended, *watcher.step()]

    def _act(self, reading: RoundReading, entry: QueueEntry) -> ActOutcome:
        candidate = entry.candidate
        workload, under = candidate.workload, reading.force[candidate.policy]
        # The service of a person's clicks, with the settings of the policy and what it allows.
        config = self._config
        guarded = replace(config, guard=self.guard(reading), raising=(ClusterForbidden, ClusterUnreachable, NotLeader))
        service = ClusterChangeService(
            ChangeServiceConfig(
                **inherited_fields(guarded, ActDependencies),
                settings=under.settings,
                recommended=lambda _workloads: candidate.allowed,
                recommender=config.settings.section(RecommenderSettings),
                for_autopilot=True,
            )
        )
        someone = Person("", grants=(Grant(Role.OWNER, (workload.namespace,)),), source=f"autopilot {candidate.policy}")
        # The key names the workload's how manieth act it is, so that the same act is never done twice.
        batches = {s.change.batch for s in reading.history.statuses.values() if s.change.workload == str(workload)}
        text = f"{workload}#{sum(batch.startswith(AUTOPILOT_KEY_PREFIX) for batch in batches)}"
        key = f"{AUTOPILOT_KEY_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        share = under.limits.canary_share
        refusals: list[str] = []
        try:
            for way in entry.ways:
                # What rises at once rises in all pods: each of them can be killed next.
                is_canary = way is Way.IN_PLACE and share < 1 and candidate.urgent is None
                request = ChangeRequest((workload,), METHODS[way], canary=share if is_canary else 0.0, key=key)
                (review,) = service.dry_run(someone, request)
                if why := _refusal(review, way):
                    refusals.append(f"{way}: {why}")
                    continue
                return ActOutcome(workload, tuple(service.accept(someone, request)))
        except (NotLeader, ClusterUnreachable):
            raise  # the others would fail alike
        except (ActWithheld, StoreBusy) as error:
            return ActOutcome(workload, words=error.message, paused=True)
        except ClusterForbidden as error:
            return ActOutcome(workload, words=describe_with_advice(error), is_forbidden=True)
        except CotenantError as error:
            refusals.append(error.message)
        return ActOutcome(workload, words="; ".join(refusals) or "none of the policy's spec.ways can be used")

    @contextmanager
    def _open_actions(self, settings: ActionSettings, guard: Guard = allow_every_write) -> Iterator[Actions]:
        config = self._config
        with (
            config.access(Person("")) as client,
            ledger_turn(config.ledger, "the autopilot makes or verifies changes", PATIENCE_SECONDS),
            closing(open_ledger(config.ledger)) as ledger,
        ):
            person: ClusterUser = person_of(client)
            change_ledger = ChangeLedger(ledger, config.clock, person.name, source="autopilot")
            change_ledger.cluster = client.access.cluster
            yield Actions(client, change_ledger, settings, person, replace(config, guard=guard))


def _refusal(review: WorkloadReview, way: Way) -> str:
    if review.error or METHODS[way] in review.impossible:
        return review.error or review.impossible[METHODS[way]]
    if review.tried is not None and not review.tried.accepted:
        return f"{review.tried.words.rstrip('.')}. {review.tried.fix}".strip()
    return "; ".join(f"guardrail {rule.name}: {rule.why}" for rule in review.blocked(()))
