"""EDGE: sends many queries, a bounded number in flight, and yields their answers in order.

A query that exceeds a limit is halved until it succeeds. If a query with several parts fails, each part is sent alone,
so that one bad metric does not affect the others. Remaining failures are returned with their query.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from cotenant.base.errors import SourceError, SourceLimit, SourceProtocol, SourceTooLong
from cotenant.profiler.prometheus.answers import CutAnswer, Overloaded, TooLongSpan, TooSlow
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.plan import RangeQuery

T = TypeVar("T")
_SERIES: Final = re.compile(r"\b(time ?)?series\b", re.IGNORECASE)
"""What servers say of questions that select too many series, whatever their span."""
MOST_FRUITLESS: Final = 16
"""Number of the smallest pieces refused, with none answered, after which pieces are not split any further."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pieces:
    """The pieces, by time, of one part in some namespaces that were queried so far."""

    answered: bool = False
    refused: int = 0

    def may_split(self, error: SourceError) -> bool:
        """Return whether smaller pieces may succeed; always true after a timeout or a cut answer."""
        return self.answered or self.refused < MOST_FRUITLESS or isinstance(error, (TooSlow, CutAnswer))


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The outcome of one query: decoded answers to the query or to the pieces it was split into, and failures."""

    found: tuple[T, ...] = ()
    failed: tuple[tuple[RangeQuery, SourceError], ...] = ()
    splits: int = 0


def ask_all(
    client: Client, queries: Sequence[RangeQuery], in_flight: int, read: Callable[[msgspec.Raw, RangeQuery], T]
) -> Iterator[Answered[T]]:
    """Yield the answers in the order of the queries; the next is prepared while the caller uses the previous one.

    At most `in_flight` queries are sent at the same time, and the next is sent while an answer is decoded. `read` runs
    once at a time: it is CPU-bound, and needs several times the answer's size as memory.
    """
    asking, reading = threading.BoundedSemaphore(in_flight), threading.Lock()

    def ask(query: RangeQuery) -> msgspec.Raw:
        with asking:
            return client.range(query.wording(), query.first_seconds, query.last_seconds, query.grid.step_seconds)

    def read_alone(result: msgspec.Raw, query: RangeQuery) -> T:
        with reading:
            return read(result, query)

    waiting: deque[Future[Answered[T]]] = deque()
    pool = ThreadPoolExecutor(in_flight + 1, thread_name_prefix="prometheus")
    try:
        for query in queries:
            waiting.append(pool.submit(_answer_query, ask, query, read_alone))
            if len(waiting) > in_flight + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        client.stop()  # else an interrupted caller would wait for a server that is away
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _answer_query(
    ask: Callable[[RangeQuery], msgspec.Raw],
    query: RangeQuery,
    read: Callable[[msgspec.Raw, RangeQuery], T],
    pieces: _Pieces | None = None,
) -> Answered[T]:
    pieces = pieces or _Pieces()
    try:
        answer = Answered((read(ask(query), query),))
    except SourceError as error:
        # It may be smaller after a limit, or without the bad metric after another refusal
        refused = isinstance(error, (SourceProtocol, Overloaded))
        divisible = isinstance(error, SourceLimit) or (refused and len(query.parts) > 1)
        halves = _halves(query, error) if divisible and pieces.may_split(error) else None
        if halves is None:
            pieces.refused += 1
            _log.warning(
                "query_failed", parts=[p.name for p in query.parts], slots=query.grid.size, error=error.message
            )
            return Answered(failed=((query, error),))
        _log.info("query_split", parts=[p.name for p in query.parts], slots=query.grid.size, error=error.message)
    else:
        pieces.answered = True
        return answer
    by_time = (halves[0].parts, halves[0].shard) == (query.parts, query.shard)
    inner = pieces if by_time else None
    first_half, second_half = (_answer_query(ask, half, read, inner) for half in halves)
    return Answered(
        first_half.found + second_half.found,
        first_half.failed + second_half.failed,
        1 + first_half.splits + second_half.splits,
    )


def _halves(query: RangeQuery, error: SourceError) -> tuple[RangeQuery, RangeQuery] | None:
    """Return two smaller queries, cut as the server's error suggests."""
    if isinstance(error, SourceTooLong):
        return query.shorter_halves()
    if isinstance(error, TooLongSpan):
        return query.earlier_and_later()
    many = isinstance(error, CutAnswer) or _SERIES.search(error.message)
    return query.narrower_halves() if many else query.halves()
