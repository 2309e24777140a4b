"""Facts that kube-state-metrics lacks for some objects although it has them for others. Pure.

If a metric has a series for every object of its kind but not for one, that series is lost: a shard is not scraped, or a
rule drops series. The lost fact is then unknown, neither "nothing" nor "zero". A metric that only covers what somebody
set has no series if nobody set anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cotenant.base.cluster import Container, ContainerRole, Node, Pod, PodPhase
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.profiler.prometheus.kube_state import stored
from cotenant.profiler.prometheus.kube_state.autoscalers import SCALED
from cotenant.profiler.prometheus.kube_state.declared import ANNOTATED, LIMIT_RANGE, NODE_INFO, QUOTA
from cotenant.profiler.prometheus.kube_state.phases import QOS
from cotenant.profiler.prometheus.parts import (
    INIT_LIMITS,
    INIT_REQUESTS,
    LIMITS,
    OOM,
    REQUESTS,
    RESTARTS,
    TERMINATED,
    of_init,
)

Key = tuple[str, str]
Doubts = Mapping[Key, Sequence[Resource]]
"""By pod, the resources of which its node may have refused or deferred a resize."""
State = Mapping[str, Sequence[tuple[dict[str, str], float]]]

INIT_INFO: Final = "kube_pod_init_container_info"
NODE_LABELS: Final = "kube_node_labels"
INIT_RESTARTS: Final = of_init(RESTARTS)
INIT_TERMINATED: Final = of_init(TERMINATED)
READ_LATE: Final = (
    *(INIT_INFO, INIT_REQUESTS, INIT_LIMITS, INIT_RESTARTS),
    *(NODE_INFO, NODE_LABELS, LIMIT_RANGE, *ANNOTATED),
)
"""Metrics that, if the snapshot has none of their samples, are each read at their newest sample of the last day.

