"""The margin of a node's peak above its base at which it is exceeded at the configured risk. Pure.

Split-conformal prediction with a studentised score, pooled over the nodes of a class and all their past decisions:
score = (peak that came - base) / spread. The (1 - risk) quantile of the scores is added to the base, in spreads. Past
decisions overlap and whole classes move together, so d days of them are worth less than their number: the risk is
lowered by d / (d + prior days). Of several shapes the two whose peaks would have been lowest on those decisions serve,
averaged; nodes weigh with their limits, for what is not held back is lent.

A node that would have passed the class's peak far more often than allowed gets its own quantile when that is higher.
What is published as the violation rate is measured forward: thresholds from the older half of the past decisions alone,
counted on the newer half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.resource import Resource
from cotenant.core.settings.sections.node_peak import NodePeakSettings
from forecasting.peak_records import BLOCKS_PER_DAY, Records, shapes_of

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

_FEWEST_OWN: Final = 12
"""Decisions of its own that a node needs before they may overrule the class."""


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
    columns = np.flatnonzero(usable.any(axis=0))
    # A decision is tested by thresholds from outcomes that were complete when it was made.
    border = columns[len(columns) // 2]
    decisions = np.arange(usable.shape[1])
    older, tested = usable & (decisions <= border - BLOCKS_PER_DAY), usable & (decisions >= border)
    names, peaks = served(of, usable, (risk,), settings)[0]
    count = tested.sum(axis=1) if older.any() else np.zeros(len(of.limits), dtype=np.intp)
    violation = np.full(len(of.limits), np.nan)
    if older.any():
        passed = tested & (of.after > served(of, older, (risk,), settings)[0][1])
        violation = np.divide(passed.sum(axis=1), count, out=violation, where=count > 0)
    return PeakCalibration(peaks[:, -1], violation, count // BLOCKS_PER_DAY, names)


def served(of: Prepared, usable: Flags, risks: Sequence[float], settings: NodePeakSettings) -> list[tuple[str, Floats]]:
    """For each risk the mean of the two shapes that lend most on the known decisions: names, peaks at all (n, E).

    Each alone keeps the risk there; their mean is steadier than the better one.
    """
    days = usable.any(axis=0).sum() / BLOCKS_PER_DAY
    weights = np.where(usable, of.limits[:, None], 0.0)
    weights /= weights.sum()
    candidates: list[list[tuple[float, int, Floats]]] = [[] for _ in risks]
    for index, (base, spread) in enumerate(zip(of.bases, of.spreads, strict=True)):
        scores = np.where(usable, (of.after - base) / spread, np.inf)
        ordered, own = np.sort(scores[usable]), np.sort(scores, axis=1)
        for one, risk in zip(candidates, risks, strict=True):
            added = np.maximum(
                upper_quantile(ordered, lowered(risk, days, settings)), _own(own, usable, risk, settings)
            )
            peaks = np.clip(base + added[:, None] * spread, 0, 1)
            one.append((float((np.where(usable, peaks, 0) * weights).sum()), index, peaks))
    return [_joined(one, of.names) for one in candidates]


def lowered(risk: float, days: float, settings: NodePeakSettings) -> float:
    """The risk that is aimed at when evidence of `days` days stands behind it."""
    return risk * days / (days + settings.prior_days) if days > 0 else 0.0


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
