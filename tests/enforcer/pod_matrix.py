"""Pods of every shape from a seed, as the API server shows them, and what a kubelet sets on their cgroups.

    for plan in plans(seed=1, count=200): plan.manifest(); plan.shown(); kubelet_values(plan)

containers x native sidecars x init x ephemeral x pod-level resources x resize state x QoS class x priority band. The
kubelet's values are computed here once more, from the plan alone and by the kubelet's own source (Kubernetes 1.35:
`ResourceConfigForPod`, `generateLinuxContainerResources`, CFS period 100 ms), so that nothing of the agent is compared
with itself. Amounts: millicores and bytes; 0 = not set.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

MIB: Final = 1 << 20
NONE: Final = -1
BATCH: Final = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
BANDS: Final = {"LSE": 9500, "LSR": 9500, "LS": 9500, "SYSTEM": 9500, "BE": 5500, "": 0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What amounts are drawn from. infeasible, deferred: CPU that a resize asks for, which no node has, or has free."""

    cpus: tuple[int, ...] = (50, 100, 333, 500)
    memory: tuple[int, ...] = (24 * MIB, 32 * MIB, 48 * MIB, 64 * MIB)
    infeasible: int = 500_000
    deferred: int = 7_000
    overhead: bool = True
    """Whether RuntimeClasses are there."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits of cpu and memory; batch: of batch-cpu and batch-memory, requests and limits alike."""

    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    batch: tuple[int, int] = (0, 0)

    def body(self) -> dict[str, dict[str, str]]:
        """As spec.containers[].resources."""
        requests = {"cpu": _milli(self.cpu_request), "memory": str(self.memory_request)}
        limits = {"cpu": _milli(self.cpu_limit), "memory": str(self.memory_limit)}
        extended = {name: str(amount) for name, amount in zip(BATCH, self.batch, strict=True) if amount}
        sides = {"requests": requests, "limits": limits}
        return {
            side: {**{n: a for n, a in amounts.items() if a not in ("0", "0m")}, **extended}
            for side, amounts in sides.items()
            if extended or any(a not in ("0", "0m") for a in amounts.values())
        }


@dataclass(frozen=True, slots=True)
class Container:
    """kind: main, sidecar, init or ephemeral; granted: by the kubelet; after_resize: in the spec."""

    name: str
    kind: str
    granted: Amounts = Amounts()
    after_resize: Amounts | None = None


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One pod; `own`: its own amounts. resize: "", "Infeasible", "Deferred" or "InProgress"."""

    name: str
    qos: str
    containers: tuple[Container, ...]
    own: Amounts | None = None
    overhead: tuple[int, int] = (0, 0)
    resize: str = ""
    running: frozenset[str] = field(default_factory=frozenset)
    """Names of containers that run now."""

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    def of(self, *kinds: str) -> list[Container]:
        """In the spec's order."""
        return [c for c in self.containers if c.kind in kinds]

    @property
    def kube_qos(self) -> str:
        """Kubernetes' class by its documentation: of the pod's own amounts, else of all containers."""
        each = [self.own] if self.own else [c.granted for c in self.of("main", "sidecar", "init")]
        if not any((a.cpu_request, a.cpu_limit, a.memory_request, a.memory_limit) != (0, 0, 0, 0) for a in each):
            return "BestEffort"
        guaranteed = all(0 < a.cpu_limit == a.cpu_request and 0 < a.memory_limit == a.memory_request for a in each)
        return "Guaranteed" if guaranteed else "Burstable"

    def manifest(self, after_resize: bool = False, **template: Any) -> dict[str, Any]:
        """To be created with what will be granted; after_resize: with what is asked for after the resize."""
        groups: dict[str, list[dict[str, Any]]] = {"containers": [], "initContainers": [], "ephemeralContainers": []}
        for container in self.containers:
            amounts = (container.after_resize or container.granted) if after_resize else container.granted
            body = {"name": container.name, "resources": amounts.body(), **template}
            if container.kind == "sidecar":
                body["restartPolicy"] = "Always"
            groups[
                {"main": "containers", "ephemeral": "ephemeralContainers"}.get(container.kind, "initContainers")
            ].append(body)
        spec: dict[str, Any] = {key: value for key, value in groups.items() if value}
        if self.own:
            spec["resources"] = self.own.body()
        if any(self.overhead):
            spec["overhead"] = {"cpu": _milli(self.overhead[0]), "memory": str(self.overhead[1])}
        labels = {"koordinator.sh/qosClass": self.qos} if self.qos else {}
        return {"kind": "Pod", "metadata": {"name": self.name, "labels": labels}, "spec": spec}

    def shown(self) -> dict[str, Any]:
        """As the API server shows it while the kubelet runs it."""
        pod = self.manifest(after_resize=True)
        pod["metadata"] |= {"namespace": "matrix", "uid": self.uid}
        pod["spec"]["priority"] = BANDS[self.qos]
        keys = {"main": "containerStatuses", "ephemeral": "ephemeralContainerStatuses"}
        status: dict[str, Any] = {"phase": "Running", "qosClass": self.kube_qos}
        for container in self.containers:
            resources = container.granted.body()
            report: dict[str, Any] = {"name": container.name, "resources": resources}
            if container.kind != "ephemeral":
                report["allocatedResources"] = resources.get("requests", {})
            if container.name in self.running:
                report |= {"containerID": f"containerd://{self.container_id(container.name)}", "state": {"running": {}}}
            status.setdefault(keys.get(container.kind, "initContainerStatuses"), []).append(report)
        if self.resize in ("Infeasible", "Deferred"):
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": self.resize}]
        elif self.resize:
            status["conditions"] = [{"type": "PodResizeInProgress", "status": "True"}]
        pod["status"] = status
        return pod

    def container_id(self, name: str) -> str:
        """Its runtime's id."""
        return f"{self.name}{name}".encode().hex()[:64]

    def phase(self, name: str) -> PodPlan:
        """With what runs in a phase: "init" (the last init container beside the sidecars before it), "running"."""
        if name == "running":
            return replace(self, running=frozenset(c.name for c in self.of("main", "sidecar", "ephemeral")))
        before: list[str] = []
        running: list[str] = []
        for container in self.of("sidecar", "init"):
            if container.kind == "init":
                running = [*before, container.name]
            else:
                before.append(container.name)
        return replace(self, running=frozenset(running or before))


