"""The peak of nodes: how high usage may get in the next 24 hours, with a risk that back-tests confirmed. Pure.

    5-minute totals -> records of six-hour maxima (`peak_records`) -> the rule (`peak_rule`) -> peaks

A node with too short a record gets Koordinator's formula for reclaimable capacity (its priority-class and pod
predictors, the larger peak), and the reason says so. Memory has its own rule and its own risk setting: its peak is
never below the highest usage of the last day, because lent memory can only be recovered by eviction. Running pods
without a past count with their requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic

import numpy as np
import numpy.typing as npt

from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import RefT
from cotenant.base.usage.usage import Flags, Floats, Usage
from cotenant.forecasting.node_peaks.koordinator_peaks import koordinator_peaks
from cotenant.forecasting.node_peaks.peak_records import (
    BLOCKS_PER_DAY,
    RECORD_DAYS,
    PastPeaks,
    Records,
    block_maxima,
    records,
)
from cotenant.forecasting.node_peaks.peak_rule import RULE, PeakRule
from cotenant.forecasting.settings import NodePeakSettings

FALLBACK: Final = "koordinator"
_NODES_AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True, eq=False)
class NodePeaks(Generic[RefT]):
    """Peaks of n nodes at R risks, (n, R), in the unit of usage; lower at a higher risk, NaN if the reason is NO_DATA.

    - violation (n, R): share of back-tested decisions whose peak was exceeded, NaN = none; days (n,): tested days.
    - model: what each node's peak is based on; reason: OK, or why Koordinator's formula was used.
    - class_peaks (n,): peak by Koordinator's priority-class predictor alone; not above the peak if model is FALLBACK.
    - tested: past decisions at the first risk; None = none was tested.
    - highest, week (n,): highest usage of the last 14 and 7 days; added (n,): what the rule adds to their mean at the
      first risk; NaN if Koordinator's formula was used. These and class_peaks: None = not known.
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
    highest: Floats | None = None
    week: Floats | None = None
    added: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NodeLimits:
    """The limits of n nodes, and the requests of pods without usage history (cold pods), in the unit of usage.

    `limits` (n,) is the capacity, the most that can be used; `cold` (n,) is the total request of running cold pods.
    """

    limits: Floats
    cold: Floats

    @classmethod
    def of(cls, limits: npt.ArrayLike) -> NodeLimits:
        """Return nodes of these limits (n,), on which no pod without usage history runs."""
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
    """Return each node's peak in the 24 hours after `usage` (node totals); usage and peaks are capped at the limits.

    `risks` are shares, at least one, in any order. `pods` (n,) is Koordinator's sum of pod peaks (`pod_peaks`), used
    only for short records. `older` (n, blocks) are maxima of six-hour blocks before `usage`, NaN = not known.
    """
    if not isinstance(usage.resource, Resource):
        raise ValueError("a node's peak needs the usage of CPU or memory")
    limits = np.maximum(node_limits.limits, np.finfo(np.float32).tiny)
    values = np.clip(usage.values, 0, limits[:, None])
    slots = usage.grid.slots_per_day
    newest = block_maxima(values, slots)
    blocks = newest if older is None else np.concatenate([np.clip(older, 0, limits[:, None]), newest], axis=1)
    of = _records(blocks, settings)
    rule = PeakRule.of(of, limits, usage.resource, settings)
    short: Flags = np.less(of.days[:, -1], settings.minimum_days)
    of_class = koordinator_peaks(values, slots, usage.resource)
    fallback = of_class if pods is None else np.fmax(of_class, pods)
    by_rule = np.stack([rule.peaks_now(risk) for risk in risks], axis=1) * limits[:, None]
    peaks = np.where(short[:, None], fallback[:, None], by_rule)
    if usage.resource is Resource.MEMORY:
        peaks, of_class = np.fmax(peaks, of.day[:, -1:]), np.fmax(of_class, of.day[:, -1])
    tested = [rule.tested_peaks(risk) for risk in risks]
    past = None
    if tested[0].shape[1] > 1 and np.isfinite(tested[0]).any():
        # All decisions but the one of now, in the unit of usage, with the six hours after each.
        decided = tested[0][:, :-1] * limits[:, None]
        past = PastPeaks(decided, blocks[:, blocks.shape[1] - decided.shape[1] :], limits)
    now = (of.highest[:, -1], of.week[:, -1], by_rule[:, 0])
    highest, week, first = (np.where(short, np.nan, part) for part in now)
    return NodePeaks(
        refs=usage.refs,
        resource=usage.resource,
        risks=tuple(risks),
        peaks=np.minimum(peaks + node_limits.cold[:, None], limits[:, None]),
        violation=np.stack([np.where(short, np.nan, rule.violation(peaks)) for peaks in tested], axis=1),
        days=np.where(short, 0, np.isfinite(tested[0]).sum(axis=1) // BLOCKS_PER_DAY),
        model=tuple(FALLBACK if s else RULE for s in short.tolist()),
        reason=tuple(
            Reason.NO_DATA if np.isnan(row).all() else Reason.SHORT_RECORD if s else Reason.OK
            for row, s in zip(peaks, short.tolist(), strict=True)
        ),
        class_peaks=np.minimum(of_class + node_limits.cold, limits),
        tested=past,
        highest=highest,
        week=week,
        added=first - (highest + week) / 2,
    )


def has_own_record(reported: Flags, slots_per_day: int, settings: NodePeakSettings) -> Flags:
    """Return for each node whether its own usage record is surely long enough to do without Koordinator's formula.

    `reported` (n, slots): slots with a sample of some of the node's pods; samples of its other pods can only add days.
    """
    of = _records(block_maxima(np.where(reported, np.float32(0), np.float32(np.nan)), slots_per_day), settings)
    result: Flags = of.days[:, -1] >= settings.minimum_days
    return result


def mid_peaks(high: Floats, prod: Floats, slots_per_day: int) -> Floats:
    """Return each node's highest usage in the last 14 days by pods of a priority above batch that are not prod.

    It stands for these pods' peak: they are too few for a calibrated one, and their present usage omits bursts.
    `high`, `prod`: (n, slots), totals of all pods above batch and of prod pods; NaN = no pods, counts as 0.
    """
    recent = slice(-RECORD_DAYS * slots_per_day, None)
    rest = np.nan_to_num(high[:, recent]) - np.nan_to_num(prod[:, recent])
    highest: Floats = rest.max(axis=1, initial=0.0)
    return highest


def _records(blocks: Floats, settings: NodePeakSettings) -> Records:
    """Return the records of all decisions that may be tested, computed for a few nodes at a time to limit memory."""
    decisions = settings.calibration_days * BLOCKS_PER_DAY + 1
    parts = [records(blocks[i : i + _NODES_AT_ONCE], decisions) for i in range(0, max(1, len(blocks)), _NODES_AT_ONCE)]
    names = Records.__slots__
    return Records(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
