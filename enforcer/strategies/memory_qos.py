"""Memory QoS: protection from reclaim (min, low), early throttling (high), and vendor kernels' background reclaim.

    min  = request * minLimitPercent // 100                 low = request * lowLimitPercent // 100, at least min
    high = request + (limit - request) * throttlingPercent // 100, whole pages, at least min      (containers only)

The request is batch-memory for pods labelled BE, else the memory that the kubelet has granted (`decide.granted`). A
missing limit counts as the node's allocatable. A pod's min and low are computed from the sum that its containers need
at once, native sidecars and init containers included. A QoS tier gets the sums of its pods, because the kernel protects
a cgroup no more than its parents. Ephemeral containers have no amounts and are not changed. The present value of a file
stays, even the kubelet's, if the policy's value is 0 percent, if it protects less or throttles later than the present
one, or if the kernel lacks the file. Source of formulas: Koordinator's koordlet, `cgroupreconcile`.

Two rules are our additions. First, memory.high is never below max(request, usage * 1.05): a container that needs more
than memory.high runs extremely slowly, and nobody can enter or end it. If a container is throttled nevertheless in two
successive ticks (its `high_events` rise while the memory in use reaches memory.high), the limit is lifted for a while
and reported, because the kernel does not kill such a container. Second, unlike in koordlet the tiers do not get
memory.oom.group, because one container out of memory would then end every pod of its tier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.pod_request import effective_requests
from cotenant.base.kubernetes.pod_resources import ContainerKind
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, MEMORY_QOS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import (
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Observation,
    PodReading,
    PodSpec,
    Step,
    StrategyPlan,
    Verdict,
    Want,
)
from cotenant.enforcer.decide.granted import (
    container_limit,
    container_request,
    counted_containers,
    pod_limit,
    pod_request,
    total,
)
from cotenant.enforcer.decide.knobs import PAGE_BYTES
from cotenant.enforcer.decide.overrides import annotation_fields, class_of, live, replace_fields, unreadable
from cotenant.enforcer.model.node_policy import NONE_CLASS, MemoryQos, NodePolicy
from cotenant.enforcer.strategies.unchanged import Unchanged

NAME: Final = "memory-qos"
SLACK_PERCENT: Final = 105
"""Least percentage by which memory.high exceeds the usage."""
REACHED_PERCENT: Final = 95
"""Usage in percent of memory.high from which on reclaim finds little to drop."""
STUCK_TICKS: Final = 2
RELIEF_SECONDS: Final = 60.0
LIVELOCK: Final = "MemoryThrottled"
POLICIES: Final = ("default", "none", "auto")
_OFF: Final = msgspec.convert(NONE_CLASS["memoryQOS"], MemoryQos)
_STRICT: Final = (Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH)
_MEMORY: Final = "memory"
_BATCH: Final = EXTENDED_RESOURCES[Band.BATCH, Resource.MEMORY]


@dataclass(frozen=True, slots=True)
class ThrottledContainer:
    """A container's memory.high events, ticks in a row stuck at that limit, and until when the limit is lifted."""

    events: int
    stuck: int = 0
    relieved_until_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The containers, by cgroup path, whose memory.high the agent sets or has lifted for some time."""

    watched: dict[str, ThrottledContainer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProtectionBytes:
    """The memory protection of a container, pod or tier in bytes; `high` is None if it is not throttled."""

    minimum: int = 0
    low: int = 0
    high: int | None = None


@dataclass(frozen=True, slots=True)
class _Throttle:
    """The inputs of a container's memory.high besides its usage; `wanted` is None if it is not throttled."""

    wanted: int | None
    request: int
    percent: int


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A pod's values that do not change from tick to tick; `throttles` has one entry per container."""

    wants: tuple[Want, ...]
    verdicts: tuple[Verdict, ...]
    own: ProtectionBytes
    throttles: tuple[_Throttle, ...]


