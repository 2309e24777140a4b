"""Everything by which best effort gives way on a node, in one round: what is found about interference bounds both.

    interference -> cap ---------------> suppress  (weight, CPUs or quota of the tier)
                 -> antagonist --------> evictions (memory, then CPU; in each best effort, allocatable, use, antagonist)

One strategy, because evictions share their credits and because interference is acted on by suppression first. Its parts
are pure functions in files of their own. A tick without figures evicts nobody and holds what was suppressed; what an
old policy or an old list of pods still allows, `enforcer.loop` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cotenant.model.node_policy import NodePolicy, Thresholds
from cotenant.model.resource import Resource
from cotenant.settings.best_effort import BestEffortSettings
from enforcer.contract import Evict, Observation, Plan, Step, Verdict
from enforcer.strategies.cpu_evict import Sample, satisfaction, window
from enforcer.strategies.eviction import Candidate, Choices, Task, TaskName, best_effort_only, candidate, choose
from enforcer.strategies.fullness import by_allocatable, by_use, withdrawn
from enforcer.strategies.interference import Findings, InterferenceState, detect
from enforcer.strategies.memory_evict import MemoryTrend, best_effort_memory
from enforcer.strategies.suppress import Suppress, SuppressState

NAME: Final = "best-effort"


@dataclass(frozen=True, slots=True)
class EvictionState:
    """Window of satisfaction, the tick before's memory, what was chosen."""

    samples: tuple[Sample, ...] = ()
    memory: MemoryTrend = field(default_factory=MemoryTrend)
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True, slots=True)
class BestEffortState:
    """One part each."""

    interference: InterferenceState = field(default_factory=InterferenceState)
    suppress: SuppressState = field(default_factory=SuppressState)
    eviction: EvictionState = field(default_factory=EvictionState)


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Pure strategy."""

    settings: BestEffortSettings = field(default_factory=BestEffortSettings)
    name: str = NAME

    def initial(self) -> BestEffortState:
        """Nothing known yet."""
        return BestEffortState()

    def step(self, seen: Observation, policy: NodePolicy, state: BestEffortState) -> Step[BestEffortState]:
        """Decide; nothing at all while the policy's thresholds are off."""
        if not policy.thresholds.enable:
            return Step(Plan(), BestEffortState())
        found, interference = detect(seen, state.interference, self.settings)
        held, plan, eviction = Step(Plan(), SuppressState()), Plan(), EvictionState()
        if self.settings.suppress:
            held = Suppress(self.settings).step(seen, policy, state.suppress, found.cap_millicores)
        if self.settings.evict:
            plan, eviction = evict(seen, policy.thresholds, state.eviction, found, self.settings)
        verdicts = (*found.verdicts, *held.plan.verdicts, *plan.verdicts)
        after = BestEffortState(interference, held.state, eviction)
        target = held.plan.best_effort_target_millicores
        return Step(Plan(held.plan.wants, plan.evictions, verdicts, best_effort_target_millicores=target), after)


def evict(
    seen: Observation, thresholds: Thresholds, state: EvictionState, found: Findings, settings: BestEffortSettings
) -> tuple[Plan, EvictionState]:
    """All tasks of this tick, and whom they choose."""
    samples = window(seen, thresholds, state.samples)
    starved, told = satisfaction(seen, thresholds, samples)
    memory, trend = best_effort_memory(seen, thresholds, state.memory, settings)
    tasks = [
        *_present(memory),
        *by_allocatable(seen, thresholds, Resource.MEMORY),
        *_present(by_use(seen, thresholds, Resource.MEMORY)),
        *_present(starved),
        *by_allocatable(seen, thresholds, Resource.CPU),
        *_present(by_use(seen, thresholds, Resource.CPU)),
        *_antagonist(seen, found),
    ]
    evictions, choices = choose(tasks, seen, state.choices, settings)
    unmet = _unmet(seen, tasks, evictions)
    verdicts = (*told, *withdrawn(seen, thresholds), *unmet)
    return Plan(evictions=evictions, verdicts=verdicts), EvictionState(samples, trend, choices)


def _present(task: Task | None) -> tuple[Task, ...]:
    return () if task is None else (task,)


def _antagonist(seen: Observation, found: Findings) -> Iterator[Task]:
    """Exactly this pod: nobody else would do."""
    if not found.antagonist:
        return
    those = [candidate(p) for p in seen.pods if p.spec.uid == found.antagonist and best_effort_only(p.spec)]
    yield Task(TaskName.INTERFERENCE, Resource.CPU, 1, found.why, those, _one, lambda pod: pod.uid == found.antagonist)


def _one(_: Candidate) -> int:
    return 1


def _unmet(seen: Observation, tasks: list[Task], evictions: tuple[Evict, ...]) -> Iterator[Verdict]:
    """Tasks that nobody is there for."""
    for task in tasks:
        leaving = any(p.spec.deleting and task.counts(p.spec) for p in seen.pods)
        if not leaving and not any(e.strategy == task.name for e in evictions) and not task.candidates:
            yield Verdict(
                seen.node.name, "NobodyToEvict", f"{task.name}: {task.why}; no pod may be evicted for it", True
            )
