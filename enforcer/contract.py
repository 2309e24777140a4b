"""The vocabulary of the node agent: what a tick observes and what strategies want. Frozen and pure; read it first.

    sources -> observe -> Observation -> strategies (pure) -> Plan -> apply (EDGE) -> cgroup files, evictions, journal

Strategies are declarative: in each tick they name every value that must apply now. A value that no strategy wants any
more is replaced by the original value, which the journal remembers across restarts; so disabling a strategy, losing the
policy and ending the agent are the same case. Strategies do not see cgroup versions, drivers or runtimes: a knob is
named by its effect; `enforcer.knob_table` maps it to files, `enforcer.decide.knobs` writes its values as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kubernetes.pod_request import effective_requests
from cotenant.base.kubernetes.pod_resources import ContainerResources, PodLevelResources, PodResources
from cotenant.base.kubernetes.qos import PriorityClass, QosClass, with_default
from cotenant.base.resource import Amounts
from cotenant.enforcer.knob_table import NO_LIMIT, Knob, Value
from cotenant.enforcer.model.node_policy import NodePolicy

__all__ = ["NO_LIMIT", "Knob", "Value"]
"""Names of `knob_table` that this module exports too, so that a strategy needs to read only one module."""

CgroupPath = str
"""A path below the hierarchy's root, without a leading slash: "kubepods/besteffort/pod<uid>/<id>"; "" is the root."""


class Level(StrEnum):
    """The level of a cgroup in the tree; parents are written first when amounts grow, last when they shrink."""

    KUBEPODS = "kubepods"
    QOS = "qos"
    POD = "pod"
    CONTAINER = "container"
    HOST_APPLICATION = "host-application"


class KubeQos(StrEnum):
    """The QoS class by Kubernetes, which determines where a pod's cgroup is."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class ContainerSpec(ContainerResources):
    """A container as the API server describes it; `amounts` fills in requests that are not set.

    CPU is in millicores and memory in bytes, batch and mid resources likewise. `id` has no runtime prefix and is empty
    until the runtime has created the container.
    """

    id: str = ""
    running: bool = False
    claims: tuple[str, ...] = ()
    """Requests of ResourceClaims that the container uses (`dra.claim.request_key`); only a runtime shows them."""

    @property
    def amounts(self) -> ContainerResources:
        """The container's resources, with the limit in place of each request that is not set."""
        return replace(self, requests=effective_requests(self.requests, self.limits))


