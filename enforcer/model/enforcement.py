"""What node agents did and why, for readers outside the agent: actions, CPU usage over time, reporting agents. Pure.

    agent: action -> AgentAction -> annotation of its Event, line of its log
    reader: Events, logs, recordings -> AgentActions -> ENFORCEMENT (views) -> pages, CLI
            CPU usage over time -> ENFORCEMENT_LANES -> pages, CLI

An AgentAction is one action on one node at one moment: a value that was set or restored, an eviction that was
requested, a finding. Its id is a hash of its content, so that a reader who receives it twice keeps it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

import msgspec

from cotenant.base.resource import GIB, MIB

ACT_ANNOTATION: Final = "cotenant.dev/act"
"""On an Event of a node agent: the newest AgentAction of its series, as JSON."""
MICROSECONDS_PER_CORE: Final = 100_000
"""Microseconds of a CPU quota or burst per core; their period is 100 ms."""
NO_LIMIT: Final = "-1"


class Lane(StrEnum):
    """The kind of an agent's action; the chart has a row for each kind, from top to bottom in this order."""

    SUPPRESS = "suppress"
    BURST = "burst"
    MEMORY = "memory-qos"
    EVICTION = "eviction"
    INTERFERENCE = "interference"
    OTHER = "other"


LANE_SENTENCES: Final[dict[Lane, str]] = {
    Lane.SUPPRESS: "Best effort is limited to the CPU that others leave: by quota, CPU set or weight.",
    Lane.BURST: "Latency-sensitive containers may exceed their CPU limit for a moment.",
    Lane.MEMORY: "Memory is protected from reclaim, or throttled early.",
    Lane.EVICTION: "Batch pods are evicted from the node.",
    Lane.INTERFERENCE: "Pods that suffer from interference, and the pods that cause it.",
    Lane.OTHER: "Everything else: batch pods' own limits, disks, network, cache, kernel settings, findings.",
}

LANES: Final[dict[str, Lane]] = {"cpu-suppress": Lane.SUPPRESS, "cpu-burst": Lane.BURST, "memory-qos": Lane.MEMORY}
"""Lane of an action that sets a value, by the strategy that wants the value."""
EVICTIONS: Final = frozenset(
    {
        "Evicting",
        "WouldEvict",
        "EvictionRefused",
        "NobodyToEvict",
        "EvictionBoundsInvalid",
        "ContainersStopped",
        "WouldStopContainers",
        "ContainersNotStopped",
    }
)
SUFFERING: Final = frozenset({"Interference", "Suffers", "NotBestEffort"})

REASON_SENTENCES: Final[dict[str, str]] = {
    "Suppressed": "Online pods use more: best effort gets less CPU.",
    "SuppressionEased": "Online pods use less: best effort gets more CPU.",
    "BestEffortYields": "Best effort runs only on CPU time that no other pod needs.",
    "BurstGranted": "A container was throttled at its CPU limit: its quota grows for a moment.",
    "BurstTakenBack": "A CPU quota that had grown is lowered again.",
    "BurstBuffer": "Unused CPU time of a container is saved for its later bursts.",
    "MemoryProtected": "Memory is protected from reclaim.",
    "MemoryThrottled": "Allocation slows down before the memory limit is reached.",
    "MemoryQosSet": "Another setting of memory QoS was written.",
    "BatchLimits": "The batch requests and limits of a pod, which the kubelet ignores, were set.",
    "ValueSet": "A cgroup or kernel setting was written.",
    "ValueWouldBeSet": "A dry run: a cgroup or kernel setting would be written.",
    "ValueGivenBack": "No strategy needs a value any more: the original value is restored.",
    "ValueFoughtOver": "Another program keeps changing a value that the agent sets.",
    "ValueRefused": "The agent did not set a value that a strategy wanted; the message says why.",
    "ValueNotTaken": "The kernel refused a value twice.",
    "WritingDenied": "The agent has no permission to write a setting.",
    "OriginalNotSaved": "The original value could not be saved, so the setting was not changed.",
    "KnobNotSupported": "This kernel, or this cgroup, has no file for the setting.",
    "Evicting": "The eviction of a batch pod was requested.",
    "WouldEvict": "A dry run: the eviction of a batch pod would be requested.",
    "EvictionRefused": "An eviction was refused, e.g. by a disruption budget, or no API server is configured.",
    "ContainersStopped": "Memory ran out and the API server could not evict: a batch pod's containers were stopped.",
    "WouldStopContainers": "A dry run: the runtime would be asked to stop a batch pod's containers.",
    "ContainersNotStopped": "Memory runs out: a batch pod was not evicted, and its containers were not stopped.",
    "NobodyToEvict": "The node is too full, and none of its pods may be evicted.",
    "Interference": "A pod suffers from best effort, which is suppressed further.",
    "Suffers": "A pod suffers from interference; the agent does not act on it, or not yet.",
    "NotBestEffort": "A pod suffers, but suppressing best effort did not help, so the suppression ends.",
    "Stale": "The policy or the list of pods is stale: no pod is evicted, best effort gets no more CPU.",
    "NoPolicy": "No policy was received: nothing is changed.",
}
"""Meaning of each reason; a reason that is missing here is a finding, which explains itself."""


class AgentAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that an agent did, would do in a real run, or found; as JSON it is the Event's annotation."""

    time_seconds: float
    """Unix time."""
    node: str
    lane: Lane
    reason: str
    """CamelCase, a key of REASON_SENTENCES or a finding's own."""
    why: str = ""
    """A sentence with its numbers."""
    strategy: str = ""
    pod: str = ""
    """namespace/name; empty for a node or a whole QoS class."""
    subject: str = ""
    """Cgroup, device or kernel setting."""
    knob: str = ""
    before: str = ""
    """In the knob's own unit; empty = not known."""
    after: str = ""
    outcome: str = ""
    """Outcome as in the agent's log: written, would-write, restored, asked, refused, ..."""
    dry: bool = False
    """A dry run: nothing was done."""
    warning: bool = False
    count: int = 1
    """Number of occurrences; more than 1 if only the newest action of a series is known."""
    series: str = ""
    """Uid of the action's Event, "" if it has none; `total` is how often that Event had occurred by then."""
    total: int = 0

    @property
    def id(self) -> str:
        """The action's id, which is the same whether it was read from the agent's log, an Event or an import."""
        identity = (round(self.time_seconds, 3), self.node, self.reason, self.pod, self.subject, self.knob, self.after)
        return blake2b(repr(identity).encode(), digest_size=10).hexdigest()

    @property
    def change(self) -> str:
        """The values before and after as text for people; "" if neither is known."""
        if not self.after and not self.before:
            return ""
        return f"{in_words(self.knob, self.before) or '?'} → {in_words(self.knob, self.after) or '?'}"


def lane_of(strategy: str, reason: str) -> Lane:
    """Return the row of the chart (lane) that shows the actions with this strategy and reason."""
    if reason in EVICTIONS:
        return Lane.EVICTION
    return Lane.INTERFERENCE if reason in SUFFERING else LANES.get(strategy, Lane.OTHER)


def in_words(knob: str, value: str) -> str:
    """Return a cgroup setting's value for people: quotas in cores, memory in MiB or GiB, all others unchanged."""
    is_integer = value.removeprefix("-").isdecimal()
    if value == NO_LIMIT and knob in ("cpu.quota", "memory.high", "memory.limit"):
        return "no limit"
    if is_integer and knob in ("cpu.quota", "cpu.burst"):
        return f"{int(value) / MICROSECONDS_PER_CORE:.3g} cores"
    if is_integer and knob in ("memory.min", "memory.low", "memory.high", "memory.limit"):
        size = int(value)
        return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"
    return value


@dataclass(frozen=True, slots=True)
class LaneSample:
    """A node's CPU in one tick, in millicores; None = not known, or, for `limit`, no limit."""

    time_seconds: float
    capacity: float
    others: float | None = None
    """CPU used by everything except best effort, the system included."""
    best_effort: float | None = None
    target: float | None = None
    """CPU that best effort may use, after all terms of suppression; None while suppression is off."""
    limit: float | None = None
    """Limit of best effort, by a quota or by CPUs."""
    burst: float = 0.0
    """CPU granted to latency-sensitive containers beyond their limits."""


NUMBERS: Final = ("others", "best_effort", "target", "limit", "burst")
"""Names of the amounts of a LaneSample, each of which is a time series."""


@dataclass(frozen=True, slots=True)
class NodeLanes:
    """A node's CPU time series with a regular step, in millicores, by the names in NUMBERS; NaN = missing."""

    node: str
    start_seconds: float
    step_seconds: float
    capacity: float
    values: dict[str, list[float]]
    dry: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Gathering:
    """The record of one reading of the agents' reports: its sources, the number of agents, and any error."""

    gathered_seconds: float
    """Unix time of the last reading, successful or not."""
    revision: str = ""
    """An identifier that changes when the tables change."""
    sources: tuple[str, ...] = ()
    """Sources as text: "Events of the cluster", "import of actions.jsonl"."""
    agents: int | None = None
    """Agents that run; None = could not be counted."""
    dry_agents: int = 0
    """Number of these agents that are known to be dry runs."""
    trouble: str = ""
    """Why the cluster could not be read, or empty."""
    fix: str = ""
    forbidden: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnforcementHistory:
    """The actions, the nodes' CPU time series and the record of one reading of all sources."""

    acts: tuple[AgentAction, ...] = ()
    lanes: tuple[NodeLanes, ...] = ()
    gathering: Gathering = field(default_factory=lambda: Gathering(0.0))


def row_of(act: AgentAction) -> dict[str, Any]:
    """Return an action as a row of the table ENFORCEMENT."""
    namespace, _, pod = act.pod.rpartition("/")
    same = "node", "strategy", "reason", "why", "knob", "before", "after", "outcome", "count", "series", "id"
    return {name: getattr(act, name) for name in same} | {
        "time": act.time_seconds,
        "namespace": namespace,
        "pod": pod,
        "lane": act.lane.value,
        "before_after": act.change,
        "mode": "dry-run" if act.dry else "real",
        "target": act.subject,
        "severity": "warning" if act.warning else "ok",
        "total": act.total or None,
    }
