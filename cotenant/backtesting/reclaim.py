"""Scores of reclaim decisions: each predicted peak of a node against the usage of the following day. Pure.

Definitions are those of "Take it to the limit" (EuroSys 2021): usage capped at limits, P the prediction at a decision,
PO the highest usage of the next 24 hours, L the sum of limits:

- *violation*: share of decisions with P < PO, mean over nodes; *p99 node*: 99th percentile of it over nodes;
- *severity*: mean of max(0, PO - P) / PO;
- *savings share*: sum(L - P) / sum(L - PO), 1 = an oracle;
- *sample violation* (the physical one, CloudCons): share of samples above the current prediction, if all that was
  lent is used; *evicted*: the usage that then has to be evicted, integrated over time.

A savings share means nothing without its violation: `at_violation` reads curves at equal violation, `compare` resamples
the nodes for the interval of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.backtest import Frontier, FrontierCurve, FrontierPoint
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS, block_maxima, records
from cotenant.forecasting.node_peaks.peak_rule import PeakRule
from cotenant.forecasting.settings import NodePeakSettings

Floats = npt.NDArray[np.floating[Any]]

RISKS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.08, 0.15, 0.3)
FACTORS: Final = tuple(float(f) for f in np.geomspace(0.7, 3.0, 60))
ROUNDING: Final = 1e-6
"""Share of the limit by which a peak may exceed its prediction without a violation."""
_RESAMPLED: Final = 500


@dataclass(frozen=True, slots=True, eq=False)
class ReclaimTrial:
    """Past usage of n nodes on which reclaim decisions are tested: `totals`, (n, time slots), NaN = gap.

    The caller has cut off usage above a node's `limits`, (n,). Decisions are made every six hours, the first of them
    after `record_days` days of `totals`.
    """

    totals: Floats
    limits: Floats
    slots_per_day: int = 288
    resource: Resource = Resource.CPU
    record_days: int = RECORD_DAYS

    @property
    def blocks(self) -> Floats:
        """The highest usage in each block of six hours, (n, blocks)."""
        size = self.slots_per_day // BLOCKS_PER_DAY
        return block_maxima(self.totals[:, : self.totals.shape[1] // size * size], self.slots_per_day)

    @property
    def decisions(self) -> npt.NDArray[np.intp]:
        """The numbers of the six-hour blocks at whose start a decision is made; a whole day follows each."""
        size = self.totals.shape[1] * BLOCKS_PER_DAY // self.slots_per_day
        return np.arange(self.record_days * BLOCKS_PER_DAY, size - BLOCKS_PER_DAY + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Test results of n nodes, (n,) each: sums over a node's decisions, from which scores of any nodes are computed.

    Numbers of `decisions`, and of those `violated` because usage exceeded the predicted peak; `severity`: this excess /
    actual peak; `saved`: capacity lent; `could`: what an oracle would have lent; numbers of usage `samples`, and of
    those `above` the predicted peak of their time; `evicted_hours`: usage above it x hours.
    """

    decisions: Floats
    violated: Floats
    severity: Floats
    saved: Floats
    could: Floats
    samples: Floats
    above: Floats
    evicted_hours: Floats

    def take(self, rows: npt.NDArray[Any]) -> Tally:
        """Return the tally of the nodes in `rows`, in which a node may occur repeatedly."""
        return Tally(*(getattr(self, f.name)[rows] for f in fields(self)))

    @property
    def violation(self) -> float:
        """Share of decisions after which usage exceeded the predicted peak."""
        return float(self.violated.sum() / self.decisions.sum())

    @property
    def p99_node(self) -> float:
        """99th percentile over nodes of the share of decisions after which usage exceeded the predicted peak."""
        return float(np.quantile(self.violated / np.maximum(self.decisions, 1), 0.99))

    @property
    def mean_severity(self) -> float:
        """Mean excess of usage over the predicted peak, divided by the actual peak; 0 for decisions without excess."""
        return float(self.severity.sum() / self.decisions.sum())

    @property
    def savings_share(self) -> float:
        """Capacity lent, divided by what an oracle that knows the actual peaks would have lent."""
        return float(self.saved.sum() / self.could.sum())

    @property
    def sample_violation(self) -> float:
        """Share of usage samples above the peak that was predicted for their time."""
        return float(self.above.sum() / max(self.samples.sum(), 1.0))