@dataclass(frozen=True, slots=True)
class PodSpec(PodLevelResources):
    """A pod of this node; its labels and annotations are only those of koordinator.sh and cotenant.dev domains."""

    namespace: str
    name: str
    uid: str
    kube_qos: KubeQos = KubeQos.BEST_EFFORT
    qos_class: QosClass = QosClass.NONE
    priority_class: PriorityClass = PriorityClass.NONE
    """The class by the pod's label, else by the band of its priority; defaults are added by `effective_priority`."""
    priority: int = 0
    sub_priority: int | None = None
    phase: str = "Running"
    deleting: bool = False
    static: bool = False
    """Made from a file on the node: the API server cannot evict it."""
    created_seconds: float = 0.0
    """Unix time of the pod's creation."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    """Init containers, native sidecars among them (`ContainerSpec.kind`)."""
    ephemeral_containers: tuple[ContainerSpec, ...] = ()
    """Ephemeral containers, which have no amounts and share those of the pod."""
    resizing: bool = False
    """Whether the kubelet is about to write other amounts of CPU (`pod_resources.is_resizing`), which no value of the
    agent may make the kernel refuse."""
    owner: tuple[str, str] = ("", "")
    """(kind, name) of the pod's controller."""
    addresses: tuple[str, ...] = ()
    """The pod's IP addresses; those of the node if the pod is on the host's network."""
    host_network: bool = False
    claims: bool = False
    """True if the pod names ResourceClaims."""
    refused_cpus: frozenset[int] = frozenset()
    """CPUs of an annotation that is not followed, because the kubelet's CPU manager assigns the CPUs of this node."""
    resources_known: bool = True
    """True if the containers' requests and limits are from the API server; a container runtime does not have them."""

    @property
    def key(self) -> str:
        """The readable key of the pod: namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def every_container(self) -> tuple[ContainerSpec, ...]:
        """The containers of all kinds: regular, init and ephemeral ones."""
        return (*self.containers, *self.init_containers, *self.ephemeral_containers)

    @property
    def resources(self) -> PodResources:
        """The requests and limits of the pod and its containers."""
        containers = tuple(container.amounts for container in self.every_container)
        return PodResources(containers, **inherited_fields(self, PodLevelResources))

    @property
    def best_effort(self) -> bool:
        """True if suppression applies to the pod: its label is BE, or it has none and is BestEffort in Kubernetes."""
        labelled = self.qos_class is not QosClass.NONE
        return self.qos_class is QosClass.BE or (not labelled and self.kube_qos is KubeQos.BEST_EFFORT)

    @property
    def effective_priority(self) -> PriorityClass:
        """The priority class for calculations: the pod's own class, or else the class that its QoS class implies."""
        return with_default(self.qos_class, self.priority_class, best_effort=self.kube_qos is KubeQos.BEST_EFFORT)


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU usage (None if not known) and throttling by the CFS quota, both between two readings."""

    millicores: float | None = None
    periods: int = 0
    throttled_periods: int = 0
    throttled_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory usage of a cgroup in bytes; working_set = usage - inactive_file, at least 0."""

    usage: int
    working_set: int
    anon: int = 0
    oom_kills: int = 0
    """Number of OOM kills since the cgroup was created."""
    high_events: int = 0
    """Number of times that the cgroup was throttled at memory.high since its creation; cgroup v2 only."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The reading of one cgroup in one tick; `knobs` maps the cgroup's settings to the values that could be read."""

    path: CgroupPath
    level: Level
    cpu: CpuUse = CpuUse()
    memory: MemoryUse | None = None
    cpu_pressure_percent: float | None = None
    memory_pressure_percent: float | None = None
    io_pressure_percent: float | None = None
    """Pressure stall information: percent of the last 10 s in which some of the cgroup's tasks waited."""
    run_delay_seconds: float | None = None
    """Seconds in this tick in which the cgroup's tasks were runnable and did not run; None = not measured."""
    cycles_per_instruction: float | None = None
    processes: int | None = None
    """Number of processes: None = not counted, 0 = the container is created but not started."""
    knobs: Mapping[Knob, Value] = field(default_factory=dict)
    least_quota: int = 1000
    """The smallest quota that the kernel accepts, 1 ms per CFS period of the cgroup, in microseconds per 100 ms."""


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """A container and the reading of its cgroup; `group` is None if the cgroup does not exist."""

    spec: ContainerSpec
    group: GroupReading | None = None


@dataclass(frozen=True, slots=True)
class PodReading:
    """A pod and the readings of its cgroups; `containers` are in the order of `PodSpec.every_container`."""

    spec: PodSpec
    group: GroupReading | None = None
    containers: tuple[ContainerReading, ...] = ()


@dataclass(frozen=True, slots=True)
class HostApplicationReading:
    """A host application (a process group outside pods that the policy declares) and the reading of its cgroup."""

    name: str
    qos_class: QosClass
    priority_class: PriorityClass
    group: GroupReading | None = None


