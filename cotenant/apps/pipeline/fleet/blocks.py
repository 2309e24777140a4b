"""The stored blocks of a shard: results for readers, and the state that the next hour starts from. Pure.

State is kept in float32 but for times: sums lose digits behind the seventh, maxima none, because usage is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.identity import PodContainerRef
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.forecast import LEVELS, Forecasts
from cotenant.core.model.usage.histogram import HistogramBatch, buckets_of
from cotenant.core.model.usage.portrait import Pattern, Portraits
from cotenant.core.model.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, FloatMatrix

Block = dict[str, npt.NDArray[Any]]
Refs = tuple[PodContainerRef, ...]

HOURS_PER_DAY: Final = DAY_SECONDS // HOUR_SECONDS
SLOTS_PER_HOUR: Final = HOUR_SECONDS // FIVE_MINUTES_SECONDS
PERCENTILES: Final = (0.5, 0.9, 0.95, 0.98)
_TIMES: Final = ("first_seconds", "last_seconds")
_COLUMNS: Final = (
    *("startup_max", "startup_samples", "seen", "square_sums", "daily_maxima", "daily_sums", "daily_counts"),
    *("slot_sums", "slot_counts", "slot_maxima"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Hours:
    """Maximum (n, hours) of each hour, NaN for none, and its number of 5-minute values; the newest hour last."""

    maxima: FloatMatrix
    counts: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, values: FloatMatrix) -> Hours:
        """From 5-minute values (n, 12 x hours) that begin on the hour; negative and infinite ones are gaps."""
        block = values.reshape(len(values), values.shape[1] // SLOTS_PER_HOUR, SLOTS_PER_HOUR)
        good = np.isfinite(block) & (block >= 0)
        highest = np.where(good, block, -np.inf).max(axis=2, initial=-np.inf)
        counts = good.sum(axis=2)
        return cls(np.where(counts > 0, highest, np.nan).astype(np.float32), counts.astype(np.uint8))

    def then(self, newer: Hours, most: int) -> Hours:
        """With newer hours behind, the last `most` of all."""
        maxima = np.append(self.maxima, newer.maxima, axis=1)[:, -most:]
        return Hours(maxima, np.append(self.counts, newer.counts, axis=1)[:, -most:])

    def widened(self, more: int) -> Hours:
        """With series of which nothing is known behind."""
        shape = (more, self.maxima.shape[1])
        maxima = np.append(self.maxima, np.full(shape, np.nan, dtype=np.float32), axis=0)
        return Hours(maxima, np.append(self.counts, np.zeros(shape, dtype=np.uint8), axis=0))

    def daily(self, days: int) -> FloatMatrix:
        """Maximum of each 24 hours counted back from the end, at most `days`; NaN where half or more is missing."""
        count = min(days, self.maxima.shape[1] // HOURS_PER_DAY)
        first = self.maxima.shape[1] - count * HOURS_PER_DAY
        shape = (len(self.maxima), count, HOURS_PER_DAY)
        highest = np.fmax.reduce(self.maxima[:, first:].reshape(shape), axis=2)
        samples = self.counts[:, first:].reshape(shape).sum(axis=2)
        result: FloatMatrix = np.where(2 * samples > HOURS_PER_DAY * SLOTS_PER_HOUR, highest, np.nan).astype(np.float32)
        return result


def names(refs: Sequence[PodContainerRef]) -> Block:
    """Text columns of references."""
    parts = ("namespace", "pod", "container")
    return {part: np.array([*(getattr(ref, part) for ref in refs), None], dtype=object)[:-1] for part in parts}


def refs_of(block: Block) -> Refs:
    """References of a block."""
    columns = (block[part].tolist() for part in ("namespace", "pod", "container"))
    return tuple(PodContainerRef(*parts) for parts in zip(*columns, strict=True))


def results(portraits: Portraits[PodContainerRef], forecasts: Forecasts[PodContainerRef]) -> Block:
    """What is published: one row a container, in the order of `forecasts`, which is the portraits'."""
    percentiles = portraits.histograms.percentiles(PERCENTILES)
    return {
        **names(forecasts.refs),
        "start": np.full(len(forecasts.refs), forecasts.grid.start_seconds, dtype=np.int64),
        **{f"p{q * 100:g}": percentiles[:, i].astype(np.float32) for i, q in enumerate(PERCENTILES)},
        "maximum": portraits.maximum.astype(np.float32),
        "mean": portraits.mean.astype(np.float32),
        "pattern": _texts([p.value for p in portraits.pattern]),
        "quantiles": forecasts.quantiles,
        "peak": forecasts.peak,
        "model": _texts(forecasts.model),
        "reason": _texts([reason.value for reason in forecasts.reason]),
        "relative_wql": np.array([e.relative_wql for e in forecasts.error], dtype=np.float32),
        "coverage_95": np.array([e.coverage_95 for e in forecasts.error], dtype=np.float32),
    }


