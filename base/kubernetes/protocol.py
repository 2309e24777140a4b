"""The labels, annotations, extended resources and API groups that Koordinator and cotenant use in the cluster.

Every string that another program reads or writes is defined here once. Old names of the protocol are accepted at
admission (`RESOURCE_ALIASES`, `ANNOTATION_ALIASES`) and never written. Source: koordinator-sh/koordinator
`apis/extension`. QoS and priority labels are in `cotenant.base.kubernetes.qos`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.resource import Resource

EXTENDED_RESOURCES: Final[dict[tuple[Band, Resource], str]] = {
    (Band.BATCH, Resource.CPU): "kubernetes.io/batch-cpu",
    (Band.BATCH, Resource.MEMORY): "kubernetes.io/batch-memory",
    (Band.MID, Resource.CPU): "kubernetes.io/mid-cpu",
    (Band.MID, Resource.MEMORY): "kubernetes.io/mid-memory",
}
"""Reclaimed capacity on a Node and in a pod's requests: CPU as whole millicores, memory as bytes."""

RESOURCE_ALIASES: Final[dict[str, str]] = {
    "koordinator.sh/batch-cpu": "kubernetes.io/batch-cpu",
    "koordinator.sh/batch-memory": "kubernetes.io/batch-memory",
    "koordinator.sh/bach-cpu": "kubernetes.io/batch-cpu",  # a misspelling in wide-spread examples
    "koordinator.sh/mid-cpu": "kubernetes.io/mid-cpu",
    "koordinator.sh/mid-memory": "kubernetes.io/mid-memory",
}

PRIORITY_VALUES: Final[dict[PriorityClass, int]] = {
    PriorityClass.PROD: 9000,
    PriorityClass.MID: 7000,
    PriorityClass.BATCH: 5000,
    PriorityClass.FREE: 3000,
}
"""Value of each installed PriorityClass: the band's minimum."""

SUB_PRIORITY_LABEL: Final = "koordinator.sh/priority"

# nodes
COLOCATION_STRATEGY_ANNOTATION: Final = "node.koordinator.sh/colocation-strategy"
CPU_RECLAIM_RATIO_LABEL: Final = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_RECLAIM_RATIO_LABEL: Final = "node.koordinator.sh/memory-reclaim-ratio"
MID_STATIC_CPU_RATIO_LABEL: Final = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
MID_STATIC_MEMORY_RATIO_LABEL: Final = "node.koordinator.sh/mid-static-memory-reserved-ratio"
NODE_RESERVATION_ANNOTATION: Final = "node.koordinator.sh/reservation"
NETWORK_BANDWIDTH_ANNOTATION: Final = "node.koordinator.sh/network-bandwidth"
"""Total bandwidth of the node's network, a quantity in bits per second; beats totalNetworkBandwidth."""
AMPLIFICATION_RATIO_ANNOTATION: Final = "node.koordinator.sh/resource-amplification-ratio"
RAW_ALLOCATABLE_ANNOTATION: Final = "node.koordinator.sh/raw-allocatable"
CPU_NORMALIZATION_RATIO_ANNOTATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
THIRD_PARTY_ALLOCATIONS_ANNOTATION: Final = "node.koordinator.sh/thirdPartyAllocations"
ORIGIN_ALLOCATABLE_ANNOTATION: Final = "node.koordinator.sh/originExtendedAllocatable"

SYSTEM_QOS_ANNOTATION: Final = "node.koordinator.sh/system-qos-resource"
CPU_BIND_POLICY_LABEL: Final = "node.koordinator.sh/cpu-bind-policy"
NUMA_STRATEGY_LABEL: Final = "node.koordinator.sh/numa-allocate-strategy"
NUMA_POLICY_LABEL: Final = "node.koordinator.sh/numa-topology-policy"

DEVICES_LABEL: Final = "cotenant.dev/devices"
"""On a Node: who gives the devices of its Device object out. DEVICES_BY_CLAIMS: ResourceClaims; else the extender."""
DEVICES_BY_CLAIMS: Final = "claims"
CLAIM_DRIVER: Final = "node.cotenant.dev"
"""The node agent as a driver of dynamic resource allocation."""
RESOURCE_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"

