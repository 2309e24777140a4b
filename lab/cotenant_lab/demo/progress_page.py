"""EDGE: the page at the demo's address while its cluster is made; it shows the progress and reloads itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from cotenant.base.commands.progress import LineProgress, ShownProgress
from cotenant.base.progress import Progress
from cotenant.base.text import duration
from cotenant_lab.demo.time_left import MakingTime

RELOAD_SECONDS: Final = 1
POLL_SECONDS: Final = 0.05
"""Between two looks whether it is to end."""
_PAGE: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>cotenant demo</title>
<meta http-equiv="refresh" content="{seconds}"><meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --paper: light-dark(#f6f7f9, #15181d); --card: light-dark(#fff, #1e2229);
--ink: light-dark(#1b1f24, #e8eaed); --dim: light-dark(#59616b, #9aa3ad); --line: light-dark(#e3e6ea, #30353d);
--accent: light-dark(#0b7285, #3bc9db) }}
body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid; place-items: center;
background: var(--paper); color: var(--ink) }}
main {{ width: min(34rem, 100vw - 4rem); padding: 2rem; border: 1px solid var(--line); border-radius: 12px;
background: var(--card); box-sizing: border-box }}
h1 {{ font-size: 1.35rem; margin: 0 0 1.25rem }} p {{ margin: .75rem 0 0 }} .dim {{ color: var(--dim) }}
progress {{ width: 100%; height: .75rem; accent-color: var(--accent) }}
</style></head><body><main><h1>The demo's cluster is being made</h1>
<progress value="{done:.3f}" max="1" aria-label="How far it is"></progress>
<p role="status">{stage}</p><p class="dim">about {left} left; the dashboard appears here by itself.</p>
</main></body></html>"""


class ProgressPage:
    """Answers every request on a bound socket with the progress until `stop`, which leaves the socket open.

    It is a `Progress` as well. As a context manager it calls `stop` at the end, also after an error.
    """

    def __init__(self, listener: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        """Listen at once. clock: seconds from any moment on."""
        self._clock, self._begun = clock, clock()
        self._making = MakingTime()
        self._to: ShownProgress = LineProgress(silent=True)
        self._reported_seconds = 0.0
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

        class Server(ThreadingHTTPServer):
            def service_actions(self) -> None:
                page.tick()

        self._server = Server(listener.getsockname()[:2], Answer, bind_and_activate=False)
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

    def following(self, progress: ShownProgress, size: float) -> Progress:
        """Return a Progress that informs the page and `progress`; `size` is the demo's number of workloads x days."""
        self._to, self._making = progress, replace(self._making, size=size)
        return self

    def stage(self, name: str, total: int) -> None:
        """Show the beginning of a stage of `total` steps."""
        self._making = self._making.stage(name, total, self._elapsed_seconds())
        self._report_overall()
        self._to.stage(name, total)

    def advance(self, steps: int = 1) -> None:
        """Count finished steps of the current stage."""
        self._making = self._making.with_steps(steps)
        self._to.advance(steps)

    def tick(self) -> None:
        """Report the overall progress and the time left, at most once every RELOAD_SECONDS."""
        if self._elapsed_seconds() - self._reported_seconds >= RELOAD_SECONDS:
            self._report_overall()

    def _report_overall(self) -> None:
        now = self._reported_seconds = self._elapsed_seconds()
        self._to.expect(self._making.done_ratio(now), duration(self._making.left_seconds(now)))

    def html(self) -> str:
        """Return the page with the present progress."""
        making, now = self._making, self._elapsed_seconds()
        counted = f": {making.steps:,} of {making.total:,}" if making.total > 1 else ""
        stage, time_left = escape(f"{making.name or 'It begins'}{counted}"), duration(making.left_seconds(now))
        return _PAGE.format(seconds=RELOAD_SECONDS, stage=stage, done=making.done_ratio(now), left=time_left)

    def _elapsed_seconds(self) -> float:
        return self._clock() - self._begun

    def stop(self) -> None:
        """Stop answering; new connections wait for the next server on the socket. A second call does nothing."""
        self._server.shutdown()
        self._thread.join()
