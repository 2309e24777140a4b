"""Vocabulary of the autopilot: modes of a policy, reasons why a workload waits, and events of the ledger. Pure."""

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
    """The mode of a policy: Off, Observe (only record what it would change) or Act."""

    OFF = "Off"
    OBSERVE = "Observe"
    ACT = "Act"


RISING_AT_ONCE: Final[Mapping[Direction, Resource]] = {
    Direction.UP_AFTER_OOM_KILL: Resource.MEMORY,
    Direction.UP_AFTER_THROTTLING: Resource.CPU,
}
"""By direction, the resource that is raised at once; the first direction that applies goes before all other changes."""


METHODS: Final[Mapping[Way, Method]] = {
    Way.IN_PLACE: Method.IN_PLACE,
    Way.ROLL_OUT: Method.TEMPLATE,
    Way.NEXT_RESTART: Method.ANNOTATE,
}
"""The method of the change that a way corresponds to when it is accepted."""


class AutopilotEvent(StrEnum):
    """Ledger events of the autopilot, in addition to the events of changes."""

    ACT = "autopilot-act"
    """A person approves the present version of a policy; the row has its digest."""
    OBSERVE = "autopilot-observe"
    """A person withdraws that approval."""
    PROPOSED = "autopilot-proposed"
    """A change that a policy in mode Observe would have made to a workload."""
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
    """The CPU of that pod was restored, or it never got more."""
    FLOOR_RAISED = "autopilot-floor-raised"
    """minReplicas of the workload's autoscaler is raised for a peak; a row before the write and one after it."""
    FLOOR_ENDED = "autopilot-floor-ended"
    """That minReplicas was restored, or somebody else has set the field."""


class QueueVerdict(StrEnum):
    """The decision of a round on one workload."""

    ACT = "act"
    PROPOSE = "propose"
    """It would be changed, but its policy observes."""
    WAIT = "wait"


QUEUE: Final = Schema(
    "autopilot_queue",
    (
        Column("place", "#", Kind.INTEGER, "Place in the queue; 0 for a workload that waits.", essential=True),
        Column("decision", "Decision", Kind.TEXT, "act, propose (the policy only observes) or wait.", essential=True),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workload.", essential=True),
        Column("kind", "Kind", Kind.TEXT, "Kind of the workload."),
        Column("workload", "Workload", Kind.TEXT, "Name of the workload.", essential=True),
        Column("policy", "Policy", Kind.TEXT, "AutopilotPolicy that selects the workload."),
        Column(
            "cpu_frees",
            "CPU frees",
            Kind.MILLICORES,
            "CPU requests that the next change lowers, over all pods.",
            essential=True,
        ),
        Column("memory_frees", "Memory frees", Kind.BYTES, "Memory requests that the change lowers, over all pods."),
        Column("cpu_raises", "CPU raises", Kind.MILLICORES, "CPU requests that the change raises, over all pods."),
        Column("memory_raises", "Memory raises", Kind.BYTES, "Memory requests that the change raises, over all pods."),
        *CONFIDENCE_COLUMNS,
        Column("score", "Score", Kind.NUMBER, "Money (cores if unpriced) x confidence; orders the queue.", wide=True),
        Column("floor", "Replica floor", Kind.INTEGER, "Autoscaler's minReplicas for the next forecast peak."),
        Column("floor_from", "Floor from", Kind.TIME, "When the forecast peak begins.", wide=True),
        Column("floor_until", "Floor until", Kind.TIME, "When the peak ends and minReplicas is restored.", wide=True),
        Column("gitops", "Kept by", Kind.TEXT, "What shows that a GitOps tool manages the workload.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why the workload waits, as a code of docs/reasons.md."),
        Column("words", "Why", Kind.TEXT, "Why the workload waits, as a sentence.", essential=True),
    ),
    ("namespace", "kind", "workload"),
)
STATUS: Final = Schema(
    "autopilot_status",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the policy."),
        Column("policy", "Policy", Kind.TEXT, "Name of the policy."),
        Column("asked", "Asked for", Kind.TEXT, "Mode in the policy's spec.mode."),
        Column("mode", "Does", Kind.TEXT, "Mode in effect now: Off, Observe or Act."),
        Column("workloads", "Workloads", Kind.INTEGER, "Selected workloads that have a recommendation."),
        Column("queued", "Queued", Kind.INTEGER, "Changes of the policy that could be made now."),
        Column(
            "under_way",
            "Under way",
            Kind.INTEGER,
            "Changes of the autopilot in this namespace that soak or have no known outcome.",
        ),
        Column("narrowed", "Narrowed", Kind.TEXT, "Fields of the policy that the ceiling narrows.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why the effective mode is less than spec.mode."),
    ),
    ("namespace", "policy"),
)
REPORT: Final = Schema(
    "autopilot_report",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workloads."),
        Column("proposed", "Proposed", Kind.INTEGER, "Workloads that mode Act would have changed."),
        Column("changed", "Changed", Kind.INTEGER, "Changes that were accepted by the autopilot."),
        Column("held", "Held", Kind.INTEGER, "Changes of the autopilot that were verified and did no harm."),
        Column("regressed", "Harmful", Kind.INTEGER, "Changes of the autopilot that did harm."),
        Column("left_alone", "Left alone", Kind.INTEGER, "Workloads that another writer has taken over."),
        Column("floors", "Peaks", Kind.INTEGER, "Forecast peaks before which an autoscaler's minReplicas was raised."),
        Column("floor_replicas", "Replicas lent", Kind.INTEGER, "Most replicas added for each peak, summed."),
        Column("cpu_proposed", "CPU would free", Kind.MILLICORES, "CPU requests that proposals would lower."),
        Column("memory_proposed", "Memory would free", Kind.BYTES, "Memory requests that proposals would lower."),
        Column("cpu_proposed_raises", "CPU would raise", Kind.MILLICORES, "CPU that proposals would add.", wide=True),
        Column("memory_proposed_raises", "Memory would raise", Kind.BYTES, "Memory that proposals add.", wide=True),
        Column("cpu_freed", "CPU freed", Kind.MILLICORES, "CPU requests that changes in force have lowered."),
        Column("memory_freed", "Memory freed", Kind.BYTES, "Memory requests that changes in force have lowered."),
        Column("cpu_raised", "CPU raised", Kind.MILLICORES, "CPU requests that changes in force have raised."),
        Column("memory_raised", "Memory raised", Kind.BYTES, "Memory requests that changes in force have raised."),
        Column(
            "weeks",
            "Weeks over",
            Kind.INTEGER,
            "Workloads for which the week after their proposal ended in the reported days and has stored usage; the "
            "next columns have the effect that the proposals would have had in that week.",
        ),
        Column("week_cpu", "CPU in it", Kind.MILLICORES, "Mean net CPU that proposals would free.", sign=Sign.FREED),
        Column("week_memory", "Memory in it", Kind.BYTES, "Mean net memory that proposals free.", sign=Sign.FREED),
        Column(
            "week_money", "Money a month", Kind.NUMBER, "Saving by the price sheet.", unit=Unit.MONTHLY, sign=Sign.FREED
        ),
        Column("week_kills", "OOM kills", Kind.INTEGER, "OOM kills that proposals would add.", sign=Sign.EITHER),
        Column(
            "week_throttled",
            "Minutes short",
            Kind.NUMBER,
            "Added container-minutes with CPU demand above the limit, compared with the present limits.",
            unit=Unit.CONTAINER_MINUTES,
            sign=Sign.EITHER,
        ),
    ),
    ("namespace",),
)


