"""Converts the agent's own types for its readers: actions to AgentActions, a tick's CPU to a sample. Pure.

action of the log --act_of--> AgentAction -> annotation of the Event, tables of the dashboard seen, decided
--sample_of--> LaneSample -> gauges, recordings; what was applied is what is reported decided, before --changes-->
actions, if only decisions were recorded: `Recount` replays a recording, as a dry run
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.base.errors import UsageError
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.enforcer.contract import NO_LIMIT, Evict, Knob, Observation, PodSpec, Value, Verdict, Want
from cotenant.enforcer.decide.changes import Place, WriteOutcome
from cotenant.enforcer.decide.evictions import EvictionBudget, Rate, admit_evictions
from cotenant.enforcer.decide.knobs import MICROSECONDS_PER_MILLICORE
from cotenant.enforcer.decide.loop import TickDecision
from cotenant.enforcer.model.enforcement import AgentAction, LaneSample, lane_of
from cotenant.enforcer.report.status import ActionRecord, paths_of, stamp, verdict_record
from cotenant.enforcer.strategies.burst import NAME as BURST
from cotenant.enforcer.strategies.suppression.suppress_target import demand

DONE: Final = frozenset({WriteOutcome.WRITTEN.value, WriteOutcome.WOULD_WRITE.value})
EVENT_REASONS: Final[dict[str, str]] = {
    WriteOutcome.WRITTEN.value: "ValueSet",
    WriteOutcome.WOULD_WRITE.value: "ValueWouldBeSet",
    WriteOutcome.RESTORED.value: "ValueGivenBack",
    WriteOutcome.CONFLICT.value: "ValueFoughtOver",
    WriteOutcome.REFUSED.value: "ValueRefused",
    WriteOutcome.FAILED.value: "ValueNotTaken",
    WriteOutcome.DENIED.value: "WritingDenied",
    WriteOutcome.NOT_NOTED.value: "OriginalNotSaved",
    WriteOutcome.UNSUPPORTED.value: "KnobNotSupported",
}
"""Outcome of a write -> reason of its Event."""
ASKED: Final = "asked"
"""Outcome of an eviction that the API server accepted."""
EVICTION_REASONS: Final = {
    ASKED: "Evicting",
    "would-ask": "WouldEvict",
    "stopped": "ContainersStopped",
    "would-stop": "WouldStopContainers",
    "not-stopped": "ContainersNotStopped",
}
REFUSED: Final = "EvictionRefused"
BAD: Final = frozenset(
    {WriteOutcome.FAILED, WriteOutcome.DENIED, WriteOutcome.CONFLICT, WriteOutcome.NOT_NOTED, WriteOutcome.REFUSED}
)
_MEMORY: Final[dict[str, str]] = {
    Knob.MEMORY_MIN.value: "MemoryProtected",
    Knob.MEMORY_LOW.value: "MemoryProtected",
    Knob.MEMORY_HIGH.value: "MemoryThrottled",
}


def act_of(action: ActionRecord, node: str, warning: bool = False) -> AgentAction:
    """Convert a record of the action log to an `AgentAction`; `warning` marks a verdict that needs attention."""
    reason, why = reason_of(action), action.why or action.message
    if action.why and action.message:
        why = f"{action.why} ({action.message})"
    return AgentAction(
        time_seconds=seconds_of(action.time),
        node=node,
        lane=lane_of(action.strategy, reason),
        reason=reason,
        why=action.message if action.action == "verdict" else why,
        strategy=action.strategy,
        pod=action.pod or (action.subject if action.action == "verdict" and "/" in action.subject else ""),
        subject="" if action.action in ("verdict", "evict") else action.subject,
        knob=action.knob,
        before=_text(action.before),
        after=_text(action.value),
        outcome=action.outcome,
        dry=action.dry_run,
        warning=warning or action.action == "evict" or action.outcome in BAD,
    )


def reason_of(action: ActionRecord) -> str:
    """Return an action's reason in CamelCase: that of the verdict or Event, or the effect of a value that was set."""
    if action.action == "verdict":
        return action.outcome
    if action.action == "evict":
        return EVICTION_REASONS.get(action.outcome, REFUSED)
    if action.outcome not in DONE:
        return EVENT_REASONS.get(action.outcome, "ValueChanged")
    # A value that was not known before was no bound.
    old, new = (_amount(action.knob, value) for value in (action.before, action.value))
    more = new > old
    moved = {"cpu-suppress": ("Suppressed", "SuppressionEased"), BURST: ("BurstTakenBack", "BurstGranted")}
    still = {"cpu-suppress": "BestEffortYields", BURST: "BurstBuffer", "be-totals": "BatchLimits"}
    if action.strategy == "memory-qos":
        return _MEMORY.get(action.knob, "MemoryQosSet")
    if action.strategy in moved and action.knob in (Knob.CPU_QUOTA, Knob.CPUSET_CPUS):
        return moved[action.strategy][more]
    return still.get(action.strategy, "ValueSet")


def _amount(knob: str, value: Value | None) -> float:
    if value is None or value == NO_LIMIT:
        return float("inf")
    if knob == Knob.CPUSET_CPUS:
        try:
            return len(parse_cpus(str(value))) or float("inf")
        except UsageError:
            return float("inf")
    return float(value) if isinstance(value, int) else float("inf")


def _text(value: Value | None) -> str:
    return "" if value is None else str(value)


def seconds_of(moment: str) -> float:
    """Return the Unix time of an RFC 3339 timestamp; raise UsageError if it is invalid."""
    try:
        return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
    except ValueError as error:
        raise UsageError(f"{moment!r} is not a time as in RFC 3339") from error


