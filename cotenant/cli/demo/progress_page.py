"""EDGE: what the demo's address answers while its cluster is made: how far that is, in a page that reloads itself."""

from __future__ import annotations

import socket
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from cotenant.base.progress import Progress, Silent

RELOAD_SECONDS: Final = 1
POLL_SECONDS: Final = 0.05
"""Between two looks whether it is to end."""
_PAGE: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>cotenant demo</title>
<meta http-equiv="refresh" content="{seconds}"><meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem;
color-scheme: light dark }}</style></head><body><main><h1>The demo's cluster is being made</h1>
<p role="status">{stage}</p><p>The dashboard appears here by itself.</p></main></body></html>"""


class ProgressPage:
    """Answers every request on a bound socket until `stop`, which leaves the socket open. A `Progress` as well.

    As a context it stops at its end at the latest, so that whatever ends the making ends the answers.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Listen at once."""
        self._stage, self._steps, self._total = "It begins.", 0, 0
        self._to: Progress = Silent()
        page = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.html().encode()
                self.send_response(503)
                self.send_header("Retry-After", str(RELOAD_SECONDS))
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                """Do nothing: the terminal shows the progress."""

        self._server = ThreadingHTTPServer(listener.getsockname()[:2], Answer, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """`stop`."""
        self.stop()

    def following(self, progress: Progress) -> Progress:
        """A Progress that tells both the page and `progress`."""
        self._to = progress
        return self

    def stage(self, name: str, total: int) -> None:
        """Show the stage."""
        self._stage, self._steps, self._total = name, 0, total
        self._to.stage(name, total)

    def advance(self, steps: int = 1) -> None:
        """Count its steps."""
        self._steps += steps
        self._to.advance(steps)

    def html(self) -> str:
        """The page as it is now."""
        counted = f": {self._steps:,} of {self._total:,}" if self._total > 1 else ""
        return _PAGE.format(seconds=RELOAD_SECONDS, stage=escape(f"{self._stage}{counted}"))

    def stop(self) -> None:
        """Answer no more; who comes from now on waits for the next server on the socket. Twice is once."""
        self._server.shutdown()
        self._thread.join()