@dataclass(frozen=True, slots=True)
class Uplink:
    """The network device of the default route and the speed of its link, 0 if the device does not report it."""

    device: str
    bits_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ResctrlReading:
    """The processor's resource control: cache domains, their full bit mask, and memory-bandwidth domains."""

    cache_mask: int = 0
    """Bit mask of the last-level cache, ones from bit 0; 0 = no cache allocation."""
    cache_ids: tuple[int, ...] = ()
    bandwidth_ids: tuple[int, ...] = ()
    amd: bool = False
    """True if memory bandwidth is counted in AMD's unit, not in percent."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The machine and the Node object in this tick; `allocatable` and `capacity` are by resource name."""

    name: str
    processors: tuple[Processor, ...] = ()
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    """The kernel's MemAvailable."""
    cpu: CpuUse = CpuUse()
    """CPU usage of everything on the machine."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    block_devices: Mapping[str, str] = field(default_factory=dict)
    """Name or mount point -> "major:minor"."""
    kubelet_static_cpus: bool | None = None
    """True if the kubelet's own CPU manager assigns CPUs; None = not known."""
    kubelet_quotas_off: bool = False
    """True if the kubelet's configuration file says that it sets no CPU quotas (cpuCFSQuota: false)."""
    kubelet_cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """CPUs that the kubelet assigned to one pod exclusively, by the pod's key."""
    kubelet_shared: frozenset[int] = frozenset()
    """CPUs on which the kubelet runs pods without exclusive CPUs, as cgroups show; empty if that is unknown or if no
    CPU is exclusive."""
    offered_cpus: frozenset[int] = frozenset()
    """CPUs of the cores that the node offers to ResourceClaims (`enforcer.dra.cpus`)."""
    uplink: Uplink | None = None
    resctrl: ResctrlReading | None = None
    kernel_switches: Mapping[str, str] = field(default_factory=dict)
    """Vendor kernels' switches that this kernel has, and their values; keys as in `enforcer.apply.sysctl`."""

    @property
    def cpu_millicores(self) -> int:
        """The capacity of all logical CPUs in millicores."""
        return 1000 * len(self.processors)


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """The node's UsageForecast while it is valid: one value per `step_seconds` from `start_seconds` (Unix time)."""

    start_seconds: float
    valid_until_seconds: float
    step_seconds: int = 1800
    q95_cpu_millicores: tuple[int, ...] = ()
    q95_memory_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedEviction:
    """A refused eviction: the reason, and the time (monotonic seconds) until which it is not requested again."""

    until_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of the strategies: the node at one moment. `tiers` are the cgroups of Kubernetes' QoS classes."""

    at_seconds: float
    """Monotonic time, for rates, cool-downs and windows."""
    wall_seconds: float
    """Unix time, for comparison with times of other machines."""
    node: NodeReading
    kubepods: GroupReading | None = None
    tiers: Mapping[KubeQos, GroupReading] = field(default_factory=dict)
    pods: tuple[PodReading, ...] = ()
    host_applications: tuple[HostApplicationReading, ...] = ()
    supported: frozenset[Knob] = frozenset()
    """Knobs that this kernel has."""
    policy_age_seconds: float = 0.0
    """Seconds since the API server last confirmed the policy."""
    pods_age_seconds: float = 0.0
    """Seconds since the API server last confirmed the list of pods."""
    forecast: NodeForecast | None = None
    elapsed_seconds: float = 1.0
    """Seconds since the previous tick."""
    recalled: tuple[str, ...] = ()
    """Inputs that are known only from disk, from before this agent started: "policy", "pods"."""
    eviction_refusals: Mapping[str, RefusedEviction] = field(default_factory=dict)
    """Refused evictions, by pod uid, that may not be requested again yet: their pods will free nothing soon."""

    @property
    def best_effort_root(self) -> GroupReading | None:
        """The cgroup of Kubernetes' best-effort pods, including Koordinator's BE pods."""
        return self.tiers.get(KubeQos.BEST_EFFORT)

    def groups(self) -> dict[CgroupPath, GroupReading]:
        """Return every existing cgroup by its path: kubepods, its tiers, pods, containers and host applications."""
        readings = [self.kubepods, *self.tiers.values()]
        for pod in self.pods:
            readings += [pod.group, *(container.group for container in pod.containers)]
        readings += [application.group for application in self.host_applications]
        return {group.path: group for group in readings if group is not None}


@dataclass(frozen=True, slots=True)
class KnobValue:
    """A value for a knob (a setting of a cgroup), with the strategy that set it and the reason in one line."""

    path: CgroupPath
    knob: Knob
    value: Value
    level: Level
    strategy: str
    why: str

    @property
    def place(self) -> tuple[CgroupPath, Knob]:
        """The cgroup's path and the setting (knob), as a key."""
        return self.path, self.knob


@dataclass(frozen=True, slots=True)
class Want(KnobValue):
    """A strategy's demand that a setting (knob) of a cgroup has this value."""

    back_to: Value | None = None
    """The value that the kubelet reports to have set, None if it reports none. Once the value is no longer wanted, the
    original value is restored; if the kubelet's report has changed since, the newly reported value is set instead, so
    that an outdated limit does not return."""
    made_from: Value | None = None
    """The kubelet's value, if a runtime hook may have set the wanted value at the container's creation: it is recorded
    as the original if the wanted value is already in place. None = a value in place is not the agent's."""
    never_looser: bool = False
    """If the original value limits more, or protects more, than this value, nothing is written."""


