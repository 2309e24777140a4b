"""What pages and the REST API can request of the change service, and what it returns. Pure data types.

The dashboard gets a `ChangeService` from its caller; without one it is read-only. Every call names the person, whose
rights the service checks, whatever the page showed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol

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
    """The way in which a change reaches the pods."""

    TEMPLATE = "template"
    """The workload's template is patched; its controller rolls it out."""
    IN_PLACE = "in-place"
    """Running pods are resized without restarts, and the webhook gives new pods the same values."""
    ANNOTATE = "annotate"
    """Only the workload is annotated; the webhook gives new pods the values."""
    BUNDLE = "bundle"
    """Files for a GitOps repository; the cluster is not changed."""

    @property
    def label(self) -> str:
        """The method's name on pages."""
        return _METHOD_LABELS[self]

    @property
    def full_name(self) -> str:
        """The method's label and its value for commands and REST, for texts that appear in both."""
        return f"{self.label} ({self.value})"


_METHOD_LABELS: Final[Mapping[Method, str]] = {
    Method.TEMPLATE: "Roll out",
    Method.IN_PLACE: "Resize in place",
    Method.ANNOTATE: "Annotate only",
    Method.BUNDLE: "GitOps bundle",
}


class BundleForm(StrEnum):
    """The tool that a bundle's files are for."""

    KUSTOMIZE = "kustomize"
    HELM = "helm"
    SSA = "ssa"
    KUBECTL = "kubectl"
    """Commands to copy."""


@dataclass(frozen=True, slots=True)
class CommitBundle:
    """A request to commit the proposed values of workloads to a new branch of a local Git repository.

    `repository` is its folder. If `write` is false, the commit is only shown.
    """

    branch: str
    repository: str
    write: bool = False


@dataclass(frozen=True, slots=True)
class UnplacedWorkload:
    """A workload whose values have no certain file in the Git repository: why, and how to fix that."""

    workload: WorkloadRef
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class BundleCommit:
    """A commit of proposed values, made or only planned.

    The branch begins at the commit `base`; `diff` is a unified diff; `workloads` are those whose values it has;
    `commit` is its id, "" if nothing was written.
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
        """One sentence that says what was committed, or would be."""
        if not self.files:
            return f"no file of the repository was found for the values of {counted(len(self.refused), 'workload')}"
        of = f"{counted(len(self.workloads), 'workload')} in {counted(len(self.files), 'file')}"
        out = f"; {counted(len(self.refused), 'workload')} left out" if self.refused else ""
        did = f"commit {self.commit[:12]} on the new branch" if self.commit else "dry run: a commit on the new branch"
        return f"{did} {self.branch}, which begins at {self.base[:12]}: {of}{out}"


class ChangeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which workloads are changed.

    `because` says why rules are overridden; it is recorded with each change. `canary` is the share of the workloads (0
    to 1) that is changed first, the others after its soak time; 0 means all at once. With `gpu_shares`, the GPU shares
    that findings propose are applied, not CPU and memory. With `ladder`, all steps of a cut are accepted; each later
    one is applied after the one before is verified.
    """

    overridden: tuple[str, ...] = ()
    because: str = ""
    second_person: str = ""
    canary: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    gpu_shares: bool = False
    ladder: bool = False

    @property
    def terms(self) -> dict[str, Any]:
        """The values of the fields of `ChangeTerms`, by field name."""
        return {name: getattr(self, name) for name in ChangeTerms.__struct_fields__}

    def request(self, workloads: Sequence[WorkloadRef], method: Method, key: str | None = None) -> ChangeRequest:
        """Return a request to change these workloads on these terms, with a new key if `key` is None."""
        request = ChangeRequest(tuple(workloads), method, **self.terms)
        return request if key is None else msgspec.structs.replace(request, key=key)


class ChangeRequest(ChangeTerms, frozen=True):
    """A person's request; the page creates `key` once, so that a second click applies nothing more."""

    workloads: tuple[WorkloadRef, ...]
    method: Method = Method.TEMPLATE
    key: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))


