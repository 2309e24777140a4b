"""Which pods are evicted, for which amount and in which order: what CPU and memory evictions share. Pure.

A task names an amount to release, its candidates in order, and how to measure a pod. Pods that are already leaving,
that an earlier task chose, or that this task chose are credited to a task; it stops once its amount is covered, and
never chooses a pod that frees nothing of it. After an eviction for CPU or memory, no new pod is chosen for that
resource until its cool-down is over. A pod whose eviction was requested counts as leaving for `pending_seconds`; if it
is still there then, it is skipped for as long again, so that a pod that does not leave does not block others. A pod
that leaves for another reason counts for the same time: its grace period may be an hour, and a container that the
kernel cannot end keeps its memory. A pod whose eviction was refused (a disruption budget) frees nothing: it counts as
never requested, starts no cool-down, and is skipped until it may be requested again, so that another pod is chosen in
the tick that learns of the refusal. A chosen pod is named in every tick while its task exists and may still evict it.

Never candidates: pods that are leaving or have ended, were made from a file on the node, belong to a DaemonSet (which
would recreate them at once), reserve capacity, or have `koordinator.sh/eviction-enabled: "false"`. Tasks outside best
effort evict only pods with that label "true". `koordinator.sh/eviction-policy` limits which tasks may evict a pod; if
unreadable, none may. The order is by `koordinator.sh/eviction-priority` (missing or invalid = 0), priority,
sub-priority: Koordinator's koordlet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.pod_identity import is_placeholder
from cotenant.base.kubernetes.pod_request import effective_requests
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.enforcer.contract import Evict, Observation, PodReading, PodSpec
from cotenant.enforcer.decide.granted import total
from cotenant.enforcer.settings import BestEffortSettings

CPU_COOLDOWN_SECONDS: Final = 20.0
"""Time after an eviction for CPU in which no other one follows. Default of koordlet's CPU eviction
(--cpu-evict-cool-time-seconds 20)."""
MEMORY_COOLDOWN_SECONDS: Final = 4.0
"""Time after an eviction for memory in which only urgent ones follow. Default of koordlet's memory eviction
(--memory-evict-cool-time-seconds 4)."""

EVICTION_ENABLED_LABEL: Final = "koordinator.sh/eviction-enabled"
EVICTION_POLICY_ANNOTATION: Final = "koordinator.sh/eviction-policy"
EVICTION_PRIORITY_ANNOTATION: Final = "koordinator.sh/eviction-priority"
DEFAULT_PRIORITIES: Final = {
    PriorityClass.PROD: 9500,
    PriorityClass.MID: 7500,
    PriorityClass.BATCH: 5500,
    PriorityClass.FREE: 3500,
    PriorityClass.NONE: 0,
}
"""Priority of a pod of which only the priority class is known."""
BANDS: Final = {PriorityClass.MID: Band.MID, PriorityClass.BATCH: Band.BATCH}


class TaskName(StrEnum):
    """The name of an eviction task, as in the annotation eviction-policy; `Interference` is cotenant's addition."""

    BE_CPU = "BECPUEvict"
    CPU = "CPUEvict"
    CPU_ALLOCATABLE = "CPUAllocatableEvict"
    BE_MEMORY = "BEMemoryEvict"
    MEMORY = "MemoryEvict"
    MEMORY_ALLOCATABLE = "MemoryAllocatableEvict"
    INTERFERENCE = "Interference"

    @property
    def resource(self) -> Resource:
        """The resource that the task releases, whose cool-down starts with an eviction."""
        return Resource.MEMORY if "Memory" in self.value else Resource.CPU


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod with what its eviction would free, in millicores and bytes; `uses` has None for a usage not measured.

    Memory is the resident (anonymous) memory, because page cache is available without an eviction; if not measured, it
    is the working set. `requests` are those of batch-* or mid-* resources, 0 for a pod of another class.
    """

    pod: PodSpec
    uses: Mapping[Resource, int | None]
    requests: Mapping[Resource, int]

    def use(self, resource: Resource) -> int:
        """Return the pod's usage of a resource in millicores or bytes; 0 if not known."""
        return self.uses.get(resource) or 0


Measure = Callable[[EvictionCandidate], int]