Most have a series for each existing object. So the bounds of a cluster's last LimitRange still apply for a day after
its deletion; if they were not read, a proposal could fall below a bound that exists. Annotations of kinds other than
Job and CronJob are searched in the whole window: any workload of a kind has a series, so a kind without one is no
longer exported. Jobs come and go, so a day is enough for them.
"""
LATE_SECONDS: Final = DAY_SECONDS
_LASTING: Final = frozenset(m for m, (kind, _) in ANNOTATED.items() if kind not in ("Job", "CronJob"))


def search_start(metric: str, now_seconds: int, window_start_seconds: int) -> int:
    """Return the Unix time from which to search the newest sample of a metric that the snapshot lacks."""
    return now_seconds - LATE_SECONDS if metric in READ_LATE and metric not in _LASTING else window_start_seconds


@dataclass(frozen=True, slots=True)
class SeriesCoverage:
    """Metrics that the server has in the window, and the times at which those missing in the snapshot were read."""

    names: Collection[str]
    read_at: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> Iterator[str]:
        """Yield a note on the metrics that were read separately at an earlier time."""
        late = sorted(metric for metric in self.read_at if metric in READ_LATE)
        if late:
            oldest = datetime.fromtimestamp(min(self.read_at[metric] for metric in late), UTC)
            yield (
                f"{', '.join(late)}: no series now, though there were some before (the oldest of these at "
                f"{oldest:%Y-%m-%d %H:%M} UTC), so the newest earlier values are used"
            )


@dataclass(frozen=True, slots=True)
class SeriesGaps:
    """Facts that kube-state-metrics does not export, and the pods that lack them; `everybody`: gaps of every workload.

    - `restarted`: pods for which no series tells whether they were killed.
    - `unlimited`: pods with a container that was killed at an unknown limit.
    - `beyond`, `crowded`: pods whose resize their node may have refused: alone, or with others, they request too much.
    - `annotated`: workloads whose annotations are exported.
    - `amounts_until`: Unix time up to which requests were exported, None = up to now.
    - `hidden`: LimitRanges and autoscalers that exist and are not exported.
    """

    everybody: tuple[Reason, ...]
    restarted: frozenset[Key]
    unlimited: frozenset[Key] = frozenset()
    beyond: Doubts = field(default_factory=dict)
    crowded: Doubts = field(default_factory=dict)
    annotated: frozenset[WorkloadRef] = frozenset()
    amounts_until: int | None = None
    hidden: Mapping[str, stored.StoredKind] = field(default_factory=dict)

    def of(self, ref: WorkloadRef, youngest: Pod, members: Iterable[Pod]) -> Iterator[Reason]:
        """Yield the gaps that apply to the workload `ref`, as reason codes; `youngest` is the newest of `members`."""
        yield from self.everybody
        keys = {(p.namespace, p.name) for p in members}
        late = self.amounts_until is not None and not 0 < youngest.start_seconds < self.amounts_until
        if late or not self.unlimited.isdisjoint(keys):
            yield Reason.AMOUNTS_UNKNOWN
        if not self.restarted.isdisjoint(keys):
            yield Reason.KILLS_UNKNOWN
        kinds = {kinds_annotated.kind for kinds_annotated in self.annotated}
        if youngest.running and ref.kind in kinds and ref not in self.annotated:
            yield Reason.ANNOTATIONS_UNKNOWN
        ranges, scalers = (self.hidden.get(kind) for kind in (stored.LIMIT_RANGES, stored.AUTOSCALERS))
        if ranges and (ranges.is_hidden or ref.namespace in ranges.nameless):
            yield Reason.LIMIT_RANGE_UNKNOWN
        if scalers and scalers.is_hidden and ref.kind in SCALED:
            yield Reason.AUTOSCALER_UNKNOWN

    def in_doubt(self, pod: Pod) -> frozenset[Resource]:
        """Return the resources for which it is unknown whether the pod's request is in force."""
        key = (pod.namespace, pod.name)
        return frozenset((*self.beyond.get(key, ()), *self.crowded.get(key, ())))

    def resources_in_doubt(self, youngest: Pod, members: Iterable[Pod]) -> frozenset[Resource]:
        """Return the resources with unknown amounts of a workload; `youngest` is the newest of its pods `members`."""
        alone = (r for pod in members for r in self.beyond.get((pod.namespace, pod.name), ()))
        return frozenset((*alone, *self.in_doubt(youngest)))


def find_gaps(
    state: State,
    coverage: SeriesCoverage,
    pods: Iterable[Pod],
    containers: Mapping[Key, Mapping[str, Container]],
    nodes: Iterable[Node] = (),
) -> SeriesGaps:
    """Return the facts that the metrics lack for some objects; `containers` has each pod's containers by name."""
    names, read_at = coverage.names, coverage.read_at
    since = min((read_at[metric] for metric in (REQUESTS, LIMITS) if metric in read_at), default=None)
    everybody = (Reason.AMOUNTS_UNKNOWN,) if _are_amounts_lost(state, names) else ()
    restarted: set[Key] = set()
    if OOM not in names and RESTARTS not in names:
        everybody = (*everybody, Reason.KILLS_UNKNOWN)
    elif OOM not in names:
        # Pods with a container that restarted and whose last end no series tells: every restarted one has an end.
        ended_containers = {_container_of(x) for metric in (TERMINATED, INIT_TERMINATED) for x, _ in state[metric]}
        counts = ((x, count) for metric in (RESTARTS, INIT_RESTARTS) for x, count in state[metric])
        restarted = {_pod_of(x) for x, count in counts if count and _container_of(x) not in ended_containers}
        # Running pods with a container that stays and whose restarts no series tells
        counted = {_container_of(x) for metric in (RESTARTS, INIT_RESTARTS) for x, _ in state[metric]}
        for pod in pods:
            key = (pod.namespace, pod.name)
            own = containers.get(key, {}) if pod.running and pod.phase is PodPhase.RUNNING else {}
            if any(c.role is not ContainerRole.INIT and (*key, c.name) not in counted for c in own.values()):
                restarted.add(key)
    beyond, crowded = _beyond_their_nodes(pods, nodes)
    unlimited: set[Key] = set()
    if INIT_LIMITS not in names:
        unlimited = {_pod_of(x) for x, _ in state[INIT_TERMINATED] if _is_kill(x)}
    annotated = frozenset(
        WorkloadRef(x.get("namespace", ""), kind, x.get(label, ""))
        for metric, (kind, label) in ANNOTATED.items()
        for x, _ in state[metric]
    )
    hidden = stored.kinds(state, names)
    return SeriesGaps(everybody, frozenset(restarted), frozenset(unlimited), beyond, crowded, annotated, since, hidden)


