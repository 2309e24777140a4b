"""EDGE: measures how long a workload had fewer ready pods than its demand needs, with a plan and without one.

"Without" is a twin: a second cluster of the same objects, demand and stand-ins, in which nobody reserves anything. It
begins where the plan's capacity was first requested, and both are counted by the same rule, moment by moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.apps.simulation.api_server.routes import Api
from cotenant.apps.simulation.api_server.state import Collection, ObjectState
from cotenant.apps.simulation.batch_load import Evening
from cotenant.apps.simulation.clock import SteeredClock
from cotenant.apps.simulation.controllers.autoscaler import CpuDemand
from cotenant.apps.simulation.controllers.cluster_controllers import (
    CONTROLLED,
    GUARDS,
    PODS,
    SCALERS,
    ClusterControllers,
)
from cotenant.apps.simulation.controllers.rollouts import is_ready
from cotenant.apps.simulation.local_client import LocalClient
from cotenant.core.model.identity import WorkloadRef
from cotenant.core.model.kubernetes.pod_wire import requests_of
from cotenant.core.model.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.core.model.reservations.plan import Span

Json = dict[str, Any]
STEP_SECONDS: Final = 60.0


@dataclass(slots=True)
class ShortageCount:
    """Seconds in a window in which pods were missing, and how many at most."""

    workload: WorkloadRef
    window: Span
    short_seconds: float = 0.0
    most_missing: int = 0
    seen_at: float = field(default=0.0)

    def look(self, state: ObjectState, demand: CpuDemand, now_seconds: float) -> None:
        """What is seen now is taken for the whole time since the last look."""
        since = max(self.seen_at, self.window.start_seconds)
        self.seen_at = now_seconds
        lacking = missing(state, self.workload, demand, now_seconds)
        if lacking > 0 and self.window.start_seconds < now_seconds <= self.window.end_seconds:
            self.short_seconds += max(0.0, now_seconds - since)
            self.most_missing = max(self.most_missing, lacking)


def missing(state: ObjectState, workload: WorkloadRef, demand: CpuDemand, now_seconds: float) -> int:
    """Pods that the demand needs beyond those that are ready; 0 where nothing is known or wanted."""
    key = workload.namespace, workload.name
    controller, scaler = state.get(CONTROLLED[workload.kind], key), state.get(SCALERS, key)
    used = demand.at(workload, now_seconds)
    if controller is None or used is None:
        return 0
    request_millicores = requests_of(controller["spec"]["template"]["spec"]).get("cpu", 0)
    needed = math.ceil(used / (request_millicores * _share(scaler)) - 1e-9) if request_millicores else 0
    most = int(scaler["spec"]["maxReplicas"]) if scaler else needed
    labels = controller["spec"]["selector"]["matchLabels"].items()
    ready = sum(
        is_ready(pod)
        for (namespace, _), pod in state.items(PODS)
        if namespace == workload.namespace and labels <= (pod["metadata"].get("labels") or {}).items()
    )
    return max(0, min(needed, most) - ready)


def _share(scaler: Json | None) -> float:
    """Of its request, what a pod is meant to use."""
    for metric in (scaler or {}).get("spec", {}).get("metrics") or ():
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu":
            return float(resource["target"]["averageUtilization"]) / 100
    return 1.0


Contents = Mapping[Collection, list[Json]]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Where a twin begins: the objects as they stood at a moment."""

    version: int
    contents: Contents
    at_seconds: float


def origin(state: ObjectState, now_seconds: float) -> ClusterSnapshot:
    """Everything as it is; objects are never changed in place, so nothing is copied."""
    with state.lock:
        return ClusterSnapshot(state.version, state.contents(), now_seconds)


def without(begin: ClusterSnapshot, count: ShortageCount, demand: CpuDemand, batch: Evening | None) -> ShortageCount:
    """The same window in a cluster in which no capacity is held. count: of whom and when; a new one is given back."""
    state = ObjectState()
    state.restore(begin.version, {place: _unheld(place, items) for place, items in begin.contents.items()})
    clock = SteeredClock(begin.at_seconds, lambda: 0.0)
    living = ClusterControllers(state, LocalClient(Api(state, clock)), demand, batch)
    counterfactual = ShortageCount(count.workload, count.window)
    while clock.now_seconds() < count.window.end_seconds:
        clock.move(clock.now_seconds() + STEP_SECONDS)
        living.settled(clock.now_seconds())
        counterfactual.look(state, demand, clock.now_seconds())
    return counterfactual


def _unheld(place: Collection, items: list[Json]) -> list[Json]:
    if place == GUARDS:
        return []
    return [i for i in items if i["metadata"].get("namespace") != PLACEHOLDER_NAMESPACE] if place == PODS else items
