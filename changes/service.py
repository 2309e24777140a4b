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
    """Return no recommendations; the default where no findings are available."""
    return ()


@dataclass(frozen=True, slots=True)
class ActDependencies(ActionParts):
    """Dependencies of who changes workloads."""

    access: ClusterAccess
    ledger: LedgerPlace
    clock: Clock


@dataclass(frozen=True, slots=True)
class ChangeServiceConfig(ActDependencies):
    """Dependencies of a `ClusterChangeService`.

    for_autopilot: whether the autopilot calls it, to which keys with its prefix are reserved.
    """

    settings: ActionSettings
    recommended: Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]
    gpu_shares: Callable[[Collection[WorkloadRef]], Sequence[Recommendation]] = nothing_proposed
    """Shares of GPUs that findings propose for these workloads."""
    switch_namespace: str = "koordinator-system"
    """Namespace of the switch that stops every program."""
    recommender: RecommenderSettings = field(default_factory=RecommenderSettings)
    """How bundles are written, and what they call money."""
    for_autopilot: bool = False


@dataclass(frozen=True, slots=True)
class AnchorObservation:
    """The last answer of the cluster. trouble: why no change is possible now; head: the anchored head of the ledger."""

    trouble: str = ""
    head: Anchor | None = None
    words: str = ""