# NodeResourceTopology: one a node, by the name of the node
TOPOLOGY_GROUP: Final = "topology.node.k8s.io/v1alpha1"
TOPOLOGIES: Final = "noderesourcetopologies"
NUMA_ZONE: Final = "Node"
"""Type of a zone that is a NUMA node."""
CPU_TOPOLOGY_ANNOTATION: Final = "node.koordinator.sh/cpu-topology"
POD_CPUS_ANNOTATION: Final = "node.koordinator.sh/pod-cpu-allocs"
SHARED_POOLS_ANNOTATION: Final = "node.koordinator.sh/cpu-shared-pools"
BE_SHARED_POOLS_ANNOTATION: Final = "node.koordinator.sh/be-cpu-shared-pools"
KUBELET_CPU_MANAGER_ANNOTATION: Final = "kubelet.koordinator.sh/cpu-manager-policy"
WITHHELD_CPUS_ANNOTATION: Final = "node.cotenant.dev/withheld-cpus"
"""JSON: CPUs that nobody may be given, {"isolated": "0-1", "offline": "7"}."""
CPU_CACHES_ANNOTATION: Final = "node.cotenant.dev/cpu-caches"
"""JSON: CPUs that share each cache, by level, {"2": ["0,4", "1,5"], "3": ["0-7"]}."""

# pods
RESOURCE_SPEC_ANNOTATION: Final = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC_ANNOTATION: Final = "scheduling.koordinator.sh/numa-topology-spec"
EXTENDED_SPEC_ANNOTATION: Final = "node.koordinator.sh/extended-resource-spec"
ANNOTATION_ALIASES: Final[dict[str, str]] = {"koordinator.sh/resource-limit": EXTENDED_SPEC_ANNOTATION}
SKIP_RESOURCES_ANNOTATION: Final = "config.koordinator.sh/skip-update-resources"
SKIP_HOOKS_LABEL: Final = "runtimeproxy.koordinator.sh/skip-hookserver"
MUTATING_UPDATE_LABEL: Final = "pod.koordinator.sh/mutating-update"
RESOURCE_STATUS_ANNOTATION: Final = "scheduling.koordinator.sh/resource-status"
CPU_BURST_ANNOTATION: Final = "koordinator.sh/cpuBurst"
CPU_QOS_ANNOTATION: Final = "koordinator.sh/cpuQOS"
MEMORY_QOS_ANNOTATION: Final = "koordinator.sh/memoryQOS"
BLKIO_QOS_ANNOTATION: Final = "koordinator.sh/blkioQOS"
RESCTRL_ANNOTATION: Final = "node.koordinator.sh/resctrl"

# quotas
QUOTA_PREFIX: Final = "quota.scheduling.koordinator.sh/"
ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"

# where things are
SYSTEM_NAMESPACE: Final = "koordinator-system"
SLO_CONFIG_MAP: Final = "slo-controller-config"
SLO_GROUP: Final = "slo.koordinator.sh/v1alpha1"
CONFIG_GROUP: Final = "config.koordinator.sh/v1alpha1"
ANALYSIS_GROUP: Final = "analysis.koordinator.sh/v1alpha1"
SCHEDULING_GROUP: Final = "scheduling.koordinator.sh/v1alpha1"
QUOTA_GROUP: Final = "scheduling.sigs.k8s.io/v1alpha1"
PROFILE_GROUP: Final = "quota.koordinator.sh/v1alpha1"
NATIVE_GANG_GROUP: Final = "scheduling.k8s.io/v1alpha2"
"""Kubernetes' own PodGroup, of release 1.36; other versions are not used, for none was tried."""
OWN_GROUP: Final = "cotenant.dev/v1alpha1"
RESERVATION_PLANS: Final = "reservationplans"
"""Plural of plans, as addresses and rights name them."""

MANAGER: Final = "cotenant-manager"
RECORDER: Final = "cotenant-recorder"
EXTENDER: Final = "cotenant-extender"
WEBHOOK: Final = "cotenant-webhook"
UNINSTALL: Final = "cotenant-uninstall"
NODE_AGENT: Final = "cotenant-enforcer"
"""Our processes: the names of their service accounts, and the field managers under which they write."""

