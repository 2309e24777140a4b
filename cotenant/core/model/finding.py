"""Finding: something about a workload or node that a person should know, with the evidence; beside recommendations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.core.model.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.core.model.recommendation import Severity


class FindingKind(StrEnum):
    """What was found."""

    IDLE_WORKLOAD = "idle-workload"
    IDLE_NODE = "idle-node"
    MISSING_REQUEST = "missing-request"
    MISSING_LIMIT = "missing-limit"
    UNSCHEDULABLE = "unschedulable-request"
    LEAK = "memory-leak"
    SKEW = "uneven-replicas"


FINDING_SENTENCES: dict[FindingKind, str] = {
    FindingKind.IDLE_WORKLOAD: "Next to no CPU was used in the whole window; ask whether it is still needed.",
    FindingKind.IDLE_NODE: "Hardly anything but daemons ran here in the whole window; the node could be removed.",
    FindingKind.MISSING_REQUEST: "No request is set: the scheduler places the pod as if it needed nothing.",
    FindingKind.MISSING_LIMIT: "No memory limit is set: a leak would take the node's memory before anything stops it.",
    FindingKind.UNSCHEDULABLE: "No node is large enough for one pod's requests; a new pod would stay pending.",
    FindingKind.LEAK: "Memory grows steadily between restarts; a smaller request would only bring the kill forward.",
    FindingKind.SKEW: "Replicas use very unequal amounts; one request for all of them wastes or starves.",
}


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One finding; `evidence` holds named figures in the units their names say."""

    kind: FindingKind
    subject: ContainerRef | WorkloadRef | NodeRef
    severity: Severity
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