def plans(seed: int, count: int, sizes: Sizes = Sizes()) -> Iterator[PodPlan]:
    """So many, the same for the same seed."""
    draw = random.Random(seed)
    for number in range(count):
        yield _plan(draw, f"p{seed}-{number}", sizes)


def _plan(draw: random.Random, name: str, sizes: Sizes) -> PodPlan:
    qos = draw.choice(list(BANDS))
    kinds = ["main"] * draw.randint(1, 3), ["sidecar"] * draw.randint(0, 2), ["init"] * draw.randint(0, 2)
    early = [*kinds[1], *kinds[2]]
    draw.shuffle(early)
    order = [*kinds[0], *early, *["ephemeral"] * draw.randint(0, 1)]
    style = draw.choice(["limits", "guaranteed", "some", "none"])
    batch = qos == "BE" and draw.random() < 0.8
    containers = tuple(
        Container(f"c{i}", kind, _amounts(draw, sizes, kind, style if not batch else "batch"))
        for i, kind in enumerate(order)
    )
    plan = PodPlan(name, qos, containers)
    if draw.random() < 0.25 and not batch:
        plan = replace(plan, own=_own(draw, plan))
    if draw.random() < 0.2 and sizes.overhead:
        plan = replace(plan, overhead=(20, 8 * MIB))
    resizable = [c.name for c in plan.of("main", "sidecar") if c.granted.cpu_limit]
    state = draw.choice(["", "Infeasible", "Deferred", "InProgress"])
    if state and resizable and plan.own is None:
        plan = _resized(draw, sizes, plan, draw.choice(resizable), state)
    return plan


def _amounts(draw: random.Random, sizes: Sizes, kind: str, style: str) -> Amounts:
    if kind == "ephemeral":
        return Amounts()
    cpu, memory = draw.choice(sizes.cpus), draw.choice(sizes.memory)
    if style == "batch" and draw.random() < 0.9:  # else one that was injected after the translation to batch resources
        limited = draw.random() < 0.85
        return Amounts(batch=(cpu, memory) if limited else (0, 0))
    if style == "guaranteed":
        return Amounts(cpu, cpu, memory, memory)
    if style == "none" or (style == "some" and draw.random() < 0.4):
        return Amounts()
    if style == "some" and draw.random() < 0.5:
        return Amounts(cpu_request=cpu, memory_request=memory)
    return Amounts(cpu, cpu * 2, memory, memory * 2)


def _own(draw: random.Random, plan: PodPlan) -> Amounts:
    """Amounts of the pod itself that the API server accepts: no less than its containers' requests, nor any limit."""
    each = [c.granted for c in plan.of("main", "sidecar", "init")]
    cpu, memory = sum(a.cpu_request for a in each) or 200, sum(a.memory_request for a in each) or 64 * MIB
    cpu_limit, memory_limit = max(cpu, *(a.cpu_limit for a in each)), max(memory, *(a.memory_limit for a in each))
    if draw.random() < 0.5:
        return Amounts(cpu, cpu_limit + 100, memory, memory_limit + 16 * MIB)
    return Amounts(max(cpu, cpu_limit), max(cpu, cpu_limit), max(memory, memory_limit), max(memory, memory_limit))


