"""Decaying histograms: samples per second on one core, and how far a percentile is from the exact one, in buckets."""

from __future__ import annotations

import os
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from bench.record import Row, above, below, record
from cotenant.base.usage.histogram import CPU_BUCKETS, CPU_SAMPLE_WEIGHT, HistogramBatch

SERIES, SLOTS, STEP = 1_100, 4_032, 300
FRACTIONS = (0.5, 0.9, 0.95, 0.98)
DAY = 86_400


def usage() -> tuple[np.ndarray, np.ndarray]:
    """1,100 series x 14 days at 5 minutes, millicores over four orders of magnitude, 2 % gaps."""
    rng = np.random.default_rng(7)
    level = np.exp(rng.uniform(np.log(5), np.log(20_000), (SERIES, 1)))
    values = (level * rng.gamma(2.0, 0.5, (SERIES, SLOTS))).astype(np.float32)
    values[rng.random(values.shape) < 0.02] = np.nan
    return values, 1_700_006_400 + STEP * np.arange(SLOTS, dtype=np.int64)


def seconds_per_add(values: np.ndarray, times: np.ndarray) -> list[float]:
    durations = []
    for _ in range(7):
        start = time.process_time()
        HistogramBatch.empty(SERIES, CPU_BUCKETS, DAY).add(values, times, weight=CPU_SAMPLE_WEIGHT)
        durations.append(time.process_time() - start)
    return durations


def exact(values: np.ndarray, times: np.ndarray, fraction: float) -> np.ndarray:
    """Smallest value whose share of the decayed weight reaches the fraction."""
    weights = np.where(np.isnan(values), 0.0, np.exp2((times - times[-1]) / DAY))
    order = np.argsort(values, axis=1)
    mass = np.take_along_axis(weights, order, axis=1).cumsum(axis=1)
    index = (mass < fraction * mass[:, -1:]).sum(axis=1)
    reached: np.ndarray = np.take_along_axis(values, order, axis=1)[np.arange(len(values)), index]
    return reached


def main() -> None:
    values, times = usage()
    seconds = seconds_per_add(values, times)
    batch = HistogramBatch.empty(SERIES, CPU_BUCKETS, DAY).add(values, times, weight=CPU_SAMPLE_WEIGHT)
    ends = np.append(CPU_BUCKETS.starts[1:], CPU_BUCKETS.starts[-1])
    distances, high = [], []
    for fraction, percentiles in zip(FRACTIONS, batch.percentiles(FRACTIONS).T, strict=True):
        true = exact(values, times, fraction)
        distances.append(np.abs(np.searchsorted(ends[:-1], percentiles) - CPU_BUCKETS.find(true)).max())
        high.append(percentiles[true >= 200] / true[true >= 200] - 1)
    size = int(np.isfinite(values).sum())
    highs = np.concatenate(high)
    record(
        "histogram",
        ".venv/bin/python -m bench.forecasting.histogram",
        [
            above(
                "samples per second, one core",
                round(size / min(seconds) / 1e6, 1),
                "million/s",
                1.0,
                "best of 7, CPU time",
            ),
            Row("samples per second, slowest", round(size / max(seconds) / 1e6, 1), "million/s", note="slowest of 7"),
            below(
                "percentile, buckets from exact",
                float(max(distances)),
                "buckets",
                1,
                "p50, p90, p95, p98 of 1,100 series",
            ),
            Row(
                "percentile above exact, mean",
                round(100 * float(highs.mean()), 2),
                "%",
                note="values of 200 m and more",
            ),
            Row(
                "percentile above exact, most", round(100 * float(highs.max()), 2), "%", note="values of 200 m and more"
            ),
        ],
    )


if __name__ == "__main__":
    main()
