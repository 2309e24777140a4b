"""How long prod is short of CPU on a node that lent too much, in core-seconds, after the node's reaction. Pure.

CloudCons' *sample violation* counts the samples in which prod and what was lent exceed the node, as if batch kept its
CPU for the whole sample. On a node with our agent it does not. For each sample of `step_seconds` with an excess (prod
use + lent - node, in cores, when all that was lent is used):

    short = excess * reaction + max(prod use + floor - node, 0) * (step - reaction)

- *reaction*: until the agent has suppressed batch (`enforcer.tick_seconds`; one tick was measured from a step of load,
  bench node_footprint). A sample after another with an excess pays again, although batch is suppressed already: use may
  have fallen and risen between the two.
- *floor*: what suppression leaves batch however much others want, the least quota of policy cfsQuota. Under policy
  cpuset batch keeps two CPUs, with the smallest weight, which takes less from those who want them.
- *eviction*: after so long an excess without a pause nothing of batch is left. None: no eviction policy acts, as by
  default.

The manager's renewal of the amounts comes after all of this and is not counted in favour:
it keeps more batch pods away, but ends none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.enforcer.settings import EnforcerSettings

Floats = npt.NDArray[np.floating[Any]]

FLOOR_CORES: Final = 0.02
"""2,000 us of quota in 100 ms."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """How a node gives prod its CPU back. eviction_seconds None: batch pods are not evicted for it."""

    agent_seconds: float = EnforcerSettings().tick_seconds
    floor_cores: float = FLOOR_CORES
    eviction_seconds: float | None = None


def core_seconds_short(excess_cores: Floats, idle_cores: Floats, step_seconds: float, reaction: Reaction) -> Floats:
    """CPU time that prod wanted and did not get in each sample, (nodes, samples).

    excess_cores: prod use + lent - node where that is positive, else 0; idle_cores: node - prod use, not negative. Same
    shapes, no NaN.
    """
    end = np.inf if reaction.eviction_seconds is None else reaction.eviction_seconds
    seconds_over = _seconds_over_before(excess_cores > 0, step_seconds)
    present = np.clip(end - seconds_over, 0.0, step_seconds)
    unsuppressed = np.minimum(present, reaction.agent_seconds)
    floor = np.clip(reaction.floor_cores - idle_cores, 0.0, excess_cores)
    short: Floats = excess_cores * unsuppressed + floor * (present - unsuppressed)
    return short


def _seconds_over_before(over: npt.NDArray[np.bool_], step_seconds: float) -> Floats:
    """Length of the unbroken excess before each sample, (nodes, samples)."""
    samples = np.arange(over.shape[1])
    last_without = np.maximum.accumulate(np.where(over, -1, samples), axis=1)
    before: Floats = np.where(over, samples - last_without - 1, 0) * step_seconds
    return before
