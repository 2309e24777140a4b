"""Terms of all nodes for one resource as columns: the input of the formulas. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

AMOUNT_CAP: Final = 2**52
"""Terms are clipped here, so that sums of absurd inputs stay exact integers in a double."""

UNKNOWN: Final = -1
"""In `node_used` and `system_used`: not reported."""
IMPLAUSIBLE: Final = -2
"""In `system_used`: the report says that more is used, by something on the node, than the node has."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """Terms of n nodes for one resource, (n,) each, in its unit, integers >= 0 unless a field says otherwise.

    reserved: not offered to pods, by the kubelet or an annotation; system_used: outside of pods and host applications,
    UNKNOWN = neither reported nor to be had from the node's whole, IMPLAUSIBLE = no part of the report can be believed;
    host_batch, host_mid: host applications whose class is above batch, above mid; node_used: all of it, UNKNOWN = not
    reported; hp_used, hp_request, hp_max: sums over HP pods of usage, request and the larger of both; prod_request,
    prod_used: over prod pods and pods without a class; prod_reclaimable: requested by them and not used, by forecast;
    announced: requests of prod pods and reserved capacity that came after the forecast's history, beyond what left;
    prod_peak: forecast of the 24-hour peak of prod_used, NaN = none; system_peak: of what runs outside of pods, host
    applications included, NaN = none; mid_peak: highest use of HP pods that prod_used does not hold; violation: share
    of back-tested decisions whose prod_peak was passed, NaN = not measured; origins: days of them; cpu_ratio: CPU
    normalization, 1 = none;
    third_batch, third_mid: taken by other schedulers; measured_seconds: Unix time of the newest report, NaN = none.
    """

    nodes: tuple[str, ...]
    resource: Resource
    capacity: Integers
    reserved: Integers
    system_used: Integers
    host_batch: Integers
    host_mid: Integers
    node_used: Integers
    hp_used: Integers
    hp_request: Integers
    hp_max: Integers
    prod_request: Integers
    prod_used: Integers
    prod_reclaimable: Integers
    announced: Integers
    prod_peak: Floats
    system_peak: Floats
    mid_peak: Floats
    violation: Floats
    origins: Integers
    cpu_ratio: Floats
    third_batch: Integers
    third_mid: Integers
    measured_seconds: Floats

    def take(self, i: int) -> NodeColumns:
        """Return the columns of node i only."""
        rows = {f.name: getattr(self, f.name)[i : i + 1] for f in fields(self) if f.name != "resource"}
        return NodeColumns(resource=self.resource, **rows)


@dataclass(frozen=True, slots=True)
class PeakForecast:
    """The calibrated 24-hour peak of what prod uses on one node, and how such peaks did before.

    violation: share of back-tested decisions whose peak was passed, NaN = not measured; origins: days of them;
    system_peak: of what runs outside of pods, NaN = not known; mid_peak: highest use of pods above batch that the peak
    does not hold.
    """

    peak: float
    violation: float
    origins: int
    system_peak: float = math.nan
    mid_peak: float = 0.0


NO_FORECAST: Final = PeakForecast(float("nan"), float("nan"), 0)


def forecast_columns(nodes: tuple[str, ...], forecast_by_node: Mapping[str, PeakForecast]) -> dict[str, Any]:
    """The forecast's columns of NodeColumns for one resource: the peaks, violation, origins, (n,) each.

    A node without a forecast gets NaN and 0 days, by which the formulas fall back to present usage.
    """
    forecasts = [forecast_by_node.get(name, NO_FORECAST) for name in nodes]
    return {
        "prod_peak": np.array([f.peak for f in forecasts], dtype=np.float64),
        "system_peak": np.array([f.system_peak for f in forecasts], dtype=np.float64),
        "mid_peak": np.array([f.mid_peak for f in forecasts], dtype=np.float64),
        "violation": np.array([f.violation for f in forecasts], dtype=np.float64),
        "origins": np.array([f.origins for f in forecasts], dtype=np.int64),
    }


def ceil_amounts(amounts: npt.ArrayLike) -> Integers:
    """Amounts rounded up to integers, clipped to 0..AMOUNT_CAP; NaN counts as 0, infinity as AMOUNT_CAP."""
    finite = np.nan_to_num(np.asarray(amounts, dtype=np.float64), nan=0.0, posinf=AMOUNT_CAP, neginf=0.0)
    return np.ceil(np.clip(finite, 0, AMOUNT_CAP)).astype(np.int64)


def share(amounts: Integers, percent: Floats) -> Integers:
    """Percentage of amounts, cut towards zero as upstream does; percent (n,), NaN gives 0."""
    with np.errstate(over="ignore"):
        exact = np.nan_to_num(amounts * (percent / 100.0), nan=0.0, posinf=AMOUNT_CAP, neginf=-AMOUNT_CAP)
    return np.clip(exact, -AMOUNT_CAP, AMOUNT_CAP).astype(np.int64)
