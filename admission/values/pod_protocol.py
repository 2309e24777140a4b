"""The names that Koordinator and cotenant know on pods and quotas: labels, annotations, and fields of their JSON.

Those that cotenant reads are the constants of its own modules. Those that it does not read are listed here, so that
none is taken for a misspelling. Source: koordinator-sh/koordinator 1.8 `apis/extension`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Final

from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.admission.values.misread import ANNOTATIONS, LABELS, QUOTA_LABELS, WORDS
from cotenant.base.allocation import device_request
from cotenant.base.json_documents.struct_validation import field_names
from cotenant.base.kubernetes import protocol, quota_tree
from cotenant.enforcer.model.node_policy import BlkioQos, CpuBurst, CpuQos, MemoryQos
from cotenant.scheduler_ext.queues.model import gang
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION


def _constants(ending: str, *modules: ModuleType) -> frozenset[str]:
    return frozenset(
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith(ending) and isinstance(value, str) and ("koordinator.sh/" in value or "cotenant.dev/" in value)
    )


def _below(domain: str, names: str) -> frozenset[str]:
    return frozenset(f"{domain}/{name}" for name in names.split())


_SCHEDULING: Final = "scheduling.koordinator.sh"
_INTERNAL: Final = f"internal.{_SCHEDULING}"
LABEL_NAMES: Final = frozenset().union(
    _constants("_LABEL", protocol, quota_tree),
    LABELS,
    QUOTA_LABELS,
    _below("pod.koordinator.sh", "skip-enhanced-validation is-pre-allocatable"),
    _below(_SCHEDULING, "scheduler-name preemption-policy disable-preemptible pre-allocation-required"),
    _below(_SCHEDULING, "reservation-order questioned-object-key topology-key-to-explain"),
    ("koordinator.sh/gpu-isolation-provider", "config.koordinator.sh/controller-managed"),
)
ANNOTATION_NAMES: Final = frozenset().union(
    _constants("_ANNOTATION", protocol, quota_tree, gang, device_request),
    ANNOTATIONS,
    protocol.ANNOTATION_ALIASES,
    (RECORD_ANNOTATION, MISSED_ANNOTATION, "koordinator.sh/networkQOS"),
    _below(_SCHEDULING, "bind-gang-group-id bind-gang-member-count scheduling-hint"),
    _below(_INTERNAL, "bind-gang-group-id bind-gang-member-count scheduling-hint original-scheduler-name"),
    _below("quota.scheduling.koordinator.sh", "guaranteed allocated admission"),
    _below("gang.scheduling.koordinator.sh", "timeout network-topology-index network-topology-spec"),
    _below("pod.koordinator.sh", "pre-allocatable-priority replace-resources"),
    _below(_SCHEDULING, "device-allocated gpu-partitions usage-thresholds network-topology-selector"),
    _below(_SCHEDULING, "reservation-owners reservation-current-owner reservation-restricted-options"),
    _below(_SCHEDULING, "exact-match-reservation reservation-order"),
)
ELSEWHERE: Final = frozenset().union(
    _below("node.koordinator.sh", "cpu-normalization-enabled cpu-basic-info gpu-vendor gpu-model gpu-driver-version"),
    _below("node.koordinator.sh", "gpu-partition-policy secondary-device-well-planned enable-numa-reservation"),
    _below("cotenant.dev", "keep-qos-class profile reservation-mode resources"),
)
"""Names of nodes, workloads and Reservations that are like one of a pod's: nobody means that one by them."""
FIELDS: Final[Mapping[str, Collection[str]]] = {
    protocol.RESOURCE_SPEC_ANNOTATION: WORDS[protocol.RESOURCE_SPEC_ANNOTATION].keys(),
    protocol.NUMA_SPEC_ANNOTATION: ("numaTopologyPolicy", "singleNUMANodeExclusive"),
    protocol.CPU_BURST_ANNOTATION: field_names(CpuBurst),
    protocol.CPU_QOS_ANNOTATION: field_names(CpuQos),
    protocol.MEMORY_QOS_ANNOTATION: {"policy", *field_names(MemoryQos)},
    protocol.BLKIO_QOS_ANNOTATION: field_names(BlkioQos),
    protocol.RESERVATION_AFFINITY_ANNOTATION: (
        *("name", "reservationSelector", "tolerations"),
        *("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"),
    ),
    device_request.JOINT_ANNOTATION: ("deviceTypes", "requiredScope"),
    device_request.PARTITION_ANNOTATION: ("allocatePolicy", "ringBusBandwidth"),
}
"""Annotation -> the fields of its JSON object."""
FIELDS_BY_KIND: Final[Mapping[str, Collection[str]]] = {
    device_request.HINT_ANNOTATION: (
        *("selector", "vfSelector", "allocateStrategy"),
        *("requiredTopologyScope", "exclusivePolicy"),
    )
}
"""Annotation -> the fields of each object in its JSON object."""
