"""NodePolicy: what a node's agent must do about its pods, the spec of Koordinator's NodeSLO.

The manager writes it (`slo_config` renders it per node), and the enforcer reads it: `decode` fills in built-in values
for what a NodeSLO omits, so that the NodeSLO of another manager means the same here. Fields typed `| None` may be
unset, which is not zero. Wire names follow from the fields' names (`_wire`), or are given if our name has a unit.
Source: Koordinator's NodeSLO v1alpha1, and its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.struct_validation import deviations, merge_objects, without_nulls
from cotenant.base.kubernetes.qos import QosClass

_ACRONYMS: Final = {"qos": "QOS", "iops": "IOPS", "bps": "BPS", "be": "BE"}

Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
NotNegative: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Switch: TypeAlias = Annotated[int, Meta(ge=0, le=1)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Bandwidth: TypeAlias = Annotated[int, Meta(ge=0, le=100)] | str
"""A whole number is percent of the node's total, a text is a quantity of bits per second; 0 = no limit."""
SuppressPolicy: TypeAlias = Literal["cpuset", "cfsQuota"]
EvictPolicy: TypeAlias = Literal["evictByRealLimit", "evictByAllocatable"]
BurstPolicy: TypeAlias = Literal["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"]
CpuPolicy: TypeAlias = Literal["groupIdentity", "coreSched"]
NetworkPolicy: TypeAlias = Literal["tc", "terway-qos"]
Qos: TypeAlias = Literal["LSE", "LSR", "LS", "BE", "SYSTEM", ""]
Priority: TypeAlias = Literal["koord-prod", "koord-mid", "koord-batch", "koord-free", ""]


def _wire(name: str) -> str:
    """Return the wire name of a field: cpu_qos -> cpuQOS."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


class PolicyPart(msgspec.Struct, frozen=True, kw_only=True, rename=_wire, omit_defaults=True):
    """The base of every part of the policy; unset fields are not encoded."""


class Thresholds(PolicyPart, frozen=True):
    """The thresholds at which best effort is suppressed or evicted, in percent of the node's capacity."""

    enable: bool
    cpu_suppress_threshold_percent: Percent
    cpu_suppress_policy: SuppressPolicy
    memory_evict_threshold_percent: Percent
    cpu_evict_policy: EvictPolicy
    cpu_suppress_min_percent: Percent | None = None
    memory_evict_lower_percent: Percent | None = None
    """If unset, memory_evict_threshold_percent minus two; likewise for cpu_evict_lower_percent."""
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_evict_time_window_seconds: Positive | None = None
    cpu_evict_be_usage_threshold_percent: Percent | None = None
    cpu_evict_be_satisfaction_lower_percent: Percent | None = None
    cpu_evict_be_satisfaction_upper_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: NotNegative | None = None
    cpu_allocatable_evict_lower_percent: NotNegative | None = None
    memory_allocatable_evict_threshold_percent: NotNegative | None = None
    memory_allocatable_evict_lower_percent: NotNegative | None = None
    evict_enabled_priority_threshold: Int32 | None = None
    allocatable_evict_priority_threshold: Annotated[int, Meta(ge=0, le=7999)] | None = None


class CpuQos(PolicyPart, frozen=True):
    """The CPU policy of a QoS class: whether it yields to other classes, by group identity or core scheduling."""

    enable: bool
    group_identity: Annotated[int, Meta(ge=-1, le=2)]
    sched_idle: Switch
    core_expeller: bool


class MemoryQos(PolicyPart, frozen=True):
    """Memory protection and background reclaim of a QoS class; in percent of the request or limit, 0 = off."""

    enable: bool
    min_limit_percent: Percent
    low_limit_percent: Percent
    throttling_percent: Percent
    wmark_ratio: Percent
    wmark_scale_permill: Annotated[int, Meta(ge=1, le=1000)]
    wmark_min_adj: Annotated[int, Meta(ge=-25, le=50)]
    priority_enable: Switch
    priority: Annotated[int, Meta(ge=0, le=12)]
    oom_kill_group: Switch
    page_cache_enable: bool | None = None
    page_cache_limit_bytes: NotNegative | None = field(default=None, name="pageCacheLimitSize")
    page_cache_limit_percent: Percent | None = None
    page_cache_reclaim_sync: bool | None = None


