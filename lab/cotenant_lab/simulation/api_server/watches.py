"""A watch: the existing objects if no version is given, then every change in order, bookmarks, and an end by timeout.

A bookmark is sent two seconds before the watch's timeout and every minute before that, as by the real server, if there
was any change. A change by which an object enters or leaves the selection is sent as ADDED or DELETED.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Final, TypeAlias

from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.schema import Json
from cotenant_lab.simulation.api_server.state import Feed, ObjectState
from cotenant_lab.simulation.api_server.verbs import ApiCall

Stream: TypeAlias = Iterator[Json | None]
"""Events; None says "nothing yet", so that a client that hung up is noticed."""
DEFAULT_SECONDS: Final = 1800.0
BOOKMARK_SECONDS: Final = 60.0
BEFORE_END_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 1.0


def watch(state: ObjectState, call: ApiCall) -> Stream:
    """Return the events of a collection after a version; a forgotten version gives a single ERROR with 410."""
    version = call.query.get("resourceVersion", "")
    if version and not version.isdigit():
        raise Refusal(400, f"invalid resource version {version!r}")
    selects = call.selects()
    since = int(version or 0)
    try:
        with state.lock:
            first = [] if since else sorted(state.at(call.kind.collection, state.version).items())
            begin = since or state.version
            feed, end = state.subscribe(call.kind.collection, begin)
    except Refusal as error:
        return iter([{"type": "ERROR", "object": error.status()}])
    existing = [_event(call, "ADDED", item) for _, item in first if selects(item)]
    return _events(call, selects, existing, feed, end, begin)


def _events(
    call: ApiCall,
    selects: Callable[[Json], bool],
    existing: list[Json],
    feed: Feed,
    end: Callable[[], None],
    first: int,
) -> Stream:
    seconds = float(call.query.get("timeoutSeconds") or DEFAULT_SECONDS)
    begin, version = time.monotonic(), first
    marks = call.query.get("allowWatchBookmarks") in ("1", "true")
    due = _bookmark_times(begin, seconds) if marks else iter(())
    mark = next(due, None)
    try:
        yield from existing
        while (now := time.monotonic()) < begin + seconds:
            if mark is not None and now >= mark:
                mark = next(due, None)
                if version > first:
                    bookmark = {"kind": call.kind.name, "metadata": {"resourceVersion": str(version)}}
                    yield _event(call, "BOOKMARK", bookmark)
            until = min(begin + seconds, mark if mark is not None else begin + seconds, now + IDLE_SECONDS)
            try:
                change = feed.get(timeout=max(until - now, 0.0))
            except Empty:
                yield None
                continue
            if change is None:
                return
            version = change.version
            was = change.before is not None and selects(change.before)
            if change.after is not None and selects(change.after):
                yield _event(call, "MODIFIED" if was else "ADDED", change.after)
            elif was and change.before:
                metadata = {**change.before["metadata"], "resourceVersion": str(version)}
                yield _event(call, "DELETED", {**change.before, "metadata": metadata})
    finally:
        end()


def _bookmark_times(begin: float, seconds: float) -> Iterator[float]:
    last = begin + max(seconds - BEFORE_END_SECONDS, 0.0)
    at = begin + BOOKMARK_SECONDS
    while at < last:
        yield at
        at += BOOKMARK_SECONDS
    yield last


def _event(call: ApiCall, kind: str, item: Json) -> Json:
    return {"type": kind, "object": {**item, "apiVersion": call.kind.api_version}}