def tally(trial: ReclaimTrial, peaks: Floats, came: Floats | None = None) -> Tally:
    """Return the test results of predicted peaks (n, decisions), without decisions whose next day is mostly missing.

    `came` is the result of `highest_after` if the caller has it; `samples`, `above` and `evicted_hours` are then 0.
    """
    by_samples, came = came is None, highest_after(trial) if came is None else came
    compared = np.isfinite(came) & np.isfinite(peaks)
    limits = np.broadcast_to(trial.limits[:, None], peaks.shape)
    predicted = np.minimum(peaks, limits)
    passed = compared & (predicted < came - ROUNDING * limits)
    with np.errstate(invalid="ignore", divide="ignore"):
        depth = np.where(passed, (came - predicted) / came, 0.0)
    over, measured = overshoot(trial, predicted) if by_samples else (np.zeros((len(limits), 0)),) * 2
    return Tally(
        decisions=compared.sum(axis=1).astype(float),
        violated=passed.sum(axis=1).astype(float),
        severity=depth.sum(axis=1),
        saved=np.where(compared, limits - predicted, 0).sum(axis=1),
        could=np.where(compared, limits - came, 0).sum(axis=1),
        samples=measured.sum(axis=1).astype(float),
        above=(over > 0).sum(axis=1).astype(float),
        evicted_hours=over.sum(axis=1) * 24 / trial.slots_per_day,
    )


def calibrated_peaks(
    trial: ReclaimTrial, risks: Sequence[float], settings: NodePeakSettings, history_days: int | None = None
) -> dict[float, Floats]:
    """Return by risk cotenant's predicted peaks, (n, decisions), from all earlier data or the last `history_days`."""
    blocks, ends = trial.blocks, trial.decisions
    full = None if history_days else _rule(blocks, trial, settings)
    peaks_by_risk: dict[float, list[Floats]] = {risk: [] for risk in risks}
    for end in ends.tolist():
        if full is None:
            rule = _rule(blocks[:, max(0, end - (history_days or 0) * BLOCKS_PER_DAY) : end], trial, settings)
        else:
            rule = full.until(end, settings.calibration_days * BLOCKS_PER_DAY)
        for risk in risks:
            peaks_by_risk[risk].append(rule.peaks_now(risk) * trial.limits)
    return {risk: np.stack(peaks, axis=1) for risk, peaks in peaks_by_risk.items()}


def _rule(blocks: Floats, trial: ReclaimTrial, settings: NodePeakSettings) -> PeakRule:
    """Return the peak rule at all decisions of these blocks, which are a part of the trial's."""
    return PeakRule.of(records(blocks, blocks.shape[1] + 1), trial.limits, trial.resource, settings)


def line_peaks(trial: ReclaimTrial, shares: Sequence[float]) -> dict[float, Floats]:
    """Return by share the peaks that a simple baseline predicts: array of shape (n, decisions).

    A peak is the mean of the highest usage of the last 14 and of the last 7 days, plus the share of the node's limit;
    for memory at least the highest usage of the last day, like cotenant's peaks.
    """
    usual = (highest_of(trial, 14) + highest_of(trial, 7)) / 2
    least = highest_of(trial, 1) if trial.resource is Resource.MEMORY else -np.inf
    return {share: np.fmax(usual + share * trial.limits[:, None], least) for share in shares}


def highest_of(trial: ReclaimTrial, days: int) -> Floats:
    """Return the static prediction: each node's highest usage in the last `days` before a decision, (n, decisions)."""
    blocks = np.where(np.isnan(trial.blocks), -np.inf, trial.blocks)
    highest = [blocks[:, end - days * BLOCKS_PER_DAY : end].max(axis=1) for end in trial.decisions.tolist()]
    peaks = np.stack(highest, axis=1)
    return np.where(np.isfinite(peaks), peaks, trial.limits[:, None])


def hindsight(trial: ReclaimTrial, violation: float) -> Floats:
    """Return for each node the constant peak that usage would have exceeded after a share `violation` of the decisions.

    It is known only afterwards: the (1 - violation) quantile of the highest usage that followed each of the node's
    decisions, repeated for every decision, (n, decisions).
    """
    came = highest_after(trial)
    constant = np.nanquantile(came, 1 - violation, axis=1, method="inverted_cdf")
    peaks: Floats = np.repeat(constant[:, None], came.shape[1], axis=1)
    return peaks


def tallies_by_factor(trial: ReclaimTrial, peaks: Floats, factors: Sequence[float] = FACTORS) -> dict[float, Tally]:
    """Return by factor the tally of the predicted peaks multiplied by that factor."""
    return {factor: tally(trial, peaks * factor) for factor in factors}