@dataclass(frozen=True, slots=True)
class FieldMove:
    """A field that would change: its object, JSON pointer, and old and new value as text; "" is an absent field."""

    target: str
    pointer: str
    now: str
    new: str


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """A guardrail's result; `outcome` is pass, warn or fail."""

    name: str
    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The API server's answer to a dry run; `added` lists the fields that admission set or changed."""

    accepted: bool
    words: str = ""
    fix: str = ""
    added: tuple[FieldMove, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewedWorkload:
    """The review of one workload before it is changed, as pages and REST show it.

    `recommendations` are what would be applied, with large cuts reduced to their first step, and `next_steps` the later
    steps. `error` says why nothing can change; `impossible` are the methods that are not possible, with the reason;
    `suggested` is the best one.
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
    """The review of one workload; `tried` is None before the dry run.

    `restart` says what the method does to running pods; `savings` are those of this step; `lines` are all values that
    are written, field by field; `no_ladder` says why later steps cannot be accepted with the first one.
    """

    moves: tuple[FieldMove, ...] = ()
    rules: tuple[GuardrailResult, ...] = ()
    restart: str = ""
    savings: Savings = field(default_factory=Savings)
    lines: tuple[FieldMove, ...] = ()
    tried: DryRunResult | None = None
    no_ladder: str = ""

    def blocked(self, overridden: Sequence[str]) -> tuple[GuardrailResult, ...]:
        """Return the failed rules that are not overridden."""
        return tuple(rule for rule in self.rules if rule.outcome == "fail" and rule.name not in overridden)


@dataclass(frozen=True, slots=True)
class PostponedRecommendation:
    """A recommendation that somebody has hidden: until when (None: permanently), who, why, since when."""

    workload: WorkloadRef
    until_seconds: float | None
    actor: str
    reason: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class LedgerHealth:
    """The result of verifying the ledger's hash chain.

    `rows` is the number of rows, None if the person may not read all; `bad_row` is the first bad row or 0; `words` says
    what is wrong; `anchored` whether the cluster stores the head; `notes` are further texts, as on skipped rows.
    """

    rows: int | None
    bad_row: int = 0
    words: str = ""
    anchored: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger; its `subject` is the id of a change if the event is a `ChangeEvent`.

    `body` is JSON; for the event `accepted` it is the whole change.
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
    """A verb on a resource that a feature needs; `allowed` says whether the cluster allows it, None if unknown."""

    feature: str
    verb: str
    resource: str
    namespace: str
    allowed: bool | None


class ChangeService(Protocol):
    """Reviews and applies changes. Thread-safe. Calls raise NotAllowed, or CotenantError if nothing could be read."""

    def review(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Return each workload's review; without Right.REVIEW in its namespace, the review's `error` says so."""

    def dry_run(self, who: Person, request: ChangeRequest) -> list[WorkloadReview]:
        """Return the reviews with `tried`, the result of a dry run; nothing is stored."""

    def accept(self, who: Person, request: ChangeRequest) -> list[ChangeStatus]:
        """Record changes and send those that need not wait, once for each key; raise UsageError if a rule stops one."""

    def changes(self, who: Person) -> list[ChangeStatus]:
        """Return every accepted change that the person may read, the newest first."""

    def story(self, who: Person, change: str) -> list[LedgerEntry]:
        """Return the ledger's rows about one change, the oldest first; raise UsageError if there is no such change."""

    def entries(self, who: Person) -> list[LedgerEntry]:
        """Return every row of the ledger that the person may read, the oldest first."""

    def roll_back(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Roll back those of the changes with these ids that are in effect, each independently of the others."""

    def confirm(self, who: Person, change: str) -> list[ChangeStatus]:
        """Confirm a change and its batch as second person, and send those of the batch that need not wait."""

    def decline(self, who: Person, change: str) -> list[ChangeStatus]:
        """Cancel a change that waits for a second person, with all changes of its batch that wait for one."""

    def ladders(self, who: Person) -> list[LadderProgress]:
        """Return every ladder (a cut in several steps) that the person may read, the newest first."""

    def stop_ladder(self, who: Person, ladder: str, why: str = "") -> LadderStatus:
        """Stop a ladder (a cut in several steps): no further step is applied, and the applied steps stay."""

    def go_back(self, who: Person, ladder: str, place: int) -> list[ChangeStatus]:
        """Stop a ladder and roll back its steps after step `place`, the last one first; 0 rolls back all steps."""

    def verify(self, who: Person, changes: Sequence[str]) -> list[ChangeStatus]:
        """Verify now those of the changes that are applied and have soaked; return their statuses."""

    def settle(self, who: Person) -> list[ChangeStatus]:
        """Read the cluster to find the outcome of changes for which it is unknown."""

    def bundle(self, who: Person, request: ChangeRequest, form: BundleForm) -> Mapping[str, str]:
        """Return a bundle's files by path, with `PULL_REQUEST.md`; for KUBECTL one text of commands."""

    def commit(self, who: Person, request: ChangeRequest, branch: str, *, write: bool = False) -> BundleCommit:
        """Return the commit of the new values for the configured Git repository; make it if `write`."""

    def snooze(self, who: Person, workloads: Sequence[WorkloadRef], days: float | None, reason: str) -> None:
        """Hide the workloads' recommendations for `days` days (None: permanently); a reason is required."""

    def recall(self, who: Person, workloads: Sequence[WorkloadRef]) -> None:
        """Show the workloads' hidden recommendations again."""

    def cool_downs(self) -> Mapping[WorkloadRef, float]:
        """Return when (Unix seconds) the cool-down of each recently changed workload ends: no cuts before that."""

    def trials(self) -> Mapping[WorkloadRef, Sequence[Trial]]:
        """Return each workload's earlier changes that did harm or were rolled back."""

    def taken_steps(self, since_seconds: float) -> Mapping[WorkloadRef, TakenStep]:
        """Return each workload's last change, if it is in effect and was sent after `since_seconds` (Unix time)."""

    def postponed(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        """Return the recommendations that are hidden now, by workload."""

    def ledger(self) -> LedgerHealth:
        """Verify the ledger's hash chain from its first row."""

    def trouble(self) -> str:
        """Return why no change can be made in the cluster now, "" if one can; a cached answer, without waiting."""

    def permissions(self, who: Person, namespaces: Sequence[str]) -> list[Permission]:
        """Return what the cluster allows the person, by SelfSubjectAccessReview."""


def require_right(right: Right, who: Person, request: ChangeRequest) -> None:
    """Raise NotAllowed if the person lacks the right in a workload's namespace, or Right.OVERRIDE to override rules."""
    for workload in request.workloads:
        who.require(right, workload.namespace)
        if request.overridden:
            who.require(Right.OVERRIDE, workload.namespace)
