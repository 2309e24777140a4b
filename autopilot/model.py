"""Vocabulary of the autopilot: what a policy may say, why a workload waits, what the ledger keeps of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from cotenant.autopilot.settings import Direction, Way
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Person
from cotenant.base.progress import SILENT, Progress
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.base.text import counted
from cotenant.changes.model.service import BundleForm, FieldMove, Method
from cotenant.recommender.model.confidence_columns import CONFIDENCE_COLUMNS
from cotenant.recommender.model.savings import Savings

POLICIES: Final = "autopilotpolicies"
EVERYTHING: Final = "*"
"""Subject of a row of the ledger that is about the whole autopilot."""


class AutopilotMode(StrEnum):
    """The mode of a policy."""

    OFF = "Off"
    OBSERVE = "Observe"
    ACT = "Act"


RISING_AT_ONCE: Final[Mapping[Direction, Resource]] = {
    Direction.UP_AFTER_OOM_KILL: Resource.MEMORY,
    Direction.UP_AFTER_THROTTLING: Resource.CPU,
}
"""What goes before everything else: the resource that rises, the first of these that does."""


METHODS: Final[Mapping[Way, Method]] = {
    Way.IN_PLACE: Method.IN_PLACE,
    Way.ROLL_OUT: Method.TEMPLATE,
    Way.NEXT_RESTART: Method.ANNOTATE,
}
"""The method of the change that a way corresponds to when it is accepted."""


class AutopilotEvent(StrEnum):
    """Rows of the ledger beside those of the changes themselves."""

    ACT = "autopilot-act"
    """A person lets a policy act in its present version; its body has the digest."""
    OBSERVE = "autopilot-observe"
    """A person takes that back."""
    PROPOSED = "autopilot-proposed"
    """What would have been done to a workload under Observe."""
    STOPPED = "autopilot-stopped"
    """Too many changes did harm: nothing is done until a person resumes."""
    PAUSED = "autopilot-paused"
    RESUMED = "autopilot-resumed"
    """By a person: everything, or the one workload that is the subject."""
    LEFT_ALONE = "autopilot-left-alone"
    """Another writer changed what the autopilot had set: the workload is off until a person resumes it."""
    EDITED = "autopilot-edited"
    """A person saved a policy by way of the dashboard; its body has the spec."""
    BOOSTED = "autopilot-boosted"
    """A starting pod of the workload is given more CPU; written before it is sent."""
    BOOST_ENDED = "autopilot-boost-ended"
    """That was taken back, or came to nothing."""
    FLOOR_RAISED = "autopilot-floor-raised"
    """An autoscaler of the workload is lent more minReplicas for a peak: written before it is sent, and once it is."""
    FLOOR_ENDED = "autopilot-floor-ended"
    """That was taken back, or somebody else has set the field."""


class QueueVerdict(StrEnum):
    """The decision on a workload in a round."""

    ACT = "act"
    PROPOSE = "propose"
    """It would be changed, but its policy observes."""
    WAIT = "wait"


QUEUE: Final = Schema(
    "autopilot_queue",
    (
        Column("place", "#", Kind.INTEGER, "Place in the queue; 0 for a workload that waits.", essential=True),
        Column("decision", "Decision", Kind.TEXT, "act, propose (its policy observes) or wait.", essential=True),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workload.", essential=True),
        Column("kind", "Kind", Kind.TEXT, "Kind of the workload."),
        Column("workload", "Workload", Kind.TEXT, "Name of the workload.", essential=True),
        Column("policy", "Policy", Kind.TEXT, "AutopilotPolicy that selects it."),
        Column(
            "cpu_frees",
            "CPU frees",
            Kind.MILLICORES,
            "Requests that fall by the current step, over all pods.",
            essential=True,
        ),
        Column("memory_frees", "Memory frees", Kind.BYTES, "The same of memory."),
        Column("cpu_raises", "CPU raises", Kind.MILLICORES, "Requests that rise by the current step, over all pods."),
        Column("memory_raises", "Memory raises", Kind.BYTES, "The same of memory."),
        *CONFIDENCE_COLUMNS,
        Column("score", "Score", Kind.NUMBER, "Worth x confidence, by which the queue is ordered.", wide=True),
        Column("floor", "Replica floor", Kind.INTEGER, "minReplicas of its autoscaler for the next forecast peak."),
        Column("floor_from", "Floor from", Kind.TIME, "When that peak begins.", wide=True),
        Column("floor_until", "Floor until", Kind.TIME, "When it ends and minReplicas is restored.", wide=True),
        Column("gitops", "Kept by", Kind.TEXT, "What shows that a GitOps tool manages the workload.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Code of docs/reasons.md: why it waits."),
        Column("words", "Why", Kind.TEXT, "The same for people.", essential=True),
    ),
    ("namespace", "kind", "workload"),
)
STATUS: Final = Schema(
    "autopilot_status",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the policy."),
        Column("policy", "Policy", Kind.TEXT, "Its name."),
        Column("asked", "Asked for", Kind.TEXT, "spec.mode."),
        Column("mode", "Does", Kind.TEXT, "Mode in effect now: Off, Observe or Act."),
        Column("workloads", "Workloads", Kind.INTEGER, "Workloads with recommendations that it selects."),
        Column("queued", "Queued", Kind.INTEGER, "Changes that could be made now."),
        Column(
            "under_way",
            "Under way",
            Kind.INTEGER,
            "Changes of the autopilot in this namespace that soak, or whose outcome is not known.",
        ),
        Column("narrowed", "Narrowed", Kind.TEXT, "Fields that the ceiling narrows.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why it does less than the policy asks for."),
    ),
    ("namespace", "policy"),
)
REPORT: Final = Schema(
    "autopilot_report",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workloads."),
        Column("proposed", "Proposed", Kind.INTEGER, "Workloads that would have been changed under Observe."),
        Column("changed", "Changed", Kind.INTEGER, "Changes that were accepted by the autopilot."),
        Column("held", "Held", Kind.INTEGER, "Of these, the changes that were verified and did no harm."),
        Column("regressed", "Harmful", Kind.INTEGER, "Of these, harmful; rolled back."),
        Column("left_alone", "Left alone", Kind.INTEGER, "Workloads that another writer has taken over."),
        Column("floors", "Peaks", Kind.INTEGER, "Forecast peaks before which an autoscaler's minReplicas was raised."),
        Column("floor_replicas", "Replicas lent", Kind.INTEGER, "Sum of the largest increase of each."),
        Column("cpu_proposed", "CPU would free", Kind.MILLICORES, "Requests that would fall by these changes."),
        Column("memory_proposed", "Memory would free", Kind.BYTES, "The same of memory."),
        Column("cpu_proposed_raises", "CPU would raise", Kind.MILLICORES, "Requests that would rise.", wide=True),
        Column("memory_proposed_raises", "Memory would raise", Kind.BYTES, "The same of memory.", wide=True),
        Column("cpu_freed", "CPU freed", Kind.MILLICORES, "Requests that fell, by changes that are in force."),
        Column("memory_freed", "Memory freed", Kind.BYTES, "The same of memory."),
        Column("cpu_raised", "CPU raised", Kind.MILLICORES, "Requests that rose, by changes that are in force."),
        Column("memory_raised", "Memory raised", Kind.BYTES, "The same of memory."),
        Column(
            "weeks",
            "Weeks over",
            Kind.INTEGER,
            "Workloads with a proposal whose following seven days ended in this time and are stored; the next "
            "columns say what it would have meant in them.",
        ),
        Column("week_cpu", "CPU in it", Kind.MILLICORES, "Requested less, net, mean over that week.", sign=Sign.FREED),
        Column("week_memory", "Memory in it", Kind.BYTES, "The same of memory.", sign=Sign.FREED),
        Column("week_money", "Money a month", Kind.NUMBER, "By the price sheet.", unit=Unit.MONTHLY, sign=Sign.FREED),
        Column("week_kills", "OOM kills", Kind.INTEGER, "OOM kills beyond those of present limits.", sign=Sign.EITHER),
        Column(
            "week_throttled",
            "Minutes short",
            Kind.NUMBER,
            "Container-minutes with CPU demand above the limit, more than under the present one.",
            unit=Unit.CONTAINER_MINUTES,
            sign=Sign.EITHER,
        ),
    ),
    ("namespace",),
)


def policy_totals(status: Table) -> str:
    """Sum up all rows of STATUS in a sentence."""
    rows = list(status.rows())
    modes = Counter(row["mode"] for row in rows)
    by_mode = ", ".join(f"{modes[mode]:,} {mode.value}" for mode in AutopilotMode if modes[mode])
    workloads, queued = (sum(row[name] for row in rows) for name in ("workloads", "queued"))
    # Policies of one namespace count the same changes: they have them in common.
    under_way = sum({row["namespace"]: row["under_way"] for row in rows}.values())
    policies = "policy" if len(rows) == 1 else "policies"
    counts = f"{counted(workloads, 'workload')}, {queued:,} queued, {under_way:,} under way"
    return f"{len(rows):,} {policies} ({by_mode}): {counts}"


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """The sum of a round: workloads that would be changed, what that frees and raises, and pods that may restart.

    most_restarts: pods of the workloads whose change may be rolled out; in place fewer, or none, restart.
    """

    changes: int = 0
    savings: Savings = field(default_factory=Savings)
    most_restarts: int = 0


@dataclass(frozen=True, slots=True)
class AutopilotRound:
    """A round that is decided now, of what a person may see: tables `STATUS` and `QUEUE`.

    halt: why nothing is changed now, in words, "" when something may be; halt_reason: its code. enabled: whether a
    manager with these settings follows policies. gaps: policies whose namespace could not be read, each with why.
    """

    at_seconds: float
    status: Table
    queue: Table
    halt: str = ""
    halt_reason: Reason | None = None
    enabled: bool = True
    gaps: tuple[str, ...] = ()
    totals: RoundTotals = field(default_factory=RoundTotals)

    @property
    def waits_for_a_person(self) -> bool:
        """True if the autopilot continues only when a person resumes it."""
        return self.halt_reason in (Reason.AUTOPILOT_PAUSED, Reason.AUTOPILOT_STOPPED)


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as the cluster has it. body: the object without what the server adds; text: its spec under Act, as JSON.

    digest: of that spec, which an approver agrees to. refused: why it is not followed, in words; "" when it is.
    """

    name: str
    body: Mapping[str, Any]
    text: str = ""
    digest: str = ""
    refused: str = ""


