"""EDGE: every line on stderr as one JSON object, including those of print, the interpreter and warnings.

Lines that are already JSON objects pass unchanged; each other line becomes an event of the logger "stderr". Uncaught
exceptions, in any thread, and Python warnings are logged as events, each with its whole traceback.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO


class JsonLines(io.TextIOBase):
    """A text stream that replaces stderr and writes complete lines as JSON to `inner`."""

    def __init__(self, inner: TextIO) -> None:
        """Wrap a text stream; nothing is written yet."""
        self.inner = inner
        self._begun = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Accept any piece of text; a line ends with a newline, or a carriage return of a progress bar."""
        with self._lock:
            *lines, self._begun = (self._begun + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
            for line in lines:
                if line.strip():
                    self.inner.write(as_json(line) + "\n")
        return len(text)

    def flush(self) -> None:
        """Flush `inner`, which has all complete lines; an incomplete line waits for its end."""
        self.inner.flush()

    def close(self) -> None:
        """Write an incomplete line as the last one; `inner` stays open."""
        if self._begun:
            self.write("\n")
        self.flush()

    def fileno(self) -> int:
        """Return the descriptor of `inner`: child processes and faulthandler write to it directly."""
        return self.inner.fileno()

    def isatty(self) -> bool:
        """Return False, because neither colours nor progress bars are JSON."""
        return False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream `inner`; "utf-8" if it has none."""
        return self.inner.encoding or "utf-8"


def as_json(line: str) -> str:
    """Return a line as one JSON object; a line that already is one is returned unchanged."""
    if line.startswith("{") and line.endswith("}"):
        try:
            json.loads(line)
        except ValueError:
            pass
        else:
            return line
    level = "error" if line.startswith(("error", "Error", "Traceback", "Fatal")) else "info"
    return event_line({"msg": line}, level)


def event_line(fields: Mapping[str, Any], level: str = "info", logger: str = "stderr") -> str:
    """Return an event as one line of JSON with the current time, `level` and `logger`."""
    moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"ts": moment, "level": level, "logger": logger, **fields})


def begin(stream: TextIO) -> JsonLines:
    """Replace stderr by JsonLines; Python warnings and uncaught exceptions become events."""
    lines = stream if isinstance(stream, JsonLines) else JsonLines(stream)
    sys.stderr = lines
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    logging.captureWarnings(True)
    return lines


def end() -> None:
    """Restore the state that stderr had before `begin`."""
    if isinstance(sys.stderr, JsonLines):
        sys.stderr.close()
        sys.stderr = sys.stderr.inner
    if sys.excepthook is _uncaught:
        sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
        sys.unraisablehook = sys.__unraisablehook__
        logging.captureWarnings(False)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    _log(logging.CRITICAL, "unhandled exception", (kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread else "?"
    _log(logging.ERROR, f"thread {name} ended by an exception", (args.exc_type, args.exc_value, args.exc_traceback))


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    what = args.err_msg or "exception ignored"
    error = args.exc_value or args.exc_type()
    _log(logging.ERROR, f"{what}: {args.object!r}", (type(error), error, args.exc_traceback))


def _log(level: int, text: str, exc_info: Any) -> None:
    logging.getLogger("stderr").log(level, "%s", text, exc_info=exc_info)
