"""The progress of making a demo's cluster, and the time that it still takes. Pure.

Each stage of a demo takes a known share of the whole time. The ratio of the time that the stages so far took to the
time that they take on the machine on which the shares were measured gives the speed of this machine.
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
    """The progress of making a demo's cluster at one moment.

    `first_name` is the first stage; `first_seconds` and `begun_seconds` are when it and the present stage began,
    counted from the start; `size` is the number of workloads x days of the demo.
    """

    size: float = WHOLE_SIZE
    name: str = ""
    first_name: str = ""
    first_seconds: float = 0.0
    begun_seconds: float = 0.0
    steps: int = 0
    total: int = 0

    def stage(self, name: str, total: int, at_seconds: float) -> MakingTime:
        """Return the progress after the beginning of the next stage."""
        stage_begun = replace(self, name=name, begun_seconds=at_seconds, steps=0, total=total)
        return stage_begun if self.name else replace(stage_begun, first_name=name, first_seconds=at_seconds)

    def with_steps(self, steps: int) -> MakingTime:
        """Return the progress after some further steps of the stage."""
        return replace(self, steps=self.steps + steps)

    def done_ratio(self, at_seconds: float) -> float:
        """Return the finished share of the whole, 0..1."""
        return self._done_seconds(at_seconds) / self._whole_seconds

    def left_seconds(self, at_seconds: float) -> float:
        """Return the remaining seconds, by the speed of the stages so far, or of the present stage if it is overdue."""
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
