"""What pages and the REST API may ask about queues, and which part of the answer a person sees. Pure vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cotenant.core.model.changes.people import Person
from cotenant.core.model.queues.report import QueueReport

HISTORY_SECONDS: Final = 86_400
HISTORY_STEP_SECONDS: Final = 300
HIDDEN: Final = "(hidden)"
"""In the place of a pod's or gang's name that the person may not see."""


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """One quota and resource over the last day. Each series has a value a step from start_seconds on, None = no sample.

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
        """The queues as they are now, of what the person may see."""

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        """The last day of one quota; NoData where no Prometheus is configured or it has no sample."""


def visible_to(report: QueueReport, who: Person) -> QueueReport:
    """The report without pods and gangs of namespaces that the person does not read; quotas name no workload."""
    namespaces = who.reads
    if namespaces is None:
        return report
    others = ({row.namespace for row in report.waiting} | {row.namespace for row in report.gangs}) - namespaces
    hidden = _names_in(others)
    return replace(
        report,
        waiting=tuple(
            replace(row, reason=hidden.sub(HIDDEN, row.reason)) for row in report.waiting if row.namespace in namespaces
        ),
        gangs=tuple(
            replace(row, reason=hidden.sub(HIDDEN, row.reason)) for row in report.gangs if row.namespace in namespaces
        ),
        problems=tuple((name, text) for name, text in report.problems if not hidden.search(f"{name} {text}")),
    )


def _names_in(namespaces: set[str]) -> re.Pattern[str]:
    """What matches NAMESPACE/NAME of these namespaces; nothing where there are none."""
    if not namespaces:
        return re.compile(r"(?!)")
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(namespaces)))})/[\w./-]+")