class Surface(StrEnum):
    """A kind of setting outside cgroups that affects several pods; one EDGE module applies and restores each kind."""

    RESCTRL = "resctrl"
    """key: name of the group; value: ResctrlGroup."""
    SYSCTL = "sysctl"
    """key: a setting of the kernel, see `cotenant.enforcer.apply.sysctl`; value: its text."""
    TRAFFIC = "traffic"
    """key: network device; value: Traffic."""


@dataclass(frozen=True, slots=True)
class SurfaceWant:
    """A strategy's demand that a setting outside cgroups has this value."""

    surface: Surface
    key: str
    value: str
    strategy: str
    why: str


# --- values of SurfaceWant, as JSON, so that dry runs, recordings and people read the same thing
class ResctrlGroup(msgspec.Struct, frozen=True):
    """A group of the processor's resource control: its schemata lines, and the cgroups whose tasks belong to it."""

    schemata: tuple[str, ...]
    cgroups: tuple[str, ...] = ()


class TrafficClass(msgspec.Struct, frozen=True):
    """A class of outgoing traffic with its number below the root (1..65535), guaranteed rate and ceiling in bits/s."""

    name: str
    number: int
    least: int
    most: int
    priority: int
    """Order in which classes get bandwidth beyond the guaranteed rates; 0 is served first."""
    addresses: tuple[str, ...] = ()
    """IPv4 and IPv6 addresses of the pods whose packets belong to the class."""


class Traffic(msgspec.Struct, frozen=True):
    """The traffic classes of one network device; `total` is the bandwidth of its link in bits per second."""

    total: int
    classes: tuple[TrafficClass, ...]


ValueT = TypeVar("ValueT", ResctrlGroup, Traffic)


def text_of(value: ResctrlGroup | Traffic) -> str:
    """Return a resctrl group or traffic classes as the text of `SurfaceWant.value`."""
    return msgspec.json.encode(value).decode()


def values_of(wants: Iterable[SurfaceWant], surface: Surface, kind: type[ValueT]) -> Iterator[tuple[str, ValueT]]:
    """Return the key and decoded value of each want for one `surface`, a kind of setting outside cgroups."""
    return ((w.key, msgspec.json.decode(w.value, type=kind)) for w in wants if w.surface is surface)


@dataclass(frozen=True, slots=True)
class Evict:
    """A demand to evict a pod; `releases` is the amount that its eviction frees, in the units of Amounts."""

    namespace: str
    name: str
    uid: str
    strategy: str
    why: str
    releases: Amounts = field(default_factory=dict)
    by_api_only: bool = False
    """The pod keeps its own grace period; otherwise its containers are stopped at once, as by Koordinator."""
    urgent: bool = False
    """Memory runs out and the pod is best effort, so that the eviction cannot wait for an API server."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A strategy's finding, such as a pod that suffers, or why the strategy does nothing; `reason` is in CamelCase."""

    subject: str
    """namespace/name of a pod, or the node's name."""
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class StrategyPlan:
    """The demands of one strategy; if two strategies want different values of a setting, the later one is refused."""

    wants: tuple[Want, ...] = ()
    evictions: tuple[Evict, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    surfaces: tuple[SurfaceWant, ...] = ()
    best_effort_target_millicores: int | None = None
    """CPU that best effort may use by this plan, after all terms of the strategy; None if the plan sets no target. It
    may be negative: each suppress policy then has its own minimum."""


StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT]):
    """A strategy's result: its plan, and the state for the next tick (frozen, and msgspec can encode it)."""

    plan: StrategyPlan
    state: StateT


class Strategy(Protocol[StateT]):
    """A strategy: its pure `step` decides by observation, policy and state what the agent applies for one purpose."""

    @property
    def name(self) -> str:
        """The strategy's name, shown to users and listed in `strategies_off`."""
        ...

    def initial(self) -> StateT:
        """Return the strategy's state at the start."""
        ...

    def step(self, observation: Observation, policy: NodePolicy, state: StateT) -> Step[StateT]:
        """Return the values and evictions that the strategy wants after this observation, and its next state."""
        ...


class Stateless:
    """A base for strategies that remember nothing from one tick to the next."""

    __slots__ = ()

    def initial(self) -> None:
        """Return None: the strategy has no state."""
