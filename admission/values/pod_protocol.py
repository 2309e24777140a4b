"""The names that Koordinator and cotenant know on pods and quotas: labels, annotations, and fields of their JSON.

Source: koordinator-sh/koordinator 1.8 `apis/extension`, whose names that cotenant does not read are known too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.admission.profile_record import RECORD_ANNOTATION
from cotenant.admission.values.misread import ANNOTATIONS, LABELS, QUOTA_LABELS
from cotenant.base.allocation.device_request import HINT_ANNOTATION, JOINT_ANNOTATION, PARTITION_ANNOTATION
from cotenant.base.kubernetes import protocol, quota_tree
from cotenant.scheduler_ext.queues.model import gang
from cotenant.scheduler_ext.reservations.view import MISSED_ANNOTATION

_POD: Final = "pod.koordinator.sh/"
_SCHEDULING: Final = "scheduling.koordinator.sh/"
_INTERNAL: Final = "internal.scheduling.koordinator.sh/"
_BOTH_WAYS: Final = frozenset(
    f"{prefix}{name}"
    for prefix in (_SCHEDULING, _INTERNAL)
    for name in ("bind-gang-group-id", "bind-gang-member-count", "scheduling-hint")
)
LABEL_NAMES: Final = frozenset(
    (
        *LABELS,
        *QUOTA_LABELS,
        *(quota_tree.PARENT_LABEL, quota_tree.PROFILE_LABEL, quota_tree.TREE_LABEL, quota_tree.NAME_LABEL),
        *(protocol.GANG_LABEL, protocol.MIGRATION_LABEL, protocol.PLACEHOLDER_LABEL, protocol.RESERVATION_LABEL),
        *(f"{_POD}{name}" for name in ("skip-enhanced-validation", "is-pre-allocatable")),
        *(f"{_SCHEDULING}{name}" for name in ("scheduler-name", "preemption-policy", "disable-preemptible")),
        *(f"{_SCHEDULING}{name}" for name in ("pre-allocation-required", "reservation-order")),
        *(f"{_SCHEDULING}{name}" for name in ("questioned-object-key", "topology-key-to-explain")),
        "koordinator.sh/gpu-isolation-provider",
        "config.koordinator.sh/controller-managed",
    )
)
ANNOTATION_NAMES: Final = frozenset(
    (
        *ANNOTATIONS,
        *protocol.ANNOTATION_ALIASES,
        *quota_tree.PUBLISHED_ANNOTATIONS,
        *(quota_tree.RESOURCE_KEYS_ANNOTATION, quota_tree.NAMESPACES_ANNOTATION, quota_tree.SHARED_WEIGHT_ANNOTATION),
        *(quota_tree.STRICT_KEYS_ANNOTATION, quota_tree.TOTAL_ANNOTATION, quota_tree.UNSCHEDULABLE_ANNOTATION),
        *(f"{protocol.QUOTA_PREFIX}{name}" for name in ("guaranteed", "allocated", "admission")),
        *(gang.NAME_ANNOTATION, gang.MINIMUM_ANNOTATION, gang.TOTAL_ANNOTATION, gang.MODE_ANNOTATION),
        *(gang.WAIT_ANNOTATION, gang.GROUPS_ANNOTATION, gang.MATCH_POLICY_ANNOTATION),
        *(f"{gang.GANG_PREFIX}{name}" for name in ("timeout", "network-topology-index", "network-topology-spec")),
        *(protocol.QUEUED_ANNOTATION, protocol.REQUEST_BIND_ANNOTATION, protocol.OWNER_WORKLOAD_ANNOTATION),
        *(protocol.RESOURCE_STATUS_ANNOTATION, protocol.SOFT_EVICTION_ANNOTATION),
        *(protocol.RESERVATION_ALLOCATED_ANNOTATION, RECORD_ANNOTATION, MISSED_ANNOTATION),
        *(f"{_POD}{name}" for name in ("pre-allocatable-priority", "replace-resources")),
        *(f"{_SCHEDULING}{name}" for name in ("device-allocated", "gpu-partitions", "usage-thresholds")),
        *(f"{_SCHEDULING}{name}" for name in ("network-topology-selector", "reservation-owners")),
        *(f"{_SCHEDULING}{name}" for name in ("reservation-current-owner", "reservation-restricted-options")),
        *(f"{_SCHEDULING}{name}" for name in ("exact-match-reservation", "reservation-order")),
        f"{_INTERNAL}original-scheduler-name",
        "koordinator.sh/networkQOS",
        *_BOTH_WAYS,
    )
)
ELSEWHERE: Final = frozenset(
    (
        *(f"node.koordinator.sh/{name}" for name in ("cpu-normalization-enabled", "cpu-basic-info", "gpu-vendor")),
        *(f"node.koordinator.sh/{name}" for name in ("gpu-model", "gpu-driver-version", "gpu-partition-policy")),
        *(f"node.koordinator.sh/{name}" for name in ("secondary-device-well-planned", "enable-numa-reservation")),
        *(protocol.NODE_RESERVATION_ANNOTATION, protocol.RAW_ALLOCATABLE_ANNOTATION, protocol.NUMA_POLICY_LABEL),
        protocol.BATCH_CPU_POLICY_ANNOTATION,
        *(f"cotenant.dev/{name}" for name in ("keep-qos-class", "profile", "reservation-mode", "resources")),
    )
)
"""Names of nodes, workloads and Reservations that are like one of a pod's: nobody means that one by them."""
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    protocol.RESOURCE_SPEC_ANNOTATION: (
        "requiredCPUBindPolicy",
        "preferredCPUBindPolicy",
        "preferredCPUExclusivePolicy",
    ),
    protocol.NUMA_SPEC_ANNOTATION: ("numaTopologyPolicy", "singleNUMANodeExclusive"),
    protocol.CPU_BURST_ANNOTATION: (
        "policy",
        "cpuBurstPercent",
        "cfsQuotaBurstPercent",
        "cfsQuotaBurstPeriodSeconds",
        "sharePoolThresholdPercent",
    ),
    protocol.CPU_QOS_ANNOTATION: ("enable", "groupIdentity", "schedIdle", "coreExpeller"),
    protocol.MEMORY_QOS_ANNOTATION: (
        "policy",
        "enable",
        "minLimitPercent",
        "lowLimitPercent",
        "throttlingPercent",
        "wmarkRatio",
        "wmarkScalePermill",
        "wmarkMinAdj",
        "priorityEnable",
        "priority",
        "oomKillGroup",
        "pageCacheEnable",
        "pageCacheLimitSize",
        "pageCacheLimitPercent",
        "pageCacheReclaimSync",
    ),
    protocol.BLKIO_QOS_ANNOTATION: ("enable", "blocks"),
    protocol.RESERVATION_AFFINITY_ANNOTATION: (
        "name",
        "reservationSelector",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "tolerations",
    ),
    JOINT_ANNOTATION: ("deviceTypes", "requiredScope"),
    PARTITION_ANNOTATION: ("allocatePolicy", "ringBusBandwidth"),
}
"""Annotation -> the fields of its JSON object."""
FIELDS_BY_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    HINT_ANNOTATION: ("selector", "vfSelector", "allocateStrategy", "requiredTopologyScope", "exclusivePolicy"),
}
"""Annotation -> the fields of each object in its JSON object."""