@dataclass(frozen=True, slots=True)
class Task:
    """A demand to release `amount` of a resource; `measure` says how much of it each pod would free."""

    name: TaskName
    resource: Resource
    amount: int
    why: str
    candidates: Sequence[EvictionCandidate]
    measure: Measure
    counts: Callable[[PodSpec], bool] = lambda _: True
    urgent: bool = False
    """True if the task does not wait for the cool-down, nor, if the settings allow it, for the API server."""


@dataclass(frozen=True, slots=True)
class RequestedEviction:
    """A pod whose eviction was requested: by which task and when (monotonic seconds)."""

    eviction: Evict
    task: TaskName
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Choices:
    """Earlier evictions, for cooldowns and pending requests; all times are monotonic seconds.

    `told` are recent requests whose pod is still present; `last_seconds` has, by resource, the time of the last request
    that left `told` without a refusal. `leaving_since` has, by pod uid, when the pod was first seen to be deleted.
    """

    told: tuple[RequestedEviction, ...] = ()
    last_seconds: Mapping[Resource, float] = field(default_factory=dict)
    leaving_since: Mapping[str, float] = field(default_factory=dict)

    def is_leaving(self, pod: PodSpec, at_seconds: float, settings: BestEffortSettings) -> bool:
        """Return whether a pod is being deleted and its usage can be expected to end soon."""
        return pod.deleting and at_seconds - self.leaving_since.get(pod.uid, at_seconds) < settings.pending_seconds


def candidate(pod: PodReading) -> EvictionCandidate:
    """Return a pod as candidate, with its measured usage and its mid or batch requests."""
    cpu = pod.group.cpu.millicores if pod.group else None
    read = pod.group.memory if pod.group else None
    memory = None if read is None else read.anon or read.working_set
    uses = {Resource.CPU: None if cpu is None else max(int(cpu), 0), Resource.MEMORY: memory}
    return EvictionCandidate(pod.spec, uses, {r: requested(pod.spec, r) for r in Resource})


def requested(pod: PodSpec, resource: Resource) -> int:
    """Return the pod's batch-* or mid-* request, as a scheduler counts it; 0 for a pod of another class.

    Native sidecars count in addition to the containers, init containers only if one needs more than these. A container
    without the request counts its limit, because Kubernetes sets the request of an extended resource to it.
    """
    band = BANDS.get(pod.effective_priority)
    if band is None:
        return 0
    name = EXTENDED_RESOURCES[band, resource]
    return total(pod, lambda c: max(effective_requests(c.requests, c.limits).get(name, 0), 0))


def evictable(pod: PodSpec) -> bool:
    """Return whether any task may choose the pod; not, for example, a static pod or a pod of a DaemonSet."""
    return (
        pod.phase in ("Running", "Pending")
        and not (pod.deleting or pod.static)
        and pod.owner[0] != "DaemonSet"
        and not is_placeholder(pod.namespace, pod.labels)
        and pod.labels.get(EVICTION_ENABLED_LABEL) != "false"
    )


def is_eviction_allowed(pod: PodSpec, task: TaskName) -> bool:
    """Return whether the pod's annotation allows this task to evict it: every task if missing, none if unreadable."""
    text = pod.annotations.get(EVICTION_POLICY_ANNOTATION)
    try:
        return text is None or task.value in msgspec.json.decode(text, type=list[str])
    except UNDECODABLE:
        return False


def opted_in(pod: PodSpec, highest_priority: int) -> bool:
    """Return whether tasks that are not for best effort may evict the pod, by its label and its priority."""
    return pod.labels.get(EVICTION_ENABLED_LABEL) == "true" and priority_value(pod) <= highest_priority


def priority_value(pod: PodSpec) -> int:
    """Return spec.priority, or the default of the pod's priority class if that is 0."""
    return pod.priority or DEFAULT_PRIORITIES[pod.effective_priority]


def rank(pod: PodSpec) -> tuple[int, int, int]:
    """Return the pod's eviction priority, priority, and sub-priority (else priority): the lowest is evicted first."""
    value, annotated = priority_value(pod), 0
    with contextlib.suppress(ValueError):  # a 32-bit number; one that is unreadable or out of range counts as 0
        annotated = int(pod.annotations.get(EVICTION_PRIORITY_ANNOTATION, "0"))
    own = annotated if -(2**31) <= annotated < 2**31 else 0
    return own, value, value if pod.sub_priority is None else pod.sub_priority


