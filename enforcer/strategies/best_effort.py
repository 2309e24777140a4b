"""All the ways in which best effort yields on a node, in one step; interference affects suppression and eviction.

    interference -> cap ---------------> suppress  (weight, CPUs or quota of the tier)
                 -> antagonist --------> evictions (memory, then CPU; in each best effort, allocatable, use, antagonist)

It is one strategy, because evictions share their credits and because interference is first answered by suppression. Its
parts are pure functions in their own files. A tick without measurements evicts no pod and keeps the suppression;
`cotenant.enforcer.decide.loop` decides what a stale policy or a stale list of pods still allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.resource import Resource
from cotenant.base.text import counted
from cotenant.enforcer.contract import Evict, Observation, PodSpec, Step, StrategyPlan, Verdict
from cotenant.enforcer.model.node_policy import NodePolicy, Thresholds
from cotenant.enforcer.settings import BestEffortSettings
from cotenant.enforcer.strategies.eviction.cpu_evict import Sample, satisfaction, window
from cotenant.enforcer.strategies.eviction.fullness import (
    MemoryTrend,
    best_effort_memory,
    by_allocatable,
    by_use,
    withdrawn_classes,
)
from cotenant.enforcer.strategies.eviction.victims import (
    Choices,
    Task,
    TaskName,
    best_effort_only,
    candidate,
    choose,
    evictable,
    refused_uids,
)
from cotenant.enforcer.strategies.interference import Findings, InterferenceState, detect
from cotenant.enforcer.strategies.suppression.suppress import Suppress, SuppressState

NAME: Final = "best-effort"


@dataclass(frozen=True, slots=True)
class EvictionState:
    """The state that evictions keep between ticks: samples of best effort's CPU, available memory, earlier choices."""

    samples: tuple[Sample, ...] = ()
    memory: MemoryTrend = field(default_factory=MemoryTrend)
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True, slots=True)
class BestEffortState:
    """The states of the parts of the best-effort strategy."""

    interference: InterferenceState = field(default_factory=InterferenceState)
    suppress: SuppressState = field(default_factory=SuppressState)
    eviction: EvictionState = field(default_factory=EvictionState)


@dataclass(frozen=True, slots=True)
class BestEffort:
    """The strategy that suppresses and evicts best-effort pods."""

    settings: BestEffortSettings = field(default_factory=BestEffortSettings)
    name: str = NAME

    def initial(self) -> BestEffortState:
        """Return the initial state, without any samples or earlier decisions."""
        return BestEffortState()

    def step(self, observation: Observation, policy: NodePolicy, state: BestEffortState) -> Step[BestEffortState]:
        """Detect interference, then suppress best effort, then choose evictions, all from one observation.

        The order matters: findings cap the suppression target and add eviction tasks. While the policy's thresholds are
        disabled, nothing is wanted and the state of earlier ticks is dropped.
        """
        if not policy.thresholds.enable:
            return Step(StrategyPlan(), BestEffortState())
        findings, interference = detect(observation, state.interference, self.settings)
        suppress_step, plan, eviction = Step(StrategyPlan(), SuppressState()), StrategyPlan(), EvictionState()
        if self.settings.suppress:
            suppress_step = Suppress(self.settings).step(observation, policy, state.suppress, findings.cap_millicores)
        if self.settings.evict:
            plan, eviction = evict(observation, policy.thresholds, state.eviction, findings, self.settings)
        verdicts = (*findings.verdicts, *suppress_step.plan.verdicts, *plan.verdicts)
        after = BestEffortState(interference, suppress_step.state, eviction)
        return Step(replace(suppress_step.plan, evictions=plan.evictions, verdicts=verdicts), after)


def evict(
    observation: Observation,
    thresholds: Thresholds,
    state: EvictionState,
    findings: Findings,
    settings: BestEffortSettings,
) -> tuple[StrategyPlan, EvictionState]:
    """Return the evictions and the next state; the amount that one task releases is credited to later tasks."""
    samples = window(observation, thresholds, state.samples)
    starved, satisfaction_verdicts = satisfaction(observation, thresholds, samples)
    memory, trend = best_effort_memory(observation, thresholds, state.memory, settings)
    in_order = (
        memory,
        *by_allocatable(observation, thresholds, Resource.MEMORY),
        by_use(observation, thresholds, Resource.MEMORY),
        starved,
        *by_allocatable(observation, thresholds, Resource.CPU),
        by_use(observation, thresholds, Resource.CPU),
    )
    tasks = [task for task in in_order if task is not None]
    if uid := findings.antagonist:
        those = [candidate(p) for p in observation.pods if p.spec.uid == uid and best_effort_only(p.spec)]
        name, cpu = TaskName.INTERFERENCE, Resource.CPU
        tasks.append(Task(name, cpu, 1, findings.why, those, lambda _: 1, lambda pod: pod.uid == uid))
    evictions, choices = choose(tasks, observation, state.choices, settings)
    leaving = [p.spec for p in observation.pods if choices.is_leaving(p.spec, observation.at_seconds, settings)]
    unmet = _unmet_verdicts(observation, tasks, evictions, leaving)
    verdicts = (*satisfaction_verdicts, *withdrawn_classes(observation, thresholds), *unmet)
    return StrategyPlan(evictions=evictions, verdicts=verdicts), EvictionState(samples, trend, choices)


def _unmet_verdicts(
    observation: Observation, tasks: list[Task], evictions: tuple[Evict, ...], leaving: Sequence[PodSpec]
) -> Iterator[Verdict]:
    """Yield a verdict for each task without a pod that may be evicted, or whose candidates were all refused."""
    refused = refused_uids(observation)
    for task in tasks:
        if any(map(task.counts, leaving)) or any(e.strategy == task.name for e in evictions):
            continue
        possible = [candidate.pod for candidate in task.candidates if evictable(candidate.pod)]
        those = [pod for pod in possible if pod.uid in refused]
        if len(those) == len(possible):
            text = f"{task.name}: {task.why}; no pod may be evicted"
            if those:
                first = those[0]
                why = observation.eviction_refusals[first.uid].why
                text += f" now; refused: {counted(len(those), 'eviction')}, that of {first.key} because: {why}"
            yield Verdict(observation.node.name, "NobodyToEvict", text, True)
