"""The vocabulary of the node agent: what a tick sees, what strategies want. Frozen, pure, first thing to read here.

    sources -> observe -> Observation -> strategies (pure) -> Plan -> apply (EDGE) -> cgroup files, evictions, journal

Strategies are declarative: each tick they say everything that shall hold now. A value that nobody wants any more goes
back to what stood there before us, which the journal of originals remembers across restarts; so switching a strategy
off, losing the policy and ending the agent are the same case. Cgroup versions, drivers and runtimes do not show here:
a knob is named by what it does; `enforcer.knob_table` says which files that is, `enforcer.decide.knobs` how they are
written.
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
"""Of `knob_table`, offered here as well: the strategies read one module."""

CgroupPath = str
"""Below the hierarchy's root, no leading slash: "kubepods/besteffort/pod<uid>/<container id>"; "" is the root."""


class Level(StrEnum):
    """The level of a cgroup in the tree; parents precede when amounts grow, children precede when they shrink."""

    KUBEPODS = "kubepods"
    QOS = "qos"
    POD = "pod"
    CONTAINER = "container"
    HOST_APPLICATION = "host-application"


class KubeQos(StrEnum):
    """Kubernetes' own class, which decides where a pod's cgroup is."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class ContainerSpec(ContainerResources):
    """A container as the API server knows it; a request that is not set may be missing here.

    cpu in millicores, memory in bytes; batch-cpu and mid-cpu whole millicores, batch-memory and mid-memory bytes.
    id: without the runtime's prefix; empty until the runtime has made it.
    """

    id: str = ""
    running: bool = False
    claims: tuple[str, ...] = ()
    """Requests of ResourceClaims that it has (`cotenant.enforcer.dra.claim.request_key`); only a runtime shows them."""

    @property
    def amounts(self) -> ContainerResources:
        """Its amounts; a request that is not set is the limit."""
        return replace(self, requests=effective_requests(self.requests, self.limits))


@dataclass(frozen=True, slots=True)
class PodSpec(PodLevelResources):
    """A pod of this node. annotations and labels: those of koordinator.sh and cotenant.dev and below, and no others."""

    namespace: str
    name: str
    uid: str
    kube_qos: KubeQos = KubeQos.BEST_EFFORT
    qos_class: QosClass = QosClass.NONE
    priority_class: PriorityClass = PriorityClass.NONE
    """Raw: label, else band; see `effective_priority`."""
    priority: int = 0
    sub_priority: int | None = None
    phase: str = "Running"
    deleting: bool = False
    static: bool = False
    """Made from a file on the node: the API server cannot evict it."""
    created_seconds: float = 0.0
    """Unix time."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    """Native sidecars among them (`ContainerSpec.kind`)."""
    ephemeral_containers: tuple[ContainerSpec, ...] = ()
    """They have no amounts, and live within the pod's."""
    resizing: bool = False
    """Whether the kubelet is about to write other amounts of CPU (`pod_resources.is_resizing`): nothing of ours may
    make the kernel refuse them."""
    owner: tuple[str, str] = ("", "")
    """(kind, name) of its controller."""
    addresses: tuple[str, ...] = ()
    """Its IPs; the node's own when it is on the host's network."""
    host_network: bool = False
    claims: bool = False
    """Whether it names ResourceClaims."""
    refused_cpus: frozenset[int] = frozenset()
    """CPUs of an annotation that is not followed, because the kubelet's own CPU manager gives CPUs out here."""
    resources_known: bool = True
    """Whether the containers' requests and limits are the API server's; a container runtime does not tell them."""

    @property
    def key(self) -> str:
        """The readable key of the pod: namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def every_container(self) -> tuple[ContainerSpec, ...]:
        """The containers of every kind, as `PodReading.containers` has them."""
        return (*self.containers, *self.init_containers, *self.ephemeral_containers)

    @property
    def resources(self) -> PodResources:
        """The resources of the pod."""
        containers = tuple(container.amounts for container in self.every_container)
        return PodResources(containers, **inherited_fields(self, PodLevelResources))

    @property
    def best_effort(self) -> bool:
        """Koordinator's rule of suppression: label BE, or Kubernetes' BestEffort without another label."""
        labelled = self.qos_class is not QosClass.NONE
        return self.qos_class is QosClass.BE or (not labelled and self.kube_qos is KubeQos.BEST_EFFORT)

    @property
    def effective_priority(self) -> PriorityClass:
        """The priority class for calculations: the raw class, or else the class that its QoS class implies."""
        return with_default(self.qos_class, self.priority_class, best_effort=self.kube_qos is KubeQos.BEST_EFFORT)


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU between two readings, None after a reset or without two; the others: of the CFS quota in this tick."""

    millicores: float | None = None
    periods: int = 0
    throttled_periods: int = 0
    throttled_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of a cgroup now, bytes. working_set = usage - inactive_file, never negative; anon cannot be dropped."""

    usage: int
    working_set: int
    anon: int = 0
    oom_kills: int = 0
    """Since the cgroup exists."""
    high_events: int = 0
    """v2: how often it was throttled at memory.high since it exists."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """PSI: percent of the last 10 s in which some (all) tasks waited for the resource."""

    some_avg10: float = 0.0
    full_avg10: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One cgroup in one tick. knobs: present values, only of what this kernel has; a missing key = not readable."""

    path: CgroupPath
    level: Level
    cpu: CpuUse = CpuUse()
    memory: MemoryUse | None = None
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    run_delay_seconds: float | None = None
    """Time its tasks were runnable and did not run, in this tick; None = not measured."""
    cycles_per_instruction: float | None = None
    processes: int | None = None
    """None = not counted; 0 = made but not started."""
    knobs: Mapping[Knob, Value] = field(default_factory=dict)
    least_quota: int = 1000
    """The smallest quota that the kernel takes, microseconds per 100 ms: 1 ms of the cgroup's own CFS period."""


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """A container and its cgroup; group is None while there is none."""

    spec: ContainerSpec
    group: GroupReading | None = None


