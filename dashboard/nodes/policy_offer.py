"""The line on Home that offers another reclaim policy, from the scores of a back-test on this cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation, RowCondition
from cotenant.base.text import percent
from cotenant.base.usage.backtest import FORECAST, PolicySwitch, PolicyTrial, switch
from cotenant.dashboard.figures import display

COMMANDS: Final = (
    ("What each policy would have lent here", "cotenant backtest --reclaim"),
    ("Try policy forecast in the next scan", "cotenant --set recommender.reclaimable.cpu_policy=forecast scan"),
    ("Switch the policy in colocation-config", "kubectl -n koordinator-system edit configmap slo-controller-config"),
)
"""What each command is for, and the command."""
FIELD: Final = '"cpuCalculatePolicy": "forecast"'
THRESHOLDS: Final = (
    "Thresholds that are not set follow the policy. If resource-threshold-config sets "
    "cpuSuppressThresholdPercent, remove that key: the node agent withdraws what is lent above that threshold."
)


def policies_now(lent: Relation) -> set[str]:
    """Return the policies by which the present amounts of batch CPU in RECLAIMABLE were computed."""
    batch_cpu = RowCondition("band = ? AND resource = ?", (Band.BATCH.value, Resource.CPU.value))
    return {policy for (policy,) in lent.groups([("policy",)], batch_cpu)[0]}


def offer(trial: PolicyTrial | None, now: Collection[str]) -> PolicySwitch | None:
    """Return the switch to policy `forecast` if the back-test `trial` supports it and it is not in use, else None."""
    supported = None if trial is None else switch(trial)
    return supported if supported is not None and supported.now in now and FORECAST not in now else None


def sentence(offered: PolicySwitch) -> str:
    """Return the offer in one line, with its numbers."""
    days = display.counted(int(offered.tested_days), "tested day")
    return (
        f"Policy forecast would have lent {offered.ratio:.1f} x the cores of the present policy ({offered.now}); "
        f"after {percent(offered.violation, 1)} of its decisions in {days} nodes needed more than they had kept."
    )