def best_effort_only(pod: PodSpec) -> bool:
    """Return whether the pod is labelled BE; an unlabelled BestEffort pod is never evicted as best effort."""
    return pod.qos_class is QosClass.BE


def choose(
    tasks: Sequence[Task], observation: Observation, before: Choices, settings: BestEffortSettings
) -> tuple[tuple[Evict, ...], Choices]:
    """Return pending evictions again, then new ones in the order of the tasks, and the state for the next tick."""
    refused, now, pods = refused_uids(observation), observation.at_seconds, observation.pods
    recent = [request for request in before.told if request.eviction.uid not in refused and request.at_seconds <= now]
    # While the pod is there, up to twice the time that it may take; a clock that went back forgets.
    young = [request for request in recent if 0 <= now - request.at_seconds < 2 * settings.pending_seconds]
    present = {p.spec.uid for p in pods}
    requested = tuple(request for request in young if request.eviction.uid in present)
    # The last request of each resource among those that are over and were not refused.
    over = {resource: at for resource, at in before.last_seconds.items() if at <= now}
    settled = _last_seconds([request for request in recent if request not in requested], over)
    pending = [t for t in requested if now - t.at_seconds < settings.pending_seconds]
    pending_uids = {t.eviction.uid for t in pending}
    since = {p.spec.uid: min(before.leaving_since.get(p.spec.uid, now), now) for p in pods if p.spec.deleting}
    after = Choices(requested, settled, since)
    leaving = [candidate(p) for p in pods if p.spec.uid in pending_uids or after.is_leaving(p.spec, now, settings)]
    last = _last_seconds(requested, settled)
    cooldowns = {Resource.CPU: CPU_COOLDOWN_SECONDS, Resource.MEMORY: MEMORY_COOLDOWN_SECONDS}
    cooling = {r for r, seconds in cooldowns.items() if r in last and 0 <= now - last[r] < seconds}
    ready = [t for t in tasks if t.urgent or t.resource not in cooling]
    new = []
    for task, chosen in _choose_victims(ready, leaving, {t.eviction.uid for t in requested} | refused):
        # Outside best effort by the API alone, and never urgent.
        pod, releases = chosen.pod, {r: chosen.use(r) for r in Resource if chosen.uses.get(r) is not None}
        by_api = settings.only_evict_by_api or not best_effort_only(pod)
        urgent = task.urgent and best_effort_only(pod)
        eviction = Evict(pod.namespace, pod.name, pod.uid, task.name, task.why, releases, by_api, urgent)
        new.append(RequestedEviction(eviction, task.name, now))
    candidates = ((t.name, c.pod) for t in tasks for c in t.candidates)
    fit = {(name, pod.uid) for name, pod in candidates if evictable(pod) and is_eviction_allowed(pod, name)}
    again = (t.eviction for t in pending if (t.task, t.eviction.uid) in fit)
    return (*again, *(t.eviction for t in new)), replace(after, told=(*requested, *new))


def refused_uids(observation: Observation) -> set[str]:
    """Return the uids of pods whose eviction was refused and may not be requested again yet."""
    now = observation.at_seconds
    return {uid for uid, refusal in observation.eviction_refusals.items() if now < refusal.until_seconds}


def _last_seconds(requested: Iterable[RequestedEviction], before: Mapping[Resource, float]) -> Mapping[Resource, float]:
    """Return the time of the last requested eviction per resource, including these."""
    last = dict(before)
    for request in requested:
        last[request.task.resource] = max(last.get(request.task.resource, request.at_seconds), request.at_seconds)
    return last


def _choose_victims(
    tasks: Iterable[Task], leaving: Sequence[EvictionCandidate], passed_over: set[str]
) -> list[tuple[Task, EvictionCandidate]]:
    """Choose candidates task by task until each amount is covered; leaving and chosen pods are credited."""
    taken: list[tuple[Task, EvictionCandidate]] = []
    for task in tasks:
        freed = [*leaving, *(c for _, c in taken)]
        credit = sum(max(task.measure(c), 0) for c in freed if task.counts(c.pod))
        chosen = {c.pod.uid for c in freed} | passed_over
        for candidate in task.candidates:
            gain = task.measure(candidate)
            if credit >= task.amount:
                break
            pod = candidate.pod
            if gain > 0 and pod.uid not in chosen and evictable(pod) and is_eviction_allowed(pod, task.name):
                taken.append((task, candidate))
                credit += gain
    return taken
