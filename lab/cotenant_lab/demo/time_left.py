"""How far the making of a demo's cluster is, and how long it still takes. Pure.

The stages of a demo take known shares of its time. What the stages so far took against what they take on the machine
that the shares were measured on says how fast this machine is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

COPY_STAGE: Final = "Copy the history"
"""The stage that keeps a new demo for the next start, and with which one that was kept begins."""
STAGE_SECONDS: Final = {
    "Generate cluster": 4.0,
    "Store history": 7.0,
    "Load spikes": 3.0,
    "Read inventory and nodes": 1.0,
    "Workloads, shard by shard": 17.0,
    "Forecasts of nodes and the cluster": 2.0,
    "Reclaimable": 3.0,
    COPY_STAGE: 2.0,
    "Start the cluster": 8.0,
}
"""Each stage in its order -> seconds of the demo of 900 workloads and 28 days on two cores, measured 2026-11-29."""
WHOLE_SIZE: Final = 900 * 28
LEAST_FACTOR: Final = 0.3
"""However small a demo, so much of the time is taken by what does not depend on its size."""
TRUSTED_SECONDS: Final = 10.0
"""So much time of the measured machine is believed before that of this one."""
MOST_OF_A_STAGE: Final = 0.95
"""Of a stage that takes longer than expected no more is counted as done until the next one begins."""


@dataclass(frozen=True, slots=True)
class MakingTime:
    """The making of a demo at a moment.

    first_name, first_seconds, begun_seconds: the first stage, and when it and the present one began, counted from the
    start; size: workloads times days of the demo.
    """

    size: float = WHOLE_SIZE
    name: str = ""
    first_name: str = ""
    first_seconds: float = 0.0
    begun_seconds: float = 0.0
    steps: int = 0
    total: int = 0

    def stage(self, name: str, total: int, at_seconds: float) -> MakingTime:
        """The next stage has begun."""
        stage_begun = replace(self, name=name, begun_seconds=at_seconds, steps=0, total=total)
        return stage_begun if self.name else replace(stage_begun, first_name=name, first_seconds=at_seconds)

    def with_steps(self, steps: int) -> MakingTime:
        """Some steps of the stage are done."""
        return replace(self, steps=self.steps + steps)

    def done_ratio(self, at_seconds: float) -> float:
        """Share of the whole that is done."""
        return self._done_seconds(at_seconds) / self._whole_seconds

    def left_seconds(self, at_seconds: float) -> float:
        """Return how long it still takes, at the speed of the stages so far or of an overdue present one."""
        done = self._done_seconds(at_seconds)
        overdue = (TRUSTED_SECONDS + at_seconds - self.first_seconds) / (TRUSTED_SECONDS + done) if self.name else 0.0
        return (self._whole_seconds - done) * max(self._slowness, overdue)

    @property
    def _factor(self) -> float:
        return max(LEAST_FACTOR, self.size / WHOLE_SIZE)

    @property
    def _whole_seconds(self) -> float:
        return self._factor * sum(self._stages.values())

    @property
    def _stages(self) -> dict[str, float]:
        """The stages from the first one on: a demo that was kept is not made again."""
        names = list(STAGE_SECONDS)
        first = names.index(self.first_name) if self.first_name in names else 0
        return {name: STAGE_SECONDS[name] for name in names[first:]}

    @property
    def _before_seconds(self) -> float:
        """Expected time of the stages before the present one; one that has no share of its own takes none."""
        names = list(self._stages)
        place = names.index(self.name) if self.name in names else 0
        return self._factor * sum(list(self._stages.values())[:place])

    @property
    def _slowness(self) -> float:
        """The time against that of the machine that was measured, by the stages that are over."""
        took_seconds = self.begun_seconds - self.first_seconds
        return (TRUSTED_SECONDS + took_seconds) / (TRUSTED_SECONDS + self._before_seconds)

    def _done_seconds(self, at_seconds: float) -> float:
        """Expected time of what is done: of the present stage by its steps, or by the time where it has but one."""
        stage = self._factor * STAGE_SECONDS.get(self.name, 0.0)
        by_steps = self.steps / self.total if self.total > 1 else 0.0
        by_time = (at_seconds - self.begun_seconds) / (stage * self._slowness) if stage else 0.0
        return self._before_seconds + stage * min(MOST_OF_A_STAGE, max(by_steps, min(by_time, MOST_OF_A_STAGE)))