@dataclass(frozen=True, slots=True)
class MemoryProtection:
    """The strategy that protects and throttles pods' memory by cgroup v2's memory controls."""

    name: str = NAME
    _known: Unchanged[_Fixed] = field(default_factory=Unchanged, repr=False, compare=False)

    def initial(self) -> MemoryState:
        """Return the initial state: no container is throttled."""
        return MemoryState()

    def step(self, observation: Observation, policy: NodePolicy, state: MemoryState) -> Step[MemoryState]:
        """Return the protection and throttling of every live pod, and the sums for the QoS classes' cgroups."""
        wants, verdicts = list[Want](), list[Verdict]()
        watched, sums = dict[str, ThrottledContainer](), dict[KubeQos, ProtectionBytes]()
        allocatable = observation.node.allocatable.get(_MEMORY, 0)
        pods = (p for p in observation.pods if live(p.spec))
        basis = (policy, allocatable, observation.supported)
        for pod, fixed in self._known.each(pods, basis, lambda p: _spec_dependent_values(p, *basis)):
            sums[pod.spec.kube_qos] = _add_protections(sums.get(pod.spec.kube_qos, ProtectionBytes()), fixed.own)
            wants += fixed.wants
            verdicts += fixed.verdicts
            for container, throttle in zip(pod.containers, fixed.throttles, strict=True):
                group = container.group
                high = None if group is None else safe_high(throttle.wanted, throttle.request, group)
                if group is None or high is None:
                    continue
                mark = watched[group.path] = watch(state.watched.get(group.path), group, observation.at_seconds)
                if mark.relieved_until_seconds > observation.at_seconds:
                    seconds_left = mark.relieved_until_seconds - observation.at_seconds
                    why = f"throttling is off for {seconds_left:.0f} s"
                    whose = f"{pod.spec.key}/{container.spec.name}"
                    message = f"{whose} needs more memory than memory.high allows: {why}"
                    verdicts.append(Verdict(pod.spec.key, LIVELOCK, message, warning=True))
                    continue
                where = f"at {throttle.percent} % of the way from request to limit"
                wants.append(_want(group, Knob.MEMORY_HIGH, high, f"memory.high {where}, but not below the usage"))
        everything, of_tiers = ProtectionBytes(), list[Want]()
        for amounts in sums.values():
            everything = _add_protections(everything, amounts)
        if observation.kubepods is not None:
            of_tiers += _protect(observation.kubepods, everything, "sum of the values of all pods")
        for tier, qos_class in ((KubeQos.BURSTABLE, QosClass.LS), (KubeQos.BEST_EFFORT, QosClass.BE)):
            group = observation.tiers.get(tier)
            if group is not None:
                qos = policy.classes.of(qos_class).memory_qos
                of_tiers += _protect(group, sums.get(tier, ProtectionBytes()), "sum of the values of the class's pods")
                of_tiers += _vendor_wants(group, qos) if qos.enable else ()
        wants += (w for w in of_tiers if w.knob in observation.supported)
        return Step(StrategyPlan(tuple(wants), verdicts=tuple(verdicts)), MemoryState(watched))


def _spec_dependent_values(
    pod: PodReading, policy: NodePolicy, allocatable_bytes: int, supported: frozenset[Knob]
) -> _Fixed:
    """Return what depends only on a pod's spec and the policy: wants, amounts and inputs of memory.high."""
    qos, verdicts = template(pod.spec, policy)
    own = pod_amounts(pod.spec, qos)
    wants, throttles = [*_pod(pod, qos, own)], []
    for container in pod.containers:
        amounts = container_amounts(pod.spec, container.spec, qos, allocatable_bytes)
        group = container.group
        if group is not None and container.spec.kind is not ContainerKind.EPHEMERAL:
            wants += [*_protect(group, amounts, "a percentage of the container's request"), *_vendor_wants(group, qos)]
            if qos.oom_kill_group:
                wants.append(_want(group, Knob.MEMORY_OOM_GROUP, 1, "an out-of-memory kill ends the whole container"))
        high = amounts.high if Knob.MEMORY_HIGH in supported else None
        throttles.append(_Throttle(high, _request(pod.spec, container.spec) or 0, qos.throttling_percent))
    return _Fixed(tuple(w for w in wants if w.knob in supported), verdicts, own, tuple(throttles))


