"""Whether the reserve outlives the pods: all are replaced, as roll-outs do within weeks, and nodes fail then. Pure.

A scheduler that levels its nodes leaves a little on each. Where the pods of any node would find a place today, a large
one may find no gap that holds it once the others have been replaced. So every pod that a controller creates again is
placed anew on the nodes that stay, in a random order, before nodes fail. A trial that today's whole cluster does not
pass either says nothing about its size and does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.scheduler_ext.cluster_size.constraints import CompiledCluster, move_pods
from cotenant.scheduler_ext.cluster_size.model import SizeOptions
from cotenant.scheduler_ext.cluster_size.placing import Order, PlacingState, ScoreRule, Trial, place_pods
from cotenant.scheduler_ext.cluster_size.reserve import Exemptions, find_unplaced

Flags = npt.NDArray[np.bool_]
TRIALS: Final = tuple(Trial(Order.RANDOM, ScoreRule.STOCK, seed) for seed in range(201, 211))
MOST_PLACEMENTS: Final = 30_000
"""Placements after which no further trials are made for the same nodes."""


@dataclass(slots=True)
class Turnover:
    """Trials in which the pods are replaced. cluster: one whose `pods` have no node; trials: those that count."""

    cluster: CompiledCluster
    pods: Sequence[int]
    options: SizeOptions
    exemptions: Exemptions
    trials: list[Trial] = field(default_factory=lambda: list(TRIALS))
    checked: set[Trial] = field(default_factory=set)
    """Trials that the whole cluster passes."""

    @classmethod
    def of(
        cls, cluster: CompiledCluster, waiting: Sequence[int], options: SizeOptions, exemptions: Exemptions
    ) -> Turnover:
        """Trials of a cluster. waiting: pods without a node that are to have one too."""
        nowhere = cluster.node_of.copy()
        for number, pod in enumerate(cluster.pods):
            if not pod.goes_with_node and not pod.stays:
                nowhere[number] = -1
        replaced = np.flatnonzero(cluster.node_of != nowhere)
        return cls(move_pods(cluster, nowhere), [*replaced.tolist(), *waiting], options, exemptions)

    def holds(self, alive: Flags) -> bool:
        """Return whether every pod has a place on the living nodes, and the reserve is there, once all are replaced.

        The trial that refuses is the first next time.
        """
        placements = 0
        for trial in tuple(self.trials):
            if placements and placements >= MOST_PLACEMENTS:
                break
            made = self._made_by(trial, alive)
            if made is not None:
                placements += made
            elif self._counts(trial):
                self.trials.remove(trial)
                self.trials.insert(0, trial)
                return False
        return True

    def _counts(self, trial: Trial) -> bool:
        """Whether the whole cluster passes a trial; one that it does not is not made again."""
        if trial not in self.checked:
            if self._made_by(trial, np.ones(len(self.cluster.nodes), dtype=np.bool_)) is None:
                self.trials.remove(trial)
                return False
            self.checked.add(trial)
        return True

    def _made_by(self, trial: Trial, alive: Flags) -> int | None:
        """Placements of a trial; None where a pod found no place."""
        state = PlacingState.of(self.cluster, alive)
        if place_pods(state, self.pods, trial) is not None:
            return None
        refused = find_unplaced(state, self.options, trial, self.exemptions)
        return None if refused.pod else len(self.pods) + refused.placements
