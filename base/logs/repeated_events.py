"""A repeated warning is written once, then counted, and its end is written too.

    taken(record) --> written, or counted: after REMIND_SECONDS at the latest it is written with its count
    ended(now) ----> a record for each counted warning that has not recurred for a while: how often, from when to when

Two records are equal if logger, level, message and all text fields are equal; numbers and lists (how many parts, which
attempt) may differ, and in texts durations and request identifiers of a proxy (`text.stable_text`). A record about
another request, pod or object is another one. Only warnings and errors are counted: actions are always written.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from cotenant.base.text import stable_text

FORGET_SECONDS: Final = 600.0
"""A warning that did not recur within this time is written like a new one."""
REMIND_SECONDS: Final = 600.0
"""Interval at which a warning that keeps recurring is written again, with its count."""
SHORTEST_QUIET_SECONDS: Final = 60.0
"""A warning that recurs more often has ended after this time without it; any other after three of its longest gaps."""
MOST_KEYS: Final = 1000
"""Most different warnings that are remembered; beyond that, the one without an occurrence for longest is forgotten."""
REPEATED: Final = "repeated"
ENDED: Final = "a repeated warning has ended"
_OWN_FIELDS: Final = frozenset({"event", "ts", "level", "logger", "exc_info", "stack_info", REPEATED, "since"})

Key = tuple[str, int, str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Seen:
    """One warning; times are Unix seconds; `counted` is since `written_seconds`, `total` since the first."""

    record: logging.LogRecord
    first_seconds: float
    last_seconds: float
    written_seconds: float
    counted: int = 0
    total: int = 1
    longest_gap_seconds: float = 0.0

    @property
    def quiet_seconds(self) -> float:
        return min(max(SHORTEST_QUIET_SECONDS, 3 * self.longest_gap_seconds), FORGET_SECONDS)


@dataclass(slots=True)
class RepeatedEvents:
    """The repeated warnings of one log handler; not thread-safe."""

    _seen: dict[Key, _Seen] = field(default_factory=dict)

    def taken(self, record: logging.LogRecord) -> logging.LogRecord | None:
        """Return the record to write, or None if it is only counted."""
        if record.levelno < logging.WARNING:
            return record
        now, key = record.created, key_of(record)
        entry = self._seen.pop(key, None)
        if entry is None or not 0 <= now - entry.last_seconds < FORGET_SECONDS:
            self._seen[key] = _Seen(record, now, now, now)
            if len(self._seen) > MOST_KEYS:
                self._seen.pop(next(iter(self._seen)))
            return record
        self._seen[key] = entry  # the last one in the order is the one that came last
        entry.longest_gap_seconds = max(entry.longest_gap_seconds, now - entry.last_seconds)
        entry.record, entry.last_seconds, entry.total = record, now, entry.total + 1
        if now - entry.written_seconds < REMIND_SECONDS:
            entry.counted += 1
            return None
        count, entry.counted, entry.written_seconds = entry.counted, 0, now
        return with_fields(record, {REPEATED: count, "since": _moment(entry.first_seconds)})

    def ended(self, now_seconds: float, *, all_of_them: bool = False) -> Iterator[logging.LogRecord]:
        """Yield a final record for each counted warning that has ended, or with `all_of_them` for each counted one."""
        for key, entry in list(self._seen.items()):
            if not all_of_them and now_seconds - entry.last_seconds < entry.quiet_seconds:
                continue
            if entry.total > 1 or all_of_them or now_seconds - entry.last_seconds >= FORGET_SECONDS:
                del self._seen[key]
            if entry.total > 1 and (entry.counted or not all_of_them):
                yield _last_word(key, entry)

    @property
    def is_counting(self) -> bool:
        """True if the final record of some warning has yet to be written."""
        return any(repeated.total > 1 for repeated in self._seen.values())


def key_of(record: logging.LogRecord) -> Key:
    """Return the key of a record; records with the same key count as repetitions of one event."""
    event = record.msg if isinstance(record.msg, dict) else None
    message = str(event.get("event", "")) if event is not None else record.getMessage()
    text_fields = {k: v for k, v in (event or {}).items() if isinstance(v, str) and k not in _OWN_FIELDS}
    exc_info = (event or {}).get("exc_info") or record.exc_info
    if exc_info is True:
        error = sys.exc_info()[1]
    else:
        raised = exc_info[1] if isinstance(exc_info, tuple) else exc_info
        error = raised if isinstance(raised, BaseException) else None
    if error is not None:
        text_fields["exc_info"] = f"{type(error).__name__}: {error}"
    stable_fields = tuple(sorted((name, stable_text(text)) for name, text in text_fields.items()))
    return record.name, record.levelno, stable_text(message), stable_fields


def with_fields(record: logging.LogRecord, fields: Mapping[str, Any]) -> logging.LogRecord:
    """Return a copy of the record with additional fields."""
    copy = logging.makeLogRecord(record.__dict__)
    if isinstance(record.msg, dict):
        copy.msg = {**record.msg, **fields}
    else:
        field_text = ", ".join(f"{name} {value}" for name, value in fields.items())
        copy.msg, copy.args = f"{record.getMessage()} ({field_text})", ()
    return copy


def _last_word(key: Key, entry: _Seen) -> logging.LogRecord:
    """Return a final record with the warning's own level and logger, without its traceback."""
    name, level, message, text_fields = key
    fields = dict(text_fields)
    error = fields.pop("exc_info", "")
    event: dict[str, Any] = {
        **fields,
        **({"error": error} if error else {}),
        "event": ENDED,
        "of": message,
        REPEATED: entry.total - 1,
        "since": _moment(entry.first_seconds),
        "until": _moment(entry.last_seconds),
        "ts": _moment(entry.last_seconds),
        "level": logging.getLevelName(level).lower(),
        "logger": name,
    }
    logger = logging.getLogger(name)
    # as `structlog.stdlib.ProcessorFormatter.wrap_for_formatter` marks its own
    return logger.makeRecord(name, level, "", 0, event, (), None, extra={"_logger": None, "_name": event["level"]})


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class CountingHandler(logging.StreamHandler[TextIO]):
    """A stream handler that writes a repeated warning once per REMIND_SECONDS, and a final record when it has ended."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.time) -> None:
        super().__init__(stream)
        self._repeated, self._now = RepeatedEvents(), now
        self._watching = False
        self._closing = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record or count it; the caller has the handler's lock."""
        written = self._repeated.taken(record)
        if written is not None:
            super().emit(written)
        elif not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="repeated-events", daemon=True).start()

    def write_ends(self, *, all_of_them: bool = False) -> None:
        """Write a final record for each warning that has ended; with `all_of_them`, for all that were counted."""
        self.acquire()
        try:
            for record in self._repeated.ended(self._now(), all_of_them=all_of_them):
                super().emit(record)
        finally:
            self.release()

    def close(self) -> None:
        """Write the final records of all counted warnings, and close the handler, at exit or when it is replaced."""
        self._closing.set()
        self.write_ends(all_of_them=True)
        super().close()

    def _watch(self) -> None:
        while not self._closing.wait(SHORTEST_QUIET_SECONDS / 4):
            self.write_ends()
            self.acquire()
            try:
                self._watching = self._repeated.is_counting
                if not self._watching:
                    return
            finally:
                self.release()
