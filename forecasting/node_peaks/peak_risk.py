"""The margin of a node's peak above its base at which it is exceeded at the configured risk. Pure.

Split-conformal prediction with a studentised score, pooled over the nodes of a class and all their past decisions:
score = (peak that came - base) / spread. The (1 - risk) quantile of the scores is added to the base, in spreads. Of
several shapes the two whose peaks would have been lowest on those decisions serve, averaged; nodes weigh with their
limits, for what is not held back is lent.

A few weeks say little about jumps that come once in a thousand decisions, and never more than the highest score they
held. So the share of scores above a threshold t is a mixture: of the cluster's own scores with the weight d / (d +
prior days), d the days of its decisions, and of the tail of public traces (`peak_tails`) with the rest. Tails are
compared in units of the cluster's own scores, z = (t - median) / (p90 - median). Past decisions overlap and whole
classes move together, so d days of them are worth less than their number: the risk is lowered by the same weight. Of
fewer than ten nodes a day counts for a tenth a node.

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

from cotenant.core.model.resource import Resource
from cotenant.core.settings.sections.forecasts import NodePeakSettings
from forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, Records, shapes_of
from forecasting.node_peaks.peak_tails import EXCEEDANCES, TAILS

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_FEWEST_OWN: Final = 12
"""Decisions of its own that a node needs before they may overrule the class."""
_FULL_CLASS: Final = 10
"""Nodes of which a day of decisions counts as a day of evidence."""
_PARTS: Final = 6
_LOG_EXCEEDANCES: Final = np.log(EXCEEDANCES)
_GRID: Final = np.linspace(0, len(EXCEEDANCES) - 1, 20 * len(EXCEEDANCES))
"""Places between a tail's points at which thresholds are looked for."""

Tails = Mapping[str, Sequence[float]]
"""By name of a shape: the standardised scores z that are exceeded with the rates `EXCEEDANCES`."""


@dataclass(frozen=True, slots=True, eq=False)
class PeakCalibration:
    """Peaks of n nodes at one risk, per unit of their limits, (n,); how their back-tests went.

    violation: share of tested decisions that were passed, (n,), NaN = none; days: of tested decisions, (n,).
    """

    peaks: Floats
    violation: Floats
    days: npt.NDArray[np.intp]
    shapes: str


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
        """As it stood at decision `end`, of the last `length` ones before: without outcomes that were still open."""
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
    names, peaks = served(of, usable, (risk,), settings)[0]
    tested, passed = _tested(of, usable, risk, settings)
    count = tested.sum(axis=1)
    violation = np.full(len(of.limits), np.nan)
    violation = np.divide(passed.sum(axis=1), count, out=violation, where=count > 0)
    return PeakCalibration(peaks[:, -1], violation, count // BLOCKS_PER_DAY, names)


def _tested(of: Prepared, usable: Flags, risk: float, settings: NodePeakSettings) -> tuple[Flags, Flags]:
    """Decisions tested by thresholds from outcomes that were complete before, and those that were passed, (n, E)."""
    decisions = np.arange(usable.shape[1])
    tested, passed = np.zeros_like(usable), np.zeros_like(usable)
    for part in np.array_split(np.flatnonzero(usable.any(axis=0)), _PARTS)[1:]:
        older = usable & (decisions <= (part[0] - BLOCKS_PER_DAY if part.size else -1))
        if older.any():
            inside = usable & (decisions >= part[0]) & (decisions <= part[-1])
            tested |= inside
            passed |= inside & (of.after > served(of, older, (risk,), settings)[0][1])
    return tested, passed


def served(
    of: Prepared, usable: Flags, risks: Sequence[float], settings: NodePeakSettings, tails: Tails = TAILS
) -> list[tuple[str, Floats]]:
    """For each risk the mean of the two shapes that lend most on the known decisions: names, peaks at all (n, E).

    Each alone keeps the risk there; their mean is steadier than the better one.
    """
    days = min(usable.any(axis=0).sum(), usable.sum() / _FULL_CLASS) / BLOCKS_PER_DAY
    weights = np.where(usable, of.limits[:, None], 0.0)
    weights /= weights.sum()
    candidates: list[list[tuple[float, int, Floats]]] = [[] for _ in risks]
    for index, (base, spread) in enumerate(zip(of.bases, of.spreads, strict=True)):
        scores = np.where(usable, (of.after - base) / spread, np.inf)
        ordered, own = np.sort(scores[usable]), np.sort(scores, axis=1)
        of_classes = thresholds(ordered, tails[of.names[index]], risks, days, settings)
        for one, risk, of_class in zip(candidates, risks, of_classes, strict=True):
            added = np.maximum(of_class, _own(own, usable, risk, settings))
            peaks = np.clip(base + added[:, None] * spread, 0, 1)
            one.append((float((np.where(usable, peaks, 0) * weights).sum()), index, peaks))
    return [_joined(one, of.names) for one in candidates]


def thresholds(
    ordered: Floats, tail: Sequence[float], risks: Sequence[float], days: float, settings: NodePeakSettings
) -> list[float]:
    """For each risk the smallest score that the mixture of rising scores (m,) and a tail exceeds no more often.

    days: that the scores are of, above 0. The risk is lowered by the scores' weight in the mixture.
    """
    weight = days / (days + settings.prior_days)
    middle = upper_quantile(ordered, 0.5)
    scale = upper_quantile(ordered, 0.1) - middle
    if scale <= 0:
        return [upper_quantile(ordered, weight * risk) for risk in risks]
    z = np.concatenate([(ordered - middle) / scale, np.interp(_GRID, np.arange(len(tail)), tail)])
    z.sort()
    of_scores = 1 - np.searchsorted((ordered - middle) / scale, z, side="right") / len(ordered)
    exceeded = weight * of_scores + (1 - weight) * _exceedance(tail, z)
    return [middle + scale * float(z[np.argmax(exceeded <= weight * risk)]) for risk in risks]


def _exceedance(tail: Sequence[float], z: Floats) -> Floats:
    """Rate at which a tail exceeds rising z, linear in its logarithm between points; 0 from the highest point on."""
    return np.where(z >= tail[-1], 0.0, np.exp(np.interp(z, tail, _LOG_EXCEEDANCES)))


def upper_quantile(ordered: Floats, risk: float) -> float:
    """The smallest of rising values that at most `risk` of them lie above; the highest when they are too few."""
    return float(ordered[len(ordered) - 1 - int(np.floor(risk * len(ordered)))])


def _joined(candidates: list[tuple[float, int, Floats]], names: Sequence[str]) -> tuple[str, Floats]:
    best = sorted(candidates, key=lambda one: one[:2])[:2]
    return " + ".join(names[index] for _, index, _ in best), np.mean([peaks for *_, peaks in best], axis=0)


def _own(ordered: Floats, usable: Flags, risk: float, settings: NodePeakSettings) -> Floats:
    """Each node's own quantile of its rising scores at the rate that is tolerated of one node, (n,); -inf = no say."""
    limit = min(1.0, settings.node_tolerance * risk)
    count = usable.sum(axis=1)
    index = np.maximum(count - 1 - np.floor(limit * count).astype(np.intp), 0)
    own = ordered[np.arange(len(ordered)), index]
    result: Floats = np.where((count >= _FEWEST_OWN) & np.isfinite(own), own, -np.inf)
    return result