ROUND_STAGES: Final = (
    "Reading who approved what",
    "Reading policies",
    "Reading the workloads and pods of the namespace",
    "Deciding what changes, and in which order",
)
"""Of a round that somebody waits for."""


class AutopilotService(Protocol):
    """Safe for many threads. name: NAMESPACE/NAME of a policy. Raises NotAllowed, and CotenantError as the cluster's.

    Whoever acts needs `Right.APPROVE` in the namespace, to resume everything in all of them; each act is a row of the
    ledger.
    """

    def round(self, who: Person, in_window: bool = False) -> AutopilotRound:
        """Return the round of now, or of some seconds ago; in_window: as if every change window were open."""

    def report(self, who: Person, days: float) -> Table:
        """The table `REPORT` of the last days."""

    def policy(self, who: Person, name: str) -> StoredPolicy:
        """NoData when there is none."""

    def bundle(self, who: Person, form: BundleForm, namespaces: Sequence[str] = ()) -> Mapping[str, str]:
        """Files by path of the steps that workloads of a GitOps tool would take now; NoData where none would."""

    def try_policy(self, who: Person, body: Mapping[str, Any], progress: Progress = SILENT) -> AutopilotRound:
        """Return tonight's round under policy `body`. progress: hears of ROUND_STAGES. UsageError names its faults."""

    def save_policy(
        self, who: Person, body: Mapping[str, Any], before: Mapping[str, Any] | None, reason: str = ""
    ) -> str:
        """Make it, or replace its spec while that still is `before`; the name."""

    def pause(self, who: Person, reason: str = "") -> str:
        """Stop all changes from now on; what the switch says then."""

    def resume(self, who: Person, workload: WorkloadRef | None = None, reason: str = "") -> None:
        """Resume everything, or one workload that was left alone."""

    def switch(self, who: Person, name: str, mode: AutopilotMode, reason: str = "", digest: str = "") -> None:
        """Let a policy act, or take that back; UsageError for another digest, UnseenVersion to act without any."""

    def lines_of(self, act: Callable[[AutopilotService], object]) -> Sequence[FieldMove]:
        """Everything that an act of this service would write to the cluster, object by object and field by field.

        act: calls an acting method of the service that it gets, such as `pause`; the API server only checks it, with
        the person's rights. Raises what the act would raise.
        """
