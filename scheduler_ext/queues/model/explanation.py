"""Explains from a queue report why one pod waits, as questions and answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, RESERVATION_GATE
from cotenant.base.table import Column, Kind, Schema, Table, human_amount
from cotenant.scheduler_ext.queues.model.report import GangRow, QueueReport, WaitingPodRow
from cotenant.scheduler_ext.reservations.pod_gate import OUR_GATES

EXPLANATION: Final = Schema(
    "queue_explanation",
    (Column("what", "What", Kind.TEXT, "The question."), Column("answer", "Answer", Kind.TEXT, "Its answer now.")),
    ("what",),
)


NO_ROW: Final = "the pod waits for no existing quota or gang: the manager removes the gate in its next run"
NO_RESERVATION: Final = "the pod waits for reserved capacity; the manager removes the gate if no Reservation fits"
UNSERVED: Final = (
    "no manager removes this gate now: none runs, or the feature is off. A webhook removes it within minutes; without "
    "a webhook, remove the gate from the pod's spec.schedulingGates"
)
"""Text about a gate that no manager promises to remove."""
ENDING: Final = "the pod is being deleted, so its gates stay"


def row_of(report: QueueReport, namespace: str, pod: str) -> WaitingPodRow | None:
    """Return the row of a waiting pod; None if no gate of cotenant keeps the pod waiting."""
    return next((row for row in report.waiting if (row.namespace, row.pod) == (namespace, pod)), None)


def gang_of(report: QueueReport, key: str) -> GangRow | None:
    """Return the row of a gang, given as "namespace/name", or None."""
    return next((row for row in report.gangs if f"{row.namespace}/{row.gang}" == key), None)


def gate_sentences(report: QueueReport, meta: Mapping[str, Any], unserved: Iterable[str] = ()) -> dict[str, str]:
    """Return, by scheduling gate of cotenant, why a pod still has the gate; `meta` is the pod's metadata.

    `unserved` are gates that no manager promises to remove; this is the reason where the report has none.
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
    """Return what is known about a waiting pod as a table with one question and its answer per row."""
    answers = {
        "pod": f"{row.namespace}/{row.pod}",
        "waits since": _moment(row.since_seconds),
        "why": row.reason,
        "reason": row.code,
        "quota": row.quota,
        "blocked by": row.blocking_quota,
    }
    if row.resource:
        answers["requested"] = f"{human_amount(row.resource, row.requested)} {row.resource}"
        answers["missing"] = f"{human_amount(row.resource, row.missing)} {row.resource}"
        blocking = (row.blocking_quota or row.quota, row.resource)
        quota = next((quota for quota in report.quotas if (quota.quota, quota.resource) == blocking), None)
        if quota:
            maximum = "no max" if quota.maximum is None else f"max {human_amount(row.resource, quota.maximum)}"
            amounts = {"min": quota.minimum, "runtime": quota.runtime, "used": quota.used, "request": quota.request}
            parts = [maximum, *(f"{name} {human_amount(row.resource, amount)}" for name, amount in amounts.items())]
            answers["its amounts"] = ", ".join(parts)
        holders = ", ".join(f"{name} {human_amount(row.resource, amount)}" for name, amount in row.holders)
        answers["used beyond guarantees"] = holders
    answers["position in the queue"] = str(row.position) if row.position else ""
    if row.gang and (gang := gang_of(report, row.gang)) is not None:
        counts = f"{gang.members} of {gang.total} pods exist, {gang.placed} are placed"
        counts += f", {gang.min_available} must be placed together"
        because = f"; {gang.reason}" if gang.reason else ""
        answers["gang"] = f"{gang.namespace}/{gang.gang} {gang.state.value}: {counts}{because}"
    if row.likely_seconds is not None:
        answers["likely free"] = f"{_moment(row.likely_seconds)}, {row.likely_basis}"
    rows = [{"what": what, "answer": answer} for what, answer in answers.items() if answer]
    return Table.from_rows(EXPLANATION, rows)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
