"""Share of its demand that a workload was refused: summed for those alone that were throttled, the same for all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.usage.sparse_usage import SparseUsage, Stretch, of_stretches
from cotenant.base.usage.usage import FloatMatrix, Signal, TimeGrid
from cotenant.pipeline.shards.work import throttled_ratios
from cotenant.profiler.pool import Owners

START = 1_699_833_600
WORKLOADS = tuple(WorkloadRef("shop", "Deployment", name) for name in ("api", "db", "web"))
INVENTORY = Inventory(
    "test", START, (), (), tuple(Pod("shop", f"{w.name}-{i}", w, "node", START) for w in WORKLOADS for i in range(2))
)
REFS = tuple(PodContainerRef(pod.namespace, pod.name, "main") for pod in INVENTORY.pods)


def series(
    signal: Signal, values: FloatMatrix, refs: tuple[PodContainerRef, ...] = REFS
) -> SparseUsage[PodContainerRef]:
    grid, spec = TimeGrid(START, 300, values.shape[1]), signal.spec
    return of_stretches(refs, grid, [Stretch(np.arange(len(refs)), 0, values)], spec.resource, spec.statistic)


def ratios(used: FloatMatrix, refused: FloatMatrix, refs: tuple[PodContainerRef, ...] = REFS) -> list[float]:
    usage = {
        Signal.CPU_USAGE_MEAN: series(Signal.CPU_USAGE_MEAN, used),
        Signal.CPU_THROTTLED_MEAN: series(Signal.CPU_THROTTLED_MEAN, refused, refs),
    }
    values: list[float] = throttled_ratios(usage, Owners(INVENTORY, WORKLOADS)).tolist()
    return values


def test_only_a_workload_that_was_throttled_has_a_ratio() -> None:
    used = np.full((6, 2), 10, dtype=np.float32)
    # db-1 was refused 20 of what db's two pods wanted: 40 used + 20 = 60.
    refused = np.array([[20, np.nan]], dtype=np.float32)
    assert ratios(used, refused, (PodContainerRef("shop", "db-1", "main"),)) == [0, 20 / 60, 0]


def test_a_source_without_throttling_has_none() -> None:
    assert ratios(np.ones((6, 2), dtype=np.float32), np.empty((0, 2), dtype=np.float32), ()) == [0, 0, 0]


@given(*(arrays(np.float32, (6, 3), elements=st.floats(0, 100, width=32)) for _ in range(2)))
def test_the_ratio_is_refused_of_demand(used: FloatMatrix, refused: FloatMatrix) -> None:
    refused = np.where(refused < 50, 0, refused).astype(np.float32)
    sums = [(m.astype(np.float64)[i : i + 2].sum()) for m in (used, refused) for i in (0, 2, 4)]
    expected = [r / (u + r) if u + r > 0 else 0.0 for u, r in zip(sums[:3], sums[3:], strict=True)]
    np.testing.assert_allclose(ratios(used, refused), expected, rtol=1e-12)
