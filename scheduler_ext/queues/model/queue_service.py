"""What pages and the REST API may ask about queues, and which part of the answer a person sees. Pure vocabulary."""

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
"""In the place of the name of a pod, gang or quota that the person may not see."""
HIDDEN_WORDS: Final = "it waits for something in namespaces that you may not read"
GANG_WORDS: Final = "it waits for a quota that also counts pods of other namespaces"
QUOTA_WORDS: Final = "it conflicts with quotas that you may not read"
TOKEN: Final = re.compile(r"(?<![\w.-])[\w.-]*\w")
"""A name in a text, as Kubernetes writes names."""


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """One quota and resource over a day. Each series has one value per step from start_seconds; None: no sample.

    runtime, used, request: in the resource's unit. waiting: pods.
    """

    quota: str
    resource: str
    start_seconds: int
    step_seconds: int = HISTORY_STEP_SECONDS
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


class QueueService(Protocol):
    """Thread-safe. Raises CotenantError: the cluster is away, forbids reading, or no Prometheus is configured."""

    def report(self, who: Person) -> QueueReport:
        """The present queues that the person may see."""

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        """The last day of one quota; NoData where no Prometheus is configured or it has no sample."""


def visible_to(report: QueueReport, who: Person) -> QueueReport:
    """The report of the namespaces that the person reads: no name and no amount of another one is in it.

    A quota is shown whose pods are of these namespaces alone: the amounts of any other are sums over other namespaces,
    from which theirs can be taken. A pod of theirs that such a quota holds up keeps its row, with the reason in general
    words. Where the person reads everything, the report itself.
    """
    namespaces = who.reads
    if namespaces is None:
        return report
    own_quotas = {row.quota for row in report.quotas if row.namespaces and namespaces.issuperset(row.namespaces)}
    foreign = {row.namespace for row in report.waiting} | {row.namespace for row in report.gangs}
    foreign |= {namespace for row in report.quotas for namespace in row.namespaces}
    foreign |= {parts[1] for named, _ in report.problems if len(parts := re.split(r"[/ ]", named)) > 2}
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
    """NoData, the same for a quota of others and for one that does not exist, unless the person sees the quota."""
    if who.reads is not None and all(row.quota != quota for row in visible_to(report, who).quotas):
        raise NoData(f"there is no quota {format_value(quota)} that you may read", fix="GET queues/quotas for those.")


@dataclass(frozen=True, slots=True)
class _Others:
    """The parts of a report that are not the reader's: hidden quotas, and a search for NAMESPACE/NAME of others."""

    namespaces: frozenset[str]
    quotas: frozenset[str]
    names: re.Pattern[str]

    def quota_name(self, quota: str) -> str:
        """The name of a quota; not of one that is not shown."""
        return HIDDEN if quota in self.quotas else quota

    def words(self, text: str, instead: str) -> str:
        """A text without names of others; `instead` of one that speaks of a quota that is not shown."""
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
        """Return the row with a reason that names no object of others."""
        words = (self.words(row.reason, GANG_WORDS), self.words(row.placed_by, "cotenant"))
        return replace(row, quota=self.quota_name(row.quota), reason=words[0], placed_by=words[1])

    def may_show(self, named: str, text: str, shown_quotas: set[str]) -> bool:
        """Return whether a problem's text is about an object of the reader's (named), and names none of others."""
        place = re.split(r"[/ ]", named)[1:]
        own = not place or (place[0] in self.namespaces if len(place) > 1 else place[0] in shown_quotas)
        return own and self.words(text, "") == text


def _sentence(code: str) -> str:
    return SENTENCES[Reason(code)] if code in set(Reason) else HIDDEN_WORDS
