"""An export of a hundred thousand rows is whole and is sent piece by piece."""

from __future__ import annotations

import asyncio
import csv
import io
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.responses import StreamingResponse

from cotenant.dashboard.rest import results
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.support import dashboard as support
from tests.support.many_rows import repeated

ROWS = 100_000


async def measured(response: StreamingResponse) -> tuple[int, int, int, int]:
    """Lines, the largest piece and all of them, and the most of Python's memory, the last three in bytes."""
    lines = largest = total = 0
    tracemalloc.start()
    async for piece in response.body_iterator:
        text = piece if isinstance(piece, str) else bytes(piece).decode()
        lines += sum(1 for _ in csv.reader(io.StringIO(text, newline="")))
        largest, total = max(largest, len(text)), total + len(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return lines, largest, total, peak


@pytest.mark.slow
def test_a_hundred_thousand_rows_leave_whole_and_never_all_at_once(tmp_path: Path) -> None:
    demo_results = support.results(tmp_path, spec=support.WEEK)
    demo_results.store.write_table(repeated(demo_results.store.read_table(RECOMMENDATIONS), ROWS))
    snapshot = StoreSource(demo_results.store, support.QUICK).snapshot()
    response = results.answer(snapshot, RECOMMENDATIONS, "", "csv", slice(0, results.MAX_LIMIT))
    assert isinstance(response, StreamingResponse)
    with ThreadPoolExecutor(1) as alone:  # another test of this process may have a loop of its own
        lines, largest, total, peak = alone.submit(asyncio.run, measured(response)).result()
    assert lines == ROWS + 1  # the heading
    assert largest < total / 5
    # The whole text is some 25 MB: of it and of the rows behind it a small part is in memory at a time.
    assert peak < total
