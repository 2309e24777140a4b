"""Why one pod waits, as questions and answers, from the rows of a queue report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.table import Column, Kind, Schema, Table, human_amount
from cotenant.scheduler_ext.queues.model.report import GangRow, QueueReport, QuotaRow, WaitingPodRow
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES

EXPLANATION: Final = Schema(
    "queue_explanation",
    (Column("what", "What", Kind.TEXT, "The question."), Column("answer", "Answer", Kind.TEXT, "What is so now.")),
    ("what",),
)


NO_ROW: Final = "it waits for no existing quota or gang: the manager removes the gate in its next round"
NO_RESERVATION: Final = "a Reservation may have capacity for it; the manager removes the gate when none has"
UNSERVED: Final = (
    "no manager removes it now: none runs, or the feature is off. A webhook removes it within minutes; without one, "
    "remove it from the pod's spec.schedulingGates"
)
"""Of a gate that nobody promises to lift."""
ENDING: Final = "the pod is being deleted, so its gates stay"


def row_of(report: QueueReport, namespace: str, pod: str) -> WaitingPodRow | None:
    """The row of a waiting pod; None when it does not wait behind a gate of ours."""
    return next((row for row in report.waiting if (row.namespace, row.pod) == (namespace, pod)), None)


def gang_of(report: QueueReport, key: str) -> GangRow | None:
    """The row of a gang by "namespace/name"."""
    return next((row for row in report.gangs if f"{row.namespace}/{row.gang}" == key), None)


def gate_sentences(report: QueueReport, meta: Mapping[str, Any], unserved: Iterable[str] = ()) -> dict[str, str]:
    """Return what each of our gates waits for, by the gate's name; for the gang's gate the gang's own reason.

    meta: the pod's metadata. unserved: gates that no manager promises to lift; other reasons for which a gate waits are
    reported all the same.
    """
    if meta.get("deletionTimestamp"):
        finalizers = ", ".join(map(str, meta.get("finalizers") or ()))
        return dict.fromkeys(OUR_GATES, f"{ENDING}; it is kept by {finalizers}" if finalizers else ENDING)
    row = row_of(report, str(meta.get("namespace")), str(meta.get("name")))
    sentences = {QUOTA_GATE: NO_ROW, GANG_GATE: NO_ROW, RESERVATION_GATE: NO_RESERVATION}
    sentences |= dict.fromkeys(unserved, UNSERVED)
    if row is not None:
        gang = gang_of(report, row.gang) if row.gang else None
        sentences[QUOTA_GATE] = row.reason
        sentences[GANG_GATE] = gang.reason if gang and gang.reason else row.reason
    return sentences


def explanation(report: QueueReport, row: WaitingPodRow) -> Table:
    """Question and answer, one a row, of what is known."""
    answers = [{"what": what, "answer": answer} for what, answer in _answers(report, row) if answer]
    return Table.from_rows(EXPLANATION, answers)


def _answers(report: QueueReport, row: WaitingPodRow) -> Iterator[tuple[str, str]]:
    yield "pod", f"{row.namespace}/{row.pod}"
    yield "waits since", _moment(row.since_seconds)
    yield "why", row.reason
    yield "reason", row.code
    yield "quota", row.quota
    yield "blocked by", row.blocking_quota
    yield from _amounts(report, row)
    yield "position in the queue", str(row.position) if row.position else ""
    yield "gang", _gang_words(gang_of(report, row.gang)) if row.gang else ""
    yield "likely free", "" if row.likely_seconds is None else f"{_moment(row.likely_seconds)}, {row.likely_basis}"


def _amounts(report: QueueReport, row: WaitingPodRow) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: amounts requested and missing, the blocking quota, users beyond their guarantee."""
    if not row.resource:
        return
    yield "requested", f"{human_amount(row.resource, row.requested)} {row.resource}"
    yield "missing", f"{human_amount(row.resource, row.missing)} {row.resource}"
    blocking = (row.blocking_quota or row.quota, row.resource)
    quota = next((quota for quota in report.quotas if (quota.quota, quota.resource) == blocking), None)
    yield "its amounts", _quota_words(quota) if quota else ""
    holders = ", ".join(f"{name} {human_amount(row.resource, amount)}" for name, amount in row.holders)
    yield "used beyond guarantees", holders


def _quota_words(row: QuotaRow) -> str:
    maximum = "no max" if row.maximum is None else f"max {human_amount(row.resource, row.maximum)}"
    amounts = (("min", row.minimum), ("runtime", row.runtime), ("used", row.used), ("request", row.request))
    return ", ".join([maximum, *(f"{name} {human_amount(row.resource, amount)}" for name, amount in amounts)])


def _gang_words(row: GangRow | None) -> str:
    if row is None:
        return ""
    counts = f"{row.members} of {row.total} pods exist, {row.placed} placed, at least {row.min_available} together"
    return f"{row.namespace}/{row.gang} {row.state.value}: {counts}" + (f"; {row.reason}" if row.reason else "")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