# reservations: how capacity is reserved on a scheduler that knows nothing of them
RESERVATION_GATE: Final = "cotenant.dev/reservation"
"""Scheduling gate of a pod that a Reservation waits for."""
QUOTA_GATE: Final = "cotenant.dev/quota"
"""Scheduling gate of a pod that its quota does not admit yet."""
GANG_GATE: Final = "cotenant.dev/gang"
"""Scheduling gate of a pod whose gang is not placed yet."""
QUEUED_ANNOTATION: Final = "cotenant.dev/queued"
"""On a pod that was created behind its quota's gate: name of the quota then."""
GANG_LABEL: Final = "cotenant.dev/gang"
"""On a Reservation that holds a gang member's capacity: name of the gang."""
SOFT_EVICTION_ANNOTATION: Final = "scheduling.koordinator.sh/soft-eviction"
"""On a pod that should leave: JSON with author, time and reason; the pod's controller deletes it."""
MIGRATION_LABEL: Final = "cotenant.dev/migration"
"""On a Reservation that holds the capacity of a pod that is moved: name of its PodMigrationJob."""
BIND_RESOURCE: Final = "cotenant.dev/bind"
"""Extended resource by which a pod requests a binding by our extender; the scheduler ignores it."""
REQUEST_BIND_ANNOTATION: Final = "cotenant.dev/request-bind"
"""On a ClusterColocationProfile, "true": its pods that get CPUs or devices of their own request BIND_RESOURCE."""
PLACEHOLDER_LABEL: Final = "cotenant.dev/placeholder"
"""On every pod that only reserves capacity: it uses nothing, and is left out of the batch formula and of costs."""
RESERVATION_LABEL: Final = "cotenant.dev/reservation"
"""On a placeholder: name of the Reservation that it reserves capacity for."""
OWNER_WORKLOAD_ANNOTATION: Final = "cotenant.dev/owner-workload"
"""On a plan's Reservation and on its placeholders: the workload that the capacity is for, "namespace/kind/name"."""
RESERVATION_ALLOCATED_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-allocated"
RESERVATION_AFFINITY_ANNOTATION: Final = "scheduling.koordinator.sh/reservation-affinity"
RESERVATION_IGNORED_LABEL: Final = "scheduling.koordinator.sh/reservation-ignored"
OPERATING_MODE_LABEL: Final = "scheduling.koordinator.sh/operating-mode"
PLACEHOLDER_NAMESPACE: Final = "cotenant-reservations"
SWAP_GUARD: Final = "swaps"
"""The one object of kind SwapGuard (cotenant.dev/v1alpha1, cluster-scoped): nodes on which a hand-over is going on.

`spec.nodes` is a map of node name to a list of "namespace/name" of the pods that may be bound there meanwhile.
"""

# what pods and nodes tell the extender
EMPTYING_TAINT: Final = "cotenant.dev/emptying"
"""Key of the taint (PreferNoSchedule) of a node that HighNodeLoad empties."""
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Of labels and taints of nodes that run the control plane."""
NODE_CONDITION_PREFIX: Final = "node.kubernetes.io/"
"""Of taints by which Kubernetes says that a node is not ready, under pressure or cordoned."""
LOAD_TAINT: Final = "cotenant.dev/load"
"""Key of the taint of a busy node: NoSchedule above the thresholds, PreferNoSchedule on the busiest."""
RUN_SECONDS_ANNOTATION: Final = "cotenant.dev/expected-run-seconds"
"""On a pod: how long it is expected to run, in seconds."""
PREDICTED_USAGE_ANNOTATION: Final = "cotenant.dev/predicted-usage"
"""On a pod: its own predicted usage as a JSON object of quantities, {"cpu": "300m", "memory": "1Gi"}."""
SUPPRESSED_FRACTION_ANNOTATION: Final = "node.cotenant.dev/suppressed-fraction"
"""On a Node: share of the last hour in which its best-effort pods were limited below their demand, 0 to 1."""
BATCH_CPU_POLICY_ANNOTATION: Final = "node.cotenant.dev/batch-cpu-policy"
"""On a Node: the policy by which its batch-cpu is computed, beside the amount; absent under Koordinator's policies."""
KNOWN_SWAPS_ANNOTATION: Final = "cotenant.dev/known-swaps"
"""Of a dry run on the SwapGuard: ids of hand-overs, by commas; an API server that does not know all of them refuses."""

OWN_DOMAINS: Final = ("koordinator.sh", "cotenant.dev")
_OWN_SUBDOMAINS: Final = tuple(f".{domain}" for domain in OWN_DOMAINS)
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have ended for good; it uses nothing and stays until somebody deletes it."""
NOT_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in sorted(ENDED_PHASES, reverse=True))
"""Field selector of pods that may use capacity."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the API server's image of a pod that a kubelet made from a file."""
REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
"""Field of an affinity: terms that a node must satisfy for the scheduler to place the pod there."""
PREFERRED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"
"""Field of an affinity: terms that only order the nodes."""


def own_texts(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels or annotations whose key is in cotenant's or Koordinator's domain."""
    return {sys.intern(key): value for key, value in (texts or {}).items() if _is_own(key)}


def _is_own(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in OWN_DOMAINS or domain.endswith(_OWN_SUBDOMAINS))