def template(pod: PodSpec, policy: NodePolicy) -> tuple[MemoryQos, tuple[Verdict, ...]]:
    """Return the pod's memory policy: its class's policy while that is enabled, changed by the pod's annotation.

    The annotation's `policy`: none = no policy; auto = the class's policy even if it is off; default (or not set) = the
    class's policy if it is on, else none. The annotation's own fields then override it one by one.
    """
    fields, verdicts = annotation_fields(pod, MEMORY_QOS_ANNOTATION)
    of_class = policy.classes.of(class_of(pod)).memory_qos
    chosen = fields.pop("policy", "default") or "default"
    if chosen not in POLICIES:
        bad = ValueError(f'policy is "{chosen}", not one of {", ".join(POLICIES)}')
        fields, verdicts, chosen = {}, (unreadable(pod, MEMORY_QOS_ANNOTATION, bad),), "default"
    if chosen == "none":
        return _OFF, verdicts
    base = of_class if of_class.enable or chosen == "auto" else _OFF
    if not fields:
        return base, verdicts
    merged, complaint = replace_fields(base, fields, pod, MEMORY_QOS_ANNOTATION)
    return merged, (*verdicts, *complaint)


def pod_amounts(pod: PodSpec, qos: MemoryQos) -> ProtectionBytes:
    """Return the protection of a pod as a whole; none if its request is not known."""
    if pod.qos_class is QosClass.BE:
        return _protection(total(pod, _batch_request), qos)
    return _protection(pod_request(pod, _MEMORY) or 0, qos)


