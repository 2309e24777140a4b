"""How many pods of one workload may be away at once. Pure."""

from __future__ import annotations


def limit_of(limit: int | str | None, replicas: int) -> int | None:
    """Pods of a workload that may be away at once; None for a limit that cannot be read.

    Unset: 10 % above 10 replicas, 2 from 4 to 10, else 1. A percentage that truncates to 0 becomes 1; never more than
    the replicas. Source: Koordinator's MigrationController (`GetMaxMigrating`).
    """
    if limit is None:
        number = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(limit, int):
        number = limit
    elif limit.removesuffix("%").isdecimal():  # a superscript is a digit that `int` refuses
        share = int(limit.removesuffix("%"))
        number = max(replicas * share // 100, 1) if limit.endswith("%") else share
    else:
        return None
    return min(max(number, 0), replicas)
