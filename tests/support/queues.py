"""A queue report to show: two trees, a borrower and a lender, pods that wait, gangs in several states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cotenant.base.errors import CotenantError, NoData
from cotenant.base.people import Person, Right
from cotenant.base.resource import GIB
from cotenant.scheduler_ext.queues.model.queue_service import QuotaHistory, quota_for, visible_to
from cotenant.scheduler_ext.queues.model.report import GangRow, GangState, QueueReport, QuotaRow, WaitingPodRow

NOW: Final = 1_795_100_000.0
WHOSE: Final = {"company": ("research", "shop"), "research": ("research",), "shop": ("shop",), "lab": ("lab",)}
"""Namespaces whose pods count against each quota."""


def quota(name: str, resource: str = "cpu", scale: int = 1000, **changed: Any) -> QuotaRow:
    """A row; amounts in cores or GiB, times `scale`."""
    row = QuotaRow("", name, "company", 1, resource, 10 * scale, 40 * scale, 40 * scale, 20 * scale, 12 * scale,
                   12 * scale, 2 * scale, 0)  # fmt: skip
    return replace(row, **{"namespaces": WHOSE[name]} | changed)


QUOTAS: Final = (
    quota("company", parent="koordinator-root-quota", depth=0, minimum=60_000, maximum=None, runtime=60_000,
          used=46_000, request=58_000, borrowed=0, lent=14_000, waiting_pods=1),
    quota("research", minimum=20_000, maximum=50_000, runtime=34_000, used=36_000, request=48_000, borrowed=16_000,
          waiting_pods=3, over_since_seconds=NOW - 60),
    quota("shop", minimum=40_000, runtime=26_000, used=10_000, request=10_000, borrowed=0, lent=30_000),
    quota("research", "memory", GIB, used=8 * GIB, borrowed=0, lent=2 * GIB, waiting_pods=3),
    quota("lab", "nvidia.com/gpu", 1, tree="gpu", parent="koordinator-root-quota", depth=0, maximum=8, runtime=8,
          used=8, problem="max 8 is below min 10"),
)  # fmt: skip
WAITING: Final = (
    WaitingPodRow(
        "research", "train-0", "research", "research/train", NOW - 300, 1, "quota-full",
        "quota research may use 34 of cpu now and uses 36; the gang research/train requests 4", "research", "cpu", 4000,
        6000, (("research", 16_000),), NOW + 1800, "by the run times of 12 ended pods of quota research",
    ),
    WaitingPodRow("shop", "=cmd()", "shop", "", NOW - 10, 2, "gang-incomplete", "behind research/train in the queue"),
)  # fmt: skip
GANGS: Final = (
    GangRow("research", "train", "research", GangState.WAITS_FOR_QUOTA, 16, 0, 16, 16, NOW - 300, "waits for research"),
    GangRow(
        "shop", "index", "", GangState.NO_CAPACITY, 4, 0, 4, 4, NOW - 30, "needs 4 nodes with 8 cpu free, 3 have it"
    ),
)
REPORT: Final = QueueReport(NOW, QUOTAS, WAITING, GANGS, (("elasticquota lab/broken", "spec.min.cpu: '-1'"),))


class FixedQueues:
    """A queue service with a fixed report, or an error in its place; it narrows to the person as the real one does."""

    def __init__(self, report: QueueReport | CotenantError = REPORT, past: QuotaHistory | None = None) -> None:
        self._report, self._past = report, past

    def replace(self, report: QueueReport) -> None:
        """Another report from now on."""
        self._report = report

    def report(self, who: Person) -> QueueReport:
        """The report, of what the person may see."""
        who.require(Right.READ)
        if isinstance(self._report, CotenantError):
            raise self._report
        return visible_to(self._report, who)

    def history(self, who: Person, quota: str, resource: str) -> QuotaHistory:
        """The fixed day under the names that are asked for."""
        who.require(Right.READ)
        if not isinstance(self._report, CotenantError):
            quota_for(self._report, who, quota)
        if self._past is None:
            raise NoData("no Prometheus is configured", fix="Set profiler.prometheus.url.")
        return replace(self._past, quota=quota, resource=resource)