class ResctrlQos(PolicyPart, frozen=True):
    """The share of last-level cache and memory bandwidth that a QoS class may use."""

    enable: bool
    cat_range_start_percent: Percent
    cat_range_end_percent: Percent
    mba_percent: Percent


class IoLimits(PolicyPart, frozen=True):
    """The limits on one block device; 0 or unset = no limit. Latencies in microseconds; weight 1..100, unset = 100."""

    read_iops: NotNegative | None = None
    write_iops: NotNegative | None = None
    read_bps: NotNegative | None = None
    write_bps: NotNegative | None = None
    io_weight_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    read_latency_microseconds: NotNegative | None = field(default=None, name="readLatency")
    write_latency_microseconds: NotNegative | None = field(default=None, name="writeLatency")
    read_latency_percent: Percent | None = None
    write_latency_percent: Percent | None = None
    enable_user_model: bool | None = None
    model_read_bps: Positive | None = None
    model_write_bps: Positive | None = None
    model_read_seq_iops: Positive | None = None
    model_write_seq_iops: Positive | None = None
    model_read_rand_iops: Positive | None = None
    model_write_rand_iops: Positive | None = None


class Block(PolicyPart, frozen=True):
    """A block device, volume group or pod volume with its limits."""

    name: str = ""
    type: Literal["device", "volumegroup", "podvolume", ""] = ""
    limits: IoLimits | None = field(default=None, name="ioCfg")


class BlkioQos(PolicyPart, frozen=True):
    """The disk limits of a QoS class."""

    enable: bool
    blocks: tuple[Block, ...] = ()


class NetworkQos(PolicyPart, frozen=True):
    """The network bandwidth of a QoS class."""

    enable: bool
    ingress_request: Bandwidth
    ingress_limit: Bandwidth
    egress_request: Bandwidth
    egress_limit: Bandwidth


class ClassPolicy(PolicyPart, frozen=True):
    """The policy of one QoS class for CPU, memory, disks, cache and network."""

    cpu_qos: CpuQos
    memory_qos: MemoryQos
    blkio_qos: BlkioQos
    resctrl_qos: ResctrlQos
    network_qos: NetworkQos


class Mechanisms(PolicyPart, frozen=True):
    """The kernel features that separate the QoS classes on CPU and on the network."""

    cpu_policy: CpuPolicy
    net_qos_policy: NetworkPolicy | None = None


class ClassPolicies(PolicyPart, frozen=True):
    """The policies of all QoS classes; LSE pods follow the policy of LSR."""

    policies: Mechanisms
    lsr_class: ClassPolicy
    ls_class: ClassPolicy
    be_class: ClassPolicy
    system_class: ClassPolicy
    cgroup_root: ClassPolicy | None = None

    def of(self, qos: QosClass) -> ClassPolicy:
        """Return the policy of a QoS class; that of LS for NONE."""
        by_class = {
            QosClass.LSE: self.lsr_class,
            QosClass.LSR: self.lsr_class,
            QosClass.BE: self.be_class,
            QosClass.SYSTEM: self.system_class,
        }
        return by_class.get(qos, self.ls_class)


class CpuBurst(PolicyPart, frozen=True):
    """The amount and duration by which a container may exceed its CPU limit, in percent of the limit."""

    policy: BurstPolicy
    cpu_burst_percent: Annotated[int, Meta(ge=0, le=10_000)]
    cfs_quota_burst_percent: Annotated[int, Meta(ge=100)]
    cfs_quota_burst_period_seconds: Annotated[int, Meta(ge=-1)]
    """-1 = without a time limit."""
    share_pool_threshold_percent: Percent


class System(PolicyPart, frozen=True):
    """Kernel settings of the node itself."""

    min_free_kbytes_factor: Positive
    watermark_scale_factor: Annotated[int, Meta(ge=1, le=400)]
    memcg_reap_back_ground: Switch
    total_network_bandwidth: int | str
    """Quantity of bits per second; 0 = the speed of the network card."""
    page_cache_limit_enabled: Switch | None = None
    sched_features: dict[str, bool] | None = None
    sched_group_identity_enabled: Switch | None = None
    sched_idle_saver_wmark: NotNegative | None = None


