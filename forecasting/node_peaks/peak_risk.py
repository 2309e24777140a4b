"""The margin of a node's peak above its base at which it is exceeded at the configured risk. Pure.

Split-conformal prediction with a studentised score, pooled over the nodes of a class and all their past decisions:
score = (peak that came - base) / spread. The (1 - risk) quantile of the scores is added to the base, in spreads. Of
several shapes the two whose peaks would have been lowest on those decisions serve, averaged; nodes weigh with their
limits, for what is not held back is lent.

A few weeks say little about jumps that come once in a thousand decisions, and never more than the highest score they
held. So the share of scores above a threshold t is a mixture: of the cluster's own scores with the weight d / (d +
prior days), d the days of its decisions, and of the tail of public traces (`peak_tails`) with the rest. A calm
fortnight is no promise: whole classes exceed together on single days, and most fortnights hold none of those. So the
tail is one of scores as they are, nearly in shares of the limit, whatever the cluster's own calm. A restless cluster
says more: where the tail in units of its own scores, z = (t - median) / (p90 - median), reaches higher, that counts.
Beyond its last point a tail goes on as over its last two decades, so a smaller risk always costs more.

Nodes of a class move together and past decisions overlap, so evidence is counted in days: a day counts once however
many nodes it has, and of fewer than ten nodes for a tenth a node.

A node that would have passed the class's peak far more often than allowed gets its own quantile when that is higher.
What is published as the violation rate is measured forward: past decisions in six parts, each but the first counted
with thresholds from outcomes that were known when it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, Records, shapes_of
from cotenant.forecasting.node_peaks.peak_tails import EXCEEDANCES, TAILS, Tail
from cotenant.forecasting.settings import NodePeakSettings

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_FEWEST_OWN: Final = 12
"""Decisions of its own that a node needs before they may overrule the class."""
_FULL_CLASS: Final = 10
"""Nodes of which a day of decisions counts as a day of evidence."""
_PARTS: Final = 6
_TWO_DECADES_BEFORE_LAST: Final = 4
"""Point of a tail that is exceeded a hundred times as often as its last one, which few events lie beyond."""
_DECADES_BEYOND: Final = 3
_LEAST_RISE: Final = 1e-3
"""Of a tail in a decade beyond its last point, in spreads."""
_RATES: Final = np.concatenate([EXCEEDANCES, EXCEEDANCES[-1] * 0.1 ** np.arange(1, _DECADES_BEYOND + 1)])
_LOG_RATES: Final = np.log(_RATES)
_GRID: Final = np.linspace(0, len(_RATES) - 1, 20 * len(_RATES))
"""Places between a tail's points at which thresholds are looked for."""

Tails = Mapping[str, Tail]
"""By name of a shape."""


