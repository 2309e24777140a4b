"""A node's usage beyond its forecast: pods placed after the end of its history, less those that left. Pure.

A node's forecast covers all its pods, so a pod that replaces another adds nothing: the expected usage of departed pods
is subtracted from that of new ones, separately for pods on reclaimed capacity and others, and never below zero. A table
that began to watch after the forecast's history ended has not seen earlier departures. Pods placed in between, and
measured in the node's report, then count together at most with the node's present usage above its forecast for now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotenant.scheduler_ext.extender.metric import LoadMetric, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod, Pair

REMEMBERED_SECONDS: Final = 7200.0
"""How long departures are kept on a node without a forecast: a new forecast's history ends within this time."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that left its node: Unix times of placement and departure, and its expected usage."""

    assigned_seconds: float
    left_seconds: float
    reclaimer: bool
    predicted: Pair

    @classmethod
    def of(cls, pod: NewPod, now_seconds: float) -> Departure | None:
        """Return the departure of a pod that leaves its node now; None for an unplaced, ended or placeholder pod."""
        if pod.assigned_seconds is None or pod.placeholder_of is not None or pod.ended:
            return None
        return cls(pod.assigned_seconds, now_seconds, pod.reclaimer, pod.predicted)


@dataclass(frozen=True, slots=True)
class Watch:
    """A node's recent past: departed pods, since when departures are watched, and the present Unix time."""

    departures: tuple[Departure, ...] = ()
    since_seconds: float = -math.inf
    now_seconds: float = 0.0


UNWATCHED: Final = Watch()  # nobody left


def relevant_departures(
    departures: Iterable[Departure], outlook: Outlook | None, now_seconds: float
) -> list[Departure]:
    """Return the departures of pods that the node's forecast, or the next one, may still include."""
    oldest = outlook.known_until if outlook else now_seconds - REMEMBERED_SECONDS
    return [departure for departure in departures if departure.left_seconds > oldest]


def came_after(pod: NewPod, outlook: Outlook) -> bool:
    """Return whether the forecast lacks the pod: it has no node yet, or got one after the forecast's history ended."""
    return pod.assigned_seconds is None or pod.assigned_seconds > outlook.known_until


def predates_departure_watch(pod: NewPod, outlook: Outlook | None, since_seconds: float) -> bool:
    """Return whether the pod was placed after the forecast's history ended but before departures were watched."""
    placed = pod.assigned_seconds
    return outlook is not None and placed is not None and outlook.known_until < placed <= since_seconds


def addition(pods: Iterable[NewPod], outlook: Outlook | None, metric: LoadMetric | None, watch: Watch) -> Pair:
    """Return the expected usage (millicores, bytes) of pods that a node's forecast lacks; zero without a forecast."""
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
    """Return the sum of `first` and of `second` times `factor`, for each resource of the pair."""
    return first[0] + factor * second[0], first[1] + factor * second[1]


def _not_negative(pair: Pair) -> Pair:
    return max(pair[0], 0.0), max(pair[1], 0.0)
