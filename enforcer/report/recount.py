"""Replay of a recording: the actions and CPU samples that the agent would have reported, decided again. Pure.

Replayed ticks -> Recount -> acts, samples        decisions are reported as dry runs: nothing is known of writes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cotenant.enforcer.contract import Observation, Verdict, Want
from cotenant.enforcer.decide.changes import Place
from cotenant.enforcer.decide.evictions import EvictionBudget, Rate, admit_evictions
from cotenant.enforcer.decide.loop import TickDecision
from cotenant.enforcer.model.enforcement import AgentAction, LaneSample
from cotenant.enforcer.report.acts import act_of, changes, sample_of
from cotenant.enforcer.report.status import ActionRecord, stamp, verdict_record

AGAIN_SECONDS = 60.0
"""A finding that stays is told again after so long."""


@dataclass(slots=True)
class Verdicts:
    """Verdicts that are new, or that were not reported in the last minute."""

    said: dict[Verdict, float] = field(default_factory=dict)

    def news(self, verdicts: Iterable[Verdict], observation: Observation) -> Iterator[tuple[ActionRecord, bool]]:
        """Yield the verdicts to report now, and whether each is a warning."""
        self.said = {v: at for v, at in self.said.items() if observation.at_seconds - at < AGAIN_SECONDS}
        for verdict in verdicts:
            same = Verdict(verdict.subject, verdict.reason, "", verdict.warning)
            if same not in self.said:
                self.said[same] = observation.at_seconds
                yield verdict_record(verdict, stamp(observation.wall_seconds)), verdict.warning


@dataclass(slots=True)
class Recount:
    """Tick by tick; `acts` and `samples` are what came so far."""

    rate: Rate = field(default_factory=Rate)
    acts: list[AgentAction] = field(default_factory=list)
    samples: list[LaneSample] = field(default_factory=list)
    _before: dict[Place, Want] = field(default_factory=dict)
    _asked: EvictionBudget = field(default_factory=EvictionBudget)
    _verdicts: Verdicts = field(default_factory=Verdicts)

    def tick(self, observation: Observation, decided: TickDecision) -> None:
        """Add one replayed tick: its acts against the tick before, its findings, and a sample of the CPU's use."""
        pods = {pod.spec.uid: pod.spec for pod in observation.pods}
        chosen = admit_evictions(decided.evictions, pods, self._asked, observation.at_seconds, self.rate)
        self._asked = chosen.asked
        news = [
            *changes(observation, decided, self._before, chosen.now),
            *self._verdicts.news(decided.verdicts, observation),
        ]
        self.acts += [act_of(action, observation.node.name, warning) for action, warning in news]
        self.samples.append(sample_of(observation, decided))
        self._before = {want.place: want for want in decided.wants}
