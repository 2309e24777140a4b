"""What pages and the REST API may ask to be done with recommendations, and what they get to see. Pure vocabulary.

The dashboard gets a `ChangeService` from its caller; without one it is read-only. Every call names the person: the
service checks their rights, whatever the page showed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person, Right
from cotenant.base.text import counted
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.ladder import LadderProgress, LadderStatus
from cotenant.changes.model.trial import TakenStep, Trial
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import Savings
from cotenant.recommender.model.steps import NextStep


class Method(StrEnum):
    """A method by which a change reaches the pods."""

    TEMPLATE = "template"
    """The workload's template is patched; its controller rolls it out."""
    IN_PLACE = "in-place"
    """Running pods are resized, nothing restarts, and new pods get the same through the webhook."""
    ANNOTATE = "annotate"
    """Only the workload is annotated; the webhook gives new pods the values."""
    BUNDLE = "bundle"
    """Files for a GitOps repository; the cluster is not touched."""

    @property
    def label(self) -> str:
        """The name of the method on pages."""
        return _METHOD_LABELS[self]

    @property
    def full_name(self) -> str:
        """The label and, for commands and REST, the value, in sentences that people read in either place."""
        return f"{self.label} ({self.value})"


_METHOD_LABELS: Final[Mapping[Method, str]] = {
    Method.TEMPLATE: "Roll out",
    Method.IN_PLACE: "Resize in place",
    Method.ANNOTATE: "Annotate only",
    Method.BUNDLE: "GitOps bundle",
}


class BundleForm(StrEnum):
    """The form in which a bundle is written."""

    KUSTOMIZE = "kustomize"
    HELM = "helm"
    SSA = "ssa"
    KUBECTL = "kubectl"
    """Command lines to copy."""


@dataclass(frozen=True, slots=True)
class CommitBundle:
    """Make the proposed values of workloads a commit on a new branch of a local Git repository.

    repository: its folder; write: whether the branch is made, otherwise only what it would hold is said.
    """

    branch: str
    repository: str
    write: bool = False


@dataclass(frozen=True, slots=True)
class UnplacedWorkload:
    """A workload whose values stand nowhere for sure: why, with the file, and what helps."""

    workload: WorkloadRef
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class BundleCommit:
    """A commit that is made, or would be.

    base: the commit that the branch begins at; diff: unified; workloads: those whose values it has; commit: its id, ""
    where nothing was written.
    """

    branch: str
    base: str
    message: str
    diff: str
    files: tuple[str, ...] = ()
    workloads: tuple[WorkloadRef, ...] = ()
    refused: tuple[UnplacedWorkload, ...] = ()
    commit: str = ""

    @property
    def sentence(self) -> str:
        """Say what was done, or would be, in one sentence."""
        if not self.files:
            return f"nothing can be placed; {counted(len(self.refused), 'workload')} left out"
        of = f"{counted(len(self.workloads), 'workload')} in {counted(len(self.files), 'file')}"
        out = f"; partial: {len(self.refused)} left out" if self.refused else ""
        did = f"commit {self.commit[:12]} on the new branch" if self.commit else "dry run: a commit on the new branch"
        return f"{did} {self.branch}, which begins at {self.base[:12]}: {of}{out}"


class ChangeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which workloads are changed, wherever a person states them.

    because: why rules are overridden, in the person's words; kept with each change; canary: share of the workloads
    that is changed first, the rest after they soaked; 0: all at once; gpu_shares: the change is of the shares of GPUs
    that findings propose, in place of CPU and memory; ladder: all steps of a cut are accepted with the first one, each
    taken after the verdict on the one before.
    """

    overridden: tuple[str, ...] = ()
    because: str = ""
    second_person: str = ""
    canary: float = 0.0
    gpu_shares: bool = False
    ladder: bool = False

    @property
    def terms(self) -> dict[str, Any]:
        """These terms by name."""
        return {name: getattr(self, name) for name in ChangeTerms.__struct_fields__}

    def request(self, workloads: Sequence[WorkloadRef], method: Method, key: str | None = None) -> ChangeRequest:
        """Return the request to change these workloads on these terms. key: of the request; None: a new one."""
        request = ChangeRequest(tuple(workloads), method, **self.terms)
        return request if key is None else msgspec.structs.replace(request, key=key)


class ChangeRequest(ChangeTerms, frozen=True):
    """A person's request. key: created once by the page, so that a second click does nothing more."""

    workloads: tuple[WorkloadRef, ...]
    method: Method = Method.TEMPLATE
    key: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class FieldMove:
    """One field that would change: of which object, where, from what to what, as people read it; "" is nothing."""

    target: str
    pointer: str
    now: str
    new: str


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """A guardrail as it came out: outcome is pass, warn or fail."""

    name: str
    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The API server's answer to a dry run. added: what its admission changed beyond what was sent, as `FieldMove`."""

    accepted: bool
    words: str = ""
    fix: str = ""
    added: tuple[FieldMove, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewedWorkload:
    """A workload before it is changed.

    recommendations: what is applied, over the values of now, a cut that is too large at its first step; next_steps:
    what that leaves for later; error: why there is nothing to change, in words; impossible: methods that cannot be had
    -> why; suggested: the method that we would take.
    """

    workload: WorkloadRef
    _: KW_ONLY
    recommendations: tuple[Recommendation, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    error: str = ""
    impossible: Mapping[Method, str] = field(default_factory=dict)
    suggested: Method = Method.TEMPLATE


@dataclass(frozen=True, slots=True)
class WorkloadReview(ReviewedWorkload):
    """One workload in review. tried: None before the dry run.

    restart: what applying it costs the pods by this method; savings: of what is written now; lines: everything that is
    written, object by object and field by field; no_ladder: why the later steps cannot be accepted with the first one.
    """

    moves: tuple[FieldMove, ...] = ()
    rules: tuple[GuardrailResult, ...] = ()
    restart: str = ""
    savings: Savings = field(default_factory=Savings)
    lines: tuple[FieldMove, ...] = ()
    tried: DryRunResult | None = None
    no_ladder: str = ""

    def blocked(self, overridden: Sequence[str]) -> tuple[GuardrailResult, ...]:
        """Failed rules that are not overridden."""
        return tuple(rule for rule in self.rules if rule.outcome == "fail" and rule.name not in overridden)


@dataclass(frozen=True, slots=True)
class PostponedRecommendation:
    """A recommendation that somebody does not want to see: until when (None: for good), who, why, since when."""

    workload: WorkloadRef
    until_seconds: float | None
    actor: str
    reason: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class LedgerHealth:
    """The result of verifying the ledger's hash chain.

    rows: number of rows, None for who may not read all of them; bad_row: the first bad row, or 0; words: what is wrong;
    anchored: whether the head is kept in the cluster; notes: what else is to be known, as text, such as rows that were
    passed over.
    """

    rows: int | None
    bad_row: int = 0
    words: str = ""
    anchored: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger. subject: the id of a change where the event is one of `ChangeEvent`.

    body: JSON, of `accepted` the whole change.
    """

    row: int
    seconds: float
    actor: str
    event: str
    subject: str
    body: str
    hash: str


@dataclass(frozen=True, slots=True)
class Permission:
    """One line of the matrix: what for, which verb on what, whether the cluster allows it; None: it was not asked."""

    feature: str
    verb: str
    resource: str
    namespace: str
    allowed: bool | None


class ChangeService(Protocol):
    """Safe for many threads. Raises NotAllowed, and CotenantError when nothing could be asked at all."""

    def review(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Each workload as it is now. Right.REVIEW in its namespace, else the row's `error` says so."""

    def dry_run(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """The same with `tried`; nothing is kept."""

    def accept(self, who: Person, request: ChangeRequest) -> list[ChangeStatus]:
        """Write down, then do; UsageError names the rule that stops it. The same key again: the same statuses."""

    def changes(self, who: Person) -> list[ChangeStatus]:
        """Everything that was accepted, the newest first."""

    def story(self, who: Person, change: str) -> list[LedgerEntry]:
        """Rows of the ledger about one change, the oldest first; UsageError when there is none."""

    def entries(self, who: Person) -> list[LedgerEntry]:
        """Every row of the ledger that the person may read, the oldest first."""

    def roll_back(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Roll back the changes with these ids, each independently of the others."""

    def confirm(self, who: Person, change: str) -> list[ChangeStatus]:
        """Do what waits, as its second person, with all that was accepted together with it."""

    def decline(self, who: Person, change: str) -> list[ChangeStatus]:
        """Cancel what waits for a second person."""

    def ladders(self, who: Person) -> list[LadderProgress]:
        """Return every ladder that the person may read, with its steps, the newest first."""

    def stop_ladder(self, who: Person, ladder: str, why: str = "") -> LadderStatus:
        """Take no further step; earlier steps stay."""

    def go_back(self, who: Person, ladder: str, place: int) -> list[ChangeStatus]:
        """Take its steps back, the last one first, down to step `place`; 0: as it was before the first one."""

    def verify(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Verify now; those that still soak are left out."""

    def settle(self, who: Person) -> list[ChangeStatus]:
        """Resolve changes with unknown outcome."""

    def bundle(self, who: Person, request: ChangeRequest, form: BundleForm) -> Mapping[str, str]:
        """Files by path, and `PULL_REQUEST.md`; of KUBECTL one text of commands."""

    def commit(self, who: Person, request: ChangeRequest, branch: str, *, write: bool = False) -> BundleCommit:
        """The commit of the values in the configured Git repository; made where `write` says so."""

    def snooze(self, who: Person, workloads: Sequence[WorkloadRef], days: float | None, reason: str) -> None:
        """Hide for so many days, None for good; a reason is needed."""

    def recall(self, who: Person, workloads: Sequence[WorkloadRef]) -> None:
        """Show recommendations again that were hidden."""

    def cool_downs(self) -> Mapping[WorkloadRef, float]:
        """Workloads that were changed lately, each with the time (Unix seconds) from which it may be cut again."""

    def trials(self) -> Mapping[WorkloadRef, Sequence[Trial]]:
        """Return what was tried on workloads, and did harm or was rolled back."""

    def taken_steps(self, since_seconds: float) -> Mapping[WorkloadRef, TakenStep]:
        """Return the change of each workload that is in effect and was sent after a time (Unix time)."""

    def postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        """Return the recommendations that are hidden now, by workload."""

    def ledger(self) -> LedgerHealth:
        """The chain, verified from its first row."""

    def trouble(self) -> str:
        """Why nothing can be done in the cluster now, as it was a moment ago; "" when it answers. Never waits."""

    def permissions(self, who: Person, namespaces: Sequence[str]) -> list[Permission]:
        """Return what the cluster allows, by SelfSubjectAccessReview."""


def require_right(right: Right, who: Person, request: ChangeRequest) -> None:
    """NotAllowed for the first workload whose namespace is not theirs, and for an override without the right."""
    for workload in request.workloads:
        who.require(right, workload.namespace)
        if request.overridden:
            who.require(Right.OVERRIDE, workload.namespace)
