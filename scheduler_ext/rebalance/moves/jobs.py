"""Reads PodMigrationJobs as table rows, makes the request that withdraws one, and says who executes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Delete
from cotenant.scheduler_ext.rebalance.migration.job import JobPhase, MigrationJob, address_of
from cotenant.scheduler_ext.rebalance.model.move_service import ENABLE_COMMAND, JobCarrier

Json = Mapping[str, Any]
APPROVED_BY_ANNOTATION: Final = "cotenant.dev/approved-by"
UNREADABLE: Final = "unreadable"  # phase shown for a job that cannot be read; its reason says why
WORKING: Final = frozenset({"Up", "Degraded"})  # states of a feature that does its work


def withdraw_job(body: Json) -> Delete:
    """Return the deletion of a PodMigrationJob; raise UsageError if its phase is no longer Pending."""
    job = MigrationJob.parse(body)
    pod, phase = "/".join(job.pod_key), job.status.phase
    if phase is not JobPhase.PENDING:
        raise UsageError(
            f"the job that moves pod {pod} is {phase.value}; only a Pending job can be withdrawn",
            fix="Wait until the job ends: the pod is moved, or stays on its node if a step fails.",
        )
    return Delete(address_of(job.name), job.uid, f"the move of {pod} is withdrawn", version=job.version)


def job_rows(bodies: Sequence[Json]) -> list[dict[str, Any]]:
    """Return PodMigrationJobs as rows of the table JOBS, newest first."""
    return sorted(map(job_row, bodies), key=lambda row: (-row["created"], row["job"]))


def job_row(body: Json) -> dict[str, Any]:
    """Return one PodMigrationJob as a table row; the row of an invalid object has the parse error as its reason."""
    meta = body.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    try:
        job = MigrationJob.parse(body)
    except UsageError as error:
        return {"job": str(meta.get("name") or ""), "phase": UNREADABLE, "created": 0.0, "reason": error.message}
    status = job.status
    paused = job.paused and not status.phase.ended
    in_order = sorted(status.conditions, key=lambda condition: condition.since)
    return {
        "job": job.name,
        "pod": "/".join(job.pod_key),
        "phase": f"{status.phase.value}, paused" if paused else status.phase.value,
        "step": status.step,
        "source": job.decided_source or status.source[1],
        "target": status.node or job.target,
        "successor": status.successor.name if status.successor else "",
        "done": ", ".join(condition.type for condition in in_order if condition.status == "True"),
        "created": job.created_seconds,
        "by": str(annotations.get(APPROVED_BY_ANNOTATION) or ""),
        "reason": ": ".join(part for part in (status.reason, status.message) if part),
    }


def open_job_of(rows: Sequence[Mapping[str, Any]], pod: str) -> str:
    """Return the name of the unfinished job that moves a pod, or "" if there is none."""
    ended = {phase.value for phase in JobPhase if phase.ended}
    return next((row["job"] for row in rows if row.get("pod") == pod and row["phase"] not in ended), "")


def carrier_of(status: Json | None, feature: str) -> JobCarrier:
    """Return whether a manager feature executes jobs, by ConfigMap cotenant-status (`status` is None if missing)."""
    if status is None:
        return JobCarrier("No manager runs in this cluster, so no move would be executed.", ENABLE_COMMAND)
    text = (status.get("data") or {}).get(feature)
    if text is None:
        return JobCarrier(f"The manager's feature {feature} is off, so no move would be executed.", ENABLE_COMMAND)
    try:
        condition = msgspec.json.decode(text, type=dict[str, str])
    except UNDECODABLE:
        return JobCarrier(
            f"The state of the manager's feature {feature} cannot be read: {text[:80]}", "cotenant doctor"
        )
    state, message = condition.get("reason", ""), condition.get("message", "")
    if state in WORKING:
        return JobCarrier()
    if state == "DryRun":
        return JobCarrier("The manager only does a dry run, so no move would be executed.", ENABLE_COMMAND)
    why = f"{state}: {message}" if message else state
    return JobCarrier(f"The manager's feature {feature} is not working ({why}).", "cotenant doctor")
