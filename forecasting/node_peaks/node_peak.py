"""The calibrated peak of nodes: how high usage may get in the next 24 hours, at a risk that back-tests held. Pure.

    5-minute totals -> records of six-hour maxima (`peak_records`) -> base + calibrated spread (`peak_risk`) -> peaks

A node with too short a record gets Koordinator's formula for reclaimable capacity (its priority-class and pod
predictors, the larger peak) and says so. Memory obeys a rule of its own: its peak is never below the highest of the
last day, because what was given away can only be had back by eviction, and its risk has a setting of its own. Pods that
run but have no past yet count with what they request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
import numpy.typing as npt

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import RefT
from cotenant.base.usage.usage import Usage
from cotenant.forecasting.empirical import weighted_quantiles
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS, Records, block_maxima, records
from cotenant.forecasting.node_peaks.peak_risk import PeakCalibration, Prepared, calibrate
from cotenant.forecasting.node_peaks.worst_day import PastPeaks
from cotenant.forecasting.settings import NodePeakSettings

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]

FALLBACK: Final = "koordinator"
MARGIN: Final = 1.1
"""Of Koordinator's predictors over the percentile."""
_PERCENTILE: Final = {Resource.CPU: 0.95, Resource.MEMORY: 0.98}
_HALF_LIFE_DAYS: Final = {Resource.CPU: 0.5, Resource.MEMORY: 1.0}
_HALF_LIVES_KEPT: Final = 10
_NODES_AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True, eq=False)
class NodePeaks(Generic[RefT]):
    """Peaks of n nodes at R risks, (n, R) in the unit of usage, falling with the risk; NaN where the reason is NO_DATA.

    violation: share of back-tested decisions that were passed, measured forward, (n, R), NaN = none; days: of tested
    decisions, (n,); model: per node, what the peak rests on; reason: OK, or why Koordinator's formula stands in.
    class_peaks: of Koordinator's two predictors that of the whole class alone, (n,), which never is above the peak of
    a node whose model is FALLBACK; None = not known apart from it. tested: past decisions at the first risk; None =
    none was tested.
    """

    refs: tuple[RefT, ...]
    resource: Resource
    risks: tuple[float, ...]
    peaks: Floats
    violation: Floats
    days: npt.NDArray[np.intp]
    model: tuple[str, ...]
    reason: tuple[Reason, ...]
    class_peaks: Floats | None = None
    tested: PastPeaks | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NodeLimits:
    """The limits of n nodes and the requests of their cold pods, (n,) each, in the unit of usage.

    limits: the capacity above which nothing can be used; cold: requests of running pods without a past.
    """

    limits: Floats
    cold: Floats

    @classmethod
    def of(cls, limits: npt.ArrayLike) -> NodeLimits:
        """Build from limits alone, with no cold pods."""
        warm_limits = np.asarray(limits, dtype=np.float64)
        return cls(warm_limits, np.zeros_like(warm_limits))


def node_peaks(
    usage: Usage[RefT],
    node_limits: NodeLimits,
    risks: Sequence[float],
    settings: NodePeakSettings,
    pods: Floats | None = None,
    older: Floats | None = None,
) -> NodePeaks[RefT]:
    """Peaks of the 24 hours after `usage`, the node totals, which are capped at the limits.

    risks: shares, at least one, any order. pods: (n,), Koordinator's sum of pod peaks (`pod_peaks`), if there is one;
    it counts only where its formula stands in. older: (n, blocks), maxima of six hours before `usage`, NaN = unknown.
    """
    if not isinstance(usage.resource, Resource):
        raise ValueError("a node's peak needs usage of CPU or memory")
    limits = np.maximum(node_limits.limits, np.finfo(np.float32).tiny)
    values = np.clip(usage.values, 0, limits[:, None])
    slots = usage.grid.slots_per_day
    newest = block_maxima(values, slots)
    blocks = newest if older is None else np.concatenate([np.clip(older, 0, limits[:, None]), newest], axis=1)
    of = _records(blocks, settings)
    prepared = Prepared.of(of, limits, usage.resource)
    calibrations = [calibrate(prepared, risk, settings) for risk in risks]
    first = calibrations[0] if calibrations else None
    short: Flags = np.less(of.days[:, -1], settings.minimum_days if first else RECORD_DAYS + 1)
    of_class = koordinator_peaks(values, slots, usage.resource)
    fallback = of_class if pods is None else np.fmax(of_class, pods)
    peaks = _in_order(
        np.stack([_column(calibration, short, fallback, limits) for calibration in calibrations], axis=1), risks
    )
    if usage.resource is Resource.MEMORY:
        peaks, of_class = np.fmax(peaks, of.day[:, -1:]), np.fmax(of_class, of.day[:, -1])
    return NodePeaks(
        refs=usage.refs,
        resource=usage.resource,
        risks=tuple(risks),
        peaks=np.minimum(peaks + node_limits.cold[:, None], limits[:, None]),
        violation=_violation(calibrations, short),
        days=np.where(short, 0, first.days if first else 0),
        model=tuple(FALLBACK if s or first is None else first.shapes for s in short.tolist()),
        reason=_reasons(np.asarray(np.isnan(peaks).all(axis=1)), short),
        class_peaks=np.minimum(of_class + node_limits.cold, limits),
        tested=_past_peaks(first, blocks, limits, of.day if usage.resource is Resource.MEMORY else None),
    )