@dataclass(frozen=True, slots=True, eq=False)
class PeakCalibration:
    """Peaks of n nodes at one risk, per unit of their limits, (n,); how their back-tests went.

    violation: share of tested decisions that were passed, (n,), NaN = none; days: of tested decisions, (n,); tested:
    the peaks of tested decisions as they would have been, (n, E), NaN = not tested.
    """

    peaks: Floats
    violation: Floats
    days: npt.NDArray[np.intp]
    shapes: str
    tested: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Bases and spreads of all shapes at E decisions of n nodes, per unit of limits, (shapes, n, E) each.

    after: the peak that came, in limits, days: known days of the record, both (n, E); limits: (n,); names: (shapes,).
    """

    bases: Floats
    spreads: Floats
    after: Floats
    days: npt.NDArray[np.intp]
    limits: Floats
    names: tuple[str, ...]

    @classmethod
    def of(cls, records: Records, limits: Floats, resource: Resource = Resource.CPU) -> Prepared:
        """Bases and spreads of every shape for `resource`, divided by the nodes' limits so that nodes compare.

        records, limits (n,): in the unit of usage; limits must be positive.
        """
        shapes = shapes_of(resource)
        bases, spreads = (np.stack(p) for p in zip(*(s.base_and_spread(records, limits) for s in shapes), strict=True))
        names = tuple(shape.name for shape in shapes)
        return cls(bases, spreads, records.after / limits[:, None], records.days, limits, names)

    def until(self, end: int, length: int) -> Prepared:
        """Return the data as known at decision `end`, with the last `length` decisions before it.

        Outcomes that were still open at that decision are NaN.
        """
        part = slice(max(0, end - length), end + 1)
        after = self.after[:, part].copy()
        after[:, -BLOCKS_PER_DAY:] = np.nan
        bases, spreads = self.bases[:, :, part], self.spreads[:, :, part]
        return Prepared(bases, spreads, after, self.days[:, part], self.limits, self.names)

    def usable(self, settings: NodePeakSettings) -> Flags:
        """Decisions with record and outcome, (n, E)."""
        mask: Flags = (self.days >= settings.minimum_days) & np.isfinite(self.after)
        return mask


def calibrate(of: Prepared, risk: float, settings: NodePeakSettings) -> PeakCalibration | None:
    """Peaks at the last decision of `of`; None when no earlier decision has both a record and an outcome."""
    usable = of.usable(settings)
    if not usable.any():
        return None
    names, peaks = served_peaks(of, usable, (risk,), settings)[0]
    tested = _tested_peaks(of, usable, risk, settings)
    count = np.isfinite(tested).sum(axis=1)
    violation = np.full(len(of.limits), np.nan)
    violation = np.divide((of.after > tested).sum(axis=1), count, out=violation, where=count > 0)
    return PeakCalibration(peaks[:, -1], violation, count // BLOCKS_PER_DAY, names, tested)


def _tested_peaks(of: Prepared, usable: Flags, risk: float, settings: NodePeakSettings) -> Floats:
    """Peaks of decisions by thresholds from outcomes that were complete before them, (n, E); NaN = not tested."""
    decisions = np.arange(usable.shape[1])
    tested = np.full(usable.shape, np.nan)
    for part in np.array_split(np.flatnonzero(usable.any(axis=0)), _PARTS)[1:]:
        older = usable & (decisions <= (part[0] - BLOCKS_PER_DAY if part.size else -1))
        if older.any():
            inside = usable & (decisions >= part[0]) & (decisions <= part[-1])
            tested = np.where(inside, served_peaks(of, older, (risk,), settings)[0][1], tested)
    return tested


def served_peaks(
    of: Prepared, usable: Flags, risks: Sequence[float], settings: NodePeakSettings, tails: Tails = TAILS
) -> list[tuple[str, Floats]]:
    """Return, per risk, the joined names and the mean peaks (n, E) of the two shapes that lend most.

    The two are those with the lowest limit-weighted sum of peaks on the usable decisions; peaks cover all decisions.
    Each shape alone keeps the risk there; their mean is steadier than the better of them.
    """
    days = min(usable.any(axis=0).sum(), usable.sum() / _FULL_CLASS) / BLOCKS_PER_DAY
    weights = np.where(usable, of.limits[:, None], 0.0)
    weights /= weights.sum()
    candidates: list[list[tuple[float, int, Floats]]] = [[] for _ in risks]
    for index, (base, spread) in enumerate(zip(of.bases, of.spreads, strict=True)):
        scores = np.where(usable, (of.after - base) / spread, np.inf)
        ordered, own = np.sort(scores[usable]), np.sort(scores, axis=1)
        of_classes = thresholds(ordered, tails[of.names[index]], risks, days, settings)
        for candidate, risk, of_class in zip(candidates, risks, of_classes, strict=True):
            added = np.maximum(of_class, _own_thresholds(own, usable, risk, settings))
            peaks = np.clip(base + added[:, None] * spread, 0, 1)
            candidate.append((float((np.where(usable, peaks, 0) * weights).sum()), index, peaks))
    return [_average_best_shapes(candidate, of.names) for candidate in candidates]


def thresholds(
    ordered: Floats, tail: Tail, risks: Sequence[float], days: float, settings: NodePeakSettings
) -> list[float]:
    """Return, per risk, the smallest score that the mixture of scores and tail exceeds no more often.

    ordered: rising scores (m,). tail: standardized scores exceeded with the rates EXCEEDANCES. days: the days that
    the scores cover, above 0. The risk is lowered by the weight of the scores in the mixture.
    """
    weight = days / (days + settings.prior_days)
    points = _tail_points(ordered, tail)
    candidates = np.concatenate([ordered, np.interp(_GRID, np.arange(len(points)), points)])
    candidates.sort()
    of_scores = 1 - np.searchsorted(ordered, candidates, side="right") / len(ordered)
    exceeded = weight * of_scores + (1 - weight) * _exceedance(points, candidates)
    return [float(candidates[np.argmax(exceeded <= risk)]) for risk in risks]


def _tail_points(ordered: Floats, tail: Tail) -> Floats:
    """Rising scores that are exceeded with `_RATES`, in the unit of rising own scores (m,).

    The higher of the tail as it is and of the one in units of the own scores; beyond it, half of its last two decades
    a decade.
    """
    middle = upper_quantile(ordered, 0.5)
    scale = upper_quantile(ordered, 0.1) - middle
    points = np.maximum(tail.scores, middle + scale * np.array(tail.scaled))
    rise = max((points[-1] - points[_TWO_DECADES_BEFORE_LAST]) / 2, _LEAST_RISE)
    result: Floats = np.concatenate([points, points[-1] + rise * np.arange(1, _DECADES_BEYOND + 1)])
    return result


def _exceedance(points: Floats, scores: Floats) -> Floats:
    """Rate at which a tail exceeds rising scores, linear in its logarithm between points; 0 from the last point on."""
    return np.where(scores >= points[-1], 0.0, np.exp(np.interp(scores, points, _LOG_RATES)))


def upper_quantile(ordered: Floats, risk: float) -> float:
    """The smallest of rising values that at most `risk` of them lie above; the highest when they are too few."""
    return float(ordered[len(ordered) - 1 - int(np.floor(risk * len(ordered)))])


def _average_best_shapes(candidates: list[tuple[float, int, Floats]], names: Sequence[str]) -> tuple[str, Floats]:
    best = sorted(candidates, key=lambda candidate: candidate[:2])[:2]
    return " + ".join(names[index] for _, index, _ in best), np.mean([peaks for *_, peaks in best], axis=0)


def _own_thresholds(ordered: Floats, usable: Flags, risk: float, settings: NodePeakSettings) -> Floats:
    """Each node's own quantile of its rising scores at the rate that is tolerated of one node, (n,); -inf = no say."""
    limit = min(1.0, settings.node_tolerance * risk)
    count = usable.sum(axis=1)
    index = np.maximum(count - 1 - np.floor(limit * count).astype(np.intp), 0)
    own = ordered[np.arange(len(ordered)), index]
    result: Floats = np.where((count >= _FEWEST_OWN) & np.isfinite(own), own, -np.inf)
    return result
