"""The last line of the tables of queues: quotas, waiting pods and gangs summed up in a sentence each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from cotenant.base import amount_text
from cotenant.base.resource import Resource
from cotenant.base.table import Table, human_amount
from cotenant.base.text import agree, counted, visible
from cotenant.scheduler_ext.queues.model.report import GangState

Row = Mapping[str, Any]


def quota_totals(table: Table) -> str:
    """Sum up the use of each resource by the highest of these quotas: those below are part of them.

    A pod stands in the rows of all resources of its quota and of none above it, and counts once.
    """
    rows = list(table.rows())
    listed = {(row["tree"], row["quota"], row["resource"]) for row in rows}
    highest = [row for row in rows if (row["tree"], row["parent"], row["resource"]) not in listed]
    uses = [_use(resource, highest) for resource in dict.fromkeys(row["resource"] for row in highest)]
    parents = {(row["tree"], row["parent"]) for row in rows}
    waiting: dict[tuple[str, str], int] = {}
    for row in rows:
        quota = row["tree"], row["quota"]
        waiting[quota] = max(waiting.get(quota, 0), row["waiting"])
    lowest = sum(pods for quota, pods in waiting.items() if quota not in parents)
    return "; ".join([counted(len(waiting), "quota"), *uses, _wait(lowest)])


def waiting_totals(table: Table) -> str:
    """Count the pods that wait, their quotas and their gangs. Amounts are not: a gang's pods lack the same one."""
    rows = list(table.rows())
    groups = (({row[name] for row in rows} - {""}, name) for name in ("quota", "gang"))
    parts = [counted(len(group), name) for group, name in groups if group]
    return _wait(len(rows)) + (f" in {' and '.join(parts)}" if parts else "")


def gang_totals(table: Table) -> str:
    """Count gangs by state, and those of their pods that have a place."""
    rows = list(table.rows())
    states = Counter(row["state"] for row in rows)
    by_state = ", ".join(f"{states[state]:,} {state.value}" for state in GangState if states[state])
    placed, members = (sum(row[name] for row in rows) for name in ("placed", "members"))
    return f"{counted(len(rows), 'gang')}: {by_state}; {placed:,} of {counted(members, 'pod')} placed"


def _wait(pods: int) -> str:
    return agree(pods, "pod waits", "pods wait")


def _use(resource: str, rows: Iterable[Row]) -> str:
    listed = [row for row in rows if row["resource"] == resource]
    used, runtime = (_amount(resource, sum(row[name] for row in listed)) for name in ("used", "runtime"))
    return f"{visible(resource)} {used} used of {runtime}"


def _amount(resource: str, value: int) -> str:
    known = resource in set(Resource)
    return amount_text.amount(value, Resource(resource)) if known else human_amount(resource, value)
