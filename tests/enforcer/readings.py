"""Small readings for tests of strategies: a node, pods and what a policy says, each with only what a test names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.kubernetes.pod_resources import ContainerKind
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import (
    ContainerReading,
    ContainerSpec,
    CpuUse,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    MemoryUse,
    NodeReading,
    Observation,
    PodReading,
    PodSpec,
    StrategyPlan,
    Value,
)
from cotenant.enforcer.model.node_policy import NodePolicy, decode

MIB = 1 << 20
GIB = 1 << 30
EVERY_KNOB = frozenset(Knob)
TIERS = {
    KubeQos.GUARANTEED: "kubepods",
    KubeQos.BURSTABLE: "kubepods/burstable",
    KubeQos.BEST_EFFORT: "kubepods/besteffort",
}


def policy(spec: Mapping[str, Any] | None = None) -> NodePolicy:
    """A NodeSLO's spec as the agent reads it."""
    return decode(spec or {})


def container(
    name: str = "main",
    *,
    requests: Mapping[str, int] | None = None,
    limits: Mapping[str, int] | None = None,
    knobs: Mapping[Knob, Value] | None = None,
    cpu: CpuUse | None = None,
    memory: MemoryUse | None = None,
    running: bool = True,
    **others: Any,
) -> ContainerReading:
    """A container whose cgroup is placed when it gets into a pod."""
    spec = ContainerSpec(name, f"id-{name}", running, requests=requests or {}, limits=limits or {}, **others)
    group = GroupReading("", Level.CONTAINER, cpu or CpuUse(), memory, knobs=knobs or {})
    return ContainerReading(spec, group)


def pod(
    name: str = "web",
    *containers: ContainerReading,
    qos: QosClass = QosClass.NONE,
    kube: KubeQos = KubeQos.BURSTABLE,
    annotations: Mapping[str, str] | None = None,
    knobs: Mapping[Knob, Value] | None = None,
    cpu: CpuUse | None = None,
    memory: MemoryUse | None = None,
    **others: Any,
) -> PodReading:
    """A pod with uid "u-NAME" in its tier's cgroup; containers: of any kind, in the order of the spec's three lists."""
    path = f"{TIERS[kube]}/podu-{name}"
    placed = tuple(replace(c, group=replace(c.group, path=f"{path}/{c.spec.id}")) if c.group else c for c in containers)
    spec = PodSpec(
        "default",
        name,
        f"u-{name}",
        kube_qos=kube,
        qos_class=qos,
        annotations=annotations or {},
        containers=_of_kind(containers, ContainerKind.MAIN),
        init_containers=_of_kind(containers, ContainerKind.SIDECAR, ContainerKind.INIT),
        ephemeral_containers=_of_kind(containers, ContainerKind.EPHEMERAL),
        **others,
    )
    return PodReading(spec, GroupReading(path, Level.POD, cpu or CpuUse(), memory, knobs=knobs or {}), placed)


def _of_kind(containers: tuple[ContainerReading, ...], *kinds: ContainerKind) -> tuple[ContainerSpec, ...]:
    return tuple(c.spec for c in containers if c.spec.kind in kinds)


def node(cpus: int = 4, millicores: float | None = None, **others: Any) -> NodeReading:
    """A machine of single-threaded cores, 8 GiB, whose kubelet gives no CPUs out."""
    processors = tuple(Processor(i, i) for i in range(cpus))
    facts = {"kubelet_static_cpus": False, **others}
    return NodeReading("n1", processors, 8 * GIB, 4 * GIB, CpuUse(millicores), **facts)


def observation_of(
    *pods: PodReading, machine: NodeReading | None = None, at: float = 0.0, supported: frozenset[Knob] = EVERY_KNOB
) -> Observation:
    """One moment."""
    tiers: dict[KubeQos, GroupReading] = {
        qos: GroupReading(path, Level.QOS) for qos, path in TIERS.items() if qos is not KubeQos.GUARANTEED
    }
    root = GroupReading("kubepods", Level.KUBEPODS)
    return Observation(at, 1.7e9 + at, machine or node(), root, tiers, tuple(pods), supported=supported)


def values(plan: StrategyPlan, knob: Knob) -> dict[str, Value]:
    """Value by cgroup path of one knob."""
    return {w.path: w.value for w in plan.wants if w.knob is knob}
