"""What pages and the REST API may ask about moves of pods, and ask to be done. Pure vocabulary.

A move that a person approves becomes a PodMigrationJob, which the manager carries out; it can be withdrawn while it is
still Pending. Every call names the person: the service checks their rights, whatever the page showed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import numpy as np

from cotenant.base.people import Person
from cotenant.base.table import Table
from cotenant.changes.model.service import FieldMove
from cotenant.scheduler_ext.rebalance.model.tables import RebalanceReport

FEATURE: Final = "migrations"  # the manager's feature that carries jobs out
EMPTYING_FEATURE: Final = "descheduler"  # the one that goes on with nodes that people approved to be emptied
TO_BE_EMPTIED: Final = "set"  # in column `decision` of EMPTYING: nodes that the round begins, and a person may approve
NARROWED: Final = "rows about pods of namespaces that you may not read are hidden"
PLACE: Final = re.compile(r"(?<![\w./-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/[a-z0-9][\w.-]*")  # NAMESPACE/NAME in a text
ENABLE_COMMAND: Final = "cotenant --set descheduler.enabled=true serve manager --write"


class MoveEvent(StrEnum):
    """An event of a move in the ledger; its subject is the pod, NAMESPACE/NAME, or the node that is emptied."""

    ASKED = "move-asked"
    """Written before the cluster is touched; without an outcome behind it, the job itself says what became of it."""
    REFUSED = "move-refused"
    APPROVED = "move-approved"
    WITHDRAWN = "move-withdrawn"
    NODE_ASKED = "emptying-asked"
    NODE_REFUSED = "emptying-refused"
    NODE_APPROVED = "emptying-approved"
    NODE_WITHDRAWN = "emptying-withdrawn"


@dataclass(frozen=True, slots=True)
class JobCarrier:
    """The state of job execution. why_not: "" if jobs are carried out, else the reason; command: what helps."""

    why_not: str = ""
    command: str = ""

    @property
    def carries(self) -> bool:
        """True if a job that is made now would be carried out."""
        return not self.why_not


@dataclass(frozen=True, slots=True)
class MigrationJobs:
    """Jobs of the cluster at one moment (Unix time): table JOBS, the newest first; and who carries them out.

    emptier: whether approved nodes are emptied.
    """

    at_seconds: float
    jobs: Table
    carrier: JobCarrier
    emptier: JobCarrier = JobCarrier()


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """The outcome of one move: the job that was made, or would be made in a dry run.

    error: why the move was refused, "" if it was not. pod: or the name of a node that is emptied, of which no job is
    made yet.
    """

    pod: str
    job: str = ""
    error: str = ""
    fix: str = ""
    lines: tuple[FieldMove, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveHistoryEntry:
    """A row of the ledger about a move: who did what, when (Unix time); pod: or the node that is emptied."""

    seconds: float
    actor: str
    event: MoveEvent
    pod: str
    message: str


class MoveService(Protocol):
    """Safe for many threads. Raises NotAllowed, and CotenantError when it could not be asked or done."""

    def report(self, who: Person) -> RebalanceReport:
        """The round that is decided now, of what the person may see."""

    def jobs(self, who: Person) -> MigrationJobs:
        """The jobs of the cluster, of pods that the person may see."""

    def preview(self, who: Person, pods: Sequence[str]) -> Sequence[MoveOutcome]:
        """Dry run on the server of approving these moves; an outcome a pod. Right.APPROVE."""

    def approve(self, who: Person, pods: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Make a job of each of these moves, as far as the round still plans it; an outcome a pod. Right.APPROVE."""

    def withdraw(self, who: Person, job: str, reason: str = "") -> MoveOutcome:
        """Delete a job that is still Pending. Right.APPROVE."""

    def emptying(self, who: Person) -> RebalanceReport:
        """The round of HighNodeLoad that is decided now, of what the person may see."""

    def preview_nodes(self, who: Person, nodes: Sequence[str]) -> Sequence[MoveOutcome]:
        """Dry run on the server of marking these nodes. Right.APPROVE in all namespaces."""

    def approve_nodes(self, who: Person, nodes: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Mark each of these nodes, as far as the round still empties it. Right.APPROVE in all namespaces."""

    def withdraw_node(self, who: Person, node: str, reason: str = "") -> MoveOutcome:
        """Remove a node's mark, regardless of who set it. Right.APPROVE in all namespaces."""

    def history(self, who: Person) -> Sequence[MoveHistoryEntry]:
        """Return the actions of people on moves through this service, the newest first."""


def namespace_of(pod: str) -> str:
    """The namespace of NAMESPACE/NAME; "" of a node."""
    return pod.rpartition("/")[0]


def visible_to(report: RebalanceReport, who: Person) -> RebalanceReport:
    """The report without moves and refusals of pods whose namespace the person does not read; nodes are shown whole.

    Notes and gaps that name such a pod are left out, and how many rows were: both are of others.
    """
    namespaces = who.reads
    if namespaces is None:
        return report
    moves, emptying = visible_pods(report.moves, who), visible_pods(report.emptying, who)
    notes = tuple(note for note in report.notes if not _names_others(note, namespaces))
    gaps = tuple(gap for gap in report.gaps if not _names_others(gap, namespaces))
    return replace(report, moves=moves, emptying=emptying, notes=(*notes, NARROWED), gaps=gaps)


def _names_others(text: str, namespaces: frozenset[str]) -> bool:
    """Return whether a text has NAMESPACE/NAME of a namespace not among these; a group of an API has a dot."""
    return any(found not in namespaces for found in PLACE.findall(text))


def visible_pods(table: Table, who: Person) -> Table:
    """Rows of a table about pods (column `pod`) that the person may see; a row about no single pod is everybody's."""
    namespaces = who.reads
    if namespaces is None:
        return table
    return table.take(
        np.array([not pod or namespace_of(pod) in namespaces for pod in table.columns["pod"]], dtype=bool)
    )
