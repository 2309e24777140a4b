"""Ways of sharing at equal safety: curves over their knobs, read at a violation, with intervals over seeds. Pure.

Static overcommit, and Koordinator's reclaim percentage where it is tuned as well, have what nobody has who runs them:
their knob is chosen afterwards, for the violation that came of it on the same days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base import measures
from cotenant.experiment.loop import INSTALLED
from cotenant.experiment.outcome import Sharing, SharingOutcome

VIOLATION: Final = 0.01
"""Share of node-time that may be short: at this every way is read."""
KNOBS: Final = {
    Sharing.NONE: (0.0,),
    Sharing.STATIC: (0.3, 0.45, 0.6, 0.75, 0.9),
    Sharing.KOORDINATOR: (45.0, 60.0, 75.0, 82.0, 88.0, 94.0),
    Sharing.COTENANT: (1.0, 5.0, 20.0, 50.0),
    Sharing.ORACLE: (0.0,),
}
"""Settings of which a curve is made; risks above 50 % are not settings of the product."""
_RESAMPLED: Final = 2000


@dataclass(frozen=True, slots=True)
class SeedInterval:
    """A mean over seeds and its 95 % interval; NaN when a seed has no value."""

    mean: float
    low: float
    high: float


def batch_at(outcomes: Sequence[SharingOutcome], violation: float = VIOLATION) -> float:
    """Batch core-hours of one way at this violation, linear between its settings; NaN where none comes down to it.

    The best setting counts that keeps to it, and what the next one adds until it is passed. Above the highest
    violation of any setting it is the best setting's, which keeps to it too.
    """
    points = sorted((o.violation_ratio, o.batch_core_hours) for o in outcomes)
    safe = [hours for at, hours in points if at <= violation]
    if not safe:
        return float("nan")
    best = max(safe)
    last = max(at for at, _ in points if at <= violation)
    beyond = [(at, hours) for at, hours in points if at > violation]
    if not beyond or beyond[0][1] <= best:
        return best
    share = (violation - last) / (beyond[0][0] - last)
    return best + share * (beyond[0][1] - best)


def of(outcomes: Sequence[SharingOutcome], sharing: Sharing) -> list[SharingOutcome]:
    """Return the outcomes of one way of sharing."""
    return [o for o in outcomes if o.sharing is sharing]


def installed_outcomes(outcomes: Sequence[SharingOutcome], sharing: Sharing) -> list[SharingOutcome]:
    """One way's at the knob that an install has, of every seed; at its first knob where that was not run."""
    ours = of(outcomes, sharing)
    knobs = {outcome.knob for outcome in ours}
    knob = INSTALLED[sharing] if INSTALLED[sharing] in knobs else next(iter(o.knob for o in ours), 0.0)
    return [outcome for outcome in ours if outcome.knob == knob]


def batch_ratio(ours: Sequence[SharingOutcome], theirs: Sequence[SharingOutcome]) -> float:
    """Return the batch core-hours of one way / those of another, a ratio over all seeds; NaN where that did none."""
    hours, other = (sum(outcome.batch_core_hours for outcome in way) for way in (ours, theirs))
    return measures.ratio_of(hours, other)


def mean_violation_ratio(outcomes: Sequence[SharingOutcome]) -> float:
    """Return the share of node-time that was short, mean over all seeds."""
    return fmean(outcome.violation_ratio for outcome in outcomes)


def interval(values: Sequence[float], seed: int = 0) -> SeedInterval:
    """Mean over seeds; the interval by drawing seeds again."""
    column: npt.NDArray[Any] = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(column), (_RESAMPLED, len(column)))
    low, high = np.quantile(column[drawn].mean(axis=1), [0.025, 0.975])
    return SeedInterval(float(column.mean()), float(low), float(high))
