"""The interface by which pages and the REST API show and approve moves of pods. Pure data types and a protocol.

A move that a person approves becomes a PodMigrationJob, which the manager executes; it can be withdrawn while it is
Pending. Every call names the person, and the service checks this person's rights, whatever the page showed.
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
    """A ledger event about a move; its subject is the pod (NAMESPACE/NAME), or the node that is emptied."""

    ASKED = "move-asked"
    """Written before the cluster changes; if no outcome follows, the job itself shows the outcome."""
    REFUSED = "move-refused"
    APPROVED = "move-approved"
    WITHDRAWN = "move-withdrawn"
    NODE_ASKED = "emptying-asked"
    NODE_REFUSED = "emptying-refused"
    NODE_APPROVED = "emptying-approved"
    NODE_WITHDRAWN = "emptying-withdrawn"


@dataclass(frozen=True, slots=True)
class JobCarrier:
    """The manager's readiness to execute jobs: `why_not` is "" or the reason against it, `command` the remedy."""

    why_not: str = ""
    command: str = ""

    @property
    def carries(self) -> bool:
        """True if a job that is created now would be executed."""
        return not self.why_not


@dataclass(frozen=True, slots=True)
class MigrationJobs:
    """The cluster's PodMigrationJobs at a Unix time, newest first (table JOBS); `carrier` says if they are executed.

    `emptier` says whether approved nodes are emptied.
    """

    at_seconds: float
    jobs: Table
    carrier: JobCarrier
    emptier: JobCarrier = JobCarrier()


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """The outcome of an approval for one pod or node, with the job that was created or, in a dry run, would be.

    `error` is why it was refused, or "". `pod` may be the name of a node that is emptied, which has no job yet.
    """

    pod: str
    job: str = ""
    error: str = ""
    fix: str = ""
    lines: tuple[FieldMove, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveHistoryEntry:
    """A ledger row about a move: what a person did and when (Unix time), with the pod or the node that is emptied."""

    seconds: float
    actor: str
    event: MoveEvent
    pod: str
    message: str


class MoveService(Protocol):
    """Thread-safe operations on moves. Methods raise NotAllowed, or CotenantError if the cluster cannot answer."""

    def report(self, who: Person) -> RebalanceReport:
        """Return LowNodeLoad's present round, with only the pods that the person may see."""

    def jobs(self, who: Person) -> MigrationJobs:
        """Return the PodMigrationJobs of pods that the person may see."""

    def preview(self, who: Person, pods: Sequence[str]) -> Sequence[MoveOutcome]:
        """Send the jobs of these pods as a dry run; return an outcome for each pod. Needs Right.APPROVE."""

    def approve(self, who: Person, pods: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Create a job for each of these pods that the round still moves; return the outcomes. Needs Right.APPROVE."""

    def withdraw(self, who: Person, job: str, reason: str = "") -> MoveOutcome:
        """Delete a job that is still Pending. Needs Right.APPROVE."""

    def emptying(self, who: Person) -> RebalanceReport:
        """Return HighNodeLoad's present round, with only the pods that the person may see."""

    def preview_nodes(self, who: Person, nodes: Sequence[str]) -> Sequence[MoveOutcome]:
        """Send the emptying taints of these nodes as a dry run. Needs Right.APPROVE in all namespaces."""

    def approve_nodes(self, who: Person, nodes: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        """Taint each node that the round still plans to empty. Needs Right.APPROVE in all namespaces."""

    def withdraw_node(self, who: Person, node: str, reason: str = "") -> MoveOutcome:
        """Remove a node's emptying taint, whoever set it. Needs Right.APPROVE in all namespaces."""

    def history(self, who: Person) -> Sequence[MoveHistoryEntry]:
        """Return what people did through this service with moves that the person may see, newest first."""


def namespace_of(pod: str) -> str:
    """Return the namespace of NAMESPACE/NAME; "" if the text is the name of a node."""
    return pod.rpartition("/")[0]


def visible_to(report: RebalanceReport, who: Person) -> RebalanceReport:
    """Return the report without pods of namespaces that the person may not read; nodes are not filtered.

    Notes and gaps that name such a pod are left out too.
    """
    namespaces = who.reads
    if namespaces is None:
        return report
    moves, emptying = visible_pods(report.moves, who), visible_pods(report.emptying, who)
    notes = tuple(note for note in report.notes if not _names_others(note, namespaces))
    gaps = tuple(gap for gap in report.gaps if not _names_others(gap, namespaces))
    return replace(report, moves=moves, emptying=emptying, notes=(*notes, NARROWED), gaps=gaps)


def _names_others(text: str, namespaces: frozenset[str]) -> bool:
    """Return whether a text has a NAMESPACE/NAME outside these namespaces; an API group differs by its dot."""
    return any(place not in namespaces for place in PLACE.findall(text))


def visible_pods(table: Table, who: Person) -> Table:
    """Return the rows whose pod (column `pod`) the person may see; rows without a pod are visible to all."""
    namespaces = who.reads
    if namespaces is None:
        return table
    return table.take(
        np.array([not pod or namespace_of(pod) in namespaces for pod in table.columns["pod"]], dtype=bool)
    )