class ClusterChangeService:
    """Changes of one cluster: review, dry run, accept, verify, roll back."""

    def __init__(self, config: ChangeServiceConfig) -> None:
        self._config = config
        self._known = LedgerCache()
        self._acts = AuditedActs(config.access, config.ledger, config.anchor_namespace)
        self._server_clock: ServerClock | None = None
        self._seen = BackgroundRefresh(self._read_head, AnchorObservation(), GLANCE_SECONDS)

    def review(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Each workload as it is now."""
        with self._open_for_reads(who) as actions:
            return [to_workload_review(review) for review in self._reviews(actions, who, request)]

    def dry_run(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """The same, tried on the server."""
        with self._open_for_reads(who) as actions:
            reviews = self._reviews(actions, who, request)
            tried = ((to_workload_review(r), None if r.error else dry_run_review(actions, r)) for r in reviews)
            return [replace(shown, tried=of_review) for shown, of_review in tried]

    def accept(self, who: Person, request: ChangeRequest) -> list[ChangeStatus]:
        """Write down, then do; the same key again does nothing more."""
        require_right(Right.ACCEPT, who, request)
        reserved = {AUTOPILOT_KEY_PREFIX: "the autopilot's", LADDER_KEY_PREFIX: "that of ladders' steps"}
        prefix = next((beginning for beginning in reserved if request.key.startswith(beginning)), "")
        if prefix and not (self._config.for_autopilot and prefix == AUTOPILOT_KEY_PREFIX):
            message = f"the key {request.key!r} begins with {prefix!r}, which is {reserved[prefix]}"
            raise KeyTaken(message, fix="Use another key; nothing was done.")
        what = f"{agree(len(request.workloads), 'workload is', 'workloads are')} changed for {who.name}"
        with self._writable_actions(who, what) as actions:
            statuses = actions.journal.statuses()
            earlier = [s for s in statuses.values() if s.change.batch == request.key]
            others = {s.change.workload for s in earlier} - {str(w) for w in request.workloads}
            if others:
                message = f"the key {request.key!r} was used before, for {sorted(others)[0]}"
                raise KeyTaken(message, fix="Use a new key for what is new; nothing was done.")
            if earlier:
                return earlier
            reviews = self._reviews(actions, who, request)
            return actions.accept(reviews, AcceptanceTerms(batch=request.key, **request.terms))

    def changes(self, who: Person) -> list[ChangeStatus]:
        """The newest first, of the namespaces that the person may read."""
        who.require(Right.READ)
        statuses = self._statuses().values()
        mine = [s for s in statuses if who.may(Right.READ, s.change.namespace)]
        return sorted(mine, key=lambda s: -s.accepted_seconds)

    def story(self, who: Person, change: str) -> list[LedgerEntry]:
        """Rows of the ledger about one change, the oldest first; UsageError when there is none."""
        status = self._statuses().get(change)
        if status is None or not who.may(Right.READ, status.change.namespace):
            raise UsageError(f"there is no change {change!r}", fix="The Changes page lists them.")
        with self._acts.reading() as ledger:
            return [entry_of(entry) for entry in ledger.entries(change)]

    def entries(self, who: Person) -> list[LedgerEntry]:
        """The oldest first; who may not read everywhere sees rows about changes of their namespaces alone."""
        who.require(Right.READ)
        statuses = self._statuses()
        hidden = {id_ for id_, s in statuses.items() if not who.may(Right.READ, s.change.namespace)}
        reads_everywhere = any(not grant.namespaces for grant in who.grants)
        with self._acts.reading() as ledger:
            seen = (e for e in ledger.entries() if e.subject not in hidden)
            return [entry_of(e) for e in seen if reads_everywhere or e.subject in statuses]

    def roll_back(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Roll back the changes with these ids, each independently of the others."""
        what = f"{agree(len(changes), 'change is', 'changes are')} rolled back for {who.name}"
        with self._writable_actions(who, what) as actions:
            chosen = _select_changes(actions, who, changes)
            return [actions.roll_back(s) if s.state.in_force else s for s in chosen]

    def confirm(self, who: Person, change: str) -> list[ChangeStatus]:
        """Do what waits, as its second person, with all that was accepted together with it.

        Raises NotAllowed where people do not log in: there is no second person then.
        """
        if who.way is IdentitySource.LOOPBACK:
            raise NotAllowed("nobody logs in here, so there is no second person", fix="See docs/access.md for a login.")
        with self._writable_actions(who, f"{who.name} confirms what another has accepted") as actions:
            return second_approval.confirm(actions, who, change)

    def decline(self, who: Person, change: str) -> list[ChangeStatus]:
        """Cancel what waits for a second person: for that one, and for the person who accepted it."""
        with self._writable_actions(who, f"{who.name} declines what waits for a second person") as actions:
            return second_approval.decline(actions, who, change)

    def ladders(self, who: Person) -> list[LadderProgress]:
        """The newest first, of the namespaces that the person may read; asks no cluster."""
        who.require(Right.READ)
        with self._acts.reading() as ledger:
            ladders = self._known.ladders(ledger)
        return ladders_of(ladders, list(self._statuses().values()), pace_of(self._config.settings), who)

    def stop_ladder(self, who: Person, ladder: str, why: str = "") -> LadderStatus:
        """Take no further step; earlier steps stay."""
        with self._writable_actions(who, f"a ladder is stopped for {who.name}") as actions:
            return stop_ladder(actions, who, ladder, why)

    def go_back(self, who: Person, ladder: str, place: int) -> list[ChangeStatus]:
        """Take its steps back, the last one first, down to step `place`; 0: as it was before the first one."""
        with self._writable_actions(who, f"a ladder goes back for {who.name}") as actions:
            return go_back(actions, who, ladder, place)

    def verify(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Verify those of the changes that have soaked, and return their statuses."""
        what, verified = f"{agree(len(changes), 'change is', 'changes are')} verified for {who.name}", []
        with self._writable_actions(who, what) as actions:
            for status in _select_changes(actions, who, changes):
                if status.state is ChangeState.APPLIED:
                    with suppress(NoData):  # it still soaks
                        verified.append(verify(actions, status))
        return verified

    def settle(self, who: Person) -> list[ChangeStatus]:
        """Find out the outcome of each change without one, and return the statuses."""
        who.require(Right.ADMINISTER)
        with self._writable_actions(who, f"changes without an outcome are settled for {who.name}") as actions:
            return settle(actions)

    def bundle(self, who: Person, request: ChangeRequest, form: BundleForm) -> Mapping[str, str]:
        """Files by path, with a row in the ledger; the cluster is only asked."""
        if request.gpu_shares and form is BundleForm.SSA:
            message = "a GPU share is not written for server-side apply, which would remove CPU and memory"
            raise UsageError(message, fix="Choose another form, such as kustomize patches.")
        with self._writable_actions(who, f"a bundle is written for {who.name}") as actions:
            reviews = self._reviews(actions, who, msgspec.structs.replace(request, method=Method.BUNDLE))
            return export_bundle(actions, reviews, form, self._config.recommender, request.key)

    def commit(self, who: Person, request: ChangeRequest, branch: str, *, write: bool = False) -> BundleCommit:
        """The commit of the values in the repository of the settings, with a row in the ledger where it is made."""
        require_right(Right.REVIEW, who, request)
        repository = self._config.settings.git_repository
        if not repository:
            raise UsageError("no Git repository is configured here", fix="Set actions.git_repository to its folder.")
        what = f"a commit is made for {who.name}"
        with self._writable_actions(who, what) if write else self._open_for_reads(who) as actions:
            reviews = self._reviews(actions, who, msgspec.structs.replace(request, method=Method.BUNDLE))
            asked = CommitBundle(branch, repository, write)
            return commit_bundle(actions, reviews, asked, self._config.recommender, request.key)

    def snooze(self, who: Person, workloads: Sequence[WorkloadRef], days: float | None, reason: str) -> None:
        """Hide for so many days, None for good."""
        require_right(Right.ACCEPT, who, ChangeRequest(tuple(workloads)))
        with self._open_change_ledger(who) as change_ledger:
            snooze(change_ledger, workloads, days, reason)

    def recall(self, who: Person, workloads: Sequence[WorkloadRef]) -> None:
        """Show recommendations again that were hidden."""
        require_right(Right.ACCEPT, who, ChangeRequest(tuple(workloads)))
        with self._open_change_ledger(who) as change_ledger:
            recall(change_ledger, workloads)

    def cool_downs(self) -> Mapping[WorkloadRef, float]:
        """Workloads that were changed lately, each with the time (Unix seconds) from which it may be cut again."""
        now, wait = self._clock().now_seconds(), self._config.settings.guardrails.cool_down_hours * HOUR_SECONDS
        return cool_downs(self._statuses().values(), wait, now)

    def trials(self) -> Mapping[WorkloadRef, Sequence[Trial]]:
        """Return what was tried on workloads, and did harm or was rolled back; asks no cluster."""
        return trials_of(self._statuses().values())

    def taken_steps(self, since_seconds: float) -> Mapping[WorkloadRef, TakenStep]:
        """Return the change of each workload that is in effect and was sent after a time; asks no cluster."""
        return taken_of(self._statuses().values(), since_seconds)

    def postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        """Return the recommendations that are hidden now, by workload; asks no cluster."""
        with self._acts.reading() as ledger:
            return postponed_recommendations(ledger, self._clock().now_seconds())

    def ledger(self) -> LedgerHealth:
        """The chain, verified from its first row, and against the head in the cluster where one is kept."""
        cluster_head = self._seen.fresh(HEAD_WAIT_SECONDS)
        with self._acts.reading() as ledger:
            self._known.upto(ledger)
            verdict = ledger.verify(cluster_head.head)
        notes = [*(passed.why for passed in self._known.passed), cluster_head.words]
        kept, told = cluster_head.head is not None and not verdict.wrong_seq, tuple(filter(None, notes))
        return LedgerHealth(verdict.rows, verdict.wrong_seq or 0, verdict.why, kept, told)

    def watcher(self, report: Callable[[list[News]], None], ahead: Callable[[float], list[News]]) -> Watcher:
        """One that does what is due here in our own name, and says that and what is `ahead` to who wants to hear it."""
        config = self._config
        climb = Ladders(config.recommended, config.switch_namespace, config.requested_millicores)

        def open_signed() -> AbstractContextManager[Actions]:
            return by_itself(self._writable_actions(Person(""), "the watcher looks"))

        return Watcher(open_signed, report, ahead, climb=climb)

    def trouble(self) -> str:
        """Why nothing can be done in the cluster now; as it was a moment ago."""
        return self._seen.now().trouble

    def permissions(self, who: Person, namespaces: Sequence[str]) -> list[Permission]:
        """Asked one by one; what is allowed everywhere is not asked again for each namespace."""
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
        what = "no share of a GPU is proposed" if request.gpu_shares else "nothing is recommended"
        if not recommendations:
            raise NoData(f"{what} for these workloads", fix="Scan first: cotenant scan.")
        reviews = actions.review(recommendations, request.second_person, request.method, request.overridden)
        reviewed = {review.workload for review in reviews}
        without = [workload for workload in request.workloads if workload not in reviewed]
        return [*reviews, *(Review(workload, "", error=f"{what} for it") for workload in without)]

    @contextmanager
    def _open_for_reads(self, who: Person) -> Iterator[Actions]:
        """Yield the actions for callers that write nothing."""
        with self._client(who) as client, self._acts.reading() as ledger:
            yield self._actions(client, ledger, who)

    @contextmanager
    def _writable_actions(self, who: Person, what: str) -> Iterator[Actions]:
        """Yield the actions for callers that write, one at a time."""
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
        """Our clock, or that of the API server which answered last: soaks and snoozes begin and end by its time."""
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
        """Yield the journal for callers that write to the ledger alone."""
        self._seen.fresh(HEAD_WAIT_SECONDS)  # the time, too
        with self._acts.writing(f"a note of {who.name}", PATIENCE_SECONDS) as ledger:
            yield ChangeLedger(ledger, self._clock(), who.name, self._known, who.source)

    def _statuses(self) -> dict[str, ChangeStatus]:
        with self._acts.reading() as ledger:
            return self._known.upto(ledger)

    def _read_head(self) -> AnchorObservation:
        """Ask the cluster for the head, which also says whether it answers."""
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
        return AnchorObservation(words=f"The ledger's head in the cluster may not be read: {error.message}.")
    except ClusterUnreachable:
        raise
    except ClusterError as error:
        return AnchorObservation(words=f"The ledger's head in the cluster was not compared: {error.message}.")
    nothing_yet = not anchor.others and not ledger.head().seq
    return AnchorObservation(head=anchor.head, words="" if anchor.head or nothing_yet else unkept(ledger, anchor))


def _select_changes(actions: Actions, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
    """The named changes, of namespaces in which the person may act; of those that they do not read there is none."""
    every = actions.journal.statuses().items()
    statuses = {id_: status for id_, status in every if who.may(Right.READ, status.change.namespace)}
    if missing := [id_ for id_ in changes if id_ not in statuses]:
        raise UsageError(f"there is no change {missing[0]!r}", fix="`cotenant recs changes` lists them.")
    for id_ in changes:
        who.require(Right.ACCEPT, statuses[id_].change.namespace)
    return [statuses[id_] for id_ in changes]
