"""The terms of all nodes for one resource as columns, which are the input of the formulas. Pure."""

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
    """Terms of n nodes for one resource, (n,) each, in its unit; integers of at least 0 unless stated otherwise.

    - `reserved`: kept from pods for the kubelet or by an annotation; `cpu_ratio`: CPU normalization, 1 = none
    - `system_used`: usage outside of pods and host applications; UNKNOWN if not known, IMPLAUSIBLE if not credible
    - `host_batch`, `host_mid`: usage of host applications with a class above batch; with a class above mid
    - `node_used`: usage of the whole node, UNKNOWN if not reported; `measured_seconds`: Unix time of the report
    - `hp_used`, `hp_request`, `hp_max`: sums over HP (high-priority) pods of usage, of requests, of the larger of both
    - `prod_request`, `prod_used`: the sums over prod pods and pods without a class
    - `prod_reclaimable`: the part of prod's requests that the forecast expects to stay unused
    - `announced`: requests of prod pods and reservations that came after the forecast's history, less those that left
    - `prod_peak`, `system_peak`: 24-hour peak forecast of `prod_used`; of all usage outside of pods; NaN = none
    - `mid_peak`: the highest usage of HP pods that are not prod; `origins`: number of back-tested days
    - `violation`: share of back-tested decisions whose `prod_peak` was exceeded, NaN = not measured
    - `third_batch`, `third_mid`: amounts that other schedulers took
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
        """Return the columns of node `i` alone."""
        rows = {f.name: getattr(self, f.name)[i : i + 1] for f in fields(self) if f.name != "resource"}
        return NodeColumns(resource=self.resource, **rows)


@dataclass(frozen=True, slots=True)
class PeakForecast:
    """The calibrated forecast of one node's 24-hour peak of prod usage, and the error of earlier such forecasts.

    `violation` is the share of back-tested decisions whose peak was exceeded, NaN = not measured; `origins` is the
    number of back-tested days; `system_peak` is the peak of usage outside of pods, NaN = not known; `mid_peak` is the
    highest usage of pods above batch that are not in `peak`.
    """

    peak: float
    violation: float
    origins: int
    system_peak: float = math.nan
    mid_peak: float = 0.0


NO_FORECAST: Final = PeakForecast(float("nan"), float("nan"), 0)


def forecast_columns(nodes: tuple[str, ...], forecast_by_node: Mapping[str, PeakForecast]) -> dict[str, Any]:
    """Return the columns of NodeColumns that come from forecasts, for one resource, with one value per node.

    A node without a forecast gets NaN and 0 days, so that the formulas use its present usage.
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
    """Return the amounts rounded up to integers within 0..AMOUNT_CAP; NaN becomes 0, infinity AMOUNT_CAP."""
    finite = np.nan_to_num(np.asarray(amounts, dtype=np.float64), nan=0.0, posinf=AMOUNT_CAP, neginf=0.0)
    return np.ceil(np.clip(finite, 0, AMOUNT_CAP)).astype(np.int64)


def share(amounts: Integers, percent: Floats) -> Integers:
    """Return a percentage of the nodes' amounts, truncated as in Koordinator; 0 on nodes whose `percent` is NaN."""
    with np.errstate(over="ignore"):
        exact = np.nan_to_num(amounts * (percent / 100.0), nan=0.0, posinf=AMOUNT_CAP, neginf=-AMOUNT_CAP)
    return np.clip(exact, -AMOUNT_CAP, AMOUNT_CAP).astype(np.int64)
