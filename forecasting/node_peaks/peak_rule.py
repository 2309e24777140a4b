"""The rule of a node's peak in the next 24 hours: its recent maximum plus a share of the node. Pure.

    usual   = mean(highest of the last 14 days, highest of the last 7 days)
    CPU:    peak = usual + share x limit
    memory: peak = usual + share x (limit - usual), and at least the highest of the last day

The share depends on the risk: constants from public traces (`bench.forecasting.peak_populations`), the same for every
cluster. Memory stays allocated until it is released, so how far it may rise depends on what is free. A cluster whose
own past needed a larger share gets one, but never a smaller one: a calm fortnight is no guarantee. The cluster's scores
are (actual peak - usual) / the limit, or for memory / what is free of it. The constants are stretched by how much
farther above their median the scores' 90th percentile is, and if the scores' own quantile at the risk is higher still,
it counts. Both have the weight d / (d + prior days), where d are the days of decisions: nodes of a class move together,
so a day counts once however many nodes there are, and with fewer than ten nodes it counts a tenth per node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Flags, Floats
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, Records
from cotenant.forecasting.settings import NodePeakSettings

RULE: Final = "mean of 14 and 7 days"
"""Name of the rule, as results have it."""
RATES: Final = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.0001)
"""Shares of decisions whose peak is passed, at which `SHARES` stand; between them it is linear in their logarithm."""
SHARES: Final[Mapping[Resource, tuple[float, ...]]] = {
    Resource.CPU: (-0.03, -0.005, 0.005, 0.015, 0.04, 0.06, 0.095, 0.225, 0.35),
    Resource.MEMORY: (-0.15, -0.02, 0.025, 0.09, 0.19, 0.36, 0.44, 0.5, 0.55),
}
"""Added to `usual`, of the limit for CPU, of what is free for memory."""
_RESTLESS: Final = 2
"""Place of the rate at which a cluster's own scores are compared: rarer ones are few events, others no peaks."""
_FULL_CLASS: Final = 10  # nodes of which a day of decisions counts as a day of evidence
_PARTS: Final = 6
_LEAST_FREE: Final = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PeakRule:
    """The rule of node peaks, applied to the records of n nodes at E decisions; amounts are shares of a node's limit.

    peak = max(usual + share x free, least), (n, E) each. free: 1, for memory 1 - usual; least: 0, for memory the last
    day's highest; after: actual peak, NaN = not yet known; usable: the record is long enough and the outcome is known.
    """

    usual: Floats
    free: Floats
    least: Floats
    after: Floats
    usable: Flags
    resource: Resource
    prior_days: float

    @classmethod
    def of(cls, records: Records, limits: Floats, resource: Resource, settings: NodePeakSettings) -> PeakRule:
        """Return the rule for the nodes of `records`; `limits` (n,) are above 0 and in the unit of the records."""
        usual, day = (records.highest + records.week) / 2 / limits[:, None], records.day / limits[:, None]
        stands = resource is Resource.MEMORY
        free = np.maximum(1 - usual, _LEAST_FREE) if stands else np.ones_like(usual)
        least = day if stands else np.zeros_like(usual)
        usable = (records.days >= settings.minimum_days) & np.isfinite(records.after)
        return cls(usual, free, least, records.after / limits[:, None], usable, resource, settings.prior_days)

    def until(self, end: int, length: int) -> PeakRule:
        """Return the rule as known at decision `end`, with this decision and the `length` decisions before it."""
        part = slice(max(0, end - length), end + 1)
        usable = self.usable[:, part].copy()
        usable[:, -BLOCKS_PER_DAY:] = False  # their outcomes were still open
        usual, free, least, after = (of[:, part] for of in (self.usual, self.free, self.least, self.after))
        return replace(self, usual=usual, free=free, least=least, after=after, usable=usable)

    def share(self, risk: float, is_known: Flags) -> float:
        """Return the share of `free` to add to `usual` for a risk, from constants and outcomes marked by `is_known`."""
        shares = SHARES[self.resource]
        share = float(np.interp(np.log(risk), np.log(RATES[::-1]), shares[::-1]))
        if not is_known.any():
            return share
        scores = ((self.after - self.usual) / self.free)[is_known]
        middle, high, own = np.quantile(scores, [1 - RATES[0], 1 - RATES[_RESTLESS], 1 - risk], method="inverted_cdf")
        days = min(is_known.any(axis=0).sum(), is_known.sum() / _FULL_CLASS) / BLOCKS_PER_DAY
        weight = days / (days + self.prior_days)
        restless = max((high - middle) / (shares[_RESTLESS] - shares[0]), 1.0)
        share += weight * (restless - 1) * (share - shares[0])
        return float(share + weight * max(own - share, 0.0))

    def peaks_now(self, risk: float) -> Floats:
        """Return each node's peak at the last decision, from all known outcomes, as a share of its limit."""
        peaks: Floats = self._peaks(self.share(risk, self.usable))[:, -1]
        return peaks

    def tested_peaks(self, risk: float) -> Floats:
        """Return the peaks (n, E) of usable decisions, each from outcomes that were complete before it; NaN for others.

        The share is recomputed for each sixth of the decisions.
        """
        decisions = np.arange(self.usable.shape[1])
        shares = np.zeros(len(decisions))
        for part in np.array_split(decisions, _PARTS):
            if part.size:
                shares[part] = self.share(risk, self.usable & (decisions <= part[0] - BLOCKS_PER_DAY))
        return np.where(self.usable, self._peaks(shares), np.nan)

    def violation(self, tested: Floats) -> Floats:
        """Return for each node the share of its tested peaks (n, E) that were exceeded; NaN if none was tested."""
        count = np.isfinite(tested).sum(axis=1)
        none = np.full(len(tested), np.nan)
        shares: Floats = np.divide((self.after > tested).sum(axis=1), count, out=none, where=count > 0)
        return shares

    def _peaks(self, share: float | Floats) -> Floats:
        peaks: Floats = np.clip(np.fmax(self.usual + share * self.free, self.least), 0, 1)
        return peaks
