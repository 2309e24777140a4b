"""Usage of a node beyond its forecast: pods placed after the end of its history, less those that left. Pure.

A forecast of a node is of all its pods, so the pod that replaces one of them adds nothing: what a departed pod was
expected to use is taken off what those that came are expected to use, for pods on reclaimed capacity and for all others
apart, and never below zero. A table that began to watch after the forecast's history ended did not see who left. Pods
that were placed in between, and that the node's report measures already, then count together at most by what the node
uses more now than its forecast said for now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotenant.scheduler_ext.extender.metric import LoadMetric, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod, Pair

REMEMBERED_SECONDS: Final = 7200.0
"""So long departures are remembered on a node without a forecast: one that comes ends its history in this time."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that left its node: Unix time at which it was placed and left, and what it was expected to use."""

    assigned_seconds: float
    left_seconds: float
    reclaimer: bool
    predicted: Pair

    @classmethod
    def of(cls, pod: NewPod, now_seconds: float) -> Departure | None:
        """Return the departure of a pod that leaves now; None if it used nothing: unplaced, a placeholder or ended."""
        if pod.assigned_seconds is None or pod.placeholder_of is not None or pod.ended:
            return None
        return cls(pod.assigned_seconds, now_seconds, pod.reclaimer, pod.predicted)


@dataclass(frozen=True, slots=True)
class Watch:
    """The recent past of a node: which pods left, since when departures were watched, and Unix time now."""

    departures: tuple[Departure, ...] = ()
    since_seconds: float = -math.inf
    now_seconds: float = 0.0


UNWATCHED: Final = Watch()  # nobody left


def relevant_departures(
    departures: Iterable[Departure], outlook: Outlook | None, now_seconds: float
) -> list[Departure]:
    """Departures that the node's forecast, or the next one, may still count as present."""
    oldest = outlook.known_until if outlook else now_seconds - REMEMBERED_SECONDS
    return [departure for departure in departures if departure.left_seconds > oldest]


def came_after(pod: NewPod, outlook: Outlook) -> bool:
    """Return whether the pod is not in the forecast: it has no node yet, or came after the forecast's history."""
    return pod.assigned_seconds is None or pod.assigned_seconds > outlook.known_until


def predates_departure_watch(pod: NewPod, outlook: Outlook | None, since_seconds: float) -> bool:
    """Return whether the pod came after the forecast's history but before departures were watched."""
    placed = pod.assigned_seconds
    return outlook is not None and placed is not None and outlook.known_until < placed <= since_seconds


def addition(pods: Iterable[NewPod], outlook: Outlook | None, metric: LoadMetric | None, watch: Watch) -> Pair:
    """(millicores, bytes) that the pods of a node use beyond what its forecast holds; none without a forecast."""
    if outlook is None:
        return 0.0, 0.0
    balance: dict[bool, Pair] = {False: (0.0, 0.0), True: (0.0, 0.0)}
    doubtful: Pair = (0.0, 0.0)
    for pod in pods:
        if pod.ended or pod.placeholder_of is not None or not came_after(pod, outlook):
            continue
        if metric and pod.key in metric.pods and predates_departure_watch(pod, outlook, watch.since_seconds):
            doubtful = plus(doubtful, pod.predicted)
        else:
            balance[pod.reclaimer] = plus(balance[pod.reclaimer], pod.predicted)
    for departure in watch.departures:
        if departure.assigned_seconds <= outlook.known_until < departure.left_seconds:
            balance[departure.reclaimer] = plus(balance[departure.reclaimer], departure.predicted, -1.0)
    counted = plus(_not_negative(balance[False]), _not_negative(balance[True]))
    if doubtful == (0.0, 0.0):
        return counted
    # by how much the node uses more now than its forecast for now; infinite where either is not known
    excess = [math.inf, math.inf]
    if metric is not None and metric.usage is not None:
        expected = zip(metric.usage, outlook.at(watch.now_seconds), strict=True)
        excess = [math.inf if math.isnan(high) else max(used - high, 0.0) for used, high in expected]
    return plus(counted, (min(doubtful[0], excess[0]), min(doubtful[1], excess[1])))


def plus(first: Pair, second: Pair, factor: float = 1.0) -> Pair:
    """Return the first pair and the second one, so many times."""
    return first[0] + factor * second[0], first[1] + factor * second[1]


def _not_negative(pair: Pair) -> Pair:
    return max(pair[0], 0.0), max(pair[1], 0.0)