def has_own_record(reported: Flags, slots_per_day: int, settings: NodePeakSettings) -> Flags:
    """Nodes that surely need no formula of Koordinator's, (n,): their own days and tested decisions are enough.

    reported: (n, slots), slots in which some of a node's pods have a sample. What its other pods and older days add can
    only make the record longer. True also tells that decisions can be calibrated at all.
    """
    of = _records(block_maxima(np.where(reported, np.float32(0), np.float32(np.nan)), slots_per_day), settings)
    known = of.days >= settings.minimum_days
    result: Flags = known[:, -1] & (known & np.isfinite(of.after)).any(axis=1)
    return result


def koordinator_peaks(usage: Floats, slots_per_day: int, resource: Resource) -> Floats:
    """1.1 x the decayed percentile of node totals (n, slots), (n,); NaN without samples.

    Source: koordlet's peak predictor: p95 and a half-life of 12 h for CPU, p98 and 24 h for memory.
    """
    peaks: Floats = MARGIN * _decaying_peak(usage, slots_per_day, resource)
    return peaks


def mid_peaks(high: Floats, prod: Floats, slots_per_day: int) -> Floats:
    """Highest use in the last 14 days of the pods above batch that are not prod's, (n,), in the unit of usage.

    high, prod: (n, slots), totals of all pods above batch and of prod's, NaN = no pods. Such pods are too few for a
    calibrated peak of their own, and by present use alone the risk is not held where they burst.
    """
    recent = slice(-RECORD_DAYS * slots_per_day, None)
    rest = np.nan_to_num(high[:, recent]) - np.nan_to_num(prod[:, recent])
    highest: Floats = rest.max(axis=1, initial=0.0)
    return highest


def pod_peaks(usage: Floats, requests: Floats, slots_per_day: int, resource: Resource) -> Floats:
    """1.1 x the decayed percentile of each pod, (pods,); a pod younger than 24 h counts with its request."""
    cold = np.isfinite(usage).sum(axis=1) < slots_per_day
    peaks = MARGIN * _decaying_peak(usage, slots_per_day, resource)
    result: Floats = np.where(cold | np.isnan(peaks), requests, peaks)
    return result


def _records(blocks: Floats, settings: NodePeakSettings) -> Records:
    """Return the records of all decisions that calibration may use.

    Nodes are processed in parts so that memory stays bounded.
    """
    decisions = settings.calibration_days * BLOCKS_PER_DAY + 1
    parts = [records(blocks[i : i + _NODES_AT_ONCE], decisions) for i in range(0, max(1, len(blocks)), _NODES_AT_ONCE)]
    names = Records.__slots__
    return Records(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _past_peaks(
    calibration: PeakCalibration | None, blocks: Floats, limits: Floats, least: Floats | None
) -> PastPeaks | None:
    """Tested decisions but the one of now, with the six hours after each.

    blocks: (n, B), the newest last; least: (n, E), below which no peak is served, None = there is no such.
    """
    if calibration is None or calibration.tested.shape[1] < 2:
        return None
    peaks = calibration.tested[:, :-1] * limits[:, None]
    peaks = peaks if least is None else np.where(np.isfinite(peaks), np.fmax(peaks, least[:, :-1]), np.nan)
    return PastPeaks(peaks, blocks[:, blocks.shape[1] - peaks.shape[1] :], limits)


def _column(calibration: PeakCalibration | None, short: Flags, fallback: Floats, limits: Floats) -> Floats:
    if calibration is None:
        return fallback
    result: Floats = np.where(short, fallback, calibration.peaks * limits)
    return result


def _in_order(peaks: Floats, risks: Sequence[float]) -> Floats:
    """A smaller risk never gets a lower peak: shapes are chosen for each risk by itself."""
    order = np.argsort(risks)[::-1]
    ordered = np.fmax.accumulate(peaks[:, order], axis=1)
    result: Floats = ordered[:, np.argsort(order)]
    return result


def _violation(calibrations: Sequence[PeakCalibration | None], short: Flags) -> Floats:
    """Violation by node and risk, (n, risks): NaN where there is no calibration, or the record is too short."""
    columns = [
        np.where(short, np.nan, np.nan if calibration is None else calibration.violation)
        for calibration in calibrations
    ]
    return np.stack(columns, axis=1)


def _reasons(nothing: Flags, short: Flags) -> tuple[Reason, ...]:
    names = np.select([nothing, short], [Reason.NO_DATA.value, Reason.SHORT_RECORD.value], Reason.OK.value)
    return tuple(Reason(name) for name in names.tolist())


def _decaying_peak(usage: Floats, slots_per_day: int, resource: Resource) -> Floats:
    half_life = _HALF_LIFE_DAYS[resource] * slots_per_day
    recent = usage[:, -int(_HALF_LIVES_KEPT * half_life) :]
    weights = np.exp2(-np.arange(recent.shape[1])[::-1] / half_life)
    return weighted_quantiles(recent, weights, np.array([_PERCENTILE[resource]]))[:, 0]
