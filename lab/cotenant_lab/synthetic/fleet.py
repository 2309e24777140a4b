"""Nodes and a blueprint of every workload, drawn from `archetypes`, and the scripted workloads of the demo.

`size` later scales the requests to the cluster, `placement` gives every seat (a replica's place) a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cotenant.base.cluster import Autoscaler, ContainerRole, Node
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant_lab.synthetic.archetypes import (
    AGENT,
    AGENTS,
    ARCHETYPES,
    INIT_CONTAINERS,
    INJECTED_IN,
    NATIVE_SIDECARS_IN,
    PROFILES,
    REGIONS,
    ROLES,
    UTC_OFFSET_HOURS,
    WORDS,
    Archetype,
)
from cotenant_lab.synthetic.spec import MemoryShape, Shape, SyntheticSpec

SIZES = ((16, 64, 0.4), (32, 128, 0.4), (64, 256, 0.2))
"""Cores, GiB and share of the three node sizes."""

RUSH = Autoscaler("rank", 30, 44, {Resource.CPU: 65})
RUSH_HOUR = 21.0
"""Of the local day; an hour earlier in UTC."""


@dataclass(frozen=True, slots=True)
class ContainerBlueprint:
    """A container of a blueprint: wanted requests and limits (0 = none), and the mean shares of them that it uses."""

    name: str
    request: Mapping[Resource, float]
    limit: Mapping[Resource, float]
    declared: bool
    busy: float
    full: float
    roof: float = 0.45
    """Highest mean CPU use as a share of the limit; few containers live near theirs and are throttled."""
    role: ContainerRole = ContainerRole.MAIN


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All decisions about one workload that are made before its usage is generated."""

    ref: WorkloadRef
    archetype: str
    shape: Shape
    parts: tuple[ContainerBlueprint, ...]
    qos: QosClass = QosClass.NONE
    priority: PriorityClass = PriorityClass.NONE
    seats: int = 1
    memory: MemoryShape = MemoryShape.STEADY
    utc_offset_hours: float = 1.0
    peak_hour: float = 19.0
    """Local hour of the daily peak."""
    leisure: bool = False
    """Busier, not quieter, at week-ends and on holidays."""
    jvm: bool = False
    autoscaler: Autoscaler | None = None
    scaled: bool = False
    """Whether the autoscaler really moves; many sit at their minimum for ever."""
    told: bool = False
    """Part of the demo's story: without accidents and level shifts, so that its events can be pointed at."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    init: tuple[str, ...] = ()
    """Names of its init containers; each asks for what the main container asks for."""


def nodes(spec: SyntheticSpec) -> tuple[Node, ...]:
    """Return the nodes, of several sizes by their shares; allocatable is capacity minus the kubelet's reservation."""
    shares = np.array([share for *_, share in SIZES])
    counts = largest_remainder(spec.nodes, shares)
    sizes = [size for size, count in zip(SIZES, counts, strict=True) for _ in range(count)]
    return tuple(_node(number, cores, gib) for number, (cores, gib, _) in enumerate(sizes))


