"""The gain and the cost of a move, both in node-seconds: a share of a node's capacity times seconds. Pure.

    gain = relief - harm                    overload that the source is spared, less what the target gets
    cost = restart_seconds x share x risk   share: the pod's usage as a share of the node
    a move pays when gain > cost

Overload is load above the high threshold over the forecast's half hours; without a forecast the present overload counts
for half an hour. All shares are of the same node, and of the resource with the largest share. `risk` grows with the
priority class, because a second of restart harms a service more than a batch pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.rebalance.classification import AHEAD_STEPS, HALF_HOUR
from cotenant.scheduler_ext.rebalance.load import RebalancePod

USUAL_RESTART_SECONDS: Final = 60.0  # counted for a pod whose own start cannot be read from its conditions
LONGEST_START_SECONDS: Final = 3600.0
"""If a pod became ready later than this after it was scheduled, it had been ready before, and its start is unknown."""
RISKS: Final = {PriorityClass.PROD: 10.0, PriorityClass.MID: 5.0, PriorityClass.BATCH: 2.0, PriorityClass.FREE: 1.0}


@dataclass(frozen=True, slots=True)
class MovePrice:
    """Gain and cost of a move in node-seconds, and for how many seconds restart and overload last (inf: all day)."""

    gain: float
    cost: float
    restart_seconds: float
    overload_seconds: float

    @property
    def pays(self) -> bool:
        """True if the move gains more than it costs."""
        return self.gain > self.cost

    @property
    def outlasts_overload(self) -> bool:
        """True if the restart takes at least as long as the overload lasts."""
        return self.restart_seconds >= self.overload_seconds


def price(pod: RebalancePod, shares: Floats, gain: float, overload_seconds: float, now_seconds: float) -> MovePrice:
    """Return the price of a move with this gain in node-seconds; `shares` is the pod's share of its node, (2,)."""
    restart = restart_seconds(pod, now_seconds)
    risk = RISKS.get(pod.facts.priority_class, RISKS[PriorityClass.PROD])
    return MovePrice(gain, restart * float(shares.max()) * risk, restart, overload_seconds)


def present_relief(shares: Floats, excess: Floats) -> float:
    """Return the overload in node-seconds that a pod takes off its node in half an hour, without a forecast.

    `shares` is the pod's usage and `excess` the node's load above the threshold, both as shares of its capacity, (2,).
    """
    return float(np.minimum(shares, np.maximum(excess, 0)).max()) * HALF_HOUR


def step_seconds(steps: int, now_seconds: float) -> Floats:
    """Return an array (steps,): the seconds that remain of the present half hour, then those of each later one."""
    seconds = np.full(steps, float(HALF_HOUR))
    seconds[0] -= now_seconds % HALF_HOUR
    return seconds


def overload(ahead: Floats, high: Floats, capacity: Floats, seconds: Floats) -> Floats:
    """Return each node's overload in node-seconds (share of its capacity times seconds), (nodes,).

    `ahead` is the load in each step, (steps, nodes, 2), where NaN counts as none; `high` and `capacity` are (nodes, 2).
    `seconds` is the length of each step, (steps,). A step counts the larger share of CPU and memory.
    """
    above = np.fmax(ahead - high, 0.0) / capacity
    node_seconds: Floats = seconds @ np.fmax(above[:, :, 0], above[:, :, 1])
    return node_seconds


def restart_seconds(pod: RebalancePod, now_seconds: float) -> float:
    """Return how many seconds a move makes the pod unavailable: its time from scheduled to ready, at least 1 s.

    If that time is unknown or too long, it is USUAL_RESTART_SECONDS. A Job's pod also loses its work since scheduling.
    """
    placed, ready = pod.facts.assigned_seconds, pod.ready_seconds
    start = USUAL_RESTART_SECONDS
    if placed is not None and ready is not None and 0 <= ready - placed <= LONGEST_START_SECONDS:
        start = max(ready - placed, 1.0)
    if pod.is_job:
        start += max(now_seconds - (pod.created_seconds if placed is None else placed), 0.0)
    return start


def overload_seconds(ahead: Floats, high: Floats, over: Flags, now_seconds: float) -> float:
    """Return how many seconds the resources in `over` stay above the threshold.

    The overload ends with the first half hour that is not above. `ahead` is the load of half hours from the present one
    on, (steps, 2); `high` is (2,). A future overload counts from its beginning. The result is half an hour if no
    forecast expects the overload to begin within AHEAD_STEPS.
    """
    above: Flags = np.logical_or.reduce((ahead > high) & over, axis=1)
    begins = int(np.argmax(above)) if above.any() else len(above)
    if begins > AHEAD_STEPS:
        return float(HALF_HOUR)
    ends = np.flatnonzero(~above[begins:])
    steps = int(ends[0]) if len(ends) else len(above) - begins
    passed = now_seconds % HALF_HOUR if begins == 0 else 0.0
    return float(steps * HALF_HOUR - passed)


def after_overload_mask(ahead: Floats, high: Floats) -> Flags:
    """Return a mask (steps,) of the half hours after the first overload; `ahead` is (steps, 2), `high` is (2,)."""
    above: Flags = np.logical_or.reduce(ahead > high, axis=1)
    has_begun = np.logical_or.accumulate(above)
    over: Flags = np.logical_or.accumulate(has_begun & ~above)
    return over