# --- a tick's CPU ------------------------------------------------------------------------------------------------
def sample_of(observation: Observation, decided: TickDecision) -> LaneSample:
    """Return the tick's CPU in millicores: usage, best effort's target and present limit, and burst beyond limits."""
    use = demand(observation)
    capacity = float(observation.node.cpu_millicores)
    target = decided.best_effort_target_millicores
    return LaneSample(
        time_seconds=observation.wall_seconds,
        capacity=capacity,
        others=None if use is None else float(use.latency_sensitive + use.system),
        best_effort=None if use is None else float(use.best_effort),
        target=None if target is None else float(max(target, 0)),
        limit=best_effort_limit_millicores(observation, decided.wants),
        burst=granted_burst_millicores(decided.wants),
    )


def best_effort_limit_millicores(observation: Observation, wants: Sequence[Want]) -> float | None:
    """Return the limit of the best-effort tier by its quota or CPUs, in millicores; None if only its weight applies."""
    tier = observation.best_effort_root
    bounds: list[float] = []
    for want in wants if tier is not None else ():
        if tier is None or want.path != tier.path:
            continue
        if want.knob is Knob.CPU_QUOTA and isinstance(want.value, int) and want.value != NO_LIMIT:
            bounds.append(want.value / MICROSECONDS_PER_MILLICORE)
        if want.knob is Knob.CPUSET_CPUS:
            bounds.append(MILLICORES_PER_CORE * len(parse_cpus(str(want.value))))
    return min(bounds, default=None)


def granted_burst_millicores(wants: Sequence[Want]) -> float:
    """Return by how many millicores the wanted quotas of containers exceed the containers' limits."""
    moved = (w for w in wants if w.strategy == BURST and w.knob is Knob.CPU_QUOTA and w.level.value == "container")
    over = [w.value - w.back_to for w in moved if isinstance(w.value, int) and isinstance(w.back_to, int)]
    return sum(max(amount, 0) for amount in over) / MICROSECONDS_PER_MILLICORE


# --- where only decisions are known ------------------------------------------------------------------------------
def changes(
    observation: Observation, decided: TickDecision, before: Mapping[Place, Want], evictions: Sequence[Evict] = ()
) -> Iterator[tuple[ActionRecord, bool]]:
    """Yield what this tick decides differently from the tick before, as dry-run actions, each with its warning flag."""
    owners = {path: pod.spec for pod in observation.pods for path in paths_of(pod)}
    time = stamp(observation.wall_seconds)
    wants, groups = {want.place: want for want in decided.wants}, observation.groups()
    for place, want in wants.items():
        old = before.get(place)
        if old is None or old.value != want.value:
            present = groups[want.path].knobs.get(want.knob) if want.path in groups else None
            outcome, was = WriteOutcome.WOULD_WRITE.value, old.value if old else present
            about = _base_record(want, time, owners.get(want.path))
            yield replace(about, action="write", outcome=outcome, before=was, value=want.value), False
    for place, old in before.items():
        if place not in wants:
            about = replace(_base_record(old, time, owners.get(old.path)), why="no strategy wants the setting any more")
            outcome = WriteOutcome.RESTORED.value
            yield replace(about, action="restore", outcome=outcome, before=old.value, value=old.back_to), False
    for eviction in evictions:
        key = f"{eviction.namespace}/{eviction.name}"
        record = ActionRecord(time, "evict", key, "would-ask", eviction.strategy, eviction.why, pod=key, dry_run=True)
        yield record, True


def _base_record(want: Want, time: str, pod: PodSpec | None) -> ActionRecord:
    key = pod.key if pod else ""
    return ActionRecord(time, "", want.path, "", want.strategy, want.why, want.knob.value, pod=key, dry_run=True)


AGAIN_SECONDS = 60.0
"""Time after which a finding that persists is reported again."""


@dataclass(slots=True)
class Verdicts:
    """Remembers which verdicts were reported, and when, so that each is reported at most once a minute."""

    said: dict[Verdict, float] = field(default_factory=dict)

    def news(self, verdicts: Iterable[Verdict], observation: Observation) -> Iterator[tuple[ActionRecord, bool]]:
        """Yield the verdicts to report now, each with its warning flag."""
        self.said = {v: at for v, at in self.said.items() if observation.at_seconds - at < AGAIN_SECONDS}
        for verdict in verdicts:
            same = Verdict(verdict.subject, verdict.reason, "", verdict.warning)
            if same not in self.said:
                self.said[same] = observation.at_seconds
                yield verdict_record(verdict, stamp(observation.wall_seconds)), verdict.warning


@dataclass(slots=True)
class Recount:
    """Collects actions and CPU samples from the ticks of a replayed recording."""

    rate: Rate = field(default_factory=Rate)
    acts: list[AgentAction] = field(default_factory=list)
    samples: list[LaneSample] = field(default_factory=list)
    _before: dict[Place, Want] = field(default_factory=dict)
    _asked: EvictionBudget = field(default_factory=EvictionBudget)
    _verdicts: Verdicts = field(default_factory=Verdicts)

    def tick(self, observation: Observation, decided: TickDecision) -> None:
        """Add one replayed tick: its changes since the tick before, its verdicts, and a CPU sample."""
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        chosen = admit_evictions(decided.evictions, pods, self._asked, observation.at_seconds, self.rate)
        self._asked = chosen.asked
        news = [*changes(observation, decided, self._before, chosen.now)]
        news += self._verdicts.news(decided.verdicts, observation)
        self.acts += [act_of(action, observation.node.name, warning) for action, warning in news]
        self.samples.append(sample_of(observation, decided))
        self._before = {want.place: want for want in decided.wants}