def container_amounts(
    pod: PodSpec, container: ContainerSpec, qos: MemoryQos, allocatable_bytes: int
) -> ProtectionBytes:
    """Return a container's protection, none if not known; the node's `allocatable_bytes` replace a missing limit."""
    request, batch = _request(pod, container), container.limits.get(_BATCH, 0)
    limit = batch if pod.qos_class is QosClass.BE else container_limit(pod, container, _MEMORY)
    if request is None or limit is None or container.kind is ContainerKind.EPHEMERAL:
        return ProtectionBytes()
    limit = limit or allocatable_bytes
    own = _protection(request, qos)
    if qos.throttling_percent == 0 or limit <= 0:
        return own
    exact = request + (limit - request) * qos.throttling_percent // 100
    return replace(own, high=max(exact // PAGE_BYTES * PAGE_BYTES, own.minimum))


def _protection(request: int, qos: MemoryQos) -> ProtectionBytes:
    minimum = request * qos.min_limit_percent // 100
    low = request * qos.low_limit_percent // 100
    return ProtectionBytes(minimum, max(low, minimum) if low > 0 else 0)


def _batch_request(container: ContainerSpec) -> int:
    return effective_requests(container.requests, container.limits).get(_BATCH, 0)


def _request(pod: PodSpec, container: ContainerSpec) -> int | None:
    return _batch_request(container) if pod.qos_class is QosClass.BE else container_request(pod, container, _MEMORY)


def _add_protections(first: ProtectionBytes, second: ProtectionBytes) -> ProtectionBytes:
    return ProtectionBytes(first.minimum + second.minimum, first.low + second.low)


def page_cache_limit(pod: PodSpec, qos: MemoryQos) -> int:
    """Return the limit of a pod's page cache in bytes; 0 = no limit.

    A size overrides a percentage of the pod's limit, but is at most that limit; an explicit off-switch overrides both.
    """
    if qos.page_cache_enable is False:
        return 0
    if pod.qos_class is QosClass.BE:
        unlimited = any(c.limits.get(_BATCH, 0) <= 0 for c in counted_containers(pod))
        limit = 0 if unlimited else total(pod, lambda c: c.limits[_BATCH])
    else:
        limit = pod_limit(pod, _MEMORY) or 0
    if qos.page_cache_limit_bytes:
        return min(qos.page_cache_limit_bytes, limit) if limit else qos.page_cache_limit_bytes
    return limit * (qos.page_cache_limit_percent or 0) // 100


def _pod(pod: PodReading, qos: MemoryQos, own: ProtectionBytes) -> Iterator[Want]:
    if pod.group is None:
        return
    yield from _protect(pod.group, own, "sum of the values of the pod's containers")
    yield from _vendor_wants(pod.group, qos)
    if qos.oom_kill_group:
        yield _want(pod.group, Knob.MEMORY_OOM_GROUP, 1, "an out-of-memory kill ends the whole pod")
    # A limit without its switch does nothing; a policy's own switch goes before what the limit implies.
    limit_bytes = page_cache_limit(pod.spec, qos)
    if limit_bytes:
        yield _want(pod.group, Knob.PAGE_CACHE_LIMIT, limit_bytes, "page-cache limit of the pod")
    if limit_bytes or qos.page_cache_enable is not None:
        on = qos.page_cache_enable is not False
        yield _want(pod.group, Knob.PAGE_CACHE_LIMIT_ENABLE, int(on), "switches the page-cache limit on or off")
    if qos.page_cache_reclaim_sync is not None:
        value = int(qos.page_cache_reclaim_sync)
        who = "the pod's own tasks reclaim" if value else "the kernel reclaims"
        yield _want(pod.group, Knob.PAGE_CACHE_LIMIT_SYNC, value, f"{who} page cache above the pod's page-cache limit")


def _protect(group: GroupReading, own: ProtectionBytes, of: str) -> Iterator[Want]:
    if own.minimum:
        yield _want(group, Knob.MEMORY_MIN, own.minimum, f"never reclaimed: {of}")
    if own.low:
        yield _want(group, Knob.MEMORY_LOW, own.low, f"reclaimed last: {of}")


def _vendor_wants(group: GroupReading, qos: MemoryQos) -> Iterator[Want]:
    """Yield the configured values of vendor kernels; a ratio of 0 is off, and its other values are then not written."""
    if qos.wmark_ratio:
        why = "background reclaim starts at this percent of the memory limit"
        yield _want(group, Knob.MEMORY_WMARK_RATIO, qos.wmark_ratio, why)
        yield _want(group, Knob.MEMORY_WMARK_SCALE, qos.wmark_scale_permill, "step size of background reclaim")
    if qos.wmark_min_adj:
        yield _want(group, Knob.MEMORY_WMARK_MIN_ADJ, qos.wmark_min_adj, "adjusts the watermark for the QoS class")
    if qos.priority_enable:
        yield _want(group, Knob.MEMORY_USE_PRIORITY_OOM, 1, "out-of-memory kills follow the cgroups' priority")
        yield _want(group, Knob.MEMORY_PRIORITY, qos.priority, "out-of-memory priority of the QoS class")


def safe_high(target: int | None, request: int, group: GroupReading) -> int | None:
    """Return a memory.high at which the container can still run; None for no limit, or while its usage is unknown."""
    if target is None or group.memory is None:
        return None
    floor = max(request, -(-group.memory.usage * SLACK_PERCENT // 100))
    return max(target, -(-floor // PAGE_BYTES) * PAGE_BYTES)


def watch(before: ThrottledContainer | None, group: GroupReading, at_seconds: float) -> ThrottledContainer:
    """Return the next record: ticks stuck at memory.high are counted; STUCK_TICKS in a row lift it for a time."""
    memory, high = group.memory, group.knobs.get(Knob.MEMORY_HIGH)
    if memory is None or before is None:
        return before or ThrottledContainer(memory.high_events if memory else 0)
    reached = isinstance(high, int) and high >= 0 and memory.working_set * 100 >= high * REACHED_PERCENT
    stuck = before.stuck + 1 if reached and memory.high_events > before.events else 0
    if stuck >= STUCK_TICKS:
        return ThrottledContainer(memory.high_events, 0, at_seconds + RELIEF_SECONDS)
    return ThrottledContainer(memory.high_events, stuck, before.relieved_until_seconds)


def _want(group: GroupReading, knob: Knob, value: int, why: str) -> Want:
    return Want(group.path, knob, value, group.level, NAME, why, never_looser=knob in _STRICT)
