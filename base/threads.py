"""Parallel computation of parts of an array: numpy releases Python's lock while it computes.

At most two threads: each needs its own working memory, and the code between numpy's calls does not run in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")
MOST_THREADS: Final = 2


def side_by_side(work: Callable[[PartT], ResultT], parts: Sequence[PartT]) -> list[ResultT]:
    """Return the results of `work` on each part, in order; raise the first error after all threads have ended.

    The parts must be independent. One thread does all work if the process has one processor, or was started for one
    thread (OMP_NUM_THREADS=1), as processes that share an analysis are.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1":
        processors = 1
    else:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(MOST_THREADS, processors, len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    contexts = [copy_context() for _ in parts]  # what the log says of the caller, each line says in a thread too
    with ThreadPoolExecutor(threads, thread_name_prefix="arrays") as pool:
        return list(pool.map(lambda context, part: context.run(work, part), contexts, parts))
