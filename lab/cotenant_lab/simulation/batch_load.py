"""The demo's batch work in the evening: fills the free capacity of all nodes, ends after a while, starts again. Pure.

It requests capacity like any workload and preempts no pod: when a batch pod ends, waiting pods are placed first. So
capacity that is reserved ahead of a peak is available at the peak; pods that are created at the peak have to wait.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.pod_request import format_quantities
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL, PriorityClass, QosClass
from cotenant.base.resource import GIB
from cotenant_lab.simulation.controllers.scheduler import NodeCapacity
from cotenant_lab.simulation.objects import DEMO_LABELS, PAUSE_IMAGE

Json = dict[str, Any]

NAMESPACE: Final = "evening-batch"
EVENING_LABEL: Final = "cotenant.dev/demo-evening"
LIFE_MINUTES_A_NODE: Final = (1.5, 6.0)
"""How long a batch pod takes by the number of nodes, spread over pods by their names: those that begin together soon
end one by one. With a pod a node one ends every four minutes, whatever the size of the cluster: at the peak a new pod
waits so long for the next hole, while capacity that is requested a lead ahead has several holes to come from."""
LEAST_MILLICORES: Final = 1500
"""Smaller holes are left."""
LEFT_MILLICORES: Final = 200
MOST_PER_CORE_BYTES: Final = 2 * GIB


@dataclass(frozen=True, slots=True)
class Evening:
    """The evening of batch work, Unix seconds, and the run time of its pods.

    A pod runs from `shortest_minutes` to less than `longest_minutes`.
    """

    begin_seconds: float
    end_seconds: float
    shortest_minutes: int
    longest_minutes: int

    @classmethod
    def of(cls, begin_seconds: float, end_seconds: float, nodes: int) -> Evening:
        """Return the evening; the run time of its pods is in proportion to the cluster's number of nodes."""
        shortest, longest = (max(2, round(minutes * nodes)) for minutes in LIFE_MINUTES_A_NODE)
        return cls(begin_seconds, end_seconds, shortest, max(longest, shortest + 1))

    def now(self, seconds: float) -> bool:
        """Return whether batch work arrives at this moment."""
        return self.begin_seconds <= seconds < self.end_seconds


def is_evening_pod(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod belongs to the evening's batch work."""
    return EVENING_LABEL in (pod["metadata"].get("labels") or {})


def life_seconds(pod: Mapping[str, Any], evening: Evening) -> float:
    """Return the run time of a pod in seconds; it is the same for the same name.

    The pod ends between two reads of the cluster, which occur a few seconds after each full minute, so that the same
    evening always takes the same course.
    """
    shortest, longest = evening.shortest_minutes, evening.longest_minutes
    return 60.0 * (shortest + zlib.crc32(pod["metadata"]["name"].encode()) % (longest - shortest)) + 30.0


def ended_pods(pods: Iterable[Json], now_seconds: float, evening: Evening) -> list[Json]:
    """Return the pods that have ended."""
    born = ((moment_of(pod["metadata"]["creationTimestamp"], "creationTimestamp") or 0.0, pod) for pod in pods)
    return [pod for seconds, pod in born if now_seconds - seconds >= life_seconds(pod, evening)]


def filling_pods(places: Sequence[NodeCapacity], now_seconds: float) -> list[Json]:
    """Return a pod for each node with enough free CPU and without a hand-over; it requests nearly all of that CPU."""
    holes = (place for place in places if place.only is None and place.free.get("cpu", 0) >= LEAST_MILLICORES)
    labels = {QOS_LABEL: QosClass.BE.value, PRIORITY_CLASS_LABEL: PriorityClass.BATCH.value, EVENING_LABEL: "true"}
    pods = []
    for place in holes:
        cpu = place.free["cpu"] - LEFT_MILLICORES
        memory = max(0, min(place.free.get("memory", 0), cpu * MOST_PER_CORE_BYTES // 1000))
        requests = format_quantities({"cpu": cpu, "memory": memory})
        container = {"name": "load", "image": PAUSE_IMAGE, "resources": {"requests": requests}}
        name = f"evening-{place.name}-{int(now_seconds // 60) % 10_000}"
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {**DEMO_LABELS, **labels}}
        spec = {"nodeName": place.name, "containers": [container], "terminationGracePeriodSeconds": 0}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pods