def policy_totals(status: Table) -> str:
    """Return a sentence that sums up all rows of the table STATUS."""
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
    """Totals of one round: the workloads that would change, the requests lowered and raised, the pods that may restart.

    `most_restarts` counts the pods of workloads whose change may be rolled out; fewer restart if it is done in place.
    """

    changes: int = 0
    savings: Savings = field(default_factory=Savings)
    most_restarts: int = 0


@dataclass(frozen=True, slots=True)
class AutopilotRound:
    """One decision of the autopilot (round), limited to what a person may see: tables `STATUS` and `QUEUE`.

    `halt` says why nothing is changed now, "" if something may be; `halt_reason` is its code. `enabled`: a manager with
    these settings follows policies. `gaps` names the policies whose namespace could not be read, each with the reason.
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
    """A policy in the cluster. `body` is the object without server fields, `text` its spec in mode Act, as JSON.

    `digest` identifies that spec in an approval. `refused` says why the policy is not followed, "" if it is.
    """

    name: str
    body: Mapping[str, Any]
    text: str = ""
    digest: str = ""
    refused: str = ""


ROUND_STAGES: Final = (
    "Reading the approvals",
    "Reading policies",
    "Reading the workloads and pods of the namespace",
    "Deciding what changes, and in which order",
)
"""Progress texts of a round for which a person waits."""


class AutopilotService(Protocol):
    """The autopilot as pages, REST and commands use it; thread-safe. `name` is a policy's NAMESPACE/NAME.

    A method that writes needs `Right.APPROVE` in the namespace, or in all of them to resume everything, and adds a row
    to the ledger. Methods raise NotAllowed, and the cluster's errors as CotenantError.
    """

    def round(self, who: Person, in_window: bool = False) -> AutopilotRound:
        """Return a round decided at most some seconds ago; with `in_window` as if every change window were open."""

    def report(self, who: Person, days: float) -> Table:
        """Return the table `REPORT`: what was proposed, changed and harmful in the last `days`, by namespace."""

    def policy(self, who: Person, name: str) -> StoredPolicy:
        """Return the policy as the cluster has it; raise NoData if there is none."""

    def bundle(self, who: Person, form: BundleForm, namespaces: Sequence[str] = ()) -> Mapping[str, str]:
        """Return files by path with the next changes of workloads that a GitOps tool manages; NoData if none."""

    def try_policy(self, who: Person, body: Mapping[str, Any], progress: Progress = SILENT) -> AutopilotRound:
        """Decide a round with draft policy `body`, all change windows open; raise UsageError for an invalid draft."""

    def save_policy(
        self, who: Person, body: Mapping[str, Any], before: Mapping[str, Any] | None, reason: str = ""
    ) -> str:
        """Create the policy (`before` is None), or replace its spec if that still is `before`; return its name."""

    def pause(self, who: Person, reason: str = "") -> str:
        """Pause all changes from now on; return the text that the pause switch then has."""

    def resume(self, who: Person, workload: WorkloadRef | None = None, reason: str = "") -> None:
        """Resume the autopilot, or only one workload that it leaves alone or would retry later."""

    def switch(self, who: Person, name: str, mode: AutopilotMode, reason: str = "", digest: str = "") -> None:
        """Let a policy act or only observe, if it still has this `digest`; to act, the digest is required."""

    def lines_of(self, act: Callable[[AutopilotService], object]) -> Sequence[FieldMove]:
        """Return, by object, all fields that a call of this service in `act` would write to the cluster.

        `act` gets a service and calls one of its methods that write, such as `pause`. The API server only checks the
        writes, with the person's rights. Raises what the method would raise.
        """
