"""A back-test of many shards holds one at a time: its peak memory does not grow with the trace."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np

from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.backtest.baselines import by_name
from cotenant.forecasting.backtest.contenders import PathContender
from cotenant.forecasting.backtest.plan import HALF_HOURS, origins
from cotenant.forecasting.backtest.run import Shard, run

GRID = TimeGrid(1_700_438_400, 1800, 20 * 48)
SIZE = 100


def shards(count: int) -> Iterator[Shard]:
    """Series made when asked for, so that only the run can keep them."""
    for number in range(count):
        rng = np.random.default_rng(number)
        values = rng.gamma(2, 5, (SIZE, GRID.size)).astype(np.float32)
        yield Shard(tuple(f"{number}-{i}" for i in range(SIZE)), GRID, values, np.full(SIZE, 100, dtype=np.float32))


def peak_bytes(count: int) -> tuple[int, int]:
    """Highest memory of a run, and how much of it the ledger is."""
    tracemalloc.start()
    ledger = run(shards(count), [PathContender(by_name("B1"))], HALF_HOURS, origins(GRID, HALF_HOURS, 2))
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ledger_bytes = ledger.covered.nbytes + sum(
        v.nbytes for part in (ledger.of_trial, ledger.of_contender) for v in part.values()
    )
    assert len(ledger.names) == count * SIZE
    return highest, ledger_bytes


def test_memory_grows_by_the_ledger_alone() -> None:
    few, _ = peak_bytes(2)
    many, ledger_bytes = peak_bytes(8)
    # Six shards more of 100 x 960 float32 would be 2.3 MB if they were held; the ledger may be copied once as it is
    # joined, and names and lists come on top.
    assert many - few < 2 * ledger_bytes + 600_000
    assert 6 * SIZE * GRID.size * 4 > 2 * ledger_bytes + 600_000