@dataclass(frozen=True, slots=True)
class PodReading:
    """A pod and its cgroups. containers: of every kind, in the order of `PodSpec.every_container`."""

    spec: PodSpec
    group: GroupReading | None = None
    containers: tuple[ContainerReading, ...] = ()


@dataclass(frozen=True, slots=True)
class HostApplicationReading:
    """A declared process group outside pods."""

    name: str
    qos_class: QosClass
    priority_class: PriorityClass
    group: GroupReading | None = None


@dataclass(frozen=True, slots=True)
class Uplink:
    """The network device of the default route; bits_per_second: of its link, 0 = it does not say."""

    device: str
    bits_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ResctrlReading:
    """The processor's resource control: cache domains, their full mask, memory-bandwidth domains."""

    cache_mask: int = 0
    """Of the last-level cache, ones from bit 0; 0 = no cache allocation."""
    cache_ids: tuple[int, ...] = ()
    bandwidth_ids: tuple[int, ...] = ()
    amd: bool = False
    """Bandwidth is counted in AMD's unit, not in percent."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The machine and the Node object in this tick; allocatable, capacity: by wire names, as ContainerSpec.requests."""

    name: str
    processors: tuple[Processor, ...] = ()
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    """MemAvailable of the kernel."""
    cpu: CpuUse = CpuUse()
    """Of everything on the machine."""
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    block_devices: Mapping[str, str] = field(default_factory=dict)
    """Name or mount point -> "major:minor"."""
    kubelet_static_cpus: bool | None = None
    """Whether the kubelet's own CPU manager hands out CPUs; None = not known."""
    kubelet_quotas_off: bool = False
    """Whether the kubelet's file says that it sets no CPU quota at all (cpuCFSQuota: false)."""
    kubelet_cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Those that it gave to a pod exclusively, by the pod's key."""
    kubelet_shared: frozenset[int] = frozenset()
    """Those where it lets pods without CPUs of their own run, as cgroups show; empty = not known, or gives none out."""
    offered_cpus: frozenset[int] = frozenset()
    """Those whose cores ResourceClaims may have (`enforcer.dra.cpus`)."""
    uplink: Uplink | None = None
    resctrl: ResctrlReading | None = None
    kernel_switches: Mapping[str, str] = field(default_factory=dict)
    """Vendor kernels' switches that this kernel has, and their values; keys as in `enforcer.apply.sysctl`."""

    @property
    def cpu_millicores(self) -> int:
        """Return the capacity of all logical CPUs in millicores."""
        return 1000 * len(self.processors)


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """The node's UsageForecast, while it is valid: one value per half hour from start_seconds (Unix time)."""

    start_seconds: float
    valid_until_seconds: float
    step_seconds: int = 1800
    q95_cpu_millicores: tuple[int, ...] = ()
    q95_memory_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedEviction:
    """An eviction that was refused: in whose words, and until when (monotonic) the pod is not asked to leave again."""

    until_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of the strategies: the node at one moment. `tiers`: kubepods and its QoS groups."""

    at_seconds: float
    """Monotonic: for rates, cool-downs, windows."""
    wall_seconds: float
    """Unix time: for what came from other machines."""
    node: NodeReading
    kubepods: GroupReading | None = None
    tiers: Mapping[KubeQos, GroupReading] = field(default_factory=dict)
    pods: tuple[PodReading, ...] = ()
    host_applications: tuple[HostApplicationReading, ...] = ()
    supported: frozenset[Knob] = frozenset()
    """Knobs that this kernel has."""
    policy_age_seconds: float = 0.0
    """Since the policy was last known to be what the API server has."""
    pods_age_seconds: float = 0.0
    """The same of the list of pods."""
    forecast: NodeForecast | None = None
    elapsed_seconds: float = 1.0
    """Since the tick before."""
    recalled: tuple[str, ...] = ()
    """What is known from before this agent started alone: "policy", "pods"."""
    eviction_refusals: Mapping[str, RefusedEviction] = field(default_factory=dict)
    """Pods, by uid, whose eviction was refused and is not asked for anew yet: nothing of theirs is about to be free."""

    @property
    def best_effort_root(self) -> GroupReading | None:
        """The cgroup of Kubernetes' best-effort pods, including Koordinator's BE pods."""
        return self.tiers.get(KubeQos.BEST_EFFORT)

    def groups(self) -> dict[CgroupPath, GroupReading]:
        """Every cgroup that is there: kubepods, its tiers, pods, containers, declared applications."""
        readings = [self.kubepods, *self.tiers.values()]
        for pod in self.pods:
            readings += [pod.group, *(container.group for container in pod.containers)]
        readings += [application.group for application in self.host_applications]
        return {group.path: group for group in readings if group is not None}


@dataclass(frozen=True, slots=True)
class KnobValue:
    """A value of a knob of a cgroup; `why`: one line for people, `strategy`: its origin."""

    path: CgroupPath
    knob: Knob
    value: Value
    level: Level
    strategy: str
    why: str

    @property
    def place(self) -> tuple[CgroupPath, Knob]:
        """The knob and its cgroup."""
        return self.path, self.knob


@dataclass(frozen=True, slots=True)
class Want(KnobValue):
    """A knob that shall have this value."""

    back_to: Value | None = None
    """What the kubelet says that it has set there; None = it does not say. What stood there before us goes back in the
    end; but where the kubelet's word has changed since, its new one does: a limit that was changed meanwhile must not
    come back as it was."""
    made_from: Value | None = None
    """What the kubelet would have set, where a runtime hook sets ours as the container is made: what goes there in the
    end when the value is found in place. None = a value found in place is not ours."""
    never_looser: bool = False
    """The value gives way to what stood there before us where that limits more, or protects more: then nothing is
    written."""


class Surface(StrEnum):
    """A resource that pods share outside their cgroups; one EDGE module keeps each, and restores it."""

    RESCTRL = "resctrl"
    """key: name of the group; value: ResctrlGroup."""
    SYSCTL = "sysctl"
    """key: a setting of the kernel, see `cotenant.enforcer.apply.sysctl`; value: its text."""
    TRAFFIC = "traffic"
    """key: network device; value: Traffic."""


@dataclass(frozen=True, slots=True)
class SurfaceWant:
    """Something outside cgroups that shall have this value; otherwise as Want."""

    surface: Surface
    key: str
    value: str
    strategy: str
    why: str


# --- values of SurfaceWant, as JSON, so that dry runs, recordings and people read the same thing
class ResctrlGroup(msgspec.Struct, frozen=True):
    """A group of the processor's resource control: lines of its schemata, cgroups whose tasks belong there."""

    schemata: tuple[str, ...]
    cgroups: tuple[str, ...] = ()


