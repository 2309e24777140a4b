"""What running batch pods use of the cluster, and why what could be lent is not known. Pure."""

from __future__ import annotations

from collections import Counter

from cotenant.base.colocation.reclaim_policies import KNOWN
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation, RowCondition


def why_unknown(lent: Relation) -> str:
    """Return the sentence of the reason for which most nodes have no known amount for batch; "" where all have one.

    lent: the table of reclaimable amounts, with the columns `band` and `reason`.
    """
    columns = lent.read("reason", where=RowCondition("band = 'batch'")).columns
    unknown = Counter(Reason(text) for text in columns["reason"] if Reason(text) not in KNOWN)
    return SENTENCES[unknown.most_common(1)[0][0]] if unknown else ""


def batch_pods() -> RowCondition:
    """Rows of PODS that live on reclaimed capacity."""
    lent = tuple(c.value for c in PriorityClass if c.is_reclaimer)
    named = f"priority IN ({', '.join('?' * len(lent))})"
    return RowCondition(f"{named} OR (priority = '' AND qos = ?)", (*lent, QosClass.BE.value))


def usage_of_batch_pods(pods: Relation) -> tuple[list[float | None], int]:
    """Return the usage of batch pods, each resource in its unit, and the number of these pods.

    None where there are such pods and the usage of none of them is known.
    """
    count, *amounts = pods.sums(["count(*)", *(f"sum({r}_usage)" for r in Resource)], batch_pods())
    if not count:
        return [0.0 for _ in Resource], 0
    return [None if amount is None else float(amount) for amount in amounts], count
