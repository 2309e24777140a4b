"""Ways of sharing at equal safety: curves over their settings, read at one violation, with intervals over seeds. Pure.

Static overcommit, and Koordinator if its reclaim percentage is tuned too, get an advantage that no operator has: their
setting (knob) is chosen afterwards, by the violation that it caused on the same days.
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
    """A mean over seeds and its 95 % interval; NaN if a seed has no value."""

    mean: float
    low: float
    high: float


def batch_at(outcomes: Sequence[SharingOutcome], violation: float = VIOLATION) -> float:
    """Return the batch core-hours of a way of sharing at a violation ratio; NaN if none of its settings is that safe.

    It is the most of any setting with at most this violation, plus a linear share of what the next setting adds. Above
    the highest violation of any setting it is the most of any setting.
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
    """Return the outcomes, of all seeds, of a way of sharing at an installation's setting, else at the first run."""
    ours = of(outcomes, sharing)
    knobs = {outcome.knob for outcome in ours}
    knob = INSTALLED[sharing] if INSTALLED[sharing] in knobs else next(iter(o.knob for o in ours), 0.0)
    return [outcome for outcome in ours if outcome.knob == knob]


def batch_ratio(ours: Sequence[SharingOutcome], theirs: Sequence[SharingOutcome]) -> float:
    """Return the batch core-hours of one way divided by another's, over all seeds; NaN if the other has none."""
    hours, other = (sum(outcome.batch_core_hours for outcome in way) for way in (ours, theirs))
    return measures.ratio_of(hours, other)


def mean_violation_ratio(outcomes: Sequence[SharingOutcome]) -> float:
    """Return the share of node-time in which capacity was exceeded, mean over all seeds."""
    return fmean(outcome.violation_ratio for outcome in outcomes)


def interval(values: Sequence[float], seed: int = 0) -> SeedInterval:
    """Return the mean over seeds with its 95 % interval, by a bootstrap that draws seeds with replacement."""
    column: npt.NDArray[Any] = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(column), (_RESAMPLED, len(column)))
    low, high = np.quantile(column[drawn].mean(axis=1), [0.025, 0.975])
    return SeedInterval(float(column.mean()), float(low), float(high))
