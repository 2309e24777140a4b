"""EDGE: logs on stderr.

The entry points (CLI, dashboard, node agent) call `configure_logging` once; all other code uses
`structlog.get_logger(__name__)` and logs a constant message with fields. Needs nothing beyond the base install.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.types import EventDict, Processor

from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.difference import difference
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.logs import json_stderr
from cotenant.base.logs.repeated_events import CountingHandler
from cotenant.base.settings.sections import TelemetrySettings

TRACE_FRAMES: Final = 12
"""Frames of a traceback in one line of a console."""
_COLORS: Final = {"debug": 90, "info": 32, "warning": 33, "error": 31, "critical": 31}  # level -> ANSI colour


_in_force: list[TelemetrySettings] = []
"""The settings of the last `configure_logging`, for processes that this one begins."""


def configure_logging(
    settings: TelemetrySettings, stream: TextIO | None = None, *, whole_stderr: bool | None = None
) -> None:
    """Send events of structlog and of the standard library to stderr (or `stream`), one line each.

    Replaces the previous configuration. Fields bound by `scope` are on every line. In JSON, `ts` is RFC 3339 UTC, `msg`
    the constant message and `exception` the whole traceback; on a console an exception is its last line. Equal warnings
    are written once and then counted (`repeated_events`), except at level debug. With `whole_stderr` (default: if no
    `stream` is given) and JSON, other output to stderr, uncaught exceptions and Python's warnings are JSON as well.
    """
    json_stderr.end()
    out = sys.stderr if stream is None else stream
    if settings.log_format == "json" and (stream is None if whole_stderr is None else whole_stderr):
        json_stderr.begin(sys.stderr)
    _in_force[:] = [settings]
    level = getattr(logging, settings.log_level.upper())
    last: list[Processor]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out) if settings.log_level == "debug" else CountingHandler(out)
    if settings.log_format == "json":
        renamed = structlog.processors.EventRenamer("msg")
        last = [structlog.processors.format_exc_info, renamed, structlog.processors.JSONRenderer(serializer=_to_json)]
    else:
        line = _colored_line if out.isatty() and not os.environ.get("NO_COLOR") else _line
        last = [_last_line_of_exception, _without_repetition, line]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    for before in logging.root.handlers:
        if isinstance(before, CountingHandler):
            before.close()
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)


def settings_in_force() -> TelemetrySettings | None:
    """Return the settings last given to `configure_logging`, or None if it was not called."""
    return _in_force[0] if _in_force else None


@contextmanager
def scope(**fields: str) -> Iterator[None]:
    """Add fields (run_id, request_id, cluster...) to every event in the block, but not in threads that it starts."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def _to_json(event: Mapping[str, Any], **_: Any) -> str:
    """Return one line of ASCII JSON; a number that is not finite is null, any other type its repr. Never raises."""
    return json.dumps({key: _to_json_types(value) for key, value in event.items()})


def _to_json_types(value: Any) -> Any:
    """Return the value in JSON's own types."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain))
    except (TypeError, ValueError, OverflowError, *UNDECODABLE):
        return repr(value)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def _last_line_of_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Shorten `exception` to "Type: message", with the frames of an unexpected one, so that an event is one line."""
    error = event.pop("exc_info", None)
    exception = sys.exc_info()[1] if error is True else error[1] if isinstance(error, tuple) else error
    if isinstance(exception, BaseException):
        event["error"] = f"{type(exception).__name__}: {exception}"
        if not isinstance(exception, CotenantError):
            # The origin of an error, last frames first: `store.py:120 read < pages/nodes.py:31 draw < ...`
            frames = traceback.extract_tb(exception.__traceback__)[-TRACE_FRAMES:]
            event["trace"] = " < ".join(
                f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno} {f.name}" for f in reversed(frames)
            )
    return event


def _without_repetition(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Reduce an old and a new value to their difference and drop empty fields; JSON lines keep all."""
    if not {"old", "new"} <= event.keys():
        return event
    event["changed"] = difference(str(event.pop("old")), str(event.pop("new")))
    return {key: value for key, value in event.items() if value != ""}


def _line(_logger: Any, _method: str, event: EventDict) -> str:
    """Return `time level message key=value ...`, all printable, so that no field can forge a line or a colour."""
    ts, level, message = (_escape_unprintable(str(event.pop(key, ""))) for key in ("ts", "level", "event"))
    return " ".join(
        [ts, f"{level:<7}", message, *(f"{_escape_unprintable(k)}={_quote_value(v)}" for k, v in event.items())]
    )


def _colored_line(logger: Any, method: str, event: EventDict) -> str:
    """Return the same line with a coloured level."""
    level = str(event.get("level", ""))
    painted = f"\x1b[{_COLORS.get(level, 0)}m{level}\x1b[0m"
    return _line(logger, method, event).replace(f" {level}", f" {painted}", 1)


def _quote_value(value: object) -> str:
    text = _escape_unprintable(str(value))
    return '"' + text.replace('"', '\\"') + '"' if not text or set(text) & set(' ="') else text


def _escape_unprintable(text: str) -> str:
    """Escape control, format (right-to-left overrides) and unassigned characters, and separators."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
