"""Parts of an array computation side by side: numpy lets go of Python's lock while it computes.

Two threads at most: each takes working memory of its own, and what lies between numpy's calls takes turns anyway.
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
    """Results of the work on every part, in their order; the first error is raised once no thread works any more.

    The work on a part must not depend on that on another. One thread does it all where the process has one processor,
    or was started for one thread (OMP_NUM_THREADS=1), as processes that share an analysis are.
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
