"""The agent's own observer and applier around one strategy: real files in, real writes out, a tick when told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import CpuUse, NodeReading, Observation, PodSpec, Strategy
from cotenant.enforcer.decide.changes import Done
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from tests.enforcer.readings import policy


class OneStrategy:
    """Observes, decides and applies; remembers what it saw and did last."""

    def __init__(self, strategy: Strategy[Any], folder: Path, layout: Layout, facts: NodeReading | None = None) -> None:
        hierarchy = Hierarchy()
        self.facts = facts or NodeReading("n1", kubelet_static_cpus=False)
        self._strategy, self._state = strategy, strategy.initial()
        self._observer = Observer(hierarchy, layout)
        self._journal = OriginalValues(folder)
        self._applier = Applier(hierarchy, self._journal, dry_run=False)
        self.seen: Observation | None = None
        self.verdicts: list[str] = []

    def tick(
        self, pods: Sequence[PodSpec], spec: dict[str, Any] | None = None, millicores: float = 100.0
    ) -> list[Done]:
        """One tick under the policy of a NodeSLO's spec; millicores: the node's use, for this machine may be busy."""
        observation = self._observer.read(pods, (), self.facts, self._applier.overridden_knobs)
        self.seen = replace(observation, node=replace(observation.node, cpu=CpuUse(millicores)))
        step = self._strategy.step(self.seen, policy(spec), self._state)
        self._state = step.state
        self.verdicts = [v.reason for v in step.plan.verdicts]
        return self._applier.apply([step.plan], self.seen)

    def restore(self) -> None:
        """Everything to what stood there before, and let go of the files."""
        self._applier.restore()
        self._journal.close()
        self._observer.close()
