"""Finding: a fact about a workload or node that a person should know, with its evidence; it is no recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity


class FindingKind(StrEnum):
    """The kind of a finding, such as an idle workload or a missing limit."""

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
    FindingKind.IDLE_WORKLOAD: "The workload used almost no CPU in the whole window; ask whether it is still needed.",
    FindingKind.IDLE_NODE: "Almost only DaemonSet pods ran on the node in the whole window; it could be removed.",
    FindingKind.MISSING_REQUEST: "No request is set: the scheduler places the pod as if it needed nothing.",
    FindingKind.MISSING_LIMIT: "No memory limit is set: a leak could use up all memory of the node.",
    FindingKind.UNSCHEDULABLE: "No node is large enough for one pod's requests; a new pod would stay pending.",
    FindingKind.LEAK: "Memory grows steadily between restarts; a smaller request would only cause an earlier OOM kill.",
    FindingKind.SKEW: "Replicas use very unequal amounts, so the same request does not suit most of them.",
    FindingKind.LARGE_HEAP: "The runtime's maximum heap is far larger than what garbage collections leave in it.",
    FindingKind.HEAP_ABOVE_LIMIT: (
        "The memory limit is below the maximum heap plus the other memory in use: a full heap leads to an OOM kill."
    ),
    FindingKind.HEAP_PRESSURE: "The runtime spends much of its time in garbage collections; its heap is too small.",
    FindingKind.IDLE_GPU: "The requested GPUs computed nothing in the whole window; memory use is not counted.",
    FindingKind.OVERSIZED_GPU: (
        "A share of the GPU is sufficient. To apply it, enable the extender's devices (docs/devices.md), then run "
        "cotenant recs apply NAMESPACE/NAME --gpu-shares. A share only reserves: a process can still use "
        "more of the device's time or memory, so let only workloads that trust each other share a device."
    ),
    FindingKind.UNMEASURED_GPU: (
        "The usage of the requested GPUs is not measured: let Prometheus scrape DCGM's exporter on the pods' nodes."
    ),
}


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One finding; `evidence` maps names to figures, in the units that the names state.

    `proposal` is what to request instead, "" = nothing. `freed` is, for an idle subject, the requests of all replicas
    (or a node's allocatable) that its removal would free, in millicores and bytes; else empty. `monthly_saving` is the
    price of what the proposal or the removal frees, in the price sheet's currency, None = not known.
    """

    kind: FindingKind
    subject: ContainerRef | WorkloadRef | NodeRef
    severity: Severity
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    proposal: str = ""
    monthly_saving: float | None = None
    freed: Mapping[Resource, int] = field(default_factory=dict)
