"""The usage of running batch pods in the cluster, and the reason why lendable amounts are not known. Pure."""

from __future__ import annotations

from collections import Counter

from cotenant.base.colocation.reclaim_policies import KNOWN
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation, RowCondition


def why_unknown(lent: Relation) -> str:
    """Return a sentence with the most frequent reason why nodes have no known batch amount; "" if all nodes have one.

    `lent` is the table of reclaimable amounts, with the columns `band` and `reason`.
    """
    columns = lent.read("reason", where=RowCondition("band = 'batch'")).columns
    unknown = Counter(Reason(text) for text in columns["reason"] if Reason(text) not in KNOWN)
    return SENTENCES[unknown.most_common(1)[0][0]] if unknown else ""


def batch_pods() -> RowCondition:
    """Return the condition that selects the rows of table PODS whose pods run on reclaimed capacity."""
    lent = tuple(c.value for c in PriorityClass if c.is_reclaimer)
    by_priority = f"priority IN ({', '.join('?' * len(lent))})"
    return RowCondition(f"{by_priority} OR (priority = '' AND qos = ?)", (*lent, QosClass.BE.value))


def usage_of_batch_pods(pods: Relation) -> tuple[list[float | None], int]:
    """Return the usage of batch pods, CPU and memory each in its unit, and the number of these pods.

    A usage is None if batch pods exist and the usage of none of them is known.
    """
    count, *amounts = pods.sums(["count(*)", *(f"sum({r}_usage)" for r in Resource)], batch_pods())
    if not count:
        return [0.0 for _ in Resource], 0
    return [None if amount is None else float(amount) for amount in amounts], count