class CgroupPath(PolicyPart, frozen=True):
    """The path of a host application's cgroup: base / parentDir / relativePath."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(PolicyPart, frozen=True):
    """A process group outside pods that is counted like a pod of its QoS class."""

    name: str = ""
    priority: Priority = ""
    qos: Qos = ""
    cgroup_path: CgroupPath | None = None
    strategy: dict[str, Any] | None = None


class NodePolicy(PolicyPart, frozen=True):
    """The whole policy of one node: the spec of its NodeSLO."""

    thresholds: Thresholds = field(name="resourceUsedThresholdWithBE")
    classes: ClassPolicies = field(name="resourceQOSStrategy")
    cpu_burst: CpuBurst = field(name="cpuBurstStrategy")
    system: System = field(name="systemStrategy")
    host_applications: tuple[HostApplication, ...] = ()
    extensions: dict[str, Any] | None = None


def encode(policy: NodePolicy) -> dict[str, Any]:
    """Return the spec of a NodeSLO with every value that is set; unset values are left out."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
    return plain


def decode(spec: Mapping[str, Any], *, strict: bool = False) -> NodePolicy:
    """Return the policy of a NodeSLO's spec, with built-in values for what it omits.

    Unknown fields are ignored unless `strict`. A UsageError names the path and the range of the first invalid value.
    """
    nonnull_spec = without_nulls(dict(spec))
    wrong = next((d for d in deviations(nonnull_spec, NodePolicy, "$.spec") if d.fatal or strict), None)
    if wrong is not None:
        raise UsageError(f"NodeSLO {wrong}", fix="Correct it in slo-controller-config, which the NodeSLO comes from.")
    below = BUILT_IN
    if "cgroupRoot" in nonnull_spec.get("resourceQOSStrategy", {}):
        below = merge_objects(BUILT_IN, {"resourceQOSStrategy": {"cgroupRoot": NONE_CLASS}})
    return msgspec.convert(merge_objects(below, nonnull_spec), NodePolicy)


# Built-in values, by the names of the JSON; what is not named here is unset.
def _class(identity: int, expels: bool, memory: tuple[int, int, int], cache_end_percent: int = 100) -> dict[str, Any]:
    """Return the default values of a class; `memory`: watermark ratio, scale and minimum adjustment."""
    ratio, scale, adjustment = memory
    return {
        "cpuQOS": {"enable": False, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expels},
        "memoryQOS": {
            "enable": False,
            "minLimitPercent": 0,
            "lowLimitPercent": 0,
            "throttlingPercent": 0,
            "wmarkRatio": ratio,
            "wmarkScalePermill": scale,
            "wmarkMinAdj": adjustment,
            "priorityEnable": 0,
            "priority": 0,
            "oomKillGroup": 0,
        },
        "blkioQOS": {"enable": False},
        "resctrlQOS": {
            "enable": False,
            "catRangeStartPercent": 0,
            "catRangeEndPercent": cache_end_percent,
            "mbaPercent": 100,
        },
        "networkQOS": {"enable": False, "ingressRequest": 0, "ingressLimit": 0, "egressRequest": 0, "egressLimit": 0},
    }


NONE_CLASS: Final = _class(0, False, (0, 50, 0))
"""Policy of a class whose feature is off: values that leave the kernel unchanged."""

THRESHOLDS: Final[dict[str, Any]] = {
    "enable": False,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cpuset",
    "memoryEvictThresholdPercent": 70,
    "cpuEvictPolicy": "evictByRealLimit",
}
CLASSES: Final[dict[str, Any]] = {
    "policies": {"cpuPolicy": "groupIdentity"},
    "lsrClass": _class(2, True, (95, 20, -25)),
    "lsClass": _class(2, True, (95, 20, -25)),
    "beClass": _class(-1, False, (95, 20, 50), cache_end_percent=30),
    "systemClass": NONE_CLASS,
}
CPU_BURST: Final[dict[str, Any]] = {
    "policy": "none",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}
SYSTEM: Final[dict[str, Any]] = {
    "minFreeKbytesFactor": 100,
    "watermarkScaleFactor": 150,
    "memcgReapBackGround": 0,
    "totalNetworkBandwidth": "0",
}
BUILT_IN: Final[dict[str, Any]] = {
    "resourceUsedThresholdWithBE": THRESHOLDS,
    "resourceQOSStrategy": CLASSES,
    "cpuBurstStrategy": CPU_BURST,
    "systemStrategy": SYSTEM,
}
