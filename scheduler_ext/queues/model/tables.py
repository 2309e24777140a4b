"""The rows of a queue report as tables, with a line of totals for each: quotas, waiting pods, gangs. Pure.

Command line, REST and the page Queues render these tables, so they show the same cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from typing import Final

from cotenant.base import amount_text
from cotenant.base.resource import Resource
from cotenant.base.table import Column, Kind, Schema, Table, human_amount
from cotenant.base.text import agree, counted, visible
from cotenant.scheduler_ext.queues.model.report import GangRow, GangState, QueueReport, QuotaRow, WaitingPodRow

QUOTAS: Final = Schema(
    "quotas",
    (
        Column("quota", "Quota", Kind.TEXT, "Name of the ElasticQuota."),
        Column("tree", "Tree", Kind.TEXT, "Quota tree; empty for the default tree.", wide=True),
        Column("parent", "Parent", Kind.TEXT, "Parent quota.", wide=True),
        Column("depth", "Depth", Kind.INTEGER, "Depth in the quota tree; 0 directly below the root.", wide=True),
        Column("resource", "Resource", Kind.TEXT, "Resource of the row's amounts."),
        Column("min", "Min", Kind.AMOUNT, "Guarantee of the quota (its min)."),
        Column("max", "Max", Kind.AMOUNT, "Maximum that the quota may ever use; empty without a limit."),
        Column("weight", "Weight", Kind.AMOUNT, "Weight by which unused capacity is shared.", wide=True),
        Column("runtime", "Runtime", Kind.AMOUNT, "Amount that the quota may use now (its runtime)."),
        Column("used", "Used", Kind.AMOUNT, "Requests of the quota's admitted pods."),
        Column("request", "Request", Kind.AMOUNT, "Requests of all pods of the quota, including waiting ones."),
        Column("borrowed", "Borrowed", Kind.AMOUNT, "Amount that the quota uses above its guarantee."),
        Column("lent", "Lent", Kind.AMOUNT, "Unused guarantee that other quotas may use now."),
        Column("waiting", "Waiting", Kind.INTEGER, "Pods that wait for the quota."),
        Column("borrows_since", "Borrows since", Kind.TIME, "Since when the quota's use exceeds its min, if recorded."),
        Column("over_since", "Over since", Kind.TIME, "Since when the quota's use exceeds its runtime, if recorded."),
        Column("problem", "Problem", Kind.TEXT, "Problem for which the quota cannot be used."),
    ),
    ("tree", "quota", "resource"),
)

WAITING_PODS: Final = Schema(
    "waiting_pods",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the pod."),
        Column("pod", "Pod", Kind.TEXT, "Name of the pod."),
        Column("quota", "Quota", Kind.TEXT, "Quota against which the pod counts."),
        Column("gang", "Gang", Kind.TEXT, "Gang of the pod, namespace/name."),
        Column("since", "Since", Kind.TIME, "Time since which the pod waits."),
        Column("position", "Position", Kind.INTEGER, "Position in the queue, from 1."),
        Column("reason", "Reason", Kind.TEXT, "Code of the reason why the pod waits."),
        Column("blocking_quota", "Blocked by", Kind.TEXT, "Quota that blocks the pod.", wide=True),
        Column("resource", "Resource", Kind.TEXT, "Resource that is missing."),
        Column("requested", "Requested", Kind.AMOUNT, "Amount that the pod or its gang requests.", wide=True),
        Column("missing", "Missing", Kind.AMOUNT, "Amount that must become free before the pod is admitted."),
        Column("likely", "Likely", Kind.TIME, "Expected time of admission; empty if unknown."),
        Column("likely_basis", "Basis", Kind.TEXT, "Basis of the expected time.", wide=True),
        Column("why", "Why", Kind.TEXT, "The reason in a sentence."),
    ),
    ("namespace", "pod"),
)

GANGS: Final = Schema(
    "gangs",
    (
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the gang."),
        Column("gang", "Gang", Kind.TEXT, "Name of the gang."),
        Column("quota", "Quota", Kind.TEXT, "Quota against which its pods count."),
        Column("state", "State", Kind.TEXT, "State of the gang."),
        Column("members", "Members", Kind.INTEGER, "Pods of the gang that exist."),
        Column("placed", "Placed", Kind.INTEGER, "Pods that have a node, or reserved capacity."),
        Column("min_available", "Min", Kind.INTEGER, "Pods that must be placed together."),
        Column("total", "Total", Kind.INTEGER, "Pods that the gang will have in all."),
        Column("since", "Since", Kind.TIME, "Time since which the gang is in this state."),
        Column("placed_by", "Placed by", Kind.TEXT, "Who places the gang, and why not Kubernetes.", wide=True),
        Column("why", "Why", Kind.TEXT, "The reason in a sentence."),
    ),
    ("namespace", "gang"),
)


def quota_table(rows: Collection[QuotaRow]) -> Table:
    """Return a row per quota and resource, in the order of the report: parents before children."""
    cells = [
        asdict(row)
        | {"min": row.minimum, "max": row.maximum, "waiting": row.waiting_pods}
        | {"over_since": row.over_since_seconds, "borrows_since": row.borrows_since_seconds}
        for row in rows
    ]
    return Table.from_rows(QUOTAS, cells)


def waiting_table(rows: Collection[WaitingPodRow]) -> Table:
    """Return a row per waiting pod."""
    cells = [
        asdict(row)
        | {"since": row.since_seconds, "reason": row.code, "why": row.reason, "likely": row.likely_seconds}
        | ({} if row.resource else {"missing": None, "requested": None})
        for row in rows
    ]
    return Table.from_rows(WAITING_PODS, cells)


def gang_table(rows: Collection[GangRow]) -> Table:
    """Return a row per gang."""
    return Table.from_rows(
        GANGS, [asdict(row) | {"state": row.state.value, "since": row.since_seconds, "why": row.reason} for row in rows]
    )


def tables_of(report: QueueReport) -> dict[str, Table]:
    """Return all tables by the names of their schemas."""
    tables = (quota_table(report.quotas), waiting_table(report.waiting), gang_table(report.gangs))
    return {table.schema.name: table for table in tables}


def quota_totals(rows: Collection[QuotaRow]) -> str:
    """Return as text the number of quotas, the use of each resource out of its runtime, and the number of waiting pods.

    Resources are summed over the topmost quotas, which include those below them.
    """
    listed = {(row.tree, row.quota, row.resource) for row in rows}
    highest = [row for row in rows if (row.tree, row.parent, row.resource) not in listed]
    uses = []
    for resource in dict.fromkeys(row.resource for row in highest):
        sums = (sum(getattr(row, name) for row in highest if row.resource == resource) for name in ("used", "runtime"))
        own = resource in set(Resource)
        used, runtime = (
            amount_text.amount(value, Resource(resource)) if own else human_amount(resource, value) for value in sums
        )
        uses.append(f"{visible(resource)} {used} used of {runtime}")
    quotas = {(row.tree, row.quota) for row in rows}
    return "; ".join([counted(len(quotas), "quota"), *uses, _wait(waiting_pods_count(rows))])


def waiting_pods_count(rows: Collection[QuotaRow]) -> int:
    """Return the number of pods that wait for these quotas; those of a parent do not include its children's."""
    return sum({(row.tree, row.quota): row.waiting_pods for row in rows}.values())


def waiting_totals(table: Table) -> str:
    """Return the numbers of waiting pods, quotas and gangs; no amounts, because each pod of a gang shows the gang's."""
    rows = list(table.rows())
    groups = (({row[name] for row in rows} - {""}, name) for name in ("quota", "gang"))
    parts = [counted(len(group), name) for group, name in groups if group]
    return _wait(len(rows)) + (f" in {' and '.join(parts)}" if parts else "")


def gang_totals(table: Table) -> str:
    """Return the number of gangs by state, and how many of their pods are placed."""
    rows = list(table.rows())
    states = Counter(row["state"] for row in rows)
    by_state = ", ".join(f"{states[state]:,} {state.value}" for state in GangState if states[state])
    placed, members = (sum(row[name] for row in rows) for name in ("placed", "members"))
    return f"{counted(len(rows), 'gang')}: {by_state}; {placed:,} of {counted(members, 'pod')} placed"


def _wait(pods: int) -> str:
    return agree(pods, "pod waits", "pods wait")
