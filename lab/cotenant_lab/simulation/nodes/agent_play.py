"""One simulated node under the node agent's own decisions, tick by tick, and the agent's reports of them. Pure.

play = AgentPlay("n1", 16, cast, begin_seconds, decode(policy), dry=False)
play.run(demands)           # one SecondDemand per tick
play.acts, play.samples     # as the agent reports them
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cotenant.enforcer.contract import Observation, StrategyPlan
from cotenant.enforcer.decide.changes import Done, Notes, WriteOutcome
from cotenant.enforcer.decide.evictions import EvictionBudget, Rate, admit_evictions
from cotenant.enforcer.decide.loop import Ages, Memory, TickDecision, decide
from cotenant.enforcer.decide.registry import strategies
from cotenant.enforcer.decide.settle import settle
from cotenant.enforcer.model.enforcement import AgentAction, LaneSample
from cotenant.enforcer.model.node_policy import NodePolicy
from cotenant.enforcer.report.acts import Verdicts, act_of, sample_of
from cotenant.enforcer.report.status import ActionRecord, action_of, paths_of, stamp
from cotenant.enforcer.settings import EnforcerSettings
from cotenant_lab.simulation.nodes.enforced_node import DIALECT, Actor, SecondDemand, SimulatedNode


@dataclass(slots=True)
class AgentPlay:
    """One simulated node, second by second; `acts` and `samples` are its agent's reported actions and measurements."""

    node: str
    cores: int
    cast: list[Actor]
    begin_seconds: float
    policy: NodePolicy
    dry: bool = False
    """Whether its agent only says what it would do."""
    acts: list[AgentAction] = field(default_factory=list)
    samples: list[LaneSample] = field(default_factory=list)
    _notes: Notes = field(default_factory=dict)
    _asked: EvictionBudget = field(default_factory=EvictionBudget)
    _told: dict[tuple[str, str], object] = field(default_factory=dict)
    _verdicts: Verdicts = field(default_factory=Verdicts)

    def run(self, demands: Iterable[SecondDemand]) -> None:
        """Run the agent's decision once for each second of demand."""
        machine = SimulatedNode(self.node, self.cores, list(self.cast))
        settings = EnforcerSettings()
        running, memory = strategies(settings), Memory()
        rate = Rate(settings.evictions_per_minute, settings.evictions_burst)
        for second, demand in enumerate(demands):
            observation = machine.observe(demand, float(second), self.begin_seconds + second)
            decided, memory = decide(observation, self.policy, memory, running, Ages())
            settled = settle([StrategyPlan(wants=decided.wants)], observation, self._notes, DIALECT)
            self.samples.append(sample_of(observation, decided))
            did = WriteOutcome.WOULD_WRITE if self.dry else WriteOutcome.WRITTEN
            done = [
                Done.of(write, WriteOutcome.RESTORED if write.restores else did, before=write.present)
                for write in settled.writes
            ]
            self._report(observation, [*settled.refused, *done])
            if not self.dry:
                self._notes = settled.notes
                machine.obey(settled.writes)
            self._evict(machine, observation, decided, rate)
            for action, warning in self._verdicts.news(decided.verdicts, observation):
                self.acts.append(act_of(action, self.node, warning))

    def _report(self, observation: Observation, results: Sequence[Done]) -> None:
        """Record the results as the agent reports them.

        A result that was not written, as in a dry run, is recorded when the value changes.
        """
        owners = {path: pod.spec.key for pod in observation.pods for path in paths_of(pod)}
        for result in results:
            place = (result.path, result.knob.value)
            if result.outcome not in (WriteOutcome.WRITTEN, WriteOutcome.RESTORED):
                if self._told.get(place) == result.value:
                    continue
                self._told[place] = result.value
            action = action_of(result, stamp(observation.wall_seconds), owners.get(result.path, ""), self.dry)
            self.acts.append(act_of(action, self.node))

    def _evict(self, machine: SimulatedNode, observation: Observation, decided: TickDecision, rate: Rate) -> None:
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        chosen = admit_evictions(decided.evictions, pods, self._asked, observation.at_seconds, rate)
        self._asked = chosen.asked
        for eviction in chosen.now:
            key = f"{eviction.namespace}/{eviction.name}"
            at, reason, strategy = (
                stamp(observation.wall_seconds),
                "would-ask" if self.dry else "asked",
                eviction.strategy,
            )
            action = ActionRecord(at, "evict", key, reason, strategy, eviction.why, pod=key, dry_run=self.dry)
            self.acts.append(act_of(action, self.node))
            if not self.dry:
                machine.dismiss(eviction.name, observation.at_seconds)