def _are_amounts_lost(state: State, names: Collection[str]) -> bool:
    """Return whether requests or limits may be set without a series; False if nobody in sight sets any.

    A limit alone is a request, too, so limits without requests mean that request series are lost. Else amounts are
    visible elsewhere: in a pod's QoS class, in what a quota counts, and in an OOM kill.
    """
    lacking = {metric for metric in (REQUESTS, LIMITS) if metric not in names or not state[metric]}
    if not lacking or lacking == {REQUESTS} or any(metric in names for metric in lacking):
        return bool(lacking)
    if REQUESTS in lacking and not state[RESTARTS]:  # nothing is told of containers
        return True
    sides = ("limits.",) if REQUESTS not in lacking else ("limits.", "requests.", "cpu", "memory")
    classes = {"Guaranteed", "Burstable"} if REQUESTS in lacking else {"Guaranteed"}
    return (
        any(x.get("qos_class") in classes for x, value in state.get(QOS, ()) if value)
        or any(x.get("resource", "").startswith(sides) for x, v in state[QUOTA] if v and x.get("type") == "used")
        or any(_is_kill(x) for metric in (TERMINATED, INIT_TERMINATED) for x, _ in state[metric])
        or any(name.startswith((f"{REQUESTS}_", f"{LIMITS}_")) for name in names)  # kube-state-metrics before 2.0
    )


def _beyond_their_nodes(pods: Iterable[Pod], nodes: Iterable[Node]) -> tuple[Doubts, Doubts]:
    """Return running pods that request more than their whole node, and those that do so together.

    Their node has refused or deferred a resize in place, which the spec does not show. Of those together any may be it.
    """
    capacity = {node.name: node.allocatable for node in nodes}
    running = [pod for pod in pods if pod.running and pod.node in capacity]
    sums: Counter[tuple[str, Resource]] = Counter()
    largest: dict[tuple[str, Resource], int] = {}
    for pod in running:
        if pod.phase is not PodPhase.RUNNING:
            continue  # it may have ended, and hold nothing
        for resource, amount in pod.requests.items():
            sums[pod.node, resource] += amount
            largest[pod.node, resource] = max(amount, largest.get((pod.node, resource), 0))
    alone: dict[Key, list[Resource]] = defaultdict(list)
    together: dict[Key, list[Resource]] = defaultdict(list)
    for pod in running:
        for resource, amount in pod.requests.items():
            most = capacity[pod.node].get(resource)
            if most is not None and amount > most:
                alone[pod.namespace, pod.name].append(resource)
            elif most is not None and amount and 0 < sums[pod.node, resource] - most < largest[pod.node, resource]:
                together[pod.namespace, pod.name].append(resource)  # more than a pod's whole wish is no wish that waits
    return alone, together


def _is_kill(labels: Mapping[str, str]) -> bool:
    return labels.get("reason") == "OOMKilled"


def containers_of_unknown_role(state: State) -> set[tuple[str, str, str]]:
    """Return (namespace, pod, container) of init containers of which it is unknown whether they are sidecars."""
    init_containers = {_container_of(x) for x, _ in state[INIT_INFO]}
    return {
        key
        for metric in (INIT_REQUESTS, INIT_LIMITS, INIT_RESTARTS)
        for x, _ in state[metric]
        if (key := _container_of(x)) not in init_containers
    }


def _pod_of(labels: Mapping[str, str]) -> Key:
    return labels.get("namespace", ""), labels.get("pod", "")


def _container_of(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return (*_pod_of(labels), labels.get("container", ""))