def state(portraits: Portraits[PodContainerRef], hours: Hours) -> Block:
    """What the next hour goes on from."""
    histograms = portraits.histograms
    return {
        **names(portraits.refs),
        **{name: getattr(portraits, name) for name in _TIMES},
        **{name: getattr(portraits, name).astype(np.float32) for name in _COLUMNS},
        "pattern": _texts([p.value for p in portraits.pattern]),
        "weights": histograms.weights.astype(np.float32),
        "total": histograms.total.astype(np.float32),
        "reference_seconds": histograms.reference_seconds,
        "hour_maxima": hours.maxima,
        "hour_counts": hours.counts,
    }


def restored(
    block: Block, resource: Resource, end_seconds: int, half_life_seconds: int
) -> tuple[Portraits[PodContainerRef], Hours]:
    """Inverse of `state`; KeyError when a column is missing."""
    histograms = HistogramBatch(
        buckets_of(resource),
        half_life_seconds,
        block["weights"].astype(np.float64),
        block["total"].astype(np.float64),
        block["reference_seconds"],
    )
    portraits = Portraits(
        refs=refs_of(block),
        resource=resource,
        step_seconds=FIVE_MINUTES_SECONDS,
        end_seconds=end_seconds,
        histograms=histograms,
        pattern=tuple(Pattern(name) for name in block["pattern"].tolist()),
        **{name: block[name].astype(np.float64) for name in (*_TIMES, *_COLUMNS)},
    )
    return portraits, Hours(block["hour_maxima"], block["hour_counts"])


def rolled(block: Block, slots: int, start_seconds: int) -> Block:
    """The results with their paths moved on by half hours: what was forecast for this time stands for tomorrow too."""
    return {
        **block,
        "quantiles": np.roll(block["quantiles"], -slots, axis=1),
        "start": np.full(len(block["start"]), start_seconds, dtype=np.int64),
    }


def with_peak(block: Block, peak: npt.NDArray[np.float32]) -> Block:
    """The results with a new peak, nowhere below the highest point of the path's median, as the engine has it."""
    floor = block["quantiles"][:, :, LEVELS.index(0.5)].max(axis=1)[:, None]
    return {**block, "peak": np.where(np.isnan(peak), floor, np.fmax(peak, floor)).astype(np.float32)}


def with_portraits(block: Block, portraits: Portraits[PodContainerRef]) -> Block:
    """The block's result columns with percentiles, maximum, mean and pattern of newer portraits; forecasts stay.

    portraits: of the same series in the same order.
    """
    percentiles = portraits.histograms.percentiles(PERCENTILES)
    newer = {f"p{q * 100:g}": percentiles[:, i].astype(np.float32) for i, q in enumerate(PERCENTILES)}
    pattern = _texts([p.value for p in portraits.pattern])
    summed = {"maximum": portraits.maximum.astype(np.float32), "mean": portraits.mean.astype(np.float32)}
    return {**block, **newer, **summed, "pattern": pattern}


def chained(first: Block, second: Block) -> Block:
    """Rows of one block behind those of another with the same columns."""
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def select(portraits: Portraits[PodContainerRef], rows: npt.NDArray[np.intp]) -> Portraits[PodContainerRef]:
    """Portraits of some rows."""
    columns = {name: getattr(portraits, name)[rows] for name in (*_TIMES, *_COLUMNS)}
    return replace(
        portraits,
        refs=tuple(portraits.refs[i] for i in rows.tolist()),
        histograms=portraits.histograms.select(rows),
        pattern=tuple(portraits.pattern[i] for i in rows.tolist()),
        **columns,
    )


def _texts(cells: Sequence[str]) -> npt.NDArray[Any]:
    return np.array([*cells, None], dtype=object)[:-1]
