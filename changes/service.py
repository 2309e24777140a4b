"""EDGE: changes for dashboard and REST API: the service protocol of `changes.model.service` on `Actions`, thread-safe.

Three kinds of call. Calls that act (accept, roll back, verify, settle) hold the ledger's lock, so that neither two
clicks nor two processes interleave. Calls that query the cluster (review, dry run) read the ledger without its lock.
Calls that only read (changes, ledger) open the file read-only and do not query the cluster. The person's role is
checked here for every call; `ClusterAccess` decides with whose rights the cluster is queried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import structlog

from cotenant.base.errors import (
    ClusterError,
    ClusterForbidden,
    ClusterUnreachable,
    CotenantError,
    KeyTaken,
    NoData,
    UsageError,
)
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.ledger.bucket_ledger import LedgerPlace
from cotenant.base.ledger.chain import Anchor
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import IdentitySource, NotAllowed, Person, Right
from cotenant.base.process.clock import BelievableClock, Clock, ServerClock, SystemClock
from cotenant.base.text import agree
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes import second_approval
from cotenant.changes.accept import AcceptanceTerms, ActionParts, Actions, dry_run_review, to_workload_review
from cotenant.changes.access.permissions import head_permission, permissions
from cotenant.changes.audited_acts import PATIENCE_SECONDS, AuditedActs, ClusterAccess
from cotenant.changes.bundle_export import commit_bundle, export_bundle
from cotenant.changes.change_ledger import ChangeLedger, read_anchored_heads, unkept
from cotenant.changes.decide.checks.trials import taken_of, trials_of
from cotenant.changes.decide.review import Review
from cotenant.changes.ledger_cache import LedgerCache, entry_of
from cotenant.changes.live_context import ClusterUser
from cotenant.changes.live_context import who as asked_who
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, ChangeState, ChangeStatus, cool_downs
from cotenant.changes.model.ladder import LADDER_KEY_PREFIX, LadderProgress, LadderStatus
from cotenant.changes.model.service import (
    BundleCommit,
    BundleForm,
    ChangeRequest,
    CommitBundle,
    LedgerEntry,
    LedgerHealth,
    Method,
    Permission,
    PostponedRecommendation,
    WorkloadReview,
    require_right,
)
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.model.trial import TakenStep, Trial
from cotenant.changes.shared_reading import BackgroundRefresh
from cotenant.changes.snooze import postponed_recommendations, recall, snooze
from cotenant.changes.soak.ladder_acts import go_back, ladders_of, stop_ladder
from cotenant.changes.soak.ladders import Ladders
from cotenant.changes.soak.reconcile import pace_of, settle, verify
from cotenant.changes.soak.watcher import News, Watcher, by_itself
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.settings import RecommenderSettings

GLANCE_SECONDS: Final = 10.0
"""Largest age of cached facts of the cluster."""
HEAD_WAIT_SECONDS: Final = 2.0
"""How long the ledger's health waits for the head that the cluster keeps."""

_log = structlog.get_logger(__name__)


def nothing_proposed(_: Collection[WorkloadRef]) -> Sequence[Recommendation]:
    """Return no recommendations; the default if no findings are available."""
    return ()


@dataclass(frozen=True, slots=True)
class ActDependencies(ActionParts):
    """Dependencies of every service that changes workloads."""

    access: ClusterAccess
    ledger: LedgerPlace
    clock: Clock


@dataclass(frozen=True, slots=True)
class ChangeServiceConfig(ActDependencies):
    """Dependencies of a `ClusterChangeService`.

    `for_autopilot` is true if the autopilot calls the service: only it may use request keys with the autopilot's
    prefix.
    """

    settings: ActionSettings
    recommended: Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]
    gpu_shares: Callable[[Collection[WorkloadRef]], Sequence[Recommendation]] = nothing_proposed
    """Returns the GPU shares that findings propose for these workloads."""
    switch_namespace: str = "koordinator-system"
    """Namespace of the stop switch, a ConfigMap that stops all automatic changes."""
    recommender: RecommenderSettings = field(default_factory=RecommenderSettings)
    """Settings of the format of bundles, and of the currency in them."""
    for_autopilot: bool = False


@dataclass(frozen=True, slots=True)
class AnchorObservation:
    """The cluster's last answer about the ledger's stored `head`; `trouble` says why no change is possible now."""

    trouble: str = ""
    head: Anchor | None = None
    words: str = ""