def concatenate_tallies(tallies: Sequence[Tally]) -> Tally:
    """Join the nodes of several trials into one tally."""
    return Tally(*(np.concatenate([getattr(t, f.name) for t in tallies]) for f in fields(Tally)))


def curve(name: str, settings: Mapping[float, Tally], ours: bool = False) -> FrontierCurve:
    """Return a predictor's results, one point per setting, as a curve ordered by share of violated decisions."""
    points = (FrontierPoint(t.violation, t.savings_share, f"{name} {knob:g}") for knob, t in settings.items())
    return FrontierCurve(name, tuple(sorted(points, key=lambda p: p.violation)), ours)


def frontier(title: str, trial: ReclaimTrial, settings: NodePeakSettings) -> Frontier:
    """Return curves of capacity lent against violations: a point per risk (cotenant) or factor (static predictors)."""
    ours = {risk: tally(trial, peaks) for risk, peaks in calibrated_peaks(trial, RISKS, settings).items()}
    statics = {
        f"highest of {days} days x factor": tallies_by_factor(trial, highest_of(trial, days)) for days in (7, 14)
    }
    curves = [curve("calibrated peak", ours, ours=True), *(curve(name, tallies) for name, tallies in statics.items())]
    return Frontier(title, tuple(curves))


def at_violation(settings: Mapping[float, Tally], violation: float) -> float:
    """Return a predictor's savings share at this share of violated decisions, interpolated between its settings.

    It is 0 if no setting has so low a violation (`is_reachable`), since the predictor then must lend nothing. Above the
    highest violation of all settings it is the savings share of that setting.
    """
    if not is_reachable(settings, violation):
        return 0.0
    points = sorted((t.violation, t.savings_share) for t in settings.values())
    return float(np.interp(violation, [v for v, _ in points], [s for _, s in points]))


def is_reachable(settings: Mapping[float, Tally], violation: float) -> bool:
    """Return whether some setting of a predictor has at most this share of violated decisions."""
    return min(t.violation for t in settings.values()) <= violation


def compare(
    ours: Mapping[float, Tally], other: Mapping[float, Tally], violation: float, seed: int = 0
) -> tuple[float, float, float]:
    """Return our savings share minus the other's at equal violation, and the difference's 95 % bootstrap interval."""
    n = len(next(iter(ours.values())).decisions)
    rng = np.random.default_rng(seed)
    drawn = [_difference(ours, other, violation, rng.integers(0, n, n)) for _ in range(_RESAMPLED)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return _difference(ours, other, violation, np.arange(n)), float(low), float(high)


def _difference(
    ours: Mapping[float, Tally], other: Mapping[float, Tally], violation: float, rows: npt.NDArray[np.intp]
) -> float:
    sampled_ours, sampled_other = ({knob: t.take(rows) for knob, t in side.items()} for side in (ours, other))
    return at_violation(sampled_ours, violation) - at_violation(sampled_other, violation)


def highest_after(trial: ReclaimTrial) -> Floats:
    """Return the highest usage of the day after each decision, (n, decisions); NaN if over half of it is missing."""
    blocks, ends = trial.blocks, trial.decisions
    days = np.stack([blocks[:, end : end + BLOCKS_PER_DAY] for end in ends.tolist()], axis=1)
    measured = np.isfinite(days).sum(axis=2)
    highest = np.where(np.isfinite(days), days, -np.inf).max(axis=2)
    result: Floats = np.where(2 * measured >= BLOCKS_PER_DAY, highest, np.nan)
    return result


def overshoot(
    trial: ReclaimTrial, predicted: Floats, announced: Floats | None = None
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return usage above the latest predicted peak, and a mask of the slots where it is known, both (n, slots).

    The slots begin at the first decision and end six hours after the last one. `announced`, (n, slots), is an amount
    that was added to the predicted peak after its decision.
    """
    size, ends = trial.slots_per_day // BLOCKS_PER_DAY, trial.decisions
    used = trial.totals[:, ends[0] * size : (ends[-1] + 1) * size]
    measured = np.isfinite(used)
    bound = np.repeat(np.where(np.isfinite(predicted), predicted, np.inf), size, axis=1)
    bound = bound if announced is None else bound + announced
    over: Floats = np.where(measured, np.maximum(np.where(measured, used, 0) - bound, 0), 0.0)
    return over, measured
