"""Finding: something about a workload or node that a person should know, with the evidence; beside recommendations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity


class FindingKind(StrEnum):
    """The kind of a finding."""

    IDLE_WORKLOAD = "idle-workload"
    IDLE_NODE = "idle-node"
    MISSING_REQUEST = "missing-request"
    MISSING_LIMIT = "missing-limit"
    UNSCHEDULABLE = "unschedulable-request"
    LEAK = "memory-leak"
    SKEW = "uneven-replicas"
    LARGE_HEAP = "large-heap"
    HEAP_ABOVE_LIMIT = "heap-above-limit"
    HEAP_PRESSURE = "heap-pressure"
    IDLE_GPU = "idle-gpu"
    OVERSIZED_GPU = "oversized-gpu"
    UNMEASURED_GPU = "unmeasured-gpu"


FINDING_SENTENCES: dict[FindingKind, str] = {
    FindingKind.IDLE_WORKLOAD: "Next to no CPU was used in the whole window; ask whether it is still needed.",
    FindingKind.IDLE_NODE: "Almost only daemons ran here in the whole window; the node could be removed.",
    FindingKind.MISSING_REQUEST: "No request is set: the scheduler places the pod as if it needed nothing.",
    FindingKind.MISSING_LIMIT: "No memory limit is set: a leak would take the node's memory before anything stops it.",
    FindingKind.UNSCHEDULABLE: "No node is large enough for one pod's requests; a new pod would stay pending.",
    FindingKind.LEAK: "Memory grows steadily between restarts; a smaller request would only bring the kill forward.",
    FindingKind.SKEW: "Replicas use very unequal amounts; one request for all is wrong for most.",
    FindingKind.LARGE_HEAP: "The runtime's heap may grow far beyond what collections leave in it; less would do.",
    FindingKind.HEAP_ABOVE_LIMIT: (
        "The memory limit is below the largest heap and what was seen beside it: the container is killed once it grows."
    ),
    FindingKind.HEAP_PRESSURE: "The runtime spends much of its time in garbage collections; its heap is too small.",
    FindingKind.IDLE_GPU: "GPUs are requested and computed nothing in the whole window; used memory is no work.",
    FindingKind.OVERSIZED_GPU: (
        "A share of the GPU would do. To apply it, switch on the extender's devices (docs/devices.md), then run "
        "cotenant recs apply NAMESPACE/NAME --gpu-shares. A share reserves: it does not stop a process from taking "
        "more of the device's time or memory, so share only among workloads that trust each other."
    ),
    FindingKind.UNMEASURED_GPU: (
        "GPUs are requested and their usage is not measured: let Prometheus scrape DCGM's exporter on the pods' nodes."
    ),
}


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One finding; `evidence` holds named figures in the units their names say.

    proposal: what to request instead, "" = nothing is proposed; freed: requests of all replicas (what is allocatable of
    a node), in millicores and bytes, that would be given back without the subject, empty = it is not called idle;
    monthly_saving: what proposal or freed are worth, in the price sheet's currency, None = not known.
    """

    kind: FindingKind
    subject: ContainerRef | WorkloadRef | NodeRef
    severity: Severity
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    proposal: str = ""
    monthly_saving: float | None = None
    freed: Mapping[Resource, int] = field(default_factory=dict)