class TrafficClass(msgspec.Struct, frozen=True):
    """Outgoing traffic of a class. number: below the root, 1..65535; least, most: promised rate and ceiling, bits/s."""

    name: str
    number: int
    least: int
    most: int
    priority: int
    """0 is served first when there is bandwidth beyond everybody's least."""
    addresses: tuple[str, ...] = ()
    """Of the pods whose packets these are, IPv4 and IPv6."""


class Traffic(msgspec.Struct, frozen=True):
    """Classes of one network device; total: bits per second of the link."""

    total: int
    classes: tuple[TrafficClass, ...]


ValueT = TypeVar("ValueT", ResctrlGroup, Traffic)


def text_of(value: ResctrlGroup | Traffic) -> str:
    """Return the value as the text of `SurfaceWant.value`."""
    return msgspec.json.encode(value).decode()


def values_of(wants: Iterable[SurfaceWant], surface: Surface, kind: type[ValueT]) -> Iterator[tuple[str, ValueT]]:
    """(key, value) of the wants of a surface."""
    return ((w.key, msgspec.json.decode(w.value, type=kind)) for w in wants if w.surface is surface)


@dataclass(frozen=True, slots=True)
class Evict:
    """A pod that shall leave; releases: what that frees, in the units of Amounts."""

    namespace: str
    name: str
    uid: str
    strategy: str
    why: str
    releases: Amounts = field(default_factory=dict)
    by_api_only: bool = False
    """Leave it its own time to end; otherwise, as Koordinator, its containers are stopped at once."""
    urgent: bool = False
    """Memory runs out, and the pod is best effort: it cannot wait for an API server."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finding: which pod suffers from which, or why a strategy does nothing. reason: CamelCase."""

    subject: str
    """namespace/name of a pod, or the node's name."""
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class StrategyPlan:
    """The wants of a strategy; of two wants on a knob of a cgroup the later strategy's is refused."""

    wants: tuple[Want, ...] = ()
    evictions: tuple[Evict, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    surfaces: tuple[SurfaceWant, ...] = ()
    best_effort_target_millicores: int | None = None
    """CPU that best effort may use by this plan, with every term that the strategy applied; None = it says nothing.
    May be negative: each suppress policy then has a least of its own."""


StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT]):
    """A strategy's answer: what it wants, and what it must remember (frozen, msgspec-encodable)."""

    plan: StrategyPlan
    state: StateT


class Strategy(Protocol[StateT]):
    """One idea of how best effort gives way. Pure: the same three arguments give the same step."""

    @property
    def name(self) -> str:
        """The name of the strategy for users and in `strategies_off`."""
        ...

    def initial(self) -> StateT:
        """Return the strategy's state at the start."""
        ...

    def step(self, observation: Observation, policy: NodePolicy, state: StateT) -> Step[StateT]:
        """Return the decision and the next state from what was observed."""
        ...


class Stateless:
    """A strategy that remembers nothing from one tick to the next."""

    __slots__ = ()

    def initial(self) -> None:
        """Return None: the strategy has no state."""