def _node(number: int, cores: int, gib: int) -> Node:
    capacity = {Resource.CPU: cores * MILLICORES_PER_CORE, Resource.MEMORY: gib * GIB}
    reserved = {Resource.CPU: 200 + 10 * cores, Resource.MEMORY: GIB + gib * GIB // 50}
    allocatable = {resource: capacity[resource] - reserved[resource] for resource in capacity}
    labels = {
        "topology.kubernetes.io/zone": f"eu-1{'abc'[number % 3]}",
        "node.kubernetes.io/instance-type": f"general-{cores}x{gib}",
    }
    return Node(f"node-{number:03d}", capacity, allocatable, labels)


def blueprints(spec: SyntheticSpec, rng: np.random.Generator) -> tuple[Blueprint, ...]:
    """Return a blueprint for each workload in a fixed order: node agents, scripted ones, then those of archetypes."""
    agents = [_agent(namespace, name, spec.nodes) for namespace, name in AGENTS]
    scripted = (agents + story(rush=spec.rush))[: spec.workloads]
    counts = largest_remainder(spec.workloads - len(scripted), np.array([a.share for a in ARCHETYPES]))
    taken = {blueprint.ref for blueprint in scripted}
    crowd: list[Blueprint] = []
    for archetype, count in zip(ARCHETYPES, counts, strict=True):
        shapes = _shapes(archetype, count, rng)
        crowd += [_draw(archetype, shape, taken, rng) for shape in shapes]
    return tuple(scripted + crowd)


def largest_remainder(total: int, shares: np.ndarray) -> list[int]:
    """Split `total` into whole parts proportional to `shares`; every part gets one before any gets two."""
    parts = np.zeros(len(shares), dtype=int)
    first = min(total, len(shares))
    parts[np.argsort(-shares, kind="stable")[:first]] = 1
    exact = shares / shares.sum() * (total - first)
    parts += exact.astype(int)
    short = total - int(parts.sum())
    parts[np.argsort(-(exact - exact.astype(int)), kind="stable")[:short]] += 1
    return [int(part) for part in parts]


def _shapes(archetype: Archetype, count: int, rng: np.random.Generator) -> list[Shape]:
    kinds = list(archetype.shapes)
    counts = largest_remainder(count, np.array(list(archetype.shapes.values())))
    drawn = [kind for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]
    return [drawn[i] for i in rng.permutation(len(drawn))]


def _draw(archetype: Archetype, shape: Shape, taken: set[WorkloadRef], rng: np.random.Generator) -> Blueprint:
    ref, region = _name(archetype, taken, rng)
    moving = archetype.scaled > 0 and shape is Shape.DAILY and rng.random() < archetype.scaled / archetype.shapes[shape]
    pinned = archetype.scaled > 0 and not moving and rng.random() < archetype.scaled
    seats = 1 if archetype.kind in ("Pod", "Job", "CronJob") else int(rng.geometric(1.0 / archetype.replicas))
    seats = int(rng.integers(4, 8)) if moving else min(seats, 10)
    return Blueprint(
        ref, archetype.name, shape, _with_namespace_roles(_parts(archetype, shape, rng), ref.namespace), archetype.qos,
        archetype.priority, seats,
        memory=_memory_shape(archetype, rng),
        utc_offset_hours=UTC_OFFSET_HOURS[region],
        peak_hour=float(rng.normal(19.0, 0.8)) if archetype.kind != "CronJob" else float(rng.integers(0, 6)),
        leisure=ref.namespace in ("feed", "media", "chat", "shop"),
        jvm=bool(rng.random() < archetype.jvm),
        autoscaler=_autoscaler(ref, seats, moving, rng) if moving or pinned else None,
        scaled=moving,
        labels={"app.kubernetes.io/name": ref.name},
        annotations=PROFILES.get((archetype.name, ref.namespace), {}),
        init=INIT_CONTAINERS.get((archetype.name, ref.namespace), ()),
    )  # fmt: skip


def _name(archetype: Archetype, taken: set[WorkloadRef], rng: np.random.Generator) -> tuple[WorkloadRef, str]:
    """A free name; after some failures a number makes it one."""
    for attempt in range(10_000):
        namespace = str(rng.choice(archetype.namespaces))
        word = str(rng.choice(WORDS[namespace]))
        role = str(rng.choice(ROLES)) if archetype.kind == "Deployment" else ""
        region = str(rng.choice(list(REGIONS), p=list(REGIONS.values())))
        number = "" if attempt < 4 else f"-{int(rng.integers(2, 10 + attempt))}"
        ref = WorkloadRef(namespace, archetype.kind, f"{word}{role}{region}{number}")
        if not any(WorkloadRef(namespace, kind, ref.name) in taken for kind in _NAMED_ALIKE):
            taken.add(ref)
            return ref, region
    raise ValueError(f"no free name left for {archetype.name}")


_NAMED_ALIKE = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod")
"""Two kinds may share a name in Kubernetes; here they do not, so that a list can be read."""


def _parts(archetype: Archetype, shape: Shape, rng: np.random.Generator) -> tuple[ContainerBlueprint, ...]:
    declared = bool(rng.random() >= archetype.bare)
    cores = archetype.cores * float(np.exp(rng.normal(0.0, 0.8)))
    gib = archetype.gib * float(np.exp(rng.normal(0.0, 0.7)))
    busy = _busy(archetype, shape, rng)
    full = float(np.clip(archetype.full * np.exp(rng.normal(0.0, 0.35)), 0.08, 1.1))
    cpu_limit = cores * float(rng.choice([1.0, 1.5, 2.0, 4.0])) if rng.random() < archetype.limited else 0.0
    if archetype.qos is QosClass.LSR:
        cpu_limit = cores
    gib_limit = gib * float(rng.choice([1.0, 1.25, 1.5, 2.0])) if declared or rng.random() < 0.5 else 0.0
    main = _part("app" if archetype.kind == "Deployment" else archetype.name, (cores, gib), (cpu_limit, gib_limit))
    tight = bool(rng.random() < 0.07)
    parts = [replace(main, declared=declared, busy=busy, full=full, roof=0.85 if tight else 0.45)]
    if rng.random() < archetype.sidecars:
        name = "exporter" if archetype.kind == "StatefulSet" else "istio-proxy"
        side = _part(name, (0.1, 0.125), (2.0 if name == "istio-proxy" else 0.0, 0.5))
        parts.append(
            replace(side, busy=min(busy, 0.6) * float(rng.uniform(0.3, 1.5)), full=float(rng.uniform(0.4, 0.9)))
        )
    return tuple(parts)


def _with_namespace_roles(parts: tuple[ContainerBlueprint, ...], namespace: str) -> tuple[ContainerBlueprint, ...]:
    """The parts with the roles that the namespace gives to all but the main one."""
    role = ContainerRole.INJECTED if namespace in INJECTED_IN else ContainerRole.MAIN
    role = ContainerRole.SIDECAR if namespace in NATIVE_SIDECARS_IN else role
    return (parts[0], *(replace(part, role=role) for part in parts[1:]))


def _busy(archetype: Archetype, shape: Shape, rng: np.random.Generator) -> float:
    """CPU used / requested on average: log-normal, and near nothing for an idle workload."""
    if shape is Shape.IDLE:
        return float(np.clip(0.0035 * np.exp(rng.normal(0.0, 0.9)), 0.0003, 0.04))
    return float(np.clip(archetype.busy * np.exp(rng.normal(-0.4, 1.25)), 0.006, 1.3))


def _part(name: str, request: tuple[float, float], limit: tuple[float, float]) -> ContainerBlueprint:
    """A declared part from (cores, GiB) pairs."""
    units = {Resource.CPU: float(MILLICORES_PER_CORE), Resource.MEMORY: float(GIB)}
    requests = {resource: amount * units[resource] for resource, amount in zip(units, request, strict=True)}
    capped = {resource: amount * units[resource] for resource, amount in zip(units, limit, strict=True)}
    return ContainerBlueprint(name, requests, capped, declared=True, busy=0.2, full=0.6)


def _memory_shape(archetype: Archetype, rng: np.random.Generator) -> MemoryShape:
    if archetype.kind not in ("Deployment", "StatefulSet") or archetype.qos is QosClass.LSR:
        return MemoryShape.STEADY
    kinds = (MemoryShape.STEADY, MemoryShape.FOLLOWS_LOAD, MemoryShape.LEAK, MemoryShape.SAWTOOTH)
    return kinds[int(rng.choice(4, p=[0.6, 0.35, 0.035, 0.015]))]


def _autoscaler(ref: WorkloadRef, seats: int, moving: bool, rng: np.random.Generator) -> Autoscaler:
    lowest = max(1, seats // 2) if moving else seats
    return Autoscaler(
        ref.name, lowest, seats if moving else seats + 4, {Resource.CPU: int(rng.choice([50, 60, 70, 80]))}
    )


def _agent(namespace: str, name: str, seats: int) -> Blueprint:
    part = replace(
        _part(name, (AGENT.cores, AGENT.gib), (3 * AGENT.cores, 2.5 * AGENT.gib)), busy=AGENT.busy, full=AGENT.full
    )
    ref = WorkloadRef(namespace, "DaemonSet", name)
    return Blueprint(ref, AGENT.name, Shape.FLAT, (part,), AGENT.qos, AGENT.priority, seats, labels={"app": name})


def story(*, rush: bool = False) -> list[Blueprint]:
    """Return the scripted workloads that a tour of the demo visits; `lifetimes` gives them a deploy and an OOM kill."""
    checkout = replace(_part("app", (2.0, 2.0), (4.0, 2.5)), busy=0.34, full=0.86)
    proxy = replace(_part("istio-proxy", (0.1, 0.125), (2.0, 0.5)), busy=0.4, full=0.6, role=ContainerRole.SIDECAR)
    part = replace(_part("app", (6.0, 12.0), (0.0, 16.0)), busy=0.5, full=0.6)
    ls, prod = QosClass.LS, PriorityClass.PROD
    rank = Blueprint(
        WorkloadRef("feed", "Deployment", "rank"), "story", Shape.DAILY, (part,), ls, prod, 10,
        memory=MemoryShape.FOLLOWS_LOAD, leisure=True, told=True, labels={"app.kubernetes.io/name": "rank"},
    )  # fmt: skip
    return [
        Blueprint(
            WorkloadRef("pay", "Deployment", "checkout"), "story", Shape.WEEKLY, (checkout, proxy), ls, prod, 4,
            memory=MemoryShape.FOLLOWS_LOAD, leisure=True, told=True, labels={"app.kubernetes.io/name": "checkout"},
        ),
        *((_rush_blueprint(rank), _guaranteed_blueprint()) if rush else (rank,)),
    ]  # fmt: skip


def _rush_blueprint(rank: Blueprint) -> Blueprint:
    """The same in smaller pods with an autoscaler, whose evening asks for more of them than run all day."""
    small = replace(_part("app", (3.0, 6.0), (0.0, 8.0)), busy=0.374, full=0.6)
    return replace(
        rank, parts=(small,), seats=RUSH.max_replicas, peak_hour=RUSH_HOUR, autoscaler=RUSH, scaled=True
    )  # fmt: skip


def _guaranteed_blueprint() -> Blueprint:
    """Its pods are Guaranteed, and its owner lets the class go: what is recommended would have them evicted earlier."""
    part = replace(_part("app", (2.0, 2.0), (2.0, 2.0)), busy=0.47, full=0.8)
    return Blueprint(
        WorkloadRef("pay", "Deployment", "vault"), "story", Shape.FLAT, (part,), QosClass.LS, PriorityClass.PROD, 3,
        told=True, labels={"app.kubernetes.io/name": "vault"}, annotations={"cotenant.dev/keep-qos-class": "false"},
    )  # fmt: skip