class ClusterChangeService:
    """Reviews, accepts, verifies and rolls back the changes of one cluster, with the rights of the calling person."""

    def __init__(self, config: ChangeServiceConfig) -> None:
        self._config = config
        self._known = LedgerCache()
        self._acts = AuditedActs(config.access, config.ledger, config.anchor_namespace)
        self._server_clock: ServerClock | None = None
        self._seen = BackgroundRefresh(self._read_head, AnchorObservation(), GLANCE_SECONDS)

    def review(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Compare the requested changes with the live workloads; return one review for each workload."""
        with self._open_for_reads(who) as actions:
            return [to_workload_review(review) for review in self._reviews(actions, who, request)]

    def dry_run(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Return the reviews of `review`, each with the result of a dry run on the API server."""
        with self._open_for_reads(who) as actions:
            reviews = self._reviews(actions, who, request)
            tried = ((to_workload_review(r), None if r.error else dry_run_review(actions, r)) for r in reviews)
            return [replace(shown, tried=of_review) for shown, of_review in tried]

    def accept(self, who: Person, request: ChangeRequest) -> list[ChangeStatus]:
        """Record the changes, then send those that need not wait; a request with a key used before changes nothing."""
        require_right(Right.ACCEPT, who, request)
        reserved = {AUTOPILOT_KEY_PREFIX: "the autopilot", LADDER_KEY_PREFIX: "steps of ladders"}
        prefix = next((beginning for beginning in reserved if request.key.startswith(beginning)), "")
        if prefix and not (self._config.for_autopilot and prefix == AUTOPILOT_KEY_PREFIX):
            message = f"the key {request.key!r} begins with {prefix!r}, which is reserved for {reserved[prefix]}"
            raise KeyTaken(message, fix="Use another idempotency key; nothing was changed.")
        what = f"{agree(len(request.workloads), 'workload is', 'workloads are')} changed for {who.name}"
        with self._writable_actions(who, what) as actions:
            statuses = actions.journal.statuses()
            earlier = [s for s in statuses.values() if s.change.batch == request.key]
            others = {s.change.workload for s in earlier} - {str(w) for w in request.workloads}
            if others:
                message = f"the key {request.key!r} was used before, to change {sorted(others)[0]}"
                raise KeyTaken(message, fix="Use a new key for a new request; nothing was changed.")
            if earlier:
                return earlier
            reviews = self._reviews(actions, who, request)
            return actions.accept(reviews, AcceptanceTerms(batch=request.key, **request.terms))

    def changes(self, who: Person) -> list[ChangeStatus]:
        """Return the changes in the namespaces that the person may read, the newest first."""
        who.require(Right.READ)
        statuses = self._statuses().values()
        mine = [s for s in statuses if who.may(Right.READ, s.change.namespace)]
        return sorted(mine, key=lambda s: -s.accepted_seconds)

    def story(self, who: Person, change: str) -> list[LedgerEntry]:
        """Return the ledger's rows about one change, the oldest first; raise NoData if there is no such change."""
        status = self._statuses().get(change)
        if status is None or not who.may(Right.READ, status.change.namespace):
            raise NoData(f"there is no change {change!r}", fix="The Changes page lists all changes.")
        with self._acts.reading() as ledger:
            return [entry_of(entry) for entry in ledger.entries(change)]

    def entries(self, who: Person) -> list[LedgerEntry]:
        """Return the ledger's rows, oldest first; a person limited to namespaces gets only rows about changes there."""
        who.require(Right.READ)
        statuses = self._statuses()
        hidden = {id_ for id_, s in statuses.items() if not who.may(Right.READ, s.change.namespace)}
        reads_everywhere = any(not grant.namespaces for grant in who.grants)
        with self._acts.reading() as ledger:
            visible_entries = (e for e in ledger.entries() if e.subject not in hidden)
            return [entry_of(e) for e in visible_entries if reads_everywhere or e.subject in statuses]

    def roll_back(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Roll back those of the changes with these ids that are in effect, each independently of the others."""
        what = f"{agree(len(changes), 'change is', 'changes are')} rolled back for {who.name}"
        with self._writable_actions(who, what) as actions:
            chosen = _select_changes(actions, who, changes)
            return [actions.roll_back(s) if s.state.in_force else s for s in chosen]

    def confirm(self, who: Person, change: str) -> list[ChangeStatus]:
        """Confirm a change as its second person and apply it with its whole batch.

        Raise NotAllowed if people do not log in, because the two persons cannot be told apart then.
        """
        if who.way is IdentitySource.LOOPBACK:
            raise NotAllowed("without a login there is no second person", fix="Set up a login: docs/access.md.")
        with self._writable_actions(who, f"{who.name} confirms a change as its second person") as actions:
            return second_approval.confirm(actions, who, change)

    def decline(self, who: Person, change: str) -> list[ChangeStatus]:
        """Cancel a change that waits for a second person, with its batch; the person who accepted it may do so too."""
        with self._writable_actions(who, f"{who.name} declines a change that waits for a second person") as actions:
            return second_approval.decline(actions, who, change)

    def ladders(self, who: Person) -> list[LadderProgress]:
        """Return the ladders (cuts in several steps) in the namespaces that the person may read, newest first."""
        who.require(Right.READ)
        with self._acts.reading() as ledger:
            ladders = self._known.ladders(ledger)
        return ladders_of(ladders, list(self._statuses().values()), pace_of(self._config.settings), who)

    def stop_ladder(self, who: Person, ladder: str, why: str = "") -> LadderStatus:
        """Stop a ladder (a cut in several steps): no further step is applied, and the applied steps stay."""
        with self._writable_actions(who, f"a ladder is stopped for {who.name}") as actions:
            return stop_ladder(actions, who, ladder, why)

    def go_back(self, who: Person, ladder: str, place: int) -> list[ChangeStatus]:
        """Stop a ladder and roll back its steps after step `place`, the last one first; 0 rolls back all steps."""
        with self._writable_actions(who, f"a ladder is rolled back for {who.name}") as actions:
            return go_back(actions, who, ladder, place)

    def verify(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Verify now those of the changes that are applied and have soaked; return their statuses."""
        what, verified = f"{agree(len(changes), 'change is', 'changes are')} verified for {who.name}", []
        with self._writable_actions(who, what) as actions:
            for status in _select_changes(actions, who, changes):
                if status.state is ChangeState.APPLIED:
                    with suppress(NoData):  # it still soaks
                        verified.append(verify(actions, status))
        return verified

    def settle(self, who: Person) -> list[ChangeStatus]:
        """Read the cluster to find the outcome of changes for which it is unknown, and return their statuses."""
        who.require(Right.ADMINISTER)
        with self._writable_actions(who, f"changes without an outcome are settled for {who.name}") as actions:
            return settle(actions)

    def bundle(self, who: Person, request: ChangeRequest, form: BundleForm) -> Mapping[str, str]:
        """Return the files of a bundle by path and record it in the ledger; the cluster is only read."""
        if request.gpu_shares and form is BundleForm.SSA:
            message = "form ssa cannot carry GPU shares: applying its files would remove the CPU and memory values"
            raise UsageError(message, fix="Choose another form, such as kustomize patches.")
        with self._writable_actions(who, f"a bundle is written for {who.name}") as actions:
            reviews = self._reviews(actions, who, msgspec.structs.replace(request, method=Method.BUNDLE))
            return export_bundle(actions, reviews, form, self._config.recommender, request.key)

    def commit(self, who: Person, request: ChangeRequest, branch: str, *, write: bool = False) -> BundleCommit:
        """Return the commit of the new values for the configured Git repository; if `write`, make it and record it."""
        require_right(Right.REVIEW, who, request)
        repository = self._config.settings.git_repository
        if not repository:
            raise UsageError("no Git repository is configured", fix="Set actions.git_repository to a folder.")
        what = f"a commit is made for {who.name}"
        with self._writable_actions(who, what) if write else self._open_for_reads(who) as actions:
            reviews = self._reviews(actions, who, msgspec.structs.replace(request, method=Method.BUNDLE))
            commit_request = CommitBundle(branch, repository, write)
            return commit_bundle(actions, reviews, commit_request, self._config.recommender, request.key)

    def snooze(self, who: Person, workloads: Sequence[WorkloadRef], days: float | None, reason: str) -> None:
        """Hide the workloads' recommendations for `days` days, or permanently if `days` is None."""
        require_right(Right.ACCEPT, who, ChangeRequest(tuple(workloads)))
        self._require_recommended(workloads)
        with self._open_change_ledger(who) as change_ledger:
            snooze(change_ledger, workloads, days, reason)

    def recall(self, who: Person, workloads: Sequence[WorkloadRef]) -> None:
        """Show the workloads' hidden recommendations again."""
        require_right(Right.ACCEPT, who, ChangeRequest(tuple(workloads)))
        self._require_recommended(set(workloads) - set(self.postponed()))  # what is hidden may be gone
        with self._open_change_ledger(who) as change_ledger:
            recall(change_ledger, workloads)

    def _require_recommended(self, workloads: Collection[WorkloadRef]) -> None:
        """Raise NoData if one of the workloads has no recommendation that could be hidden or shown."""
        if missing := set(workloads) - {r.container.workload for r in self._config.recommended(workloads)}:
            raise NoData(
                f"no recommendation for {min(missing)}", fix="`cotenant recs list --all` shows all that exist."
            )

    def cool_downs(self) -> Mapping[WorkloadRef, float]:
        """Return when (Unix seconds) the cool-down of each recently changed workload ends: no cuts before that."""
        now, wait = self._clock().now_seconds(), self._config.settings.guardrails.cool_down_hours * HOUR_SECONDS
        return cool_downs(self._statuses().values(), wait, now)

    def trials(self) -> Mapping[WorkloadRef, Sequence[Trial]]:
        """Return each workload's earlier changes that did harm or were rolled back, without reading the cluster."""
        return trials_of(self._statuses().values())

    def taken_steps(self, since_seconds: float) -> Mapping[WorkloadRef, TakenStep]:
        """Return each workload's last change, if by the ledger it is in effect and was sent after `since_seconds`."""
        return taken_of(self._statuses().values(), since_seconds)

    def postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        """Return the recommendations that are hidden now, by workload, without reading the cluster."""
        with self._acts.reading() as ledger:
            return postponed_recommendations(ledger, self._clock().now_seconds())

    def ledger(self) -> LedgerHealth:
        """Verify the ledger's chain of hashes from its first row, and compare its head with the one in the cluster."""
        cluster_head = self._seen.fresh(HEAD_WAIT_SECONDS)
        with self._acts.reading() as ledger:
            self._known.upto(ledger)
            verdict = ledger.verify(cluster_head.head)
        notes = [*(passed.why for passed in self._known.passed), cluster_head.words]
        head_is_kept, notes_told = cluster_head.head is not None and not verdict.wrong_seq, tuple(filter(None, notes))
        return LedgerHealth(verdict.rows, verdict.wrong_seq or 0, verdict.why, head_is_kept, notes_told)

    def watcher(self, report: Callable[[list[News]], None], ahead: Callable[[float], list[News]]) -> Watcher:
        """Return a watcher that acts as cotenant itself; `report` gets its notifications and those of `ahead`."""
        config = self._config
        climb = Ladders(config.recommended, config.switch_namespace, config.requested_millicores)

        def open_signed() -> AbstractContextManager[Actions]:
            return by_itself(self._writable_actions(Person(""), "the watcher runs"))

        return Watcher(open_signed, report, ahead, climb=climb)

    def trouble(self) -> str:
        """Return why no change can be made, "" if one can, by the last check; start another after `GLANCE_SECONDS`."""
        return self._seen.now().trouble

    def permissions(self, who: Person, namespaces: Sequence[str]) -> list[Permission]:
        """Return the person's rights, cluster-wide and by namespace, and cotenant's right to store the ledger head."""
        who.require(Right.READ)
        with self._client(who) as client:
            permission_list = permissions(client, namespaces)
        if self._config.anchor_namespace:
            with self._client(Person("")) as client:
                permission_list.append(head_permission(client, self._config.anchor_namespace))
        return permission_list

    def _reviews(self, actions: Actions, who: Person, request: ChangeRequest) -> list[Review]:
        require_right(Right.REVIEW, who, request)
        proposed = self._config.gpu_shares if request.gpu_shares else self._config.recommended
        recommendations = proposed(request.workloads)
        what = "no GPU share is proposed" if request.gpu_shares else "nothing is recommended"
        if not recommendations:
            raise NoData(f"{what} for these workloads", fix="Scan first: cotenant scan.")
        reviews = actions.review(recommendations, request.second_person, request.method, request.overridden)
        reviewed = {review.workload for review in reviews}
        without = [workload for workload in request.workloads if workload not in reviewed]
        return [*reviews, *(Review(workload, "", error=f"{what} for this workload") for workload in without)]

    @contextmanager
    def _open_for_reads(self, who: Person) -> Iterator[Actions]:
        """Yield actions for callers that write nothing."""
        with self._client(who) as client, self._acts.reading() as ledger:
            yield self._actions(client, ledger, who)

    @contextmanager
    def _writable_actions(self, who: Person, what: str) -> Iterator[Actions]:
        """Yield actions for callers that write, one at a time."""
        with self._client(who) as client, self._acts.writing(what, PATIENCE_SECONDS) as ledger:
            before = ledger.head().seq
            try:
                yield self._actions(client, ledger, who)
            finally:
                # Each new row as a line for log collectors, beside the ledger itself.
                for row in ledger.entries(after=before):
                    more = {"event_name": row.event, "change": row.subject, "actor": row.actor, "source": who.source}
                    _log.info("ledger_row", seq=row.seq, hash=row.hash, **more)

    def _clock(self) -> Clock:
        """Return our clock, corrected by the API server that answered last: soak times and snoozes use its time."""
        own = self._config.clock
        return BelievableClock(own, self._server_clock if isinstance(own, SystemClock) else None)

    def _actions(self, client: KubeClient, ledger: Ledger, who: Person) -> Actions:
        config = self._config
        named_person = ClusterUser(who.name, who.groups, who.way is not IdentitySource.LOOPBACK)
        person = named_person if who.name else asked_who(client)
        change_ledger = ChangeLedger(ledger, self._clock(), person.name, self._known, who.source)
        change_ledger.cluster = client.access.cluster
        parts = replace(config, anchor_namespace="")  # our own account keeps the head: `AuditedActs`
        return Actions(client, change_ledger, config.settings, person, parts)

    @contextmanager
    def _client(self, who: Person) -> Iterator[KubeClient]:
        with self._acts.client(who) as client:
            try:
                self._server_clock = client.server_clock
                yield client
            finally:
                self._seen.forget()

    @contextmanager
    def _open_change_ledger(self, who: Person) -> Iterator[ChangeLedger]:
        """Yield the change ledger for callers that write to the ledger alone."""
        self._seen.fresh(HEAD_WAIT_SECONDS)  # the time, too
        with self._acts.writing(f"{who.name} hides or recalls recommendations", PATIENCE_SECONDS) as ledger:
            yield ChangeLedger(ledger, self._clock(), who.name, self._known, who.source)

    def _statuses(self) -> dict[str, ChangeStatus]:
        with self._acts.reading() as ledger:
            return self._known.upto(ledger)

    def _read_head(self) -> AnchorObservation:
        """Read the ledger's head from the cluster, which also shows whether the API server answers."""
        namespace = self._config.anchor_namespace
        try:
            with self._config.access(Person("")) as client:
                self._server_clock = client.server_clock
                if not namespace:
                    client.get("/version")
                    off = "The ledger's head is not stored in the cluster: the setting actions.anchor is off."
                    return AnchorObservation(words=off)
                with self._acts.reading() as ledger:
                    return _anchor_observation(client, ledger, namespace)
        except CotenantError as error:
            message = f"The API server does not answer: {error.message}."
            return AnchorObservation(trouble=message, words=f"{message} The head in the cluster was not compared.")


def _anchor_observation(client: KubeClient, ledger: Ledger, namespace: str) -> AnchorObservation:
    try:
        anchor = read_anchored_heads(client, ledger, namespace)
    except ClusterForbidden as error:
        return AnchorObservation(words=f"cotenant may not read the ledger's head in the cluster: {error.message}.")
    except ClusterUnreachable:
        raise
    except ClusterError as error:
        return AnchorObservation(words=f"The ledger's head in the cluster was not compared: {error.message}.")
    nothing_yet = not anchor.others and not ledger.head().seq
    return AnchorObservation(head=anchor.head, words="" if anchor.head or nothing_yet else unkept(ledger, anchor))


def _select_changes(actions: Actions, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
    """Return the named changes; raise an error for those that the person may not read (as unknown) or not change."""
    every = actions.journal.statuses().items()
    statuses = {id_: status for id_, status in every if who.may(Right.READ, status.change.namespace)}
    if missing := [id_ for id_ in changes if id_ not in statuses]:
        raise NoData(f"there is no change {missing[0]!r}", fix="`cotenant recs changes` lists all ids.")
    for id_ in changes:
        who.require(Right.ACCEPT, statuses[id_].change.namespace)
    return [statuses[id_] for id_ in changes]