def _resized(draw: random.Random, sizes: Sizes, plan: PodPlan, name: str, state: str) -> PodPlan:
    """The spec asks for more, or less, than the kubelet has granted; in the same class."""
    huge = {"Infeasible": sizes.infeasible, "Deferred": sizes.deferred}.get(state)
    half = draw.random() < 0.5

    def asked(container: Container) -> Container:
        old, share = container.granted, container.granted.cpu_limit // max(container.granted.cpu_request, 1)
        cpu = huge or (max(old.cpu_request // 2, 1) if half else old.cpu_request * 2)
        return replace(container, after_resize=replace(old, cpu_request=cpu, cpu_limit=cpu * share))

    return replace(plan, resize=state, containers=tuple(asked(c) if c.name == name else c for c in plan.containers))


def after(plan: PodPlan) -> PodPlan:
    """With what the kubelet has granted once it carried the resize out."""
    if plan.resize != "InProgress":
        return plan
    done = tuple(replace(c, granted=c.after_resize or c.granted, after_resize=None) for c in plan.containers)
    return replace(plan, containers=done, resize="")


def _milli(amount: int) -> str:
    return f"{amount}m"


# --- the kubelet, once more -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CgroupValues:
    """cpu.shares, quota in us per 100 ms, memory limit in bytes; NONE = no limit."""

    shares: int
    quota: int
    memory: int

    def beyond(self, bound: CgroupValues) -> bool:
        """Whether it lets more quota or memory through than the other; a limit that is not there lets all."""
        pairs = ((self.quota, bound.quota), (self.memory, bound.memory))
        return any(granted != NONE and (mine == NONE or mine > granted) for mine, granted in pairs)


def kubelet_values(plan: PodPlan) -> dict[str, CgroupValues]:
    """By container's name, "" for the pod itself."""
    own = plan.own or Amounts()
    values = {}
    for container in plan.containers:
        mine = container.granted
        cpu, memory = mine.cpu_limit or own.cpu_limit, mine.memory_limit or own.memory_limit
        request = mine.cpu_request or cpu
        values[container.name] = CgroupValues(_shares(request), _quota(cpu), memory or NONE)
    values[""] = _pod_values(plan, own)
    return values


def _pod_values(plan: PodPlan, own: Amounts) -> CgroupValues:
    if plan.kube_qos == "BestEffort":
        return CgroupValues(2, NONE, NONE)
    cpu_extra, memory_extra = plan.overhead
    request = (own.cpu_request or largest_moment(plan, lambda a: a.cpu_request or a.cpu_limit)) + cpu_extra
    limits = []
    for pods_own, extra, of in (
        (own.cpu_limit, cpu_extra, lambda a: a.cpu_limit),
        (own.memory_limit, memory_extra, lambda a: a.memory_limit),
    ):
        total = pods_own or (largest_moment(plan, of) if _all_declared(plan, of) else 0)
        limits.append(total + extra if total else 0)
    return CgroupValues(_shares(request), _quota(limits[0]), limits[1] or NONE)


def largest_moment(plan: PodPlan, of: Any) -> int:
    """max(containers + sidecars, each init container + the sidecars before it)."""
    sidecars, highest = 0, 0
    for container in plan.of("sidecar", "init"):
        highest = max(highest, sidecars + of(container.granted))
        if container.kind == "sidecar":
            sidecars += of(container.granted)
    return max(highest, sidecars + sum(of(c.granted) for c in plan.of("main")))


def requested(plan: PodPlan) -> int:
    """CPU that the kubelet counts for it, in millicores."""
    own = plan.own or Amounts()
    return own.cpu_request or largest_moment(plan, lambda a: a.cpu_request or a.cpu_limit)


def _all_declared(plan: PodPlan, of: Any) -> bool:
    """Whether each container has it; of an init container the kubelet asks the sum with the sidecars before it."""
    sidecars = 0
    for container in plan.of("sidecar", "init"):
        if not sidecars + of(container.granted):
            return False
        if container.kind == "sidecar":
            sidecars += of(container.granted)
    return all(of(c.granted) for c in plan.of("main"))


def _shares(millicores: int) -> int:
    return max(millicores * 1024 // 1000, 2)


def _quota(millicores: int) -> int:
    return max(millicores * 100, 1000) if millicores else NONE
