"""EDGE: serves the extender: uvicorn with httptools and uvloop, TLS with client certificates, in a thread of its own.

Answers carry Content-Length and are never chunked: the scheduler's client drops a connection whose end it has not
read. Certificates are read again when their files change.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn

from cotenant.model.errors import CotenantError, UsageError
from cotenant.settings.extender import ExtenderSettings
from scheduler_ext.extender.app import ExtenderApp

KEEP_ALIVE_SECONDS: Final = 120
"""Longer than the scheduler keeps an idle connection (90 s)."""
START_SECONDS: Final = 30.0
RELOAD_SECONDS: Final = 5.0
_FILES: Final = ("tls.crt", "tls.key", "ca.crt")
_log = structlog.get_logger(__name__)


class ExtenderServer:
    """A port, bound at once; `start` serves from a thread."""

    def __init__(self, app: Callable[..., Any], settings: ExtenderSettings) -> None:
        """UsageError when the port is taken, or when strangers could reach it without a certificate."""
        self._app, self._folder = app, settings.certificate_folder
        if not self._folder and not _is_loopback(settings.host):
            raise UsageError(
                f"extender.host is {settings.host}, which others can reach, and there is no certificate_folder",
                fix="Give --cert-dir, or listen on 127.0.0.1.",
            )
        self._socket = _listening(settings)
        self._server = uvicorn.Server(self._config())
        self._thread = threading.Thread(target=self._run, name="extender", daemon=True)
        self._failed: BaseException | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self._socket.getsockname()[:2]
        return f"{'https' if self._folder else 'http'}://{host}:{port}"

    @property
    def port(self) -> int:
        """Port that is served, also when 0 was asked."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()
        ends = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < ends:
            time.sleep(0.01)
        if not self._server.started:
            raise CotenantError(f"the extender did not start: {self._failed or 'no answer in time'}")

    def stop(self) -> None:
        """Answer what was asked, then stop."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()

    def wait(self) -> None:
        """Until the server ends."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def _config(self) -> uvicorn.Config:
        tls: dict[str, Any] = {}
        if self._folder:
            certificate, key, authority = (str(Path(self._folder, name)) for name in _FILES)
            missing = [path for path in (certificate, key, authority) if not Path(path).is_file()]
            if missing:
                raise UsageError(f"{missing[0]} is missing", fix="--cert-dir needs tls.crt, tls.key and ca.crt, PEM.")
            tls = {
                "ssl_certfile": certificate,
                "ssl_keyfile": key,
                "ssl_ca_certs": authority,
                "ssl_cert_reqs": ssl.CERT_REQUIRED,
            }
        return uvicorn.Config(
            self._app,
            http="httptools",
            loop="uvloop",
            lifespan="off",
            ws="none",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
            limit_concurrency=128,
            **tls,
        )

    def _run(self) -> None:
        import uvloop

        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told by start
            self._failed = error
            _log.error("the extender's server ended", error=str(error))

    async def _serve(self) -> None:
        tasks = [asyncio.ensure_future(self._reload())]
        if isinstance(self._app, ExtenderApp):
            tasks.append(asyncio.ensure_future(self._app.collect_garbage()))
        await self._server.serve(sockets=[self._socket])
        for task in tasks:
            task.cancel()

    async def _reload(self) -> None:
        """Show a renewed certificate from the next connection on."""
        seen = self._stamps()
        while self._folder:
            await asyncio.sleep(RELOAD_SECONDS)
            now, context = self._stamps(), self._server.config.ssl
            if now == seen or context is None:
                continue
            try:
                context.load_cert_chain(Path(self._folder, "tls.crt"), Path(self._folder, "tls.key"))
                context.load_verify_locations(Path(self._folder, "ca.crt"))
                seen = now
                _log.info("certificate read again")
            except OSError as error:
                _log.warning("the certificate cannot be used; the present one stays", error=str(error))

    def _stamps(self) -> list[int]:
        paths = [Path(self._folder, name) for name in _FILES] if self._folder else []
        return [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]


def _listening(settings: ExtenderSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), backlog=1024, family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {settings.host}:{settings.port}: {error}", fix="Set extender.port to a free port."
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
