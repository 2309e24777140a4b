"""EDGE: measures how long a workload had fewer ready pods than its demand needs, with a plan and without one.

"Without" is a twin: a second cluster of the same objects, demand and stand-ins, in which nothing is reserved. It begins
when the plan's capacity was first requested, and both are counted by the same rule, minute by minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.text import counted
from cotenant.scheduler_ext.reservations.model.plan import Span
from cotenant_lab.simulation.api_server.routes import Api
from cotenant_lab.simulation.api_server.state import Collection, ObjectState
from cotenant_lab.simulation.batch_load import Evening
from cotenant_lab.simulation.clock import SteeredClock
from cotenant_lab.simulation.controllers.autoscaler import CpuDemand
from cotenant_lab.simulation.controllers.cluster_controllers import (
    CONTROLLED,
    GUARDS,
    PODS,
    SCALERS,
    ClusterControllers,
)
from cotenant_lab.simulation.controllers.rollouts import is_ready
from cotenant_lab.simulation.local_client import LocalClient

Json = dict[str, Any]
STEP_SECONDS: Final = 60.0
"""Of the demo's clock, between two samples of either run."""


@dataclass(slots=True)
class ShortageCount:
    """The lack of a workload's pods in a window: seconds in which any lacked, most at once, and the sum in pod-seconds.

    Runs with and without a plan are counted alike: each whole minute of the window counts once, by the state at its
    end, however often it is observed and however far the clock moves at a time.
    """

    workload: WorkloadRef
    window: Span
    short_seconds: float = 0.0
    most_missing: int = 0
    missing_pod_seconds: float = 0.0
    seen_minute: int | None = None

    def observe(self, state: ObjectState, demand: CpuDemand, now_seconds: float) -> None:
        """Count the minutes that ended since the last call; the first call counts none."""
        minute = int(now_seconds // STEP_SECONDS)
        before, self.seen_minute = self.seen_minute, minute
        if before is None or minute <= before:
            return
        first = max(before, int(self.window.start_seconds // STEP_SECONDS))
        last = min(minute, int(self.window.end_seconds // STEP_SECONDS))
        lacking = missing_pods(state, self.workload, demand, minute * STEP_SECONDS) if last > first else 0
        if lacking > 0:
            self.short_seconds += STEP_SECONDS * (last - first)
            self.most_missing = max(self.most_missing, lacking)
            self.missing_pod_seconds += STEP_SECONDS * (last - first) * lacking


def compared_words(with_plan: ShortageCount, without_plan: ShortageCount) -> str:
    """Return a sentence that compares a workload's lack of pods tonight with its reservation and without it.

    A difference of one minute counts as none.
    """
    ref = with_plan.workload
    name = f"{ref.namespace}/{ref.name}"
    gained = without_plan.short_seconds - with_plan.short_seconds
    without, reserved = _shortage(without_plan), _shortage(with_plan)
    if abs(gained) <= STEP_SECONDS:
        return f"{name}: no difference tonight: {without} without its reservation, {reserved} with it."
    text = f"{name}, played with and without its reservation: {without} without it, {reserved} with it."
    return text if gained > 0 else f"{text} The reservation did not help tonight."


def _shortage(count: ShortageCount) -> str:
    """Return the text: "16 minutes with fewer pods ready than needed (34 pod-minutes, at most 3 pods missing)"."""
    minutes = round(count.short_seconds / 60)
    text = f"{counted(minutes, 'minute')} with fewer pods ready than needed"
    most = f"at most {counted(count.most_missing, 'pod')} missing"
    return f"{text} ({round(count.missing_pod_seconds / 60)} pod-minutes, {most})" if minutes else text


def missing_pods(state: ObjectState, workload: WorkloadRef, demand: CpuDemand, now_seconds: float) -> int:
    """Return the number of pods that the demand needs beyond the ready ones; 0 if the demand is not known."""
    key = workload.namespace, workload.name
    controller, scaler = state.get(CONTROLLED[workload.kind], key), state.get(SCALERS, key)
    used = demand.at(workload, now_seconds)
    if controller is None or used is None:
        return 0
    request_millicores = requests_of(controller["spec"]["template"]["spec"]).get("cpu", 0)
    resources = [metric.get("resource") or {} for metric in (scaler or {}).get("spec", {}).get("metrics") or ()]
    targets = (float(of["target"]["averageUtilization"]) / 100 for of in resources if of.get("name") == "cpu")
    share = next(targets, 1.0)  # of a pod's request, that it is to use
    needed = math.ceil(used / (request_millicores * share) - 1e-9) if request_millicores else 0
    most = int(scaler["spec"]["maxReplicas"]) if scaler else needed
    labels = controller["spec"]["selector"]["matchLabels"].items()
    ready = sum(
        is_ready(pod)
        for (namespace, _), pod in state.items(PODS)
        if namespace == workload.namespace and labels <= (pod["metadata"].get("labels") or {}).items()
    )
    return max(0, min(needed, most) - ready)


Contents = Mapping[Collection, list[Json]]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster's objects at a moment, from which a twin (a simulated copy) starts."""

    version: int
    contents: Contents
    at_seconds: float


def origin(state: ObjectState, now_seconds: float) -> ClusterSnapshot:
    """Return a snapshot of the present objects; objects are never changed in place, so nothing is copied."""
    with state.lock:
        return ClusterSnapshot(state.version, state.contents(), now_seconds)


def without(begin: ClusterSnapshot, count: ShortageCount, demand: CpuDemand, batch: Evening | None) -> ShortageCount:
    """Return the shortage that a twin without reservations has in the same window; `count` has workload and window."""
    state = ObjectState()
    pods = [i for i in begin.contents.get(PODS, ()) if i["metadata"].get("namespace") != PLACEHOLDER_NAMESPACE]
    state.restore(begin.version, {**begin.contents, GUARDS: [], PODS: pods})
    clock = SteeredClock(begin.at_seconds, lambda: 0.0)
    living = ClusterControllers(state, LocalClient(Api(state, clock)), demand, batch)
    counterfactual = ShortageCount(count.workload, count.window)
    counterfactual.observe(state, demand, begin.at_seconds)
    while clock.now_seconds() < count.window.end_seconds:
        clock.move((clock.now_seconds() // STEP_SECONDS + 1) * STEP_SECONDS)
        living.settled(clock.now_seconds())
        counterfactual.observe(state, demand, clock.now_seconds())
    return counterfactual
