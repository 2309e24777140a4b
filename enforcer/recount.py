"""A recording told as the agent would have told it: acts and the CPU behind them, from decisions made again. Pure.

Replayed ticks -> Recount -> acts, samples        what was decided is told as a dry run: nothing is known of writes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cotenant.model.enforcement import AgentAction, LaneSample
from enforcer.acts import act_of, changes, sample_of
from enforcer.changes import Place
from enforcer.contract import Observation, Verdict, Want
from enforcer.evictions import Asked, Rate, admitted
from enforcer.loop import Round
from enforcer.status import Action, stamp, told_of

AGAIN_SECONDS = 60.0
"""A finding that stays is told again after so long."""


@dataclass(slots=True)
class Verdicts:
    """Findings that are new, or that have not been told for a minute."""

    said: dict[Verdict, float] = field(default_factory=dict)

    def news(self, found: Iterable[Verdict], seen: Observation) -> Iterator[tuple[Action, bool]]:
        """Those to tell now, and whether each is a warning."""
        self.said = {v: at for v, at in self.said.items() if seen.at_seconds - at < AGAIN_SECONDS}
        for verdict in found:
            same = Verdict(verdict.subject, verdict.reason, "", verdict.warning)
            if same not in self.said:
                self.said[same] = seen.at_seconds
                yield told_of(verdict, stamp(seen.wall_seconds)), verdict.warning


@dataclass(slots=True)
class Recount:
    """Tick by tick; `acts` and `samples` are what came so far."""

    rate: Rate = field(default_factory=Rate)
    acts: list[AgentAction] = field(default_factory=list)
    samples: list[LaneSample] = field(default_factory=list)
    _before: dict[Place, Want] = field(default_factory=dict)
    _asked: Asked = field(default_factory=Asked)
    _verdicts: Verdicts = field(default_factory=Verdicts)

    def tick(self, seen: Observation, decided: Round) -> None:
        """One more."""
        pods = {pod.spec.uid: pod.spec for pod in seen.pods}
        chosen = admitted(decided.evictions, pods, self._asked, seen.at_seconds, self.rate)
        self._asked = chosen.asked
        news = [*changes(seen, decided, self._before, chosen.now), *self._verdicts.news(decided.verdicts, seen)]
        self.acts += [act_of(action, seen.node.name, warning) for action, warning in news]
        self.samples.append(sample_of(seen, decided))
        self._before = {(want.path, want.knob): want for want in decided.wants}
