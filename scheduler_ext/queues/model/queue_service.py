"""The interface by which pages and the REST API read queues, limited to what the person may see. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cotenant.base.errors import NoData
from cotenant.base.people import Person
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.text import format_value
from cotenant.scheduler_ext.queues.model.report import GangRow, QueueReport, WaitingPodRow

HISTORY_SECONDS: Final = 86_400
HISTORY_STEP_SECONDS: Final = 300
HIDDEN: Final = "(hidden)"
"""Shown instead of the name of a pod, gang or quota that the person may not see."""
HIDDEN_WORDS: Final = "the pod waits for objects in namespaces that you may not read"
GANG_WORDS: Final = "the gang waits for a quota that also counts pods of other namespaces"
QUOTA_WORDS: Final = "the quota conflicts with quotas that you may not read"
TOKEN: Final = re.compile(r"(?<![\w.-])[\w.-]*\w")
"""A name in a text, as Kubernetes writes names."""


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """One day of one quota and resource: time series with a value per step from `start_seconds`, None without a sample.

    The series runtime, used and request are in the resource's unit, waiting is a number of pods.
    """

    quota: str
    resource: str
    start_seconds: int
    step_seconds: int = HISTORY_STEP_SECONDS
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


class QueueService(Protocol):
    """The queues as pages and REST read them; thread-safe. Methods raise CotenantError if a read fails."""

    def report(self, who: Person) -> QueueReport:
        """Return the present queues that the person may see."""

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        """Return a quota's use of a resource in the last day; raise NoData without Prometheus or without a sample."""


def visible_to(report: QueueReport, who: Person) -> QueueReport:
    """Return the report without names and amounts of namespaces that the person may not read.

    A quota is included only if all of its pods are in readable namespaces: amounts of any other quota are sums from
    which those of other namespaces could be computed. A readable pod that a hidden quota blocks keeps its row, with a
    general reason. If the person may read everything, the report is unchanged.
    """
    namespaces = who.reads
    if namespaces is None:
        return report
    own_quotas = {row.quota for row in report.quotas if row.namespaces and namespaces.issuperset(row.namespaces)}
    foreign = {row.namespace for row in report.waiting} | {row.namespace for row in report.gangs}
    foreign |= {namespace for row in report.quotas for namespace in row.namespaces}
    foreign |= {parts[1] for subject, _ in report.problems if len(parts := re.split(r"[/ ]", subject)) > 2}
    foreign -= namespaces
    # NAMESPACE/NAME in these namespaces; nothing where there are none
    pattern = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(foreign)))})/[\w./-]+" if foreign else r"(?!)"
    others = _Others(namespaces, frozenset(row.quota for row in report.quotas) - own_quotas, re.compile(pattern))
    return QueueReport(
        report.at_seconds,
        tuple(
            replace(row, parent=others.quota_name(row.parent), problem=others.words(row.problem, QUOTA_WORDS))
            for row in report.quotas
            if row.quota in own_quotas
        ),
        tuple(others.waiting(row) for row in report.waiting if row.namespace in namespaces),
        tuple(others.gang(row) for row in report.gangs if row.namespace in namespaces),
        tuple(problem for problem in report.problems if others.may_show(*problem, own_quotas)),
        narrowed=True,
    )


def quota_for(report: QueueReport, who: Person, quota: str) -> None:
    """Raise the same NoData for a quota that the person may not see and for one that does not exist."""
    if who.reads is not None and all(row.quota != quota for row in visible_to(report, who).quotas):
        raise NoData(f"there is no quota {format_value(quota)} that you may read", fix="See GET queues/quotas.")


@dataclass(frozen=True, slots=True)
class _Others:
    """The parts of a report that may be shown or hidden: namespaces, quotas, a pattern of hidden NAMESPACE/NAME."""

    namespaces: frozenset[str]
    quotas: frozenset[str]
    names: re.Pattern[str]

    def quota_name(self, quota: str) -> str:
        """Return the name of a quota, or HIDDEN if the quota may not be shown."""
        return HIDDEN if quota in self.quotas else quota

    def words(self, text: str, instead: str) -> str:
        """Return the text without hidden names, or `instead` if it mentions a hidden quota."""
        masked = self.names.sub(HIDDEN, text)
        return instead if any(token in self.quotas for token in TOKEN.findall(masked)) else masked

    def waiting(self, row: WaitingPodRow) -> WaitingPodRow:
        """Return the row without amounts of a quota that is hidden."""
        gang = self.words(row.gang, HIDDEN)
        reason = self.words(row.reason, _sentence(row.code))
        if not {row.quota, row.blocking_quota} & self.quotas:
            holders = tuple(holder for holder in row.holders if holder[0] not in self.quotas)
            basis = self.words(row.likely_basis, "")
            return replace(row, gang=gang, reason=reason, holders=holders, likely_basis=basis)
        return replace(
            row,
            gang=gang,
            reason=_sentence(row.code),
            quota=self.quota_name(row.quota),
            blocking_quota=self.quota_name(row.blocking_quota),
            resource="",
            requested=0,
            missing=0,
            holders=(),
            likely_seconds=None,
            likely_basis="",
        )

    def gang(self, row: GangRow) -> GangRow:
        """Return the row with a reason that names no hidden object."""
        names = (self.words(row.reason, GANG_WORDS), self.words(row.placed_by, "cotenant"))
        return replace(row, quota=self.quota_name(row.quota), reason=names[0], placed_by=names[1])

    def may_show(self, subject: str, text: str, shown_quotas: set[str]) -> bool:
        """Return whether a problem is about an object that may be shown (`subject`), and names no hidden one."""
        place = re.split(r"[/ ]", subject)[1:]
        own = not place or (place[0] in self.namespaces if len(place) > 1 else place[0] in shown_quotas)
        return own and self.words(text, "") == text


def _sentence(code: str) -> str:
    return SENTENCES[Reason(code)] if code in set(Reason) else HIDDEN_WORDS
